"""The page with the output of a workload, which goes on while its job runs."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from admittance.client.errors import BadInput
from admittance.runtime import clock
from admittance.web.pages.output import RUNS, read_output
from admittance.web.pages.workload import named
from admittance.web.paths import workload_path
from admittance.web.rendering import page, whole_number
from admittance.web.sessions import Session
from admittance.web.views.details.output import LINES, LINES_MAX, build
from admittance.web.views.frame import Frame
from admittance.workload.phase import phase

AGAIN_SECONDS: Final = 2
"""Output is no fact of the log, so a page that follows it asks again, while it is visible."""
READ_SECONDS: Final = 5.0
"""A job that prints faster than its output is read has no end: what came until then is shown."""


async def show(request: Request, session: Session) -> Response:
    """The page."""
    namespace, name = named(request)
    lines = whole_number(request.query_params.get("lines", str(LINES)), "lines")
    previous = whole_number(request.query_params.get("previous", "0"), "previous")
    if not 0 < lines <= LINES_MAX:
        raise BadInput(f"lines {lines} is not from 1 to {LINES_MAX:,}")
    stored = (await session.client.get("workload", name, namespace=namespace)).workload()
    runs = phase(stored, clock.now()) in RUNS and not previous
    tails, why = await read_output(
        session.client, namespace, name, lines, previous=previous, seconds=READ_SECONDS
    )
    view = build(
        namespace,
        name,
        tails,
        why=why,
        lines=lines,
        previous=previous,
        restarts=stored.status.restarts,
        follows=runs,
    )
    every = AGAIN_SECONDS if runs else 0
    frame = Frame(title=view.title, as_of=clock.now(), every=every)
    back = workload_path(namespace, name)
    return page(request, "logs.html", frame, view, session=session, request_path=back)
