"""Several services in one process: started in order, restarted on a crash, ended in reverse."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import structlog

from admittance.runtime import clock
from admittance.runtime.ending import go_on, process_ends_within
from admittance.runtime.errors import AdmittanceError, SetupError, passes
from admittance.runtime.seldom import Seldom

PAUSE_MIN: Final = 0.1
PAUSE_MAX: Final = 5.0
CALM: Final = 30.0
"""Seconds without a crash after which a service counts as well again."""
CRASHES_MAX: Final = 20
"""In a row, without a calm between: then the process ends, and says so. Only bugs count: what the
bus cannot do now is tried again, however long that takes."""

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
    fails is started again after a pause; one that the bus keeps from its work, for as long as that
    takes. Raises SetupError of a task at once, since trying again mends nothing, and
    AdmittanceError when a task fails again and again by a bug.
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
    crashes = interruptions = 0
    told = Seldom()
    while True:
        began = clock.monotonic()
        bug = True
        try:
            await task.run(serves)
            log.warning("service_ended", service=task.name)
        except SetupError:
            raise
        except Exception as error:
            bug = not passes(error)
            if not isinstance(error, AdmittanceError):
                log.exception("service_crashed", service=task.name)
            elif bug or told.due(clock.monotonic()):
                log.warning("service_interrupted", service=task.name, reason=str(error))
        # What goes wrong at its end is no reason to begin anew.
        go_on()
        if clock.monotonic() - began > CALM:
            crashes = interruptions = 0
            told = Seldom()
        if bug:
            crashes += 1
        else:
            interruptions += 1
        if crashes > CRASHES_MAX:
            raise AdmittanceError(f"{task.name} failed {crashes} times in a row; see its log")
        tries = crashes if bug else interruptions
        await asyncio.sleep(min(PAUSE_MIN * 2 ** min(tries - 1, 16), PAUSE_MAX))


def stop_on_signals(stop: asyncio.Event, *, in_time: bool = False) -> Callable[[], None]:
    """Sets ``stop`` on SIGINT and SIGTERM; what comes back undoes it. ``in_time``: the process has
    `ending.PROCESS_SECONDS` from then on."""
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)

    def on_signal() -> None:
        if in_time and not stop.is_set():
            process_ends_within()
        stop.set()

    for number in numbers:
        loop.add_signal_handler(number, on_signal)

    def undo() -> None:
        for number in numbers:
            with suppress(ValueError, RuntimeError):
                loop.remove_signal_handler(number)

    return undo
