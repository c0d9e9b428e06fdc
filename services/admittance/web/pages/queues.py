"""The page of queues."""

from __future__ import annotations

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
from admittance.web.views import queues as queues_view
from admittance.web.views.frame import Frame

TREES_MAX: Final = 50
"""The most cohort trees of one page."""


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


def _first(session: Session) -> str | None:
    """The first namespace of the user; None: it may see all."""
    return session.login.namespaces[0] if session.login.namespaces else None
