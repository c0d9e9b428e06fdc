"""The page of a workload, and what its buttons do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from admittance.client import Client
from admittance.client.errors import BadInput, NotAllowed, NotFound
from admittance.runtime import clock
from admittance.web.pages.acting import acted
from admittance.web.pages.find import known_keys
from admittance.web.pages.reading import Chosen, read
from admittance.web.paths import workload_path
from admittance.web.rendering import page, skipped, whole_number
from admittance.web.sessions import Session
from admittance.web.views.accounts.log import log_rows
from admittance.web.views.details.elements import KINDS, ElementsQuery
from admittance.web.views.details.manifest import manifest_of
from admittance.web.views.frame import Frame
from admittance.web.views.missing import missing_workload, near_keys
from admittance.web.views.words import Link

OUTPUT_AGAIN_SECONDS: Final = 3
"""Output is no fact of the log, so the page of a job that prints asks again, while it is
visible."""
TROUBLE: Final = frozenset({"evicting", "rejected", "off"})


async def show(request: Request, session: Session) -> Response:
    """The page."""
    return await shown(request, session)


async def act(request: Request, session: Session, form: dict[str, str]) -> Response:
    """Does what a button asks for, and goes back to the page; a refusal is shown on the page."""
    namespace, name = named(request)
    verb = request.path_params["act"]
    action = done(session.client, namespace, name, verb, form)
    return await acted(action, partial(shown, request, session))


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


async def shown(
    request: Request, session: Session, refused: str = "", status: int = 200
) -> Response:
    """The page. ``refused``: a refusal that it shows, with its HTTP ``status``."""
    namespace, name = named(request)
    try:
        view = await read(session, namespace, name, chosen_of(request))
    except (NotFound, NotAllowed):
        return await _missing(request, session, namespace, name)
    every = OUTPUT_AGAIN_SECONDS if view.output is not None and view.output.follows else 0
    trouble = view.word.state in TROUBLE
    # To look for dependents takes too long to be done at each change.
    is_live = view.relations.waited_for is None
    frame = Frame(title=view.title, as_of=clock.now(), trouble=trouble, every=every, live=is_live)
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


def chosen_of(request: Request) -> Chosen:
    """What the request asks to see of the workload. Raises BadInput."""
    kind = request.query_params.get("elements", "")
    if kind and kind not in KINDS:
        raise BadInput(f'elements "{kind[:40]}" is not one of {", ".join(KINDS)}')
    return Chosen(
        fact=whole_number(request.query_params.get("fact", "0"), "fact"),
        elements=ElementsQuery(kind, skipped(request)),
        dependents="dependents" in request.query_params,
    )


async def _missing(request: Request, session: Session, namespace: str, name: str) -> Response:
    """The page of a workload that was deleted, or of a name that does not exist; one that the user
    may not see looks like the latter."""
    now = clock.now()
    rows = log_rows(await session.facts.of(namespace, name), f"{namespace}/{name}", now)
    near = [] if rows else near_keys(name, await known_keys(session, namespace))
    view = missing_workload(
        namespace,
        name,
        rows,
        near=tuple(Link(key[1], workload_path(*key)) for key in near),
    )
    frame = Frame(title=f"{name} {view.title.lower()}", as_of=now)
    return page(
        request,
        "missing.html",
        frame,
        view,
        session=session,
        status=404,
        request_path=workload_path(namespace, name),
    )


async def manifest(request: Request, session: Session) -> Response:
    """The page with the manifest, as it is stored."""
    namespace, name = named(request)
    stored = await session.client.get("workload", name, namespace=namespace)
    view = manifest_of(namespace, name, stored.plain())
    frame = Frame(title=view.title, as_of=clock.now())
    back = workload_path(namespace, name)
    return page(request, "manifest.html", frame, view, session=session, request_path=back)


def named(request: Request) -> tuple[str, str]:
    """Namespace and name of the workload that the request is about."""
    return request.path_params["namespace"], request.path_params["name"]
