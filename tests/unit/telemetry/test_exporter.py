"""The export of spans to a receiver that takes them, refuses them, or does not answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime

import pytest
import structlog
from structlog.testing import LogCapture

from admittance.runtime.errors import SetupError
from admittance.runtime.telemetry.findings import OK, WRONG
from admittance.telemetry import exporter
from admittance.telemetry.exporter import OtlpExport
from admittance.telemetry.span_metrics import NOT_TAKEN, QUEUE_FULL, SpanMetrics
from admittance.traces.spans import Span
from support.programs.otlp_receiver import OtlpReceiver, otlp_receiver
from support.servers import until, within

Make = Callable[..., OtlpExport]


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with otlp_receiver() as receiver_made:
        yield receiver_made


@pytest.fixture
def lines() -> Iterator[LogCapture]:
    capture = LogCapture()
    before = structlog.get_config()
    structlog.configure(processors=[capture])
    yield capture
    structlog.configure(**before)


@pytest.fixture
async def make(
    monkeypatch: pytest.MonkeyPatch, receiver: OtlpReceiver, lines: LogCapture
) -> AsyncIterator[Make]:
    made: list[OtlpExport] = []

    def start_export(**variables: str) -> OtlpExport:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        made.append(OtlpExport(SpanMetrics()))
        return made[-1]

    yield start_export
    receiver.status = 200
    receiver.answer()
    for export in made:
        await export.close()


def span(number: int) -> Span:
    return Span(
        name=f"span {number}",
        trace_id="1" * 32,
        span_id=f"{number:016x}",
        start=datetime(2026, 11, 23, tzinfo=UTC),
    )


async def put(export: OtlpExport, *numbers: int) -> None:
    for number in numbers:
        await export.put(span(number))


def dropped(export: OtlpExport) -> dict[str, float]:
    counts = export.metrics.dropped.values
    return {reason: count for (reason,), count in counts.items() if count}


async def test_spans_arrive_in_order_with_the_resource_of_the_variables(
    make: Make, receiver: OtlpReceiver
) -> None:
    export = make(
        OTEL_SERVICE_NAME="lab",
        OTEL_RESOURCE_ATTRIBUTES="deployment.environment=test",
        OTEL_EXPORTER_OTLP_HEADERS="x-team=queues",
    )
    await put(export, *range(1, 21))
    await until(lambda: export.finished == 20)
    assert [span.span.name for span in receiver.spans] == [f"span {n}" for n in range(1, 21)]
    resource = receiver.spans[0].resource
    assert (resource["service.name"], resource["deployment.environment"]) == ("lab", "test")
    assert receiver.headers[0]["x-team"] == "queues"
    assert export.metrics.exported.values == {(): 20}


async def test_the_service_is_named_admittance_by_default(
    make: Make, receiver: OtlpReceiver
) -> None:
    await put(make(), 1)
    await until(lambda: bool(receiver.spans))
    assert receiver.spans[0].resource["service.name"] == "admittance"


async def test_a_refusal_is_counted_and_logged_once_until_spans_are_taken_again(
    make: Make, receiver: OtlpReceiver, lines: LogCapture
) -> None:
    export = make()
    receiver.status = 401
    await put(export, 1, 2)
    await until(lambda: export.finished == 2)
    await put(export, 3)
    await until(lambda: export.finished == 3)
    [wrong] = export.findings()
    receiver.status = 200
    await put(export, 4)
    await until(lambda: export.finished == 4)
    assert [finding.state for finding in export.findings()] == [OK]
    assert (wrong.state, "401" in wrong.found, "3 lost" in wrong.found) == (WRONG, True, True)
    assert dropped(export) == {NOT_TAKEN: 3}
    assert export.metrics.exported.values == {(): 1}
    refused, again = lines.entries
    assert (refused["event"], refused["receiver"]) == ("spans_not_taken", receiver.url)
    assert "401" in refused["reason"]
    assert (again["event"], again["lost"]) == ("spans_taken_again", 3)


@pytest.mark.parametrize(
    "headers",
    [
        "authorization Bearer planted",
        "authorization: planted",
        "authorization=planted\u00e9",
        "x-team=queues,api key=planted",
        "authorization=planted%0Aline",
    ],
)
async def test_no_header_or_path_of_the_receiver_is_shown(
    make: Make, lines: LogCapture, headers: str
) -> None:
    there = "http://planted:planted@127.0.0.1:9/planted"
    export = make(
        OTEL_EXPORTER_OTLP_ENDPOINT=there,
        OTEL_EXPORTER_OTLP_HEADERS=headers,
        OTEL_EXPORTER_OTLP_TIMEOUT="1",
    )
    await put(export, 1)
    await until(lambda: export.finished == 1)
    [finding] = export.findings()
    assert finding.state == WRONG
    assert "planted" not in f"{lines.entries} {finding}"


async def test_a_receiver_that_is_away_is_named_with_the_reason(
    make: Make, lines: LogCapture
) -> None:
    export = make(
        OTEL_EXPORTER_OTLP_ENDPOINT="http://me:secret@127.0.0.1:1", OTEL_EXPORTER_OTLP_TIMEOUT="2"
    )
    await put(export, 1)
    await until(lambda: export.finished == 1)
    [line] = lines.entries
    assert (line["receiver"], "secret" in str(line)) == ("http://127.0.0.1:1", False)
    assert "Connection refused" in line["reason"]


async def test_a_full_queue_waits_while_the_receiver_takes_spans(
    make: Make, receiver: OtlpReceiver
) -> None:
    export = make(OTEL_BSP_MAX_QUEUE_SIZE="4", OTEL_BSP_MAX_EXPORT_BATCH_SIZE="2")
    await put(export, *range(1, 31))
    await until(lambda: export.finished == 30)
    assert (len(receiver.spans), dropped(export)) == (30, {})


async def test_a_receiver_that_hangs_delays_no_span_for_long(
    make: Make, receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch, lines: LogCapture
) -> None:
    monkeypatch.setattr(exporter, "PATIENCE_SECONDS", 0.1)
    export = make(OTEL_BSP_MAX_QUEUE_SIZE="4", OTEL_BSP_MAX_EXPORT_BATCH_SIZE="2")
    receiver.hang()
    await within(put(export, *range(1, 101)))
    assert (export.queued, dropped(export)) == (4, {QUEUE_FULL: 96})
    assert [entry["event"] for entry in lines.entries] == ["spans_not_taken"]
    receiver.answer()
    await until(lambda: export.finished == 4)
    assert [span.span.name for span in receiver.spans] == [f"span {n}" for n in range(1, 5)]
    assert lines.entries[-1]["event"] == "spans_taken_again"


async def test_the_end_waits_at_most_a_second_for_a_receiver_that_hangs(
    make: Make, receiver: OtlpReceiver, lines: LogCapture
) -> None:
    export = make()
    receiver.hang()
    await put(export, 1)
    await until(lambda: receiver.requests == 1)
    await within(export.close())
    assert lines.entries[-1] == {"event": "spans_not_sent", "waiting": 1, "log_level": "warning"}
    assert (export.finished, dropped(export)) == (0, {})


async def test_the_end_sends_what_waits(make: Make, receiver: OtlpReceiver) -> None:
    export = make(OTEL_BSP_SCHEDULE_DELAY="3600000")
    await put(export, 1, 2)
    await export.close()
    assert (len(receiver.spans), export.finished) == (2, 2)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318", "is not a URL such as"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://[", "is not a URL such as"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "supports only http/protobuf"),
        ("OTEL_TRACES_EXPORTER", "zipkin", "supports only otlp"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "many", "is not a number"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4096", "must be less than or equal"),
    ],
)
async def test_a_wrong_variable_is_one_sentence(
    make: Make, name: str, value: str, says: str
) -> None:
    with pytest.raises(SetupError, match=says) as caught:
        make(**{name: value})
    assert "\n" not in str(caught.value)


async def test_a_variable_that_the_sdk_ignores_is_logged(make: Make, lines: LogCapture) -> None:
    make(OTEL_TRACES_SAMPLER="most")
    [line] = lines.entries
    assert (line["event"], "most" in line["reason"]) == ("otel_variable_ignored", True)
