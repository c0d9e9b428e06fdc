"""What `admit doctor` says of the history of the bucket."""

from __future__ import annotations

import pytest

from admittance.doctor.finding import NOTE, OK
from admittance.doctor.history import bucket_history_finding
from admittance.runtime.bus.bucket_history import BEGINS, OF_BUCKET, HistoryState, state_of


def state(begins: str = "10/4", last: int = 94, reached: int = 100, lag: int = 0) -> HistoryState:
    return state_of(
        {
            "config": {"metadata": {OF_BUCKET: "then", BEGINS: begins}},
            "state": {"first_seq": 1, "last_seq": last},
            "sources": [{"seq": reached, "lag": lag}],
        }
    )


@pytest.mark.parametrize(
    ("found", "kind", "text"),
    [
        pytest.param(state(), OK, "90 revisions of the bucket since 10", id="it has all"),
        pytest.param(
            state(last=91),
            NOTE,
            "90 revisions of the bucket since 10, of which it lacks 3: it was behind when they "
            "were replaced",
            id="revisions are missing",
        ),
        pytest.param(
            state(lag=2_000),
            NOTE,
            "90 revisions of the bucket since 10, and 2,000 behind",
            id="it is behind",
        ),
        pytest.param(
            state(begins="", lag=7), NOTE, "7 revisions behind, so it has not begun", id="it begins"
        ),
        pytest.param(
            None,
            NOTE,
            "none: the past is made from the log again, which takes longer",
            id="there is none",
        ),
    ],
)
def test_the_history_is_shown_with_what_it_lacks(
    found: HistoryState | None, kind: str, text: str
) -> None:
    finding = bucket_history_finding(found)
    assert (finding.state, finding.found) == (kind, text)
