"""The answer of ``admit simulate`` as people read it: the counts first, then a list of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from admittance.cli.show import tables
from admittance.cli.support import output
from admittance.cli.support.output import Column, Table
from admittance.events.applying import Applied
from admittance.events.shapes import Admission
from admittance.events.whatif import (
    Counts,
    SimulateReply,
    Standing,
    WouldBeEvicted,
    WouldStart,
    WouldWait,
)

OBJECTS_MAX: Final = 20
NOTHING: Final = "Nothing would start, wait or be evicted that does not do so anyway."


def tell(reply: SimulateReply, *, wide: bool) -> None:
    """Prints all of it."""
    for line in results(reply.results):
        output.say(line)
    counts = reply.counts
    differs = counts.evictions or counts.starts or counts.waits or counts.gone
    output.say(in_sum(counts) if differs else NOTHING)
    output.say(as_they_are(counts))
    _show("Would be evicted", evicted(reply.evictions), counts.evictions, wide=wide)
    _show("Would start", starting(reply.starts), counts.starts, wide=wide)
    _show("Would wait", waiting(reply.waits), counts.waits, wide=wide)


def results(rows: Sequence[Applied]) -> Iterator[str]:
    """What would become of the objects, a line each; of those that would not change, the number."""
    told = [one for one in rows if one.outcome not in ("unchanged", "refused")]
    for one in told[:OBJECTS_MAX]:
        name = f"{one.namespace}/{one.name}" if one.namespace else one.name
        # What others need is marked, and goes when they are gone.
        word = "deleted later" if one.outcome == "terminating" else one.outcome
        yield f"{one.kind.lower()} {name} would be {word}"
    if len(told) > OBJECTS_MAX:
        yield f"… and {len(told) - OBJECTS_MAX:,} more objects"
    same = sum(one.outcome == "unchanged" for one in rows)
    if same:
        yield f"{same:,} {'object is' if same == 1 else 'objects are'} unchanged"


def in_sum(counts: Counts) -> str:
    """How many there are of what is different."""
    gone = f", {counts.gone:,} deleted" if counts.gone else ""
    return (
        f"{counts.starts:,} would start, {counts.waits:,} would wait, "
        f"{counts.evictions:,} would be evicted{gone}"
    )


def as_they_are(counts: Counts) -> str:
    """How many there are of what is not."""
    reserved = f"{counts.reserved:,} wait for checks, " if counts.reserved else ""
    off = f", {counts.off:,} are off" if counts.off else ""
    return f"Unaffected: {counts.run:,} run, {reserved}{counts.pending:,} wait{off}"


def _show(title: str, table: Table, count: int, *, wide: bool) -> None:
    if not count:
        return
    output.say(f"\n{title} ({count:,})")
    output.show_table(table, wide=wide, indent=2)
    left = count - len(table.rows)
    if left > 0:
        output.say(f"  … and {left:,} more: --limit N shows N, -o json all")


def evicted(rows: Sequence[WouldBeEvicted]) -> Table:
    """Who loses its quota."""
    columns = (
        Column("WORKLOAD"),
        Column("CLUSTERQUEUE"),
        Column("PRIORITY", right=True),
        Column("LOSES"),
        Column("WHEN"),
        Column("WHY"),
        Column("THEN"),
        Column("MESSAGE", wide=True),
    )
    return Table(
        columns,
        [
            (
                f"{one.namespace}/{one.name}",
                one.cluster_queue or tables.NOTHING,
                str(one.priority),
                "its job" if one.ran else "its reservation",
                when(one.after),
                _cause(one),
                stands(one.then, gone="gone"),
                one.message or tables.NOTHING,
            )
            for one in rows
        ],
    )


def _cause(one: WouldBeEvicted) -> str:
    rule = f" ({one.rule})" if one.rule else ""
    by = f" by {one.by}" if one.by else ""
    return f"{one.reason}{rule}{by}"


def starting(rows: Sequence[WouldStart]) -> Table:
    """Who gets quota."""
    columns = (
        Column("WORKLOAD"),
        Column("QUEUE"),
        Column("CLUSTERQUEUE"),
        Column("FLAVORS"),
        Column("WHEN"),
        Column("NOTE"),
        Column("WITHOUT"),
        Column("PRIORITY", right=True, wide=True),
    )
    return Table(
        columns,
        [
            (
                f"{one.namespace}/{one.name}",
                one.local_queue or tables.NOTHING,
                one.admission.cluster_queue,
                flavors(one.admission),
                when(one.after),
                _note(one),
                stands(one.otherwise, gone="is not there"),
                str(one.priority),
            )
            for one in rows
        ],
    )


def _note(one: WouldStart) -> str:
    notes = []
    if one.again:
        notes.append("again")
    if one.preempts:
        more = f" and {len(one.preempts) - 3} more" if len(one.preempts) > 3 else ""
        notes.append(f"preempts {', '.join(one.preempts[:3])}{more}")
    if one.checks:
        notes.append(f"once ready: {', '.join(one.checks)}")
    return "; ".join(notes) or tables.NOTHING


def waiting(rows: Sequence[WouldWait]) -> Table:
    """Who waits."""
    columns = (
        Column("WORKLOAD"),
        Column("QUEUE"),
        Column("CLUSTERQUEUE"),
        Column("POSITION", right=True),
        Column("WHY"),
        Column("WITHOUT"),
        Column("PRIORITY", right=True, wide=True),
    )
    return Table(
        columns,
        [
            (
                f"{one.namespace}/{one.name}",
                one.local_queue or tables.NOTHING,
                one.cluster_queue or tables.NOTHING,
                str(one.position) if one.position else tables.NOTHING,
                ": ".join(part for part in (one.reason, one.message) if part),
                stands(one.otherwise, gone="is not there"),
                str(one.priority),
            )
            for one in rows
        ],
    )


def when(after: int) -> str:
    """``now``, or once evicted jobs have stopped."""
    if not after:
        return "now"
    return "once jobs have stopped" if after == 1 else f"after {after} rounds of stopping"


def stands(standing: Standing | None, *, gone: str) -> str:
    """How a workload stands, in a few words."""
    if standing is None:
        return gone
    if standing.admission is not None:
        runs = "reserves" if standing.phase == "QuotaReserved" else "runs on"
        return f"{runs} {flavors(standing.admission)}"
    place = f", number {standing.position}" if standing.position else ""
    return f"waits{place}: {standing.reason or standing.phase}"


def flavors(admission: Admission) -> str:
    """The flavors of an admission: each once where it serves all that is asked for."""
    found = {
        resource: flavor
        for pods in admission.pod_set_assignments
        for resource, flavor in pods.flavors.items()
    }
    every = {flavor for pods in admission.pod_set_assignments for flavor in pods.flavors.values()}
    if len(every) <= 1:
        return "".join(every) or tables.NOTHING
    if len(admission.pod_set_assignments) == 1:
        return ",".join(f"{resource}:{flavor}" for resource, flavor in found.items())
    return " ".join(
        f"{pods.name}={','.join(dict.fromkeys(pods.flavors.values()))}"
        for pods in admission.pod_set_assignments
    )
