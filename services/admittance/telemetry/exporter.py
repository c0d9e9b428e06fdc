"""Sends finished spans to an OTLP receiver with the OpenTelemetry SDK, in a thread of the SDK.

The SDK reads its own variables (``OTEL_…``): sampler, resource, batches and receiver. Spans that
the receiver does not take are dropped and counted: a receiver that hangs or refuses delays nothing
but the export.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from admittance.events.shapes import Finding
from admittance.runtime.errors import SetupError
from admittance.runtime.process.settings import whole_number
from admittance.runtime.tasks import set_within
from admittance.runtime.telemetry.findings import OK, WRONG
from admittance.telemetry.otlp_spans import is_sampled, sdk_span
from admittance.telemetry.span_metrics import NOT_TAKEN, QUEUE_FULL, SpanMetrics
from admittance.telemetry.variables import endpoint, without_secrets
from admittance.traces.spans import Span

QUEUE_SIZE: Final = 2048
"""The most spans that wait for the export, unless OTEL_BSP_MAX_QUEUE_SIZE sets another number."""
PATIENCE_SECONDS: Final = 15.0
"""Seconds after which an export request counts as failed. The SDK ends a request after
OTEL_EXPORTER_OTLP_TIMEOUT (10 s), but not if the receiver answers slowly, byte by byte."""
FLUSH_SECONDS: Final = 1.0
"""Longest wait in seconds for the last export when the telemetry service ends."""

RECEIVER: Final = "receiver of traces"

log = structlog.get_logger()


class OtlpExport:
    """The export of spans by one process. ``queued``: how many spans were put into the queue of the
    SDK. ``progress``: an event that is set for a moment after each request to the receiver. Raises
    SetupError if a variable of the SDK is wrong.
    """

    def __init__(self, metrics: SpanMetrics) -> None:
        self.queued = 0
        self.progress = asyncio.Event()
        self.metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._most = whole_number(os.environ, "OTEL_BSP_MAX_QUEUE_SIZE", QUEUE_SIZE, least=1)
        self._sender = _Sender(metrics, endpoint(os.environ), self._on_request_ended)
        with _SdkLog() as said:
            provider = TracerProvider(shutdown_on_exit=False)
            try:
                self._sender.exporter = OTLPSpanExporter()
                self._processor = BatchSpanProcessor(self._sender, max_queue_size=self._most)
            except (ValueError, OSError) as error:
                reason = without_secrets(str(error), os.environ)
                raise SetupError(f"a variable OTEL_… is wrong: {reason}") from None
        for line in said.lines:
            log.warning("otel_variable_ignored", reason=line)
        self._sampler = provider.sampler
        self._resource = _named(provider.resource)

    @property
    def finished(self) -> int:
        """How many spans, counted from the first queued one, the receiver has taken or refused."""
        return self._sender.finished

    def is_sampled(self, trace_id: str, parent_id: str) -> bool:
        """Whether the sampler of OTEL_TRACES_SAMPLER chooses the trace; see `is_sampled`."""
        return is_sampled(self._sampler, trace_id, parent_id)

    async def put(self, span: Span) -> None:
        """Queues the span. Waits for a place in the queue while the receiver takes spans, and drops
        the span if the receiver does not."""
        while self._is_full():
            if not self._sender.failing and not await set_within(self.progress, PATIENCE_SECONDS):
                self._sender.failed(f"no answer for {PATIENCE_SECONDS:g} s")
            if self._sender.failing and self._is_full():
                self.metrics.dropped.add((QUEUE_FULL,))
                return
        self.queued += 1
        self._processor.on_end(sdk_span(span, self._resource))

    def _is_full(self) -> bool:
        return self.queued - self.finished >= self._most

    def _on_request_ended(self) -> None:
        """The thread of the SDK calls this function after each request to the receiver."""

        def pulse() -> None:
            self.progress.set()
            self.progress.clear()

        # A RuntimeError means that the event loop has ended.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(pulse)

    def findings(self) -> list[Finding]:
        """The finding for `admit doctor`: whether the receiver takes spans."""
        why = self._sender.failing
        counts = f"{self.metrics.sent:,} spans exported, {self.metrics.lost:,} lost"
        if not why:
            fault = f"{self._sender.where}: {counts}"
            return [Finding(state=OK, what=RECEIVER, found=fault)]
        return [
            Finding(
                state=WRONG,
                what=RECEIVER,
                found=f"{self._sender.where} takes no spans: {why}; {counts}",
                todo="start the receiver, or correct the variables OTEL_EXPORTER_OTLP_… of the "
                "telemetry service: docs/traces.md#exporting",
            )
        ]

    async def close(self) -> None:
        """Sends the queued spans; gives up after a second. A request that hangs is abandoned; the
        thread of that request does not keep the process alive."""
        done = asyncio.Event()

        def end() -> None:
            self._processor.shutdown()  # type: ignore[no-untyped-call]
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(done.set)

        threading.Thread(target=end, name="last spans", daemon=True).start()
        if not await set_within(done, FLUSH_SECONDS):
            log.warning("spans_not_sent", waiting=self.queued - self.finished)
        self._sender.closed = True


class _Sender(SpanExporter):
    """Counts exported and dropped spans, and logs when the receiver begins or ceases to take spans.
    The SDK calls `export` in its thread, one call after another.
    """

    def __init__(
        self, metrics: SpanMetrics, where: str, on_request_ended: Callable[[], None]
    ) -> None:
        self.exporter: SpanExporter | None = None
        self.finished = 0
        self.failing = ""
        """Why the receiver takes no spans; empty if the receiver takes spans."""
        self.where = where
        self.closed = False
        """Whether the telemetry service has ended: spans that were not sent are made again from the
        log at the next start."""
        self._metrics = metrics
        self._on_request_ended = on_request_ended

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        assert self.exporter is not None
        with _SdkLog() as said:
            try:
                result = self.exporter.export(spans)
            except Exception as error:
                result = SpanExportResult.FAILURE
                said.add(repr(error))
        if self.closed:
            return result
        if result is SpanExportResult.SUCCESS:
            self._metrics.exported.add((), len(spans))
            self._taken()
        else:
            self._metrics.failures.add(())
            self._metrics.dropped.add((NOT_TAKEN,), len(spans))
            self.failed(said.reason)
        self.finished += len(spans)
        self._on_request_ended()
        return result

    def failed(self, reason: str) -> None:
        """Logs that the receiver takes no spans, unless it took none before."""
        if not self.failing:
            log.warning("spans_not_taken", receiver=self.where, reason=reason)
        self.failing = reason

    def _taken(self) -> None:
        if self.failing:
            self.failing = ""
            log.info("spans_taken_again", receiver=self.where, lost=self._metrics.lost)

    def shutdown(self) -> None:
        if self.exporter is not None:
            self.exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:  # noqa: ARG002
        return True


class _SdkLog(logging.Handler):
    """Collects the log lines of the SDK while the context is active; they are never printed."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.add(record.getMessage())

    def add(self, text: str) -> None:
        """Adds a line, in which no secret of the variables is left."""
        self.lines.append(without_secrets(" ".join(text.split()), os.environ))

    @property
    def reason(self) -> str:
        """Why a request to the receiver failed: the SDK's first log line, which names the error
        after which the SDK tried again."""
        return self.lines[0] if self.lines else "no reason given"

    def __enter__(self) -> _SdkLog:
        logger = logging.getLogger("opentelemetry")
        logger.propagate = False
        logger.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("opentelemetry").removeHandler(self)


def _named(resource: Resource) -> Resource:
    """The resource with the service name "admittance", unless a variable names the service."""
    if str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
        return resource.merge(Resource({SERVICE_NAME: "admittance"}))
    return resource
