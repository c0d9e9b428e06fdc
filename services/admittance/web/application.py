"""The routes of the page."""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final
from urllib.parse import quote, urlencode

import structlog
from sse_starlette import EventSourceResponse
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from admittance.client.errors import BadInput, ClientError, NotAllowed, NotFound, Unavailable
from admittance.runtime import clock
from admittance.web.codes import OneTimeCodes
from admittance.web.guard import Guard
from admittance.web.limits import StreamLimit
from admittance.web.origins import SIGN_IN_PATHS, Origins
from admittance.web.pages import (
    capacity,
    checks,
    find,
    logs,
    machines,
    past,
    pending,
    queues,
    replays,
    whatif,
    workload,
)
from admittance.web.pages.accounts import events, usage
from admittance.web.pages.health import HealthPage
from admittance.web.people import People
from admittance.web.rendering import page, wants_json
from admittance.web.sessions import NotSignedIn, Session, Sessions
from admittance.web.sign_in import SignIn, form_of
from admittance.web.views.frame import Frame
from admittance.web.views.missing import Missing

GZIP_BYTES: Final = 1024
GZIP_LEVEL: Final = 4
"""Of 9: a page of 500 KB takes 3 ms in place of 5 ms, and has 13 KB in place of 12 KB."""
PING_SECONDS: Final = 15
"""Time between two empty lines of a stream, by which a lost browser is noticed."""
REPAINTS: Final = "admit-part"
"""The header of a page that asks again by itself."""
NOTHING: Final = "There is nothing here, or you may not see it."

Shown = Callable[[Request, Session], Awaitable[Response]]
"""Answers a request of a signed-in person."""
Changed = Callable[[Request, Session, dict[str, str]], Awaitable[Response]]
"""Does what a form of a signed-in person asks for."""

log = structlog.get_logger()


def application(
    sessions: Sessions, codes: OneTimeCodes, origins: Origins, people: People | None = None
) -> Starlette:
    """The page as an ASGI application."""
    door = SignIn(sessions, codes, origins, people)

    def shown(show: Shown) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            session = await door.session(request)
            if session is None:
                return _to_sign_in(request)

            async def make() -> Response:
                return await _answered(request, session, lambda: show(request, session))

            if REPAINTS not in request.headers:
                return await make()
            with sessions.rests.answering():
                return await session.answers.of(str(request.url), session.follower.moment, make)

        return answer

    def changed(change: Changed) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            session = await door.session(request)
            if session is None:
                return _to_sign_in(request)
            form = await form_of(request)
            if not hmac.compare_digest(form.get("csrf", "").encode(), session.csrf.encode()):
                return PlainTextResponse("this form is of another session: reload its page\n", 403)
            return await _answered(request, session, lambda: change(request, session, form))

        return answer

    def at_any_time(show: Shown, then: Shown) -> Callable[[Request], Awaitable[Response]]:
        """``then`` shows a past moment, which the request names."""

        async def either(request: Request, session: Session) -> Response:
            return await (then if past.is_asked(request) else show)(request, session)

        return shown(either)

    streams = StreamLimit()

    async def live(request: Request) -> Response:
        session = await door.session(request)
        if session is None:
            return PlainTextResponse("sign in first\n", 401)
        if not streams.take(session):
            return PlainTextResponse("too many open streams\n", 503)
        last = request.headers.get("last-event-id", "")
        sequence = int(last) if last.isascii() and last.isdigit() and len(last) < 19 else 0
        return _Stream(session.follower.events(sequence), lambda: streams.give_back(session))

    routes = [
        Route("/", shown(find.home)),
        Route("/find", shown(find.find)),
        Route("/pending", at_any_time(pending.show, past.pending)),
        Route("/queues", at_any_time(queues.show, past.queues)),
        Route("/queues/{name}", at_any_time(pending.of_queue, past.of_queue)),
        Route("/checks", shown(checks.show)),
        Route("/checks/{namespace}/{name}/{act}", changed(checks.act), methods=["POST"]),
        Route("/workloads/{namespace}/{name}", at_any_time(workload.show, past.workload)),
        Route("/workloads/{namespace}/{name}/logs", shown(logs.show)),
        Route(
            "/workloads/{namespace}/{name}/manifest",
            at_any_time(workload.manifest, past.manifest),
        ),
        Route(
            "/workloads/{namespace}/{name}/replay", changed(replays.decide_again), methods=["POST"]
        ),
        Route("/workloads/{namespace}/{name}/{act}", changed(workload.act), methods=["POST"]),
        Route("/health", shown(HealthPage().show)),
        Route("/whatif", shown(whatif.show)),
        Route("/whatif", changed(whatif.attempt), methods=["POST"]),
        Route("/whatif/apply", changed(whatif.apply), methods=["POST"]),
        Route("/machines", shown(machines.show)),
        Route("/machines/{name}/{act}", changed(machines.act), methods=["POST"]),
        Route("/events", shown(events.show)),
        Route("/events/{sequence:int}", shown(events.show_one)),
        Route("/usage", shown(usage.show)),
        Route("/capacity", shown(capacity.show)),
        *(Route(path, door.show) for path in SIGN_IN_PATHS),
        *(Route(path, door.sign_in, methods=["POST"]) for path in SIGN_IN_PATHS),
        Route("/signout", changed(lambda request, *_: door.sign_out(request)), methods=["POST"]),
        Route("/session", door.whether),
        Route("/code", door.further_code, methods=["POST"]),
        Route("/live", live),
        Mount("/static", StaticFiles(packages=[("admittance.web", "static")])),
    ]
    return Starlette(
        routes=routes,
        middleware=[
            Middleware(Guard, origins=origins),
            Middleware(GZipMiddleware, minimum_size=GZIP_BYTES, compresslevel=GZIP_LEVEL),
        ],
        exception_handlers={404: _no_page, NotSignedIn: _no_person, Unavailable: _away},
    )


class _Stream(EventSourceResponse):
    """A stream of events. ``at_end``: called once, also if the browser was gone before the first
    event."""

    def __init__(self, events: AsyncIterator[dict[str, str]], at_end: Callable[[], None]) -> None:
        super().__init__(events, ping=PING_SECONDS)
        self._at_end = at_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._at_end()


def _to_sign_in(request: Request) -> Response:
    if wants_json(request) or request.method == "POST":
        return PlainTextResponse("sign in first\n", 401)
    path = quote(request.url.path, safe="/:@")
    if request.url.query:
        path += f"?{request.url.query}"
    return RedirectResponse(f"{SIGN_IN_PATHS[0]}?{urlencode({'next': path})}", 303)


async def _answered(
    request: Request, session: Session, answer: Callable[[], Awaitable[Response]]
) -> Response:
    """The answer, or the page that says why there is none. What does not exist and what the user
    may not see look alike."""

    def instead(status: int, title: str, text: str) -> Response:
        return page(
            request,
            "missing.html",
            Frame(title=title, as_of=clock.now(), trouble=status >= 500),
            Missing(title=title, text=text),
            session=session,
            status=status,
        )

    try:
        return await answer()
    except (NotFound, NotAllowed):
        return instead(404, "Not found", NOTHING)
    except BadInput as error:
        return instead(400, "Refused", str(error))
    except Unavailable as error:
        return instead(503, "No connection", str(error))
    except ClientError as error:
        return instead(502, "No answer", str(error))


async def _no_person(_request: Request, error: Exception) -> Response:
    """The answer to a name in a header that signs in no user."""
    return PlainTextResponse(f"{error}\n", 403)


async def _away(_request: Request, error: Exception) -> Response:
    return PlainTextResponse(f"{error}\n", 503)


async def _no_page(_request: Request, _error: Exception) -> Response:
    return PlainTextResponse("there is no such page\n", 404)
