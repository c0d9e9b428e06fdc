"""At an eviction a runner answers for its own part, and leaves the others to their runners until
those are gone."""

from __future__ import annotations

from typing import Any

import pytest

from admittance.events.shapes import EvictedJob
from admittance.runner.runs import left_evictions
from admittance.runner.runs.claims import Claim, ClaimState
from admittance.runner.runs.left_evictions import (
    LEFT_SECONDS,
    ClaimedRun,
    EvictedRun,
    LeftEvictions,
)

EVICTION = EvictedRun(ClaimedRun("team", "train", 0), "u", 8)
ALONE, ANY = EvictedJob(revision=5, runners=("me",)), EvictedJob(revision=5)
OTHER = EvictedJob(revision=5, runners=("other",))
BOTH = EvictedJob(revision=5, runners=("other", "me"))
WHOLE, FIRST, SECOND = "team.train.5", "team.train.5-1", "team.train.5-2"


def held(key: str, runner: str = "other") -> tuple[str, Claim]:
    return key, Claim(ClaimState.HELD, runner, 1)


def over(key: str, runner: str = "other") -> tuple[str, Claim]:
    return key, Claim(ClaimState.OVER, runner, 2)


def free(key: str) -> tuple[str, Claim]:
    return key, Claim(ClaimState.FREE, "", 3)


def expired(key: str) -> tuple[str, Claim]:
    return key, Claim(ClaimState.EXPIRED, "", 3)


@pytest.mark.parametrize(
    ("job", "before", "now", "after", "later"),
    [
        (EvictedJob(), [], [], [], []),
        (ALONE, [], [WHOLE], [], []),
        (ANY, [], [WHOLE], [], []),
        (ANY, [held(WHOLE)], [], [], []),
        (ANY, [held(WHOLE, "me")], [WHOLE], [], []),
        (ANY, [held(WHOLE)], [], [free(WHOLE)], [WHOLE]),
        (ANY, [], [WHOLE], [held(WHOLE), free(WHOLE)], [WHOLE]),
        (ALONE, [held(WHOLE), expired(WHOLE)], [WHOLE], [], []),
        (OTHER, [], [], [], [WHOLE]),
        (OTHER, [], [], [over(WHOLE)], []),
        (OTHER, [], [], [held(WHOLE)], []),
        (OTHER, [], [], [held(WHOLE), free(WHOLE)], [WHOLE]),
        (OTHER, [over(WHOLE)], [], [], []),
        (OTHER, [over(WHOLE, "me")], [WHOLE], [], []),
        (OTHER, [], [], [over(WHOLE, "me")], [WHOLE]),
        (ALONE, [], [WHOLE], [over(WHOLE, "me")], []),
        (BOTH, [], [SECOND], [], [FIRST]),
        (BOTH, [], [SECOND], [over(FIRST), over(SECOND, "me")], []),
        (BOTH, [held(FIRST)], [SECOND], [free(SECOND)], [SECOND]),
        (BOTH, [over(FIRST)], [SECOND], [], []),
    ],
)
def test_a_runner_answers_at_once_or_after_the_others_have_had_time(
    job: EvictedJob,
    before: list[tuple[str, Claim]],
    now: list[str],
    after: list[tuple[str, Claim]],
    later: list[str],
) -> None:
    left = LeftEvictions("me")
    for key, claim in before:
        left.claim_changed(key, claim, 0.0)
    answered = left.evicted(job, EVICTION, 100.0)
    for key, claim in after:
        left.claim_changed(key, claim, 100.0)
    due = left.due(100.0 + LEFT_SECONDS)
    assert [run.of.key for run in answered] == now
    assert [run.of.key for run in due] == later
    assert {(run.uid, run.evicted) for run in (*answered, *due)} <= {("u", 8)}
    assert left.due(1_000.0) == [], "each part is answered once"


def test_a_part_is_left_for_its_time_and_again_after_each_release() -> None:
    left = LeftEvictions("me")
    left.evicted(OTHER, EVICTION, 100.0)
    left.claim_changed(WHOLE, free(WHOLE)[1], 101.0)
    assert left.due(100.9 + LEFT_SECONDS) == []
    assert len(left.due(101.0 + LEFT_SECONDS)) == 1
    left.claim_changed(WHOLE, free(WHOLE)[1], 110.0)
    assert len(left.due(110.0 + LEFT_SECONDS)) == 1


def test_a_later_eviction_of_an_admission_is_answered_by_the_runner_that_has_ended_it() -> None:
    left = LeftEvictions("me")
    left.evicted(OTHER, EVICTION, 100.0)
    left.due(100.0 + LEFT_SECONDS)
    left.evicted(OTHER, EVICTION._replace(evicted=11), 105.0)
    left.claim_changed(WHOLE, over(WHOLE, "me")[1], 106.0)
    assert [run.evicted for run in left.due(106.0)] == [11]


def test_only_the_newest_claims_are_kept_in_mind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(left_evictions, "KEYS_MAX", 2)
    left = LeftEvictions("me")
    for key in ("team.a.5", "team.b.5", "team.a.5", "team.c.5"):
        left.claim_changed(key, held(key)[1], 0.0)

    def answers(name: str) -> Any:
        return left.evicted(ANY, EvictedRun(ClaimedRun("team", name, 0), "u", 8), 1.0)

    assert [len(answers(name)) for name in "abc"] == [0, 1, 0]
