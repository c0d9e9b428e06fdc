"""Several services in one process: started in order, restarted on a crash, ended in reverse."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import structlog
import uvloop

from admittance.runtime import clock, tasks
from admittance.runtime.bus import streams
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import AdmittanceError, SetupError, Unavailable, passes
from admittance.runtime.process.health import keep as health_file_kept
from admittance.runtime.process.settings import Settings
from admittance.runtime.process.startup import collect_garbage_less_often
from admittance.runtime.tasks import process_ends_within, raise_if_cancelled
from admittance.runtime.telemetry import logs
from admittance.runtime.telemetry.logger import LogThrottle

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
    told = LogThrottle()
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
        raise_if_cancelled()
        if clock.monotonic() - began > CALM:
            crashes = interruptions = 0
            told = LogThrottle()
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


STOP_SECONDS: Final = 65.0
"""Longest wait for a service to end. A runner gives its jobs their grace."""
CLOSE_SECONDS: Final = 0.5
"""For closing a connection at which nothing may answer."""


Serving: TypeAlias = Callable[[Bus, Settings], Awaitable[None]]
"""Returns when the service of settings serves."""


async def _at_once(_bus: Bus, _settings: Settings) -> None:
    return


def task_of(
    settings: Settings,
    run: Callable[..., Awaitable[None]],
    *,
    serving: Serving = _at_once,
    health_file: Path | None = None,
    **more: Any,
) -> Task:
    """The service as `supervise` wants it: with a connection of its own and the streams made, both
    anew at every start. When it is ended, it is given some time to end what it does.
    ``health_file``: kept, for the health check of a container."""

    connected = False

    async def once(serves: asyncio.Event) -> None:
        nonlocal connected
        try:
            bus = await Bus.connect(
                settings.url, name=f"admit-{settings.service}", creds=settings.creds
            )
        except SetupError as error:
            if not connected:
                raise
            # Our settings were right before: it is the server that a person must look after, such
            # as one that gave up JetStream when its disk was full.
            raise Unavailable(str(error)) from None
        connected = True
        stop = asyncio.Event()
        working = asyncio.create_task(
            tasks.in_time(
                stop,
                _work(bus, settings, run, stop, more),
                grace_seconds=grace_of(settings.service),
            )
        )
        waiting = asyncio.create_task(_until_serving(bus, settings, serving, serves))
        telling = asyncio.create_task(health_file_kept(bus, settings, health_file))
        try:
            await asyncio.wait([working, waiting], return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                waiting.result()
            await asyncio.shield(working)
        except asyncio.CancelledError:
            stop.set()
            await asyncio.shield(working)
            raise
        finally:
            working.cancel()
            await asyncio.gather(
                tasks.end(waiting), working, tasks.end(telling), return_exceptions=True
            )
            closing = asyncio.create_task(bus.close())
            await asyncio.wait([closing], timeout=CLOSE_SECONDS)

    return Task(settings.service, once)


def grace_of(service: str) -> float | None:
    """Seconds that a service gets to end in order; None: a runner's jobs have their own grace
    periods, and it waits for them."""
    return None if service == "runner" else tasks.GRACE_SECONDS


async def _work(
    bus: Bus,
    settings: Settings,
    run: Callable[..., Awaitable[None]],
    stop: asyncio.Event,
    more: dict[str, Any],
) -> None:
    making = asyncio.create_task(streams.ensure(bus, replicas=settings.replicas))
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([making, stopping], return_when=asyncio.FIRST_COMPLETED)
        if not making.done():
            return
        making.result()
    finally:
        making.cancel()
        stopping.cancel()
    await run(bus, settings, stop=stop, **more)


async def _until_serving(
    bus: Bus, settings: Settings, serving: Serving, serves: asyncio.Event
) -> None:
    await serving(bus, settings)
    serves.set()


async def serve(
    settings: Settings, run: Callable[..., Awaitable[None]], stop: asyncio.Event, **more: Any
) -> None:
    """Runs one service until stop is set. Raises SetupError, and AdmittanceError for a service that
    fails again and again by a bug."""
    task = task_of(settings, run, health_file=settings.health_file, **more)
    await supervise([task], stop, grace_seconds=STOP_SECONDS)


def main(
    service: str,
    run: Callable[..., Awaitable[None]],
    more: Callable[[Settings], Mapping[str, Any]] | None = None,
) -> int:
    """Runs the service until SIGINT or SIGTERM; the exit status. ``more``: further arguments of
    ``run``."""
    collect_garbage_less_often()
    try:
        uvloop.run(_main(service, run, more))
    except AdmittanceError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


async def _main(
    service: str,
    run: Callable[..., Awaitable[None]],
    more: Callable[[Settings], Mapping[str, Any]] | None,
) -> None:
    settings = Settings.from_env(service)
    logs.configure(service, settings.instance, settings.json_logs, level=settings.log_level)
    stop = asyncio.Event()
    stop_on_signals(stop, in_time=grace_of(service) is not None)
    await serve(settings, run, stop, **(more(settings) if more is not None else {}))
    # Also a runner, which had its own time for its jobs: a thread that looks up the address of a
    # server that is gone must not hold the process.
    tasks.process_ends_within()
