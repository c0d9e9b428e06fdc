"""A family whose variant on spot machines needs them provisioned: the reservation needs nothing."""

from __future__ import annotations

import pytest

from admittance.events.provisioning import CapacityRevoked

from family_living import FamilyLife
from provided_living import CHECK, ProvidedLife

FLAVORS = {"reservation": 4, "spot": 8}


class HousedLife(FamilyLife, ProvidedLife):
    """Families, and the provisioning check."""

    def step(self) -> None:
        ProvidedLife.step(self)


@pytest.fixture
def life() -> HousedLife:
    """The reservation is full; only spot has the check."""
    life = HousedLife()
    life.configure(limit=3)
    life.capacity_check()
    life.offer(FLAVORS, checks={"spot": [CHECK]})
    life.job("r1", 4, allowed=["reservation"], priority=0)
    life.policy()
    life.go()
    life.job()
    return life


def test_capacity_is_requested_only_for_the_variant_on_spot(life: HousedLife) -> None:
    assert [one.name for one in life.wanted] == ["j-variant-spot"]
    assert life.on() == ""
    life.provisioned()
    assert (life.on(), life.starts("j")) == ("spot", 1)
    assert life.booked == set(life.ids())


def test_a_migration_to_the_reservation_frees_all_bookings(life: HousedLife) -> None:
    life.provisioned()
    life.done("r1")
    assert (life.on(), life.starts("j")) == ("reservation", 2)
    assert (life.booked, life.records()) == (set(), [])
    life.done("j")
    assert len(life.ids()) == 1


def test_it_takes_the_reservation_that_comes_before_its_capacity(life: HousedLife) -> None:
    life.done("r1")
    assert (life.on(), life.starts("j")) == ("reservation", 1)
    assert (set(life.freed), life.records()) == (set(life.ids()), [])
    life.provisioned()
    assert (life.on(), life.booked) == ("reservation", set())


def test_a_failed_request_is_retried_while_the_reservation_is_awaited(
    life: HousedLife,
) -> None:
    life.fails()
    assert life.used() == "4/0"
    life.advance(60)
    assert [one.attempt for one in life.wanted] == [1, 2]
    life.provisioned()
    assert (life.on(), life.starts("j")) == ("spot", 1)


def test_revoked_capacity_ends_the_variant_and_its_booking(life: HousedLife) -> None:
    life.provisioned()
    life.provider(CapacityRevoked, message="sold")
    assert life.on() == ""
    assert (life.booked, life.records()) == (set(), [])
    assert life.used() == "4/0"
    life.done("r1")
    assert life.on() in ("reservation", "")
