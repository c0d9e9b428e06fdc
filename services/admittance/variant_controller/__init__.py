"""Keeps families as the concurrent admission policy requires: one variant for each flavor, or for
each explicit variant.

Decides, from stored workloads and queues: which variants to create, delete, activate and
deactivate, and which preemption gate to open.

Consumes: workloads, ClusterQueues and LocalQueues, from the bucket. Publishes: ``submitted``,
``activated``, ``deactivated``, ``reprioritized``, ``deleted`` and ``ungated`` for variants,
``aggregated`` for parents. All facts of the variant-controller are requests; a repeated request
changes nothing. Owns: nothing. The scheduler and the workload-controller use the same policy
(`admittance.family`) for quota and admission. Leadership: one active instance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from admittance.runtime.process.service import Run, Service

if TYPE_CHECKING:
    from admittance.runtime.telemetry.metrics import Definition


def _load() -> Run:
    from admittance.variant_controller.service import run

    return run


def _metrics() -> Sequence[Definition]:
    from admittance.variant_controller.service import FAMILY_GAUGES

    return FAMILY_GAUGES


SERVICE = Service(
    "variant-controller", _load, role="variant-controller", probe="families", metrics=_metrics
)
