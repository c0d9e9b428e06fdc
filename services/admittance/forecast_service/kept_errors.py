"""Stores the errors of forecasts in the bucket of claims, where the next process finds them. They
expire, and nothing else reads them: a deleted entry costs ten comparisons."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import structlog

from admittance.events.reader import SetAside, Unreadable
from admittance.events.subjects import CLAIMS, FORECAST_ERRORS
from admittance.forecast.widening import Widening, decode_errors, encode_errors
from admittance.runtime import clock
from admittance.runtime.bus.bucket import get_directly, put_message
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import BusRefused, BusUnavailable
from admittance.runtime.telemetry.logger import LogThrottle, log_set_aside

EVERY_SECONDS: Final = 60.0
"""The errors are stored at most this often."""
KEPT_SECONDS: Final = 30 * 86_400.0

log = structlog.get_logger()


class KeptErrorsStore:
    """The stored errors of one deployment. Without the permission, or while the bus does not
    answer, errors are kept in memory only, and the log says so."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._stored = 0
        self._due = 0.0
        self._throttle = LogThrottle()

    async def load(self) -> dict[str, Widening]:
        """The errors that an earlier process stored, by tree; empty if there are none."""
        try:
            entry = await get_directly(self._bus, FORECAST_ERRORS, bucket=CLAIMS)
        except (BusRefused, BusUnavailable) as error:
            self._warn("forecast_errors_not_loaded", error)
            return {}
        if entry is None or entry.value is None:
            return {}
        try:
            return decode_errors(entry.value)
        except Unreadable as error:
            aside = SetAside(f"KV_{CLAIMS}", entry.key, entry.revision, str(error))
            log_set_aside(aside)
            return {}

    async def store(self, widenings: Mapping[str, Widening], *, at_once: bool = False) -> None:
        """Stores the errors if there are new ones and the last ones were stored some time ago.
        ``at_once``: also if they were stored just now."""
        added = sum(each.added for each in widenings.values())
        if added == self._stored or (clock.monotonic() < self._due and not at_once):
            return
        self._due = clock.monotonic() + EVERY_SECONDS
        message = put_message(
            FORECAST_ERRORS,
            encode_errors(widenings),
            expected=None,
            ttl_seconds=KEPT_SECONDS,
            bucket=CLAIMS,
        )
        try:
            await self._bus.publish(message)
        except (BusRefused, BusUnavailable) as error:
            self._warn("forecast_errors_not_stored", error)
        else:
            self._stored = added

    def _warn(self, what: str, error: Exception) -> None:
        if self._throttle.due(clock.monotonic()):
            log.warning(what, reason=str(error))
