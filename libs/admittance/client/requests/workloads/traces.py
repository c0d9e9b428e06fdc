"""The trace of a workload, made from its facts on the log."""

from __future__ import annotations

from collections.abc import Sequence

from admittance.events import reasons
from admittance.events.requests.history import LogEntry
from admittance.traces.builder import TraceBuilder
from admittance.traces.spans import LoggedFact, Span


def newest_trace(entries: Sequence[LogEntry], namespace: str, name: str) -> list[Span]:
    """The spans of the newest workload of that name, made from its history; [] if the history has
    no facts about it. The result includes open spans.
    """
    builder = TraceBuilder(partial=True)
    spans: list[Span] = []
    for entry in entries:
        data = bytes(entry.data)
        spans += builder.feed(
            LoggedFact(entry.sequence, entry.time, entry.subject, data, entry.trace)
        )
    spans += builder.open_spans(namespace, name)
    of = [span for span in spans if "admittance.uid" in span.attributes]
    roots = [span for span in of if span.attributes["admittance.workload"] == name]
    if not roots:
        return []
    # A submission that was refused because the workload exists has a trace of its own.
    roots = [
        root for root in roots if root.attributes.get("admittance.reason") != reasons.ALREADY_EXISTS
    ] or roots
    kept = {max(roots, key=lambda root: root.start).span_id}
    # `spans` has no fixed order: ended spans come before their parents, open spans after them. So
    # the loop below searches for children until none is found.
    pending = [span for span in spans if span.span_id not in kept]
    family = [span for span in spans if span.span_id in kept]
    while inside := [span for span in pending if span.parent_id in kept]:
        family += inside
        kept |= {span.span_id for span in inside}
        pending = [span for span in pending if span.span_id not in kept]
    return family
