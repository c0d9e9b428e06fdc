"""A family moves up: a commit starts it, a commit ends it, and what goes wrong.
docs/spec/lifecycle.md#4.6."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from admittance.control.batch import fold
from admittance.events import facts
from admittance.events.shapes import PodSetUpdate
from admittance.workload_controller.workload_metrics import WorkloadMetrics
from support.builders import an_admission
from support.cores.families.family_controller import UPGRADE, FamilyController

J: dict[str, Any] = {"namespace": "ns", "name": "j"}
A, C = "j-variant-a", "j-variant-c"
CHECKS = {"a": ("slow",)}


def moving() -> FamilyController:
    """A family that ran on c, and will run on a as soon as its job has stopped; the check of a is
    Ready."""
    house = FamilyController(checks=CHECKS).family().assign("c").assign("a")
    return house.later(60).verdict("a", "slow").confirm("a")


def promised() -> FamilyController:
    """The same without a check."""
    return FamilyController().family().assign("c").later(60).assign("a", source="c")


def test_both_are_in_one_commit_with_their_parent() -> None:
    house = FamilyController(checks=CHECKS).family().assign("c").assign("a").verdict("a", "slow")
    confirmed = house.logged_fact(facts.Confirmed(**house.decided(A)))
    commit = fold(house.controller, [confirmed], house.now)
    names = [put.key.rpartition(".")[2] for put in commit.puts]
    assert set(names) == {A, C, "j"}
    assert names[-1] == "j"
    assert len({put.group for put in commit.puts}) == 1
    assert commit.puts[0].group


@pytest.mark.parametrize("begin", [moving, promised])
def test_a_source_flavor_removed_and_restored_during_a_move_competes(
    begin: Callable[[], FamilyController],
) -> None:
    house = begin()
    house.offer(("a", "b"), CHECKS if begin is moving else None)
    house.stop()
    assert house.starts == [("j", "c"), ("j", "a")]
    house.offer(("c", "a", "b"), CHECKS if begin is moving else None)
    assert house.active() == "ca"
    assert house.condition("Requeued", C).startswith("True")


def test_a_migration_ends_when_a_late_retry_delays_its_target() -> None:
    variants = [
        {"name": "better", "allowedResourceFlavors": ["a", "b"]},
        {"name": "worse", "allowedResourceFlavors": ["c"]},
    ]
    house = FamilyController(checks=CHECKS, policy=UPGRADE | {"explicitVariants": variants})
    house.family()
    house.assign("better", admission=an_admission(flavor="a"))
    house.assign("worse", admission=an_admission(flavor="c"))
    house.verdict("better", "slow", "Retry")
    house.assign("better", source="worse", admission=an_admission(flavor="b"))
    assert house.get("j-variant-better").status.promised is not None
    house.later(1).verdict("better", "slow", "Retry", cycle=0, requeue_after_seconds=60)
    assert house.get("j-variant-better").status.promised is None
    assert house.condition("Requeued", "j-variant-better") == "False: AdmissionCheck"
    house.later(1).stop()
    assert house.condition("Admitted") == "False: NoReservation"
    assert house.active() == "betterworse"


def test_a_decision_on_an_old_sibling_revision_is_void_and_forgotten() -> None:
    house = FamilyController().family().assign("c")
    swap = house.assigned("a", source="c")
    house.happens(facts.PodsReady(**J, revision=house.get().status.admitted_revision))
    before = house.revision_of(A)
    house.happens(swap)
    assert house.reason == "StaleGiver"
    assert house.revision_of(A) > before
    assert house.condition("Evicted") == ""


def test_a_decision_that_omits_the_running_sibling_is_refused() -> None:
    house = FamilyController().family().assign("c")
    before = house.revision_of(A)
    house.assign("a")
    assert house.get(A).status.admission is None
    assert house.get().status.admitted_variant == C
    assert house.revision_of(A) > before


def test_a_worse_variant_is_never_reserved_beside_a_better_one() -> None:
    house = FamilyController(checks={"c": ("slow",)}).family().assign("b").assign("c")
    assert house.get(C).status.admission is None


def test_a_migration_is_counted_once() -> None:
    tally = WorkloadMetrics()
    house = FamilyController()
    house.tally = tally
    house.family().assign("c").assign("a", source="c").stop()
    assert tally.evicted.clusters.values == {("cq", "FlavorMigration", "", ""): 1}
    assert tally.lifecycle.admitted.clusters.values == {("cq", ""): 2}
    assert tally.migrations.values == {("cq", "c", "a"): 1}


def test_pod_set_updates_that_contradict_the_flavor_reject_the_variant() -> None:
    house = FamilyController(checks=CHECKS).family().assign("c").assign("a")
    pool = PodSetUpdate(name="main", node_selector={"pool": "small"})
    house.verdict("a", "slow", pod_set_updates=(pool,)).confirm("a")
    house.put("ResourceFlavor", "a", {"nodeLabels": {"pool": "big"}})
    house.stop()
    assert house.starts == [("j", "c")]
    assert house.get(A).status.stopped_by == "Rejected"
    assert house.active() == "bc"


def test_promised_quota_ends_with_its_variant() -> None:
    house = promised().happens(facts.Deactivated(namespace="ns", name=A))
    assert house.condition("Evicted") == "True: VariantEvicted"
    assert house.get(A).status.promised is None
