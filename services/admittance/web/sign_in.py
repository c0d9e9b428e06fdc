"""Signing in and out: by a one-time code, or by a token of `admit auth token`."""

from __future__ import annotations

from collections.abc import Mapping
from email.parser import BytesParser
from email.policy import HTTP
from typing import Final
from urllib.parse import parse_qs

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response

from admittance.client.errors import ClientError, NotAllowed
from admittance.runtime import clock
from admittance.runtime.errors import AccessDenied
from admittance.runtime.nats.login_tokens import credentials_of_token
from admittance.runtime.process.web_page import KEY_HEADER
from admittance.web.codes import OneTimeCodes
from admittance.web.limits import SignInLimit
from admittance.web.origins import SIGN_IN_PATHS, Origins
from admittance.web.people import UNKNOWN, People
from admittance.web.rendering import page
from admittance.web.sessions import NotSignedIn, Session, Sessions
from admittance.web.views.frame import Frame

REFUSED: Final = "This code or token signs in no user: it is wrong, used, expired or revoked."
NO_FIELD: Final = "The form has neither a field code nor a field token."
FIELDS_MAX: Final = 100
"""The most fields of a form."""
INSECURE: Final = (
    "A token is not sent over plain HTTP from another machine: open the page with https, or on the "
    "machine where it runs."
)


async def form_of(request: Request) -> dict[str, str]:
    """The fields of a form, files as their text; of a field that is there twice the last."""
    body = await request.body()
    if request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        return _parts_of(request.headers["content-type"], body)
    try:
        fields = parse_qs(body.decode(), keep_blank_values=True, max_num_fields=FIELDS_MAX)
    except ValueError:
        return {}
    return {name: values[-1] for name, values in fields.items()}


def _parts_of(content_type: str, body: bytes) -> dict[str, str]:
    """The fields of a form with files. {} for a body that is no such form."""
    head = f"Content-Type: {content_type}\r\n\r\n".encode("latin-1", "replace")
    message = BytesParser(policy=HTTP).parsebytes(head + body)
    fields: dict[str, str] = {}
    for part in message.iter_parts() if message.is_multipart() else ():
        name = part.get_param("name", header="content-disposition")
        content = part.get_payload(decode=True)
        if isinstance(name, str) and isinstance(content, bytes) and len(fields) < FIELDS_MAX:
            # A file may have bytes that are no text: the reader of manifests refuses them.
            fields[name] = content.decode(errors="replace")
    return fields


def path_within(text: str) -> str:
    """A path of this page to go to; "/": the text is none, so that no link leads elsewhere."""
    # A browser reads a backslash as a slash, and "//name" as another web site.
    is_own = text.startswith("/") and not text.startswith("//") and "\\" not in text
    return text if is_own and text.isprintable() else "/"


def _address(request: Request) -> str:
    return request.client.host if request.client else ""


class SignIn:
    """The routes of signing in."""

    def __init__(
        self,
        sessions: Sessions,
        codes: OneTimeCodes,
        origins: Origins,
        people: People | None = None,
    ) -> None:
        self._sessions = sessions
        self._people = people
        self._codes = codes
        self._origins = origins
        self._limit = SignInLimit()
        prefix = "__Host-admit" if origins.is_tls else "admit"
        # A browser sends a cookie to all ports of a machine, so each page needs a name of its own.
        self._cookie = f"{prefix}-{origins.port}"

    async def session(self, request: Request) -> Session | None:
        """The session of a request; None: the request has none. Raises NotSignedIn and Unavailable
        for a person that a header names, and that cannot be signed in."""
        if self._people is not None:
            name = self._people.name_in(_address(request), request.headers)
            if name is not None:
                return await self._session_of(self._people, name)
        return self._sessions.of(request.cookies.get(self._cookie))

    async def _session_of(self, people: People, name: str) -> Session:
        """The session of a person that the proxy has signed in."""
        if (session := self._sessions.of_person(name)) is not None:
            return session
        if wait := self._limit.wait_seconds(name, clock.monotonic()):
            raise NotSignedIn(f"Too many attempts: try again in {wait} s.")
        try:
            return await self._sessions.open_person(name, people.credentials_of(name))
        except (NotSignedIn, NotAllowed) as error:
            self._limit.failed(name, clock.monotonic())
            raise NotSignedIn(UNKNOWN if isinstance(error, NotAllowed) else str(error)) from None

    async def show(self, request: Request) -> Response:
        """The page with the field for a code or token."""
        return self._page(request)

    async def sign_in(self, request: Request) -> Response:
        """Signs in with the code or token of the form."""
        address = _address(request)
        if wait := self._limit.wait_seconds(address, clock.monotonic()):
            why = f"Too many attempts: try again in {wait} s."
            return self._refused(request, why, 429, {"retry-after": str(wait)})
        if not self._origins.takes_secrets(request.headers.get("host", "")):
            return self._refused(request, INSECURE, 403)
        form = await form_of(request)
        if not form.keys() & {"code", "token"}:
            return self._refused(request, NO_FIELD, 400)
        try:
            secret = await self._secret_of(form)
        except NotAllowed:
            secret, why, status = "", REFUSED, 403
        except NotSignedIn as error:
            secret, why, status = "", str(error), 403
        except ClientError as error:
            return self._refused(request, f"The server does not answer: {error}", 503)
        if not secret:
            self._limit.failed(address, clock.monotonic())
            return self._refused(request, why, status)
        await self._sessions.end(request.cookies.get(self._cookie))
        answer = RedirectResponse(path_within(form.get("next", "/")), 303)
        answer.set_cookie(
            self._cookie, secret, path="/", httponly=True, samesite="strict", secure=self._is_tls
        )
        return answer

    async def sign_out(self, request: Request) -> Response:
        """Ends the session."""
        await self._sessions.end(request.cookies.get(self._cookie))
        answer = RedirectResponse(SIGN_IN_PATHS[0], 303)
        answer.delete_cookie(
            self._cookie, path="/", httponly=True, samesite="strict", secure=self._is_tls
        )
        return answer

    async def whether(self, request: Request) -> Response:
        """Whether the browser is signed in: a browser that follows a link from another web site
        sends the cookie only with the next request."""
        return JSONResponse({"signedIn": await self.session(request) is not None})

    async def further_code(self, request: Request) -> Response:
        """A further one-time code, for `admit web`."""
        address = _address(request)
        now = clock.monotonic()
        if self._limit.wait_seconds(address, now):
            return PlainTextResponse("too many attempts\n", 429)
        try:
            given = msgspec.json.decode(await request.body(), type=Mapping[str, str])
        except msgspec.MsgspecError:
            return PlainTextResponse("the body is not an object of texts\n", 400)
        key = request.headers.get(KEY_HEADER, "")
        code = self._codes.further(key, given.get("credentials", ""), now)
        if code is None:
            self._limit.failed(address, now)
            return PlainTextResponse("the key is wrong\n", 403)
        return JSONResponse({"code": code})

    @property
    def _is_tls(self) -> bool:
        return self._origins.is_tls

    async def _secret_of(self, form: Mapping[str, str]) -> str:
        """Opens a session by the field ``code``, or by ``token``, where a person may paste either.
        Raises NotAllowed, NotSignedIn and ClientError."""
        code, token = form.get("code", "").strip(), form.get("token", "").strip()
        # A code stays valid if there is no room for a session.
        await self._sessions.make_room()
        credentials = self._codes.take(code or token, clock.monotonic())
        if credentials is not None:
            return await self._sessions.open(credentials, by_code=True)
        try:
            credentials = credentials_of_token(token)
        except AccessDenied:
            raise NotAllowed(REFUSED) from None
        return await self._sessions.open(credentials)

    def _refused(
        self, request: Request, why: str, status: int, headers: Mapping[str, str] | None = None
    ) -> Response:
        """Says why the form signs in no user: to a browser with the page, to a program in a
        line."""
        if "text/html" in request.headers.get("accept", ""):
            return self._page(request, why, status, headers)
        return PlainTextResponse(f"{why}\n", status, headers)

    def _page(
        self,
        request: Request,
        why: str = "",
        status: int = 200,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        where = request.query_params.get("next", "/")
        answer = page(
            request,
            "sign_in.html",
            Frame(title="Sign in", as_of=clock.now(), live=False),
            status=status,
            why=why,
            next=path_within(where),
            takes=self._origins.takes_secrets(request.headers.get("host", "")),
            insecure=INSECURE,
        )
        answer.headers.update(headers or {})
        return answer
