"""The answer of a simulation: what was, what becomes, and why."""

from __future__ import annotations

from typing import Final

import msgspec

from admittance.events.requests.manifests import Applied
from admittance.events.requests.whatif import (
    Counts,
    SimulatedState,
    SimulateReply,
    WouldBeEvicted,
    WouldStart,
    WouldWait,
)
from admittance.events.shapes import Admission
from admittance.web.paths import workload_path
from admittance.web.views.words import Link, Word
from admittance.web.views.workload import Part

ROWS_MAX: Final = 100
"""The most rows of each list."""
NOTHING: Final = "Nothing would start, wait or be evicted that does not do so anyway."
NAMED_MAX: Final = 3
WITH: Final = "With this change "
UNCHANGED: Final = " Nothing has been changed."


class DiffRow(msgspec.Struct, frozen=True, kw_only=True):
    """A workload of a group: how it is without the change, and how it becomes."""

    id: str
    name: Link
    namespace: str
    before: str
    after: Word
    why: str


class DiffGroup(msgspec.Struct, frozen=True, kw_only=True):
    """One of the lists. ``count``: of all its workloads; ``more``: how many are left out, and why;
    "": none."""

    id: str
    word: Word
    count: int
    rows: tuple[DiffRow, ...]
    more: str


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a simulation. ``took``: how long the answer took; ``notes``: warnings;
    ``cut``: the simulation ended at its limit."""

    say: tuple[Part, ...]
    groups: tuple[DiffGroup, ...]
    took: str
    notes: tuple[str, ...] = ()
    cut: bool = False


def result_of(reply: SimulateReply, seconds: float) -> Result:
    """The outcome of a simulation that took ``seconds``."""
    counts = reply.counts
    groups = (
        _group(
            "evicted",
            Word("Would be evicted", "evicting"),
            counts.evictions,
            [_evicted(row) for row in reply.evictions],
        ),
        _group(
            "starts",
            Word("Would start", "running"),
            counts.starts,
            [_starts(row) for row in reply.starts],
        ),
        _group(
            "waits",
            Word("Would wait", "pending"),
            counts.waits,
            [_waits(row) for row in reply.waits],
        ),
    )
    notes = [line for applied in reply.results for line in _notes(applied)]
    return Result(
        say=say(counts),
        groups=tuple(group for group in groups if group.count),
        took=f"{seconds:.1f} s",
        notes=(*notes, *reply.warnings),
        cut=not reply.settled,
    )


def say(counts: Counts) -> tuple[Part, ...]:
    """The sentence."""
    would = [
        f"{number:,} would {verb}"
        for number, verb in (
            (counts.evictions, "be evicted"),
            (counts.starts, "start"),
            (counts.waits, "wait"),
            (counts.gone, "be deleted"),
        )
        if number
    ]
    if not would:
        return (Part(f"{NOTHING}{UNCHANGED}"),)
    parts = [Part(WITH)]
    for place, text in enumerate(would):
        if place:
            parts.append(Part(" and " if place + 1 == len(would) else ", "))
        parts.append(Part(text, "bold"))
    others = counts.run + counts.reserved + counts.pending + counts.off
    stay = "1 other stays as it is" if others == 1 else f"{others:,} others stay as they are"
    return (*parts, Part(f". {stay}.{UNCHANGED}"))


def _notes(applied: Applied) -> list[str]:
    name = f"{applied.namespace}/{applied.name}" if applied.namespace else applied.name
    would = "would be refused: " if applied.outcome == "refused" else ""
    return [f"{applied.kind} {name}: {would}{line}" for line in applied.warnings]


def _group(group: str, word: Word, count: int, rows: list[DiffRow]) -> DiffGroup:
    kept = tuple(rows[:ROWS_MAX])
    left = max(0, count - len(kept))
    # The answer has the rows of the namespaces that the person may see, and counts all of them.
    where = "more" if len(kept) == ROWS_MAX else "in other namespaces"
    return DiffGroup(
        id=group, word=word, count=count, rows=kept, more=f"{left:,} {where}" if left else ""
    )


def _row(group: str, namespace: str, name: str, before: str, after: Word, why: str) -> DiffRow:
    return DiffRow(
        id=f"{group}-{namespace}-{name}",
        name=Link(name, workload_path(namespace, name)),
        namespace=namespace,
        before=before,
        after=after,
        why=why,
    )


def _evicted(row: WouldBeEvicted) -> DiffRow:
    had = "runs" if row.ran else "has quota"
    where = f" in {row.cluster_queue}" if row.cluster_queue else ""
    begin = "At once" if not row.after else f"After {_rounds(row.after)}"
    rule = f" ({row.rule})" if row.rule else ""
    cause = f"Preempted by {row.by}{rule}" if row.by else row.message or row.reason
    return _row(
        "evicted",
        row.namespace,
        row.name,
        f"{had}{where}",
        standing(row.then, "is deleted"),
        f"{begin}. {cause.rstrip('.')}.",
    )


def _starts(row: WouldStart) -> DiffRow:
    when = "At once"
    if row.after:
        when = f"After {_rounds(row.after)}"
    if row.preempts:
        more = len(row.preempts) - NAMED_MAX
        names = ", ".join(row.preempts[:NAMED_MAX])
        names += f" and {more} more" if more > 0 else ""
        when = f"Once {names} {'has' if len(row.preempts) == 1 else 'have'} stopped"
    checks = f" Its checks must be Ready before: {', '.join(row.checks)}." if row.checks else ""
    again = "Again, " + when[0].lower() + when[1:] if row.again else when
    return _row(
        "starts",
        row.namespace,
        row.name,
        standing(row.otherwise, "does not exist").text,
        Word(f"runs on {flavors(row.admission)}", "running")
        if not row.checks
        else Word(f"has quota in {flavors(row.admission)}", "reserved"),
        f"{again}.{checks}",
    )


def _waits(row: WouldWait) -> DiffRow:
    number = f", number {row.position:,}" if row.position else ""
    where = f" in {row.cluster_queue}" if row.cluster_queue else ""
    why = row.message or row.reason
    return _row(
        "waits",
        row.namespace,
        row.name,
        standing(row.otherwise, "does not exist").text,
        Word(f"waits{number}{where}", "pending"),
        f"{why[:1].upper()}{why[1:].rstrip('.')}.",
    )


def _rounds(after: int) -> str:
    return "evicted jobs have stopped" if after == 1 else f"{after} rounds of evicted jobs"


def standing(state: SimulatedState | None, gone: str) -> Word:
    """The simulated state of a workload. ``gone``: what stands for one that is not there."""
    if state is None:
        return Word(gone, "off")
    if state.admission is not None:
        if state.phase == "QuotaReserved":
            return Word(f"has quota in {flavors(state.admission)}", "reserved")
        return Word(f"runs on {flavors(state.admission)}", "running")
    if state.phase in ("Deactivated", "Rejected"):
        return Word(f"is {state.phase.lower()}", "off")
    number = f", number {state.position:,}" if state.position else ""
    return Word(f"waits{number}", "pending")


def flavors(admission: Admission) -> str:
    """The flavors of an admission, each once."""
    named = dict.fromkeys(
        flavor for pods in admission.pod_set_assignments for flavor in pods.flavors.values()
    )
    return ", ".join(named) or "no flavor"
