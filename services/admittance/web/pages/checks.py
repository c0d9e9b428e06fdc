"""The page of checks, and the verdicts that its inbox gives."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from admittance.api.checks import AdmissionCheck
from admittance.client import Client
from admittance.client.errors import NotAllowed, NotFound
from admittance.client.requests.objects import BucketObject
from admittance.runtime import clock
from admittance.web.pages.acting import acted
from admittance.web.pages.workload import done
from admittance.web.rendering import page
from admittance.web.sessions import Session
from admittance.web.views.frame import Frame
from admittance.web.views.system.checks import build
from admittance.workload.stored import StoredWorkload

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
    lists = await asyncio.gather(
        *(
            client.list("workloads", namespace=space, all_namespaces=space is None)
            for space in spaces
        )
    )
    workloads = [stored.workload() for of in lists for stored in of]
    checks: Sequence[BucketObject]
    try:
        checks, every = await client.list("admissionchecks"), True
    except NotAllowed:
        # Owners, users and approvers may read a check by its name, and list none.
        checks, every = await _named_by(client, workloads), False
    now = clock.now()
    manifests = (stored.decoded(AdmissionCheck) for stored in checks)
    known = [manifest for manifest in manifests if manifest is not None]
    view = build(known, workloads, session.login, now, every=every)
    frame = Frame(title=view.title, as_of=now, at="/checks", trouble=view.trouble)
    return page(
        request, "checks.html", frame, view, session=session, status=status, refused=refused
    )


async def _named_by(client: Client, workloads: Iterable[StoredWorkload]) -> list[BucketObject]:
    """The AdmissionChecks of the workloads, as far as they exist."""
    names = {row.name for workload in workloads for row in workload.status.admission_checks}
    found = await asyncio.gather(*(_check(client, name) for name in sorted(names)))
    return [stored for stored in found if stored is not None]


async def _check(client: Client, name: str) -> BucketObject | None:
    try:
        return await client.get("admissioncheck", name)
    except NotFound:
        return None
