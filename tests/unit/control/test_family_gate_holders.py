"""The holder of the open gate of a family is looked up also when another gate opens:
between the end of its time and the opening of the next gate, victims may have been evicted for it.
"""

from __future__ import annotations

import pytest

from admittance.events import facts
from admittance.events.shapes import PendingPreemption, PlannedVictim
from admittance.workload.family_info import gate_of
from support.cores.family_controller import FamilyController

A, B = "j-variant-a", "j-variant-b"
FIVE_MINUTES = 300
VICTIM = PlannedVictim(namespace="ns", name="v", uid="v", reason="InClusterQueue")
TOLD = PendingPreemption(victims=(VICTIM,), issued=True)


@pytest.fixture
def house() -> FamilyController:
    """The gate of the better one is open."""
    return (
        FamilyController(checks={"a": ("slow",)})
        .family()
        .happens(facts.Ungated(namespace="ns", name=A))
    )


def opened(house: FamilyController) -> list[str]:
    return [name for name in (A, B) if gate_of(house.get(name)).position == "Open"]


def open_next(house: FamilyController) -> FamilyController:
    return house.happens(facts.Ungated(namespace="ns", name=B))


def test_the_next_gate_opens_after_five_minutes_and_closes_the_first(
    house: FamilyController,
) -> None:
    assert opened(open_next(house.later(FIVE_MINUTES - 1))) == [A]
    assert house.outcome == "ignored"
    assert opened(open_next(house.later(1))) == [B]


def test_no_other_gate_opens_after_victims_left_for_its_reservation(
    house: FamilyController,
) -> None:
    house.assign("a", pending_preemption=TOLD).later(2 * FIVE_MINUTES)
    assert opened(open_next(house)) == [A]
    assert house.outcome == "ignored"


def test_a_reservation_without_victims_does_not_keep_the_gate(house: FamilyController) -> None:
    house.assign("a").later(FIVE_MINUTES)
    assert opened(open_next(house)) == [B]


def test_an_inactive_variant_does_not_keep_the_gate(house: FamilyController) -> None:
    house.happens(facts.Deactivated(namespace="ns", name=A))
    assert opened(open_next(house)) == [B]


def test_a_deleted_variant_does_not_keep_the_gate(house: FamilyController) -> None:
    house.happens(facts.Deleted(namespace="ns", name=A))
    open_next(house)
    assert gate_of(house.get(B)).position == "Open"
