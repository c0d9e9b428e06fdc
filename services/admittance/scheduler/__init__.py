"""The scheduler takes the workloads at the heads of queues, finds flavors for them, and reserves
quota.

Consumes: the bucket, in the order of its revisions; epochs and echoes of barriers. Publishes:
decisions such as ``assigned`` and ``refused``, fenced with the epoch of their domain. Owns: the
stored usage of LocalQueues. All other state of the scheduler is in memory; after a restart the
scheduler reads the bucket. Leadership: per domain; the running instances share the domains.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from admittance.runtime.process.service import Run, Service

if TYPE_CHECKING:
    from admittance.runtime.telemetry.metrics import Definition


def _load() -> Run:
    from admittance.scheduler.service import run

    return run


def _metrics() -> Sequence[Definition]:
    from admittance.scheduler.service import QUEUE_GAUGES, AttemptMetrics

    attempts = [
        definition for metric in AttemptMetrics().metrics for definition in metric.definitions
    ]
    return [*QUEUE_GAUGES, *attempts]


SERVICE = Service("scheduler", _load, role="scheduler", probe="queues", metrics=_metrics)
