"""One look at queues: their use, what holds their quota, and what waits, as rows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec
from msgspec.structs import replace

from admittance.api.array_status import counted
from admittance.client import kinds
from admittance.client.errors import BadInput
from admittance.client.requests.forecasts import starts_beside
from admittance.client.requests.link import Link
from admittance.client.requests.objects import lookup
from admittance.client.requests.queues import questions
from admittance.client.requests.selection import duration_seconds, started_at
from admittance.events import reasons
from admittance.events.requests.forecast import StartForecast
from admittance.events.requests.queues import (
    HoldingRow,
    PendingReply,
    PendingRow,
    Queues,
    QueuesReply,
    QueueStatus,
    RowShortfall,
)
from admittance.runtime import clock
from admittance.workload.due_times import lease_end
from admittance.workload.phase import Phase, phase
from admittance.workload.stored import StoredWorkload, head
from admittance.workload.waiting_reason import reason_of

ROWS: Final = 50
"""How many rows an overview has of what runs, and of what waits, if the call does not say."""
ROWS_MAX: Final = 200
"""How many rows a call may ask for: `questions.pending_rows` lists all that wait."""
BACKOFF_REASONS: Final = frozenset({reasons.PENDING_EVALUATION, reasons.BACKOFF})
"""Reasons that the scheduler gives for a workload in backoff."""
Key = tuple[str, str]
"""Namespace and name of a workload."""


class RunningRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A workload that holds quota, or an array with such elements.

    ``elapsed_seconds``: how long it has run of ``limit_seconds`` (None: without a limit).
    ``elements``: the elements of an array by result and state; an array has the start of the first
    element that runs, and no flavors, machines and limit of its own. ``lease_until``: when the
    lease of the program that holds the quota ends; None: no program holds it.
    """

    namespace: str
    name: str
    queue: str
    cluster_queue: str
    phase: str
    priority: int = 0
    user: str = ""
    started: datetime | None = None
    elapsed_seconds: float | None = None
    limit_seconds: int | None = None
    flavors: tuple[str, ...] = ()
    machines: tuple[str, ...] = ()
    requests: dict[str, int] = msgspec.field(default_factory=dict)
    elements: tuple[str, ...] = ()
    lease_until: datetime | None = None


class WaitingRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A workload that waits, or an array with such elements, which has the position and the reason
    of the first. A workload of a namespace that the user may not read has no queue. ``start``: when
    it is expected to start, or why that is not known; None: the forecast does not say.
    ``shortfalls``: what the workload lacked in each flavor that was tried; ``requeue_at``: the end
    of its backoff."""

    namespace: str
    name: str
    queue: str
    cluster_queue: str
    position: int
    priority: int = 0
    user: str = ""
    since: datetime | None = None
    reason: str = ""
    message: str = ""
    requests: dict[str, int] = msgspec.field(default_factory=dict)
    elements: tuple[str, ...] = ()
    start: StartForecast | None = None
    shortfalls: tuple[RowShortfall, ...] = ()
    requeue_at: datetime | None = None


class QueueOverview(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The ClusterQueues with their counters and usage, what holds their quota (the oldest first),
    and what waits in the order in which it is tried. ``running_total``, ``waiting_total``: the
    number of workloads, which counts each element of an array."""

    queues: tuple[QueueStatus, ...]
    running: tuple[RunningRow, ...]
    running_total: int
    waiting: tuple[WaitingRow, ...]
    waiting_total: int


# Rows. ----------------------------------------------------------------------------------


def running_rows(
    held: Iterable[HoldingRow], stored: Mapping[Key, StoredWorkload], now: datetime
) -> list[RunningRow]:
    """The rows of workloads that hold quota, of which an element stands for its array. ``stored``:
    these workloads and their arrays, as far as they could be read."""
    return [
        _running(row, stored.get((row.namespace, row.name)), elements_of(row, stored), now)
        for row in held
    ]


def _running(
    row: HoldingRow, workload: StoredWorkload | None, elements: tuple[str, ...], now: datetime
) -> RunningRow:
    common = RunningRow(
        namespace=row.namespace,
        name=row.array if elements else row.name,
        queue=row.local_queue,
        cluster_queue=row.cluster_queue,
        phase=row.state if workload is None else str(phase(workload, now)),
        priority=row.priority,
        user=row.user,
        started=None if workload is None else started_at(workload),
        requests=row.requests,
        elements=elements,
    )
    if elements:
        return common
    return replace(
        common,
        elapsed_seconds=None if workload is None else duration_seconds(workload, now),
        limit_seconds=None if workload is None else head(workload).maximum_execution_time_seconds,
        flavors=row.flavors,
        machines=_machines(workload),
        lease_until=None if workload is None else lease_end(workload),
    )


def _machines(workload: StoredWorkload | None) -> tuple[str, ...]:
    parts = () if workload is None else workload.status.placement
    return tuple(dict.fromkeys(part.runner for part in parts))


def waiting_rows(
    pending: Iterable[PendingRow],
    stored: Mapping[Key, StoredWorkload],
    starts: Mapping[Key, StartForecast],
) -> list[WaitingRow]:
    """The rows of pending workloads, of which an element stands for its array. ``starts``: the
    expected starts, as far as they are known."""
    rows = []
    for row in pending:
        elements = elements_of(row, stored)
        waiting = WaitingRow(
            namespace=row.namespace,
            name=row.array if elements else row.name,
            queue=row.local_queue,
            cluster_queue=row.cluster_queue,
            position=row.position,
            priority=row.priority,
            user=row.user,
            since=row.waiting_since or row.created,
            reason=row.reason,
            message=row.message,
            requests=row.requests,
            elements=elements,
            start=starts.get((row.namespace, row.name)),
            shortfalls=row.shortfalls,
            requeue_at=row.requeue_at,
        )
        rows.append(waiting)
    return rows


def elements_of(
    row: HoldingRow | PendingRow, stored: Mapping[Key, StoredWorkload]
) -> tuple[str, ...]:
    """The elements of the row's array by result and state; empty: the row is no element, or its
    array is not known."""
    array = stored.get((row.namespace, row.array)) if row.array else None
    status = None if array is None else array.status.array
    return () if status is None else (*counted(status), f"{len(status.results)} in all")


def chosen_queues(reply: QueuesReply, target: str, *, everything: bool) -> list[QueueStatus]:
    """The ClusterQueues of an overview, by name: ``target``, or those to which a LocalQueue of the
    reply leads, or all of them."""
    led_to = {target} if target else {local.cluster_queue for local in reply.local_queues}
    chosen = (each for each in reply.cluster_queues if each.name in led_to or everything)
    return sorted(chosen, key=lambda each: each.name)


# Requests. ------------------------------------------------------------------------------


async def overview(
    link: Link,
    queue: str | None,
    namespace: str | None,
    *,
    mine: bool,
    limit: int,
    brief: bool = False,
) -> QueueOverview:
    """The overview of the namespace (None: of all), or of one queue. ``limit``: the most rows of
    what runs, and of what waits. ``brief``: neither the queues nor expected starts are asked for.
    Raises NotFound for an unknown queue, and RequestFailed."""
    if mine and not link.user:
        raise BadInput(f"{link.shown_url} has no users, so no workload is yours: leave out mine")
    if limit > ROWS_MAX:
        raise BadInput(f"limit {limit} is more than {ROWS_MAX}; `admit get pending` lists all")
    query, where = await questions.pending_query(link, queue, namespace)
    query = replace(
        query, user=link.user if mine else "", holding=limit, limit=limit, first_elements=True
    )
    target = query.cluster_queue
    if query.local_queue:
        target = await _cluster_queue_of(link, where or link.namespace, query.local_queue)
    page, statuses = await asyncio.gather(
        questions.pending_page(link, query, where), _statuses(link, target, where, brief=brief)
    )
    pending, starts, stored = await asyncio.gather(
        with_stored_reasons(link, page.rows),
        _starts(link, () if brief else page.rows, where),
        _stored(link, page),
    )
    waiting = waiting_rows(pending, stored, starts)
    return QueueOverview(
        queues=tuple(
            chosen_queues(statuses, target, everything=namespace is None and queue is None)
        ),
        running=tuple(running_rows(page.holding, stored, clock.now())),
        running_total=page.holding_total,
        waiting=tuple(waiting),
        waiting_total=page.total,
    )


async def _statuses(
    link: Link, cluster_queue: str, namespace: str | None, *, brief: bool
) -> QueuesReply:
    """The counters of one ClusterQueue, or of all; an empty answer for a ``brief`` overview."""
    if brief:
        return QueuesReply()
    asked = Queues(cluster_queue=cluster_queue, local_queues=not cluster_queue)
    return await questions.queues(link, asked, namespace)


async def _starts(
    link: Link, rows: Sequence[PendingRow], namespace: str | None
) -> dict[Key, StartForecast]:
    """The expected starts of the rows; of those in the namespace, if there is one."""
    if namespace is None:
        names = {f"{row.namespace}/{row.name}": (row.namespace, row.name) for row in rows}
    else:
        own = (row for row in rows if row.namespace == namespace)
        names = {row.name: (row.namespace, row.name) for row in own}
    found = await starts_beside(link, list(names), namespace)
    return {names[name]: start for name, start in found.items() if name in names}


async def _cluster_queue_of(link: Link, namespace: str, name: str) -> str:
    stored = await lookup(link, kinds.LOCAL_QUEUE.object_key(namespace, name))
    return "" if stored is None else str(stored.plain().get("spec", {}).get("clusterQueue", ""))


async def _stored(link: Link, page: PendingReply) -> dict[Key, StoredWorkload]:
    """The stored workloads and arrays that the rows of an answer need."""
    held = {(row.namespace, row.name) for row in page.holding}
    arrays = {(row.namespace, row.array) for row in page.holding if row.array}
    arrays |= {(row.namespace, row.array) for row in page.rows if row.array}
    return await _read(link, held | arrays)


async def _read(link: Link, keys: Iterable[Key]) -> dict[Key, StoredWorkload]:
    """The stored workloads with these keys that exist and can be read."""

    async def one(key: Key) -> tuple[Key, StoredWorkload] | None:
        found = await lookup(link, kinds.WORKLOAD.object_key(*key))
        return (key, found.workload()) if found is not None and found.is_workload() else None

    return dict(filter(None, await asyncio.gather(*map(one, sorted(keys)))))


async def with_stored_reasons(link: Link, rows: Sequence[PendingRow]) -> list[PendingRow]:
    """Gives workloads in backoff the reason of their stored condition, as all other views do: the
    scheduler's reason only says that it does not consider such a workload."""

    async def one(row: PendingRow) -> PendingRow:
        if not row.parked or row.reason not in BACKOFF_REASONS:
            return row
        stored = await lookup(link, kinds.WORKLOAD.object_key(row.namespace, row.name))
        if stored is None or not stored.is_workload():
            return row
        workload, now = stored.workload(), clock.now()
        if phase(workload, now) is not Phase.BACKOFF:
            return row
        reason, message = reason_of(workload, now)
        return replace(row, reason=reason or row.reason, message=message or row.message)

    return list(await asyncio.gather(*map(one, rows)))
