"""Exports a trace of each sampled workload with OpenTelemetry.

Decides: nothing. Consumes: the facts about workloads, from the log; the history of a workload that
began before, by ``admit.api.events``. Publishes: spans to a receiver of OTLP over HTTP; nothing on
the bus. Owns: the position of its consumer ``telemetry`` of the log. Leadership: one instance reads
the log; others wait until its consumer is free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from admittance.runtime.process.service import (
    Asked,
    LogConsumers,
    Run,
    Service,
    Streams,
    WithUp,
)

if TYPE_CHECKING:
    from admittance.runtime.telemetry.metrics import Definition


def _load() -> Run:
    from admittance.telemetry.service import run

    return run


def _asked(env: Mapping[str, str]) -> Asked:
    from admittance.telemetry.variables import asked

    return asked(env)


def _metrics() -> Sequence[Definition]:
    from admittance.telemetry.span_metrics import SpanMetrics

    spans = SpanMetrics().metrics(lambda: 0, lambda: 0)
    return [definition for metric in spans for definition in metric.definitions]


SERVICE = Service(
    "telemetry",
    _load,
    role="telemetry",
    streams=Streams.AWAITS,
    consumers=LogConsumers.DURABLE,
    only_observes=True,
    with_up=WithUp.IF_ASKED,
    asked=_asked,
    metrics=_metrics,
)
