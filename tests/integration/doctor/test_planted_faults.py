"""`admit doctor` names each planted fault with what to do, and nothing once the fault is gone.

All faults of the table are planted at the same time on one real nats-server, and examined once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import msgspec
import pytest
import pytest_asyncio

from admittance.client.requests.link import Link
from admittance.doctor import consumer_progress
from admittance.doctor.examination import Options, examine
from admittance.doctor.finding import NOTE, OK, WRONG
from admittance.doctor.processes import consumers
from admittance.events import subjects
from admittance.events.requests.services import HealthReply, TimersReply
from admittance.events.shapes import Finding
from admittance.runtime import clock
from admittance.runtime.bus import streams
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.nats import micro
from admittance.runtime.telemetry import findings
from admittance.services import SERVICES
from admittance.telemetry.exporter import RECEIVER, OtlpExport
from admittance.telemetry.span_metrics import SpanMetrics
from admittance.traces.spans import Span
from support.programs.prometheus import a_free_port
from support.servers import ConfiguredServer, until

pytestmark = [pytest.mark.bus, pytest.mark.asyncio(loop_scope="module")]

CONSUMER = "runner-gone"
MISSING = "provisioning-check"
"""A service that no test here starts."""


class Fault(NamedTuple):
    """A fault of the table, and how `admit doctor` shows it. ``todo``: a part of what to do."""

    name: str
    state: str
    what: str
    found: str
    todo: str


FAULTS = [
    Fault(
        "stream misconfigured",
        WRONG,
        "stream ADMITTANCE",
        "duplicate_window is 60000000000, 120000000000 is needed",
        "restart the workload-controller",
    ),
    Fault(
        "runner gone",
        NOTE,
        f"consumer {CONSUMER}",
        "1 not read, 0 not acknowledged; its runner is away for",
        "`admit delete runner gone` removes this line",
    ),
    Fault(
        "clock of a machine is behind", WRONG, "clock of scheduler", "s-late is 5", "synchronise it"
    ),
    Fault(
        "clock of a machine is ahead",
        WRONG,
        "clock of provider-pool",
        "ahead of nats-server's clock",
        "synchronise it",
    ),
    Fault("disk nearly full", WRONG, "disk of the runner", ": nearly full", "make space"),
    Fault(
        "sync not always",
        NOTE,
        "durability of planted",
        "sync_interval: 10 s: a power",
        "sync_interval: alw",
    ),
    Fault(
        "schedule missing",
        WRONG,
        "timers",
        "3 wanted, 0 not set yet, 0 repaired",
        "sets them again",
    ),
    Fault(
        "two leaders",
        WRONG,
        "domain cohort-lab",
        "2 instances say that they lead it: s-late, s-other",
        "restart the instance that the last epoch does not name",
    ),
    Fault(
        "two processes with one name",
        WRONG,
        "variant-controller",
        "2 processes have the instance name v",
        "ADMIT_INSTANCE",
    ),
    Fault("lag", WRONG, "workload-controller", "50,000 behind", "the-log-is-not-applied"),
    Fault(
        "replicas fewer than asked",
        WRONG,
        "replicas",
        "workload-controller asks for 3 (ADMIT_REPLICAS), but ADMITTANCE_TIMERS has 1",
        "start 3 servers as one cluster",
    ),
    Fault(
        "server of the cluster away",
        WRONG,
        "server nats://127.0.0.1:1",
        "does not answer",
        "start nats-server there",
    ),
    Fault(
        "metrics address taken",
        WRONG,
        "admin port",
        "taken by another program (status 501)",
        "ss -ltnp",
    ),
    Fault("metrics not served", WRONG, "admin port 127.0.0.1:1", "no process serves it", "--admin"),
    Fault(
        "monitoring port not served",
        WRONG,
        "monitor http://127.0.0.1:1",
        "no answer",
        "start the server",
    ),
    Fault(
        "exporter not answering",
        WRONG,
        RECEIVER,
        "http://127.0.0.1:1 takes no spans",
        "start the receiver",
    ),
    Fault(
        "instances without a leader",
        WRONG,
        "retry-timer",
        "sees no leader",
        "restart this instance",
    ),
    Fault("service missing", WRONG, MISSING, "no instance answers", f"admit serve {MISSING}"),
]


class Planted(NamedTuple):
    """The findings of `examine` with all faults, and after they were removed."""

    broken: list[Finding]
    mended: list[Finding]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def planted(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Planted]:
    folder = tmp_path_factory.mktemp("doctor")
    monitor = a_free_port()
    server = ConfiguredServer(
        folder,
        f'server_name: planted\nhttp: "127.0.0.1:{monitor}"\n'
        'jetstream { store_dir: "STORE", sync_interval: "10s" }\n',
    )
    await server.start()
    bus = await Bus.connect(server.url(), name="test")
    try:
        await streams.ensure(bus)
        with pytest.MonkeyPatch.context() as patch:
            async with _faults(bus, folder, patch) as taken:
                away = f"{server.url()},nats://127.0.0.1:1"
                options = Options(
                    away,
                    tls_first=False,
                    monitors=[f"http://127.0.0.1:{monitor}", "http://127.0.0.1:1"],
                    admin_ports=[f"127.0.0.1:{taken}", "127.0.0.1:1"],
                )
                link = Link(bus, shown_url=away, namespace="default", has_login=False)
                broken = (await examine(link, options, SERVICES)).findings
        mended = (await examine(link, Options(server.url()), SERVICES)).findings
        yield Planted(broken, mended)
    finally:
        await bus.close()
        server.stop()


@asynccontextmanager
async def _faults(bus: Bus, folder: Path, patch: pytest.MonkeyPatch) -> AsyncIterator[int]:
    """Plants all faults; yields the port that a foreign program serves."""
    config = (await bus.api(f"STREAM.INFO.{subjects.STREAM}"))["config"]
    async with AsyncExitStack() as stack:
        # A stream misconfigured.
        changed = {**config, "duplicate_window": 60 * streams.SECOND}
        await bus.api(f"STREAM.UPDATE.{subjects.STREAM}", changed)
        stack.push_async_callback(bus.api, f"STREAM.UPDATE.{subjects.STREAM}", config)
        # A consumer that no program reads.
        durable = {"durable_name": CONSUMER, "name": CONSUMER, "ack_policy": "explicit"}
        asked = {"stream_name": subjects.STREAM, "config": durable}
        await bus.api(f"CONSUMER.CREATE.{subjects.STREAM}.{CONSUMER}", asked)
        stack.push_async_callback(bus.api, f"CONSUMER.DELETE.{subjects.STREAM}.{CONSUMER}")
        await bus.publish(Outgoing("admit.workload.submitted.ns.w", b"{}"))
        for module in (consumers, consumer_progress):
            patch.setattr(module, "STUCK_SECONDS", 0.0)
        # Services that answer with a fault.
        minute = timedelta(seconds=59)
        await stack.enter_async_context(
            _answering(
                bus,
                [
                    _alive("scheduler", "s-late", leads=("cohort-lab",), behind=minute),
                    _alive("scheduler", "s-other", leads=("cohort-lab",)),
                    _alive("provider-pool", "p", behind=-minute),
                    _alive("variant-controller", "v"),
                    _alive("variant-controller", "v"),
                    _alive("workload-controller", "w", lag=50_000, replicas=3),
                    _alive("retry-timer", "r", details={"leader": "none"}),
                ],
            )
        )
        # A service that reports its own machine, and a retry-timer with lost schedules.
        patch.setattr(findings, "FREE_MIN", 1 << 60)
        stack.enter_context(
            findings.report_findings(partial(findings.disk_findings, "disk of the runner", folder))
        )
        # An exporter without an answer of its receiver.
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
        patch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
        patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
        export = OtlpExport(SpanMetrics())
        stack.push_async_callback(export.close)
        await export.put(Span(name="x", trace_id="1" * 32, span_id="2" * 16, start=clock.now()))
        await until(lambda: export.finished == 1)
        stack.enter_context(findings.report_findings(export.findings))
        serving = await micro.serve(
            bus.nc,
            "runner",
            "one",
            {"admit.api.timers": _timers},
            every_instance={"admit.api.health": _healthy},
        )
        stack.push_async_callback(serving.stop)
        yield stack.enter_context(ForeignProgram()).server_port


def _alive(
    service: str, instance: str, *, behind: timedelta = timedelta(0), **more: Any
) -> partial[HealthReply]:
    def reply() -> HealthReply:
        return HealthReply(
            service=service, instance=instance, ready=True, time=clock.now() - behind, **more
        )

    return partial(reply)


@asynccontextmanager
async def _answering(bus: Bus, replies: Iterable[partial[HealthReply]]) -> AsyncIterator[None]:
    async def answer(message: Any) -> None:
        for reply in replies:
            await message.respond(msgspec.json.encode(reply()))

    subscription = await bus.nc.subscribe("admit.api.health", cb=answer)
    try:
        yield
    finally:
        await subscription.unsubscribe()


async def _timers(_: bytes, __: str) -> TimersReply:
    return TimersReply(wanted=3, compared=clock.now())


async def _healthy(_: bytes, __: str) -> HealthReply:
    return HealthReply(service="runner", instance="one", ready=True)


class ForeignProgram(HTTPServer):
    """A program that is not Admittance, on a port of this machine."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), BaseHTTPRequestHandler)

    def __enter__(self) -> ForeignProgram:
        Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
async def test_doctor_names_a_planted_fault(planted: Planted, fault: Fault) -> None:
    shown = [finding for finding in planted.broken if _shows(finding, fault)]
    assert len(shown) == 1, "\n".join(map(str, planted.broken))
    if fault.what != MISSING:
        assert not [finding for finding in planted.mended if _shows(finding, fault)]


def _shows(finding: Finding, fault: Fault) -> bool:
    return (
        finding.state == fault.state
        and finding.what.startswith(fault.what)
        and fault.found in finding.found
        and fault.todo in finding.todo
    )


async def test_every_wrong_finding_says_what_to_do(planted: Planted) -> None:
    assert [
        finding for finding in planted.broken if finding.state == WRONG and not finding.todo
    ] == []


async def test_nothing_but_missing_services_is_left_after_the_faults(planted: Planted) -> None:
    wrong = {finding.what for finding in planted.mended if finding.state == WRONG}
    services = {"workload-controller", "scheduler", "retry-timer"}
    services |= {"variant-controller", "array-controller"}
    assert wrong == {*services, MISSING}
    assert OK in {finding.state for finding in planted.mended if finding.what == "clocks"}
