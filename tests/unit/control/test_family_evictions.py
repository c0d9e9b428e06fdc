"""A family after its admitted variant was evicted. docs/spec/lifecycle.md#4.7, and its traps."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from admittance.control.batch import fold
from admittance.events import facts
from admittance.events.shapes import Refusal
from admittance.workload.due_times import due_times
from admittance.workload.limits import Limits, PodsReadyLimits
from admittance.workload.phase import phase
from support.cores.family_controller import FamilyController

J: dict[str, Any] = {"namespace": "ns", "name": "j"}
A, B, C = (f"j-variant-{tag}" for tag in "abc")
CHECKS = {"a": ("slow",), "b": ("odd",)}


def running(tag: str = "c", limits: Limits | None = None) -> FamilyController:
    """A family of three, the first two of which have a check, that runs on one of them."""
    house = FamilyController(checks=CHECKS, limits=limits).family().assign(tag)
    if tag in CHECKS:
        house.verdict(tag, CHECKS[tag][0]).confirm(tag)
    assert house.get().status.admitted_variant == f"j-variant-{tag}"
    return house.later(100)


def where(house: FamilyController, name: str = "j") -> str:
    return str(phase(house.get(name), house.now))


def test_preempted_from_outside_it_starts_over_as_if_it_were_new() -> None:
    house = running("b").assign("a").verdict("a", "slow", "Rejected")
    assert house.get(A).status.stopped_by == "Rejected"
    assert house.active() == "b"
    house.preempt("b").stop()
    assert house.active() == "abc"
    assert house.get(A).status.stopped_by == ""
    assert where(house) == "Pending"
    status = house.get().status
    assert (status.family_start, status.first_admitted_at) == (house.now, None)
    assert not any(one.status.admission for one in house.variants())


@pytest.mark.scenario("D31")
@pytest.mark.parametrize(
    ("gone", "back"),
    [
        pytest.param(lambda house: house.preempt("b"), True, id="preempted: all start over"),
        pytest.param(
            lambda house: house.verdict("b", "odd", "Retry", requeue_after_seconds=60),
            False,
            id="a check says Retry: a rejected variant stays inactive",
        ),
    ],
)
def test_a_variant_rejected_by_a_check_returns_only_with_the_family(
    gone: Callable[[FamilyController], FamilyController], *, back: bool
) -> None:
    house = running("b").assign("a").verdict("a", "slow", "Rejected")
    gone(house)
    house.stop()
    assert house.active() == ("abc" if back else "bc")


def test_a_variant_stopped_by_its_user_is_not_activated_by_policy() -> None:
    house = running("b").happens(facts.Deactivated(namespace="ns", name=A))
    assert house.get(A).status.stopped_by == "User"
    house.preempt("b").stop()
    assert house.active() == "bc"
    house.happens(facts.Activated(namespace="ns", name=A, reason="race"))
    assert (house.active(), house.reason) == ("bc", "PolicyMovedOn")
    house.happens(facts.Activated(namespace="ns", name=A))
    assert house.active() == "abc"


def test_a_retry_stops_the_job_and_only_that_variant_waits() -> None:
    house = running("b").verdict("b", "odd", "Retry", requeue_after_seconds=60)
    assert house.condition("Evicted") == "True: VariantEvicted"
    assert house.condition("Evicted", B) == "True: AdmissionCheck"
    house.stop()
    assert where(house, B) == "Backoff"
    assert (where(house), where(house, A), where(house, C)) == ("Pending",) * 3
    house.assign("c")
    assert house.starts == [("j", "b"), ("j", "c")]


def test_a_rejection_is_no_new_start_and_the_siblings_race() -> None:
    house = running("b")
    first = house.get().status.first_admitted_at
    house.verdict("b", "odd", "Rejected").later(5).stop()
    assert house.active() == "ac"
    assert (where(house), where(house, B)) == ("Pending", "Rejected")
    status = house.get().status
    assert (status.family_start, status.first_admitted_at) == (None, first)
    # Trap b: nothing is admitted, and still policy does not turn it on.
    house.happens(facts.Aggregated(**J), facts.Activated(namespace="ns", name=B, reason="race"))
    assert house.active() == "ac"


def test_the_parent_is_rejected_when_every_variant_is() -> None:
    house = FamilyController(("a", "b"), checks=CHECKS).family().assign("a").assign("b")
    house.verdict("a", "slow", "Rejected")
    assert where(house) == "Pending"
    house.verdict("b", "odd", "Rejected")
    assert where(house) == "Rejected"
    assert ("rejected", "j") in house.published
    house.happens(facts.Activated(**J))
    assert (where(house), house.active()) == ("Pending", "ab")


def test_the_last_variant_to_be_rejected_may_be_the_running_one() -> None:
    house = FamilyController(("a", "b"), checks=CHECKS).family().assign("a").assign("b")
    house.verdict("a", "slow", "Rejected").verdict("b", "odd").confirm("b")
    house.verdict("b", "odd", "Rejected")
    assert where(house) == "Rejected"
    house.stop()
    assert house.get().status.admission is None
    assert house.get(B).status.admission is None


PODS = Limits(pods_ready=PodsReadyLimits(timeout=timedelta(seconds=30), backoff_limit=1))


def test_pods_not_ready_in_time_evict_parent_and_variant_with_backoff() -> None:
    """Trap c."""
    house = running("c", PODS).due("pods-ready")
    for name in ("j", C):
        assert house.condition("Evicted", name) == "True: PodsReadyTimeout"
    house.stop()
    assert where(house) == "Backoff"
    assert [where(house, one) for one in (A, B, C)] == ["Pending"] * 3
    house.assign("c")
    assert house.get(C).status.admission is None
    house.due("requeue")
    assert where(house) == "Pending"
    house.assign("c")
    assert house.starts == [("j", "c"), ("j", "c")]
    assert house.get().status.requeue_state is not None
    # Once too often.
    house.due("pods-ready").stop()
    assert where(house) == "Deactivated"
    assert house.active() == ""
    house.happens(facts.Activated(**J))
    assert house.active() == "abc"


ENDS: dict[str, Callable[[FamilyController], FamilyController]] = {
    "pods not ready": lambda house: house.due("pods-ready").stop(),
    "node lost": lambda house: house.happens(
        facts.Stopped(**J, revision=house.get().status.admitted_revision, reason="NodeFailures")
    ),
    "check": lambda house: house.verdict("b", "odd", "Retry", requeue_after_seconds=10).stop(),
    "preempted": lambda house: house.preempt("b").stop(),
    "activated": lambda house: house.happens(facts.Deactivated(**J), facts.Activated(**J)).stop(),
}


def retries(house: FamilyController, name: str, check: str) -> int:
    """The retry count of a check, which may have no row while no flavor is assigned."""
    status = house.get(name).status
    counts = {row.name: row.retry_count for row in status.admission_checks}
    return (counts | status.check_retry_counts).get(check, 0)


@pytest.mark.parametrize("end", ENDS)
def test_a_siblings_delay_and_retry_count_stay_unless_the_family_is_as_new(end: str) -> None:
    house = running("b", PODS)
    for delay in (5, 300):
        house.assign("a").verdict("a", "slow", "Retry", requeue_after_seconds=delay)
        if delay == 5:
            house.due("requeue", A)
    until = house.now + timedelta(seconds=300)
    ENDS[end](house.later(4))
    if end in ("preempted", "activated"):
        assert (where(house, A), retries(house, A, "slow")) == ("Pending", 0)
        return
    assert (where(house, A), retries(house, A, "slow")) == ("Backoff", 1)
    house.due("requeue").due("requeue", A)
    assert (where(house, A), house.now) == ("Pending", until)
    assert retries(house, A, "slow") == 2


def test_a_siblings_retry_count_stays_while_its_checks_are_pending() -> None:
    house = running("b", PODS).assign("a").verdict("a", "slow", "Retry", requeue_after_seconds=5)
    house.due("requeue", A).assign("a")
    assert where(house, A) == "QuotaReserved"
    house.due("pods-ready").stop()
    assert (where(house, A), retries(house, A, "slow")) == ("Pending", 1)


def test_pods_that_are_ready_are_so_on_the_variant_too() -> None:
    house = running("c")
    revision = house.get().status.admitted_revision
    house.happens(facts.PodsReady(**J, revision=revision))
    assert house.condition("PodsReady", C) == "True: Started"
    house.happens(facts.PodsNotReady(**J, revision=revision))
    assert house.condition("PodsReady", C) == "False: WaitForRecovery"


def test_a_drained_queue_takes_all_and_lets_them_race_when_it_runs_again() -> None:
    house = running("b").assign("a")
    house.edit_queue(stopPolicy="HoldAndDrain")
    assert house.condition("Evicted") == "True: ClusterQueueStopped"
    assert house.condition("Evicted", B) == "True: ClusterQueueStopped"
    assert house.get(A).status.admission is None
    house.stop()
    assert house.condition("QuotaReserved") == "False: Suspended"
    house.edit_queue(stopPolicy=None)
    assert where(house) == "Pending"
    assert [where(house, one) for one in (A, B, C)] == ["Pending"] * 3
    house.assign("c")
    assert house.starts == [("j", "b"), ("j", "c")]


def test_a_lost_job_starts_over_at_once() -> None:
    house = running("c")
    revision = house.get().status.admitted_revision
    house.happens(facts.Stopped(**J, revision=revision, reason="NodeFailures"))
    assert house.get(C).status.admission is None
    assert (where(house), house.active()) == ("Pending", "abc")


def test_a_parent_that_is_turned_off_takes_all_its_variants_with_it() -> None:
    house = running("b").assign("a").happens(facts.Deactivated(**J))
    assert house.active() == ""
    assert house.get(A).status.admission is None
    assert house.condition("Evicted", B) == "True: Deactivated"
    assert house.get(B).status.admission is not None
    house.stop()
    assert where(house) == "Deactivated"
    house.later(5).happens(facts.Activated(**J))
    assert house.active() == "abc"
    assert house.get().status.family_start == house.now


def test_turned_on_again_while_the_job_still_stops() -> None:
    house = running("b").happens(facts.Deactivated(**J)).happens(facts.Activated(**J))
    assert where(house) == "Evicting"
    house.stop()
    assert (where(house), house.active()) == ("Pending", "abc")


def test_a_held_family_is_not_tried() -> None:
    house = FamilyController(checks=CHECKS).family().assign("a").happens(facts.Held(**J))
    assert house.active() == ""
    assert house.get(A).status.admission is None
    house.happens(facts.Released(**J))
    assert house.active() == "abc"


def test_a_variant_left_by_a_migration_can_be_admitted_again() -> None:
    """Trap a: FlavorMigration leaves Requeued False, and something has to turn it True."""
    house = running("c").assign("a").verdict("a", "slow").confirm("a").stop()
    assert house.condition("Requeued", C).startswith("False")
    house.preempt("a").stop()
    assert house.condition("Requeued", C) == "True: Reactivated"
    house.assign("c")
    assert house.starts == [("j", "c"), ("j", "a"), ("j", "c")]


def test_a_variant_deleted_by_hand_stops_the_job_first() -> None:
    house = running("c").happens(facts.Deleted(namespace="ns", name=C))
    assert house.is_there(C)
    assert house.condition("Evicted") == "True: VariantEvicted"
    house.stop()
    assert not house.is_there(C)
    assert house.active() == "ab"
    house.happens(*house.variant_facts())
    assert house.active() == "abc"


def test_a_variant_deleted_by_hand_is_gone_when_its_job_finishes() -> None:
    house = running("c").happens(facts.Deleted(namespace="ns", name=C))
    commit = fold(house.controller, [house.logged_fact(facts.Finished(**J))], house.now)
    kept = {put.key.rpartition(".")[2]: put.workload is not None for put in commit.puts}
    assert kept == {A: True, B: True, C: False, "j": True}


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        pytest.param("quota", "False: WaitingForQuota", id="others wait for quota"),
        pytest.param("check", "False: UnsatisfiedAdmissionChecks", id="another is checked"),
        pytest.param("none", "False: NoMatchingFlavor", id="no variant has one"),
    ],
)
def test_no_flavor_for_one_variant_is_not_the_reason_of_the_family(
    others: str, expected: str
) -> None:
    house = FamilyController(("a", "b"), {"b": ("slow",)}).family()

    def refused(tag: str, reason: str) -> None:
        decided = house.decided(f"j-variant-{tag}")
        house.happens(facts.Refused(**decided, refusal=Refusal(reason=reason, message="m")))

    refused("a", "NoMatchingFlavor")
    if others == "check":
        house.assign("b")
    else:
        refused("b", "WaitingForQuota" if others == "quota" else "NoMatchingFlavor")
    house.happens(facts.Aggregated(**J))
    assert house.condition("QuotaReserved") == expected


def test_a_variant_stopped_by_its_user_lets_the_others_compete() -> None:
    house = running("c").happens(facts.Deactivated(namespace="ns", name=C)).stop()
    assert where(house) == "Pending"
    assert house.active() == "ab"


def test_a_variant_has_no_times_of_a_job() -> None:
    house = running("c", PODS)
    around = house.controller.queues
    assert due_times(house.get(C), house.now, around) == {}
    house.preempt("c")
    assert due_times(house.get(C), house.now, around) == {}
    assert "drain" in due_times(house.get(), house.now, around)


def test_a_job_that_never_reports_its_stop_is_released_by_timeout() -> None:
    house = running("c").preempt("c").due("drain")
    assert (where(house), house.active()) == ("Pending", "abc")
    assert house.get(C).status.admission is None
    assert any(
        isinstance(one, facts.Noted) and one.reason == "ForcedRelease" for one in house.facts
    )


def test_an_eviction_of_the_variant_is_published_for_the_parent() -> None:
    house = running("c").preempt("c")
    told = [one for one in house.facts if isinstance(one, facts.Evicted)]
    assert [(one.name, one.reason, one.underlying_cause) for one in told] == [
        ("j", "VariantEvicted", "Preempted")
    ]
    assert told[0].preempted_by is not None


def test_a_finished_variant_may_be_deleted_when_it_is_read_again() -> None:
    house = running("b")
    commit = fold(house.controller, [house.logged_fact(facts.Finished(**J))], house.now)
    house.perform(commit)
    (put,) = [one for one in commit.puts if one.key.endswith(B)]
    assert put.workload is not None
    assert put.workload.status.log.says, "it has something to say of its end"
    key, revision = put.key, put.expected + 100
    house.controller.load(key, put.value, revision, {})
    house.happens(facts.Deleted(namespace="ns", name=B))
    assert house.outcome == "applied"
    assert not house.is_there(B)
