"""The open spans of one trace, and the spans that are finished but not fetched yet."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from admittance.traces.spans import (
    Attribute,
    Kind,
    LoggedFact,
    Span,
    SpanEvent,
    SpanLink,
    Status,
)

EVENTS_MAX: Final = 100
"""The most events that one span keeps; later events of the span are only counted."""
LINKS_MAX: Final = 100
LIST_MAX: Final = 100
"""The most elements of an attribute that is a list."""
TEXT_MAX: Final = 500
"""The most characters of a text from a fact."""


class OpenSpan:
    """A span that can still change. ``children``: the open child spans of this span."""

    __slots__ = (
        "attributes",
        "children",
        "dropped",
        "ended",
        "events",
        "kind",
        "links",
        "name",
        "parent",
        "parent_id",
        "remote",
        "span_id",
        "start",
    )

    def __init__(self, name: str, span_id: str, start: datetime, kind: Kind) -> None:
        self.name = name
        self.span_id = span_id
        self.start = start
        self.kind = kind
        self.parent: OpenSpan | None = None
        self.parent_id = ""
        self.remote = False
        self.attributes: dict[str, Attribute] = {}
        self.events: list[SpanEvent] = []
        self.dropped = 0
        self.ended = False
        self.links: list[SpanLink] = []
        self.children: list[OpenSpan] = []

    def set(self, **given: Attribute | None) -> OpenSpan:
        """Sets attributes ``admittance.<name>`` of the span; leaves out empty values."""
        for name, attribute in given.items():
            if attribute not in (None, "", ()):
                self.attributes[f"admittance.{name}"] = clipped(attribute)
        return self


class Recorder:
    """The spans of one trace. ``now``: the time of the newest fact; it never goes back, so no span
    ends before it begins. ``sequence``: the newest fact of the trace that was recorded.
    """

    def __init__(self, trace_id: str, now: datetime) -> None:
        self.trace_id = trace_id
        self.now = now
        self.sequence = 0
        self._finished: list[Span] = []

    def fetch(self) -> list[Span]:
        """The spans that ended since the last call."""
        finished, self._finished = self._finished, []
        return finished

    def open(
        self, name: str, span_id: str, parent: OpenSpan | None, kind: Kind = Kind.INTERNAL
    ) -> OpenSpan:
        """Begins a span at the time of the newest fact, as a child of ``parent``."""
        span = OpenSpan(name, span_id, self.now, kind)
        if parent is not None:
            span.parent, span.parent_id = parent, parent.span_id
            parent.children.append(span)
        return span

    def close(self, span: OpenSpan, status: Status = Status.UNSET, message: str = "") -> None:
        """Ends the open children of the span, then the span, at the time of the newest fact."""
        for child in [*span.children]:
            self.close(child)
        if span.parent is not None:
            span.parent.children.remove(span)
        span.ended = True
        self._finished.append(self.span_of(span, self.now, status, message))

    def close_between(self, span: OpenSpan, start: datetime, end: datetime) -> None:
        """Ends a span at a time in the past; start and end are limited to the time between the
        start of the parent span and the newest fact.
        """
        least = span.parent.start if span.parent is not None else span.start
        span.start = min(max(start, least), self.now)
        now, self.now = self.now, min(max(end, span.start), self.now)
        self.close(span)
        self.now = now

    def link(self, span: OpenSpan, link: SpanLink | None) -> None:
        """Adds a link to the span, unless the link is None."""
        if link is not None and len(span.links) < LINKS_MAX and link not in span.links:
            span.links.append(link)

    def event(self, span: OpenSpan, name: str, **given: Attribute | None) -> None:
        """Adds an event to the span, at the time of the newest fact."""
        if len(span.events) >= EVENTS_MAX:
            span.dropped += 1
            return
        attributes = {
            f"admittance.{key}": clipped(attribute)
            for key, attribute in given.items()
            if attribute not in (None, "", ())
        }
        span.events.append(SpanEvent(name=name, time=self.now, attributes=attributes))

    def span_of(
        self, span: OpenSpan, end: datetime | None, status: Status = Status.UNSET, message: str = ""
    ) -> Span:
        """The span as a value; with ``end`` None the span is still open."""
        if span.dropped:
            span.set(dropped_events=span.dropped)
        return Span(
            name=span.name,
            trace_id=self.trace_id,
            span_id=span.span_id,
            parent_id=span.parent_id,
            remote=span.remote,
            kind=span.kind,
            start=span.start,
            end=end,
            status=status,
            message=message[:TEXT_MAX],
            attributes=dict(span.attributes),
            events=tuple(span.events),
            links=tuple(span.links),
        )


def clipped(attribute: Attribute) -> Attribute:
    """The attribute with texts and lists of limited length. A number of more than 64 bits becomes a
    text, since exporters cannot send it."""
    if isinstance(attribute, tuple):
        return tuple([text[:TEXT_MAX] for text in attribute[:LIST_MAX]])
    if isinstance(attribute, int) and not -(2**63) <= attribute < 2**63:
        attribute = str(attribute)
    return attribute[:TEXT_MAX] if isinstance(attribute, str) else attribute


def messaging(fact: LoggedFact, kind: Kind) -> Mapping[str, Attribute]:
    """The attributes of OpenTelemetry's conventions for the message that begins a span."""
    return {
        "messaging.system": "nats",
        "messaging.operation.type": "send" if kind is Kind.PRODUCER else "process",
        "messaging.destination.name": fact.subject,
        "messaging.destination.template": template_of(fact.subject),
        "admittance.sequence": fact.sequence,
    }


def template_of(subject: str) -> str:
    """The subject with placeholders, so that few different values occur."""
    match subject.split("."):
        case ["admit", "workload", what, _, _]:
            return f"admit.workload.{what}.{{namespace}}.{{name}}"
        case ["admit", "check", what, _, _, _]:
            return f"admit.check.{what}.{{controller}}.{{namespace}}.{{name}}"
        case ["admit", "provisioning", what, _, _, _]:
            return f"admit.provisioning.{what}.{{class}}.{{namespace}}.{{name}}"
        case ["admit", "user", _, what, _, _]:
            return f"admit.user.{{user}}.{what}.{{namespace}}.{{name}}"
        case ["admit", "timer", "due", _, _, _]:
            return "admit.timer.due.{kind}.{namespace}.{name}"
    return "admit"
