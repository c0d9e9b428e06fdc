"""Forecasts when waiting workloads will start.

Decides: nothing. Consumes: on request, workloads and the configuration of queues, from the
bucket, and the facts about released quota, from the log. Publishes: nothing; answers
``admit.api.forecast``. Owns: the errors of its forecasts, one key of the bucket of claims, which
may be deleted. Leadership: none; every instance has forecasts of its own, and one of them answers
each question; the errors of the last one that stored them are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from admittance.runtime.process.service import Run, Service, Streams, WithUp

if TYPE_CHECKING:
    from admittance.runtime.telemetry.metrics import Definition


def _load() -> Run:
    from admittance.forecast_service.service import run

    return run


def _metrics() -> Sequence[Definition]:
    from admittance.forecast_service.forecast_metrics import ForecastMetrics

    return ForecastMetrics().definitions


SERVICE = Service(
    "forecast",
    _load,
    role="forecast",
    streams=Streams.AWAITS,
    only_observes=True,
    with_up=WithUp.ON_DEMAND,
    requests=("admit.api.forecast", "admit.api.forecast.*"),
    metrics=_metrics,
)
