"""``admit get``: lists, single objects and pending workloads; with ``-w`` one line per object, then
one line per change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Any, Final

from msgspec.structs import astuple, replace

from admittance.api.units import render
from admittance.cli.show import tables
from admittance.cli.show.objects import shown_object, shown_queue, shown_workload
from admittance.cli.support import output
from admittance.cli.support.errors import AnswerIsNo, BadInput
from admittance.cli.support.link import Link, link
from admittance.cli.support.options import Call, Output
from admittance.cli.support.output import NOTHING, Column, Table
from admittance.cli.support.times import age
from admittance.client import kinds
from admittance.client.kinds import Kind
from admittance.client.requests import objects, questions
from admittance.client.requests.objects import BucketObject, lookup
from admittance.client.requests.selection import Selection, select
from admittance.events import reasons
from admittance.events.requests import PendingQuery, PendingReply, PendingRow, Queues, QueuesReply
from admittance.runtime import clock
from admittance.runtime.bus.bucket import Entry
from admittance.workload.phase import Phase, phase
from admittance.workload.stored import PARENT, head
from admittance.workload.waiting_reason import reason_of

PENDING: Final = "pending"
BACKOFF_REASONS: Final = frozenset({reasons.PENDING_EVALUATION, reasons.BACKOFF})
"""Reasons that the scheduler gives for a workload in backoff."""
QUEUES: Final = (kinds.CLUSTER_QUEUE, kinds.LOCAL_QUEUE)
EVERYTHING: Final = Selection()
TABLES: Final = (Output.TABLE, Output.WIDE)


async def get(
    call: Call,
    kind: Kind,
    wanted: str | None,
    chosen: Selection = EVERYTHING,
    queue: str | None = None,
    *,
    all_namespaces: bool,
) -> None:
    """Prints the object named ``wanted``, or the chosen objects of a kind.

    ``queue``: only workloads of this queue, a LocalQueue of the namespace or a ClusterQueue. Raises
    AnswerIsNo if the object or the queue does not exist.
    """
    async with link(call) as bus:
        more = 0
        everything: list[BucketObject] = []
        if wanted is not None:
            found = [await objects.find(bus, kind, wanted)]
        else:
            within = None if all_namespaces else call.namespace
            if queue is not None:
                chosen = chosen._replace(queues=await _queues(bus, queue, within))
            everything = await find_all(bus, kind, within)
            found, more = select(kind, everything, chosen, clock.now())
        counters = await live_counters(bus, kind, found)
        reasons = await waiting_reasons(bus, kind, found, all_namespaces=all_namespaces)
        if wanted is not None and kind is kinds.WORKLOAD and call.output in TABLES:
            found += await _variants(bus, found[0])
        found = await with_bookings(bus, kind, found)
    show(
        *(call, kind, found, counters),
        single=wanted is not None,
        all_namespaces=all_namespaces,
        reasons=reasons,
        filtered=bool(everything),
    )
    if more:
        output.note(f"{more} more; --limit shows more")


async def _queues(bus: Link, queue: str, within: str | None) -> frozenset[tuple[str, str]]:
    """The LocalQueue named ``queue``; if there is none, all LocalQueues of the ClusterQueue named
    ``queue``.
    """
    if not queue:
        raise BadInput("-q/--queue is empty")
    return await questions.queues_named(bus, queue, within)


async def with_bookings(bus: Link, kind: Kind, found: list[BucketObject]) -> list[BucketObject]:
    """Adds to each MachinePool the bookings of its machines; returns other objects unchanged."""
    if kind is not kinds.MACHINE_POOL:
        return found
    from admittance.cli.show import pools

    return await pools.with_bookings(bus, kind, found, clock.now())


async def _variants(bus: Link, found: BucketObject) -> list[BucketObject]:
    """The variants of a parent, which a table shows below the parent."""
    if head(found.workload()).role != PARENT:
        return []
    from admittance.client.requests.families import family_of

    return [one.found for one in (await family_of(bus, found)).variants]


async def find_all(bus: Link, kind: Kind, namespace: str | None) -> list[BucketObject]:
    """All readable objects of a kind, sorted by name; namespace None: of all namespaces.

    Prints a warning about objects that cannot be read."""
    readable, aside = await objects.find_all(bus, kind, namespace)
    _warn_of_unreadable(kind, aside)
    return readable


def readable(kind: Kind, found: Sequence[BucketObject]) -> list[BucketObject]:
    """The objects that can be decoded; prints a warning for each object that cannot be decoded."""
    aside = sorted(one.key for one in found if not one.is_readable())
    _warn_of_unreadable(kind, aside)
    return [one for one in found if one.key not in aside]


def _warn_of_unreadable(kind: Kind, aside: Sequence[str]) -> None:
    if aside:
        many = f"{len(aside)} {kind.plural}, such as {aside[0]}," if len(aside) > 1 else aside[0]
        output.warn(f"{many} cannot be read: see `admit doctor`")


async def live_counters(bus: Link, kind: Kind, found: Sequence[BucketObject]) -> tables.Counters:
    """The scheduler's counters (such as pending workloads) of the found queues. If the scheduler
    does not answer, prints a warning and returns no counters.
    """
    if kind not in QUEUES or not found:
        return {}
    narrow = found[0].name if len(found) == 1 and kind is kinds.CLUSTER_QUEUE else ""
    namespaces = {one.namespace for one in found} if kind is kinds.LOCAL_QUEUE else set()
    within = namespaces.pop() if len(namespaces) == 1 else None
    try:
        query = Queues(cluster_queue=narrow)
        reply = await bus.ask("queues", query, QueuesReply, namespace=within)
    except AnswerIsNo as error:
        output.warn(f"no live counters: {error}")
        return {}
    if reply.error:
        output.warn(f"no live counters: {reply.error}")
    rows = reply.cluster_queues if kind is kinds.CLUSTER_QUEUE else reply.local_queues
    return {(row.namespace, row.name): row for row in rows}


async def waiting_reasons(
    bus: Link, kind: Kind, found: Sequence[BucketObject], *, all_namespaces: bool
) -> tables.Reasons:
    """Why workloads wait, from the scheduler. The reasons in stored workloads are older than the
    scheduler's, and do not mention an inactive queue.

    Covers the first page of pending workloads. Empty if no table is printed, no workload is
    pending, or the scheduler does not answer.
    """
    if kind is not kinds.WORKLOAD or bus.call.output not in TABLES:
        return {}
    now = clock.now()
    if all(phase(one.workload(), now) is not Phase.PENDING for one in found):
        return {}
    namespace = None if all_namespaces else bus.call.namespace
    try:
        reply = await bus.ask("pending", PendingQuery(), PendingReply, namespace=namespace)
    except AnswerIsNo:
        return {}
    return {(row.namespace, row.name): (row.reason, row.message) for row in reply.rows}


def shown(kind: Kind, found: BucketObject, counters: tables.Counters) -> dict[str, Any]:
    """The object as JSON and YAML output shows it."""
    if kind is kinds.WORKLOAD:
        return shown_workload(found)
    if kind in QUEUES:
        namespace = found.namespace if kind.namespaced else ""
        return shown_queue(found, counters.get((namespace, found.name)))
    if kind is kinds.MACHINE_POOL:
        from admittance.cli.show import pools

        return pools.shown(found)
    return shown_object(found)


def show(
    call: Call,
    kind: Kind,
    found: Sequence[BucketObject],
    counters: tables.Counters,
    *,
    single: bool,
    all_namespaces: bool,
    reasons: tables.Reasons = tables.NO_REASONS,
    filtered: bool = False,
) -> None:
    """Prints objects in the output format of the call. ``filtered``: the
    call has a filter, so that no objects means no matching ones.
    """
    match call.output:
        case Output.NAME:
            for one in found:
                output.say(f"{kind.qualified}/{one.name}")
        case Output.JSON | Output.YAML:
            values = [shown(kind, one, counters) for one in found]
            whole = values[0] if single else as_list(values)
            (output.show_json if call.output is Output.JSON else output.show_yaml)(whole)
        case Output.TABLE | Output.WIDE:
            if not found:
                here = f" in namespace {call.namespace}" if kind.namespaced else ""
                matching = "matching " if filtered else ""
                output.note(f"no {matching}{kind.plural}" + ("" if all_namespaces else here))
                return
            table = tables.table(
                *(kind, found, clock.now(), counters),
                all_namespaces=all_namespaces,
                waits=reasons,
            )
            output.show_table(table, wide=call.output is Output.WIDE)


def as_list(values: Sequence[Any]) -> dict[str, Any]:
    """The objects as a Kubernetes list object."""
    return {"apiVersion": "v1", "kind": "List", "items": list(values)}


async def pending(
    call: Call, queue: str | None, chosen: Selection = EVERYTHING, *, all_namespaces: bool
) -> None:
    """Prints the chosen pending workloads in order. ``queue``: a LocalQueue of the namespace, or a
    ClusterQueue.

    Raises AnswerIsNo if the queue does not exist.
    """
    limit = chosen.limit or questions.PENDING_ROWS
    chosen = chosen._replace(limit=None)
    async with link(call) as bus:
        query, namespace = await _query(bus, queue, all_namespaces)
        if chosen != EVERYTHING or call.output is Output.NAME:
            query = replace(query, others=False)
        rows, total = await questions.pending_rows(
            bus, query, namespace, limit if chosen == EVERYTHING else None
        )
        if chosen != EVERYTHING:
            stored = await find_all(bus, kinds.WORKLOAD, namespace)
            rows = narrowed(rows, stored, chosen, clock.now())
            total = len(rows)
        rows = await _with_stored_reasons(bus, rows[:limit])
    if output.show_value({"items": [_whole(row) for row in rows], "total": total}, call.output):
        return
    if call.output is Output.NAME:
        for row in rows:
            output.say(f"{kinds.WORKLOAD.qualified}/{row.name}")
        return
    if not total:
        output.note("nothing is pending" if chosen == EVERYTHING else "nothing pending matches")
        return
    several = namespace is None or any(row.namespace != namespace for row in rows)
    table = _pending_table(rows, clock.now(), all_namespaces=several, sizes=query.others)
    output.show_table(table, wide=call.output is Output.WIDE)
    if total > len(rows):
        output.note(f"{total - len(rows)} more pending; --limit shows more")


def narrowed(
    rows: Sequence[PendingRow], stored: Sequence[BucketObject], chosen: Selection, now: datetime
) -> list[PendingRow]:
    """The rows of the selected workloads, in the order of the queue unless the options sort
    them."""
    found, _ = select(kinds.WORKLOAD, stored, chosen, now)
    place = {(one.namespace, one.name): at for at, one in enumerate(found)}
    kept = [row for row in rows if (row.namespace, row.name) in place]
    if chosen.sort_by:
        kept.sort(key=lambda row: place[row.namespace, row.name])
    return kept


async def _with_stored_reasons(bus: Link, rows: Sequence[PendingRow]) -> list[PendingRow]:
    """Gives workloads in backoff the reason of their stored condition, as all other views do: the
    scheduler's reason only says that it does not consider such a workload.
    """

    async def one(row: PendingRow) -> PendingRow:
        if not row.parked or row.reason not in BACKOFF_REASONS:
            return row
        found = await lookup(bus, kinds.WORKLOAD.object_key(row.namespace, row.name))
        if found is None or not found.is_workload():
            return row
        workload, now = found.workload(), clock.now()
        if phase(workload, now) is not Phase.BACKOFF:
            return row
        reason, message = reason_of(workload, now)
        return replace(row, reason=reason or row.reason, message=message or row.message)

    return list(await asyncio.gather(*map(one, rows)))


def _whole(row: PendingRow) -> dict[str, Any]:
    """A row of pending workloads with all fields, for JSON and YAML."""
    return dict(zip(row.__struct_encode_fields__, astuple(row), strict=True))


def _pending_table(
    listed: Sequence[PendingRow], now: datetime, *, all_namespaces: bool, sizes: bool = False
) -> Table:
    columns = (
        Column("POSITION", right=True),
        Column("NAMESPACE", wide=not all_namespaces),
        Column("NAME"),
        Column("QUEUE"),
        Column("CLUSTERQUEUE"),
        Column("REQUESTS", wide=not sizes),
        Column("PRIORITY", right=True),
        Column("WAITING"),
        Column("AGE", wide=True),
        Column("PARKED", wide=True),
        Column("FLAVORS TRIED", wide=True),
        Column("REASON"),
        Column("MESSAGE", spare=True),
    )
    rows = [
        (
            str(row.position or NOTHING),
            row.namespace,
            row.name,
            row.local_queue or NOTHING,
            row.cluster_queue,
            ", ".join(f"{name} {render(name, much)}" for name, much in row.requests.items())
            or NOTHING,
            str(row.priority),
            age(row.waiting_since or row.created, now) if row.local_queue else NOTHING,
            age(row.created, now) if row.local_queue else NOTHING,
            ("yes" if row.parked else "no") if row.local_queue else NOTHING,
            ",".join(row.flavors) or NOTHING,
            row.reason or NOTHING,
            row.message,
        )
        for row in listed
    ]
    return Table(columns, rows)


async def _query(
    bus: Link, queue: str | None, all_namespaces: bool
) -> tuple[PendingQuery, str | None]:
    """The query for pending workloads, and its namespace. A LocalQueue wins over a ClusterQueue of
    the same name.
    """
    if queue == "":
        raise BadInput("-q/--queue is empty")
    namespace = None if all_namespaces and queue is None else bus.call.namespace
    return await questions.pending_query(bus, queue, namespace)


async def watch_objects(call: Call, typed: str, name: str | None, *, all_namespaces: bool) -> None:
    """Prints objects and their changes until interrupted."""
    kind, wanted = kinds.target(typed, name)
    namespace = None if all_namespaces else call.namespace
    async with link(call) as bus:
        if wanted:
            await objects.find(bus, kind, wanted)
        widths: list[int] = []
        async with aclosing(objects.changes(bus, kind, wanted, namespace)) as batches:
            async for batch in batches:
                written = (entry for entry in batch if entry.value is not None)
                found = readable(kind, [objects.object_of(entry) for entry in written])
                counters = await live_counters(bus, kind, found)
                found = await with_bookings(bus, kind, found)
                _show_deletions(kind, batch, shown=bool(widths))
                _show(call, kind, found, counters, widths, all_namespaces=all_namespaces)
                output.flush()


def _show_deletions(kind: kinds.Kind, batch: list[Entry], *, shown: bool) -> None:
    """Prints one line for each deletion in a batch of changes; nothing if no object has been
    printed yet (``shown``).
    """
    for entry in batch:
        if entry.value is None and shown:
            output.note(f"{kind.qualified}/{objects.object_of(entry).name} deleted")


def _show(
    call: Call,
    kind: kinds.Kind,
    found: list[BucketObject],
    counters: tables.Counters,
    widths: list[int],
    *,
    all_namespaces: bool,
) -> None:
    match call.output:
        case Output.JSON:
            for one in found:
                output.show_json_line(shown(kind, one, counters))
        case Output.YAML:
            raise BadInput("-w goes with a table, -o wide, -o name or -o json")
        case Output.NAME:
            for one in found:
                output.say(f"{kind.qualified}/{one.name}")
        case Output.TABLE | Output.WIDE:
            table = tables.table(kind, found, clock.now(), counters, all_namespaces=all_namespaces)
            narrowed = table.narrowed(call.output is Output.WIDE)
            first = not widths
            output.widen(widths, narrowed)
            lines = output.aligned(Table(narrowed.columns, narrowed.rows), widths)
            for number, line in enumerate(lines):
                if number or first:
                    output.say(output.clean(line))
