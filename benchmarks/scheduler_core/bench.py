"""A scheduler with equal queues, and workloads in their stored form."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from admittance.api.meta import Condition, ObjectMeta
from admittance.api.reading.manifest import decode_object
from admittance.events.shapes import Admission, PodSetAssignment
from admittance.scheduling.scheduler import Scheduler
from admittance.scheduling.state.config import Config
from admittance.workload.stored import StoredWorkload, WorkloadStatus

clock = time.process_time
"""CPU seconds of this process: the core waits for nothing, so other processes do not count."""

START = datetime(2026, 1, 1, tzinfo=UTC)
API = "kueue.x-k8s.io/v1beta2"
PER_COHORT = 6
MIX = (("small", "1", 50), ("medium", "5", 100), ("large", "20", 200))


def a_workload(
    n: int,
    queue: int | str,
    cpu: str,
    priority: int,
    *,
    namespace: str = "ns",
    created: datetime | None = None,
    memory: str = "1Gi",
) -> StoredWorkload:
    """The pending workload with that number, in its stored form."""
    requests = {"cpu": cpu, **({"memory": memory} if memory else {})}
    container = {"name": "c", "resources": {"requests": requests}}
    pods = {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
    local = queue if isinstance(queue, str) else f"lq-{queue}"
    spec = {"queueName": local, "priority": priority, "podSets": [pods]}
    return StoredWorkload(
        api_version=API,
        kind="Workload",
        metadata=ObjectMeta(
            name=f"w-{n}",
            namespace=namespace,
            uid=f"{n:08x}-0000-4000-8000-000000000000",
            creation_timestamp=created or START + timedelta(milliseconds=n),
        ),
        spec=msgspec.Raw(msgspec.json.encode(spec)),
    )


def condition(kind: str, at: datetime, *, on: bool = True, reason: str = "") -> Condition:
    """One condition of a status."""
    status = "True" if on else "False"
    return Condition(type=kind, status=status, reason=reason or kind, last_transition_time=at)


def with_status(
    stored: StoredWorkload, *conditions: Condition, admission: Admission | None = None
) -> StoredWorkload:
    """The workload with that status and no other."""
    status = WorkloadStatus(conditions=conditions, admission=admission)
    return msgspec.structs.replace(stored, status=status)


def an_admission(queue: str, usage: dict[str, str], flavor: str = "default") -> Admission:
    """Quota of one pod in one flavor."""
    flavors = dict.fromkeys(usage, flavor)
    place = PodSetAssignment(name="main", flavors=flavors, resource_usage=usage, count=1)
    return Admission(cluster_queue=queue, pod_set_assignments=(place,))


class Core:
    """A scheduler, with a counter that numbers writes like the revisions of a bucket."""

    def __init__(self, config: Config | None = None) -> None:
        self.core = Scheduler(config)
        self.revision = 0

    def put(self, kind: str, name: str, spec: Any = None, namespace: str = "") -> None:
        """Applies an object of the configuration."""
        meta = {"name": name, **({"namespace": namespace} if namespace else {})}
        value = {"apiVersion": API, "kind": kind, "metadata": meta}
        if spec is not None:
            value["spec"] = spec
        manifest = decode_object(value).manifest
        self.revision += 1
        self.core.apply_object(kind, namespace, name, manifest, self.revision)

    def own_all(self) -> None:
        """Makes the scheduler the owner of every domain."""
        for domain in sorted(self.core.domains()):
            self.core.own(domain)

    def apply(self, stored: StoredWorkload, now: datetime = START) -> int:
        """Applies a workload to the scheduler state. Returns the revision."""
        self.revision += 1
        meta = stored.metadata
        self.core.apply_workload(meta.namespace, meta.name, stored, self.revision, now=now)
        return self.revision


class Bench(Core):
    """Equal ClusterQueues, ``per_cohort`` in each cohort. ``parents``: the number of cohorts below
    one parent cohort; all parents are below one root; 0: each cohort is a root."""

    def __init__(
        self,
        queues: int,
        *,
        nominal: str = "1000000",
        config: Config | None = None,
        per_cohort: int = PER_COHORT,
        parents: int = 0,
    ) -> None:
        super().__init__(config)
        self.queues = queues
        self.put("ResourceFlavor", "default")
        if parents:
            for n in range((queues + per_cohort - 1) // per_cohort):
                self.put("Cohort", f"cohort-{n}", {"parentName": f"parent-{n // parents}"})
                self.put("Cohort", f"parent-{n // parents}", {"parentName": "root"})
        for n in range(queues):
            resources = [
                {"name": "cpu", "nominalQuota": nominal, "borrowingLimit": nominal},
                {"name": "memory", "nominalQuota": nominal + "Gi"},
            ]
            group = {
                "coveredResources": ["cpu", "memory"],
                "flavors": [{"name": "default", "resources": resources}],
            }
            spec = {
                "cohortName": f"cohort-{n // per_cohort}",
                "namespaceSelector": {},
                "preemption": {
                    "withinClusterQueue": "LowerPriority",
                    "reclaimWithinCohort": "Any",
                },
                "resourceGroups": [group],
            }
            self.put("ClusterQueue", f"cq-{n}", spec)
            self.put("LocalQueue", f"lq-{n}", {"clusterQueue": f"cq-{n}"}, "ns")
        self.own_all()

    def workloads(self, count: int, first: int = 0) -> list[StoredWorkload]:
        """Pending workloads of three classes, spread over the queues."""
        made: list[StoredWorkload] = []
        for n in range(first, first + count):
            _, cpu, priority = MIX[(n // self.queues) % len(MIX)]
            made.append(a_workload(n, n % self.queues, cpu, priority))
        return made

    def apply_all(self, workloads: Sequence[StoredWorkload]) -> None:
        """Applies all workloads to the scheduler state."""
        for workload in workloads:
            self.apply(workload)
