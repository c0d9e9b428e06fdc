"""A service of which one instance works while the others stand by."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Protocol

import structlog

from admittance.runtime.errors import Superseded
from admittance.runtime.leading import Leading

log = structlog.get_logger()


class Work(Protocol):
    """What the one does."""

    async def run(self) -> None:
        """Works until it is cancelled, or until it knows of a newer epoch: raises Superseded."""
        ...

    async def close(self) -> None:
        """Ends what was begun."""
        ...


async def work_alone(
    leading: Leading, domain: str, begin: Callable[[int], Work], *, stop: asyncio.Event
) -> None:
    """Stands by until it is our turn, then works under the epoch that ``begin`` is told; until stop
    is set. Raises what the work raises, but for Superseded: then it stands by again."""
    watch = asyncio.create_task(leading.run(), name="leading")
    stopping = asyncio.create_task(stop.wait(), name="stop")
    try:
        await _first(watch, stopping, made=leading.watching.wait())
        while not stop.is_set():
            if watch.done():
                watch.result()
            await leading.take([domain], barrier=False)
            epoch = leading.tenure.fence(domain)
            if epoch is None:
                leading.changed.clear()
                await _first(watch, stopping, made=leading.changed.wait())
                continue
            log.info("leading", domain=domain, epoch=epoch)
            await _work(leading, domain, epoch, begin(epoch), watch, stopping)
    finally:
        for task in (watch, stopping):
            task.cancel()
        await asyncio.gather(watch, stopping, return_exceptions=True)
        await leading.goodbye()


async def _work(
    leading: Leading,
    domain: str,
    epoch: int,
    work: Work,
    watch: asyncio.Task[Any],
    stopping: asyncio.Task[Any],
) -> None:
    working = asyncio.create_task(work.run(), name=domain)
    try:
        while leading.tenure.fence(domain) == epoch:
            leading.changed.clear()
            await _first(watch, stopping, working, made=leading.changed.wait())
            if any(task.done() for task in (watch, stopping, working)):
                break
        if working.done():
            with suppress(Superseded):
                working.result()
            leading.tenure.lost(domain)
    finally:
        if not working.done():
            working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        await work.close()


async def _first(*tasks: asyncio.Task[Any], made: Coroutine[Any, Any, Any]) -> None:
    """Waits for the first of the tasks, or of what is made for this wait only."""
    waiting = asyncio.create_task(made)
    try:
        await asyncio.wait([*tasks, waiting], return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
