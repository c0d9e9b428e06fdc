"""When a workload is expected to start, in words."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from admittance.events.requests.forecast import StartForecast
from admittance.web.views.words import clock_time

UNKNOWN: Final = "no time known"


def chance(start: StartForecast | None, now: datetime) -> str:
    """The median of the forecast as a time of day; None: there is no forecast."""
    if start is None or start.p50 is None:
        return UNKNOWN
    if start.p50 <= now:
        return "any moment"
    return f"about {clock_time(start.p50, now, seconds=False)}"
