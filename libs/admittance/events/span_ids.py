"""Ids of traces and spans, derived from the workload's uid: every program that knows the workload
computes the same ids, and an export that is repeated gives the same spans.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Final

_TRACEPARENT: Final = re.compile(
    r"\A[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}\Z"
)


def valid_traceparent(text: str) -> str:
    """The text if it is a valid traceparent, otherwise ""."""
    return text if _TRACEPARENT.match(text) else ""


def first_traceparent(uid: str) -> str:
    """The traceparent of a workload that was submitted without one, not sampled."""
    return f"00-{trace_id_of(uid)}-{span_id_of(uid)}-00"


def with_span(traceparent: str, span_id: str) -> str:
    """The traceparent with its span id replaced, in the same trace; for "" returns ""."""
    return f"{traceparent[:36]}{span_id}{traceparent[52:]}" if traceparent else ""


def trace_id_of(uid: str) -> str:
    """The trace id of a workload that was submitted without a trace."""
    return _digest(f"trace/{uid}", 16)


def span_id_of(uid: str, *parts: str | int) -> str:
    """The id of a span in the trace of the workload; without ``parts``, the id of the span of the
    whole workload.
    """
    return _digest("/".join(("span", uid, *map(str, parts))), 8)


def check_span_id(uid: str, check: str, cycle: int) -> str:
    """The id of the span of a check in one cycle. Requests to the check's controller carry this id
    as the parent of the controller's own spans.
    """
    return span_id_of(uid, "check", check, cycle)


def run_span_id(uid: str, revision: int) -> str:
    """The id of the span of a job's run, which begins with the admission at ``revision``."""
    return span_id_of(uid, "run", revision)


def _digest(text: str, size: int) -> str:
    # A name that a program chose may contain a lone surrogate, which UTF-8 encodes only with
    # ``surrogatepass``.
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).hexdigest()
    # An id of only zeros is invalid in W3C Trace Context, so it is replaced by the number 1.
    return digest if digest.strip("0") else f"{1:0{2 * size}x}"
