"""The pages of pending workloads and of queues."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from admittance.client import Client
from admittance.client.errors import NotAllowed, NotFound, RequestFailed
from admittance.events.requests.forecast import StartForecast
from admittance.events.requests.queues import NodeStatus, PendingReply, QueueStatus
from admittance.runtime import clock
from admittance.web.rendering import page, skipped
from admittance.web.sessions import Session
from admittance.web.views import pending as pending_view
from admittance.web.views import queues as queues_view
from admittance.web.views.frame import Frame

TREES_MAX: Final = 50
"""The most cohort trees of one page."""


async def pending(request: Request, session: Session) -> Response:
    """The pending workloads, a page of them."""
    queue = request.query_params.get("queue", "").strip()
    namespace = request.query_params.get("namespace", "").strip()
    skip = skipped(request)
    client = session.client
    everywhere = not session.login.namespaces and not namespace
    reply = await client.pending(
        queue or None,
        skip=skip,
        limit=pending_view.ROWS_MAX,
        namespace=None if everywhere and not queue else namespace or _first(session),
        all_namespaces=everywhere and not queue,
    )
    starts = await _starts(client, reply)
    now = clock.now()
    view = pending_view.build(reply, starts, now, skip=skip, queue=queue, namespace=namespace)
    frame = Frame(title=view.title, as_of=now, at="/pending")
    return page(request, "pending.html", frame, view, session=session)


async def queues(request: Request, session: Session) -> Response:
    """The cohort trees."""
    client = session.client
    namespace = _first(session)
    reply = await client.queues(namespace=namespace)
    trees = await _trees(client, reply.cluster_queues, namespace)
    view = queues_view.build(reply.cluster_queues, trees, request.query_params.get("resource"))
    frame = Frame(title=view.title, as_of=clock.now(), at="/queues")
    return page(request, "queues.html", frame, view, session=session)


async def _trees(
    client: Client, queues: Sequence[QueueStatus], namespace: str | None
) -> list[Sequence[NodeStatus]]:
    """The cohort trees of the queues, as far as the user may see them."""
    left = list(dict.fromkeys(queue.cohort for queue in queues if queue.cohort))
    trees: list[Sequence[NodeStatus]] = []
    while left and len(trees) < TREES_MAX:
        tree = await _tree(client, left[0], namespace)
        names = {node.name for node in tree}
        left = [cohort for cohort in left[1:] if cohort not in names]
        if tree:
            trees.append(tree)
    return trees


async def _tree(client: Client, cohort: str, namespace: str | None) -> Sequence[NodeStatus]:
    """The tree of a cohort; () if the user may not read it, or it was deleted just now."""
    try:
        return (await client.queues(cohort=cohort, namespace=namespace)).tree
    except (NotAllowed, NotFound):
        return ()


async def _starts(client: Client, reply: PendingReply) -> dict[str, StartForecast]:
    """The expected starts by ``namespace/name``; {} if the forecast service does not run, starts
    just now, or may not be asked."""
    names: dict[str, list[str]] = {}
    for row in reply.rows:
        if row.namespace:
            names.setdefault(row.namespace, []).append(row.name)
    try:
        replies = await asyncio.gather(
            *(client.forecast(of, namespace=namespace) for namespace, of in names.items())
        )
    except RequestFailed:
        return {}
    return {
        f"{namespace}/{name}": start
        for namespace, answer in zip(names, replies, strict=True)
        for name, start in answer.starts.items()
    }


def _first(session: Session) -> str | None:
    """The first namespace of the user; None: it may see all."""
    return session.login.namespaces[0] if session.login.namespaces else None
