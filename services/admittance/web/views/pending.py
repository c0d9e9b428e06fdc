"""The page of pending workloads: in the order of their queues, with why each waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from admittance.events.requests.forecast import StartForecast
from admittance.events.requests.queues import PendingReply, PendingRow
from admittance.web.paths import pending_path, queue_path, workload_path
from admittance.web.views.chances import chance
from admittance.web.views.words import Link, amount, between

ROWS_MAX: Final = 200
"""The most rows of one page."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A pending workload. ``link`` None: the user may not see it. ``chance``: when it is expected
    to start; ``basis``: on what that rests."""

    id: str
    position: str
    name: str
    link: Link | None
    priority: str
    asks: str
    why: str
    parked: bool
    waiting: str
    chance: str
    basis: str


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """The pending workloads of one ClusterQueue. ``queue`` "": their LocalQueue has none."""

    id: str
    queue: str
    link: Link | None
    rows: tuple[Row, ...]


class PendingView(msgspec.Struct, frozen=True, kw_only=True):
    """``earlier`` and ``later``: the pages before and after this one."""

    title: str
    say: str
    queue: str
    namespace: str
    groups: tuple[Group, ...]
    earlier: Link | None
    later: Link | None


def build(
    reply: PendingReply,
    starts: Mapping[str, StartForecast],
    now: datetime,
    *,
    skip: int = 0,
    queue: str = "",
    namespace: str = "",
) -> PendingView:
    """The view of one page of pending workloads. ``starts``: the expected starts by
    ``namespace/name``; ``skip``: how many workloads are on the pages before."""
    groups: dict[str, list[PendingRow]] = {}
    for row in reply.rows:
        groups.setdefault(row.cluster_queue, []).append(row)
    end = skip + len(reply.rows)
    total = f"{reply.total:,} workload{'s' if reply.total != 1 else ''}"
    where = f" in queue {queue}" if queue else ""
    say = f"{total} wait{'s' if reply.total == 1 else ''}{where}"
    if len(reply.rows) < reply.total:
        say += f"; these are {skip + 1:,} to {end:,}"

    def page(first: int, text: str) -> Link:
        return Link(text, pending_path(queue, namespace, first))

    return PendingView(
        title=f"{reply.total:,} pending{where}",
        say=f"{say}." if reply.total else f"No workload waits{where}.",
        queue=queue,
        namespace=namespace,
        groups=tuple(_group(name, rows, starts, now) for name, rows in groups.items()),
        earlier=page(max(0, skip - ROWS_MAX), "Earlier") if skip else None,
        later=page(end, "Later") if end < reply.total else None,
    )


def _group(
    queue: str, rows: Sequence[PendingRow], starts: Mapping[str, StartForecast], now: datetime
) -> Group:
    return Group(
        id=queue or "no-queue",
        queue=queue,
        link=Link(queue, queue_path(queue)) if queue else None,
        rows=tuple(_row(row, starts.get(f"{row.namespace}/{row.name}"), now) for row in rows),
    )


def _row(row: PendingRow, start: StartForecast | None, now: datetime) -> Row:
    since = row.waiting_since or row.created
    link = Link(row.name, workload_path(row.namespace, row.name)) if row.namespace else None
    return Row(
        id=f"{row.namespace}/{row.name}",
        position=str(row.position or ""),
        name=row.name,
        link=link,
        priority=str(row.priority),
        asks=", ".join(amount(resource, much) for resource, much in row.requests.items()),
        why=row.message or row.reason or ("It waits for its turn." if row.namespace else ""),
        parked=row.parked,
        waiting=between(since, now) if since is not None else "",
        chance=chance(start, now),
        basis="" if start is None else start.basis or start.unknown,
    )
