"""Verdicts: which count, and their effect in each phase. docs/spec/lifecycle.md#2.5, #2.6."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from admittance.events import facts
from admittance.events.codec import decode
from admittance.events.shapes import PodSetUpdate
from admittance.workload.change import FactOutcome
from admittance.workload.phase import Phase
from support.builders import Around
from support.cores.tracked_workload import STOP, TrackedWorkload

FOREIGN = PodSetUpdate(name="other", labels={"a": "b"})
BAD_KEY = PodSetUpdate(name="main", labels={"a key": "b"})


@pytest.mark.scenario("A23")
@pytest.mark.parametrize(
    ("said", "word"),
    [
        pytest.param({"cycle": 0}, "Stale", id="of an old cycle"),
        pytest.param({"cycle": 7}, "Stale", id="of a cycle to come"),
        pytest.param({"check": "c9"}, "NoSuchCheck", id="on a row that is not there"),
        pytest.param({"controller": "another"}, "OtherController", id="of another controller"),
        pytest.param({"controller": ""}, "OtherController", id="without a controller"),
        pytest.param({"state": "Maybe"}, "UnknownState", id="of a state that there is not"),
        pytest.param({"state": "Retry", "after": -1}, "BadDelay", id="with less than no delay"),
        pytest.param({"state": "Retry", "after": 2**31}, "BadDelay", id="with a delay of 33 bits"),
        pytest.param({"pod_set_updates": (FOREIGN,)}, "BadUpdates", id="on a pod set not there"),
        pytest.param({"pod_set_updates": (BAD_KEY,)}, "BadUpdates", id="with an invalid key"),
    ],
)
def test_a_verdict_without_effect_has_a_reason(said: dict[str, Any], word: str) -> None:
    tracked = (
        TrackedWorkload(Around(["c1"])).assigned().preempted().assigned().preempted().assigned()
    )
    before = tracked.workload
    more = {"check": "c1", "state": "Ready", **said}
    tracked.verdict(more.pop("check"), more.pop("state"), **more)
    assert tracked.outcome is not FactOutcome.APPLIED
    assert (tracked.reason, tracked.outbox, tracked.workload) == (word, (), before)


@pytest.mark.scenario("A16")
def test_a_ready_without_a_reservation_is_ignored() -> None:
    tracked = TrackedWorkload(Around(["c1"])).verdict("c1", "Ready")
    assert (tracked.reason, tracked.states) == ("NoReservation", {"c1": "Pending"})
    tracked.assigned()
    assert (tracked.phase, tracked.states) == (Phase.QUOTA_RESERVED, {"c1": "Pending"})


def test_without_a_reservation_only_the_message_is_stored() -> None:
    tracked = TrackedWorkload(Around(["c1"])).verdict("c1", "Pending", message="warming up")
    assert tracked.status.admission_checks[0].message == "warming up"
    tracked.verdict("c1", "Retry", message="not now")
    assert (tracked.phase, tracked.states) == (Phase.PENDING, {"c1": "Pending"})
    assert tracked.status.admission_checks[0].message == "not now"
    assert tracked.assigned().phase is Phase.QUOTA_RESERVED


@pytest.mark.scenario("A8")
@pytest.mark.parametrize("running", [False, True], ids=["admitted", "running"])
def test_pending_after_admission_is_noted_and_evicts_no_workload(running: bool) -> None:
    tracked = TrackedWorkload(Around(["c1"])).admitted()
    if running:
        tracked.ready()
    before = tracked.phase
    tracked.verdict("c1", "Pending", message="lost sight of it")
    assert (tracked.phase, tracked.states) == (before, {"c1": "Pending"})
    assert tracked.noted() == {
        "AdmissionCheckUpdated": 'AdmissionCheck "c1": from Ready to Pending: lost sight of it'
    }
    assert tracked.verdict("c1", "Ready").phase is before
    assert tracked.verdict("c1", "Ready", message="again").reason == "Repeated"


@pytest.mark.scenario("A8")
@pytest.mark.parametrize("state", ["Retry", "Rejected"])
def test_a_retry_after_ready_evicts_and_the_job_stops_first(state: str) -> None:
    tracked = TrackedWorkload(Around(["c1", "c2"])).admitted().ready().verdict("c2", state)
    assert tracked.status.admission is not None
    assert "evicted" in tracked.outbox_kinds
    tracked.stopped()
    assert tracked.status.admission is None
    assert tracked.phase is (Phase.PENDING if state == "Retry" else Phase.REJECTED)


@pytest.mark.scenario("A18")
@pytest.mark.parametrize("state", ["Retry", "Rejected"])
def test_a_check_added_after_admission_can_evict(state: str) -> None:
    tracked = TrackedWorkload().admitted().lists("late")
    assert (tracked.phase, tracked.states) == (Phase.ADMITTED, {"late": "Pending"})
    tracked.verdict("late", state)
    assert tracked.phase is (Phase.EVICTING if state == "Retry" else Phase.REJECTED)


@pytest.mark.scenario("A18")
@pytest.mark.parametrize("state", ["Pending", "Ready"])
def test_a_pending_check_added_after_admission_evicts_no_workload(state: str) -> None:
    tracked = (
        TrackedWorkload().admitted().ready().lists("late").verdict("late", state, message="so")
    )
    assert (tracked.phase, tracked.states) == (Phase.RUNNING, {"late": state})
    assert tracked.status.admission_checks[0].message == "so"


def test_pod_set_updates_after_admission_are_noted_and_not_kept() -> None:
    tracked = TrackedWorkload().admitted().lists("late")
    tracked.verdict(
        "late", "Ready", pod_set_updates=(PodSetUpdate(name="main", labels={"a": "b"}),)
    )
    assert (tracked.phase, tracked.states) == (Phase.ADMITTED, {"late": "Ready"})
    assert tracked.status.admission_checks[0].pod_set_updates == ()
    assert list(tracked.noted()) == ["PodSetUpdatesTooLate"]


@pytest.mark.scenario("A25", "A27")
def test_preemption_required_is_kept_with_pending_only() -> None:
    tracked = TrackedWorkload(Around(["c1"])).assigned()
    tracked.verdict("c1", "Pending", reason="PreemptionRequired", message="no room")
    assert tracked.status.admission_checks[0].reason == "PreemptionRequired"
    assert "PreemptionRequired" in tracked.noted()
    for state in ("Ready", "Retry"):
        tracked.verdict("c1", state, reason="PreemptionRequired")
        assert tracked.status.admission_checks[0].reason == ""


@pytest.mark.parametrize("spelled", ["BookQuotaRequired", "BookCapacity"])
def test_older_spellings_of_preemption_required_count(spelled: str) -> None:
    tracked = TrackedWorkload(Around(["c1"])).assigned().verdict("c1", "Pending", reason=spelled)
    assert tracked.status.admission_checks[0].reason == "PreemptionRequired"
    assert "UnknownReason" not in tracked.noted()


@pytest.mark.parametrize("state", ["Pending", "Ready", "Retry", "Rejected"])
def test_an_unknown_reason_is_kept_and_noted_once(state: str) -> None:
    tracked = (
        TrackedWorkload(Around(["c1", "c2"]))
        .assigned()
        .verdict("c1", state, 60, reason="NoLicense")
    )
    assert tracked.status.admission_checks[0].reason == "NoLicense"
    assert tracked.noted()["UnknownReason"] == (
        "AdmissionCheck \"c1\": reason 'NoLicense' is unknown: it is kept, without effect"
    )
    if state == "Pending":
        tracked.verdict("c1", state, reason="NoLicense", message="still")
        assert tracked.noted() == {}


def test_a_reason_of_another_state_is_noted() -> None:
    tracked = TrackedWorkload(Around(["c1", "c2"])).assigned()
    tracked.verdict("c1", "Ready", reason="BookQuotaRequired")
    assert tracked.status.admission_checks[0].reason == ""
    assert "has an effect only with Pending" in tracked.noted()["UnknownReason"]


def test_a_reason_that_only_repeats_the_state_is_neither_kept_nor_noted() -> None:
    tracked = (
        TrackedWorkload(Around(["c1", "c2"])).assigned().verdict("c1", "Retry", 60, reason="Retry")
    )
    assert (tracked.status.admission_checks[0].reason, tracked.noted()) == ("", {})


@pytest.mark.parametrize(
    ("written", "seconds"), [("8m0s", 480), ("480s", 480), ("1h30m", 5400), ("250ms", 1)]
)
def test_a_delay_may_be_written_as_a_duration(written: str, seconds: int) -> None:
    data = {
        **{"namespace": "ns", "name": "w", "check": "c1", "cycle": 0},
        **{"state": "Retry", "requeueAfterSeconds": written},
    }
    fact = decode("admit.check.reported.ctl-c1.ns.w", msgspec.json.encode(data))
    tracked = TrackedWorkload(Around(["c1"])).assigned().happens(fact)
    assert tracked.status.admission_checks[0].requeue_after_seconds == seconds
    assert (tracked.phase, tracked.wait) == (Phase.BACKOFF, seconds)


@pytest.mark.parametrize("written", ["soon", "-8m0s", "9999999h", ""])
def test_a_delay_that_is_not_a_duration_is_refused(written: str) -> None:
    tracked = TrackedWorkload(Around(["c1"])).assigned().verdict("c1", "Retry", written)  # type: ignore[arg-type]
    assert (tracked.outcome, tracked.reason) == (FactOutcome.REFUSED, "BadDelay")


def test_a_row_has_the_time_of_its_state() -> None:
    tracked = TrackedWorkload(Around(["c1"])).assigned()
    began = tracked.now
    tracked.later(10).verdict("c1", "Pending", message="half way")
    assert tracked.status.admission_checks[0].last_transition_time == began
    tracked.later(10).verdict("c1", "Ready")
    assert tracked.status.admission_checks[0].last_transition_time == tracked.now


@pytest.mark.scenario("A6")
def test_a_rejection_names_the_check_and_counts_as_deactivation() -> None:
    tracked = TrackedWorkload(Around(["c1", "c2"])).assigned().verdict("c2", "Ready")
    tracked.verdict("c1", "Rejected", message="over budget")
    assert tracked.phase is Phase.REJECTED
    said = 'Deactivated due to AdmissionCheck in Rejected state: "c1" (over budget)'
    assert tracked.message("Evicted") == said
    assert ("rejected", "AdmissionCheckRejected", said) == (
        tracked.outbox[0].what,
        tracked.outbox[0].reason,
        tracked.outbox[0].message,
    )
    assert tracked.conditions["Evicted"] == ("True", "DeactivatedDueToAdmissionCheck")
    assert "DeactivationTarget" not in tracked.conditions
    stats = tracked.status.scheduling_stats
    assert stats is not None
    assert [
        (eviction.reason, eviction.underlying_cause, eviction.count) for eviction in stats.evictions
    ] == [("Deactivated", "AdmissionCheck", 1)]


@pytest.mark.scenario("A22")
@pytest.mark.parametrize("stopped", [False, True], ids=["while the job stops", "after it"])
@pytest.mark.parametrize("how", ["preempted", "drained", "retried"])
def test_a_rejection_is_not_lost_to_an_eviction(how: str, stopped: bool) -> None:
    tracked = TrackedWorkload(Around(["c1", "c2"])).admitted()
    cycle = tracked.status.admission_cycle
    match how:
        case "preempted":
            tracked.preempted()
        case "drained":
            tracked.stops(STOP)
        case "retried":
            tracked.verdict("c1", "Retry", after=60)
    if stopped:
        tracked.stopped()
    tracked.verdict("c2", "Rejected", cycle=cycle)
    assert tracked.phase is Phase.REJECTED
    assert tracked.conditions["Evicted"] == ("True", "DeactivatedDueToAdmissionCheck")


@pytest.mark.scenario("A22", "A23")
def test_a_rejection_of_the_last_cycle_is_stale_after_a_reservation() -> None:
    tracked = TrackedWorkload(Around(["c1"])).assigned().preempted().assigned()
    assert tracked.verdict("c1", "Rejected", ago=1).reason == "Stale"
    assert tracked.phase is Phase.QUOTA_RESERVED


@pytest.mark.scenario("A22", "B5")
def test_a_flavors_check_can_reject_without_its_row() -> None:
    around = Around()
    around.per_flavor = {"spot": ("s",), "other": ()}
    tracked = TrackedWorkload(around).assigned("spot").preempted()
    assert tracked.states == {}
    assert tracked.verdict("s", "Rejected", ago=1).phase is Phase.REJECTED


def test_a_check_that_was_never_requested_cannot_reject() -> None:
    around = Around()
    around.per_flavor = {"spot": ("s",), "other": ()}
    tracked = TrackedWorkload(around).assigned("other").preempted()
    assert tracked.verdict("s", "Rejected", ago=1).reason == "NoSuchCheck"


@pytest.mark.parametrize("end", ["off", "rejected", "finished"])
def test_an_inactive_or_finished_workload_ignores_verdicts(end: str) -> None:
    tracked = TrackedWorkload(Around(["c1"])).assigned()
    match end:
        case "off":
            tracked.off()
        case "rejected":
            tracked.verdict("c1", "Rejected")
        case "finished":
            tracked.happens(facts.Finished(namespace="ns", name="w"))
    phase, before = tracked.phase, tracked.workload
    for state in ("Pending", "Ready", "Retry", "Rejected"):
        for ago in (0, 1):
            tracked.verdict("c1", state, 60 if state == "Retry" else None, ago=ago)
            assert (tracked.reason, tracked.workload) == (str(phase), before)


@pytest.mark.scenario("A6")
@pytest.mark.parametrize("before", ["reserved", "admitted"])
def test_a_rejected_row_stays_until_the_workload_is_activated(before: str) -> None:
    around = Around(["wide"])
    around.per_flavor = {"spot": ("flavored",)}
    tracked = TrackedWorkload(around)
    tracked.admitted("spot") if before == "admitted" else tracked.assigned("spot")
    tracked.later(5).verdict("flavored", "Rejected", message="over budget")
    judged = tracked.now
    if before == "admitted":
        tracked.stopped()
    assert tracked.phase is Phase.REJECTED
    # Its flavor is gone, and whatever happens to the queue, the row stays.
    for _ in range(2):
        row = tracked.status.admission_checks[0]
        assert (row.name, row.state, row.message) == ("flavored", "Rejected", "over budget")
        assert row.last_transition_time == judged
        tracked.lists("wide", "other")
    tracked.later(5).on()
    assert tracked.phase is Phase.PENDING
    assert tracked.states == {"wide": "Pending", "other": "Pending"}


def test_a_rejection_by_conflicting_additions_stays_in_the_row() -> None:
    tracked = TrackedWorkload(Around(["c1", "c2"])).assigned()
    for check, value in (("c1", "a"), ("c2", "b")):
        update = PodSetUpdate(name="main", labels={"zone": value})
        tracked.verdict(check, "Ready", pod_set_updates=(update,))
    assert tracked.phase is Phase.REJECTED
    assert tracked.states == {"c1": "Pending", "c2": "Rejected"}
    assert "podSetUpdates contradict each other" in tracked.status.admission_checks[1].message


def test_an_activated_workload_starts_with_its_rows_pending() -> None:
    tracked = (
        TrackedWorkload(Around(["c1"])).admitted().verdict("c1", "Rejected", message="never").on()
    )
    assert (tracked.phase, tracked.states) == (Phase.EVICTING, {"c1": "Pending"})
    said = "Reset to Pending after eviction. Previously: Rejected"
    assert tracked.status.admission_checks[0].message == said
    assert tracked.stopped().assigned().phase is Phase.QUOTA_RESERVED
