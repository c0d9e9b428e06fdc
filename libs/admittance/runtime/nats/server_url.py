"""Parses addresses of nats-servers with their logins, and shows them without secrets."""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

SCHEMES: Final = frozenset({"nats", "tls", "ws", "wss"})
DEFAULT_PORT: Final = 4222
HIDDEN: Final = "***"


class Login(NamedTuple):
    """A login to a server, percent-decoded. ``password`` None: ``user`` is a token and not a
    name.
    """

    user: str
    password: str | None


class ServerUrl(NamedTuple):
    """The address of one server, and its login. ``address`` contains no secret."""

    address: str
    login: Login | None


class BadUrl(ValueError):
    """The error for a text that is not the address of a nats-server. The text of the error contains
    no secret.
    """


def read_urls(text: str) -> list[ServerUrl]:
    """The servers in a comma-separated text. Raises BadUrl for a text that is not a server's
    address.
    """
    return [_read(part.strip()) for part in text.split(",")]


def shown(text: str) -> str:
    """The text without passwords and tokens, to show to people."""
    try:
        parts = [_split(url.strip()) for url in text.split(",")]
    except BadUrl:
        # The text cannot be parsed but may contain a secret, so nothing of the text is shown.
        return HIDDEN if "@" in text else text
    return ",".join(_shown(part) for part in parts)


def is_loopback(address: str) -> bool:
    """Whether only programs of this machine reach the address."""
    host = urlsplit(address).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")


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
        # The error may quote a part of a password that was taken for a port.
        reason = "" if "@" in text else f": {error}"
        raise BadUrl(f'"{quoted}" is not a server address{reason}') from None
    bad_path = bool(parts.path.strip("/")) and "@" in parts.path
    if parts.scheme not in SCHEMES or not parts.hostname or port == 0 or bad_path:
        raise BadUrl(f'"{quoted}" is not a server address')
    return parts


def _shown(parts: SplitResult) -> str:
    userinfo, _, host = parts.netloc.rpartition("@")
    if userinfo:
        user, colon, _ = userinfo.partition(":")
        host = f"{user}:{HIDDEN}@{host}" if colon else f"{HIDDEN}@{host}"
    return f"{parts.scheme}://{host}"
