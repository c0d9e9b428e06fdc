"""The waits of the simulation end as those of asyncio do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from simulation.virtual_time.loop import VirtualLoop
from simulation.virtual_time.waits import same_in_every_version


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    made = VirtualLoop()
    yield made
    made.close()


async def value(seconds: float = 1.0, *, ends: list[str] | None = None) -> str:
    try:
        await asyncio.sleep(seconds)
    finally:
        if ends is not None:
            await asyncio.sleep(0.1)
            ends.append("ended")
    return "value"


async def failing(seconds: float = 1.0) -> str:
    await asyncio.sleep(seconds)
    raise ValueError(f"after {seconds}")


async def ignores_cancellation() -> str:
    try:
        await asyncio.sleep(9)
    except asyncio.CancelledError:
        return "late"
    return "never"


async def waits_for(results: list[Any]) -> None:
    ends: list[str] = []
    results.append(await asyncio.wait_for(value(), None))
    results.append(await asyncio.wait_for(value(), 2))
    for timeout in (1, 0):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(value(9, ends=ends), timeout)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(failing(9), timeout)
    results.append(len(ends))
    with pytest.raises(ValueError, match="after 1"):
        await asyncio.wait_for(failing(), 2)
    task = asyncio.ensure_future(value(0))
    await asyncio.sleep(1)
    results.append(await asyncio.wait_for(task, 0))
    waiting = asyncio.ensure_future(asyncio.wait_for(value(9, ends=ends), 20))
    await asyncio.sleep(1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    results.append(len(ends))


async def gathers(told: list[Any]) -> None:
    told.append(await asyncio.gather())
    told.append(await asyncio.gather(value(2), value(1)))
    results = await asyncio.gather(value(), failing(2), failing(1), return_exceptions=True)
    told.append([type(result) for result in results])
    other = asyncio.ensure_future(value(3))
    with pytest.raises(ValueError, match="after 1"):
        await asyncio.gather(other, failing(2), failing(1))
    told.append(other.done())
    told.append(await other)
    other.get_loop().call_later(1, (gone := asyncio.ensure_future(value(9))).cancel)
    with pytest.raises(asyncio.CancelledError):
        await asyncio.gather(gone, value())
    outcomes = await asyncio.gather(gone, value(), return_exceptions=True)
    told.append([type(outcome) for outcome in outcomes])
    parts = [asyncio.ensure_future(value(9)), asyncio.ensure_future(ignores_cancellation())]
    whole = asyncio.gather(*parts)
    await asyncio.sleep(1)
    told.append([whole.cancel(), whole.done()])
    with pytest.raises(asyncio.CancelledError):
        await whole
    told.append([whole.cancel(), parts[0].cancelled(), parts[1].result()])


@pytest.mark.parametrize("work", [waits_for, gathers])
def test_a_wait_ends_as_that_of_asyncio(
    loop: VirtualLoop, work: Callable[[list[Any]], Any]
) -> None:
    both: tuple[list[Any], list[Any]] = ([], [])
    loop.run_until_complete(work(both[0]))
    with same_in_every_version():
        loop.run_until_complete(work(both[1]))
    assert both[0] == both[1] != []
    assert not loop.complaints


def test_a_cancellation_that_comes_with_the_result_is_lost_in_every_version(
    loop: VirtualLoop,
) -> None:
    async def cancelled() -> str:
        result: asyncio.Future[str] = loop.create_future()
        waiting = asyncio.ensure_future(asyncio.wait_for(result, 9))
        await asyncio.sleep(1)
        result.set_result("value")
        await asyncio.sleep(0)
        waiting.cancel()
        return await waiting

    with same_in_every_version():
        assert loop.run_until_complete(cancelled()) == "value"
