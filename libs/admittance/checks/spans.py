"""A span of OpenTelemetry around the call of a check's function, in a program that uses
OpenTelemetry. A program that does not use OpenTelemetry imports nothing for spans and pays one
look-up for each call.

The parent of the span is the span of the check in the workload's trace, whose context came with the
request. Admittance decides for or against a trace when it exports the trace, later: the request
says nothing about it, so the parent counts as sampled. A sampler that decides by trace id
(``traceidratio``) chooses the same traces in all programs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from admittance.checks.request import Request

NAME: Final = "admittance.checks"
SAMPLED: Final = 1


@contextmanager
def span_of_call(request: Request, controller: str) -> Iterator[Any]:
    """Within the ``with`` block a span of the call to the check is the current span, and
    `Request.span` is the span's context. Yields the span; None if the program does not use
    OpenTelemetry or the request has no trace.
    """
    # A program that exports spans has imported ``opentelemetry.trace`` to configure the export.
    trace: Any = sys.modules.get("opentelemetry.trace")
    if trace is None or not request.traceparent:
        yield None
        return
    _, trace_id, span_id, _ = request.traceparent.split("-")
    parent = trace.SpanContext(
        int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=trace.TraceFlags(SAMPLED)
    )
    attributes = {
        "messaging.system": "nats",
        "messaging.operation.type": "process",
        "messaging.destination.template": "admit.check.requested.{controller}.{namespace}.{name}",
        "admittance.namespace": request.namespace,
        "admittance.workload": request.name,
        "admittance.controller": controller,
        "admittance.check": request.check,
        "admittance.cycle": request.cycle,
    }
    with trace.get_tracer(NAME).start_as_current_span(
        f"judge {request.check}",
        context=trace.set_span_in_context(trace.NonRecordingSpan(parent)),
        kind=trace.SpanKind.CONSUMER,
        attributes=attributes,
    ) as span:
        own = span.get_span_context()
        if own.span_id != parent.span_id:
            request.span = f"00-{own.trace_id:032x}-{own.span_id:016x}-{own.trace_flags:02x}"
        yield span
