"""The guard before all pages: refuses requests from elsewhere and bodies that are too large, and
adds the headers of security to every answer."""

from __future__ import annotations

from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from admittance.web.origins import Origins

BODY_BYTES_MAX: Final = 1 << 20
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "worker-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    # With "no-referrer" a browser would send no usable Origin with a form.
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


class TooLarge(Exception):
    """A body with more than `BODY_BYTES_MAX` bytes."""


class Guard:
    """An ASGI application before another one."""

    def __init__(self, app: ASGIApp, origins: Origins) -> None:
        self._app = app
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                answer = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    answer[name] = value
                answer.setdefault("cache-control", "no-store")
            await send(message)

        refusal = self._origins.refusal(scope["method"], scope["path"], headers)
        if refusal is not None:
            text = PlainTextResponse(f"{refusal.why}\n", refusal.status)
            await text(scope, receive, guarded)
            return
        left = BODY_BYTES_MAX

        async def limited() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise TooLarge
            return message

        try:
            await self._app(scope, limited, guarded)
        except TooLarge:
            text = PlainTextResponse(f"the body has more than {BODY_BYTES_MAX:,} bytes\n", 413)
            await text(scope, receive, guarded)
