"""A runner takes over the end of a job that another runner has marked and does not publish."""

from __future__ import annotations

import pytest

from admittance.runner.runs.claims import PUBLISH_SECONDS, Claim, ClaimState, UnpublishedEnds
from admittance.runner.runs.left_evictions import ClaimedRun

KEY = "team.train.5"
TTL = 12.0
MARK = Claim(ClaimState.OVER, "other", 7, "end")
OWN = Claim(ClaimState.OVER, "me", 7, "end")
Seen = tuple[Claim, float, bool]


@pytest.mark.parametrize(
    ("seen", "due_at"),
    [
        pytest.param([(MARK, 100.0, False)], 112.0, id="the mark of another runner"),
        pytest.param([(MARK, 100.0, True)], 112.0, id="the same at the start of this runner"),
        pytest.param([(OWN, 100.0, False)], 112.0, id="its own mark"),
        pytest.param([(OWN, 100.0, True)], 100.0, id="its own mark of an earlier process"),
        pytest.param([(MARK, 100.0, False), (MARK, 105.0, False)], 112.0, id="seen twice"),
        pytest.param(
            [(MARK, 100.0, False), (MARK._replace(revision=9), 105.0, False)],
            117.0,
            id="taken over by a third runner",
        ),
        pytest.param(
            [(MARK, 100.0, False), (MARK._replace(end=""), 101.0, False)], None, id="published"
        ),
        pytest.param([(OWN._replace(end=""), 100.0, True)], None, id="published before the start"),
        pytest.param([(Claim(ClaimState.HELD, "other", 7), 100.0, False)], None, id="not over"),
    ],
)
def test_a_mark_is_due_after_the_time_to_publish(seen: list[Seen], due_at: float | None) -> None:
    ends = UnpublishedEnds("me", TTL)
    for claim, now, at_start in seen:
        ends.see(KEY, claim, now, at_start=at_start)
    assert ends.take_due((due_at or 1e9) - 0.01) == {}
    assert ends.take_due(due_at or 1e9) == ({KEY: seen[-1][0]} if due_at else {})
    assert ends.take_due(1e9) == {}


@pytest.mark.parametrize(("ttl", "seconds"), [(12.0, 12.0), (300.0, PUBLISH_SECONDS)])
def test_the_time_to_publish_is_a_minute_at_most(ttl: float, seconds: float) -> None:
    assert UnpublishedEnds("me", ttl).seconds == seconds


@pytest.mark.parametrize(
    ("key", "run"),
    [
        ("team.train.5", ClaimedRun("team", "train", 5)),
        ("team.a=20b.5-2", ClaimedRun("team", "a b", 5, 2)),
        ("_alive.s.5", None),
        ("_runner.abc", None),
        ("team.train.five", None),
        ("team.train.5-", None),
        ("team.train.5-x", None),
        ("team.=x.5", None),
    ],
)
def test_the_key_of_a_claim_names_its_run(key: str, run: ClaimedRun | None) -> None:
    assert ClaimedRun.at(key) == run
    assert run is None or run.key == key
