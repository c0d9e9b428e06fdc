"""The check controller ``admittance.dev/budget``: says whether a queue, namespace or user may still
use quota in this window of time.

Decides: `admittance.budgets`. Consumes: AdmissionChecks and Budgets; once a check of its controller
exists, also workloads, the stored sums of usage, and the facts about released quota on the log.
Publishes: the verdicts of its checks, fenced. Answers: ``admit.api.budgets``. Owns: nothing.
Leadership: one active instance. Source: docs/spec/budgets.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from admittance.runtime.process.service import Run, Service

if TYPE_CHECKING:
    from admittance.runtime.telemetry.metrics import Definition


def _load() -> Run:
    from admittance.budget_controller.service import run

    return run


def _metrics() -> Sequence[Definition]:
    from admittance.budget_controller.service import GAUGES, verdict_counter

    return [*GAUGES, *verdict_counter().definitions]


SERVICE = Service(
    "budget-controller",
    _load,
    role="budget-controller",
    metrics=_metrics,
    if_missing="no instance is ready; workloads of queues with a budget wait for its verdict",
)
