"""Answers of simulations: what would start, wait, or be evicted."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

import msgspec

from admittance.cli.support import output
from admittance.cli.support.output import NOTHING, Table, columns_of
from admittance.client.errors import sentence
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


def shown(reply: SimulateReply) -> dict[str, Any]:
    """The reply for JSON and YAML, including empty lists and zeros."""
    return {
        "revision": reply.revision,
        "settled": reply.settled,
        "counts": msgspec.structs.asdict(reply.counts),
        "results": reply.results,
        "warnings": reply.warnings,
        "evictions": reply.evictions,
        "starts": reply.starts,
        "waits": reply.waits,
    }


def complain(applied: Applied, told: Collection[str]) -> None:
    """Prints the warnings about an object. ``told``: warnings that are printed already."""
    about = f"{applied.kind.lower()}/{applied.name}"
    for line in applied.warnings:
        if applied.outcome == "refused":
            output.error(f"{about} would be refused: {line}")
        elif line not in told:
            output.warn(f"{about}: {line}")


OBJECTS_MAX: Final = 20
NO_DIFFERENCE: Final = "No workload would start, wait or be evicted because of the change."


def show(reply: SimulateReply, *, wide: bool) -> None:
    """Prints the reply as text and tables."""
    for line in results(reply.results):
        output.say(line)
    counts = reply.counts
    differs = counts.evictions or counts.starts or counts.waits or counts.gone
    output.say(difference_text(counts) if differs else NO_DIFFERENCE)
    output.say(unaffected_text(counts))
    _show_list("Would be evicted", evicted(reply.evictions), counts.evictions, wide=wide)
    _show_list("Would start", starting(reply.starts), counts.starts, wide=wide)
    _show_list("Would wait", waiting(reply.waits), counts.waits, wide=wide)


def results(rows: Sequence[Applied]) -> Iterator[str]:
    """Lines with the outcome of each changed object, and the number of unchanged objects."""
    changed = [row for row in rows if row.outcome not in ("unchanged", "refused")]
    for applied in changed[:OBJECTS_MAX]:
        name = f"{applied.namespace}/{applied.name}" if applied.namespace else applied.name
        # An object in use is deleted after the objects that use it.
        word = "deleted later" if applied.outcome == "terminating" else applied.outcome
        yield f"{applied.kind.lower()} {name} would be {word}"
    if len(changed) > OBJECTS_MAX:
        yield f"… and {len(changed) - OBJECTS_MAX:,} more objects"
    same = sum(row.outcome == "unchanged" for row in rows)
    if same:
        yield f"{same:,} {'object is' if same == 1 else 'objects are'} unchanged"


def difference_text(counts: Counts) -> str:
    """The numbers of workloads that would start, wait or be evicted, as text."""
    gone = f", {counts.gone:,} deleted" if counts.gone else ""
    return (
        f"{counts.starts:,} would start, {counts.waits:,} would wait, "
        f"{counts.evictions:,} would be evicted{gone}"
    )


def unaffected_text(counts: Counts) -> str:
    """The numbers of unaffected workloads by state, as text."""
    reserved = f"{counts.reserved:,} wait for checks, " if counts.reserved else ""
    off = f", {counts.off:,} deactivated or rejected" if counts.off else ""
    return f"Unaffected: {counts.run:,} run, {reserved}{counts.pending:,} wait{off}"


def _show_list(title: str, table: Table, count: int, *, wide: bool) -> None:
    if not count:
        return
    output.say(f"\n{title} ({count:,})")
    output.show_table(table, wide=wide, indent=2)
    left = count - len(table.rows)
    if left > 0:
        output.say(f"  … and {left:,} more: --limit N shows N, -o json all")


def evicted(rows: Sequence[WouldBeEvicted]) -> Table:
    """The table of workloads that would lose their quota."""
    columns = columns_of(
        "WORKLOAD", "CLUSTERQUEUE", "#PRIORITY", "LOSES", "WHEN", "WHY", "THEN", "+MESSAGE"
    )
    return Table(
        columns,
        [
            (
                f"{row.namespace}/{row.name}",
                row.cluster_queue or NOTHING,
                str(row.priority),
                "its job" if row.ran else "its reservation",
                when(row.after),
                _cause(row),
                standing_text(row.then, gone="gone"),
                row.message or NOTHING,
            )
            for row in rows
        ],
    )


def _cause(workload: WouldBeEvicted) -> str:
    rule = f" ({workload.rule})" if workload.rule else ""
    by = f" by {workload.by}" if workload.by else ""
    return f"{workload.reason}{rule}{by}"


def starting(rows: Sequence[WouldStart]) -> Table:
    """The table of workloads that would get quota."""
    columns = columns_of(
        "WORKLOAD", "QUEUE", "CLUSTERQUEUE", "FLAVORS", "WHEN", "NOTE", "WITHOUT", "+#PRIORITY"
    )
    return Table(
        columns,
        [
            (
                f"{row.namespace}/{row.name}",
                row.local_queue or NOTHING,
                row.admission.cluster_queue,
                flavors(row.admission),
                when(row.after),
                _note(row),
                standing_text(row.otherwise, gone="is not there"),
                str(row.priority),
            )
            for row in rows
        ],
    )


def _note(workload: WouldStart) -> str:
    notes = []
    if workload.again:
        notes.append("again")
    if workload.preempts:
        more = f" and {len(workload.preempts) - 3} more" if len(workload.preempts) > 3 else ""
        notes.append(f"preempts {', '.join(workload.preempts[:3])}{more}")
    if workload.checks:
        notes.append(f"once ready: {', '.join(workload.checks)}")
    return "; ".join(notes) or NOTHING


def waiting(rows: Sequence[WouldWait]) -> Table:
    """The table of workloads that would wait."""
    columns = columns_of(
        "WORKLOAD", "QUEUE", "CLUSTERQUEUE", "#POSITION", "WHY", "WITHOUT", "+#PRIORITY"
    )
    return Table(
        columns,
        [
            (
                f"{row.namespace}/{row.name}",
                row.local_queue or NOTHING,
                row.cluster_queue or NOTHING,
                str(row.position) if row.position else NOTHING,
                sentence(row.reason, row.message),
                standing_text(row.otherwise, gone="is not there"),
                str(row.priority),
            )
            for row in rows
        ],
    )


def when(after: int) -> str:
    """When a workload would start, as text: ``now``, or after how many rounds in which evicted jobs
    stop."""
    if not after:
        return "now"
    return "once jobs have stopped" if after == 1 else f"after {after} rounds of stopping"


def standing_text(standing: SimulatedState | None, *, gone: str) -> str:
    """The simulated state of a workload in a few words."""
    if standing is None:
        return gone
    if standing.admission is not None:
        runs = "reserves" if standing.phase == "QuotaReserved" else "runs on"
        return f"{runs} {flavors(standing.admission)}"
    place = f", number {standing.position}" if standing.position else ""
    return f"waits{place}: {standing.reason or standing.phase}"


def flavors(admission: Admission) -> str:
    """The flavors of an admission as text; one name if the same flavor serves all resources."""
    by_resource = {
        resource: flavor
        for pods in admission.pod_set_assignments
        for resource, flavor in pods.flavors.items()
    }
    every = {flavor for pods in admission.pod_set_assignments for flavor in pods.flavors.values()}
    if len(every) <= 1:
        return "".join(every) or NOTHING
    if len(admission.pod_set_assignments) == 1:
        return ",".join(f"{resource}:{flavor}" for resource, flavor in by_resource.items())
    return " ".join(
        f"{pods.name}={','.join(dict.fromkeys(pods.flavors.values()))}"
        for pods in admission.pod_set_assignments
    )
