"""The page of a workload, and what its buttons do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from admittance.api.checks import AdmissionCheck
from admittance.client import Client
from admittance.client.errors import BadInput, NotAllowed, NotFound, RequestFailed
from admittance.events.requests.explanation import ExplainReply
from admittance.events.requests.history import LogEntry
from admittance.events.subjects import APPROVAL_CONTROLLER
from admittance.runtime import clock
from admittance.web.pages.acting import acted
from admittance.web.paths import workload_path
from admittance.web.rendering import page
from admittance.web.sessions import Session
from admittance.web.views.frame import Frame
from admittance.web.views.missing import Missing, near_names
from admittance.web.views.words import Link
from admittance.web.views.workload import WorkloadView, build

NAMES_MAX: Final = 20_000
"""How many names are compared with one that does not exist."""
TROUBLE: Final = frozenset({"evicting", "rejected", "off"})


async def show(request: Request, session: Session) -> Response:
    """The page."""
    return await _shown(request, session)


async def act(request: Request, session: Session, form: dict[str, str]) -> Response:
    """Does what a button asks for, and goes back to the page; a refusal is shown on the page."""
    namespace, name = _named(request)
    verb = request.path_params["act"]
    action = done(session.client, namespace, name, verb, form)
    return await acted(action, partial(_shown, request, session))


async def done(client: Client, namespace: str, name: str, verb: str, form: dict[str, str]) -> str:
    """Does what a button of a workload asks for; returns the page to go to. Raises NotFound for an
    action that does not exist, and ClientError for one that is refused."""
    here = workload_path(namespace, name)
    verb, _, check = verb.partition(":")
    message = form.get("message", "")
    match verb:
        case "resubmit":
            job = await client.resubmit(name, namespace=namespace)
            return workload_path(namespace, job.name)
        case "priority":
            text = form.get("priority", "").strip()
            try:
                priority = int(text)
            except ValueError:
                raise BadInput(f'the priority "{text[:40]}" is not a whole number') from None
            await client.set_priority(name, priority, namespace=namespace)
        case "approve":
            await client.approve(name, check=check or None, message=message, namespace=namespace)
        case "deny":
            await client.deny(name, check=check or None, message=message, namespace=namespace)
        case "delete":
            await client.delete("workload", name, namespace=namespace)
        case "hold":
            await client.hold(name, namespace=namespace)
        case _ if verb in CHANGES:
            await CHANGES[verb](client, name, namespace)
        case _:
            raise NotFound(f"there is no action {verb}")
    return here


CHANGES: Final[dict[str, Callable[[Client, str, str], Awaitable[object]]]] = {
    "stop": lambda client, name, space: client.stop(name, namespace=space),
    "activate": lambda client, name, space: client.activate(name, namespace=space),
    "release": lambda client, name, space: client.release(name, namespace=space),
    "finish": lambda client, name, space: client.finish(name, namespace=space),
}
"""The actions without further values."""


async def _shown(
    request: Request, session: Session, refused: str = "", status: int = 200
) -> Response:
    namespace, name = _named(request)
    try:
        view = await read(session, namespace, name)
    except (NotFound, NotAllowed):
        return await _missing(request, session, namespace, name)
    frame = Frame(title=view.title, as_of=clock.now(), trouble=view.word.state in TROUBLE)
    return page(
        request,
        "workload.html",
        frame,
        view,
        session=session,
        status=status,
        refused=refused,
        request_path=workload_path(namespace, name),
    )


async def read(session: Session, namespace: str, name: str) -> WorkloadView:
    """The view of a workload. Raises NotFound, NotAllowed, and ClientError."""
    client = session.client
    explained: ExplainReply | None
    entries: list[LogEntry]
    stored = await client.get("workload", name, namespace=namespace)
    explained, entries = await asyncio.gather(
        _explained(client, namespace, name), _facts(client, namespace, name)
    )
    workload = stored.workload()
    waits = [row.name for row in workload.status.admission_checks if row.state == "Pending"]
    approvals = [check for check in waits if await _is_approval(client, check)]
    return build(workload, explained, entries, session.login, clock.now(), tuple(approvals))


async def _is_approval(client: Client, check: str) -> bool:
    """Whether people give the verdict of the check; False if the user may not read the check."""
    try:
        stored = await client.get("admissioncheck", check)
    except RequestFailed:
        return False
    manifest = stored.decoded(AdmissionCheck)
    return manifest is not None and manifest.spec.controller_name == APPROVAL_CONTROLLER


async def _explained(client: Client, namespace: str, name: str) -> ExplainReply | None:
    """The scheduler's explanation; None if it does not answer."""
    try:
        return await client.explain(name, namespace=namespace)
    except RequestFailed:
        return None


async def _facts(client: Client, namespace: str, name: str) -> list[LogEntry]:
    """The facts of the workload; [] if the user may not read them."""
    try:
        return [entry async for entry in client.events(name, namespace=namespace)]
    except (NotAllowed, NotFound):
        return []


async def _missing(request: Request, session: Session, namespace: str, name: str) -> Response:
    """A name that does not exist and one that the user may not see look alike."""
    try:
        known = await session.client.list("workloads", namespace=namespace, limit=NAMES_MAX)
    except (NotAllowed, NotFound):
        known = []
    near = near_names(name, [stored.name for stored in known])
    view = Missing(
        title="Not found",
        text=f"There is no workload {name} in namespace {namespace}, or you may not see it.",
        near=tuple(Link(other, workload_path(namespace, other)) for other in near),
    )
    frame = Frame(title=f"{name} not found", as_of=clock.now())
    return page(request, "missing.html", frame, view, session=session, status=404)


def _named(request: Request) -> tuple[str, str]:
    return request.path_params["namespace"], request.path_params["name"]
