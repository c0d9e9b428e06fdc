"""The effect of facts on a workload. Ids of transitions: docs/spec/lifecycle.md#1.4."""

from __future__ import annotations

import pytest

from admittance.events import facts
from admittance.events.shapes import Grounds, Refusal
from admittance.workload.change import FactOutcome
from admittance.workload.families.reconcile import single_transition
from admittance.workload.families.roles import with_role
from admittance.workload.phase import Phase, holds_quota
from admittance.workload.stored import PARENT, head
from admittance.workload.transition_context import QueueChanged
from admittance.workload.transitions import MOVES
from support.builders import Around, an_arrival, occasion
from support.cores.tracked_workload import HOLD, ME, STOP, TrackedWorkload


def test_a_submitted_workload_waits_for_its_first_evaluation() -> None:
    tracked = TrackedWorkload()
    assert tracked.phase is Phase.PENDING
    assert tracked.conditions == {"QuotaReserved": ("False", "PendingEvaluation")}


def test_without_checks_quota_and_admission_come_in_one_write_t04_a7() -> None:
    tracked = TrackedWorkload().assigned()
    assert tracked.phase is Phase.ADMITTED
    assert tracked.outbox_kinds == ["quota_reserved", "admitted"]
    assert tracked.conditions["QuotaReserved"] == ("True", "QuotaReserved")


def test_with_checks_the_reservation_comes_with_its_rows_a1() -> None:
    tracked = TrackedWorkload(Around(["c1", "c2"])).assigned()
    assert tracked.phase is Phase.QUOTA_RESERVED
    assert tracked.outbox_kinds == ["quota_reserved", "check_requested", "check_requested"]
    assert tracked.states == {"c1": "Pending", "c2": "Pending"}


def test_ready_checks_admit_after_the_recheck_a2() -> None:
    tracked = TrackedWorkload(Around(["c1", "c2"])).assigned().verdict("c1", "Ready").confirmed()
    assert (tracked.phase, tracked.outcome) == (Phase.QUOTA_RESERVED, FactOutcome.IGNORED)
    tracked.verdict("c2", "Ready")
    assert (tracked.phase, tracked.outbox_kinds) == (Phase.QUOTA_RESERVED, [])
    tracked.later(12).confirmed()
    assert (tracked.phase, tracked.outbox_kinds) == (Phase.ADMITTED, ["admitted"])


def test_a_stopped_queue_admits_no_confirmed_workload() -> None:
    tracked = TrackedWorkload(Around(["c1"])).assigned().verdict("c1", "Ready")
    tracked.around.stopped = HOLD
    tracked.confirmed()
    assert (tracked.phase, tracked.outcome) == (Phase.QUOTA_RESERVED, FactOutcome.IGNORED)


def test_a_retry_without_delay_frees_the_quota_and_competes_again_a5() -> None:
    tracked = (
        TrackedWorkload(Around(["c1", "c2"]))
        .assigned()
        .verdict("c2", "Ready")
        .verdict("c1", "Retry")
    )
    assert tracked.phase is Phase.PENDING
    assert tracked.states == {"c1": "Pending", "c2": "Pending"}
    assert tracked.workload is not None
    assert tracked.workload.status.admission is None
    assert tracked.workload.status.admission_cycle == 1
    assert [row.retry_count for row in tracked.workload.status.admission_checks] == [1, 0]


def test_a_retry_with_a_delay_waits_until_its_end_time_l3() -> None:
    tracked = TrackedWorkload(Around(["c1"])).assigned().verdict("c1", "Retry", after=5)
    assert tracked.phase is Phase.BACKOFF
    due = facts.TimerDue(**ME, kind="requeue")
    assert tracked.later(4.9).happens(due).phase is Phase.BACKOFF
    assert tracked.later(0.1).happens(due).phase is Phase.PENDING
    assert tracked.conditions["Requeued"] == ("True", "BackoffFinished")


def test_a_later_retry_of_the_same_cycle_changes_the_wait_l4() -> None:
    tracked = TrackedWorkload(Around(["c1", "c2"])).assigned().verdict("c1", "Retry", after=60)
    tracked.verdict("c2", "Retry", after=120)
    due = facts.TimerDue(**ME, kind="requeue")
    assert tracked.later(60).happens(due).phase is Phase.BACKOFF
    assert tracked.later(60).happens(due).phase is Phase.PENDING


def test_a_workload_waits_for_its_job_and_then_for_the_delay() -> None:
    tracked = TrackedWorkload(Around(["c1"])).admitted().verdict("c1", "Retry", after=5)
    assert tracked.phase is Phase.EVICTING
    # Due by the server's clock, and our own is behind: nothing wakes it while its job stops.
    tracked.later(4.9).happens(facts.TimerDue(**ME, kind="requeue"))
    assert tracked.phase is Phase.EVICTING
    tracked.stopped()
    assert tracked.phase is Phase.BACKOFF


def test_a_timer_that_comes_too_early_changes_nothing() -> None:
    # One schedule for a workload: an old one, set late, has replaced the right one.
    tracked = TrackedWorkload(Around(["c1"])).assigned().verdict("c1", "Retry", after=60)
    tracked.later(1).happens(facts.TimerDue(**ME, kind="requeue"))
    assert (tracked.phase, tracked.outcome) == (Phase.BACKOFF, FactOutcome.IGNORED)


def test_a_timer_for_a_workload_that_does_not_wait_is_ignored() -> None:
    tracked = TrackedWorkload().happens(facts.TimerDue(**ME, kind="requeue"))
    assert tracked.outcome is FactOutcome.IGNORED


def test_one_rejection_is_enough_even_when_the_others_are_ready_a6() -> None:
    tracked = (
        TrackedWorkload(Around(["c1", "c2"]))
        .assigned()
        .verdict("c2", "Ready")
        .verdict("c1", "Rejected")
    )
    assert tracked.phase is Phase.REJECTED
    assert tracked.outbox_kinds[0] == "rejected"
    assert tracked.workload is not None
    assert not head(tracked.workload).active


def test_a_rejected_admitted_workload_keeps_its_quota_until_stopped_a8() -> None:
    tracked = TrackedWorkload(Around(["c1"])).admitted().verdict("c1", "Rejected")
    assert tracked.workload is not None
    assert holds_quota(tracked.workload)
    assert "evicted" in tracked.outbox_kinds
    tracked.stopped()
    assert not holds_quota(tracked.workload) and tracked.phase is Phase.REJECTED


def test_a_verdict_of_an_old_cycle_changes_nothing_a23() -> None:
    tracked = TrackedWorkload(Around(["c1"])).assigned().preempted().assigned()
    assert tracked.verdict("c1", "Ready", ago=1).outcome is FactOutcome.IGNORED
    assert tracked.states == {"c1": "Pending"}


def test_a_verdict_of_an_unlisted_check_changes_nothing() -> None:
    tracked = TrackedWorkload(Around(["c1"])).assigned()
    assert tracked.verdict("other", "Ready").outcome is FactOutcome.IGNORED


def test_a_verdict_with_an_unknown_state_is_refused() -> None:
    tracked = TrackedWorkload(Around(["c1"])).assigned()
    assert tracked.verdict("c1", "Perhaps").outcome is FactOutcome.REFUSED


def test_a_preempted_job_keeps_its_quota_until_it_has_stopped_t12_t19() -> None:
    tracked = TrackedWorkload().admitted().preempted()
    assert tracked.phase is Phase.EVICTING
    assert tracked.outbox_kinds == ["evicted"]
    tracked.stopped()
    assert tracked.phase is Phase.PENDING
    assert tracked.conditions["Requeued"] == ("True", "Preempted")
    assert tracked.conditions["Evicted"] == ("True", "Preempted")


def test_a_preempted_reservation_frees_its_quota_at_once_a13() -> None:
    tracked = TrackedWorkload(Around(["c1"])).assigned().preempted()
    assert tracked.phase is Phase.PENDING
    assert tracked.outbox_kinds == ["evicted", "check_withdrawn", "requeued"]


def test_a_new_reservation_sets_evicted_to_false_t03() -> None:
    tracked = TrackedWorkload().admitted().preempted().stopped().assigned()
    assert tracked.conditions["Evicted"] == ("False", "QuotaReserved")
    assert tracked.conditions["Preempted"] == ("False", "QuotaReserved")


def test_the_preemptor_is_stored_until_the_next_reservation() -> None:
    grounds = Grounds(cluster_queue="cq", priority=1, by_cluster_queue="cq", by_priority=5)
    said = facts.Preempted(
        **ME,
        revision=0,
        seen=0,
        domain="queue-cq",
        reason="InClusterQueue",
        by="ns/boss",
        by_uid="u2",
        grounds=grounds,
    )
    tracked = TrackedWorkload().admitted().happens(said)
    for _ in range(2):
        assert tracked.workload is not None
        by = tracked.workload.status.preempted_by
        assert by is not None
        assert (by.by, by.by_uid, by.rule, by.grounds) == (
            "ns/boss",
            "u2",
            "InClusterQueue",
            grounds,
        )
        if tracked.phase is Phase.EVICTING:
            tracked.stopped()
    assert tracked.phase is Phase.PENDING
    tracked.assigned()
    assert tracked.workload is not None
    assert tracked.workload.status.preempted_by is None


def test_stopped_of_another_eviction_changes_nothing() -> None:
    tracked = TrackedWorkload().admitted().preempted()
    assert tracked.happens(facts.Stopped(**ME, revision=1)).outcome is FactOutcome.IGNORED
    assert tracked.phase is Phase.EVICTING


def test_a_job_lost_with_its_runner_competes_again_t17b() -> None:
    tracked = TrackedWorkload().admitted()
    assert tracked.workload is not None
    at = tracked.workload.status.admitted_revision
    tracked.happens(facts.Stopped(**ME, revision=at, reason="NodeFailures"))
    assert tracked.phase is Phase.PENDING
    assert tracked.conditions["Requeued"] == ("True", "NodeFailures")


def test_finishing_frees_the_quota_at_once_t26() -> None:
    tracked = TrackedWorkload().admitted()
    assert tracked.workload is not None
    at = tracked.workload.status.admitted_revision
    tracked.happens(facts.Finished(**ME, revision=at, succeeded=False, message="exit 3"))
    assert tracked.phase is Phase.FINISHED
    assert tracked.conditions["Finished"] == ("True", "Failed")
    assert not holds_quota(tracked.workload)


def test_finished_of_an_earlier_admission_changes_nothing() -> None:
    tracked = TrackedWorkload().admitted()
    assert tracked.happens(facts.Finished(**ME, revision=1)).outcome is FactOutcome.IGNORED


@pytest.mark.parametrize(
    ("since", "counts"),
    [
        pytest.param("waits", True, id="it waits for quota"),
        pytest.param("off", True, id="it is turned off"),
        pytest.param("reserved", True, id="it has quota and no job"),
        pytest.param("admitted", False, id="a later job may run"),
        pytest.param("lost again", False, id="a later job may have changed its files"),
    ],
)
def test_a_result_after_the_release_counts_without_a_later_job(since: str, counts: bool) -> None:
    tracked = TrackedWorkload(Around(["c"])).admitted()
    first = tracked.status.admitted_revision
    tracked.happens(facts.Stopped(**ME, revision=first, reason="NodeFailures"))
    if since == "off":
        tracked.happens(facts.Deactivated(**ME))
    if since == "reserved":
        tracked.assigned()
    if since in ("admitted", "lost again"):
        tracked.admitted()
    if since == "lost again":
        second = tracked.status.admitted_revision
        tracked.happens(facts.Stopped(**ME, revision=second, reason="NodeFailures"))
    tracked.happens(facts.Finished(**ME, revision=first))
    assert (tracked.phase is Phase.FINISHED) is counts


def test_a_deactivated_job_stops_and_waits_for_activation_t16_t22() -> None:
    tracked = TrackedWorkload().admitted().happens(facts.Deactivated(**ME))
    assert (tracked.phase, tracked.outbox_kinds) == (Phase.DEACTIVATED, ["evicted"])
    tracked.stopped()
    assert tracked.workload is not None
    assert not holds_quota(tracked.workload)
    tracked.happens(facts.Activated(**ME))
    assert tracked.phase is Phase.PENDING
    assert tracked.conditions["Requeued"] == ("True", "Reactivated")


@pytest.mark.parametrize("evict", ["preempt", "drain", "retry", "off"])
def test_deactivated_and_activated_while_stopping_it_competes_l24(evict: str) -> None:
    tracked = TrackedWorkload(Around(["c1"])).admitted()
    match evict:
        case "preempt":
            tracked.preempted()
        case "drain":
            tracked.around.stopped = STOP
            tracked.happens(QueueChanged(**ME))
            tracked.around.stopped = None
        case "retry":
            tracked.verdict("c1", "Retry")
    tracked.happens(facts.Deactivated(**ME)).happens(facts.Activated(**ME))
    assert tracked.phase is Phase.EVICTING
    tracked.stopped()
    assert tracked.phase is Phase.PENDING
    assert tracked.conditions["Requeued"] == ("True", "Reactivated")


def test_an_earlier_eviction_keeps_its_reason_when_deactivated_f9() -> None:
    tracked = (
        TrackedWorkload(Around(["c1"])).assigned().preempted().happens(facts.Deactivated(**ME))
    )
    assert tracked.conditions["Evicted"] == ("True", "Preempted")


def test_hold_drops_reservations_and_lets_jobs_run_f7() -> None:
    reserved = TrackedWorkload(Around(["c1"])).assigned()
    running = TrackedWorkload().admitted()
    for tracked in (reserved, running):
        tracked.around.stopped = HOLD
        tracked.happens(QueueChanged(**ME))
    assert reserved.phase is Phase.PENDING
    assert reserved.conditions["QuotaReserved"] == ("False", "Suspended")
    assert "Evicted" not in reserved.conditions
    assert running.phase is Phase.ADMITTED


def test_a_drained_job_waits_until_the_queue_runs_again_t17_t23() -> None:
    tracked = TrackedWorkload().admitted()
    tracked.around.stopped = STOP
    tracked.happens(QueueChanged(**ME))
    assert tracked.phase is Phase.EVICTING
    tracked.stopped()
    assert tracked.phase is Phase.BACKOFF
    assert tracked.conditions["Requeued"] == ("False", "ClusterQueueStopped")
    tracked.around.stopped = None
    tracked.happens(QueueChanged(**ME))
    assert tracked.phase is Phase.PENDING
    assert tracked.conditions["Requeued"] == ("True", "ClusterQueueRestarted")


def test_a_new_check_does_not_unadmit_a18() -> None:
    tracked = TrackedWorkload().admitted()
    tracked.around.checks = ("late",)
    tracked.happens(QueueChanged(**ME))
    assert tracked.phase is Phase.ADMITTED
    assert tracked.states == {"late": "Pending"}


def test_a_finished_parent_stays_as_it_is_when_its_queue_changes() -> None:
    tracked = TrackedWorkload().admitted().happens(facts.Finished(**ME, succeeded=True))
    parent = with_role(tracked.stored, PARENT)
    context = occasion(9, tracked.now, tracked.around)
    change = single_transition(parent, QueueChanged(**ME), context)
    assert (change.outcome, change.workload) == (FactOutcome.IGNORED, parent)


def test_removing_the_last_missing_check_lets_it_be_admitted() -> None:
    tracked = TrackedWorkload(Around(["c1"])).assigned()
    tracked.around.checks = ()
    tracked.happens(QueueChanged(**ME))
    assert tracked.confirmed().phase is Phase.ADMITTED


def test_a_repeated_refusal_sends_no_message() -> None:
    refused = facts.Refused(
        **ME,
        revision=1,
        seen=0,
        domain="queue-cq",
        refusal=Refusal(reason="WaitingForQuota", message="cpu: 1 short"),
    )
    tracked = TrackedWorkload().happens(refused)
    assert tracked.outbox_kinds == ["pending"]
    assert tracked.conditions["QuotaReserved"] == ("False", "WaitingForQuota")
    assert tracked.happens(refused).outbox_kinds == []


def test_a_held_workload_is_out_of_its_queue_until_released_t30() -> None:
    tracked = TrackedWorkload().happens(facts.Held(**ME))
    assert tracked.conditions["QuotaReserved"] == ("False", "OnHold")
    tracked.happens(facts.Released(**ME))
    assert tracked.conditions["QuotaReserved"] == ("False", "PendingEvaluation")


def test_a_workload_with_quota_cannot_be_held() -> None:
    assert TrackedWorkload().admitted().happens(facts.Held(**ME)).outcome is FactOutcome.REFUSED


@pytest.mark.parametrize(
    ("priority", "outcome"),
    [
        (-(2**31) - 1, FactOutcome.REFUSED),
        (-(2**31), FactOutcome.APPLIED),
        (0, FactOutcome.IGNORED),
        (2**31 - 1, FactOutcome.APPLIED),
        (2**31, FactOutcome.REFUSED),
    ],
)
def test_a_priority_has_32_bits_t29(priority: int, outcome: FactOutcome) -> None:
    fact = facts.Reprioritized(**ME, priority=priority)
    assert TrackedWorkload().happens(fact).outcome is outcome


def test_a_running_workload_disappears_only_when_its_job_has_stopped_t27() -> None:
    tracked = TrackedWorkload().admitted().happens(facts.Deleted(**ME))
    assert tracked.phase is Phase.EVICTING
    tracked.stopped()
    assert tracked.workload is None


def test_a_later_workload_of_the_same_name_is_not_changed() -> None:
    tracked = TrackedWorkload().happens(facts.Deactivated(**ME, uid="another-uid"))
    assert tracked.outcome is FactOutcome.IGNORED


def test_execution_time_counts_each_admission_once_f12() -> None:
    tracked = (
        TrackedWorkload().admitted().later(5).preempted().stopped().admitted().later(7).preempted()
    )
    tracked.stopped()
    assert tracked.workload is not None
    assert tracked.workload.status.accumulated_past_execution_time_seconds == 12


def test_the_same_submission_again_changes_nothing_and_another_is_refused() -> None:
    tracked = TrackedWorkload()
    assert tracked.happens(an_arrival()).outcome is FactOutcome.IGNORED
    assert tracked.happens(an_arrival(requests={"cpu": "2"})).outcome is FactOutcome.REFUSED


def test_every_phase_but_the_end_has_a_way_out() -> None:
    left = {where for where, fact in MOVES if fact is not facts.Deleted}
    dead = {fact for where, fact in MOVES if where is Phase.FINISHED}
    assert left == set(Phase)
    assert dead == {facts.Deleted, facts.CheckReported}  # the latter is only counted
