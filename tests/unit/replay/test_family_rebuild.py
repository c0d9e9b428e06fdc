"""The bucket is rebuilt exactly also where parents and variants move together."""

from __future__ import annotations

import json
from datetime import timedelta
from functools import cache
from typing import Any

import msgspec
import pytest

from admittance.api.reading.manifest import decode_object
from admittance.control.commit import Put
from admittance.control.workloads import VersionedWorkload
from admittance.events import facts
from admittance.events.shapes import HandedOn
from admittance.variants.core import FamilyActs
from admittance.workload.conditions import Type, is_true
from admittance.workload.phase import holds_quota, is_stopping
from admittance.workload.stored import VARIANT, StoredWorkload, head, owner_of
from support.builders import a_manifest, an_admission
from support.examples import examples
from unit.replay.test_bucket_rebuild import (
    API,
    DOMAIN,
    House,
    assert_rebuilt_at_revisions,
    assert_rebuilt_from_checkpoints,
    assert_rebuilt_without_times,
    commit_the_rest,
)

FLAVORS = ("reservation", "on-demand", "spot")


def a_queue(*flavors: str, families: bool = True) -> dict[str, Any]:
    offered = [{"name": f, "resources": [{"name": "cpu", "nominalQuota": 9}]} for f in flavors]
    policy = {"concurrentAdmission": {"migrationConstraints": {"mode": "UpgradeOnly"}}}
    return {
        "apiVersion": API,
        "kind": "ClusterQueue",
        "metadata": {"name": "cq"},
        "spec": {
            "namespaceSelector": {},
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": offered}],
            **(policy if families else {}),
        },
    }


class FamilyHouse(House):
    """A house with families in its queue, and a variant-controller."""

    def __init__(self, seed: int) -> None:
        self.families = FamilyActs(coalesce=timedelta(0))
        super().__init__(seed)
        self.write_object(a_queue(*FLAVORS))

    def write_object(self, value: dict[str, Any]) -> None:
        super().write_object(value)
        meta = value["metadata"]
        self.families.apply_object(
            value["kind"],
            meta.get("namespace", ""),
            meta["name"],
            decode_object(value).manifest,
            self.now,
        )

    def wrote(self, put: Put) -> None:
        self.families.apply(put.key, put.workload, self.revision, self.now)

    def order(self) -> None:
        """Publishes the required acts of the variant-controller."""
        for fact in self.families.orders(self.now):
            self.say(fact)

    def something(self) -> None:
        """One of the things that happen to families."""
        common: dict[str, Any] = {"namespace": "ns", "name": f"w{self.chance.randint(0, 4)}"}
        parent = self.core.workloads.get(f"workload.ns.{common['name']}").workload
        match self.chance.randint(0, 9):
            case 0 | 1:
                raw = json.dumps(a_manifest(common["name"])).encode()
                self.say(facts.Submitted(**common, workload=msgspec.Raw(raw)))
            case 2 | 3 | 4 | 5:
                self._decide()
            case 6 if parent is not None and self.chance.random() < 0.4:
                revision = parent.status.admitted_revision
                self.say(facts.Finished(**common, revision=revision))
            case 7 | 8 if parent is not None and is_stopping(parent):
                self.say(facts.Stopped(**common, revision=parent.status.evicted_revision))
            case 9 if self.chance.random() < 0.3:
                kinds = (facts.Deleted, facts.Held, facts.Released, facts.Deactivated)
                self.say(self.chance.choice((*kinds, facts.Activated))(**common))

    def _decide(self) -> None:
        """A random decision that a scheduler might make about a variant."""
        variants = sorted(
            (key, workload)
            for key, workload in self.core.workloads.items()
            if workload.workload is not None and head(workload.workload).role == VARIANT
        )
        if not variants:
            return
        _, chosen = self.chance.choice(variants)
        variant = chosen.workload
        assert variant is not None
        common: dict[str, Any] = {
            "namespace": "ns",
            "name": variant.metadata.name,
            "revision": chosen.revision,
            "seen": self.revision,
            "domain": DOMAIN,
        }
        if holds_quota(variant):
            if not is_stopping(variant) and self.chance.random() < 0.5:
                self.say(facts.Preempted(**common, reason="InClusterQueue"))
            return
        admission = an_admission("cq", head(variant).variant)
        self.say(
            facts.Assigned(**common, admission=admission, migrates_from=self._admitted(variant))
        )

    def _admitted(self, variant: StoredWorkload) -> HandedOn | None:
        owner, _ = owner_of(variant)
        parent: VersionedWorkload = self.core.workloads.get(f"workload.ns.{owner}")
        if parent.workload is None or not parent.workload.status.admitted_variant:
            return None
        name = parent.workload.status.admitted_variant
        left = self.core.workloads.get(f"workload.ns.{name}")
        if left.workload is None or not is_true(left.workload, Type.ADMITTED):
            return None
        return HandedOn(
            namespace="ns",
            name=name,
            uid=left.workload.metadata.uid,
            revision=left.revision,
            reason="FlavorMigration",
        )


@cache
def a_life(seed: int, *, falls: float = 0.0) -> FamilyHouse:
    house = FamilyHouse(seed)
    for _ in range(200):
        house.something()
        if house.chance.random() < 0.02:
            count = house.chance.randint(1, 3)
            house.write_object(a_queue(*FLAVORS[:count], families=house.chance.random() < 0.9))
        if house.chance.random() < 0.5:
            house.commit(fails=house.chance.random() < 0.2, falls=house.chance.random() < falls)
            house.order()
    commit_the_rest(house)
    return house


def events(house: FamilyHouse) -> set[tuple[str, str]]:
    """Types and reasons of the conditions of parents in that life."""
    conditions = set()
    for entry in house.history:
        if not entry.key.startswith("workload.") or entry.value is None:
            continue
        value = json.loads(entry.value)
        if value["spec"].get("role") == "parent":
            rows = value["status"].get("conditions", ())
            conditions |= {(row["type"], row["reason"]) for row in rows if row["status"] == "True"}
    return conditions


def test_recorded_families_are_admitted_migrate_and_are_evicted() -> None:
    conditions = set().union(*(events(a_life(seed)) for seed in range(4)))
    assert {("Admitted", "Admitted"), ("Evicted", "VariantEvicted")} <= conditions
    assert any(
        fact.subject.startswith("admit.workload.assigned.") and b"migratesFrom" in fact.data
        for seed in range(4)
        for fact in a_life(seed).log
    )


@pytest.mark.parametrize("seed", range(examples(3)))
def test_families_are_rebuilt_at_any_revision(seed: int) -> None:
    assert_rebuilt_at_revisions(a_life(seed), step=41)


@pytest.mark.parametrize("seed", range(examples(3)))
def test_families_are_rebuilt_from_any_checkpoint(seed: int) -> None:
    assert_rebuilt_from_checkpoints(a_life(seed), step=149)


@pytest.mark.parametrize("seed", range(examples(6)))
def test_families_that_a_leader_did_not_record_are_rebuilt(seed: int) -> None:
    assert_rebuilt_without_times(a_life(seed, falls=0.2))
