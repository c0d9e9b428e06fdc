"""Virtual time: what of asyncio works on it, and what a process may be put through."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from random import Random
from typing import Any

import pytest

from simulation.virtual_time.loop import START, NoRest, Process, VirtualLoop


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    made = VirtualLoop()
    yield made
    made.close()


def ticking(loop: VirtualLoop, ticks: list[float]) -> Callable[[], Any]:
    async def tick() -> None:
        try:
            while True:
                ticks.append(round(loop.now))
                await asyncio.sleep(1)
        finally:
            ticks.append(-1)

    return tick


async def waits(loop: VirtualLoop) -> list[object]:
    """The ways of asyncio to wait."""
    events: list[object] = []
    async with asyncio.timeout(5):
        await asyncio.sleep(1)
    events.append(round(loop.now, 2))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await asyncio.sleep(9)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), 2)
    events.append(round(loop.now, 2))
    queue: asyncio.Queue[int] = asyncio.Queue(2)

    async def put() -> None:
        for number in range(5):
            await queue.put(number)

    putting = asyncio.create_task(put())
    events.append([await queue.get() for _ in range(5)])
    await putting
    events.append(await asyncio.gather(*(asyncio.sleep(n / 10, n) for n in range(3))))
    events.append(await asyncio.to_thread(lambda: 42))
    async with asyncio.Semaphore(1), asyncio.Lock():
        await asyncio.sleep(0.5)
    done, _ = await asyncio.wait([asyncio.create_task(asyncio.sleep(0, n)) for n in range(5)])
    events.append([task.result() for task in done])
    return events


def test_waits_of_asyncio_take_virtual_time(loop: VirtualLoop) -> None:
    events = loop.run_until_complete(waits(loop))
    assert events == [1.0, 4.0, [0, 1, 2, 3, 4], [0, 1, 2], 42, [0, 1, 2, 3, 4]]


async def cancelled_in_order() -> list[int]:
    """The order in which a group cancels its tasks."""
    order: list[int] = []

    async def child(number: int) -> None:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            order.append(number)
            raise

    async def fail() -> None:
        await asyncio.sleep(0.1)
        raise ValueError

    with pytest.raises(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(child(number))
            group.create_task(fail())
    return order


def test_a_group_cancels_its_tasks_in_the_same_order_in_every_run() -> None:
    orders = []
    for _ in range(3):
        loop = VirtualLoop()
        orders.append(loop.run_until_complete(cancelled_in_order()))
        loop.close()
    assert orders[0] == orders[1] == orders[2]


def test_a_killed_process_does_nothing_more_not_even_in_finally(loop: VirtualLoop) -> None:
    ticks: list[float] = []
    process = Process(loop, "p")
    process.start(ticking(loop, ticks)())
    loop.at(2.5, process.kill)
    loop.play(10.0)
    assert ticks == [0, 1, 2]


def test_a_process_can_be_killed_after_any_callback() -> None:
    seen = set()
    for step in range(1, 12):
        loop = VirtualLoop()
        ticks: list[float] = []
        process = Process(loop, "p")
        process.start(ticking(loop, ticks)())
        loop.at_step(step, process.kill)
        loop.play(20.0)
        seen.add(tuple(ticks))
        loop.close()
    assert {(), (0,), (0, 1), (0, 1, 2)} <= seen


def test_timers_and_messages_of_a_paused_process_wait(loop: VirtualLoop) -> None:
    ticks: list[float] = []
    process = Process(loop, "p")
    process.start(ticking(loop, ticks)())
    loop.at(1.5, process.pause)
    loop.at(4.2, lambda: loop.post(process, ticks.append, -2))
    loop.at(5.5, lambda: process.resume(Random(1)))
    loop.play(7.0)
    assert ticks[:2] == [0, 1]
    assert sorted(ticks[2:4]) == [-2, 6]


def test_a_skewed_process_reads_its_own_wall_clock(loop: VirtualLoop) -> None:
    shown: dict[str, float] = {}

    async def look(name: str) -> None:
        shown[name] = round((loop.wall() - START).total_seconds(), 2)

    for name, skew in (("right", 0.0), ("ahead", 3.0), ("behind", -2.0)):
        Process(loop, name, skew=skew).start(look(name))
    loop.play(1.0)
    assert shown == {"right": 0.0, "ahead": 3.0, "behind": -2.0}


def test_a_process_that_ends_says_its_error(loop: VirtualLoop) -> None:
    errors: list[BaseException | None] = []

    async def main(error: Exception | None) -> None:
        if error is not None:
            raise error

    for error in (None, ValueError("x")):
        process = Process(loop, "p")
        process.on_end = errors.append
        process.start(main(error))
    loop.play(1.0)
    assert [type(error) for error in errors] == [type(None), ValueError]


def test_code_that_only_yields_does_not_stop_the_clock(loop: VirtualLoop) -> None:
    async def spin() -> None:
        while True:  # noqa: ASYNC110  (it is what must be survived)
            await asyncio.sleep(0)

    process = Process(loop, "p")
    process.start(spin())
    loop.at(0.05, process.kill)
    loop.play(1.0)
    assert not process.alive
    process = Process(loop, "q")
    process.start(spin())
    with pytest.raises(NoRest):
        loop.play(2.0, max_steps=1000)


def test_an_abandoned_generator_is_closed_in_its_process(loop: VirtualLoop) -> None:
    closed: list[str] = []

    async def numbers() -> AsyncIterator[int]:
        try:
            while True:
                yield 1
        finally:
            closed.append(loop.current.name if loop.current else "outside")

    async def main() -> None:
        async for _ in numbers():
            break
        await asyncio.sleep(1)

    Process(loop, "p").start(main())
    loop.play(2.0)
    assert closed == ["p"]


def test_the_end_of_a_story_says_nothing_about_coroutines_that_wait() -> None:
    async def never() -> None:
        raise AssertionError

    async def waits() -> None:
        later = never()
        await asyncio.sleep(9)
        await later

    loop = VirtualLoop()
    Process(loop, "p").start(waits())
    loop.play(1)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        loop.close()
    assert said == []


def test_an_exception_of_no_task_is_a_complaint(loop: VirtualLoop) -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_soon(int, "x")
        await asyncio.sleep(1)

    Process(loop, "p").start(main())
    loop.play(2.0)
    assert len(loop.complaints) == 1
    assert "ValueError" in loop.complaints[0]


@pytest.mark.parametrize("name", ["add_signal_handler", "create_server", "subprocess_exec"])
def test_nothing_of_the_world_outside_is_there(loop: VirtualLoop, name: str) -> None:
    async def main() -> None:
        handle = getattr(loop, name)(lambda: None, lambda: None)
        if asyncio.iscoroutine(handle):
            await handle

    with pytest.raises(NotImplementedError):
        loop.run_until_complete(main())
