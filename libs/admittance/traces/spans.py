"""Spans of a workload's trace, as values.

`admittance.traces.builder` makes spans from facts; `admit trace` prints spans, and the telemetry
service exports them. Ids are hexadecimal text, as in a traceparent.
"""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import NamedTuple, TypeAlias

import msgspec

Attribute: TypeAlias = str | int | bool | tuple[str, ...]


class Kind(Enum):
    """The kind of a span in OpenTelemetry: a producer span begins with a message to another
    program, which works for the duration of the span."""

    INTERNAL = "internal"
    PRODUCER = "producer"


class Status(Enum):
    """The status of a span in OpenTelemetry."""

    UNSET = "unset"
    OK = "ok"
    ERROR = "error"


class LoggedFact(NamedTuple):
    """A message of the log. ``time``: when nats-server stored the message; ``traceparent``: the
    message's header of that name, "" without one.
    """

    sequence: int
    time: datetime
    subject: str
    data: bytes
    traceparent: str = ""


class SpanLink(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A link of a span to a related span of another trace. ``workload``: ``namespace/name`` of the
    workload with that trace.
    """

    trace_id: str
    span_id: str
    workload: str
    attributes: dict[str, Attribute] = {}


class SpanEvent(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Something that happened at one moment of a span."""

    name: str
    time: datetime
    attributes: dict[str, Attribute] = {}


class Span(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One span. ``parent_id``: the id of the span's parent in the same trace; "" if the span is the
    first of its trace. ``remote``: the span's parent is a span of the program that submitted the
    workload; that program sampled its span. A span with ``end`` None is still open.
    """

    name: str
    trace_id: str
    span_id: str
    parent_id: str = ""
    remote: bool = False
    kind: Kind = Kind.INTERNAL
    start: datetime
    end: datetime | None = None
    status: Status = Status.UNSET
    message: str = ""
    attributes: dict[str, Attribute] = {}
    events: tuple[SpanEvent, ...] = ()
    links: tuple[SpanLink, ...] = ()
