"""Several services in one process: started in order, restarted on a crash, ended in reverse."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import structlog

from admittance.runtime import clock
from admittance.runtime.errors import AdmittanceError, SetupError

PAUSE_MIN: Final = 0.1
PAUSE_MAX: Final = 5.0
CALM: Final = 30.0
"""Seconds without a crash after which a service counts as well again."""
CRASHES_MAX: Final = 20
"""In a row, without a calm between: then the process ends, and says so."""

log = structlog.get_logger()


class Task(NamedTuple):
    """A service: ``run`` runs until it is cancelled, and sets the event once it serves."""

    name: str
    run: Callable[[asyncio.Event], Awaitable[None]]


async def supervise(
    tasks: Sequence[Task],
    stop: asyncio.Event,
    *,
    ready: Callable[[], None] | None = None,
    grace_seconds: float = 15.0,
) -> None:
    """Runs tasks until ``stop`` is set, then ends them one after the other, the last one first.

    Each is started when those before it serve; ``ready`` is called when all do. A task that ends or
    fails is started again after a pause. Raises SetupError of a task at once, since trying again
    mends nothing, and AdmittanceError when a task fails again and again.
    """
    running: list[asyncio.Task[None]] = []
    stopping = asyncio.create_task(stop.wait())
    try:
        for task in tasks:
            serves = asyncio.Event()
            running.append(asyncio.create_task(_keep(task, serves), name=task.name))
            serving = asyncio.create_task(serves.wait())
            try:
                await asyncio.wait(
                    [serving, stopping, *running], return_when=asyncio.FIRST_COMPLETED
                )
            finally:
                serving.cancel()
            if stop.is_set() or any(one.done() for one in running):
                break
        else:
            if ready is not None:
                ready()
        await asyncio.wait([stopping, *running], return_when=asyncio.FIRST_COMPLETED)
        for one in running:
            if one.done():
                one.result()
    finally:
        stopping.cancel()
        for one in reversed(running):
            one.cancel()
            done, _ = await asyncio.wait([one], timeout=grace_seconds)
            if not done:
                log.warning("service_does_not_end", service=one.get_name())
            elif not one.cancelled():
                one.exception()


async def _keep(task: Task, serves: asyncio.Event) -> None:
    crashes = 0
    while True:
        began = clock.monotonic()
        try:
            await task.run(serves)
            log.warning("service_ended", service=task.name)
        except SetupError:
            raise
        except AdmittanceError as error:
            log.warning("service_interrupted", service=task.name, reason=str(error))
        except Exception:
            log.exception("service_crashed", service=task.name)
        crashes = 1 if clock.monotonic() - began > CALM else crashes + 1
        if crashes > CRASHES_MAX:
            raise AdmittanceError(f"{task.name} failed {crashes} times in a row; see its log")
        await asyncio.sleep(min(PAUSE_MIN * 2 ** (crashes - 1), PAUSE_MAX))


def stop_on_signals(stop: asyncio.Event) -> Callable[[], None]:
    """Sets ``stop`` on SIGINT and SIGTERM; what comes back undoes it."""
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, stop.set)

    def undo() -> None:
        for number in numbers:
            with suppress(ValueError, RuntimeError):
                loop.remove_signal_handler(number)

    return undo
