"""One service as a process of its own: settings from the environment, a connection, signals.

The process ends when it is told to, for a setting that a person must change, or for a bug that
comes back again and again. No server, no leader of JetStream, no answer and no room are no reason:
the service is started again, with a pause, for as long as that takes.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import uvloop

from admittance.runtime import ending, logs, streams
from admittance.runtime.bus import Bus
from admittance.runtime.errors import AdmittanceError, SetupError, Unavailable
from admittance.runtime.health_file import keep as health_file_kept
from admittance.runtime.memory import seldom_collect
from admittance.runtime.settings import Settings
from admittance.runtime.supervise import Task, stop_on_signals, supervise

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
            ending.in_time(
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
                ending.end(waiting), working, ending.end(telling), return_exceptions=True
            )
            closing = asyncio.create_task(bus.close())
            await asyncio.wait([closing], timeout=CLOSE_SECONDS)

    return Task(settings.service, once)


def grace_of(service: str) -> float | None:
    """Seconds that a service gets to end in order; None: a runner's jobs have their own grace
    periods, and it waits for them."""
    return None if service == "runner" else ending.GRACE_SECONDS


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
    seldom_collect()
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
    ending.process_ends_within()
