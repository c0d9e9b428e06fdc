"""The spans of a trace as a table: a tree, with a bar for the time of each span."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from admittance.cli.show.variant_tree import BRANCH, LAST
from admittance.cli.support.output import Column, Table
from admittance.client.arguments.times import span as span_text
from admittance.client.errors import sentence
from admittance.traces.spans import Attribute, Span, SpanEvent

BAR: Final = "█"
MOMENT: Final = "│"
"""The bar of a span that took almost no time."""
GOES_ON: Final = "▶"
"""The last character of the bar of a span that has not ended."""
COLUMNS: Final = (
    Column("SPAN"),
    Column("AT", right=True),
    Column("TOOK", right=True),
    Column("TIME"),
    Column("DETAIL"),
    Column("SPANID", wide=True),
)


class Placed(NamedTuple):
    """A span at its place in the tree. ``mark``: the characters before the span's name that draw
    the branches of the tree.
    """

    mark: str
    span: Span


def tree_of(spans: Sequence[Span]) -> list[Placed]:
    """The spans in the order of the tree; spans of one parent in the order of their start times."""
    known = {span.span_id for span in spans}
    inside: dict[str, list[Span]] = {}
    for span in spans:
        inside.setdefault(span.parent_id if span.parent_id in known else "", []).append(span)
    for several in inside.values():
        several.sort(key=lambda child: (child.start, _number(child)))
    return [
        placed
        for root in inside.get("", ())
        for placed in (Placed("", root), *_below(root, inside, ""))
    ]


def _below(parent: Span, inside: Mapping[str, Sequence[Span]], indent: str) -> Iterator[Placed]:
    children = inside.get(parent.span_id, ())
    for number, child in enumerate(children):
        last = number == len(children) - 1
        yield Placed(f"{indent}{LAST if last else BRANCH}", child)
        yield from _below(child, inside, f"{indent}{'   ' if last else '│  '}")


def _number(span: Span) -> int:
    number = span.attributes.get("admittance.sequence", 0)
    return number if isinstance(number, int) else 0


def trace_table(placed: Sequence[Placed], now: datetime, width: int) -> Table:
    """The table of the spans; bars have ``width`` characters for the whole trace. ``now``: where
    the bars of open spans end."""
    begin = min(place.span.start for place in placed)
    end = max(place.span.end or max(now, place.span.start) for place in placed)
    whole = (end - begin).total_seconds()
    rows = []
    for mark, span in placed:
        start = (span.start - begin).total_seconds()
        took = ((span.end or end) - span.start).total_seconds()
        row = (
            f"{mark}{span.name}",
            duration(start),
            duration(took),
            bar(start, took, whole, width, is_open=span.end is None),
            detail(span),
            span.span_id,
        )
        rows.append(row)
    return Table(COLUMNS, rows)


def bar(start: float, took: float, whole: float, width: int, *, is_open: bool = False) -> str:
    """The bar of a span in a trace of ``whole`` seconds, which is ``width`` characters long."""
    scale = (width - 1) / whole if whole > 0 else 0.0
    first, last = round(start * scale), round((start + took) * scale)
    end = GOES_ON if is_open else BAR
    line = BAR * (last - first) + end if last > first or is_open else MOMENT
    return f"{' ' * first}{line}"


def duration(seconds: float) -> str:
    """A duration with as many digits as matter: ``12ms``, ``4.2s``, ``5m10s``."""
    if seconds < 0.0005:
        return "0s"
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 10:
        return f"{seconds:.1f}".removesuffix(".0") + "s"
    return span_text(seconds)


def detail(span: Span) -> str:
    """What a span is about, and how it ended, in one line."""

    def get(name: str) -> str:
        return _text(span.attributes.get(f"admittance.{name}"))

    flavors = get("flavors")
    why = sentence(get("reason"), get("message"))
    match span.name.split(" ")[0]:
        case "workload":
            end = "still open" if span.end is None else get("outcome")
            parts = [sentence(end, span.message), get("queue") and f"queue {get('queue')}"]
        case "variant":
            parts = [sentence(get("reason"), get("message"))]
        case "queue":
            parts = [why or _last(span.events, "pending")]
        case "attempt":
            parts = [sentence(get("outcome"), why), flavors, _preempts(get("preempts"))]
        case "reservation":
            cycle = get("cycle")
            parts = [get("cluster_queue"), flavors, cycle and f"cycle {cycle}"]
        case "check":
            later = get("requeue_after")
            parts = [sentence(get("outcome") or _last(span.events, "reported"), why)]
            parts += [later and f"again after {later}"]
        case "capacity":
            parts = [sentence(get("outcome"), why), get("provisioning_class")]
            parts += [f"attempt {get('attempt')}"]
        case "admission":
            parts = [get("cluster_queue"), flavors, get("variant") and f"variant {get('variant')}"]
        case "eviction":
            parts = [sentence(get("underlying_cause") or get("reason"), get("message"))]
        case "run":
            parts = [span.message, *(_ready(event, span.start) for event in span.events)]
        case _:
            parts = [why]
    return ", ".join(part for part in parts if part)


def _text(value: Attribute | None) -> str:
    if value is None:
        return ""
    return " ".join(value) if isinstance(value, tuple) else str(value)


def _preempts(victims: str) -> str:
    return f"preempts {victims}" if victims else ""


def _last(events: Sequence[SpanEvent], name: str) -> str:
    """Reason and message of the last of a span's events that has that name."""
    attributes = next((event.attributes for event in reversed(events) if event.name == name), {})
    first = _text(attributes.get("admittance.reason") or attributes.get("admittance.state"))
    return sentence(first, _text(attributes.get("admittance.message")))


def _ready(event: SpanEvent, start: datetime) -> str:
    if event.name != "pods_ready":
        return ""
    return f"ready after {duration((event.time - start).total_seconds())}"
