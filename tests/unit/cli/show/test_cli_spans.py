"""Durations and times as users write and read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from admittance.cli.support.times import age, day_of_text, moment_after, moment_of, seconds_of
from admittance.client.arguments.times import span
from admittance.client.errors import BadInput

NOON = datetime(2026, 2, 7, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("90", 90, id="plain seconds"),
        pytest.param("0.5", 0.5, id="a fraction of a second"),
        pytest.param("5m", 300, id="minutes"),
        pytest.param("1h30m", 5400, id="several units"),
        pytest.param("2D", 172_800, id="days, in capitals"),
    ],
)
def test_seconds_of(text: str, want: float) -> None:
    assert seconds_of(text, "--timeout") == want


@pytest.mark.parametrize("text", ["", "soon", "5x", "-3", "1h 30m", "m5", "nan", "inf"])
def test_a_bad_duration_is_refused_with_the_name_of_the_option(text: str) -> None:
    with pytest.raises(BadInput, match="--timeout"):
        seconds_of(text, "--timeout")


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("10m", NOON - timedelta(minutes=10), id="a span before now"),
        pytest.param("2026-02-07T00:10:00Z", NOON.replace(hour=0, minute=10), id="a time"),
        pytest.param("2026-02-07T00:10:00", NOON.replace(hour=0, minute=10), id="one without zone"),
        pytest.param("2026-02-07", NOON.replace(hour=0), id="a day"),
        pytest.param("2026-02-07T13:00:00+01:00", NOON, id="one with a zone"),
    ],
)
def test_moment_of(text: str, want: datetime) -> None:
    assert moment_of(text, "--since", NOON) == want


def test_a_moment_after_now_is_refused_if_no_date_can_name_it() -> None:
    assert moment_after("2h", "--deadline", NOON) == NOON + timedelta(hours=2)
    for text in ("99999999999h", "9" * 400):
        with pytest.raises(BadInput, match=r'^--deadline ".*" is too far in the future$'):
            moment_after(text, "--deadline", NOON)


@pytest.mark.parametrize("text", ["yesterday", "2026-13-01", "999999999d"])
def test_a_bad_time_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="--since"):
        moment_of(text, "--since", NOON)


@pytest.mark.parametrize(
    ("seconds", "want"),
    [
        pytest.param(-3, "0s", id="a clock that went back"),
        pytest.param(59.4, "59s", id="seconds"),
        pytest.param(60, "1m", id="a whole minute"),
        pytest.param(310, "5m10s", id="two units"),
        pytest.param(12_000, "3h20m", id="hours"),
        pytest.param(180_000, "2d2h", id="days"),
    ],
)
def test_span(seconds: float, want: str) -> None:
    assert span(seconds) == want


def test_the_age_of_an_object_without_creation_time_is_unknown() -> None:
    assert age(None, NOON) == "-"
    assert age(NOON - timedelta(seconds=5), NOON) == "5s"


@pytest.mark.parametrize(
    ("text", "want"),
    [("2026-02-07", "2026-02-07"), (" 7D ", "2026-01-31"), ("0d", "2026-02-07")],
)
def test_a_day_is_a_date_or_days_before_now(text: str, want: str) -> None:
    now = datetime(2026, 2, 7, 12, tzinfo=UTC)
    assert day_of_text(text, "--since", now).isoformat() == want


@pytest.mark.parametrize(
    "text", ["yesterday", "10m", "1d2h", "24h", "90", "2026-02-31", "2026-02-07T10:00", "-7d", ""]
)
def test_an_invalid_day_is_refused_with_the_valid_forms(text: str) -> None:
    with pytest.raises(BadInput, match="is not a day; write 2026-11-26, or 7d for"):
        day_of_text(text, "--since", NOON)


def test_a_day_too_far_in_the_past_is_refused() -> None:
    with pytest.raises(BadInput, match="too far in the past"):
        day_of_text("99999999999d", "--since", NOON)
