"""The telemetry service on the bus: reads facts from the log, makes spans of them, and exports the
spans."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import structlog

from admittance.events.requests.services import HealthReply
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.puller import Delivery
from admittance.runtime.errors import AdmittanceError, SetupError
from admittance.runtime.process import health
from admittance.runtime.process.admin import show_metrics
from admittance.runtime.process.settings import Settings
from admittance.runtime.tasks import cancel_and_wait, first_of, task_group
from admittance.runtime.telemetry.findings import report_findings
from admittance.runtime.telemetry.object_faults import faults
from admittance.telemetry.log_reader import LogReader, logged_fact
from admittance.telemetry.open_traces import OpenTraces
from admittance.telemetry.span_metrics import SpanMetrics
from admittance.telemetry.variables import NEEDED, why_disabled
from admittance.traces.spans import Span

if TYPE_CHECKING:
    from admittance.telemetry.exporter import OtlpExport

SERVICE: Final = "telemetry"
PAUSE_SECONDS: Final = 0.2
"""Seconds between two reads of the log when no fact is left unread. Traces may arrive late, and
more frequent reads would delay the other services of the process."""

log = structlog.get_logger()


async def run(bus: Bus, settings: Settings, *, stop: asyncio.Event) -> None:
    """Exports traces until ``stop`` is set. Raises SetupError if the OpenTelemetry SDK is not
    installed, or if a variable of the SDK is wrong."""
    metrics = SpanMetrics()
    work: TraceExporter | None = None
    if why := why_disabled(os.environ):
        log.warning("no_traces_exported", reason=why)
    else:
        work = TraceExporter(bus, settings, _export(metrics))

    def answer() -> HealthReply:
        if work is not None:
            return work.health()
        details = {"disabled": why}
        return HealthReply(service=SERVICE, instance=settings.instance, ready=True, details=details)

    shown = metrics.metrics(
        lambda: work.reader.lag if work is not None else 0,
        lambda: len(work.traces) if work is not None else 0,
    )
    async with (
        show_metrics(settings, *shown),
        health.answer_queries(bus, SERVICE, settings.instance, answer),
    ):
        if work is None:
            await stop.wait()
        else:
            await work.run(stop)


def _export(metrics: SpanMetrics) -> OtlpExport:
    try:
        from admittance.telemetry.exporter import OtlpExport
    except ImportError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        raise SetupError(NEEDED) from None
    return OtlpExport(metrics)


class TraceExporter:
    """Reads the log, and gives the finished spans of sampled workloads to the export."""

    def __init__(self, bus: Bus, settings: Settings, export: OtlpExport) -> None:
        self.reader = LogReader(bus, settings.instance)
        self.traces = OpenTraces(export.is_sampled, self.reader.history)
        self._instance = settings.instance
        self._export = export

    def health(self) -> HealthReply:
        """The answer of the telemetry service to a health request."""
        reader = self.reader
        return HealthReply(
            service=SERVICE,
            instance=self._instance,
            ready=not reader.trouble,
            lag=reader.lag,
            details={
                **({"stands by for": reader.reader} if reader.reader else {}),
                **health.trouble_details(reader.trouble),
            },
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Reads the log and exports traces until ``stop`` is set."""
        working = asyncio.create_task(self._work(), name="traces")
        try:
            with report_findings(self._export.findings):
                await first_of(working, event=stop)
            if working.done():
                working.result()
        finally:
            with suppress(Exception):
                await cancel_and_wait(working)
            await self._export.close()
            self.reader.acknowledge(self._export.finished)
            await self.reader.close()

    async def _work(self) -> None:
        async with task_group() as tasks:
            tasks.create_task(self._acknowledge(), name="acknowledging")
            tasks.create_task(self._read(), name="reading")

    async def _spans(self, delivery: Delivery) -> list[Span]:
        """The spans that end with a fact. A fact that raises an exception by a bug has none."""
        try:
            return await self.traces.read(logged_fact(delivery))
        except AdmittanceError:
            raise
        except Exception as error:
            faults.record(SERVICE, "make spans", f"fact {delivery.subject}", error)
            return []

    async def _acknowledge(self) -> None:
        while True:
            await self._export.progress.wait()
            self.reader.acknowledge(self._export.finished)

    async def _read(self) -> None:
        while True:
            for delivery in await self.reader.batch():
                for span in await self._spans(delivery):
                    await self._export.put(span)
                self.reader.made_spans(delivery, self._export.queued)
            self.reader.acknowledge(self._export.finished)
            if not self.reader.lag:
                await asyncio.sleep(PAUSE_SECONDS)
