"""W3C trace context: one trace from the first publish through every service.

A message carries ``traceparent``; messages that follow from that message carry the same trace id
with another span id. Facts get no span objects, only the ``traceparent`` text (about 1 µs).
"""

from __future__ import annotations

from collections.abc import Mapping

from admittance.events.base import HEADER_TRACE
from admittance.events.span_ids import valid_traceparent
from admittance.runtime import chance


def start() -> str:
    """The traceparent of a new trace, marked as not sampled."""
    return f"00-{chance.token_hex(16)}-{chance.token_hex(8)}-00"


def extract(headers: Mapping[str, str] | None) -> str:
    """The traceparent of a message; "" if the message has none or a malformed one."""
    return valid_traceparent(headers.get(HEADER_TRACE, "")) if headers is not None else ""


def follow(context: str) -> str:
    """Returns the traceparent for a message that follows from another: same trace, new span id. For
    "" returns "".
    """
    if not context:
        return ""
    # Span ids need no secrecy, and unguessable bits cost more than the rest of a message.
    return f"{context[:36]}{chance.bits(64) or 1:016x}{context[52:]}"


def inject(headers: dict[str, str], context: str) -> dict[str, str]:
    """Adds `follow` of the context to the headers, unless the context is "", and returns the
    headers.
    """
    if context:
        headers[HEADER_TRACE] = follow(context)
    return headers


def trace_id(context: str) -> str:
    """The trace id of a traceparent: 32 hexadecimal digits."""
    return context[3:35]
