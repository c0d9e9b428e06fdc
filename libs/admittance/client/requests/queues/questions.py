"""Questions about queues: what is pending, and their counters."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from admittance.client import kinds
from admittance.client.errors import NotFound, RequestFailed
from admittance.client.requests.link import Link
from admittance.client.requests.objects import OF_NAMESPACES, BucketObject, field, find, find_all
from admittance.events.requests.queues import (
    PendingQuery,
    PendingReply,
    PendingRow,
    Queues,
    QueuesReply,
)

PENDING_ROWS: Final = 1_000
"""The greatest number of rows of pending workloads that the scheduler returns for one request."""


# Queues. --------------------------------------------------------------------------------


async def queues_named(link: Link, queue: str, namespace: str | None) -> frozenset[tuple[str, str]]:
    """The LocalQueue named ``queue``, as namespace and name; if there is none, all LocalQueues of
    the ClusterQueue named ``queue``. ``namespace``: None is all namespaces. Raises NotFound.
    """
    locals_, _ = await find_all(link, kinds.LOCAL_QUEUE, namespace)
    named = [local for local in locals_ if local.name == queue]
    if not named:
        named = [local for local in locals_ if _cluster_queue(local) == queue]
        if not named and await link.get(kinds.CLUSTER_QUEUE.object_key("", queue)) is None:
            raise no_queue(link, queue, namespace or link.namespace)
    return frozenset((local.namespace, local.name) for local in named)


def _cluster_queue(local: BucketObject) -> str:
    return str(field(local.plain(), "spec", "clusterQueue", default=""))


def no_queue(link: Link, queue: str, namespace: str) -> NotFound:
    """The error that there is no queue of that name."""
    return NotFound(
        f'there is neither a localqueue "{queue}" in namespace {namespace} '
        f'nor a clusterqueue "{queue}" at {link.shown_url}'
    )


async def pending_query(
    link: Link, queue: str | None, namespace: str | None
) -> tuple[PendingQuery, str | None]:
    """The query for pending workloads, and its namespace. A LocalQueue wins over a ClusterQueue of
    the same name. ``namespace``: None is all namespaces, and that of the link for a queue.
    """
    if queue is None:
        return PendingQuery(), namespace
    where = namespace or link.namespace
    if await link.get(kinds.LOCAL_QUEUE.object_key(where, queue)) is not None:
        return PendingQuery(local_queue=queue, others=True), where
    if await link.get(kinds.CLUSTER_QUEUE.object_key("", queue)) is not None:
        query, own = cluster_queue_query(link, queue, None)
        return query, None if own is None else where
    raise no_queue(link, queue, where)


def cluster_queue_query(
    link: Link, queue: str, namespace: str | None
) -> tuple[PendingQuery, str | None]:
    """The query for what is pending in a ClusterQueue, and its namespace. ``namespace`` None: all
    namespaces for a user that may ask about all of them, else that of the link."""
    if link.bus.nc.role in OF_NAMESPACES:
        return PendingQuery(cluster_queue=queue, others=True), namespace or link.namespace
    return PendingQuery(cluster_queue=queue), namespace


async def pending_rows(
    link: Link,
    query: PendingQuery,
    namespace: str | None,
    limit: int | None,
    *,
    skip: int = 0,
) -> PendingReply:
    """The first ``limit`` pending workloads (None: all) after the first ``skip``, read page by
    page, and the total."""
    rows: list[PendingRow] = []
    first: PendingReply | None = None
    while True:
        left = PENDING_ROWS if limit is None else limit - len(rows)
        page = replace(query, skip=skip + len(rows), limit=min(left, PENDING_ROWS))
        reply = await pending_page(link, page, namespace)
        if first is None:
            first, query = reply, replace(query, counts=False)
        rows += reply.rows
        there = max(0, reply.total - skip)
        wanted = there if limit is None else min(limit, there)
        if not reply.rows or len(rows) >= wanted:
            return replace(first, rows=tuple(rows), total=reply.total)


async def pending_page(link: Link, query: PendingQuery, namespace: str | None) -> PendingReply:
    """One page of pending workloads. Raises RequestFailed."""
    reply = await link.ask("pending", query, PendingReply, namespace=namespace)
    if reply.error:
        raise RequestFailed(reply.error)
    return reply


async def queues_that_exist(link: Link, query: Queues, namespace: str | None) -> QueuesReply:
    """The live counters of queues. Raises NotFound for a ClusterQueue or Cohort that does not
    exist, else RequestFailed."""
    reply = await link.ask("queues", query, QueuesReply, namespace=namespace)
    cohort, queue = query.cohort, query.cluster_queue
    # A cohort exists also without an object, if a ClusterQueue names it; then there is no error.
    if reply.error and cohort and await link.get(kinds.COHORT.object_key("", cohort)) is None:
        raise NotFound(reply.error)
    if queue and not (reply.error or reply.cluster_queues):
        await find(link, kinds.CLUSTER_QUEUE, queue)
    return _without_error(reply)


async def queues(link: Link, query: Queues, namespace: str | None) -> QueuesReply:
    """The live counters of queues. Raises RequestFailed."""
    return _without_error(await link.ask("queues", query, QueuesReply, namespace=namespace))


def _without_error(reply: QueuesReply) -> QueuesReply:
    if reply.error:
        raise RequestFailed(reply.error)
    return reply
