"""One list of what a person of several namespaces sees: a request is about one namespace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from msgspec.structs import replace

from admittance.api.fields.usage_units import Unit
from admittance.client.requests.queues.overview import QueueOverview
from admittance.events.requests.queues import PendingCount, PendingReply, PendingRow
from admittance.events.requests.reading import UsageReply, UsageSum
from admittance.usage.report import added
from admittance.usage.shares import with_shares

LAST: Final = 1 << 62
"""The place of a row without a position: after all others of its queue."""
STATES: Final = ("", "QuotaReserved", "Held")
"""The states of rows in the order of a queue."""
NEVER: Final = datetime.max.replace(tzinfo=UTC)


def merged_pending(
    replies: Sequence[PendingReply], *, skip: int, limit: int, of_queue: bool
) -> PendingReply:
    """The rows ``skip`` to ``skip + limit`` of the replies, each of which has the first rows of one
    namespace. ``of_queue``: the replies have the rows of one queue from all namespaces, and only
    those of their own namespace have a LocalQueue."""
    rows: dict[tuple[str, str], PendingRow] = {}
    for row in (row for reply in replies for row in reply.rows):
        known = rows.get((row.namespace, row.name))
        if known is None or not known.local_queue:
            rows[row.namespace, row.name] = row
    totals = [reply.total for reply in replies]
    listed = sorted(rows.values(), key=_place)
    return PendingReply(
        rows=tuple(listed[skip : skip + limit]),
        total=max(totals) if of_queue else sum(totals),
        counts=_summed(reply.counts for reply in replies),
    )


def _place(row: PendingRow) -> tuple[bool, str, int, int, str, str]:
    state = STATES.index(row.state) if row.state in STATES else len(STATES)
    queue = row.cluster_queue
    return not queue, queue, state, row.position or LAST, row.namespace, row.name


def merged_usage(replies: Sequence[UsageReply], unit: Unit) -> UsageReply:
    """The sums of several namespaces, of the same days, as those of one reply, with shares of the
    unit."""
    sums: list[UsageSum] = []
    for reply in replies:
        sums = added(sums, reply.sums)
    used = [unit.used(each.resource_seconds) for each in sums]
    return replace(replies[0], sums=tuple(with_shares(sums, used)))


def _summed(several: Iterable[Sequence[PendingCount]]) -> tuple[PendingCount, ...]:
    counts: Counter[tuple[str, str]] = Counter()
    for of in several:
        for each in of:
            counts[each.state, each.reason] += each.count
    return tuple(
        PendingCount(state=state, reason=reason, count=count)
        for (state, reason), count in counts.most_common()
    )


def merged_overviews(overviews: Sequence[QueueOverview], limit: int) -> QueueOverview:
    """One overview of several namespaces: at most ``limit`` rows of what holds quota, the oldest
    first, and of what waits, in the order of the queues."""
    queues = {queue.name: queue for each in overviews for queue in each.queues}
    running = sorted(
        (row for each in overviews for row in each.running), key=lambda row: row.started or NEVER
    )
    waiting = sorted(
        (row for each in overviews for row in each.waiting),
        key=lambda row: (row.cluster_queue, row.position or LAST, row.namespace, row.name),
    )
    return replace(
        overviews[0],
        queues=tuple(queues[name] for name in sorted(queues)),
        running=tuple(running[:limit]),
        running_total=sum(each.running_total for each in overviews),
        waiting=tuple(waiting[:limit]),
        waiting_total=sum(each.waiting_total for each in overviews),
    )
