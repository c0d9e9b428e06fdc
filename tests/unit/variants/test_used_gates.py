"""Whether others went for a reservation is noted at the gate, and stays as long as that is held."""

from __future__ import annotations

import pytest

from admittance.api.workload import GatePosition
from admittance.events import facts
from admittance.events.shapes import HandedOn, PendingPreemption, PlannedVictim, Refusal
from admittance.workload.family_info import gate_of, preempts_workloads, sibling
from support.builders import an_admission
from support.cores.families.family_controller import FamilyController

A = "j-variant-a"
CHECKS = {"a": ("slow",), "b": ("slow",)}
GONE = HandedOn(namespace="ns", name="v", uid="v", revision=1, reason="InClusterQueue")
VICTIM = PlannedVictim(namespace="ns", name="v", uid="v", reason="InClusterQueue")
TOLD = PendingPreemption(victims=(VICTIM,), issued=True)
NOT_TOLD = PendingPreemption(victims=(VICTIM,))


def gated(*, opened: bool = True) -> FamilyController:
    house = FamilyController(checks=CHECKS).family()
    return house.happens(facts.Ungated(namespace="ns", name=A)) if opened else house


def gate(house: FamilyController) -> GatePosition:
    return gate_of(house.get(A))


def took(house: FamilyController) -> bool:
    return sibling(house.get(A), 0).took


def with_pending_preemption(
    house: FamilyController, pending: PendingPreemption
) -> FamilyController:
    return house.happens(facts.Planned(**house.decided(A), pending_preemption=pending))


@pytest.mark.parametrize(
    ("pending", "noted", "keeps"),
    [
        pytest.param(None, False, False, id="no victims"),
        pytest.param(NOT_TOLD, False, False, id="victims that are not evicted yet"),
        pytest.param(TOLD, True, True, id="an evicted victim"),
    ],
)
def test_a_reservation_with_victims_keeps_other_gates_closed(
    pending: PendingPreemption | None, noted: bool, keeps: bool
) -> None:
    house = gated().assign("a", pending_preemption=pending)
    assert ((gate(house).used_at is not None), took(house)) == (noted, keeps)


def test_a_reservation_from_handed_over_quota_keeps_gates_closed() -> None:
    decided = gated().decided(A) | {"admission": an_admission()}
    assert preempts_workloads(facts.Assigned(**decided, preempts=(GONE,)))
    assert not preempts_workloads(facts.Assigned(**decided))


def test_a_reservation_keeps_gates_closed_after_its_victims_stopped() -> None:
    house = with_pending_preemption(gated().assign("a", pending_preemption=NOT_TOLD), TOLD)
    since = gate(house).used_at
    assert since is not None
    with_pending_preemption(house.later(10), PendingPreemption())
    assert house.get(A).status.pending_preemption is None
    assert (gate(house).used_at, took(house)) == (since, True)


def test_a_later_preemption_does_not_move_the_opening_time() -> None:
    house = gated().assign("a", pending_preemption=TOLD)
    since = gate(house).used_at
    assert gate(with_pending_preemption(house.later(10), TOLD)).used_at == since


def test_an_eviction_closes_the_gate() -> None:
    house = gated().assign("a", pending_preemption=TOLD)
    lost = facts.Preempted(**house.decided(A), reason="InClusterQueue", by="ns/x")
    house.happens(lost)
    assert gate(house).position == "Closed"
    assert gate(house).used_at is None


def test_a_variant_is_blocked_only_while_it_waits_for_its_gate() -> None:
    house = gated(opened=False)

    def refused(reason: str) -> bool:
        said = Refusal(reason=reason, message=reason)
        house.happens(facts.Refused(**house.decided(A), refusal=said))
        return sibling(house.get(A), 0).blocked

    assert refused("AdmissionGated")
    assert not refused("WaitingForQuota")
    assert refused("AdmissionGated")


def test_another_reservation_starts_without_victims() -> None:
    house = gated().assign("a", pending_preemption=TOLD)
    lost = facts.Revoked(**house.decided(A), reason="QuotaChanged")
    house.happens(lost)
    assert not took(house)
    assert not took(house.assign("a"))
