"""Checks of `admit doctor`: ClusterQueues that admit no workload."""

from __future__ import annotations

from typing import Final

from admittance.cli.doctor.finding import Finding, note
from admittance.cli.support.errors import AnswerIsNo
from admittance.cli.support.link import Link
from admittance.events.requests import Queues, QueuesReply

SHOWN_MAX: Final = 20
"""The greatest number of inactive queues that get a line of their own."""


async def queue_findings(bus: Link) -> list[Finding]:
    """A note for each inactive ClusterQueue. Empty if no scheduler answers, which another finding
    reports."""
    try:
        reply = await bus.ask("queues", Queues(), QueuesReply)
    except AnswerIsNo:
        return []
    return inactive_queues(reply)


def inactive_queues(reply: QueuesReply) -> list[Finding]:
    """A note for each inactive ClusterQueue of the scheduler's answer."""
    inactive = [one for one in reply.cluster_queues if not one.active]
    found = [
        note(
            f"clusterqueue {one.name}",
            f"inactive, {one.pending:,} pending: {one.reason}: {one.message}",
            "correct the queue or what it names: docs/operations.md#a-queue-is-inactive",
        )
        for one in inactive[:SHOWN_MAX]
    ]
    if len(inactive) > SHOWN_MAX:
        text = f"{len(inactive) - SHOWN_MAX:,} more are inactive: see `admit get clusterqueues`"
        found.append(note("clusterqueues", text))
    return found
