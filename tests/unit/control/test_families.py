"""Families through the workload-controller: roles of new workloads, and joint transitions."""

from __future__ import annotations

from typing import Any

import pytest

from admittance.events import facts
from admittance.workload.stored import head
from support.cores.family_controller import FamilyController

CHECKS = {"a": ("slow",)}


def test_the_door_makes_parents_where_the_queue_has_families() -> None:
    house = FamilyController().submit()
    assert head(house.get()).role == "parent"
    assert house.get().metadata.annotations["kueue.x-k8s.io/parent-variant"] == "true"
    assert head(FamilyController(policy=None).submit().get()).role == "regular"
    assert head(FamilyController(policy=None).submit(role="parent").get()).role == "regular"


def test_variants_are_what_their_parent_makes_them() -> None:
    house = FamilyController().family()
    assert [head(one).variant for one in house.variants()] == ["a", "b", "c"]
    assert house.active() == "abc"
    house.happens(*house.variant_facts())
    assert len(house.variants()) == 3


def test_a_variant_without_checks_admits_its_parent_and_ends_the_race() -> None:
    house = FamilyController().family().assign("b")
    assert house.condition("Admitted") == "True: Admitted"
    assert house.get().status.admitted_variant == "j-variant-b"
    assert house.starts == [("j", "b")]
    assert house.active() == "ab"
    assert house.condition("Admitted", "j-variant-b") == "True: Admitted"


def test_an_eviction_stops_the_job_and_starts_the_family_over() -> None:
    house = FamilyController().family().assign("c").later(50).preempt("c")
    assert house.condition("Evicted") == "True: VariantEvicted"
    assert ("evicted", "j") in house.published
    house.later(1).stop()
    assert house.active() == "abc"
    assert house.condition("Requeued").startswith("True")
    assert house.get().status.family_start == house.now
    assert house.get().status.admitted_variant == ""
    house.assign("a")
    assert house.starts == [("j", "c"), ("j", "a")]


def test_a_swap_without_checks() -> None:
    house = FamilyController().family().assign("c").assign("a", source="c")
    assert house.condition("Evicted", "j-variant-c") == "True: FlavorMigration"
    assert house.get("j-variant-a").status.promised is not None
    assert house.get().status.migrating_to == "j-variant-a"
    house.stop()
    assert house.starts == [("j", "c"), ("j", "a")]
    assert house.active() == "a"
    assert house.condition("Evicted") == "False: QuotaReserved"


def test_a_swap_with_checks() -> None:
    house = FamilyController(checks=CHECKS).family().assign("c").assign("a")
    assert house.condition("Admitted") == "True: Admitted"
    house.verdict("a", "slow").confirm("a")
    assert house.condition("Evicted") == "True: VariantEvicted"
    assert house.condition("Admitted", "j-variant-a") == "False: UnsatisfiedAdmissionChecks"
    house.stop()
    assert house.starts == [("j", "c"), ("j", "a")]


@pytest.mark.parametrize(
    "end", [facts.Finished(namespace="ns", name="j"), facts.Deleted(namespace="ns", name="j")]
)
def test_the_end_of_a_family(end: Any) -> None:
    house = FamilyController().family().assign("b").happens(end)
    if isinstance(end, facts.Deleted):
        assert house.condition("Evicted") == "True: Deleted"
        house.stop()
    assert house.workloads() == []
