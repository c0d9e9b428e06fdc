"""What the API server answers, where that is not what it was asked for. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    import httpx2 as httpx

_LACKS_A_RIGHT: Final = re.compile(r"cannot \w+ resource ")
"""As every authorizer is told of by the server; what an admission controller refuses reads
otherwise."""
_NOT_NOW: Final = ("exceeded quota", "because it is being terminated")


class Away(Exception):
    """No answer, or one that tells to try again. ``after``: seconds, as the server wishes."""

    def __init__(self, message: str, after: float | None = None) -> None:
        super().__init__(message)
        self.after = after


class Unauthorized(Away):
    """The server does not know us: a token that has to be renewed, or that is nobody's."""


class Denied(Exception):
    """The server said no, and will again. The message is the server's. ``code``: of HTTP."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason


class Right(NamedTuple):
    """What somebody has to let us do. ``namespace`` "": in all of them."""

    verb: str
    kind: str
    namespace: str


class Forbidden(Denied):
    """We lack a right: nobody's request is at fault, and somebody can give it to us."""

    def __init__(self, code: int, reason: str, message: str, right: Right) -> None:
        super().__init__(code, reason, message)
        self.right = right


class NotNow(Denied):
    """The namespace is full, or goes: another time it may be allowed."""


class Exists(Denied):
    """There is one of that name."""


class Missing(Denied):
    """There is none of that name, or of that kind."""


class Outdated(Denied):
    """What a watch was to go on from is forgotten: list again."""


def event(line: str) -> tuple[str, dict[str, Any]]:
    try:
        event = msgspec.json.decode(line, type=dict[str, Any])
        kind, about = str(event["type"]), event["object"]
    except (msgspec.MsgspecError, KeyError) as error:
        raise Away(f"a watch told what is no event: {error}") from None
    if kind != "ERROR":
        return kind, about
    code = about.get("code", 0)
    message = str(about.get("message", ""))
    if code == 410 or about.get("reason") in ("Expired", "Gone"):
        raise Outdated(410, "Expired", message)
    raise Away(message)


def trouble(response: httpx.Response, right: Right) -> Exception:
    """What an answer that is none means, of a call that needs that right."""
    code = response.status_code
    reason, message = "", response.text.strip()[:1000]
    try:
        status = msgspec.json.decode(response.content, type=dict[str, Any])
        reason, message = str(status.get("reason", "")), str(status.get("message", message))
    except msgspec.MsgspecError:
        pass
    message = message or f"HTTP {code}"
    if code == 410:
        return Outdated(code, reason, message)
    if code == 401:
        return Unauthorized(f"HTTP {code}: {message}")
    # 408, 425: as they say.
    if code >= 500 or code in (408, 425, 429):
        after = response.headers.get("Retry-After", "")
        return Away(f"HTTP {code}: {message}", float(after) if after.isdecimal() else None)
    if code == 403 and _LACKS_A_RIGHT.search(message):
        return Forbidden(code, reason, message, right)
    if code == 403 and any(words in message for words in _NOT_NOW):
        return NotNow(code, reason, message)
    kind = {404: Missing, 409: Exists}.get(code, Denied)
    return kind(code, reason, message)
