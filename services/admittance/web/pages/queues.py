"""The page of queues."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from admittance.client import Client
from admittance.client.errors import NotAllowed, NotFound
from admittance.events.requests.queues import NodeStatus, QueueStatus
from admittance.runtime import clock
from admittance.web.rendering import page
from admittance.web.sessions import Session
from admittance.web.views.frame import Frame
from admittance.web.views.queues import build, rows_with_charts, with_day

TREES_MAX: Final = 50
"""The most cohort trees of one page."""


async def show(request: Request, session: Session) -> Response:
    """The cohort trees."""
    client = session.client
    namespace = session.login.namespaces[0] if session.login.namespaces else None
    reply = await client.queues(namespace=namespace, local_queues=False)
    trees = await _trees(client, reply.cluster_queues, namespace)
    view = build(
        reply.cluster_queues,
        trees,
        request.query_params.get("resource"),
        folded(request),
    )
    now = clock.now()
    if view.rows and view.resource:
        rows = rows_with_charts(view)
        last = await client.last_day(
            view.resource,
            [row.name for row in rows if not row.is_cohort],
            cohorts=[row.name for row in rows if row.is_cohort],
            namespace=namespace,
        )
        view = with_day(view, rows, last, now)
    frame = Frame(title=view.title, as_of=now, at="/queues")
    return page(request, "queues.html", frame, view, session=session)


def folded(request: Request) -> frozenset[str]:
    """The cohorts without the rows below them."""
    return frozenset(filter(None, request.query_params.get("fold", "").split(",")))


async def _trees(
    client: Client, queues: Sequence[QueueStatus], namespace: str | None
) -> list[Sequence[NodeStatus]]:
    """The cohort trees of the queues, as far as the user may see them, by name."""
    cohorts = {queue.domain: queue.cohort for queue in queues if queue.cohort}
    asked = [cohorts[domain] for domain in sorted(cohorts)][:TREES_MAX]
    trees = await asyncio.gather(*(_tree(client, cohort, namespace) for cohort in asked))
    return [tree for tree in trees if tree]


async def _tree(client: Client, cohort: str, namespace: str | None) -> Sequence[NodeStatus]:
    """The tree of a cohort; () if the user may not read it, or it was deleted just now."""
    try:
        return (await client.queues(cohort=cohort, namespace=namespace)).tree
    except (NotAllowed, NotFound):
        return ()
