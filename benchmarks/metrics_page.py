"""What a scrape of many queues costs: ``python -m benchmarks.metrics_page [QUEUES]``.

Scheduler: each ClusterQueue has two resources, a LocalQueue, ten workloads that hold quota and ten
that wait; ten ClusterQueues have a cohort. Workload-controller: each metric has a series for each
ClusterQueue or LocalQueue. Prints the number of series and the size of a scrape, and the CPU time
of three kinds of scrapes, each the cheapest of five: the first one of a process, one after no
change, and one after a change of every series.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from admittance.runtime.process.startup import collect_garbage_less_often
from admittance.runtime.telemetry.metrics import (
    Counter,
    Gauges,
    Histogram,
    Metric,
    gauge,
    text_of,
)
from admittance.scheduling.queue_gauges import GAUGES
from admittance.scheduling.state.config import CohortFairSharing, Config
from admittance.workload_controller.workload_metrics import WorkloadMetrics
from support.cores.stepped_scheduler import SteppedScheduler

SCRAPES = 5


def a_scheduler(queues: int) -> SteppedScheduler:
    """A scheduler with so many ClusterQueues."""
    scheduler = SteppedScheduler(Config(fair_sharing=CohortFairSharing()))
    for number in range(queues):
        resources = [{"name": resource, "nominalQuota": "10"} for resource in ("cpu", "memory")]
        group = {
            "coveredResources": ["cpu", "memory"],
            "flavors": [{"name": "default", "resources": resources}],
        }
        scheduler.queue(f"cq-{number}", f"team-{number // 10}", resourceGroups=[group])
        for place in range(20):
            pods = [{"requests": {"cpu": "1", "memory": "1"}}]
            scheduler.submit(f"w-{number}-{place}", f"cq-{number}", pods=pods)
    scheduler.settle()
    return scheduler


def count(metrics: WorkloadMetrics, queues: int) -> None:
    """Adds to a series of each queue in each metric."""
    for metric in metrics.metrics:
        for number in range(queues):
            labels = tuple(_value(name, number) for name in metric.definitions[0].labels)
            if isinstance(metric, Counter):
                metric.add(labels)
            elif isinstance(metric, Histogram):
                metric.observe(labels, number % 600 + 0.25)


def _value(label: str, number: int) -> str:
    match label:
        case "cluster_queue" | "preempting_cluster_queue":
            return f"cq-{number}"
        case "name":
            return f"lq-{number}"
        case "namespace" | "cohort":
            return f"team-{number // 10}"
        case _:
            return "regular"


def scrape(
    metrics: Sequence[Metric], times: int = SCRAPES, before: Callable[[], None] = lambda: None
) -> tuple[str, float]:
    """The text, and the CPU time of the cheapest scrape, in milliseconds. ``before`` runs before
    each scrape."""
    spent = []
    for _ in range(times):
        before()
        begun = time.thread_time()
        pieces = text_of(metrics)
        spent.append(time.thread_time() - begun)
    return b"".join(pieces).decode(), min(spent) * 1000


def main() -> None:
    """Measures and prints."""
    collect_garbage_less_often()  # as in a service
    queues = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    scheduler = a_scheduler(queues)
    metric = Gauges((gauge(name, *of) for name, of in GAUGES.items()), scheduler.core.gauges)
    text, spent = scrape([metric])
    sys.stdout.write(f"scheduler: {_size(text)}, {spent:.0f} ms\n")
    counted = WorkloadMetrics()
    count(counted, queues)
    _, first = scrape(counted.metrics, times=1)
    text, same = scrape(counted.metrics)
    _, changed = scrape(counted.metrics, before=lambda: count(counted, queues))
    sys.stdout.write(
        f"workload-controller: {_size(text)}, first {first:.0f} ms, unchanged {same:.0f} ms, "
        f"all changed {changed:.0f} ms\n"
    )


def _size(text: str) -> str:
    series = sum(not line.startswith("#") for line in text.splitlines())
    return f"{series} series, {len(text) // 1000} kB"


if __name__ == "__main__":
    main()
