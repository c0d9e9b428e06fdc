"""When a family competes again, and the reasons of its wait in its status. LIFECYCLE 1.3, 4.10."""

from __future__ import annotations

from datetime import UTC, datetime

from admittance.cli.show import check_rows, tables
from admittance.events import facts
from admittance.events.requests import ExplainReply, PendingQuery
from admittance.workload.phase import phase

from family_living import FamilyLife, a_family_life

TWO = {"reservation": 4, "on-demand": 4}
ASKED = {"reservation": ["quick"], "on-demand": ["slow"]}
BETTER, WORSE = "j-variant-reservation", "j-variant-on-demand"


def noon(minutes: float) -> datetime:
    return datetime.fromtimestamp(
        datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp() + 60 * minutes, tz=UTC
    )


def asked_twice() -> FamilyLife:
    """Both variants are reserved, and each waits for a check of its own."""
    life = a_family_life(TWO, checks=ASKED)
    life.job()
    assert life.phases("j", BETTER, WORSE) == ["Pending", "QuotaReserved", "QuotaReserved"]
    return life


def requeue_at(life: FamilyLife, name: str = "j") -> datetime | None:
    state = life.stored(name).status.requeue_state
    return state.requeue_at if state is not None else None


def explained(life: FamilyLife) -> ExplainReply:
    return life.core.explain(life.namespace, "j", now=life.now)


def test_a_family_waits_until_the_first_of_its_variants_competes() -> None:
    life = asked_twice()
    life.judge(BETTER, "quick", "Retry", after=600, message="no capacity")
    assert (life.phase("j"), requeue_at(life)) == ("Pending", None), "the other one is asked still"
    life.judge(WORSE, "slow", "Retry", after=300, message="busy")
    assert (life.phase("j"), requeue_at(life)) == ("Backoff", noon(5))
    said = life.message("j", "QuotaReserved")
    assert 'reservation: Evicted due to AdmissionCheck in Retry state: "quick" (no cap' in said
    assert 'on-demand: Evicted due to AdmissionCheck in Retry state: "slow" (busy). Next at' in said
    life.at(299)
    assert life.phase("j") == "Backoff"
    life.at(300)
    assert (life.phase("j"), requeue_at(life)) == ("Pending", None)
    assert life.phase(WORSE) == "QuotaReserved"
    assert life.phase(BETTER) == "Backoff"


def test_explain_describe_and_the_stored_parent_show_the_same_wait() -> None:
    life = asked_twice()
    life.judge(BETTER, "quick", "Retry", after=600, message="no capacity")
    life.judge(WORSE, "slow", "Retry", after=300, message="busy")
    reply, parent = explained(life), life.stored("j")
    assert reply.phase == str(phase(parent, life.now)) == "Backoff"
    assert reply.requeue_at == requeue_at(life) == noon(5)
    assert reply.reason == "Backoff"
    assert reply.message == (
        "reservation: waits until 2026-01-01T12:10:00Z: The admission check quick is in state Retry"
        "; on-demand: waits until 2026-01-01T12:05:00Z: The admission check slow is in state Retry"
    )
    # What describe and get show.
    reason, message = tables.reason_of(parent, life.now)
    assert (reason, message) == ("PendingEvaluation", life.message("j", "QuotaReserved"))
    variants = [life.stored(name) for name in (BETTER, WORSE)]
    shown = check_rows.next_attempt(parent, life.now, variants)
    assert shown == "2026-01-01T12:05:00Z (in 5m, set by variant on-demand)"
    (row,) = life.core.pending(PendingQuery(limit=10)).rows
    assert (row.name, row.reason, row.message) == ("j", "Backoff", reply.message)


def test_a_shorter_delay_of_one_variant_shortens_the_familys_wait() -> None:
    life = asked_twice()
    life.judge(BETTER, "quick", "Retry", after=600)
    life.judge(WORSE, "slow", "Retry", after=300)
    life.judge(BETTER, "quick", "Retry", after=60)
    assert requeue_at(life) == noon(1)


def test_a_family_does_not_wait_for_a_rejected_variant_and_says_why() -> None:
    life = asked_twice()
    life.judge(BETTER, "quick", "Rejected", message="over budget")
    life.judge(WORSE, "slow", "Retry", after=300)
    assert (life.phase("j"), requeue_at(life)) == ("Backoff", noon(5))
    said = life.message("j", "QuotaReserved")
    assert said.startswith('reservation: inactive (Rejected): "quick" (over budget); on-demand: ')


def test_a_rejected_family_names_each_check_and_its_message() -> None:
    life = asked_twice()
    life.judge(WORSE, "slow", "Rejected", message="no such image")
    life.judge(BETTER, "quick", "Rejected", message="over budget")
    assert life.phase("j") == "Rejected"
    assert requeue_at(life) is None
    assert life.message("j", "Evicted") == (
        "Deactivated due to AdmissionCheck in Rejected state: every variant was rejected: "
        'reservation: "quick" (over budget); on-demand: "slow" (no such image)'
    )
    assert tables.reason_of(life.stored("j"), life.now)[1] == life.message("j", "Evicted")


def test_a_family_with_delayed_variants_waits_for_the_first() -> None:
    late = [
        {"name": tag, "allowedResourceFlavors": [tag], "createDelaySeconds": seconds}
        for tag, seconds in (("reservation", 120), ("on-demand", 60))
    ]
    life = a_family_life(TWO, explicit=late, foreign={"r1": "reservation", "o1": "on-demand"})
    life.job()
    assert (life.phase("j"), requeue_at(life)) == ("Backoff", noon(1))
    assert life.message("j", "QuotaReserved") == (
        "reservation: inactive (createDelay) until 2026-01-01T12:02:00Z; "
        "on-demand: inactive (createDelay) until 2026-01-01T12:01:00Z"
    )
    life.at(60)
    assert (life.phase("j"), requeue_at(life)) == ("Pending", None)


def test_a_parent_that_becomes_regular_waits_for_no_variant() -> None:
    life = asked_twice()
    life.judge(BETTER, "quick", "Retry", after=600)
    life.judge(WORSE, "slow", "Retry", after=300)
    life.says(concurrentAdmission=None)
    life.go()
    assert requeue_at(life) is None
    assert life.phase("j") != "Backoff"


def test_a_deactivated_family_has_no_timer() -> None:
    life = asked_twice()
    life.judge(BETTER, "quick", "Retry", after=600)
    life.judge(WORSE, "slow", "Retry", after=300)
    life.say(facts.Deactivated, "j")
    assert (life.phase("j"), requeue_at(life)) == ("Deactivated", None)
