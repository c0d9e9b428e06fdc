"""Addresses of nats-servers: read, with the login that each names, and shown without secrets."""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

SCHEMES: Final = frozenset({"nats", "tls", "ws", "wss"})
DEFAULT_PORT: Final = 4222
HIDDEN: Final = "***"


class Login(NamedTuple):
    """Who connects, as it is sent: percent-decoded. ``password`` None: ``user`` is a token."""

    user: str
    password: str | None


class ServerUrl(NamedTuple):
    """One server. ``address`` names no secret."""

    address: str
    login: Login | None


class BadUrl(ValueError):
    """It is not the address of a nats-server. The text names no secret."""


def read_urls(text: str) -> list[ServerUrl]:
    """The servers that text names, separated by commas. Raises BadUrl."""
    return [_read(one.strip()) for one in text.split(",")]


def shown(text: str) -> str:
    """The text without passwords and tokens, for people."""
    try:
        parts = [_split(one.strip()) for one in text.split(",")]
    except BadUrl:
        # What in it is a secret cannot be told.
        return HIDDEN if "@" in text else text
    return ",".join(_shown(one) for one in parts)


def _read(text: str) -> ServerUrl:
    parts = _split(text)
    userinfo, _, host = parts.netloc.rpartition("@")
    login = None
    if userinfo:
        user, colon, password = userinfo.partition(":")
        login = Login(unquote(user), unquote(password) if colon else None)
    if parts.port is None and parts.scheme in ("nats", "tls"):
        host = f"{host.rstrip(':')}:{DEFAULT_PORT}"
    return ServerUrl(f"{parts.scheme}://{host}", login)


def _split(text: str) -> SplitResult:
    quoted = HIDDEN if "@" in text else text
    try:
        parts = urlsplit(text if "://" in text else f"nats://{text}")
        port = parts.port
    except ValueError as error:
        # The error may quote what it takes for a port, such as a part of a password.
        reason = "" if "@" in text else f": {error}"
        raise BadUrl(f'"{quoted}" is no address{reason}') from None
    bad_path = bool(parts.path.strip("/")) and "@" in parts.path
    if parts.scheme not in SCHEMES or not parts.hostname or port == 0 or bad_path:
        raise BadUrl(f'"{quoted}" is no address')
    return parts


def _shown(parts: SplitResult) -> str:
    userinfo, _, host = parts.netloc.rpartition("@")
    if userinfo:
        user, colon, _ = userinfo.partition(":")
        host = f"{user}:{HIDDEN}@{host}" if colon else f"{HIDDEN}@{host}"
    return f"{parts.scheme}://{host}"
