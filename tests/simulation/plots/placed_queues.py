"""Queues with flavors of machines, and the machines: quota says more than there is room for."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from random import Random
from typing import Any, Final

from simulation.environment.machine_specs import GPU, POOL, MachineSpec
from simulation.plots.configuration import NAMESPACE, Manifests, Spec, manifest
from simulation.virtual_time.loop import START

MACHINES: Final = "machines"
CONTROLLER: Final = "admittance.dev/machines"
DEFERS: Final = "AfterCheckPassedOrOnDemand"


class PlacedQueues:
    """One or two queues over one or two pools of machines, a flavor for each. ``machines``: by the
    names of their runners. ``races``: jobs try all flavors at once, as families."""

    def __init__(self, rng: Random, machines: Mapping[str, MachineSpec], *, races: bool) -> None:
        self.rng = rng
        self.machines = machines
        self.races = races
        self.pools = sorted({machine.pool for machine in machines.values()})
        self.listed = rng.random() < 0.3
        """Whether an admin lists the flavors; else placement covers them by itself."""
        self.has_check = rng.random() < 0.25
        self.checks_policy = rng.choice((DEFERS, DEFERS, "Anytime"))
        self.queues = {f"q{number}": self._queue() for number in range(rng.choice((1, 1, 2)))}

    def units(self, pool: str) -> int:
        """How many units of devices the machines of the pool have."""
        return sum(machine.units() for machine in self.machines.values() if machine.pool == pool)

    def cores(self, pool: str) -> int:
        """How many cores the machines of the pool have."""
        return sum(machine.cpu for machine in self.machines.values() if machine.pool == pool)

    def _queue(self) -> Spec:
        rng = self.rng
        spec: Spec = {
            "namespaceSelector": {},
            "cohortName": "c0",
            "queueingStrategy": "BestEffortFIFO",
            "resourceGroups": self._groups(spare=rng.choice((0, 0, 1, 3))),
            "preemption": {
                "withinClusterQueue": rng.choice(
                    ("Never", "LowerPriority", "LowerPriority", "LowerOrNewerEqualPriority")
                ),
                "reclaimWithinCohort": rng.choice(("Never", "LowerPriority", "Any")),
            },
        }
        if self.has_check:
            spec["admissionChecks"] = ["k0"]
        if self.races:
            mode = rng.choice(("UpgradeOnly", "UpgradeOnly", "NoMigration"))
            spec["concurrentAdmission"] = {"migrationConstraints": {"mode": mode}}
        elif rng.random() < 0.3:
            spec["queueingStrategy"] = "StrictFIFO"
        return spec

    def _groups(self, *, spare: int) -> list[Spec]:
        """``spare``: how many units more there is quota for than the machines have."""
        flavors = [
            {
                "name": pool,
                "resources": [
                    {"name": "cpu", "nominalQuota": self.cores(pool) + spare},
                    {"name": GPU, "nominalQuota": self.units(pool) + spare},
                ],
            }
            for pool in self.pools
        ]
        return [{"coveredResources": ["cpu", GPU], "flavors": flavors}]

    def all(self) -> Manifests:
        """All manifests."""
        manifests = [
            manifest("ResourceFlavor", pool, {"nodeLabels": {POOL: pool}}) for pool in self.pools
        ]
        if self.has_check:
            check = {"controllerName": "ctl-k0", "preemptionPolicy": self.checks_policy}
            manifests.append(manifest("AdmissionCheck", "k0", check))
        if self.listed:
            spec = {
                "controllerName": CONTROLLER,
                "preemptionPolicy": DEFERS,
                "onFlavors": self.pools,
            }
            manifests.append(manifest("AdmissionCheck", MACHINES, spec))
        manifests.append(manifest("Cohort", "c0", {}))
        manifests += [manifest("ClusterQueue", name, spec) for name, spec in self.queues.items()]
        manifests += [
            manifest("LocalQueue", f"l{name[1:]}", {"clusterQueue": name}, namespace=NAMESPACE)
            for name in self.queues
        ]
        return manifests

    def operate(self, at: float) -> Manifests:
        """An admin cordons or drains a machine at that time, or ends that."""
        rng = self.rng
        name = rng.choice(sorted(self.machines))
        change: dict[str, Any]
        match rng.choice(("cordon", "drain", "drain", "uncordon", "undrain")):
            case "cordon":
                change = {"unschedulable": True}
            case "uncordon":
                change = {"unschedulable": False}
            case "undrain":
                change = {"drain": None}
            case _:
                deadline = START + timedelta(seconds=at + rng.choice((0.0, 3.0, 20.0)))
                drain: dict[str, Any] = {"reason": "to be repaired"}
                if rng.random() < 0.8:
                    drain["deadline"] = deadline.isoformat().replace("+00:00", "Z")
                change = {"drain": drain}
        return [{"machine": {"name": name, **change}}]

    def open(self) -> list[Manifests]:
        """All machines take jobs again."""
        return [
            [{"machine": {"name": name, "unschedulable": False, "drain": None}}]
            for name in sorted(self.machines)
        ]
