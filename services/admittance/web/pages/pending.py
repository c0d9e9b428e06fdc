"""The page of pending workloads, and the page of one queue."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from admittance.client.errors import BadInput, NotFound
from admittance.events.requests.queues import PendingReply
from admittance.runtime import clock
from admittance.web.rendering import page, skipped
from admittance.web.sessions import Session
from admittance.web.views.frame import Frame
from admittance.web.views.merging import merged_pending
from admittance.web.views.pending import ROWS_MAX, STATES, Chosen, build

MERGED_MAX: Final = 2_000
"""The most rows of all pages of a person of several namespaces: each request is about one of them,
so a later page needs the first rows of every namespace."""


async def show(request: Request, session: Session) -> Response:
    """The pending workloads, a page of them."""
    chosen = _chosen(request)
    return await _shown(request, session, chosen)


async def of_queue(request: Request, session: Session) -> Response:
    """The page of a ClusterQueue."""
    chosen = _chosen(request)._replace(queue=request.path_params["name"], of_queue=True)
    return await _shown(request, session, chosen)


def _chosen(request: Request) -> Chosen:
    queue, namespace, state, reason = (
        request.query_params.get(name, "").strip()
        for name in ("queue", "namespace", "state", "reason")
    )
    if state not in ("", *STATES):
        raise BadInput(f'no state "{state[:40]}": there are {", ".join(STATES)}')
    return Chosen(queue, namespace, state, reason)


async def _shown(request: Request, session: Session, chosen: Chosen) -> Response:
    client, login = session.client, session.login
    skip = skipped(request)
    status = None
    if chosen.of_queue:
        space = login.namespaces[0] if login.namespaces else None
        found = (await client.queues(chosen.queue, namespace=space)).cluster_queues
        if not found:
            raise NotFound(f"no ClusterQueue {chosen.queue}")
        status = found[0]
    # Positions of a queue mean little without the workloads of other namespaces between them.
    with_others = bool(chosen.queue and login.namespaces and not (chosen.state or chosen.reason))
    reply, rows_max = await _pending(session, chosen, skip, with_others=with_others)
    starts = await session.starts.of(_names(reply, login.namespaces))
    now = clock.now()
    view = build(
        reply,
        starts,
        now,
        chosen,
        skip=skip,
        rows_max=rows_max,
        status=status,
        with_others=with_others,
        login=login,
    )
    frame = Frame(title=view.title, as_of=now, at="/queues" if chosen.of_queue else "/pending")
    return page(request, "pending.html", frame, view, session=session)


async def _pending(
    session: Session, chosen: Chosen, skip: int, *, with_others: bool
) -> tuple[PendingReply, int | None]:
    """The rows of the page, and how many rows all pages have; None: all."""
    client, namespaces = session.client, session.login.namespaces
    states = (chosen.state,) if chosen.state else () if with_others else STATES

    def ask(space: str | None, first: int, limit: int) -> asyncio.Future[PendingReply]:
        everywhere = space is None and (chosen.of_queue or not chosen.queue)
        return asyncio.ensure_future(
            client.pending(
                None if chosen.of_queue else chosen.queue or None,
                cluster_queue=chosen.queue if chosen.of_queue else "",
                skip=first,
                limit=limit,
                states=states,
                reasons=(chosen.reason,) if chosen.reason else (),
                counts=True,
                namespace=space,
                all_namespaces=everywhere,
            )
        )

    if chosen.namespace or len(namespaces) < 2:
        space = chosen.namespace or (namespaces[0] if namespaces else None)
        return await ask(space, skip, ROWS_MAX), None
    limit = min(skip + ROWS_MAX, MERGED_MAX)
    replies = await asyncio.gather(*(ask(space, 0, limit) for space in namespaces))
    merged = merged_pending(replies, skip=skip, limit=max(0, limit - skip), of_queue=with_others)
    return merged, MERGED_MAX


def _names(reply: PendingReply, namespaces: tuple[str, ...]) -> dict[str, list[str]]:
    """The names of the workloads that wait for quota, by namespace. ``namespaces``: those of the
    person, since forecasts of others are not answered; empty: all."""
    names: dict[str, list[str]] = {}
    for row in reply.rows:
        if not row.state and (not namespaces or row.namespace in namespaces):
            names.setdefault(row.namespace, []).append(row.name)
    return names
