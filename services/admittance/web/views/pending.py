"""The page of pending workloads: in the order of their queues, with why each waits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from admittance.events.requests.forecast import StartForecast
from admittance.events.requests.queues import (
    FlavorUsage,
    PendingCount,
    PendingReply,
    PendingRow,
    QueueStatus,
    RowShortfall,
)
from admittance.web.paths import pending_path, queue_path, workload_path
from admittance.web.views.chances import chance
from admittance.web.views.words import Link, Word, amount, between, clock_time, number, unit

ROWS_MAX: Final = 200
"""The most rows of one page."""
PENDING: Final = "Pending"
RESERVED: Final = "QuotaReserved"
HELD: Final = "Held"
STATES: Final = (PENDING, RESERVED, HELD)
_CLASSES: Final = {RESERVED: "reserved", HELD: "off"}


class Chosen(NamedTuple):
    """What the address of the page chooses; "": everything. ``of_queue``: it is the page of the
    ClusterQueue ``queue``."""

    queue: str = ""
    namespace: str = ""
    state: str = ""
    reason: str = ""
    of_queue: bool = False

    def path(self, skip: int = 0, **other: str) -> str:
        """The address with another state and reason, after the first ``skip`` rows."""
        state, reason = other.get("state", self.state), other.get("reason", self.reason)
        return pending_path(
            self.queue,
            self.namespace,
            state=state,
            reason=reason,
            skip=skip,
            of_queue=self.of_queue,
        )


EVERYTHING: Final = Chosen()


class Short(msgspec.Struct, frozen=True, kw_only=True):
    """What is short of what was asked, in the flavor that lacks least."""

    amount: str
    of: str
    flavor: str


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A workload. ``link`` None: the user may not see it. ``short`` None: nothing is known to be
    short. ``chance``: when it is expected to start; ``basis``: on what that rests."""

    id: str
    position: str
    name: str
    namespace: str
    link: Link | None
    priority: str
    word: Word
    asks: str
    why: str
    short: Short | None
    waiting: str
    chance: str
    basis: str


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """The workloads of one ClusterQueue. ``queue`` "": their LocalQueue has none."""

    id: str
    queue: str
    link: Link | None
    rows: tuple[Row, ...]


class Chip(msgspec.Struct, frozen=True, kw_only=True):
    """A choice of rows, and how many there are."""

    text: str
    count: str
    href: str
    on: bool


class Quota(msgspec.Struct, frozen=True, kw_only=True):
    """The quota of one flavor and resource of the queue."""

    flavor: str
    text: str


class PendingView(msgspec.Struct, frozen=True, kw_only=True):
    """``heading``: the name of the queue on its page; ``quota``: of that queue; ``trouble``: why it
    is not active. ``bound``: why there are no pages after this one, though there are more rows;
    ``earlier`` and ``later``: the pages before and after this one."""

    title: str
    heading: str
    say: str
    trouble: str
    quota: tuple[Quota, ...]
    chips: tuple[Chip, ...]
    queue: str
    namespace: str
    state: str
    reason: str
    of_queue: bool
    groups: tuple[Group, ...]
    bound: str
    earlier: Link | None
    later: Link | None


def build(
    reply: PendingReply,
    starts: Mapping[str, StartForecast],
    now: datetime,
    chosen: Chosen = EVERYTHING,
    *,
    skip: int = 0,
    rows_max: int | None = None,
    status: QueueStatus | None = None,
    with_others: bool = False,
) -> PendingView:
    """The view of one page of workloads. ``starts``: the expected starts by ``namespace/name``;
    ``skip``: how many workloads are on the pages before; ``rows_max``: how many rows all pages
    have, None: all; ``status``: of the queue of the page. ``with_others``: the rows are the pending
    workloads of all namespaces."""
    groups: dict[str, list[PendingRow]] = {}
    for row in reply.rows:
        groups.setdefault(row.cluster_queue, []).append(row)
    end = skip + len(reply.rows)
    is_last = rows_max is not None and end >= rows_max
    where = f" in queue {chosen.queue}" if chosen.queue else ""
    waiting = reply.total
    if not with_others:
        waiting = sum(each.count for each in reply.counts if each.state == PENDING)
    say = _say(reply, waiting, where)
    if reply.rows and len(reply.rows) < reply.total:
        say += f" These are {skip + 1:,} to {end:,} of {reply.total:,}."
    return PendingView(
        title=f"{waiting:,} pending{where}",
        heading=chosen.queue if chosen.of_queue else "Pending",
        say=say,
        trouble=_trouble(status),
        quota=tuple(_quota(row) for row in status.usage) if status is not None else (),
        chips=tuple(_chips(reply.counts, chosen)),
        queue=chosen.queue,
        namespace=chosen.namespace,
        state=chosen.state,
        reason=chosen.reason,
        of_queue=chosen.of_queue,
        groups=tuple(_group(name, rows, starts, now) for name, rows in groups.items()),
        bound=f"The pages of several namespaces end after {rows_max:,} rows: choose a namespace."
        if is_last and end < reply.total
        else "",
        earlier=Link("Earlier", chosen.path(max(0, skip - ROWS_MAX))) if skip else None,
        later=Link("Later", chosen.path(end)) if end < reply.total and not is_last else None,
    )


def _say(reply: PendingReply, waiting: int, where: str) -> str:
    def has(count: int, one: str, several: str) -> str:
        return f"{count:,} {one if count == 1 else several}"

    reserved, held = (
        sum(each.count for each in reply.counts if each.state == state)
        for state in (RESERVED, HELD)
    )
    parts = [has(waiting, "workload waits", "workloads wait") + where]
    if not waiting:
        parts = [f"No workload waits{where}"]
    if reserved:
        parts.append(has(reserved, "has quota and waits", "have quota and wait") + " for a check")
    if held:
        parts.append(has(held, "is held", "are held"))
    return ", ".join(parts) + "."


def _trouble(status: QueueStatus | None) -> str:
    if status is None or status.active:
        return ""
    return status.message or status.reason or "It is not active."


def _quota(row: FlavorUsage) -> Quota:
    text = f"{number(row.resource, row.reserved)} of {amount(row.resource, row.nominal)} used"
    if row.borrowed:
        text += f", {number(row.resource, row.borrowed)} borrowed"
    if row.reserved > row.admitted:
        text += f", {number(row.resource, row.reserved - row.admitted)} reserved, not admitted"
    return Quota(flavor=row.flavor, text=text)


def _chips(counts: Sequence[PendingCount], chosen: Chosen) -> Iterable[Chip]:
    """All rows, each reason of pending workloads, and the other states."""
    if not counts:
        return
    total = sum(each.count for each in counts)
    yield Chip(
        text="All",
        count=f"{total:,}",
        href=chosen.path(state="", reason=""),
        on=not (chosen.state or chosen.reason),
    )
    for each in counts:
        if each.state == PENDING:
            yield Chip(
                text=each.reason,
                count=f"{each.count:,}",
                href=chosen.path(state=PENDING, reason=each.reason),
                on=chosen.reason == each.reason,
            )
    for state in STATES:
        count = sum(each.count for each in counts if each.state == state)
        if count:
            yield Chip(
                text=state,
                count=f"{count:,}",
                href=chosen.path(state=state, reason=""),
                on=chosen.state == state and not chosen.reason,
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
    # The row of a namespace that the user may not read has no LocalQueue.
    readable = bool(row.namespace and row.local_queue)
    link = Link(row.name, workload_path(row.namespace, row.name)) if readable else None
    if row.state:
        next_chance = ""
    elif row.requeue_at is not None and row.requeue_at > now:
        next_chance = f"{clock_time(row.requeue_at, now)}, in {between(now, row.requeue_at)}"
    else:
        next_chance = chance(start, now)
    return Row(
        id=f"{row.namespace}/{row.name}",
        position=str(row.position or ""),
        name=row.name,
        namespace=row.namespace,
        link=link,
        priority=str(row.priority),
        word=Word(row.state or PENDING, _CLASSES.get(row.state, "pending")),
        asks=", ".join(amount(resource, much) for resource, much in row.requests.items()),
        why=row.message or row.reason or ("It waits for its turn." if row.local_queue else ""),
        short=short(row.shortfalls),
        waiting=between(since, now) if since is not None and row.state != HELD else "",
        chance=next_chance,
        basis="" if start is None else start.basis or start.unknown,
    )


def short(shortfalls: Sequence[RowShortfall]) -> Short | None:
    """The largest shortfall of the flavor that lacks least; None: nothing is short."""
    worst: dict[str, RowShortfall] = {}
    for each in shortfalls:
        known = worst.get(each.flavor)
        if known is None or _part(each) > _part(known):
            worst[each.flavor] = each
    if not worst:
        return None
    least = min(worst.values(), key=_part)
    return Short(
        amount=number(least.resource, least.requested - max(0, least.available)),
        of=f"{number(least.resource, least.requested)} {unit(least.resource)}",
        flavor=least.flavor,
    )


def _part(shortfall: RowShortfall) -> float:
    return (shortfall.requested - max(0, shortfall.available)) / max(1, shortfall.requested)
