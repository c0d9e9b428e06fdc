"""The page of checks, and the verdicts that its inbox gives."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from admittance.api.checks import AdmissionCheck
from admittance.client import Client
from admittance.client.calls import Login
from admittance.client.errors import NotAllowed, NotFound, RequestFailed, Unavailable
from admittance.client.requests.objects import BucketObject
from admittance.events.reasons import BACKOFF
from admittance.runtime import clock
from admittance.web.pages.acting import acted
from admittance.web.pages.workload import done
from admittance.web.rendering import page
from admittance.web.sessions import Session
from admittance.web.views.frame import Frame
from admittance.web.views.system.checks import build
from admittance.workload.stored import StoredWorkload

VERDICTS: Final = frozenset({"approve", "deny"})
NAMED_MAX: Final = 500
"""The most workloads that are read one by one, which is quicker than to read all."""


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
    workloads = await under_checks(client, session.login)
    checks: Sequence[BucketObject]
    try:
        checks, every = await client.list("admissionchecks"), True
    except NotAllowed:
        # Owners, users and approvers may read a check by its name, and list none.
        checks, every = await _named_by(client, workloads), False
    now = clock.now()
    manifests = (stored.decoded(AdmissionCheck) for stored in checks)
    known = [manifest for manifest in manifests if manifest is not None]
    answers = {} if session.login.namespaces else await _answers(client, known)
    view = build(known, workloads, session.login, now, every=every, answers=answers)
    frame = Frame(title=view.title, as_of=now, at="/checks", trouble=view.trouble)
    return page(
        request, "checks.html", frame, view, session=session, status=status, refused=refused
    )


async def _answers(client: Client, checks: Sequence[AdmissionCheck]) -> dict[str, datetime]:
    """When each controller last reported a verdict; {} if the log cannot be read."""
    try:
        return await client.last_answers([check.spec.controller_name for check in checks])
    except (NotAllowed, Unavailable):
        return {}


async def under_checks(client: Client, login: Login) -> list[StoredWorkload]:
    """The workloads that wait for checks, or for the end of a delay, among those that the user may
    see; there may be others among them. All of them are read for a user of some namespaces, or if
    many wait, or if the scheduler does not answer."""
    if not login.namespaces and (keys := await _keys_under_checks(client)) is not None:
        found = await asyncio.gather(*(_workload(client, *key) for key in keys))
        return [stored.workload() for stored in found if stored is not None]
    lists = await asyncio.gather(
        *(
            client.list("workloads", namespace=space, all_namespaces=space is None)
            for space in login.namespaces or (None,)
        )
    )
    return [stored.workload() for of in lists for stored in of]


async def _keys_under_checks(client: Client) -> list[tuple[str, str]] | None:
    """Namespaces and names of the workloads that have quota and wait for checks, and of those in
    backoff; None: more than `NAMED_MAX`, or not known."""
    try:
        replies = await asyncio.gather(
            client.pending(states=("QuotaReserved",), limit=NAMED_MAX, all_namespaces=True),
            client.pending(reasons=(BACKOFF,), limit=NAMED_MAX, all_namespaces=True),
        )
    except RequestFailed:
        return None
    if sum(reply.total for reply in replies) > NAMED_MAX:
        return None
    return [(row.namespace, row.name) for reply in replies for row in reply.rows]


async def _workload(client: Client, namespace: str, name: str) -> BucketObject | None:
    """The workload; None: it was deleted just now, or cannot be read."""
    try:
        stored = await client.get("workload", name, namespace=namespace)
    except NotFound:
        return None
    return stored if stored.is_workload() else None


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
