"""The configuration of a run: a few queues with tight quotas, and random edits of them."""

from __future__ import annotations

from random import Random
from typing import Any, Final

API: Final = "kueue.x-k8s.io/v1beta2"
NAMESPACE: Final = "ns"


def manifest(kind: str, name: str, spec: dict[str, Any], **meta: Any) -> dict[str, Any]:
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name, **meta}, "spec": spec}


class Queues:
    """The configuration as it is now, and its random edits."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.flavors = ["f0", "f1"][: rng.choice((1, 1, 2))]
        self.checks = ["k0", "k1"][: rng.choice((0, 1, 1, 2))]
        self.cohorts = ["c0", "c1"][: rng.choice((0, 1, 2))]
        self.queues: dict[str, dict[str, Any]] = {}
        self.locals: dict[str, dict[str, Any]] = {}
        self.trees: dict[str, dict[str, Any]] = {}
        for number in range(rng.choice((1, 2, 2, 3))):
            self.queues[f"q{number}"] = self.queue()
            self.locals[f"l{number}"] = {"clusterQueue": f"q{number}"}
        for name in self.cohorts:
            self.trees[name] = self._cohort(name)

    def _quota(self, nominal: int) -> dict[str, Any]:
        rng = self.rng
        quota: dict[str, Any] = {"name": "cpu", "nominalQuota": nominal}
        if self.cohorts and rng.random() < 0.3:
            quota["borrowingLimit"] = rng.randint(0, 3)
        if self.cohorts and rng.random() < 0.3:
            quota["lendingLimit"] = rng.randint(0, nominal)
        return quota

    def _groups(self, most: int) -> list[dict[str, Any]]:
        flavors = [
            {"name": name, "resources": [self._quota(self.rng.randint(0, most))]}
            for name in self.flavors
        ]
        return [{"coveredResources": ["cpu"], "flavors": flavors}]

    def queue(self) -> dict[str, Any]:
        rng = self.rng
        spec: dict[str, Any] = {
            "namespaceSelector": {},
            "queueingStrategy": rng.choice(("BestEffortFIFO", "BestEffortFIFO", "StrictFIFO")),
            "resourceGroups": self._groups(5),
        }
        if self.cohorts and rng.random() < 0.8:
            spec["cohortName"] = rng.choice(self.cohorts)
        else:
            for flavor in spec["resourceGroups"][0]["flavors"]:
                for quota in flavor["resources"]:
                    quota.pop("borrowingLimit", None)
                    quota.pop("lendingLimit", None)
        if self.checks and rng.random() < 0.6:
            spec["admissionChecks"] = rng.sample(self.checks, rng.randint(1, len(self.checks)))
        if rng.random() < 0.5:
            spec["preemption"] = self.preemption()
        if len(self.queues) % 2:
            spec["onQuotaCut"] = "evict"
        return spec

    def preemption(self) -> dict[str, Any]:
        """The preemption policies of a queue."""
        rng = self.rng
        policy: dict[str, Any] = {
            "withinClusterQueue": rng.choice(
                ("Never", "LowerPriority", "LowerPriority", "LowerOrNewerEqualPriority")
            ),
            "reclaimWithinCohort": rng.choice(("Never", "LowerPriority", "Any", "Any")),
        }
        if policy["reclaimWithinCohort"] != "Never" and rng.random() < 0.4:
            policy["borrowWithinCohort"] = {"policy": "LowerPriority"}
        return policy

    def _cohort(self, name: str) -> dict[str, Any]:
        spec: dict[str, Any] = {}
        if name == "c1" and self.rng.random() < 0.6:
            spec["parentName"] = "c0"
        if self.rng.random() < 0.5:
            spec["resourceGroups"] = self._groups(3)
            if "parentName" not in spec:
                for flavor in spec["resourceGroups"][0]["flavors"]:
                    for quota in flavor["resources"]:
                        quota.pop("borrowingLimit", None)
                        quota.pop("lendingLimit", None)
        return spec

    def _deletion(self) -> list[dict[str, Any]]:
        """What is deleted is still wanted: an edit may bring it back."""
        rng = self.rng
        keys = [f"localqueue.{NAMESPACE}.{name}" for name in self.locals]
        keys += [f"cohort.{name}" for name in self.trees] * 2
        keys += [f"clusterqueue.{name}" for name in self.queues]
        return [{"delete": rng.choice(keys)}]

    def all(self) -> list[dict[str, Any]]:
        found = [manifest("ResourceFlavor", name, {}) for name in self.flavors]
        found += [manifest("AdmissionCheck", name, self.check(name)) for name in self.checks]
        found += [manifest("Cohort", name, spec) for name, spec in self.trees.items()]
        found += [manifest("ClusterQueue", name, spec) for name, spec in self.queues.items()]
        found += [
            manifest("LocalQueue", name, spec, namespace=NAMESPACE)
            for name, spec in self.locals.items()
        ]
        return found

    def check(self, name: str) -> dict[str, Any]:
        """The spec of an AdmissionCheck."""
        return {"controllerName": f"ctl-{name}"}

    def edit(self) -> list[dict[str, Any]]:
        """One random change, or ``delete`` of a key."""
        rng = self.rng
        if rng.random() < 0.15:
            return self._deletion()
        name = rng.choice(sorted(self.queues))
        spec = self.queues[name]
        match rng.choice(("quota", "quota", "stop", "stop", "local", "move", "checks", "cohort")):
            case "quota":
                spec["resourceGroups"] = self._groups(6)
                if len(self.flavors) > 1 and rng.random() < 0.3:
                    offered = spec["resourceGroups"][0]["flavors"]
                    del offered[rng.randrange(len(offered))]
                if "cohortName" not in spec:
                    for flavor in spec["resourceGroups"][0]["flavors"]:
                        for quota in flavor["resources"]:
                            quota.pop("borrowingLimit", None)
                            quota.pop("lendingLimit", None)
            case "stop":
                before = spec.get("stopPolicy", "None")
                spec["stopPolicy"] = (
                    "None" if before != "None" else rng.choice(("Hold", "HoldAndDrain"))
                )
            case "local":
                local = rng.choice(sorted(self.locals))
                about = self.locals[local]
                before = about.get("stopPolicy", "None")
                about["stopPolicy"] = (
                    "None" if before != "None" else rng.choice(("Hold", "HoldAndDrain"))
                )
                return [manifest("LocalQueue", local, dict(about), namespace=NAMESPACE)]
            case "move" if self.cohorts:
                spec["cohortName"] = rng.choice(self.cohorts)
            case "checks" if self.checks:
                spec["admissionChecks"] = rng.sample(self.checks, rng.randint(0, len(self.checks)))
            case "cohort" if self.cohorts:
                cohort = rng.choice(self.cohorts)
                self.trees[cohort] = self._cohort(cohort)
                return [manifest("Cohort", cohort, self.trees[cohort])]
        return [manifest("ClusterQueue", name, dict(spec))]
