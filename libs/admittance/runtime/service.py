"""One service as a process of its own: settings from the environment, a connection, signals."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import uvloop

from admittance.runtime import logs, streams
from admittance.runtime.bus import Bus
from admittance.runtime.errors import AdmittanceError
from admittance.runtime.memory import seldom_collect
from admittance.runtime.settings import Settings
from admittance.runtime.supervise import stop_on_signals


def main(service: str, run: Callable[..., Awaitable[None]], **more: Any) -> int:
    """Runs the service until SIGINT or SIGTERM; the exit status."""
    seldom_collect()
    try:
        uvloop.run(_main(service, run, more))
    except AdmittanceError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


async def _main(service: str, run: Callable[..., Awaitable[None]], more: dict[str, Any]) -> None:
    settings = Settings.from_env(service)
    logs.configure(service, settings.instance, settings.json_logs, level=settings.log_level)
    stop = asyncio.Event()
    stop_on_signals(stop)
    bus = await Bus.connect(settings.url, name=f"admit-{service}", creds=settings.creds)
    try:
        await streams.ensure(bus, replicas=settings.replicas)
        await run(bus, settings, stop=stop, **more)
    finally:
        await bus.close()
