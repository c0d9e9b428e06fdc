"""A bucket that came to be by what users did, and questions what would follow."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec

from admittance.events.facts import CheckReported
from admittance.events.reader import BucketEntry
from admittance.events.requests.manifests import Delete
from admittance.events.requests.whatif import Simulate, SimulateReply, WorkloadChange
from admittance.scheduling.state.config import Config
from admittance.whatif.bucket_copy import BucketCopy
from admittance.whatif.simulate import change_of, perform, simulate
from support.builders import NOON, a_manifest, an_object, resource_groups


def a_queue(name: str, cohort: str = "", *, cpu: Mapping[str, Any], **spec: Any) -> dict[str, Any]:
    """A ClusterQueue; ``cpu``: flavor to its nominal quota, in order."""
    made: dict[str, Any] = {
        "namespaceSelector": {},
        "resourceGroups": resource_groups(cpu),
        **({"cohortName": cohort} if cohort else {}),
        **spec,
    }
    return an_object("ClusterQueue", name, made)


def raws(*objects: Mapping[str, Any]) -> tuple[msgspec.Raw, ...]:
    """Manifests as a request has them."""
    return tuple(msgspec.Raw(json.dumps(manifest).encode()) for manifest in objects)


class StoredSystem:
    """A system at rest, with the flavors ``spot`` and ``steady``; each step settles."""

    def __init__(self, *objects: Mapping[str, Any], config: Config | None = None) -> None:
        self.config = config or Config()
        self.copy = BucketCopy((), self.config, NOON)
        self.apply(an_object("ResourceFlavor", "spot"), an_object("ResourceFlavor", "steady"))
        self.apply(*objects)

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Applies manifests or submits workloads, one second after the last change."""
        perform(self.copy, change_of(Simulate(objects=raws(*objects))))
        self.copy.settle()
        self.copy.now += timedelta(seconds=1)

    def queue(self, name: str, cohort: str = "", **spec: Any) -> None:
        """Applies a ClusterQueue and a LocalQueue of its name."""
        self.apply(a_queue(name, cohort, **spec), a_local(name))

    def submit(self, name: str, queue: str, cpu: int = 1, priority: int = 0) -> None:
        """Submits a workload."""
        self.apply(a_job(name, queue, cpu, priority))

    def ready(self, name: str, check: str) -> None:
        """Reports the check as Ready for the workload."""
        workload = self.copy.workload(("ns", name))
        assert workload is not None
        report = CheckReported(
            namespace="ns",
            name=name,
            controller="example.com/check",
            check=check,
            cycle=workload.status.admission_cycle,
            state="Ready",
        )
        self.copy.apply_facts(report)
        self.copy.settle()

    def entries(self) -> list[BucketEntry]:
        """The bucket as it is now."""
        return self.copy.entries()

    def simulate(
        self,
        *objects: Mapping[str, Any],
        deletes: tuple[Delete, ...] = (),
        changes: tuple[WorkloadChange, ...] = (),
        limit: int = 0,
        namespace: str = "",
    ) -> SimulateReply:
        """The simulated results of the change."""
        request = Simulate(objects=raws(*objects), deletes=deletes, changes=changes, limit=limit)
        return simulate(
            self.entries(), request, self.config, now=self.copy.now, namespace=namespace
        )


def a_local(name: str, queue: str = "", **spec: Any) -> dict[str, Any]:
    """A LocalQueue in ``ns``."""
    return an_object("LocalQueue", name, {"clusterQueue": queue or name, **spec}, "ns")


def a_job(name: str, queue: str, cpu: int = 1, priority: int = 0) -> dict[str, Any]:
    """A workload of one pod."""
    return a_manifest(name, queue=queue, requests={"cpu": str(cpu)}, priority=priority)


def starts(reply: SimulateReply) -> dict[str, str]:
    """The workloads that would start, with their flavors."""
    return {
        start.name: start.admission.pod_set_assignments[0].flavors["cpu"] for start in reply.starts
    }


def waits(reply: SimulateReply) -> dict[str, str]:
    """The workloads that would wait, with their reasons."""
    return {wait.name: wait.reason for wait in reply.waits}


def evictions(reply: SimulateReply) -> dict[str, str]:
    """The workloads that would be evicted, with their reasons."""
    return {eviction.name: eviction.reason for eviction in reply.evictions}
