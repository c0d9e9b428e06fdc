"""Leads every workload through its life: pending, quota reserved, admitted, finished.

Decides: which transition a workload makes for each fact (`admittance.workload.transitions`), and
whether a decision of a scheduler is still valid. Consumes: facts about workloads, verdicts,
decisions, due timers, barriers, changed objects. Publishes: ``quota_reserved``, ``admitted``,
``evicted``, ``quota_released``, ``requeued``, ``rejected``, ``pending``, ``check.requested``,
``check.withdrawn``, ``object.applied``, ``object.deleted``. Owns: the bucket, and the sums of used
quota on the stream ``ADMITTANCE_USAGE``. No other service writes a workload or a manifest.
Leadership: one active leader; the server refuses the puts of a stale leader, because they
expect outdated revisions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from admittance.runtime.process.service import LogConsumers, Run, Service, Streams

if TYPE_CHECKING:
    from admittance.runtime.telemetry.metrics import Definition


def _load() -> Run:
    from admittance.workload_controller.service import run

    return run


def _metrics() -> Sequence[Definition]:
    from admittance.workload_controller.usage.log_retention import LOG_BOUND, LOG_BYTES
    from admittance.workload_controller.workload_metrics import CHECK_ACTIVE, WorkloadMetrics

    counted = [
        definition for metric in WorkloadMetrics().metrics for definition in metric.definitions
    ]
    return [*counted, CHECK_ACTIVE, LOG_BYTES, LOG_BOUND]


SERVICE = Service(
    "workload-controller",
    _load,
    role="workload-controller",
    probe="settled",
    streams=Streams.KEEPS,
    consumers=LogConsumers.OF_LEADER,
    metrics=_metrics,
    own_process=True,
)
