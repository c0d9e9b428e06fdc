"""Health of a service instance: answers on the bus, and a file for the container's health check.

The file has one line: the time until which it is valid, in seconds since 1970, then the problem, if
any. The service asks for its own health over the bus, as `admit doctor` does, so the file also
shows a lost connection. A process that hangs stops writing the file. `deploy/health.sh` reads the
health file.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import nats.errors
import structlog

from admittance.events.requests import HealthReply
from admittance.runtime import clock
from admittance.runtime.bus import micro
from admittance.runtime.bus.bus import Bus
from admittance.runtime.process.health_query import trouble
from admittance.runtime.process.settings import Settings
from admittance.runtime.tasks import raise_if_cancelled

TROUBLE: Final = "trouble"
"""The name of the detail of a health reply that says what prevents progress, such as refused
keys.
"""


def trouble_details(trouble: str) -> dict[str, str]:
    """The details of a health reply about what prevents progress; empty if nothing prevents
    progress."""
    return {TROUBLE: trouble} if trouble else {}


@asynccontextmanager
async def answer_queries(
    bus: Bus, service: str, instance: str, health: Callable[[], HealthReply]
) -> AsyncIterator[None]:
    """Answers ``admit.api.health`` with the result of ``health`` while the context is active."""

    async def answer(_: bytes, __: str) -> HealthReply:
        return health()

    serving = await micro.serve(
        bus, service, instance, {}, every_instance={"admit.api.health": answer}
    )
    try:
        yield
    finally:
        await serving.stop()


EVERY_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 5.0
COUNTS_SECONDS: Final = 20
"""How long a line of the health file is valid: longer than one period and a late answer
together.
"""

log = structlog.get_logger()


async def write_health_file(bus: Bus, settings: Settings, file: Path | None) -> None:
    """Writes the health file every few seconds until cancelled, then removes it. If ``file`` is
    None, nothing is written.
    """
    if file is None:
        return
    try:
        while True:
            found = await why_not_ready(bus, settings)
            raise_if_cancelled()
            _write(file, found)
            await asyncio.sleep(EVERY_SECONDS)
    finally:
        _remove(file)


async def why_not_ready(bus: Bus, settings: Settings) -> str:
    """Why the service of the settings is not ready, as it says over the bus; empty if it is
    ready."""
    if not bus.nc.is_connected:
        return "no connection to the bus"
    try:
        found = await trouble(
            bus.nc, settings.service, lambda name: name == settings.instance, seconds=ANSWER_SECONDS
        )
    except nats.errors.Error as error:
        found = f"the bus is not available: {error}"
    return " ".join(found.split())


def _write(file: Path, reason: str) -> None:
    until = int(clock.now().timestamp()) + COUNTS_SECONDS
    beside = file.with_name(f"{file.name}.new")
    try:
        beside.write_text(f"{until} {reason}\n")
        beside.replace(file)
    except OSError as error:
        log.warning("health_not_written", file=str(file), error=str(error))


def _remove(file: Path) -> None:
    with suppress(OSError):
        file.unlink(missing_ok=True)
