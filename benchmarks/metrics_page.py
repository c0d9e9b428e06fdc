"""How long a scrape of many queues takes: ``python -m benchmarks.metrics_page [QUEUES]``.

Each ClusterQueue has two resources, a LocalQueue, ten workloads that hold quota and ten that wait;
ten ClusterQueues have a cohort. Prints the number of series and the fastest of five scrapes.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from admittance.runtime.process.startup import collect_garbage_less_often
from admittance.runtime.telemetry.metrics import Gauges, gauge, text_of
from admittance.scheduling.explain.queue_gauges import GAUGES
from admittance.scheduling.state.config import Config, FairSharing
from support.cores.stepped_scheduler import SteppedScheduler


def a_scheduler(queues: int) -> SteppedScheduler:
    """A scheduler with so many ClusterQueues."""
    scheduler = SteppedScheduler(Config(fair_sharing=FairSharing()))
    for number in range(queues):
        resources = [{"name": one, "nominalQuota": "10"} for one in ("cpu", "memory")]
        group = {
            "coveredResources": ["cpu", "memory"],
            "flavors": [{"name": "default", "resources": resources}],
        }
        scheduler.queue(f"cq-{number}", f"team-{number // 10}", resourceGroups=[group])
        for one in range(20):
            pods = [{"requests": {"cpu": "1", "memory": "1"}}]
            scheduler.submit(f"w-{number}-{one}", f"cq-{number}", pods=pods)
    scheduler.settle()
    return scheduler


def main() -> None:
    """Measures and prints."""
    collect_garbage_less_often()  # as in a service
    scheduler = a_scheduler(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000)
    metric = Gauges((gauge(name, *of) for name, of in GAUGES.items()), scheduler.core.gauges)
    times = []
    for _ in range(5):
        begun = time.perf_counter()
        text = text_of([metric])
        times.append(time.perf_counter() - begun)
    series = sum(not line.startswith("#") for line in text.splitlines())
    sys.stdout.write(f"{series} series, {len(text) // 1000} kB, {min(times) * 1000:.0f} ms\n")


if __name__ == "__main__":
    main()
