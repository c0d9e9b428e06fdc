"""When a family competes again, and the reasons of its wait in its status.
docs/spec/lifecycle.md#1.3, #4.10."""

from __future__ import annotations

from datetime import UTC, datetime

from admittance.cli.show import sections
from admittance.events.requests.explanation import ExplainReply
from admittance.events.requests.queues import PendingQuery
from admittance.workload.phase import phase
from admittance.workload.waiting_reason import reason_of
from support.cores.families.family_cores import FamilyCores, cores_with_families

TWO = {"reservation": 4, "on-demand": 4}
ASKED = {"reservation": ["quick"], "on-demand": ["slow"]}
BETTER, WORSE = "j-variant-reservation", "j-variant-on-demand"


def noon(minutes: float) -> datetime:
    return datetime.fromtimestamp(
        datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp() + 60 * minutes, tz=UTC
    )


def asked_twice() -> FamilyCores:
    """Both variants are reserved, and each waits for a check of its own."""
    cores = cores_with_families(TWO, checks=ASKED)
    cores.job()
    assert cores.phases("j", BETTER, WORSE) == ["Pending", "QuotaReserved", "QuotaReserved"]
    return cores


def requeue_at(cores: FamilyCores, name: str = "j") -> datetime | None:
    state = cores.stored(name).status.requeue_state
    return state.requeue_at if state is not None else None


def explained(cores: FamilyCores) -> ExplainReply:
    return cores.scheduler.explain(cores.namespace, "j", now=cores.now)


def test_a_family_waits_until_the_first_of_its_variants_competes() -> None:
    cores = asked_twice()
    cores.report(BETTER, "quick", "Retry", after=600, message="no capacity")
    assert (cores.phase("j"), requeue_at(cores)) == ("Pending", None), (
        "the other one is asked still"
    )
    cores.report(WORSE, "slow", "Retry", after=300, message="busy")
    assert (cores.phase("j"), requeue_at(cores)) == ("Backoff", noon(5))
    said = cores.message("j", "QuotaReserved")
    assert 'reservation: Evicted due to AdmissionCheck in Retry state: "quick" (no cap' in said
    assert 'on-demand: Evicted due to AdmissionCheck in Retry state: "slow" (busy). Next at' in said
    cores.at(299)
    assert cores.phase("j") == "Backoff"
    cores.at(300)
    assert (cores.phase("j"), requeue_at(cores)) == ("Pending", None)
    assert cores.phase(WORSE) == "QuotaReserved"
    assert cores.phase(BETTER) == "Backoff"


def test_explain_describe_and_the_stored_parent_show_the_same_wait() -> None:
    cores = asked_twice()
    cores.report(BETTER, "quick", "Retry", after=600, message="no capacity")
    cores.report(WORSE, "slow", "Retry", after=300, message="busy")
    reply, parent = explained(cores), cores.stored("j")
    assert reply.phase == str(phase(parent, cores.now)) == "Backoff"
    assert reply.requeue_at == requeue_at(cores) == noon(5)
    assert reply.reason == "Backoff"
    assert reply.message == (
        "reservation: waits until 2026-01-01T12:10:00Z: The admission check quick is in state Retry"
        "; on-demand: waits until 2026-01-01T12:05:00Z: The admission check slow is in state Retry"
    )
    # What describe and get show.
    reason, message = reason_of(parent, cores.now)
    assert (reason, message) == ("AdmissionCheck", cores.message("j", "QuotaReserved"))
    variants = [cores.stored(name) for name in (BETTER, WORSE)]
    shown = sections.next_attempt(parent, cores.now, variants)
    assert shown == "2026-01-01T12:05:00Z (in 5m, set by variant on-demand)"
    (row,) = cores.scheduler.pending(PendingQuery(limit=10)).rows
    assert (row.name, row.reason, row.message) == ("j", "Backoff", reply.message)


def test_a_family_does_not_wait_for_a_rejected_variant_and_says_why() -> None:
    cores = asked_twice()
    cores.report(BETTER, "quick", "Rejected", message="over budget")
    cores.report(WORSE, "slow", "Retry", after=300)
    assert (cores.phase("j"), requeue_at(cores)) == ("Backoff", noon(5))
    said = cores.message("j", "QuotaReserved")
    assert said.startswith('reservation: inactive (Rejected): "quick" (over budget); on-demand: ')


def test_a_rejected_family_names_each_check_and_its_message() -> None:
    cores = asked_twice()
    cores.report(WORSE, "slow", "Rejected", message="no such image")
    cores.report(BETTER, "quick", "Rejected", message="over budget")
    assert cores.phase("j") == "Rejected"
    assert requeue_at(cores) is None
    assert cores.message("j", "Evicted") == (
        "Deactivated due to AdmissionCheck in Rejected state: every variant was rejected: "
        'reservation: "quick" (over budget); on-demand: "slow" (no such image)'
    )
    assert reason_of(cores.stored("j"), cores.now)[1] == cores.message("j", "Evicted")


def test_a_family_with_delayed_variants_waits_for_the_first() -> None:
    late = [
        {"name": tag, "allowedResourceFlavors": [tag], "createDelaySeconds": seconds}
        for tag, seconds in (("reservation", 120), ("on-demand", 60))
    ]
    cores = cores_with_families(
        TWO, explicit=late, foreign={"r1": "reservation", "o1": "on-demand"}
    )
    cores.job()
    assert (cores.phase("j"), requeue_at(cores)) == ("Backoff", noon(1))
    assert cores.message("j", "QuotaReserved") == (
        "reservation: inactive (createDelay) until 2026-01-01T12:02:00Z; "
        "on-demand: inactive (createDelay) until 2026-01-01T12:01:00Z"
    )
    cores.at(60)
    assert (cores.phase("j"), requeue_at(cores)) == ("Pending", None)


def test_a_parent_that_becomes_regular_waits_for_no_variant() -> None:
    cores = asked_twice()
    cores.report(BETTER, "quick", "Retry", after=600)
    cores.report(WORSE, "slow", "Retry", after=300)
    cores.edit_queue(concurrentAdmission=None)
    cores.go()
    assert requeue_at(cores) is None
    assert cores.phase("j") != "Backoff"
