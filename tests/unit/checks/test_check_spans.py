"""The span around the call of a check's function, in programs with and without OpenTelemetry."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import ProxyTracerProvider, StatusCode

from admittance.checks import AdmissionCheckController, Ready, Request, Verdict
from admittance.checks.controller import message_of

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CONTEXT = f"00-{TRACE}-{SPAN}-00"
ASKED: dict[str, Any] = {"namespace": "lab", "name": "train", "check": "budget", "cycle": 3}


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    # OpenTelemetry keeps the first provider that a program sets.
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    yield exporter
    provider.shutdown()


def budget(function: object) -> AdmissionCheckController:
    controller = AdmissionCheckController("example.com/budget")
    controller.check(function)  # type: ignore[type-var]
    return controller


def sent(request: Request, verdict: Verdict) -> dict[str, str]:
    message = message_of(
        "example.com/budget",
        request.reference,
        verdict,
        ordinal=1,
        secret=b"",
        span=request.span,
    )
    return dict(message.headers or {})


async def test_a_call_is_a_span_inside_the_span_of_the_check(spans: InMemorySpanExporter) -> None:
    def decide(request: Request) -> Verdict:
        with trace.get_tracer("mine").start_as_current_span("ask the ledger"):
            return Ready("within budget")

    request = Request(**ASKED, traceparent=CONTEXT)
    verdict = await budget(decide).judge(request)
    inner, outer = spans.get_finished_spans()
    assert (outer.name, inner.name) == ("judge budget", "ask the ledger")
    assert outer.parent is not None and inner.parent is not None
    assert (f"{outer.context.trace_id:032x}", f"{outer.parent.span_id:016x}") == (TRACE, SPAN)
    assert inner.parent.span_id == outer.context.span_id
    assert outer.attributes is not None
    assert outer.attributes["admittance.outcome"] == "Ready"
    assert verdict is not None
    assert sent(request, verdict)["traceparent"] == f"00-{TRACE}-{outer.context.span_id:016x}-01"


async def test_an_error_of_the_function_is_the_status_of_the_span(
    spans: InMemorySpanExporter,
) -> None:
    async def decide(request: Request) -> Verdict:
        raise RuntimeError("the ledger is away")

    with pytest.raises(RuntimeError):
        await budget(decide).judge(Request(**ASKED, traceparent=CONTEXT))
    [span] = spans.get_finished_spans()
    assert (span.status.status_code, span.events[0].name) == (StatusCode.ERROR, "exception")


async def test_a_request_without_a_trace_gets_a_verdict_without_a_span(
    spans: InMemorySpanExporter,
) -> None:
    async def decide(request: Request) -> Verdict:
        return Ready()

    request = Request(**ASKED)
    assert await budget(decide).judge(request) == Ready()
    assert (spans.get_finished_spans(), request.span) == ((), "")


async def test_an_api_without_an_sdk_passes_the_trace_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "get_tracer_provider", ProxyTracerProvider)
    seen: list[int] = []

    async def decide(request: Request) -> Verdict:
        seen.append(trace.get_current_span().get_span_context().trace_id)
        return Ready()

    request = Request(**ASKED, traceparent=CONTEXT)
    verdict = await budget(decide).judge(request)
    assert (seen, request.span) == ([int(TRACE, 16)], "")
    assert verdict is not None
    assert sent(request, verdict)["traceparent"].startswith(f"00-{TRACE}-")


def test_a_check_imports_no_opentelemetry_itself() -> None:
    program = (
        "import asyncio, sys\n"
        "from admittance.checks import AdmissionCheckController, Ready, Request\n"
        "check = AdmissionCheckController('example.com/budget')\n"
        "check.check(lambda request: Ready())\n"
        f"asyncio.run(check.judge(Request(name='w', check='b', traceparent='{CONTEXT}')))\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
