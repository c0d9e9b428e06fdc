"""The story of docs/traces.md, as a receiver of OTLP gets it."""

from __future__ import annotations

import pytest

from admittance.telemetry.exporter import OtlpExport
from admittance.telemetry.open_traces import OpenTraces
from admittance.telemetry.span_metrics import SpanMetrics
from admittance.traces.builder import TraceBuilder
from admittance.traces.spans import LoggedFact
from support.programs.otlp_receiver import otlp_receiver
from support.servers import until
from support.traced_story import told_story


async def no_history(*_: object) -> list[LoggedFact]:
    raise AssertionError("everything is read from the beginning")


async def test_two_checks_a_retry_a_preemption_and_an_upgrade_arrive_as_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = told_story().log
    builder = TraceBuilder()
    expected = [span for fact in log for span in builder.feed(fact)]
    with otlp_receiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
        export = OtlpExport(SpanMetrics())
        traces = OpenTraces(export.is_sampled, no_history)
        for fact in log:
            for span in await traces.read(fact):
                await export.put(span)
        await until(lambda: export.finished == len(expected))
        await export.close()
    got = [span.span for span in receiver.spans]
    assert [
        (span.name, span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex())
        for span in got
    ] == [(span.name, span.trace_id, span.span_id, span.parent_id) for span in expected]
    assert [(len(span.events), len(span.links)) for span in got] == [
        (len(span.events), len(span.links)) for span in expected
    ]
    drawn = receiver.spans[[span.name for span in expected].index("check budget")]
    assert drawn.attributes["messaging.system"] == "nats"
    assert drawn.attributes["messaging.destination.template"] == (
        "admit.check.requested.{controller}.{namespace}.{name}"
    )
    assert drawn.attributes["admittance.outcome"] == "Retry"
