"""``admit get … --at``: an object, or the pending workloads, as they were at a past moment."""

from __future__ import annotations

from admittance.cli.show import lists, pending
from admittance.cli.support.link import link
from admittance.cli.support.moments import located
from admittance.cli.support.options import Call
from admittance.client import kinds
from admittance.client.requests import then
from admittance.client.requests.then import At, OfQueue
from admittance.events.requests.queues import Queues


async def show_object(call: Call, kind: kinds.ObjectKind, name: str, at: At) -> None:
    """Prints the object as it was stored; a queue with its counters of then."""
    async with link(call) as bus:
        moment = await located(call, bus, at)
        found = await then.find_then(bus, kind, name, call.namespace, moment.sequence)
        counters = {}
        if kind in lists.QUEUES:
            narrow = name if kind is kinds.CLUSTER_QUEUE else ""
            space = call.namespace if kind is kinds.LOCAL_QUEUE else None
            query = Queues(cluster_queue=narrow)
            reply = await then.queues_then(bus, query, space, moment.sequence)
            rows = reply.cluster_queues if narrow else reply.local_queues
            counters = {(row.namespace, row.name): row for row in rows}
    lists.show(call, kind, [found], counters, single=True, all_namespaces=False, now=moment.time)


async def show_pending(
    call: Call, queue: str | None, limit: int | None, at: At, *, all_namespaces: bool
) -> None:
    """Prints the workloads that were pending, in their order, with the reasons that were stored
    then. ``queue``: a LocalQueue of the namespace, or a ClusterQueue."""
    namespace = None if all_namespaces and queue is None else call.namespace
    async with link(call) as bus:
        moment = await located(call, bus, at)
        reply = await then.pending_at(
            *(bus, OfQueue(queue or ""), namespace, moment.sequence), limit=limit, skip=0
        )
    waiting = pending.PendingList(reply.rows, reply.total, sizes=False, chosen=queue is not None)
    pending.show(call, waiting, namespace, moment.time)
