"""The first page, and the search for a workload by its name."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from admittance.client.errors import BadInput, RequestFailed
from admittance.runtime import clock
from admittance.web.paths import workload_path
from admittance.web.rendering import page
from admittance.web.sessions import Session
from admittance.web.views.frame import Frame
from admittance.web.views.home import build
from admittance.web.views.merging import merged_overviews
from admittance.web.views.missing import Missing, near_keys
from admittance.web.views.words import Link

ROWS_MAX: Final = 100
APPROVER: Final = "approver"
"""The role that may neither ask what waits nor list workloads."""


async def home(request: Request, session: Session) -> Response:
    """What runs, and what waits. An approver may not ask that, and gets the inbox."""
    login = session.login
    if login.role == APPROVER:
        return RedirectResponse("/checks", 303)
    overviews = await asyncio.gather(
        *(
            session.client.queue(
                limit=ROWS_MAX, brief=True, namespace=space, all_namespaces=space is None
            )
            for space in login.namespaces or (None,)
        )
    )
    overview = merged_overviews(overviews, ROWS_MAX)
    now = clock.now()
    view = build(overview, now)
    return page(
        request, "home.html", Frame(title=view.title, as_of=now, at="/"), view, session=session
    )


async def find(request: Request, session: Session) -> Response:
    """Leads to the workload that the text names: ``NAME`` or ``NAMESPACE/NAME``."""
    text = request.query_params.get("q", "").strip()
    namespace, _, name = text.rpartition("/")
    if not name:
        raise BadInput("enter the name of a workload, or NAMESPACE/NAME")
    spaces: list[str | None] = [namespace] if namespace else [*session.login.namespaces]
    found = await asyncio.gather(
        *(
            session.client.list(
                "workloads", name=name, namespace=space, all_namespaces=space is None
            )
            for space in spaces or [None]
        )
    )
    exact = [(row.namespace, row.name) for rows in found for row in rows]
    if len(exact) == 1:
        return RedirectResponse(workload_path(*exact[0]), 303)
    near = exact or near_keys(name, await known_keys(session, namespace))
    view = Missing(
        title=f"{len(exact)} workloads" if exact else "Not found",
        text=f"{len(exact)} workloads have the name {name}."
        if exact
        else f"No workload has the name {text}.",
        near=tuple(Link(f"{space}/{other}", workload_path(space, other)) for space, other in near),
    )
    frame = Frame(title=view.title, as_of=clock.now(), live=False)
    status = 200 if exact else 404
    return page(request, "missing.html", frame, view, session=session, status=status)


async def known_keys(session: Session, namespace: str = "") -> list[tuple[str, str]]:
    """Namespaces and names of some workloads: of the namespace, or of all that the person may see.
    They are the first that hold quota, and the first that wait; () if the person may not ask."""
    spaces = (namespace,) if namespace else session.login.namespaces or (None,)
    try:
        overviews = await asyncio.gather(
            *(
                session.client.queue(
                    limit=NAMES_MAX, brief=True, namespace=space, all_namespaces=space is None
                )
                for space in spaces
            )
        )
    except RequestFailed:
        return []
    running = [(row.namespace, row.name) for each in overviews for row in each.running]
    return running + [(row.namespace, row.name) for each in overviews for row in each.waiting]


NAMES_MAX: Final = 200
"""How many workloads that hold quota, and that wait, are compared with a name."""
