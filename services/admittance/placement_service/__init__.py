"""Stores the machines that runners announce, answers what runs on them, and places workloads: it is
the controller of the check ``admittance.dev/machines``.

Decides: how each Runner object looks (`admittance.placement.machines.known_runners`); which runners
start the pods of a workload (`admittance.placement.decisions`); which flavors are covered
(`admittance.placement.machines.coverage`).

Consumes: what runners say in the bucket of claims; Runner objects; once a check of its controller
exists, also workloads, checks and flavors. Publishes: the verdicts of its checks, fenced.
Owns: the Runner objects (``runner.>``), but for ``spec.unschedulable`` and ``spec.drain``, which
users change; a failed prolog or epilog sets ``spec.drain``, too.
Leadership: one active instance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from admittance.runtime.process.service import Run, Service

if TYPE_CHECKING:
    from admittance.runtime.telemetry.metrics import Definition


def _load() -> Run:
    from admittance.placement_service.service import run

    return run


def _metrics() -> Sequence[Definition]:
    from admittance.placement_service.machine_metrics import all_definitions

    return all_definitions()


SERVICE = Service(
    "placement",
    _load,
    role="placement",
    probe="machines",
    if_missing="no instance answers; what runs on which machine is not known, "
    "and workloads on covered flavors are not admitted",
    metrics=_metrics,
)
