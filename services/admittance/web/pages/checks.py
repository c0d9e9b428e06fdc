"""The page of checks, and the verdicts that its inbox gives."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from admittance.api.checks import AdmissionCheck
from admittance.client.errors import NotFound
from admittance.runtime import clock
from admittance.web.pages.acting import acted
from admittance.web.pages.workload import done
from admittance.web.rendering import page
from admittance.web.sessions import Session
from admittance.web.views.checks import build
from admittance.web.views.frame import Frame

VERDICTS: Final = frozenset({"approve", "deny"})


async def show(request: Request, session: Session) -> Response:
    """The page."""
    return await _shown(request, session)


async def act(request: Request, session: Session, form: dict[str, str]) -> Response:
    """Gives a verdict, and goes back to the inbox; a refusal is shown on the page."""
    given = request.path_params
    verb = given["act"]
    if verb.partition(":")[0] not in VERDICTS:
        raise NotFound(f"there is no action {verb}")

    async def said() -> str:
        await done(session.client, given["namespace"], given["name"], verb, form)
        return "/checks"

    return await acted(said(), partial(_shown, request, session))


async def _shown(
    request: Request, session: Session, refused: str = "", status: int = 200
) -> Response:
    client = session.client
    spaces: tuple[str | None, ...] = session.login.namespaces or (None,)
    checks, *lists = await asyncio.gather(
        client.list("admissionchecks"),
        *(
            client.list("workloads", namespace=space, all_namespaces=space is None)
            for space in spaces
        ),
    )
    now = clock.now()
    manifests = (stored.decoded(AdmissionCheck) for stored in checks)
    view = build(
        [manifest for manifest in manifests if manifest is not None],
        [stored.workload() for of in lists for stored in of],
        session.login,
        now,
    )
    frame = Frame(title=view.title, as_of=now, at="/checks", trouble=view.trouble)
    return page(
        request, "checks.html", frame, view, session=session, status=status, refused=refused
    )
