"""Asks about the past: objects, queues and workloads as they were at a moment."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from admittance.client.errors import BadInput, NotFound, RequestFailed
from admittance.client.kinds import WORKLOAD, ObjectKind
from admittance.client.requests.link import Link
from admittance.client.requests.objects import OF_NAMESPACES, BucketObject
from admittance.client.requests.workloads.explanation import Explanation, RunnerAnswer
from admittance.events.requests.base import Reply, Request
from admittance.events.requests.explanation import Explain, ExplainReply
from admittance.events.requests.past import THEN, Moment, Then, ThenReply
from admittance.events.requests.queues import PendingQuery, PendingReply, Queues, QueuesReply
from admittance.events.requests.reading import Objects, ObjectsReply, RunnersReply

At: TypeAlias = int | datetime
"""A moment: the sequence of a fact on the log, after which it is, or a time."""
ASK_SECONDS: Final = 125.0
"""The first question starts a process, which may have to make its index; and a whole explanation,
or a moment before the history of the bucket, takes long."""
ROWS_MAX: Final = 1_000
R = TypeVar("R", bound=Reply)
_encode = msgspec.json.Encoder().encode


async def _then(
    link: Link,
    what: str,
    at: At,
    query: Request,
    reply: type[R],
    *,
    namespace: str | None,
    name: str = "",
    whole: bool = False,
) -> R:
    asked = Then(at=_moment_of(at), query=msgspec.Raw(_encode(query)), name=name, whole=whole)
    answer = await _asked(link, what, asked, namespace)
    found = msgspec.json.decode(answer.reply, type=reply)
    if found.error:
        raise NotFound(f"{found.error} at that moment")
    return found


async def _asked(link: Link, what: str, asked: Then, namespace: str | None) -> ThenReply:
    answer = await link.ask(
        f"{THEN}{what}", asked, ThenReply, namespace=namespace, timeout=ASK_SECONDS
    )
    if answer.error:
        raise RequestFailed(answer.error)
    return answer


def _moment_of(at: At) -> At:
    if isinstance(at, bool) or (isinstance(at, int) and at < 1):
        raise BadInput(f"{at} is not the sequence of a fact: they begin with 1")
    if isinstance(at, datetime) and at.tzinfo is None:
        raise BadInput("a time needs its zone, such as 2026-11-27T14:00:00Z")
    return at


async def moment(link: Link, at: At, namespace: str | None) -> Moment:
    """The sequence, the time and the revision of a moment. Raises RequestFailed for one before the
    log begins, or after its end."""
    answer = await _asked(link, "moment", Then(at=_moment_of(at)), namespace)
    if answer.moment is None:
        raise RequestFailed("the answer names no moment")
    return answer.moment


async def find_then(
    link: Link, kind: ObjectKind, name: str, namespace: str, at: At
) -> BucketObject:
    """The object as it was. Raises NotFound if it was not there."""
    space = namespace or link.namespace
    for key in kind.keys(space, name):
        token, *within = key.split(".")[:-1]
        found = await _then(
            *(link, "objects", at, Objects(kind=token), ObjectsReply),
            namespace=space if within else None,
            name=name,
        )
        for entry in found.objects:
            if entry.value is not msgspec.UNSET:
                return BucketObject(entry.key, bytes(entry.value), entry.revision)
    of = f" in namespace {space}" if kind.namespaced else ""
    raise NotFound(f'there was no {kind.singular} "{name}"{of} at that moment')


async def pending_then(
    link: Link, query: PendingQuery, namespace: str | None, at: At
) -> PendingReply:
    """One page of the workloads that were pending. Raises NotFound and RequestFailed."""
    return await _then(link, "pending", at, query, PendingReply, namespace=namespace)


class OfQueue(NamedTuple):
    """``queue``: a LocalQueue or a ClusterQueue; ``cluster_queue``: only a ClusterQueue. Both "":
    all queues."""

    queue: str = ""
    cluster_queue: str = ""


async def pending_at(
    link: Link, of: OfQueue, namespace: str | None, at: At, *, limit: int | None, skip: int
) -> PendingReply:
    """One page of the workloads that were pending, of queues of that time. Raises NotFound and
    RequestFailed."""
    most = ROWS_MAX if limit is None else limit
    if not (of.queue or of.cluster_queue):
        return await pending_then(link, PendingQuery(limit=most, skip=skip), namespace, at)
    space = namespace or link.namespace
    if of.queue:
        local = PendingQuery(local_queue=of.queue, limit=most, skip=skip)
        with suppress(NotFound):
            return await pending_then(link, local, space, at)
    own = space if link.bus.nc.role in OF_NAMESPACES else None
    query = PendingQuery(cluster_queue=of.cluster_queue or of.queue, limit=most, skip=skip)
    return await pending_then(link, query, own, at)


async def queues_then(link: Link, query: Queues, namespace: str | None, at: At) -> QueuesReply:
    """The counters of queues as they were. Raises NotFound and RequestFailed."""
    return await _then(link, "queues", at, query, QueuesReply, namespace=namespace)


async def explain_then(
    link: Link, name: str, namespace: str, at: At, *, whole: bool
) -> ExplainReply:
    """Why the workload waited. ``whole`` False: only what was stored, and the room of its flavors.
    Raises NotFound and RequestFailed."""
    return await _then(
        *(link, "explain", at, Explain(name=name), ExplainReply), namespace=namespace, whole=whole
    )


async def explanation_then(link: Link, name: str, namespace: str, at: At) -> Explanation:
    """The whole explanation of a workload as of then, in the form of the present one. Nothing is
    known of runners. Raises NotFound and RequestFailed."""
    found = await find_then(link, WORKLOAD, name, namespace, at)
    reply = await explain_then(link, name, namespace, at, whole=True)
    return Explanation(found, reply, None, RunnerAnswer(), RunnersReply())
