"""Times of runs as whole seconds, and sums that are added and taken away again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from admittance.usage.runs import whole_seconds
from admittance.usage.summary import Counts

START = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("time", "seconds"),
    [
        pytest.param(START, 0, id="the first second"),
        pytest.param(START + timedelta(days=2, seconds=3), 172_803, id="days and seconds"),
        pytest.param(START + timedelta(seconds=1.9), 1, id="rounded down"),
        pytest.param(START - timedelta(seconds=0.1), -1, id="rounded down before 1970, too"),
        pytest.param(
            START.replace(hour=2, tzinfo=timezone(timedelta(hours=2))), 0, id="another zone"
        ),
    ],
)
def test_a_time_is_the_whole_seconds_since_1970(time: datetime, seconds: int) -> None:
    assert whole_seconds(time) == seconds


@pytest.mark.parametrize("time", [START.replace(tzinfo=None), START.replace(year=9999)])
def test_a_time_without_a_zone_or_far_away_is_refused(time: datetime) -> None:
    with pytest.raises(ValueError, match="is not a time with a zone"):
        whole_seconds(time)


def test_new_sums_are_zero_and_sums_are_taken_away_exactly() -> None:
    sums = Counts()
    assert (sums.runs, sums.finished, sums.failed, sums.evicted, sums.wait_seconds) == (0,) * 5
    some = Counts(runs=2, finished=1, failed=3, evicted=4, wait_seconds=5, amounts={"cpu": 6})
    sums.add(some)
    sums.add(some)
    assert (sums.runs, sums.finished, sums.wait_seconds, sums.amounts) == (4, 2, 10, {"cpu": 12})
    sums.add(some, -1)
    assert (sums.runs, sums.failed, sums.evicted, sums.amounts) == (2, 3, 4, {"cpu": 6})
