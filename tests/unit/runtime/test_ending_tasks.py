"""`cancel_and_wait` ends a task, even if it loses a cancellation."""

from __future__ import annotations

import asyncio

import pytest

from admittance.runtime.tasks import cancel_and_wait
from support.servers import within


async def test_a_task_that_swallows_its_first_cancellation_still_ends() -> None:
    lost = asyncio.Event()

    async def careless() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            lost.set()
        await asyncio.sleep(3600)

    task = asyncio.create_task(careless())
    await asyncio.sleep(0)
    await within(cancel_and_wait(task, again_seconds=0.01))
    assert lost.is_set()
    assert task.cancelled()


async def test_an_exception_of_a_cancelled_task_is_raised() -> None:
    async def broken() -> None:
        raise ValueError("why")

    task = asyncio.create_task(broken())
    await asyncio.sleep(0)
    with pytest.raises(ValueError, match="why"):
        await cancel_and_wait(task)
