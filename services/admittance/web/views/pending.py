"""The page of pending workloads: in the order of their queues, with why each waits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from admittance.client.calls import Login
from admittance.events.requests.forecast import StartForecast
from admittance.events.requests.queues import (
    PendingCount,
    PendingReply,
    PendingRow,
    QueueStatus,
    RowShortfall,
)
from admittance.web.paths import pending_path, queue_path, workload_path
from admittance.web.views.actions import Ask, release
from admittance.web.views.chances import chance
from admittance.web.views.queues import Cell, cells_of
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


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """The button that releases a held workload. ``path``: where its form leads."""

    ask: Ask
    path: str


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A workload. ``link`` None: the user may not see it. ``short`` None: nothing is known to be
    short. ``chance``: when it is expected to start, or with ``in_backoff`` the end of its backoff;
    ``basis``: on what that rests. ``release``: the button of a held one."""

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
    in_backoff: bool
    release: Release | None
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
    """The quota of one resource of the queue. ``cells``: by flavor, in the order of the columns;
    None for a flavor without the resource."""

    resource: str
    cells: tuple[Cell | None, ...]


class PendingView(msgspec.Struct, frozen=True, kw_only=True):
    """``heading``: the name of the queue on its page; ``flavors``, ``quota``: of that queue;
    ``trouble``: why it
    is not active. ``bound``: why there are no pages after this one, though there are more rows;
    ``earlier`` and ``later``: the pages before and after this one."""

    title: str
    heading: str
    say: str
    trouble: str
    flavors: tuple[str, ...]
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
    login: Login | None = None,
) -> PendingView:
    """The view of one page of workloads. ``starts``: the expected starts by ``namespace/name``;
    ``skip``: how many workloads are on the pages before; ``rows_max``: how many rows all pages
    have, None: all; ``status``: of the queue of the page. ``with_others``: the rows are the pending
    workloads of all namespaces. ``login``: of the person; it may release held workloads; None:
    the page has no buttons."""
    groups: dict[str, list[PendingRow]] = {}
    for row in reply.rows:
        groups.setdefault(row.cluster_queue, []).append(row)
    end = skip + len(reply.rows)
    is_last = rows_max is not None and end >= rows_max
    where = f" in queue {chosen.queue}" if chosen.queue else ""
    waiting = reply.total
    if not with_others:
        waiting = sum(each.count for each in reply.counts if each.state == PENDING)
    flavors, quota = cells_of(status) if status is not None else ((), {})
    say = _say(reply, waiting, where)
    if reply.rows and len(reply.rows) < reply.total:
        say += f" These are {skip + 1:,} to {end:,} of {reply.total:,}."
    return PendingView(
        title=f"{waiting:,} pending{where}",
        heading=chosen.queue if chosen.of_queue else "Pending",
        say=say,
        trouble=_trouble(status),
        flavors=flavors,
        quota=tuple(Quota(resource=name, cells=cells) for name, cells in quota.items()),
        chips=tuple(_chips(reply.counts, chosen)),
        queue=chosen.queue,
        namespace=chosen.namespace,
        state=chosen.state,
        reason=chosen.reason,
        of_queue=chosen.of_queue,
        groups=tuple(_group(name, rows, starts, now, login) for name, rows in groups.items()),
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
    queue: str,
    rows: Sequence[PendingRow],
    starts: Mapping[str, StartForecast],
    now: datetime,
    login: Login | None,
) -> Group:
    return Group(
        id=queue or "no-queue",
        queue=queue,
        link=Link(queue, queue_path(queue)) if queue else None,
        rows=tuple(
            _row(row, starts.get(f"{row.namespace}/{row.name}"), now, login) for row in rows
        ),
    )


def _row(row: PendingRow, start: StartForecast | None, now: datetime, login: Login | None) -> Row:
    since = row.waiting_since or row.created
    # The row of a namespace that the user may not read has no LocalQueue.
    readable = bool(row.namespace and row.local_queue)
    link = Link(row.name, workload_path(row.namespace, row.name)) if readable else None
    in_backoff = not row.state and row.requeue_at is not None and row.requeue_at > now
    if row.state:
        next_chance = ""
    elif row.requeue_at is not None and in_backoff:
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
        in_backoff=in_backoff,
        release=_release(row, login) if readable and login is not None else None,
        basis="" if start is None else start.basis or start.unknown,
    )


def _release(row: PendingRow, login: Login) -> Release | None:
    ask = release(row.namespace, row.name, login, submitted_by=row.user)
    if row.state != HELD or ask is None:
        return None
    return Release(ask=ask, path=f"{workload_path(row.namespace, row.name)}/{ask.verb}")


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
