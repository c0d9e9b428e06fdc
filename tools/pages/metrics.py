"""``python -m tools.pages.metrics`` writes docs/reference/metrics.md: metrics of all services."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from admittance.runtime.leader.leader_elected_service import LEADER_METRICS
from admittance.runtime.process.admin import BUILD_INFO
from admittance.runtime.telemetry.metrics import Definition
from admittance.runtime.telemetry.object_faults import faults
from admittance.sdk.program_metrics import ProgramMetrics
from admittance.services import SERVICES

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"

HEAD: Final = """\
# Metrics

This page is generated from the code: `python -m tools.pages.metrics`.

[The admin port](../observability.md#the-admin-port) of a process shows the metrics of its services
at `/metrics`. The names of metrics begin with `admittance_`. The option `--metrics-prefix kueue_`
replaces this prefix, for queries and dashboards of Kueue: metrics that Kueue has, too, have Kueue's
names and labels, without the label `replica_role`. The values of metrics are in cores for cpu, and
in the unit of the manifest for other resources.

- A gauge of queues is shown by the scheduler that leads the domain of the queue, so each queue
  has one value, and the gauges of a deleted queue are gone at the next scrape. Immediately after
  the leader of a domain has changed, two schedulers, or no scheduler, may show its queues.
- Counters and histograms count since the start of their process, and only while the instance leads:
  add up the values of all instances.
- Counters without labels, and counters of rare events of a queue or a check, begin with 0, so that
  `increase` and `rate` see the first event.
- A family of [variants](../concurrent-admission.md) counts as one workload in the metrics. Checks
  judge variants, so only the metrics of checks count variants.
- The values of labels are names of existing objects and fixed words. A counter has at most 2,000
  series; events of further series are counted under the label `other`.
"""

NOT_COUNTED_HEAD: Final = """
## Metrics of Kueue that do not exist here

The metric `build_info` has other labels than in Kueue. Labels that an administrator of Kueue can
add to its metrics do not exist in Admittance.

| metric | why |
| --- | --- |
"""
NOT_COUNTED: Final[Mapping[str, str]] = {
    "admission_cycle_preemption_skips": "a cycle has no number of skipped workloads; a skipped "
    "workload is tried again in the next cycle, and `unadmitted_workloads` has its reason",
    "preemption_target_recomputations_total": "the scheduler does not count the second search for "
    "victims that another workload of the cycle has taken",
    "pending_scheduling_hashes": "equivalence classes are internal to the scheduler",
    "finished_workloads": "finished workloads are not kept by queue; `finished_workloads_total` "
    "counts them",
    "local_queue_finished_workloads": "as `finished_workloads`",
    "replaced_workload_slices_total": "there are no workload slices",
    "workload_creation_latency_seconds": "a workload is submitted itself, not made from a job",
    "pod_scheduling_gate_removal_seconds": "there are no gated pods",
    "workloads_dispatched_total": "there is no MultiKueue",
    "workloads_admitted_total": "there is no MultiKueue",
}
"""Metrics of Kueue that do not exist here, and why."""


def by_service() -> Mapping[str, list[Definition]]:
    """The metrics, by the service that shows them."""
    counted = {name: list(service.metrics()) for name, service in SERVICES.items()}
    return {
        **{name: definitions for name, definitions in counted.items() if definitions},
        "check controllers and providers": [
            definition
            for metric in ProgramMetrics("").metrics(int)
            for definition in metric.definitions
        ],
        "every service with leaders": list(LEADER_METRICS),
        "every process": [BUILD_INFO, *faults.counter.definitions],
    }


def page() -> str:
    """The text of docs/reference/metrics.md."""
    tables = "".join(_table(service, metrics) for service, metrics in by_service().items())
    missing = "".join(f"| `{name}` | {why} |\n" for name, why in NOT_COUNTED.items())
    return f"{HEAD}{tables}{NOT_COUNTED_HEAD}{missing}"


def _table(service: str, definitions: list[Definition]) -> str:
    rows = [
        f"| `{metric.full_name}` | {metric.kind} | {', '.join(metric.labels)} | {metric.about} |\n"
        for metric in definitions
    ]
    head = "| metric | kind | labels | meaning |\n| --- | --- | --- | --- |\n"
    return f"\n## {service[0].upper()}{service[1:]}\n\n{head}{''.join(rows)}"


if __name__ == "__main__":
    PAGE.write_text(page())
