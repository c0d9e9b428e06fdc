"""Stores the machines that runners announce, and answers what runs on them.

Decides: how each Runner object looks (`admittance.placement.known_runners`).

Consumes: what runners say in the bucket of claims; Runner objects. Publishes: nothing on the log.
Owns: the Runner objects (``runner.>``), but for ``spec.unschedulable``, which users change.
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
    from admittance.placement_service.machine_metrics import MACHINES

    return MACHINES


SERVICE = Service(
    "placement",
    _load,
    role="placement",
    probe="machines",
    if_missing="no instance answers; what runs on which machine is not known",
    metrics=_metrics,
)
