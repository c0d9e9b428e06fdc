"""The check controller ``kueue.x-k8s.io/provisioning-request``: obtains capacity before a job
starts.

Consumes: AdmissionChecks, their configuration, flavors, request records and workloads from the
bucket; answers and heartbeats of providers. Publishes: ``requested`` and ``cancelled`` to
providers; the verdicts of this controller's checks; what providers outside write to the bucket of
statuses. Owns: the request records (``provisioningrequest.>``). Leadership: one active instance.
Source: docs/spec/lifecycle.md#5.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from admittance.runtime.process.service import LogConsumers, Run, Service

if TYPE_CHECKING:
    from admittance.runtime.telemetry.metrics import Definition


def _load() -> Run:
    from admittance.provisioning_check.service import run

    return run


def _metrics() -> Sequence[Definition]:
    from admittance.provisioning_check.service import REQUESTS, unusable_answers

    return [REQUESTS, *unusable_answers().definitions]


SERVICE = Service(
    "provisioning-check",
    _load,
    role="provisioning-check",
    consumers=LogConsumers.OF_LEADER,
    metrics=_metrics,
)
