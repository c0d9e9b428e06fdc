"""Keeps arrays: creates their elements in the order of the indexes, opens the gates of elements,
and counts results. Judges the dependencies of workloads that wait for others.

Consumes: workloads, from the bucket. Publishes: ``submitted``, ``activated``, ``deactivated``,
``reprioritized``, ``released``, ``finished`` and ``deleted`` for elements, ``elements_counted`` for
arrays, ``dependencies_judged`` for workloads that wait. All facts of the array-controller are
requests; a repeated request changes nothing. Owns: nothing. Leadership: one active instance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from admittance.runtime.process.service import Run, Service

if TYPE_CHECKING:
    from admittance.runtime.telemetry.metrics import Definition


def _load() -> Run:
    from admittance.array_controller.service import run

    return run


def _metrics() -> Sequence[Definition]:
    from admittance.array_controller.service import ARRAY_GAUGES

    return ARRAY_GAUGES


SERVICE = Service(
    "array-controller", _load, role="array-controller", probe="arrays", metrics=_metrics
)
