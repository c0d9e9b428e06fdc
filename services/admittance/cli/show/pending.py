"""Pending workloads in the order of their queues."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from msgspec.structs import astuple, replace

from admittance.api.fields.units import render
from admittance.cli.show.lists import find_all
from admittance.cli.support import output
from admittance.cli.support.options import Call, Output
from admittance.cli.support.output import NOTHING, Column, Table
from admittance.cli.support.times import age
from admittance.client import kinds
from admittance.client.requests.link import Link
from admittance.client.requests.objects import BucketObject
from admittance.client.requests.queues import overview, questions
from admittance.client.requests.selection import Selection, select
from admittance.events.requests.queues import PendingQuery, PendingRow
from admittance.runtime import clock

EVERYTHING: Final = Selection()


class PendingList(NamedTuple):
    """Rows of pending workloads, and how many there are in all. ``sizes``: the rows have requests.
    ``chosen``: options have selected the rows."""

    rows: Sequence[PendingRow]
    total: int
    sizes: bool
    chosen: bool


async def pending(
    bus: Link, call: Call, query: PendingQuery, namespace: str | None, chosen: Selection, limit: int
) -> PendingList:
    """The first ``limit`` chosen pending workloads, in order."""
    all_rows = chosen == EVERYTHING
    if not all_rows or call.output is Output.NAME:
        query = replace(query, others=False)
    reply = await questions.pending_rows(bus, query, namespace, limit if all_rows else None)
    rows: Sequence[PendingRow] = reply.rows
    total = reply.total
    if not all_rows:
        stored = await find_all(bus, kinds.WORKLOAD, namespace)
        rows = narrowed(rows, stored, chosen, clock.now())
        total = len(rows)
    rows = await overview.with_stored_reasons(bus, rows[:limit])
    return PendingList(rows, total, query.others, not all_rows)


def show(
    call: Call, waiting: PendingList, namespace: str | None, now: datetime | None = None
) -> None:
    """Prints pending workloads in the output format of the call. ``now``: as `lists.show` takes
    it."""
    rows, total = waiting.rows, waiting.total
    if output.show_value({"items": [_whole(row) for row in rows], "total": total}, call.output):
        return
    if call.output is Output.NAME:
        for row in rows:
            output.say(f"{kinds.WORKLOAD.qualified}/{row.name}")
        return
    if not total:
        verb = "was" if now is not None else "is"
        output.note("nothing pending matches" if waiting.chosen else f"nothing {verb} pending")
        return
    several = namespace is None or any(row.namespace != namespace for row in rows)
    table = pending_table(rows, now or clock.now(), all_namespaces=several, sizes=waiting.sizes)
    output.show_table(table, wide=call.output is Output.WIDE)
    if total > len(rows):
        output.note(f"{total - len(rows)} more pending; --limit shows more")


def narrowed(
    rows: Sequence[PendingRow], stored: Sequence[BucketObject], chosen: Selection, now: datetime
) -> list[PendingRow]:
    """The rows of the selected workloads, in the order of the queue unless the options sort
    them."""
    chosen_workloads, _ = select(kinds.WORKLOAD, stored, chosen, now)
    place = {(each.namespace, each.name): at for at, each in enumerate(chosen_workloads)}
    kept = [row for row in rows if (row.namespace, row.name) in place]
    if chosen.sort_by:
        kept.sort(key=lambda row: place[row.namespace, row.name])
    return kept


def _whole(row: PendingRow) -> dict[str, Any]:
    """A row of pending workloads with all fields, for JSON and YAML."""
    return dict(zip(row.__struct_encode_fields__, astuple(row), strict=True))


def pending_table(
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
