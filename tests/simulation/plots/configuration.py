"""The configuration of a run: a few queues with tight quotas, and random edits of them."""

from __future__ import annotations

from copy import deepcopy
from random import Random
from typing import Any, Final

API: Final = "kueue.x-k8s.io/v1beta2"
NAMESPACE: Final = "ns"
Spec = dict[str, Any]
Manifests = list[dict[str, Any]]


def manifest(kind: str, name: str, spec: Spec, **meta: Any) -> dict[str, Any]:
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name, **meta}, "spec": spec}


def cpu(nominal: int) -> list[Spec]:
    """The resources of a flavor: cpu only."""
    return [{"name": "cpu", "nominalQuota": nominal}]


class Queues:
    """The configuration as it is now, and its random edits."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.flavors = ["f0", "f1"][: rng.choice((1, 1, 2))]
        self.checks = ["k0", "k1"][: rng.choice((0, 1, 1, 2))]
        self.cohorts = ["c0", "c1"][: rng.choice((0, 1, 2))]
        self.queues: dict[str, Spec] = {}
        self.locals: dict[str, Spec] = {}
        self.trees: dict[str, Spec] = {}
        for _ in range(rng.choice((1, 2, 2, 3))):
            self.add(self.queue())
        for name in self.cohorts:
            self.trees[name] = self._cohort(name)

    def clear(self, *cohorts: str) -> None:
        """Removes all queues; these cohorts are left, without quota of their own."""
        self.cohorts = list(cohorts)
        self.trees = {name: {} for name in cohorts}
        self.queues, self.locals = {}, {}

    def add(self, spec: Spec) -> Spec:
        """Adds a ClusterQueue with that spec, and a LocalQueue for it."""
        number = len(self.queues)
        self.queues[f"q{number}"] = spec
        self.locals[f"l{number}"] = {"clusterQueue": f"q{number}"}
        return spec

    def _quota(self, nominal: int) -> Spec:
        rng = self.rng
        (quota,) = cpu(nominal)
        if self.cohorts and rng.random() < 0.3:
            quota["borrowingLimit"] = rng.randint(0, 3)
        if self.cohorts and rng.random() < 0.3:
            quota["lendingLimit"] = rng.randint(0, nominal)
        return quota

    def _groups(self, most: int) -> list[Spec]:
        flavors = [
            {"name": name, "resources": [self._quota(self.rng.randint(0, most))]}
            for name in self.flavors
        ]
        return [{"coveredResources": ["cpu"], "flavors": flavors}]

    def queue(self) -> Spec:
        rng = self.rng
        spec: Spec = {
            "namespaceSelector": {},
            "queueingStrategy": rng.choice(("BestEffortFIFO", "BestEffortFIFO", "StrictFIFO")),
            "resourceGroups": self._groups(5),
        }
        if self.cohorts and rng.random() < 0.8:
            spec["cohortName"] = rng.choice(self.cohorts)
        else:
            _remove_limits(spec)
        if self.checks and rng.random() < 0.6:
            spec["admissionChecks"] = rng.sample(self.checks, rng.randint(1, len(self.checks)))
        if rng.random() < 0.5:
            spec["preemption"] = self.preemption()
        if len(self.queues) % 2:
            spec["onQuotaCut"] = "evict"
        return spec

    def preemption(self) -> Spec:
        """The preemption policies of a queue."""
        rng = self.rng
        policy: Spec = {
            "withinClusterQueue": rng.choice(
                ("Never", "LowerPriority", "LowerPriority", "LowerOrNewerEqualPriority")
            ),
            "reclaimWithinCohort": rng.choice(("Never", "LowerPriority", "Any", "Any")),
        }
        if policy["reclaimWithinCohort"] != "Never" and rng.random() < 0.4:
            policy["borrowWithinCohort"] = {"policy": "LowerPriority"}
        return policy

    def _cohort(self, name: str) -> Spec:
        spec: Spec = {}
        if name == "c1" and self.rng.random() < 0.6:
            spec["parentName"] = "c0"
        if self.rng.random() < 0.5:
            spec["resourceGroups"] = self._groups(3)
            if "parentName" not in spec:
                _remove_limits(spec)
        return spec

    def _deletion(self) -> Manifests:
        """Deletes an object; a later edit may bring it back."""
        rng = self.rng
        keys = [f"localqueue.{NAMESPACE}.{name}" for name in self.locals]
        keys += [f"cohort.{name}" for name in self.trees] * 2
        keys += [f"clusterqueue.{name}" for name in self.queues]
        return [{"delete": rng.choice(keys)}]

    def snapshot(self) -> Manifests:
        """All manifests as they are now; later edits do not change them."""
        return deepcopy(self.all())

    def all(self) -> Manifests:
        manifests = [manifest("ResourceFlavor", name, {}) for name in self.flavors]
        manifests += [manifest("AdmissionCheck", name, self.check(name)) for name in self.checks]
        manifests += [manifest("Cohort", name, spec) for name, spec in self.trees.items()]
        manifests += [manifest("ClusterQueue", name, spec) for name, spec in self.queues.items()]
        manifests += [
            manifest("LocalQueue", name, spec, namespace=NAMESPACE)
            for name, spec in self.locals.items()
        ]
        return manifests

    def check(self, name: str) -> Spec:
        """The spec of an AdmissionCheck."""
        return {"controllerName": f"ctl-{name}"}

    def edit(self) -> Manifests:
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
                    _remove_limits(spec)
            case "stop":
                self._stop(spec)
            case "local":
                local = rng.choice(sorted(self.locals))
                self._stop(self.locals[local])
                return [manifest("LocalQueue", local, self.locals[local], namespace=NAMESPACE)]
            case "move" if self.cohorts:
                spec["cohortName"] = rng.choice(self.cohorts)
            case "checks" if self.checks:
                spec["admissionChecks"] = rng.sample(self.checks, rng.randint(0, len(self.checks)))
            case "cohort" if self.cohorts:
                cohort = rng.choice(self.cohorts)
                self.trees[cohort] = self._cohort(cohort)
                return [manifest("Cohort", cohort, self.trees[cohort])]
        return [manifest("ClusterQueue", name, spec)]

    def _stop(self, spec: Spec) -> None:
        """Stops the queue, or lets it go on."""
        stopped = spec.get("stopPolicy", "None") != "None"
        spec["stopPolicy"] = "None" if stopped else self.rng.choice(("Hold", "HoldAndDrain"))


def _remove_limits(spec: Spec) -> None:
    """Limits of borrowing and lending mean nothing outside of cohorts."""
    for flavor in spec["resourceGroups"][0]["flavors"]:
        for quota in flavor["resources"]:
            quota.pop("borrowingLimit", None)
            quota.pop("lendingLimit", None)
