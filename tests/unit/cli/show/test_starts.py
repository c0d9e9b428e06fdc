"""Expected starts in words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from admittance.cli.show.starts import expected, starts_in
from admittance.events.requests.forecast import StartForecast

NOW = datetime(2026, 3, 4, 13, 45, tzinfo=UTC)


def start(p10: int, p50: int, p90: int) -> StartForecast:
    """The minutes from now."""
    return StartForecast(
        p10=NOW + timedelta(minutes=p10),
        p50=NOW + timedelta(minutes=p50),
        p90=NOW + timedelta(minutes=p90),
        basis="from 34 runs of train.py by ada",
        as_of=NOW - timedelta(seconds=12),
    )


def test_an_expected_start_has_its_interval_its_age_and_its_basis() -> None:
    assert expected(start(5, 25, 95), NOW) == (
        "expected about 14:10 UTC (between 13:50 and 15:20), as of 12s ago, "
        "from 34 runs of train.py by ada"
    )


def test_an_expected_start_names_the_workload_that_ends_before_it() -> None:
    after = msgspec.structs.replace(start(5, 25, 95), after=("ns/long",))
    assert "15:20), after ns/long ends, as of 12s ago" in expected(after, NOW)


def test_a_time_of_another_day_has_the_day() -> None:
    assert "between 13:50 and 2026-03-05 13:45)" in expected(start(5, 25, 24 * 60), NOW)


def test_a_row_has_the_time_until_the_start() -> None:
    assert starts_in(start(5, 25, 95), NOW) == "in 25m"
    assert starts_in(StartForecast(unknown="why"), NOW) == "unknown"
    assert starts_in(None, NOW) == "-"
