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
from support.cores.families.family_controller import FamilyController

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


def test_a_rejection_starts_nothing_and_the_siblings_race() -> None:
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


def test_the_last_variant_to_be_rejected_may_be_the_running_one() -> None:
    house = FamilyController(("a", "b"), checks=CHECKS).family().assign("a").assign("b")
    house.verdict("a", "slow", "Rejected").verdict("b", "odd").confirm("b")
    house.verdict("b", "odd", "Rejected")
    assert where(house) == "Rejected"
    house.stop()
    assert house.get().status.admission is None
    assert house.get(B).status.admission is None


PODS = Limits(pods_ready=PodsReadyLimits(timeout=timedelta(seconds=30), backoff_limit=1))


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


def test_a_variant_has_no_times_of_a_job() -> None:
    house = running("c", PODS)
    around = house.controller.queues
    assert due_times(house.get(C), house.now, around) == {}
    house.preempt("c")
    assert due_times(house.get(C), house.now, around) == {}
    assert "drain" in due_times(house.get(), house.now, around)


def test_a_finished_variant_may_be_deleted_when_it_is_read_again() -> None:
    house = running("b")
    commit = fold(house.controller, [house.logged_fact(facts.Finished(**J))], house.now)
    house.perform(commit)
    (put,) = [put for put in commit.puts if put.key.endswith(B)]
    assert put.workload is not None
    assert put.workload.status.log.says, "it has something to say of its end"
    key, revision = put.key, put.expected + 100
    house.controller.load(key, put.value, revision, {})
    house.happens(facts.Deleted(namespace="ns", name=B))
    assert house.outcome == "applied"
    assert not house.is_there(B)


def test_an_eviction_of_the_variant_is_published_for_the_parent() -> None:
    house = running("c").preempt("c")
    evictions = [fact for fact in house.facts if isinstance(fact, facts.Evicted)]
    assert [(fact.name, fact.reason, fact.underlying_cause) for fact in evictions] == [
        ("j", "VariantEvicted", "Preempted")
    ]
    assert evictions[0].preempted_by is not None


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
