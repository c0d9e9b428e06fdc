"""Verdicts that come after the end of their reservation: T21, T21b, and the exceptions of 2.5."""

from __future__ import annotations

import pytest

from admittance.events.shapes import PodSetUpdate
from admittance.workload.change import FactOutcome
from admittance.workload.phase import Phase
from support.builders import Around
from support.cores.tracked_workload import HOLD, STOP, TrackedWorkload

SPOT = {"spot": ("s1", "s2"), "other": ()}


def a_wait(*checks: str, after: int = 60) -> TrackedWorkload:
    """A workload that the first check's Retry has evicted, and that waits."""
    tracked = TrackedWorkload(Around(checks)).assigned().verdict(checks[0], "Retry", after)
    assert tracked.phase is Phase.BACKOFF
    return tracked


@pytest.mark.scenario("L6")
@pytest.mark.parametrize("stopping", [False, True], ids=["waiting", "while the job stops"])
def test_verdicts_of_other_checks_during_the_wait_are_stored(stopping: bool) -> None:
    tracked = TrackedWorkload(Around(["c1", "c2", "c3"]))
    (tracked.admitted() if stopping else tracked.assigned()).verdict("c1", "Retry", 60)
    cycle = tracked.status.admission_cycle
    before = tracked.phase
    tracked.verdict("c2", "Ready").verdict("c3", "Pending", message="slow")
    assert tracked.states == {"c1": "Retry", "c2": "Ready", "c3": "Pending"}
    assert (tracked.phase, tracked.wait, tracked.status.admission_cycle) == (before, 60, cycle)
    tracked.later(10).verdict("c3", "Retry", 120)
    assert tracked.wait == 120
    tracked.verdict("c2", "Rejected")
    assert tracked.phase is Phase.REJECTED


def test_a_ready_during_the_wait_adds_nothing_to_pods() -> None:
    tracked = a_wait("c1", "c2")
    tracked.verdict("c2", "Ready", pod_set_updates=(PodSetUpdate(name="main", labels={"a": "b"}),))
    assert tracked.status.admission_checks[1].pod_set_updates == ()


@pytest.mark.scenario("L4", "L22")
def test_a_repeated_retry_changes_nothing_but_a_new_delay_counts() -> None:
    tracked = a_wait("c1").later(30).verdict("c1", "Retry", 60)
    assert (tracked.reason, tracked.wait) == ("Repeated", 30)
    tracked.verdict("c1", "Retry", 90)
    assert tracked.wait == 90


@pytest.mark.parametrize("back", ["Ready", "Pending", "Retry"])
def test_a_delay_that_is_taken_back_ends_the_wait(back: str) -> None:
    tracked = a_wait("c1", "c2").later(10).verdict("c1", back)
    assert (tracked.phase, tracked.outbox_kinds[-1]) == (Phase.PENDING, "requeued")
    assert tracked.states == {"c1": "Pending", "c2": "Pending"}
    assert tracked.counts["c1"] == (0 if back == "Ready" else 1)
    assert tracked.conditions["Requeued"] == ("True", "BackoffFinished")


def test_a_shorter_delay_shortens_the_wait() -> None:
    assert a_wait("c1").later(10).verdict("c1", "Retry", 5).wait == 5


@pytest.mark.scenario("L12")
@pytest.mark.parametrize("rounds", [1, 30])
@pytest.mark.parametrize("reserved", [False, True], ids=["pending", "reserved again"])
def test_a_late_delay_counts_after_many_short_waits(rounds: int, reserved: bool) -> None:
    tracked = TrackedWorkload(Around(["fast", "slow"])).assigned()
    asked = tracked.status.admission_cycle
    for _ in range(rounds):
        tracked.verdict("fast", "Retry").assigned()
    if not reserved:
        tracked.verdict("fast", "Retry")
        assert tracked.phase is Phase.PENDING
    tracked.verdict("slow", "Retry", 120, cycle=asked)
    assert (tracked.phase, tracked.wait) == (Phase.BACKOFF, 120)
    assert tracked.status.admission is None
    assert tracked.later(119).due().phase is Phase.BACKOFF
    assert tracked.later(1).due().phase is Phase.PENDING
    assert tracked.counts["slow"] == 1
    assert tracked.verdict("slow", "Retry", 120, cycle=asked).phase is Phase.BACKOFF


@pytest.mark.scenario("L12")
def test_a_late_delay_evicts_a_running_job() -> None:
    tracked = (
        TrackedWorkload(Around(["fast", "slow"])).assigned().verdict("fast", "Retry").assigned()
    )
    assert tracked.verdict("slow", "Retry", 60, ago=1).phase is Phase.BACKOFF
    tracked.later(60).due().assigned().verdict("fast", "Ready")
    assert tracked.verdict("slow", "Ready").confirmed().phase is Phase.ADMITTED
    # It has spoken in this cycle: what it said of an earlier one is history.
    assert tracked.verdict("slow", "Retry", 60, ago=1).reason == "Stale"


def test_a_verdict_on_this_cycle_outdates_older_ones() -> None:
    tracked = (
        TrackedWorkload(Around(["fast", "slow"])).assigned().verdict("fast", "Retry").assigned()
    )
    tracked.verdict("slow", "Pending", message="looking")
    assert tracked.verdict("slow", "Retry", 60, ago=1).reason == "Stale"


def test_a_late_retry_without_a_delay_is_stale() -> None:
    tracked = TrackedWorkload(Around(["c1", "c2"])).assigned().verdict("c1", "Retry").assigned()
    for after in (None, 0):
        assert tracked.verdict("c2", "Retry", after, ago=1).reason == "Stale"


def test_a_delay_from_before_a_preemption_is_stale() -> None:
    tracked = TrackedWorkload(Around(["c1"])).assigned().preempted().assigned()
    assert tracked.verdict("c1", "Retry", 60, ago=1).reason == "Stale"
    assert tracked.phase is Phase.QUOTA_RESERVED


def test_a_delay_of_two_cycles_ago_is_stale_after_another_reset() -> None:
    tracked = TrackedWorkload(Around(["c1"])).assigned().preempted().assigned().preempted()
    assert tracked.verdict("c1", "Retry", 60, ago=2).reason == "Stale"
    assert tracked.verdict("c1", "Retry", 60, ago=1).phase is Phase.BACKOFF


@pytest.mark.scenario("L23")
@pytest.mark.parametrize("when", ["stopping", "released"])
@pytest.mark.parametrize("how", ["preempted", "drained"])
def test_a_delay_of_the_last_cycle_always_counts(how: str, when: str) -> None:
    tracked = TrackedWorkload(Around(["c1"])).admitted()
    if how == "preempted":
        tracked.preempted()
    else:
        tracked.stops(STOP)
    if when == "stopping":
        tracked.verdict("c1", "Retry", 60, ago=1)
        assert tracked.phase is Phase.EVICTING
        tracked.later(10).stopped()
    else:
        tracked.later(10).stopped()
        tracked.verdict("c1", "Retry", 50, ago=1)
    assert (tracked.phase, tracked.wait) == (Phase.BACKOFF, 50)
    assert tracked.conditions["Requeued"] == ("False", "AdmissionCheck")
    assert tracked.stops(None).phase is Phase.BACKOFF
    evictions = tracked.status.scheduling_stats
    assert evictions is not None
    assert sum(eviction.count for eviction in evictions.evictions) == 1
    assert tracked.later(50).due().phase is Phase.PENDING
    assert tracked.counts == {"c1": 1}


def test_after_a_wait_a_stopped_queue_is_the_reason() -> None:
    tracked = TrackedWorkload(Around(["c1"])).assigned().verdict("c1", "Retry", 60).stops(HOLD)
    assert tracked.conditions["QuotaReserved"] == ("False", "Suspended")
    assert tracked.later(60).due().phase is Phase.PENDING
    assert tracked.conditions["QuotaReserved"] == ("False", "Suspended")
    assert tracked.stops(None).conditions["QuotaReserved"] == ("False", "PendingEvaluation")


@pytest.mark.scenario("L18")
def test_rows_of_a_flavor_stay_during_the_wait() -> None:
    around = Around()
    around.per_flavor = SPOT
    tracked = TrackedWorkload(around).assigned("spot").verdict("s1", "Retry", 60)
    assert tracked.states == {"s1": "Retry", "s2": "Pending"}
    assert tracked.later(10).verdict("s2", "Retry", 120).wait == 120
    tracked.later(120).due()
    assert (tracked.phase, tracked.states) == (Phase.PENDING, {})
    assert tracked.status.check_retry_counts == {"s1": 1, "s2": 1}
    assert tracked.assigned("spot").counts == {"s1": 1, "s2": 1}


@pytest.mark.scenario("L12", "L18")
def test_a_late_delay_restores_the_row_of_a_flavors_check() -> None:
    around = Around()
    around.per_flavor = SPOT
    tracked = TrackedWorkload(around).assigned("spot").verdict("s1", "Retry")
    assert tracked.states == {}
    tracked.verdict("s2", "Retry", 120, ago=1)
    assert (tracked.phase, tracked.states, tracked.wait) == (Phase.BACKOFF, {"s2": "Retry"}, 120)
    tracked.later(120).due()
    assert tracked.status.check_retry_counts == {"s1": 1, "s2": 1}


def test_a_late_delay_of_a_flavors_check_outlasts_the_stop_of_the_job() -> None:
    around = Around(["c1"])
    around.per_flavor = SPOT
    tracked = TrackedWorkload(around).admitted("spot").preempted()
    tracked.verdict("s1", "Retry", 60, ago=1).stopped()
    assert (tracked.phase, tracked.wait) == (Phase.BACKOFF, 60)
    assert tracked.states == {"c1": "Pending", "s1": "Retry"}


def test_a_flavors_check_does_not_disturb_a_reservation_on_another_flavor() -> None:
    around = Around()
    around.per_flavor = SPOT
    tracked = TrackedWorkload(around).assigned("spot").verdict("s1", "Retry").assigned("other")
    assert tracked.phase is Phase.ADMITTED
    assert tracked.verdict("s2", "Retry", 120, ago=1).reason == "NoSuchCheck"


@pytest.mark.scenario("L7")
@pytest.mark.parametrize("state", ["Pending", "Ready", "Retry"])
def test_a_retry_without_delay_is_ignored_in_another_wait(state: str) -> None:
    tracked = TrackedWorkload(Around(["c1"])).admitted().stops(STOP).stopped()
    assert tracked.phase is Phase.BACKOFF
    for ago in (0, 1):
        assert tracked.verdict("c1", state, ago=ago).outcome is FactOutcome.IGNORED
    assert tracked.reason in ("NoReservation", "Stale")
