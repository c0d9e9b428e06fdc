"""What the scheduler's pure core costs: one Python process, no bus.

    .venv/bin/python benchmarks/scheduler_core.py [--json FILE]

Figures are medians of several runs: microseconds per decision (the cycle alone, and with the echo
of what it decided) with few and with many ClusterQueues, microseconds per new pending workload,
bytes per pending workload, and milliseconds for an explanation among many pending ones, and for
a cycle that finds 20 or 500 victims among 1,000 candidates and tells them.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from admittance.api.manifest import decode_object
from admittance.api.meta import Condition, ObjectMeta
from admittance.events.facts import Assigned
from admittance.events.shapes import Admission, PodSetAssignment
from admittance.scheduler.config import Config, FairSharing
from admittance.scheduler.decide import Scheduler
from admittance.workload.stored import StoredWorkload, WorkloadStatus

START = datetime(2026, 1, 1, tzinfo=UTC)
PER_COHORT = 6


def a_workload(n: int, queue: int, cpu: str, priority: int) -> StoredWorkload:
    """The pending workload with that number, as it would be stored."""
    container = {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
    pods = {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
    spec = {"queueName": f"lq-{queue}", "priority": priority, "podSets": [pods]}
    return StoredWorkload(
        api_version="kueue.x-k8s.io/v1beta2",
        kind="Workload",
        metadata=ObjectMeta(
            name=f"w-{n}",
            namespace="ns",
            uid=f"{n:08x}-0000-4000-8000-000000000000",
            creation_timestamp=START + timedelta(milliseconds=n),
        ),
        spec=msgspec.Raw(msgspec.json.encode(spec)),
    )


class Bench:
    """A scheduler with so many ClusterQueues, six to a cohort, all of one shape."""

    def __init__(
        self, queues: int, *, nominal: str = "1000000", config: Config | None = None
    ) -> None:
        self.core = Scheduler(config)
        self.revision = 0
        self.queues = queues
        self._object({"kind": "ResourceFlavor", "metadata": {"name": "default"}})
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
                "cohortName": f"cohort-{n // PER_COHORT}",
                "namespaceSelector": {},
                "preemption": {
                    "withinClusterQueue": "LowerPriority",
                    "reclaimWithinCohort": "Any",
                },
                "resourceGroups": [group],
            }
            self._object({"kind": "ClusterQueue", "metadata": {"name": f"cq-{n}"}, "spec": spec})
            local = {"name": f"lq-{n}", "namespace": "ns"}
            self._object(
                {"kind": "LocalQueue", "metadata": local, "spec": {"clusterQueue": f"cq-{n}"}}
            )
        for domain in self.core.domains():
            self.core.own(domain)

    def _object(self, value: dict[str, Any]) -> None:
        manifest = decode_object({"apiVersion": "kueue.x-k8s.io/v1beta2", **value}).manifest
        self.revision += 1
        meta = manifest.metadata
        self.core.apply_object(manifest.kind, meta.namespace, meta.name, manifest, self.revision)

    def workloads(self, count: int) -> list[StoredWorkload]:
        """Pending workloads of three classes, spread over the queues, as they would be stored."""
        shapes = [("small", "1", 50), ("medium", "5", 100), ("large", "20", 200)]
        made: list[StoredWorkload] = []
        for n in range(count):
            _, cpu, priority = shapes[(n // self.queues) % len(shapes)]
            made.append(a_workload(n, n % self.queues, cpu, priority))
        return made

    def apply(self, stored: StoredWorkload) -> None:
        """The picture hears of a workload."""
        self.revision += 1
        meta = stored.metadata
        self.core.apply_workload("ns", meta.name, stored, self.revision, now=START)


def arrivals(queues: int, count: int) -> float:
    """Microseconds for a new pending workload."""
    bench = Bench(queues)
    made = bench.workloads(count)
    before = time.perf_counter()
    for one in made:
        bench.apply(one)
    return (time.perf_counter() - before) / count * 1e6


def decisions(queues: int, count: int) -> tuple[float, float]:
    """Microseconds for a decision where all heads fit: the cycles alone, and with the echo."""
    bench = Bench(queues)
    made = {one.metadata.name: one for one in bench.workloads(count)}
    for one in made.values():
        bench.apply(one)
    cycling = whole = 0.0
    decided = 0
    now = START
    while bench.core.has_work():
        before = time.perf_counter()
        assigned = bench.core.cycle(now=now)
        cycling += time.perf_counter() - before
        decided += len(assigned)
        reserved = Condition(type="QuotaReserved", status="True", last_transition_time=now)
        echoes = [
            msgspec.structs.replace(
                made[one.name],
                status=WorkloadStatus(conditions=(reserved,), admission=one.admission),
            )
            for one in assigned
            if isinstance(one, Assigned)
        ]
        before = time.perf_counter()
        for echo in echoes:
            bench.apply(echo)
        whole += time.perf_counter() - before
    assert decided == count, (decided, count)
    return cycling / count * 1e6, (cycling + whole) / count * 1e6


def contended(queues: int, count: int, config: Config | None = None) -> float:
    """Microseconds for an admission where room is for one workload in ten, and what runs finishes
    as soon as it is admitted: parking, flushing, and looking again included. Who is preempted
    waits again at once."""
    bench = Bench(queues, nominal="40", config=config)
    made = {one.metadata.name: one for one in bench.workloads(count)}
    for one in made.values():
        bench.apply(one)
    running: list[str] = []
    decided = 0
    finished = Condition(type="Finished", status="True")
    before = time.perf_counter()
    while decided < count:
        while bench.core.has_work():
            assigned = bench.core.cycle(now=START)
            decided += sum(isinstance(one, Assigned) for one in assigned)
            for decision in assigned:
                if not isinstance(decision, Assigned):
                    running.remove(decision.name)
                    bench.apply(made[decision.name])
                    continue
                running.append(decision.name)
                reserved = Condition(type="QuotaReserved", status="True")
                status = WorkloadStatus(conditions=(reserved,), admission=decision.admission)
                bench.apply(msgspec.structs.replace(made[decision.name], status=status))
        for name in running[: max(1, len(running) // 2)]:
            status = WorkloadStatus(conditions=(finished,))
            bench.apply(msgspec.structs.replace(made[name], status=status))
        del running[: max(1, len(running) // 2)]
    return (time.perf_counter() - before) / count * 1e6


def preempting(candidates: int, victims: int, *, own: bool, fair: bool = False) -> float:
    """Milliseconds for a cycle whose head needs so many of all candidates to go: workloads of its
    own queue, or of another one that borrows, with shares or without."""
    sharing = FairSharing() if fair else None
    config = Config(preemption=True, fair_sharing=sharing)
    queue = 0 if own else 1
    bench = Bench(2, nominal=str(candidates // 2), config=config)
    running = [a_workload(n, queue, "1", n % 7) for n in range(candidates)]
    for n, one in enumerate(running):
        flavors = {"cpu": "default", "memory": "default"}
        usage = {"cpu": "1", "memory": "1Gi"}
        place = PodSetAssignment(name="main", flavors=flavors, resource_usage=usage, count=1)
        admission = Admission(cluster_queue=f"cq-{queue}", pod_set_assignments=(place,))
        since = START + timedelta(seconds=n % 97)
        reserved = Condition(type="QuotaReserved", status="True", last_transition_time=since)
        status = WorkloadStatus(conditions=(reserved,), admission=admission)
        bench.apply(msgspec.structs.replace(one, status=status))
    bench.apply(a_workload(candidates, 0, str(victims), 9))
    before = time.perf_counter()
    decided = bench.core.cycle(now=START + timedelta(seconds=100))
    after = time.perf_counter()
    assert len(decided) == victims, len(decided)
    return (after - before) * 1e3


def _resident() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def memory(queues: int, count: int) -> float:
    """Bytes for a pending workload: growth of the process while it hears of them one by one."""
    bench = Bench(queues)
    for one in bench.workloads(1_000):
        bench.apply(one)
    gc.collect()
    before = _resident()
    for first in range(1_000, count + 1_000, 1_000):
        for one in _more(bench, first):
            bench.apply(one)
    gc.collect()
    return (_resident() - before) / count


def _more(bench: Bench, first: int) -> list[StoredWorkload]:
    made = []
    for stored in bench.workloads(1_000):
        meta = stored.metadata
        n = first + int(meta.name[2:])
        made.append(
            msgspec.structs.replace(
                stored,
                metadata=ObjectMeta(
                    name=f"w-{n}",
                    namespace="ns",
                    uid=f"{n:08x}-0000-4000-8000-000000000000",
                    creation_timestamp=START + timedelta(milliseconds=n),
                ),
            )
        )
    return made


def explaining(queues: int, count: int) -> float:
    """Milliseconds to explain one workload in the middle of many pending ones."""
    bench = Bench(queues, nominal="0")
    for one in bench.workloads(count):
        bench.apply(one)
    bench.core.cycle(now=START)
    times = []
    for n in range(count // 2, count // 2 + 50):
        before = time.perf_counter()
        assert bench.core.explain("ns", f"w-{n}", now=START).position
        times.append(time.perf_counter() - before)
    return statistics.median(times) * 1e3


def median(run: Callable[[], float], runs: int = 3) -> float:
    """Of several runs, each after a collection, so that none pays for another's garbage."""
    results = []
    for _ in range(runs):
        gc.collect()
        results.append(run())
    return round(statistics.median(results), 2)


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", type=Path, help="write the figures there too")
    parser.add_argument("--count", type=int, default=12_000, help="workloads per run")
    options = parser.parse_args()
    count = options.count
    # First, while the process has no memory to use again.
    pending = round(memory(30, 50_000))
    few = median(lambda: decisions(30, count)[0])
    many = median(lambda: decisions(1_000, count)[0])
    figures = {
        "decisionMicroseconds30": few,
        "decisionMicroseconds1000": many,
        "decisionRatio1000to30": round(many / few, 2),
        "decisionsPerSecond30": round(1e6 / few),
        "decisionsPerSecond1000": round(1e6 / many),
        "decisionWithEchoMicroseconds30": median(lambda: decisions(30, count)[1]),
        "contendedAdmissionMicroseconds30": median(lambda: contended(30, count // 4)),
        "contendedPreemptingMicroseconds30": median(
            lambda: contended(30, count // 4, Config(preemption=True))
        ),
        "contendedSharesMicroseconds30": median(
            lambda: contended(30, count // 4, Config(preemption=True, fair_sharing=FairSharing()))
        ),
        "arrivalMicroseconds30": median(lambda: arrivals(30, count)),
        "explainMilliseconds100000": median(lambda: explaining(30, 100_000), 1),
        "preemptionMilliseconds20of1000": median(lambda: preempting(1_000, 20, own=True)),
        "reclaimMilliseconds20of1000": median(lambda: preempting(1_000, 20, own=False)),
        "sharesMilliseconds20of1000": median(lambda: preempting(1_000, 20, own=False, fair=True)),
        "preemptionMilliseconds500of1000": median(lambda: preempting(1_000, 500, own=True)),
        "reclaimMilliseconds500of1000": median(lambda: preempting(1_000, 500, own=False)),
        "sharesMilliseconds500of1000": median(lambda: preempting(1_000, 500, own=False, fair=True)),
        "bytesPerPendingWorkload": pending,
    }
    text = json.dumps(figures, indent=2)
    sys.stdout.write(text + "\n")
    if options.json is not None:
        options.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
