"""The first page, and the search for a workload by its name."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from admittance.runtime import clock
from admittance.web.paths import workload_path
from admittance.web.rendering import page
from admittance.web.sessions import Session
from admittance.web.views.frame import Frame
from admittance.web.views.home import build
from admittance.web.views.merging import merged_overviews
from admittance.web.views.missing import Missing, near_names
from admittance.web.views.words import Link

ROWS_MAX: Final = 100


async def home(request: Request, session: Session) -> Response:
    """What runs, and what waits."""
    login = session.login
    overviews = await asyncio.gather(
        *(
            session.client.queue(limit=ROWS_MAX, namespace=space, all_namespaces=space is None)
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
    spaces: list[str | None] = [namespace] if namespace else [*session.login.namespaces]
    known = []
    for space in spaces or [None]:
        rows = await session.client.list(
            "workloads", namespace=space, all_namespaces=space is None, limit=NAMES_MAX
        )
        known += [(row.namespace, row.name) for row in rows]
    exact = [(space, other) for space, other in known if other == name]
    if len(exact) == 1:
        return RedirectResponse(workload_path(*exact[0]), 303)
    names = near_names(name, [other for _, other in known])
    near = exact or [(space, other) for space, other in known if other in names]
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


NAMES_MAX: Final = 20_000
"""How many workloads are searched for a name."""
