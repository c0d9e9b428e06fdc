"""The first page: what runs, and what waits."""

from __future__ import annotations

from datetime import datetime

import msgspec

from admittance.client.requests.queues.overview import QueueOverview, RunningRow, WaitingRow
from admittance.web.paths import queue_path, workload_path
from admittance.web.views.words import Link, Word, amount, between, state


class WorkloadRow(msgspec.Struct, frozen=True, kw_only=True):
    """A workload. ``queue``: its LocalQueue, with the page of its ClusterQueue; None: it has none,
    or the user may not see it. ``place``: its position in its queue; "": it runs."""

    id: str
    name: Link
    namespace: str
    queue: Link | None
    word: Word
    place: str
    asks: str
    since: str
    why: str


class Home(msgspec.Struct, frozen=True, kw_only=True):
    """``running_more``, ``waiting_more``: how many further ones there are."""

    title: str
    running: tuple[WorkloadRow, ...]
    running_more: int
    waiting: tuple[WorkloadRow, ...]
    waiting_more: int


def build(overview: QueueOverview, now: datetime) -> Home:
    """The first page from one look at the queues."""
    running = tuple(
        _row(row, state(row.phase), since=row.started, now=now, why=", ".join(row.flavors))
        for row in overview.running
    )
    waiting = tuple(
        _row(
            row,
            state("Pending"),
            place=str(row.position or ""),
            since=row.since,
            now=now,
            why=row.message or row.reason,
        )
        for row in overview.waiting
    )
    return Home(
        title=f"{overview.running_total:,} hold quota, {overview.waiting_total:,} wait",
        running=running,
        running_more=overview.running_total - len(running),
        waiting=waiting,
        waiting_more=overview.waiting_total - len(waiting),
    )


def _row(
    row: RunningRow | WaitingRow,
    word: Word,
    *,
    since: datetime | None,
    now: datetime,
    why: str,
    place: str = "",
) -> WorkloadRow:
    return WorkloadRow(
        id=f"{row.namespace}/{row.name}",
        name=Link(row.name, workload_path(row.namespace, row.name)),
        namespace=row.namespace,
        queue=Link(row.queue, queue_path(row.cluster_queue)) if row.cluster_queue else None,
        word=word,
        place=place,
        asks=_asks(row.requests),
        since=between(since, now) if since else "",
        why=why,
    )


def _asks(requests: dict[str, int]) -> str:
    return ", ".join(amount(resource, much) for resource, much in requests.items())
