"""Runs a check or provider as a process: connects with retries, and works until asked to end."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import structlog
import uvloop

from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import SetupError, Unavailable, passes
from admittance.runtime.process.settings import Settings
from admittance.runtime.process.startup import collect_garbage_less_often
from admittance.runtime.process.supervise import stop_on_signals
from admittance.runtime.tasks import set_within
from admittance.runtime.telemetry import logs
from admittance.runtime.telemetry.logger import LogThrottle

CONNECT_PAUSE_MIN: Final = 0.2
CONNECT_PAUSE_MAX: Final = 5.0
ANEW_PAUSE: Final = 1.0

log = structlog.get_logger()


class Program(NamedTuple):
    """A program. ``kind``: check or provider. ``field``: the log field of its ``name``."""

    kind: str
    name: str
    field: str


async def serve(
    program: Program,
    work: Callable[[Bus, Settings], Awaitable[None]],
    *,
    stop: asyncio.Event,
    url: str | None,
    creds: str | None,
    settings: Settings | None = None,
) -> None:
    """Connects and works. Returns when the work does, or if stop was set before it began. Work that
    fails because of the bus (`errors.passes`) starts again with a new connection. ``url``,
    ``creds`` and ``settings`` default to the environment; a wrong one raises SetupError."""
    settings = settings or Settings.from_env(program.kind, url=url)
    if creds is not None:
        settings = msgspec.structs.replace(settings, creds=creds)
    told = LogThrottle()
    while (bus := await _connected(program, settings, stop)) is not None:
        try:
            await work(bus, settings)
            return
        except Exception as error:
            if not passes(error):
                raise
            if told.due(clock.monotonic()):
                log.warning("begins_anew", **{program.field: program.name}, reason=str(error))
        finally:
            await bus.close()
        await set_within(stop, ANEW_PAUSE)


async def _connected(program: Program, settings: Settings, stop: asyncio.Event) -> Bus | None:
    """A connection; None if stop was set first."""
    pause = CONNECT_PAUSE_MIN
    told = LogThrottle()
    while not stop.is_set():
        try:
            return await Bus.connect(
                settings.url, name=f"{program.kind} {program.name}", creds=settings.creds
            )
        except (SetupError, Unavailable) as error:
            if told.due(clock.monotonic()):
                log.warning("not_connected_yet", **{program.field: program.name}, reason=str(error))
        await set_within(stop, pause)
        pause = min(pause * 2, CONNECT_PAUSE_MAX)
    return None


def run(
    program: Program,
    serving: Callable[[asyncio.Event, Settings], Awaitable[None]],
    *,
    url: str | None,
) -> None:
    """Runs ``serving`` as a process with its own logs, until SIGINT or SIGTERM."""
    collect_garbage_less_often()
    uvloop.run(_run(program, serving, url))


async def _run(
    program: Program, serving: Callable[[asyncio.Event, Settings], Awaitable[None]], url: str | None
) -> None:
    settings = Settings.from_env(program.kind, url=url)
    logs.configure(program.name, settings.instance, settings.json_logs, level=settings.log_level)
    stop = asyncio.Event()
    stop_on_signals(stop)
    await serving(stop, settings)


async def run_until_stopped(
    start: Coroutine[Any, Any, None],
    beside: Iterable[Coroutine[Any, Any, None]],
    *,
    stop: asyncio.Event,
    failed: asyncio.Future[None],
    end: Callable[[], Awaitable[None]],
) -> None:
    """Runs ``start``, then waits until stop is set. ``end`` is always awaited, while ``beside``
    still run. The coroutines of ``beside`` and ``failed`` end only with an error, which is
    raised."""
    tasks = [asyncio.create_task(work) for work in beside]
    stopping = asyncio.create_task(stop.wait())
    starting = asyncio.create_task(start)
    try:
        watched: list[asyncio.Future[Any]] = [stopping, failed, *tasks]
        await asyncio.wait([starting, *watched], return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
        for one in watched:
            if one.done():
                one.result()
    finally:
        starting.cancel()
        await end()
        for task in (*tasks, stopping, starting):
            task.cancel()
        await asyncio.gather(*tasks, stopping, starting, return_exceptions=True)


def secret(settings: Settings) -> bytes:
    """The key of message ids: equal for all replicas with the same credentials, and not guessable
    by other programs."""
    if settings.creds is None:
        return b""
    try:
        return hashlib.blake2b(Path(settings.creds).read_bytes(), digest_size=32).digest()
    except OSError:
        return b""
