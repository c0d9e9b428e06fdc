"""The tables of `admit queue`: the use of queues as bars, what runs, and what waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from admittance.api.fields.units import INT64_MAX, render
from admittance.cli.show.starts import starts_in
from admittance.cli.support import output
from admittance.cli.support.options import Call, Output
from admittance.cli.support.output import NOTHING, Column, Table, columns_of
from admittance.cli.support.times import age
from admittance.client.arguments.times import span
from admittance.client.errors import sentence
from admittance.client.requests.queues.overview import QueueOverview, RunningRow, WaitingRow
from admittance.events.requests.queues import FlavorUsage, QueueStatus
from admittance.runtime import clock

BAR: Final = 10
"""The characters of a bar."""
FULL: Final = "█"
FREE: Final = "░"

_QUEUES: Final = columns_of("CLUSTERQUEUE", "#RUNNING", "#WAITING", "USE", "~WHY INACTIVE")
_RUNNING: Final = columns_of(
    *("NAME", "QUEUE", "+CLUSTERQUEUE", "~USER", "PHASE", "STARTED", "ELAPSED"),
    *("FLAVOR", "MACHINE", "+REQUESTS", "+#PRIORITY", "~LEASE ENDS", "~ELEMENTS"),
)
_WAITING: Final = columns_of(
    *("#POSITION", "NAME", "QUEUE", "+CLUSTERQUEUE", "~USER", "#PRIORITY", "WAITING"),
    *("~START", "REQUESTS", "REASON", "~ELEMENTS", "~MESSAGE"),
)


def show(call: Call, seen: QueueOverview, *, several: bool) -> None:
    """Prints an overview in the output format of the call. ``several``: of several namespaces."""
    if output.show_value(seen, call.output):
        return
    wide, now = call.output is Output.WIDE, clock.now()
    if not seen.queues:
        output.note("no queues")
    else:
        output.show_table(queue_table(seen.queues), wide=wide)
    parts = (
        ("Running", running_table(seen.running, now, several=several), seen.running_total),
        ("Waiting", waiting_table(seen.waiting, now, several=several), seen.waiting_total),
    )
    for title, table, total in parts:
        if table.rows:
            output.say(f"\n{title}: {total:,}")
            output.show_table(table, wide=wide)
    if not (seen.running or seen.waiting):
        output.note("nothing runs and nothing waits")


def queue_table(statuses: Sequence[QueueStatus]) -> Table:
    """One row for each ClusterQueue, with a bar for each flavor and resource."""
    rows = [
        (
            status.name,
            f"{status.reserving:,}",
            f"{status.pending:,}",
            use_of(status.usage) or NOTHING,
            NOTHING if status.active else sentence(status.reason, status.message),
        )
        for status in statuses
    ]
    return _without_empty(_QUEUES, rows)


def use_of(usage: Sequence[FlavorUsage]) -> str:
    """The use of quota, such as ``cpu ████░░░░░░ 4/10``; resources without quota are left out, and
    flavors are named if there are several."""
    listed = [each for each in usage if each.nominal or each.reserved]
    several = len({each.flavor for each in listed}) > 1
    return "   ".join(
        f"{each.flavor + ' ' if several else ''}{each.resource} "
        f"{bar(each.reserved, each.nominal)} "
        f"{render(each.resource, each.reserved)}/{_quota(each)}"
        for each in listed
    )


def _quota(usage: FlavorUsage) -> str:
    unlimited = usage.nominal >= INT64_MAX
    return "unlimited" if unlimited else render(usage.resource, usage.nominal)


def bar(used: int, quota: int) -> str:
    """The share of the quota that is used: full if all of it or more is used, and not empty if
    some of it is used."""
    filled = 0 if used <= 0 else BAR if used >= quota else max(1, used * BAR // quota)
    return FULL * filled + FREE * (BAR - filled)


def running_table(rows: Sequence[RunningRow], now: datetime, *, several: bool) -> Table:
    """What holds quota."""
    cells = [
        (
            row.name,
            row.queue or NOTHING,
            row.cluster_queue,
            row.user or NOTHING,
            NOTHING if row.elements else row.phase,
            age(row.started, now),
            elapsed(row),
            ",".join(row.flavors) or NOTHING,
            ",".join(row.machines) or NOTHING,
            amounts(row.requests),
            str(row.priority),
            lease_ends(row.lease_until, now),
            ", ".join(row.elements) or NOTHING,
        )
        for row in rows
    ]
    return _table(_RUNNING, rows, cells, several=several)


def lease_ends(until: datetime | None, now: datetime) -> str:
    """When the lease of a program ends unless it is renewed."""
    if until is None:
        return NOTHING
    left = (until - now).total_seconds()
    return f"in {span(left)}" if left > 0 else "now"


def waiting_table(rows: Sequence[WaitingRow], now: datetime, *, several: bool) -> Table:
    """What waits, in order."""
    cells = [
        (
            str(row.position or NOTHING),
            row.name,
            row.queue or NOTHING,
            row.cluster_queue or NOTHING,
            row.user or NOTHING,
            str(row.priority),
            age(row.since, now),
            starts_in(row.start, now),
            amounts(row.requests),
            row.reason or NOTHING,
            ", ".join(row.elements) or NOTHING,
            row.message or NOTHING,
        )
        for row in rows
    ]
    return _table(_WAITING, rows, cells, several=several or any(not row.queue for row in rows))


def elapsed(row: RunningRow) -> str:
    """How long a workload has run, and of which limit, such as ``12m of 1h``."""
    if row.elapsed_seconds is None:
        return NOTHING
    limit = "" if row.limit_seconds is None else f" of {span(row.limit_seconds)}"
    return f"{span(row.elapsed_seconds)}{limit}"


def amounts(requests: Mapping[str, int]) -> str:
    """Requested amounts, such as ``cpu 4, memory 1Gi``."""
    return ", ".join(f"{name} {render(name, much)}" for name, much in requests.items()) or NOTHING


def _table(
    columns: Sequence[Column],
    rows: Sequence[RunningRow | WaitingRow],
    cells: Sequence[Sequence[str]],
    *,
    several: bool,
) -> Table:
    """The table, with the namespaces if there are several, without columns that are empty."""
    if several:
        columns = (Column("NAMESPACE"), *columns)
        cells = [(row.namespace, *line) for row, line in zip(rows, cells, strict=True)]
    return _without_empty(columns, cells)


def _without_empty(columns: Sequence[Column], cells: Sequence[Sequence[str]]) -> Table:
    """The table without spare columns that say nothing in any row."""
    kept = [
        at
        for at, column in enumerate(columns)
        if not column.spare or any(line[at] != NOTHING for line in cells)
    ]
    return Table([columns[at] for at in kept], [[line[at] for at in kept] for line in cells])
