"""How long a finished workload is kept."""

from __future__ import annotations

import pytest

from admittance.workload_controller.commit_writer import seconds_kept

WEEK = 7 * 86_400.0


@pytest.mark.parametrize(
    ("written", "want"),
    [
        (None, WEEK),
        ("3600", 3600.0),
        ("0", 60.0),
        ("99999999", WEEK),
        ("9" * 5_000, WEEK),
        ("soon", WEEK),
        ("-1", WEEK),
        ("\u0663", WEEK),
    ],
)
def test_a_finished_workload_is_kept_as_long_as_it_says_within_limits(
    written: str | None, want: float
) -> None:
    notes = {} if written is None else {"admittance.dev/ttl-seconds-after-finished": written}
    assert seconds_kept(notes, WEEK) == want
