"""Requests about many objects: pending workloads, queues, a what-if, applying and deleting."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from admittance.api.reading.objects import encode
from admittance.client import kinds
from admittance.client.errors import (
    BadInput,
    NotAllowed,
    NotFound,
    Refused,
    RequestFailed,
)
from admittance.client.kinds import Kind
from admittance.client.requests import changes, submissions
from admittance.client.requests.families import refuse_variant
from admittance.client.requests.link import Link
from admittance.client.requests.manifests import Manifests, manifests_of, parted
from admittance.client.requests.objects import BucketObject, field, find, find_all, follow
from admittance.events import facts
from admittance.events.requests import (
    Applied,
    Apply,
    ApplyReply,
    Delete,
    DeleteReply,
    Explain,
    ExplainReply,
    PendingQuery,
    PendingReply,
    PendingRow,
    Queues,
    QueuesReply,
)
from admittance.events.whatif import Simulate, SimulateReply, joined_reply
from admittance.runtime import clock
from admittance.workload.phase import Phase, phase
from admittance.workload.stored import head
from admittance.workload.waiting_reason import reason_of

T = TypeVar("T")

OF_NAMESPACES: Final = frozenset({"owner", "user"})
"""The roles that may ask about pending workloads of their namespaces only."""
PENDING_ROWS: Final = 1_000
"""The greatest number of rows of pending workloads that the scheduler returns for one request."""
SIMULATE_SECONDS: Final = 130.0
"""Seconds to wait for a simulation, a little more than the scheduler's time limit for one."""
APPLY_SECONDS: Final = 30.0
AT_ONCE_BYTES: Final = 700_000
AT_ONCE: Final = 500
"""The greatest number of objects in one apply request. The request is applied as a whole, and must
fit into one message of the bus.
"""
GONE_SECONDS: Final = 10.0
"""How long a deletion waits for the job of a workload to stop."""


# Queues. --------------------------------------------------------------------------------


async def queues_named(link: Link, queue: str, namespace: str | None) -> frozenset[tuple[str, str]]:
    """The LocalQueue named ``queue``, as namespace and name; if there is none, all LocalQueues of
    the ClusterQueue named ``queue``. ``namespace``: None is all namespaces. Raises NotFound.
    """
    locals_, _ = await find_all(link, kinds.LOCAL_QUEUE, namespace)
    named = [one for one in locals_ if one.name == queue]
    if not named:
        named = [one for one in locals_ if _cluster_queue(one) == queue]
        if not named and await link.get(kinds.CLUSTER_QUEUE.object_key("", queue)) is None:
            raise NotFound(no_queue(queue, link.namespace))
    return frozenset((one.namespace, one.name) for one in named)


def _cluster_queue(local: BucketObject) -> str:
    return str(field(local.plain(), "spec", "clusterQueue", default=""))


def no_queue(queue: str, namespace: str) -> str:
    """The error that there is no queue of that name."""
    return (
        f'there is neither a localqueue "{queue}" in namespace {namespace} '
        f'nor a clusterqueue "{queue}"'
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
        if link.bus.nc.role in OF_NAMESPACES:
            return PendingQuery(cluster_queue=queue, others=True), where
        return PendingQuery(cluster_queue=queue), None
    raise NotFound(no_queue(queue, where))


async def pending_rows(
    link: Link, query: PendingQuery, namespace: str | None, limit: int | None
) -> tuple[list[PendingRow], int]:
    """The first ``limit`` pending workloads (None: all), read page by page, and the total."""
    rows: list[PendingRow] = []
    while True:
        left = PENDING_ROWS if limit is None else limit - len(rows)
        page = replace(query, skip=len(rows), limit=min(left, PENDING_ROWS))
        reply = await link.ask("pending", page, PendingReply, namespace=namespace)
        if reply.error:
            raise RequestFailed(reply.error)
        rows += reply.rows
        wanted = reply.total if limit is None else min(limit, reply.total)
        if not reply.rows or len(rows) >= wanted:
            return rows, reply.total


async def queues(link: Link, query: Queues, namespace: str | None) -> QueuesReply:
    """The live counters of queues. Raises RequestFailed."""
    reply = await link.ask("queues", query, QueuesReply, namespace=namespace)
    if reply.error:
        raise RequestFailed(reply.error)
    return reply


# Explanations. --------------------------------------------------------------------------


async def explain(link: Link, name: str, namespace: str = "") -> ExplainReply:
    """Why the workload waits. The scheduler keeps no finished workloads, whose explanation is made
    from the stored workload."""
    found = await find(link, kinds.WORKLOAD, name, namespace)
    workload, now = found.workload(), clock.now()
    where = phase(workload, now)
    reason, message = reason_of(workload, now)
    if where is Phase.FINISHED:
        spec = head(workload)
        return ExplainReply(
            phase=str(where),
            reason=reason,
            message=message,
            local_queue=spec.queue_name,
            priority=spec.priority or 0,
        )
    request = Explain(name=name)
    reply = await link.ask("explain", request, ExplainReply, namespace=found.namespace)
    if reply.error:
        raise RequestFailed(reply.error)
    return reply


# Changes of objects. --------------------------------------------------------------------


def parts(objects: Iterable[T], sizes: Iterable[int]) -> Iterator[list[T]]:
    """Splits objects, in order, into parts that fit one request. ``sizes``: their bytes."""
    part: list[T] = []
    size = 0
    for one, length in zip(objects, sizes, strict=True):
        if part and (size + length > AT_ONCE_BYTES or len(part) == AT_ONCE):
            yield part
            part, size = [], 0
        part.append(one)
        size += length
    if part:
        yield part


async def apply(link: Link, objects: Sequence[bytes]) -> ApplyReply:
    """Applies manifests as JSON that fit one request, all or none. Raises BadInput and Refused."""
    request = Apply(objects=tuple(map(msgspec.Raw, objects)))
    reply = await link.ask("apply", request, ApplyReply, timeout=APPLY_SECONDS)
    if reply.problems:
        raise BadInput(*reply.problems)
    if reply.error:
        raise Refused(reply.error)
    return reply


async def apply_all(link: Link, given: Manifests, namespace: str) -> list[Applied]:
    """Applies the manifests, and then submits the workloads among them. Returns the outcome of
    each object."""
    others, runs = parted(manifests_of(given, namespace))
    applied: list[Applied] = []
    for part in parts(others, map(len, others)):
        applied += (await apply(link, part)).results
    for workload in runs:
        outcome = "created" if await submissions.submit(link, workload) else "unchanged"
        space, name = workload.metadata.namespace, workload.metadata.name
        applied.append(Applied(kind=workload.kind, namespace=space, name=name, outcome=outcome))
    return applied


def spelled(kind: Kind) -> str:
    """The kind as requests to the workload-controller name it."""
    return f"{kind.singular}.{kind.group}" if kind.is_foreign else kind.manifest


async def deletion(link: Link, kind: Kind, name: str, namespace: str = "") -> Delete:
    """The request to delete an existing object. Raises NotFound."""
    found = await find(link, kind, name, namespace)
    return Delete(kind=spelled(kind), namespace=found.namespace, name=name)


async def delete_object(link: Link, kind: Kind, name: str, namespace: str = "") -> DeleteReply:
    """Deletes an object other than a workload: the outcome is deleted or deferred. Raises NotFound,
    and Refused if the object is kept."""
    request = await deletion(link, kind, name, namespace)
    reply = await link.ask("delete", request, DeleteReply)
    if reply.outcome == "absent":
        raise NotFound(f'{kind.qualified} "{name}" not found')
    if reply.outcome not in ("deleted", "deferred"):
        raise Refused(
            reply.error
            or f'{kind.qualified} "{name}" was not deleted: {reply.outcome or "no answer"}'
        )
    return reply


async def delete_workload(
    link: Link, found: BucketObject, instead: str = 'workload "{}"'
) -> DeleteReply:
    """Deletes a workload, and waits up to `GONE_SECONDS` for its job to stop: the outcome is
    deleted, or deferred while the job stops. Raises Refused."""
    refuse_variant(found, instead)
    await changes.outcome_of(link, changes.fact_about(found, facts.Deleted))
    uid = found.workload().metadata.uid
    try:
        async with asyncio.timeout(GONE_SECONDS):
            async for seen in follow(link, found.namespace, found.name):
                if seen is None or seen.workload().metadata.uid != uid:
                    break
    except TimeoutError:
        return DeleteReply(outcome="deferred")
    return DeleteReply(outcome="deleted")


# What-if. -------------------------------------------------------------------------------


async def simulate(link: Link, request: Simulate, namespace: str = "") -> SimulateReply:
    """What would happen: about all namespaces, or, for a user that may use only some namespaces,
    about the namespace. A reply with ``problems`` or ``error`` is returned as it is."""
    try:
        answer = await link.ask_at_length(
            "simulate", request, SimulateReply, timeout=SIMULATE_SECONDS
        )
    except NotAllowed:
        if link.bus.refused is not None:
            raise
        answer = await link.ask_at_length(
            "simulate",
            request,
            SimulateReply,
            timeout=SIMULATE_SECONDS,
            namespace=namespace or link.namespace,
        )
    return joined_reply(answer)


async def what_if(
    link: Link, given: Manifests, deletes: Iterable[str], limit: int, namespace: str
) -> SimulateReply:
    """What would happen if the manifests were applied, and then the objects ``kind/name`` deleted.
    Raises BadInput with the problems of the manifests, and Refused if nothing was simulated."""
    targets = [kinds.target(word, None) for word in deletes]
    if any(name is None for _, name in targets):
        raise BadInput("deletes: write kind/name")
    others, runs = parted(manifests_of(given, namespace))
    gone = [await deletion(link, kind, name or "", namespace) for kind, name in targets]
    raws = tuple(msgspec.Raw(raw) for raw in (*others, *map(encode, runs)))
    request = Simulate(objects=raws, deletes=tuple(gone), limit=limit)
    reply = await simulate(link, request, namespace)
    if reply.problems:
        raise BadInput(*reply.problems)
    if reply.error:
        raise Refused(reply.error)
    return reply
