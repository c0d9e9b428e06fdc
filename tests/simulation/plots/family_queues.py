"""Queues with families of workloads, beside one with regular workloads."""

from __future__ import annotations

from random import Random

from simulation.plots.checked_queues import CheckedQueues
from simulation.plots.configuration import Manifests, Spec, cpu, manifest

SHARED = "m0"
"""The one flavor of memory, which all variants of a queue with two groups share."""


class FamilyQueues(CheckedQueues):
    """One or two queues of a cohort. Variants by flavor, or explicit ones with delays, that share
    flavors now and then; in some queues memory is a flavor that all of them share."""

    def __init__(self, rng: Random, *, flavors: tuple[int, ...] = (1, 2, 2, 3, 3, 4)) -> None:
        super().__init__(rng)
        self.flavors = ["f0", "f1", "f2", "f3"][: rng.choice(flavors)]
        self.clear("c0")
        self.memory = rng.random() < 0.25
        for _ in range(rng.choice((1, 1, 2))):
            spec = self.queue()
            if not self.queues or rng.random() < 0.5:
                spec["concurrentAdmission"] = self.policy(spec)
            self.add(spec)

    def queue(self) -> Spec:
        rng = self.rng
        spec = super().queue()
        if self.cohorts and rng.random() < 0.7:
            spec["preemption"] = {
                "withinClusterQueue": rng.choice(("LowerPriority", "LowerOrNewerEqualPriority")),
                "reclaimWithinCohort": rng.choice(("Never", "LowerPriority", "Any")),
            }
        return spec

    def _groups(self, most: int) -> Manifests:
        groups = super()._groups(most)
        if getattr(self, "memory", False):
            resources = [{"name": "memory", "nominalQuota": self.rng.randint(1, most)}]
            shared = {"name": SHARED, "resources": resources}
            groups.append({"coveredResources": ["memory"], "flavors": [shared]})
        return groups

    # Policy. --------------------------------------------------------------------------

    def policy(self, spec: Spec) -> Spec:
        """The queue's policy for families."""
        rng = self.rng
        offered = [flavor["name"] for flavor in spec["resourceGroups"][0]["flavors"]]
        constraints: Spec = {
            "mode": rng.choice(("UpgradeOnly", "UpgradeOnly", "UpgradeOnly", "NoMigration"))
        }
        given: Spec = {"migrationConstraints": constraints}
        lower = constraints["mode"] == "UpgradeOnly" and rng.random() < 0.3
        if self.memory or rng.random() < 0.4:
            given["explicitVariants"] = [
                self._variant(f"v{number}", offered) for number in range(rng.randint(1, 3))
            ]
            if lower:
                constraints["minVariant"] = rng.choice(given["explicitVariants"])["name"]
        elif lower:
            constraints["minFlavor"] = rng.choice(offered)
        return given

    def _variant(self, name: str, offered: list[str]) -> Spec:
        rng = self.rng
        allowed = rng.sample(offered, min(len(offered), rng.choice((1, 1, 2))))
        variant: Spec = {"name": name, "allowedResourceFlavors": allowed}
        if self.memory:
            allowed.append(SHARED)
        if rng.random() < 0.25:
            variant["createDelaySeconds"] = rng.choice((1, 4, 15))
        if rng.random() < 0.25:
            variant["deleteDelaySeconds"] = rng.choice((1, 6, 20))
        return variant

    def _make_right(self, spec: Spec) -> None:
        """Lets the queue offer all flavors that its policy names."""
        given = spec.get("concurrentAdmission")
        if given is None:
            return
        offered = {
            flavor["name"] for group in spec["resourceGroups"] for flavor in group["flavors"]
        }
        constraints = given["migrationConstraints"]
        if constraints.get("minFlavor") not in offered:
            constraints.pop("minFlavor", None)
        left = []
        for variant in given.get("explicitVariants", ()):
            variant["allowedResourceFlavors"] = [
                name for name in variant["allowedResourceFlavors"] if name in offered
            ]
            if set(variant["allowedResourceFlavors"]) - {SHARED}:
                left.append(variant)
        if "explicitVariants" in given:
            given["explicitVariants"] = left
            if constraints.get("minVariant") not in [variant["name"] for variant in left]:
                constraints.pop("minVariant", None)
            if not left:
                spec["concurrentAdmission"] = self.policy(spec)

    # Edits. ---------------------------------------------------------------------------

    def edit(self) -> Manifests:
        if self.rng.random() < 0.35:
            return self._mended(super().edit())
        name = self.rng.choice(sorted(self.queues))
        self._edit_families(self.queues[name])
        return self._mended([manifest("ClusterQueue", name, self.queues[name])])

    def _mended(self, edits: Manifests) -> Manifests:
        for edit in edits:
            if edit.get("kind") == "ClusterQueue":
                name = edit["metadata"]["name"]
                self._make_right(self.queues[name])
                edit["spec"] = dict(self.queues[name])
        return edits

    def _edit_families(self, spec: Spec) -> None:
        rng = self.rng
        offered = spec["resourceGroups"][0]["flavors"]
        match rng.choice(("add", "remove", "order", "policy", "policy", "mode", "off")):
            case "add" if len(offered) < len(self.flavors):
                have = {flavor["name"] for flavor in offered}
                lacking = [name for name in self.flavors if name not in have]
                resources = cpu(rng.randint(1, 5))
                more = {"name": rng.choice(lacking), "resources": resources}
                offered.insert(rng.randint(0, len(offered)), more)
            case "remove" if len(offered) > 1:
                del offered[rng.randrange(len(offered))]
            case "order":
                rng.shuffle(offered)
                rng.shuffle(spec.get("concurrentAdmission", {}).get("explicitVariants", []))
            case "mode" if "concurrentAdmission" in spec:
                constraints = spec["concurrentAdmission"]["migrationConstraints"]
                upgrades = constraints["mode"] == "UpgradeOnly"
                constraints.clear()
                constraints["mode"] = "NoMigration" if upgrades else "UpgradeOnly"
            case "off" if "concurrentAdmission" in spec:
                del spec["concurrentAdmission"]
            case _:
                spec["concurrentAdmission"] = self.policy(spec)

    def repair(self) -> None:
        super().repair()
        for spec in self.queues.values():
            if self.memory:
                shared = spec["resourceGroups"][1]["flavors"][0]
                shared["resources"] = [{"name": "memory", "nominalQuota": 40}]
            self._make_right(spec)

    def all(self) -> Manifests:
        manifests = super().all()
        return [manifest("ResourceFlavor", SHARED, {}), *manifests] if self.memory else manifests
