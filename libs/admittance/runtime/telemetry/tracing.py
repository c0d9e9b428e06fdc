"""W3C trace context: one trace from the first publish through every service.

A message carries ``traceparent``; what follows from it carries the same trace id with a span id of
its own. No span object is made for a fact: a string is passed through (about 1 µs). `tracer` is the
seam for real spans of opentelemetry-sdk, for whoever configures an exporter.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from admittance.events.base import HEADER_TRACE
from admittance.runtime import chance

if TYPE_CHECKING:
    from opentelemetry import trace

_FORM: Final = re.compile(
    r"\A[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}\Z"
)


def start() -> str:
    """A traceparent of a new trace, marked as not sampled."""
    return f"00-{chance.token_hex(16)}-{chance.token_hex(8)}-00"


def extract(headers: Mapping[str, str] | None) -> str:
    """The traceparent of a message; "" where it has none, or one that is not well formed."""
    found = headers.get(HEADER_TRACE, "") if headers else ""
    return found if _FORM.match(found) else ""


def follow(context: str) -> str:
    """What is said because of context: the same trace, a new span id. "" stays ""."""
    if not context:
        return ""
    # Span ids need no secrecy, and unguessable bits cost more than the rest of a message.
    return f"{context[:36]}{chance.bits(64) or 1:016x}{context[52:]}"


def inject(headers: dict[str, str], context: str) -> dict[str, str]:
    """Puts the successor of context into headers, and answers them; nothing for ""."""
    if context:
        headers[HEADER_TRACE] = follow(context)
    return headers


def trace_id(context: str) -> str:
    """The 32 hexadecimal digits to bind in log lines."""
    return context[3:35]


def tracer(service: str) -> trace.Tracer:
    """opentelemetry's tracer; does nothing until a provider with an exporter is set."""
    from opentelemetry import trace  # late: it is a third of what a short command imports

    return trace.get_tracer(f"admittance.{service}")
