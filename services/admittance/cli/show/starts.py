"""Expected starts in words."""

from __future__ import annotations

from datetime import UTC, datetime

from admittance.cli.support import output
from admittance.cli.support.output import NOTHING
from admittance.cli.support.times import age
from admittance.client.arguments.times import span
from admittance.events.requests.forecast import StartForecast


def expected(start: StartForecast, now: datetime) -> str:
    """Such as ``expected about 14:10 UTC (between 13:50 and 15:20), as of 12s ago, from 34 runs of
    train.py by ada``. Times of other days than today have the day."""
    names = ", ".join(map(output.clean, start.after))
    after = f"after {names} end{'s' * (len(start.after) == 1)}, " if names else ""
    between = f"between {_clock(start.p10, now)} and {_clock(start.p90, now)}"
    return (
        f"expected about {_clock(start.p50, now)} UTC ({between}), "
        f"{after}as of {age(start.as_of, now)} ago, {output.clean(start.basis)}"
    )


def _clock(at: datetime | None, now: datetime) -> str:
    if at is None:
        return NOTHING
    at, today = at.astimezone(UTC), now.astimezone(UTC)
    return f"{at:%H:%M}" if at.date() == today.date() else f"{at:%Y-%m-%d %H:%M}"


def starts_in(start: StartForecast | None, now: datetime) -> str:
    """Such as ``in 25m``; ``unknown`` if the forecast has no time; ``-`` without a forecast."""
    if start is None:
        return NOTHING
    if start.p50 is None:
        return "unknown"
    return f"in {span((start.p50 - now).total_seconds())}"
