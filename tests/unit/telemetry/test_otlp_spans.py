"""Spans as the SDK exports them, and the decision for or against a trace."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import SpanKind, StatusCode

from admittance.telemetry.otlp_spans import is_sampled, sdk_span
from admittance.traces.spans import Kind, Span, SpanEvent, SpanLink, Status

LOW, HIGH = "0" * 31 + "1", "f" * 32
"""The trace ids that a sampler by share chooses first, and last."""
PARENT = "b7ad6b7169203331"
START = datetime(2026, 11, 23, 10, 0, 0, 123457, UTC)


def test_a_span_keeps_all_its_parts() -> None:
    resource = Resource({"service.name": "lab"})
    exported = sdk_span(
        Span(
            name="check",
            trace_id=HIGH,
            span_id="00000000000000ab",
            parent_id=PARENT,
            kind=Kind.PRODUCER,
            start=START,
            end=START + timedelta(days=40, microseconds=1),
            status=Status.ERROR,
            message="rejected",
            attributes={"admittance.flavors": ("cpu=spot",)},
            events=(SpanEvent(name="verdict", time=START, attributes={"a": 1}),),
            links=(SpanLink(trace_id=LOW, span_id=PARENT, workload="ns/other"),),
        ),
        resource,
    )
    context, parent = exported.context, exported.parent
    assert context is not None and parent is not None
    assert (f"{context.trace_id:032x}", context.span_id) == (HIGH, 0xAB)
    assert (f"{parent.span_id:016x}", parent.is_remote) == (PARENT, False)
    assert (exported.kind, exported.resource) == (SpanKind.PRODUCER, resource)
    assert exported.start_time is not None and exported.end_time is not None
    assert exported.start_time == 1_795_428_000_123_457_000
    assert exported.end_time - exported.start_time == 40 * 86_400_000_000_000 + 1_000
    assert (exported.status.status_code, exported.status.description) == (
        StatusCode.ERROR,
        "rejected",
    )
    assert exported.attributes == {"admittance.flavors": ("cpu=spot",)}
    assert [(event.name, dict(event.attributes or {})) for event in exported.events] == [
        ("verdict", {"a": 1})
    ]
    [link] = exported.links
    assert (link.context.trace_id, link.attributes) == (1, {"admittance.workload": "ns/other"})


def test_a_span_without_a_parent_begins_its_trace() -> None:
    span = Span(name="workload", trace_id=LOW, span_id=PARENT, start=START, end=START)
    exported = sdk_span(span, Resource({}))
    assert (exported.parent, exported.status.status_code) == (None, StatusCode.UNSET)


@pytest.mark.parametrize(
    ("sampler", "share", "chosen"),
    [
        ("always_on", "", {LOW: True, HIGH: True}),
        ("always_off", "", {LOW: False, HIGH: False}),
        ("traceidratio", "0", {LOW: False, HIGH: False}),
        ("traceidratio", "0.5", {LOW: True, HIGH: False}),
        ("traceidratio", "1", {LOW: True, HIGH: True}),
        ("parentbased_traceidratio", "0.5", {LOW: True, HIGH: False}),
        ("parentbased_always_off", "", {LOW: False, HIGH: False}),
    ],
)
def test_the_sampler_of_the_variables_decides_by_trace_id(
    sampler: str, share: str, chosen: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", share)
    sampler_made = TracerProvider(shutdown_on_exit=False).sampler
    assert {trace_id: is_sampled(sampler_made, trace_id, "") for trace_id in chosen} == chosen
    # Only a sampler that follows parents follows the sampled span of the submitting program.
    follows = sampler.startswith("parentbased")
    assert {trace_id: is_sampled(sampler_made, trace_id, PARENT) for trace_id in chosen} == {
        trace_id: follows or decided for trace_id, decided in chosen.items()
    }
