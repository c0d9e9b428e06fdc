"""Stored workloads of one family, written one by one and looked at as in a run."""

from __future__ import annotations

from datetime import timedelta
from random import Random
from typing import Any

import msgspec

from admittance.api.workload import FAMILY_GATE
from admittance.workload.limits import Limits
from simulation.invariants.observer import Invariants
from simulation.nats.observed import Stored
from simulation.plots.configuration import manifest
from simulation.virtual_time.kernel import Kernel
from simulation.virtual_time.loop import START, VirtualLoop

NOW = START.isoformat()
Spec = dict[str, Any]


def condition(kind: str, status: bool, reason: str = "so") -> Spec:
    return {
        "type": kind,
        "status": "True" if status else "False",
        "reason": reason,
        "lastTransitionTime": NOW,
    }


PENDING = [condition("QuotaReserved", False, "PendingEvaluation")]
RESERVED = [condition("QuotaReserved", True)]
ADMITTED = [*RESERVED, condition("Admitted", True)]
STOPPING = [*ADMITTED, condition("Evicted", True, "FlavorMigration")]
GONE = [
    condition("QuotaReserved", False),
    condition("Admitted", False),
    condition("Evicted", True, "FlavorMigration"),
]
PREEMPTED = [condition("QuotaReserved", False), condition("Evicted", True, "Preempted")]
BLOCKED = [
    condition("QuotaReserved", False, "AdmissionGated"),
    condition("BlockedOnPreemptionGates", True),
]
OPEN = {"preemptionGates": [{"name": FAMILY_GATE, "position": "Open"}]}


def admission(flavor: str, cpu: int = 2) -> Spec:
    row = {"name": "main", "flavors": {"cpu": flavor}, "resourceUsage": {"cpu": str(cpu)}}
    return {"clusterQueue": "q", "podSetAssignments": [row | {"count": 1}]}


class World:
    """Writes to the bucket, looked at as in a run."""

    def __init__(self, quota: int = 4) -> None:
        self.kernel = Kernel(Random(0), VirtualLoop())  # type: ignore[abstract]
        self.looks = Invariants(self.kernel, timedelta(), Limits(drain=timedelta(seconds=9)))
        self.number = 0
        flavors = [
            {"name": name, "resources": [{"name": "cpu", "nominalQuota": quota}]}
            for name in ("f0", "f1")
        ]
        group = {"coveredResources": ["cpu"], "flavors": flavors}
        policy = {"migrationConstraints": {"mode": "UpgradeOnly"}}
        spec = {"resourceGroups": [group], "concurrentAdmission": policy}
        self.put("clusterqueue.q", manifest("ClusterQueue", "q", spec))
        local = manifest("LocalQueue", "l", {"clusterQueue": "q"}, namespace="ns")
        self.put("localqueue.ns.l", local)

    def put(self, key: str, about: Spec | None) -> int:
        self.number += 1
        data = b"" if about is None else msgspec.json.encode(about)
        headers = {"KV-Operation": "DEL", "Admit-Fact": str(self.number)} if about is None else {}
        self.looks.stored(Stored(self.number, key, data, headers, self.kernel.now))
        return self.number

    def workload(
        self, name: str, spec: Spec, meta: Spec, conditions: list[Spec], **more: Any
    ) -> int:
        status = {"conditions": conditions, "log": {"fact": self.number + 1}, **more}
        about = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "status": status}
        about |= {"metadata": {"namespace": "ns", "name": name, "uid": name, **meta}}
        return self.put(f"workload.ns.{name}", about | {"spec": {"queueName": "l"} | spec})

    def parent(self, conditions: list[Spec], **more: Any) -> int:
        return self.workload("p", {"role": "parent"}, {}, conditions, **more)

    def variant(self, place: int, conditions: list[Spec], **more: Any) -> int:
        owner = {"kind": "Workload", "name": "p", "uid": "p", "apiVersion": "v"}
        spec = {"role": "variant", "variant": f"f{place}", "siblingIndex": place}
        meta = {"ownerReferences": [owner]}
        return self.workload(f"p{place}", spec, meta, conditions, **more)

    def regular(self, name: str, conditions: list[Spec], **more: Any) -> int:
        return self.workload(name, {}, {}, conditions, **more)

    def whole(self) -> None:
        self.looks.whole()

    def waits(self, *places: int) -> None:
        """A family with these variants, none of which has quota."""
        self.parent(PENDING)
        for place in places:
            self.variant(place, PENDING)
        self.whole()

    def running(self) -> int:
        """A family with an admitted variant on f1. Returns the revision of the admission."""
        self.waits(0, 1)
        return self.admit(1)

    def admit(self, place: int) -> int:
        where = admission(f"f{place}")
        self.variant(place, ADMITTED, admission=where)
        revision = self.parent(ADMITTED, admission=where, admittedVariant=f"p{place}")
        self.whole()
        return revision

    def stop(self, **more: Any) -> None:
        where = admission("f1")
        self.variant(1, STOPPING, admission=where)
        self.parent(STOPPING, admission=where, admittedVariant="p1", **more)
        self.whole()


def preempted_by(name: str) -> Spec:
    grounds = {"clusterQueue": "q", "byClusterQueue": "q", "priority": 0, "byPriority": 1}
    return {"preemptedBy": {"by": f"ns/{name}", "byUid": name, "at": NOW, "grounds": grounds}}


def preempt(world: World, name: str, by: str) -> None:
    """The variant ``by`` takes what the workload has."""
    times = [{"by": f"ns/{by}", "byUid": by, "count": 1, "seen": world.number}]
    world.regular(name, PREEMPTED, **preempted_by(by), preemptions=times)
