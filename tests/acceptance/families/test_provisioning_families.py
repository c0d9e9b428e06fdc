"""A family with a variant on spot machines, which must be provisioned; the other needs nothing."""

from __future__ import annotations

import pytest

from admittance.events.provisioning import CapacityRevoked
from support.cores.capacity_cores import CHECK, CapacityCores
from support.cores.families.family_cores import FamilyCores

FLAVORS = {"reservation": 4, "spot": 8}


class FamilyCapacityCores(FamilyCores, CapacityCores):
    """Families, and the provisioning check."""

    def step(self) -> None:
        CapacityCores.step(self)


@pytest.fixture
def cores() -> FamilyCapacityCores:
    """The reservation is full; only spot has the check."""
    cores = FamilyCapacityCores()
    cores.configure(limit=3)
    cores.capacity_check()
    cores.offer(FLAVORS, checks={"spot": [CHECK]})
    cores.job("r1", 4, allowed=["reservation"], priority=0)
    cores.policy()
    cores.go()
    cores.job()
    return cores


def test_capacity_is_requested_only_for_the_variant_on_spot(cores: FamilyCapacityCores) -> None:
    assert [request.name for request in cores.wanted] == ["j-variant-spot"]
    assert cores.on() == ""
    cores.provisioned()
    assert (cores.on(), cores.starts("j")) == ("spot", 1)
    assert cores.booked == set(cores.ids())


def test_a_migration_to_the_reservation_frees_all_bookings(cores: FamilyCapacityCores) -> None:
    cores.provisioned()
    cores.done("r1")
    assert (cores.on(), cores.starts("j")) == ("reservation", 2)
    assert (cores.booked, cores.records()) == (set(), [])
    cores.done("j")
    assert len(cores.ids()) == 1


def test_revoked_capacity_ends_the_variant_and_its_booking(cores: FamilyCapacityCores) -> None:
    cores.provisioned()
    cores.provider(CapacityRevoked, message="sold")
    assert cores.on() == ""
    assert (cores.booked, cores.records()) == (set(), [])
    assert cores.used() == "4/0"
    cores.done("r1")
    assert cores.on() in ("reservation", "")
