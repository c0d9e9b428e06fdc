"""Checks of `admit doctor`: queues that admit no workload."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from admittance.client.errors import RequestFailed
from admittance.client.requests.link import Link
from admittance.doctor.finding import WRONG, Finding, note, wrong
from admittance.events import reasons
from admittance.events.requests.queues import (
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
    """A finding for each inactive ClusterQueue, and for each LocalQueue with workloads that have no
    ClusterQueue. Empty if no scheduler answers, which another finding reports."""
    try:
        reply = await bus.ask("queues", Queues(local_queues=False), QueuesReply)
        # Workloads without a ClusterQueue are listed after those of all ClusterQueues.
        skip = sum(queue.pending for queue in reply.cluster_queues)
        pending = await bus.ask("pending", PendingQuery(skip=skip), PendingReply)
    except RequestFailed:
        return []
    return inactive_queues(reply, pending.rows)


def inactive_queues(reply: QueuesReply, pending: Iterable[PendingRow] = ()) -> list[Finding]:
    """The findings about inactive queues of the scheduler's answer: wrong if workloads wait in the
    queue, else a note. A queue that its manifest stops is inactive on purpose, so it is a note; so
    is a LocalQueue that does not exist, which the user of the workload has to correct."""
    findings = []
    for queue in reply.cluster_queues:
        if not queue.active:
            text = f"inactive, {queue.pending:,} pending: {queue.reason}: {queue.message}"
            blocks = queue.pending and queue.reason != reasons.STOPPED
            findings.append((wrong if blocks else note)(f"clusterqueue {queue.name}", text, TODO))
    without = [row for row in pending if row.position == 0 and row.reason != reasons.STOPPED]
    count = Counter((row.namespace, row.local_queue) for row in without)
    rows = {(row.namespace, row.local_queue): row for row in without}
    for (namespace, name), row in rows.items():
        text = f"{count[namespace, name]:,} pending: {row.reason}: {row.message}"
        make = wrong if row.cluster_queue else note
        findings.append(make(f"localqueue {namespace}/{name}", text, TODO))
    findings.sort(key=lambda line: line.state != WRONG)
    shown, more = findings[:SHOWN_MAX], findings[SHOWN_MAX:]
    if more:
        text = f"{len(more):,} more are inactive: see `admit get clusterqueues`"
        make = wrong if more[0].state == WRONG else note
        shown.append(make("clusterqueues", text, TODO))
    return shown
