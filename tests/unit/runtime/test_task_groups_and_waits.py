"""Groups of tasks, and waits for events."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from pathlib import Path

import pytest

from admittance.backoff import Backoff
from admittance.runtime import clock
from admittance.runtime.errors import Superseded
from admittance.runtime.tasks import (
    BackgroundTasks,
    set_before,
    set_within,
    task_group,
    until_returned,
)

ROOT = Path(__file__).parents[3]
WAIT_ONCE = {
    "libs/admittance/sdk/worker.py": "the end of a process",
    "services/admittance/scheduler/usage_keys.py": "the end of a leader",
    "services/admittance/workload_controller/journal.py": "the end of a leader",
}
"""Where it does no harm that a cancellation is lost which comes with what is waited for, as that is
waited for once."""


async def test_the_failure_of_one_task_ends_the_group_and_is_raised() -> None:
    ended = asyncio.Event()

    async def works() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()

    async def fails() -> None:
        await asyncio.sleep(0)
        raise Superseded

    with pytest.raises(Superseded):
        async with task_group() as tasks:
            tasks.create_task(works())
            tasks.create_task(fails())
            await asyncio.sleep(3600)
    assert ended.is_set()


async def test_a_bug_in_a_task_is_raised_as_a_group() -> None:
    async def broken() -> None:
        raise ZeroDivisionError

    with pytest.raises(ExceptionGroup):
        async with task_group() as tasks:
            tasks.create_task(broken())


async def test_a_background_task_is_kept_until_it_ends_and_found_by_its_key() -> None:
    tasks = BackgroundTasks()
    ended = asyncio.Event()

    async def work() -> int:
        await ended.wait()
        return 7

    task = tasks.start(work(), name="work", key="a")
    assert "a" in tasks
    assert tasks.get("a") is task
    assert [task.get_name() for task in tasks] == ["work"]
    ended.set()
    await tasks.settled(60)
    await asyncio.sleep(0)
    assert task.result() == 7
    assert len(tasks) == 0
    assert tasks.get("a") is None


async def test_the_error_of_a_background_task_is_reported_once() -> None:
    failed: list[tuple[str, str]] = []
    tasks = BackgroundTasks(lambda task, error: failed.append((task.get_name(), str(error))))

    async def fails() -> None:
        raise ValueError("bad")

    tasks.start(fails(), name="broken")
    await tasks.settled()
    await tasks.end()
    assert failed == [("broken", "bad")]


async def test_the_end_waits_for_tasks_that_clean_up_when_cancelled() -> None:
    failed: list[object] = []
    tasks = BackgroundTasks(lambda *what: failed.append(what))
    cleaned: list[str] = []

    async def works() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0)
            cleaned.append("up")

    for _ in range(2):
        tasks.start(works())
    await asyncio.sleep(0)
    await tasks.end()
    assert cleaned == ["up", "up"]
    assert not failed


async def test_a_call_is_repeated_until_it_returns() -> None:
    errors = [OSError("one"), OSError("two")]
    said: list[tuple[str, float]] = []

    async def call() -> str:
        if errors:
            raise errors.pop(0)
        return "done"

    def failed(error: OSError, pause: float) -> None:
        said.append((str(error), pause))

    assert await until_returned(call, Backoff(0.001, 0.002), failed, on=OSError) == "done"
    assert said == [("one", 0.001), ("two", 0.002)]


async def test_a_call_is_not_repeated_after_another_error_nor_if_the_report_raises() -> None:
    async def call() -> None:
        raise KeyError("other")

    def refuse(error: Exception, _: float) -> None:
        raise error

    with pytest.raises(KeyError):
        await until_returned(call, Backoff(60.0), lambda *_: None, on=OSError)
    with pytest.raises(KeyError):
        await until_returned(call, Backoff(60.0), refuse)


async def test_a_wait_returns_whether_the_event_was_set() -> None:
    event = asyncio.Event()
    assert not await set_within(event, 0.001)
    assert not await set_before(event, clock.now() - timedelta(seconds=1))
    asyncio.get_running_loop().call_soon(event.set)
    assert await set_before(event, None)
    assert await set_before(event, clock.now() - timedelta(seconds=1))


@pytest.mark.parametrize("turns", range(5))
async def test_no_cancellation_is_lost_that_comes_with_the_event(turns: int) -> None:
    event = asyncio.Event()

    async def waits() -> None:
        while True:
            event.clear()
            await set_within(event, 3600)

    task = asyncio.create_task(waits())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    event.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    async with asyncio.timeout(5):
        await asyncio.wait([task])
    assert task.cancelled()


def test_the_product_does_not_use_wait_for() -> None:
    """`asyncio.wait_for` of Python 3.11 can lose a cancellation; `asyncio.timeout` cannot."""
    uses = {
        path.relative_to(ROOT).as_posix()
        for room in ("libs", "services")
        for path in (ROOT / room).rglob("*.py")
        if "asyncio.wait_for(" in path.read_text()
    }
    assert uses == WAIT_ONCE.keys()


OWN_TASKS = {
    "libs/admittance/runtime/tasks.py": "the owner",
    "libs/admittance/runtime/nats/micro.py": "the requests that are answered, counted by subject",
    "services/admittance/runner/runs/run_manager.py": "the last task of each run",
    "services/admittance/web/sessions.py": "the watch of each session, which ends with it",
}


def test_tasks_in_the_background_have_one_owner() -> None:
    """A set or dictionary of tasks would need its own callbacks for errors and for the end."""
    own = re.compile(r"\b(?:set\[asyncio\.Task|dict\[(?:\w+, )?asyncio\.Task)")
    uses = {
        path.relative_to(ROOT).as_posix()
        for room in ("libs", "services")
        for path in (ROOT / room).rglob("*.py")
        if own.search(path.read_text())
    }
    assert uses == OWN_TASKS.keys()
