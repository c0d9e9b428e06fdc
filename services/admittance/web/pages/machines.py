"""The page of machines, and what its buttons do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from admittance.api.runners import Runner
from admittance.client import Client
from admittance.client.errors import NotAllowed, NotFound, RequestFailed
from admittance.events.requests.machines import MachinesReply
from admittance.runtime import clock
from admittance.web.pages.acting import acted
from admittance.web.paths import machines_path
from admittance.web.rendering import page, skipped
from admittance.web.sessions import Session
from admittance.web.views.frame import Frame
from admittance.web.views.system.machines import build

AGAIN_SECONDS: Final = 15
"""A machine changes without a fact of the log: its runner is lost, or a person drains it."""

CHANGES: Final[dict[str, Callable[[Client, str, str], Awaitable[object]]]] = {
    "cordon": lambda client, name, _: client.cordon(name),
    "uncordon": lambda client, name, _: client.uncordon(name),
    "drain": lambda client, name, reason: client.drain(name, reason=reason),
    "undrain": lambda client, name, _: client.undrain(name),
}
"""The actions, each with the machine and the reason that the form has."""


async def show(request: Request, session: Session) -> Response:
    """The page."""
    return await _shown(request, session)


async def act(request: Request, session: Session, form: dict[str, str]) -> Response:
    """Does what a button asks for, and goes back to the page; a refusal is shown on the page."""
    name, verb = request.path_params["name"], request.path_params["act"]
    change = CHANGES.get(verb)
    if change is None:
        raise NotFound(f"there is no action {verb}")

    async def changed() -> str:
        await change(session.client, name, form.get("reason", "").strip())
        return machines_path()

    return await acted(changed(), partial(_shown, request, session))


async def _shown(
    request: Request, session: Session, refused: str = "", status: int = 200
) -> Response:
    skip = skipped(request)
    stored = await session.client.list("runners")
    decoded = (each.decoded(Runner) for each in stored)
    runners = [runner for runner in decoded if runner is not None]
    reply, unknown = await _what_runs(session.client)
    now = clock.now()
    view = build(runners, reply, session.login, now, skip=skip, unknown=unknown)
    trouble = any(row.word.state == "rejected" for row in view.rows)
    frame = Frame(title=view.title, as_of=now, at="/machines", trouble=trouble, every=AGAIN_SECONDS)
    return page(
        request, "machines.html", frame, view, session=session, status=status, refused=refused
    )


async def _what_runs(client: Client) -> tuple[MachinesReply | None, str]:
    """What runs on the machines, or None and why it is not known."""
    try:
        return await client.machines(), ""
    except NotAllowed:
        raise
    except RequestFailed as error:
        return None, str(error)
