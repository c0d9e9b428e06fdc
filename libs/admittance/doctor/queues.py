"""Checks of `admit doctor`: queues that admit no workload."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from admittance.client.errors import RequestFailed
from admittance.client.requests.link import Link
from admittance.doctor.finding import WRONG, Finding, note, wrong
from admittance.events import reasons
from admittance.events.requests import (
    PendingQuery,
    PendingReply,
    PendingRow,
    Queues,
    QueuesReply,
)

SHOWN_MAX: Final = 20
"""The greatest number of inactive queues that get a line of their own."""
TODO: Final = "correct the queue or what it names: docs/operations.md#a-queue-is-inactive"


async def queue_findings(bus: Link) -> list[Finding]:
    """A finding for each inactive ClusterQueue, and for each LocalQueue whose workloads have no
    ClusterQueue. Empty if no scheduler answers, which another finding reports."""
    try:
        reply = await bus.ask("queues", Queues(local_queues=False), QueuesReply)
        # Workloads without a ClusterQueue are listed after those of all ClusterQueues.
        skip = sum(one.pending for one in reply.cluster_queues)
        pending = await bus.ask("pending", PendingQuery(skip=skip), PendingReply)
    except RequestFailed:
        return []
    return inactive_queues(reply, pending.rows)


def inactive_queues(reply: QueuesReply, pending: Iterable[PendingRow] = ()) -> list[Finding]:
    """The findings about inactive queues of the scheduler's answer: wrong if workloads wait in the
    queue, else a note. A queue that its manifest stops is inactive on purpose, so it is a note; so
    is a LocalQueue that does not exist, which the user of the workload has to correct."""
    found = []
    for one in reply.cluster_queues:
        if not one.active:
            text = f"inactive, {one.pending:,} pending: {one.reason}: {one.message}"
            blocks = one.pending and one.reason != reasons.STOPPED
            found.append((wrong if blocks else note)(f"clusterqueue {one.name}", text, TODO))
    without = [one for one in pending if one.position == 0 and one.reason != reasons.STOPPED]
    count = Counter((one.namespace, one.local_queue) for one in without)
    rows = {(one.namespace, one.local_queue): one for one in without}
    for (namespace, queue), row in rows.items():
        text = f"{count[namespace, queue]:,} pending: {row.reason}: {row.message}"
        make = wrong if row.cluster_queue else note
        found.append(make(f"localqueue {namespace}/{queue}", text, TODO))
    found.sort(key=lambda one: one.state != WRONG)
    shown, more = found[:SHOWN_MAX], found[SHOWN_MAX:]
    if more:
        text = f"{len(more):,} more are inactive: see `admit get clusterqueues`"
        make = wrong if more[0].state == WRONG else note
        shown.append(make("clusterqueues", text, TODO))
    return shown
