"""The telemetry service beside real services: what its receiver gets is the trace of the log."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from admittance.checks import AdmissionCheckController, Ready, Request, Retry, Verdict
from admittance.events.subjects import STREAM, TELEMETRY_DURABLE
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.history import read_messages
from admittance.runtime.telemetry import tracing
from admittance.traces.builder import TraceBuilder
from admittance.traces.spans import LoggedFact, Span
from support.builders import a_manifest
from support.check_requests import running
from support.cluster import Cluster
from support.processes.service_process import variables
from support.programs.otlp_receiver import OtlpReceiver, otlp_receiver
from support.requests import admission_check, apply, eventually, health, queues, submit
from support.servers import TestServer, until, within

pytestmark = pytest.mark.bus
CORE = ("workload-controller", "scheduler", "retry-timer")


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with otlp_receiver() as receiver_made:
        yield receiver_made


def exporting(receiver: OtlpReceiver, **more: str) -> dict[str, str]:
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, "OTEL_BSP_SCHEDULE_DELAY": "20"}
    return {**variables, "OTEL_TRACES_SAMPLER": "always_on", **more}


def a_job(name: str, *command: str, **spec: Any) -> dict[str, Any]:
    manifest = a_manifest(name, queue="lq-cq", **spec)
    [container] = manifest["spec"]["podSets"][0]["template"]["spec"]["containers"]
    container["command"] = [*command]
    return manifest


def with_checks(made: list[dict[str, Any]], *checks: str) -> list[dict[str, Any]]:
    for manifest in made:
        if manifest["kind"] == "ClusterQueue":
            strategy = [{"name": name, "onFlavors": []} for name in checks]
            manifest["spec"]["admissionChecksStrategy"] = {"admissionChecks": strategy}
            manifest["spec"]["preemption"] = {"withinClusterQueue": "LowerPriority"}
    return made


async def spans_of_log(bus: Bus) -> list[Span]:
    """The finished spans that the log gives."""
    builder, spans, after = TraceBuilder(), [], 0
    while page := await read_messages(bus, ["admit.>"], after=after):
        after = page[-1].sequence
        for message in page:
            traceparent = tracing.extract(message.headers)
            fact = LoggedFact(
                message.sequence, message.time, message.subject, message.data, traceparent
            )
            spans += builder.feed(fact)
    return spans


def shown(span: Span) -> tuple[Any, ...]:
    start, end = (round(time.timestamp() * 1e6) for time in (span.start, span.end or span.start))
    return span.name, span.trace_id, span.span_id, span.parent_id, start, end


def received(receiver: OtlpReceiver, scope: str = "admittance") -> list[tuple[Any, ...]]:
    spans = [span.span for span in receiver.spans if span.scope == scope]
    return [
        (
            span.name,
            span.trace_id.hex(),
            span.span_id.hex(),
            span.parent_span_id.hex(),
            span.start_time_unix_nano // 1000,
            span.end_time_unix_nano // 1000,
        )
        for span in spans
    ]


async def until_ended(bus: Bus, *names: str) -> None:
    async def ended() -> bool:
        subjects = [f"admit.workload.finished.ns.{name}" for name in names]
        return len(await read_messages(bus, subjects)) == len(names)

    await eventually(ended)


async def until_reading(bus: Bus, instance: str) -> None:
    async def ready() -> bool:
        return any(reply.instance == instance and reply.ready for reply in await health(bus))

    await eventually(ready)


async def until_read(bus: Bus) -> None:
    """Waits until all facts are acknowledged, so all their spans are exported or dropped."""

    async def read() -> bool:
        info = await bus.api(f"CONSUMER.INFO.{STREAM}.{TELEMETRY_DURABLE}")
        return not info["num_pending"] and not info["num_ack_pending"]

    await eventually(read)


@pytest.fixture
def provider(receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch) -> Iterator[TracerProvider]:
    """The program of the check controllers has OpenTelemetry configured."""
    provider = TracerProvider(shutdown_on_exit=False)
    exporter = OTLPSpanExporter(endpoint=f"{receiver.url}/v1/traces")
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    yield provider
    provider.shutdown()


async def test_checks_a_retry_and_a_preemption_are_the_spans_of_the_log(
    cluster: Cluster,
    bus: Bus,
    nats_server: TestServer,
    receiver: OtlpReceiver,
    provider: TracerProvider,
) -> None:
    budget = AdmissionCheckController("example.com/budget")
    licenses = AdmissionCheckController("example.com/license")

    @budget.check
    async def spend(request: Request) -> Verdict:
        if request.name == "low" and not request.retry_count:
            return Retry("spent", after=1)
        return Ready()

    @licenses.check
    def count(request: Request) -> Verdict:
        return Ready()

    for service in (*CORE, "runner"):
        await cluster.start(service)
    await cluster.start("telemetry", "t", **exporting(receiver))
    await until_reading(bus, "t")
    await apply(
        bus,
        admission_check("budget", f"example.com/{'budget'}"),
        admission_check("license", f"example.com/{'license'}"),
    )
    await apply(bus, *with_checks(queues("cq", cpu=1), "budget", "license"))
    async with running(budget, nats_server.url), running(licenses, nats_server.url):
        await submit(bus, [a_job("low", "sleep", "3600")])

        async def low_runs() -> bool:
            return bool(await read_messages(bus, ["admit.workload.started.ns.low"]))

        await eventually(low_runs)
        await submit(bus, [a_manifest("urgent", queue="lq-cq", priority=9)])
        await until_ended(bus, "urgent")
        await until_read(bus)
    expected = [shown(span) for span in await spans_of_log(bus)]
    assert sorted(received(receiver)) == sorted(expected)
    names = {span[0] for span in expected}
    assert names >= {"workload", "queue", "attempt", "check budget", "check license"}
    assert names >= {"reservation", "admission", "start", "run", "eviction", "requeue"}
    # The calls of the check controllers are inside the spans of the checks.
    calls = received(receiver, "admittance.checks")
    assert {span[0] for span in calls} == {"judge budget", "judge license"}
    checks = {span[2]: span[0] for span in expected if span[0].startswith("check ")}
    inside = [span for span in calls if span[3] in checks]
    assert len(inside) >= 5
    assert {span[0].split()[1] for span in inside} == {"budget", "license"}


async def test_a_killed_service_continues_the_traces_that_began_before(
    cluster: Cluster, bus: Bus, receiver: OtlpReceiver
) -> None:
    for service in (*CORE, "runner"):
        await cluster.start(service)
    first = await cluster.start("telemetry", "first", **exporting(receiver))
    await until_reading(bus, "first")
    await apply(bus, *queues("cq", cpu=1))
    names = [f"w{number}" for number in range(6)]
    await submit(bus, [a_job(name, "sleep", "0.2") for name in names])
    await until(lambda: bool(receiver.spans))
    await first.kill()
    await until_ended(bus, *names[:3])
    # The requests of a killed instance for facts expire on the server.
    await cluster.start("telemetry", "second", **exporting(receiver))
    await until_ended(bus, *names)
    await until_reading(bus, "second")
    await until_read(bus)
    expected = [shown(span) for span in await spans_of_log(bus)]
    assert set(received(receiver)) == set(expected)
    assert len({span[1] for span in expected}) == len(names)


async def test_a_sampler_of_none_exports_nothing_and_reads_all(
    cluster: Cluster, bus: Bus, receiver: OtlpReceiver
) -> None:
    for service in (*CORE, "runner"):
        await cluster.start(service)
    none = exporting(receiver, OTEL_TRACES_SAMPLER="traceidratio", OTEL_TRACES_SAMPLER_ARG="0")
    await cluster.start("telemetry", "t", **none)
    await until_reading(bus, "t")
    await apply(bus, *queues("cq"))
    await submit(bus, [a_manifest("w", queue="lq-cq")])
    await until_ended(bus, "w")
    await until_read(bus)
    assert receiver.requests == 0


async def test_a_receiver_that_hangs_delays_neither_jobs_nor_the_end(
    cluster: Cluster, bus: Bus, receiver: OtlpReceiver
) -> None:
    for service in (*CORE, "runner"):
        await cluster.start(service)
    receiver.hang()
    telemetry = await cluster.start("telemetry", "t", **exporting(receiver))
    await until_reading(bus, "t")
    await apply(bus, *queues("cq"))
    await submit(bus, [a_manifest("w", queue="lq-cq")])
    await until(lambda: receiver.requests > 0)
    await until_ended(bus, "w")
    await telemetry.stop()
    assert telemetry.status == 0
    # While the workload-controller starts, the service may have waited for it.
    events = [json.loads(line)["event"] for line in telemetry.log.splitlines()]
    assert events[events.index("reading") + 1 :] == ["spans_not_sent"]


@pytest.mark.parametrize(
    ("blocked", "env", "says"),
    [
        ("opentelemetry", {}, "pip install 'admittance[otel]'"),
        ("", {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "supports only http/protobuf"),
    ],
)
async def test_what_the_service_needs_is_said_in_one_line(
    blocked: str, env: dict[str, str], says: str, bus: Bus, nats_server: TestServer, tmp_path: Any
) -> None:
    program = (
        "import sys\n"
        f"if {blocked!r}: sys.modules[{blocked!r}] = None\n"
        "from admittance.runtime.process.service_process import run_service\n"
        "from admittance.telemetry import SERVICE\n"
        "sys.exit(run_service(SERVICE))\n"
    )
    given = {**os.environ, **variables(nats_server.url, tmp_path, "t"), **env}
    done = await within(
        asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            env=given,
            timeout=60,
            check=False,
        )
    )
    assert done.returncode == 1
    [line] = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    assert says in line
