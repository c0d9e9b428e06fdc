"""Converts a `Span` to the span of the OpenTelemetry SDK; decides whether a trace is sampled."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib.metadata import version
from typing import Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.sampling import Decision, Sampler
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)
from opentelemetry.trace import Status as SdkStatus

from admittance.traces.spans import Kind, Span, SpanEvent, SpanLink, Status

SCHEMA: Final = "https://opentelemetry.io/schemas/1.37.0"
"""The OpenTelemetry schema that defines the span attributes ``messaging.…``."""
SCOPE: Final = InstrumentationScope("admittance", version("admittance"), SCHEMA)
SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
KINDS: Final = {Kind.INTERNAL: SpanKind.INTERNAL, Kind.PRODUCER: SpanKind.PRODUCER}
STATUSES: Final = {
    Status.UNSET: StatusCode.UNSET,
    Status.OK: StatusCode.OK,
    Status.ERROR: StatusCode.ERROR,
}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def sdk_span(span: Span, resource: Resource) -> ReadableSpan:
    """The span in the form in which the OpenTelemetry SDK exports it. ``resource``: the
    OpenTelemetry resource that the span describes."""
    parent = None
    if span.parent_id:
        parent = _context(span.trace_id, span.parent_id, is_remote=span.remote)
    return ReadableSpan(
        span.name,
        context=_context(span.trace_id, span.span_id),
        parent=parent,
        resource=resource,
        attributes=span.attributes,
        events=[_event(event) for event in span.events],
        links=[_link(link) for link in span.links],
        kind=KINDS[span.kind],
        status=SdkStatus(STATUSES[span.status], span.message or None)
        if span.status is Status.ERROR
        else SdkStatus(STATUSES[span.status]),
        start_time=_nanoseconds(span.start),
        end_time=_nanoseconds(span.end or span.start),
        instrumentation_scope=SCOPE,
    )


def is_sampled(sampler: Sampler, trace_id: str, parent_id: str) -> bool:
    """Whether the trace is exported. ``parent_id``: the id of the span of the program that
    submitted the workload; "" if there is no such span, or if it is not sampled. Programs of
    Admittance mark the traces that they begin as not sampled because they decide nothing about
    sampling: this mark counts as no decision.
    """
    context = None
    if parent_id:
        parent = NonRecordingSpan(_context(trace_id, parent_id, is_remote=True))
        context = set_span_in_context(parent)
    result = sampler.should_sample(context, int(trace_id, 16), "workload")
    return result.decision is Decision.RECORD_AND_SAMPLE


def _context(trace_id: str, span_id: str, *, is_remote: bool = False) -> SpanContext:
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote, SAMPLED)


def _event(event: SpanEvent) -> Event:
    return Event(event.name, event.attributes, _nanoseconds(event.time))


def _link(link: SpanLink) -> Link:
    attributes = {"admittance.workload": link.workload, **link.attributes}
    return Link(_context(link.trace_id, link.span_id), attributes)


def _nanoseconds(time: datetime) -> int:
    passed = time - _EPOCH
    return ((passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds) * 1_000
