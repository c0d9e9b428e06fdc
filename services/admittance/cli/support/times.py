"""Times and durations in the form that people write and read."""

from __future__ import annotations

from datetime import datetime

from admittance.client.arguments.times import span
from admittance.client.arguments.written_times import (
    day_of_text as day_of_text,
)
from admittance.client.arguments.written_times import (
    moment_after as moment_after,
)
from admittance.client.arguments.written_times import (
    moment_of as moment_of,
)
from admittance.client.arguments.written_times import (
    past_moment as past_moment,
)
from admittance.client.arguments.written_times import (
    seconds_of as seconds_of,
)
from admittance.client.arguments.written_times import (
    whole_seconds as whole_seconds,
)


def age(since: datetime | None, now: datetime) -> str:
    """The time from ``since`` to ``now``, as text; ``-`` if ``since`` is None."""
    return "-" if since is None else span((now - since).total_seconds())
