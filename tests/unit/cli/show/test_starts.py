"""Expected starts in words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from admittance.cli.show.starts import expected, starts_in
from admittance.events.requests.explanation import ExplainReply
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


@pytest.mark.parametrize(
    ("names", "words"),
    [(("ns/long",), "after ns/long ends"), (("ns/a", "ns/long"), "after ns/a, ns/long end")],
)
def test_an_expected_start_names_the_workloads_that_end_before_it(
    names: tuple[str, ...], words: str
) -> None:
    after = msgspec.structs.replace(start(5, 25, 95), after=names)
    assert f"15:20), {words}, as of 12s ago" in expected(after, NOW)


def test_a_time_of_another_day_has_the_day() -> None:
    assert "between 13:50 and 2026-03-05 13:45)" in expected(start(5, 25, 24 * 60), NOW)


def test_a_row_has_the_time_until_the_start() -> None:
    assert starts_in(start(5, 25, 95), NOW) == "in 25m"
    assert starts_in(StartForecast(unknown="why"), NOW) == "unknown"
    assert starts_in(None, NOW) == "-"


def test_the_start_in_json_has_the_names_that_programs_read() -> None:
    known = msgspec.structs.replace(start(5, 25, 95), after=("ns/a", "ns/b"))
    shown = msgspec.to_builtins(ExplainReply(start=known))["start"]
    assert set(shown) == {"p10", "p50", "p90", "after", "basis", "asOf"}
    assert shown["after"] == ("ns/a", "ns/b")
