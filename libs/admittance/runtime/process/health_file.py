"""A file that says how the service of this process is, for the health check of its container.

The file has one line: until when it counts, in seconds since 1970, and what is wrong; nothing
behind the number when nothing is. What writes it asks over the bus, as `admit doctor` does, so that
it also shows a connection that is lost; a process that no longer gets to its work writes nothing.
`deploy/health.sh` reads it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Final

import nats.errors
import structlog

from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.process.health_asked import trouble
from admittance.runtime.process.settings import Settings
from admittance.runtime.tasks import go_on

EVERY_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 5.0
COUNTS_SECONDS: Final = 20
"""For how long a line counts: longer than a look and a late answer together."""

log = structlog.get_logger()


async def keep(bus: Bus, settings: Settings, file: Path | None) -> None:
    """Writes the file every few seconds, until cancelled; then it is removed. None: nowhere."""
    if file is None:
        return
    try:
        while True:
            found = await _trouble(bus, settings)
            go_on()
            _write(file, found)
            await asyncio.sleep(EVERY_SECONDS)
    finally:
        _remove(file)


async def _trouble(bus: Bus, settings: Settings) -> str:
    if not bus.nc.is_connected:
        return "no connection to the bus"
    try:
        found = await trouble(
            bus.nc, settings.service, lambda name: name == settings.instance, seconds=ANSWER_SECONDS
        )
    except nats.errors.Error as error:
        found = f"the bus is away: {error}"
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
