"""A service that is asked to end does so in time, whatever it waits for."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys

import pytest
from nats.aio.msg import Msg

from admittance.runtime import tasks
from admittance.runtime.errors import BusUnavailable
from admittance.runtime.process.health import trouble
from admittance.runtime.process.startup import stop_signals
from support.servers import within


@pytest.fixture
def stop() -> asyncio.Event:
    return asyncio.Event()


@pytest.fixture
def asked(stop: asyncio.Event) -> asyncio.Event:
    stop.set()
    return stop


async def test_work_that_ends_in_order_is_not_cancelled(asked: asyncio.Event) -> None:
    steps: list[str] = []

    async def work() -> None:
        await asked.wait()
        await asyncio.sleep(0)
        steps.append("said goodbye")

    await tasks.run_with_grace(asked, work())
    assert steps == ["said goodbye"]


async def test_work_that_does_not_end_in_order_is_cancelled(asked: asyncio.Event) -> None:
    steps: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            steps.append("cancelled")

    await within(tasks.run_with_grace(asked, work(), grace_seconds=0.01))
    assert steps == ["cancelled"]


async def test_work_that_loses_every_cancellation_is_abandoned(
    asked: asyncio.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "CANCEL_SECONDS", 0.05)
    free = asyncio.Event()

    async def work() -> None:
        while not free.is_set():
            try:
                await free.wait()
            except asyncio.CancelledError:
                continue

    await within(tasks.run_with_grace(asked, work(), grace_seconds=0.01))
    free.set()


async def test_an_unavailable_bus_at_the_end_is_not_a_failure(asked: asyncio.Event) -> None:
    async def work() -> None:
        raise BusUnavailable("no connection to the bus")

    await tasks.run_with_grace(asked, work())


async def test_a_bug_at_the_end_is_raised(asked: asyncio.Event) -> None:
    async def work() -> None:
        raise LookupError("a bug")

    with pytest.raises(LookupError):
        await tasks.run_with_grace(asked, work())


async def test_an_error_before_the_end_is_raised(stop: asyncio.Event) -> None:
    async def work() -> None:
        raise BusUnavailable("no connection to the bus")

    with pytest.raises(BusUnavailable):
        await tasks.run_with_grace(stop, work())


class Answers:
    """A subscription that loses a cancellation because a message arrives with it."""

    async def next_msg(self, timeout: float) -> Msg:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return Msg(_client=None, data=b'{"service":"another"}')  # type: ignore[arg-type]

    async def unsubscribe(self) -> None:
        pass


class Asked:
    """A client with only what `health.trouble` uses."""

    def new_inbox(self) -> str:
        return "inbox"

    async def subscribe(self, subject: str) -> Answers:
        return Answers()

    async def publish(self, subject: str, data: bytes, reply: str) -> None:
        pass


async def test_a_health_query_is_cancelled_also_when_a_message_arrives() -> None:
    asking = trouble(Asked(), "one", bool, seconds=3600)  # type: ignore[arg-type]
    task = asyncio.create_task(asking)
    await asyncio.sleep(0)
    task.cancel()
    await within(asyncio.wait([task]))
    assert task.cancelled()


STUCK = """
import asyncio, threading
from admittance.runtime import tasks as ending

async def main():
    asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)
    ending.process_ends_within(0.05)
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue

asyncio.run(main())
"""
STARTING = """
from admittance.runtime.process import startup
startup.end_at_once_on_signals()
print("handled", flush=True)
import threading
threading.Event().wait()
"""
SCRIPT = """
import sys
sys.argv = ["admit", "serve", "scheduler"]
import admittance.cli.main
print("handled", flush=True)
import threading
threading.Event().wait()
"""


def test_a_process_with_stuck_tasks_and_threads_ends_with_status_0() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0
    assert "ended_by_force" in ended.stdout + ended.stderr


@pytest.mark.parametrize(
    "program",
    [pytest.param(STARTING, id="of a service"), pytest.param(SCRIPT, id="of admit serve")],
)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_process_that_still_imports_modules(
    program: str, number: signal.Signals
) -> None:
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"handled\n"
        process.send_signal(number)
        assert process.wait(60) == 0


def test_sighup_stays_ignored_under_nohup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "getsignal", lambda _: signal.SIG_IGN)
    assert stop_signals() == [signal.SIGINT, signal.SIGTERM]
