"""Names of objects for shell completion, requested without the NATS client.

To import the NATS client takes too long for a completion, so this module writes and reads the few
protocol lines of one request itself. Completion has no names if no server runs, or if the server
requires TLS, or a login other than a credentials file and one in the URL.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from admittance.client.kinds import ObjectKind
from admittance.events.names import BadToken, plain
from admittance.runtime.nats.connection_options import NO_OPTIONS, ConnectionOptions

if TYPE_CHECKING:
    from admittance.runtime.nats.credentials import UserKey

SECONDS: Final = 1.0
PORT: Final = 4222
NAMES_MAX: Final = 1_000
NAME: Final = "admit-completion"
INBOX: Final = f"_INBOX.{NAME}"
UNSUPPORTED: Final = "only a credentials file or a login in the URL, without TLS, is supported"
STREAM: Final = "KV_admittance"


def names(
    url: str, kind: ObjectKind, namespace: str, start: str, access: ConnectionOptions = NO_OPTIONS
) -> list[str]:
    """Names of objects of the kind that begin with start, sorted; empty on failure. Without a
    login, the result may include the name of an object that was deleted within the last hour.
    """
    pattern = kind.patterns(namespace)[0]
    try:
        with _Wire(url, access) as wire:
            keys = _listed(wire, pattern) if access.creds else _in_stream(wire, pattern)
        known = sorted({plain(key.rpartition(".")[2]) for key in keys})
    except (OSError, ValueError, KeyError, TypeError, AttributeError, BadToken):
        return []
    return [name for name in known if name.startswith(start)][:NAMES_MAX]


def _listed(wire: _Wire, pattern: str) -> Iterable[str]:
    """Bucket keys that match the pattern, only of objects that this user may list."""
    token, *within = pattern.split(".")
    subject = ".".join(["admit.api.objects", *within[:-1]])
    answer = wire.ask(subject, json.dumps({"kind": token, "limit": NAMES_MAX}).encode())
    return [stored["key"] for stored in answer.get("objects") or ()]


def _in_stream(wire: _Wire, pattern: str) -> Iterable[str]:
    """Subjects of the bucket's stream under the pattern."""
    question = {"subjects_filter": f"$KV.admittance.{pattern}"}
    answer = wire.ask(f"$JS.API.STREAM.INFO.{STREAM}", json.dumps(question).encode())
    return answer["state"].get("subjects") or ()


def _key_of(path: str) -> UserKey:
    """The credentials in a file. Raises OSError."""
    # These modules are imported late: without a login this function is never called.
    from admittance.runtime.errors import AccessDenied
    from admittance.runtime.nats.credentials import read_user_key

    try:
        return read_user_key(path)
    except AccessDenied as error:
        raise OSError(str(error)) from None


class _Wire:
    """A plain NATS connection for one request, without nats-py, so that completion is fast."""

    def __init__(self, url: str, access: ConnectionOptions) -> None:
        self._access = access
        first = url.split(",")[0]
        self._url = urlsplit(first if "://" in first else f"nats://{first}")
        self._key: UserKey | None = None
        self._deadline = 0.0
        self._buffer = b""

    def __enter__(self) -> _Wire:
        access = self._access
        other = access.has_login and not access.creds
        if self._url.scheme != "nats" or access.demands_tls or other:
            raise OSError(UNSUPPORTED)
        self._key = _key_of(access.creds) if access.creds else None
        self._deadline = time.monotonic() + SECONDS
        address = self._url.hostname or "", self._url.port or PORT
        self._socket = socket.create_connection(address, timeout=SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, subject: str, data: bytes) -> Any:
        """The answer to a request. Raises OSError or ValueError."""
        info = json.loads(self._line().removeprefix(b"INFO "))
        nonce = info.get("nonce")
        if info.get("tls_required") or (nonce and self._key is None):
            raise OSError(UNSUPPORTED)
        options: dict[str, object] = {"verbose": False, "pedantic": False, "name": "admit"}
        options |= {"lang": "python", "version": "1", "protocol": 1}
        inbox = INBOX
        if nonce and (key := self._key) is not None:
            options |= {"nkey": key.public, "sig": key.sign(nonce).decode()}
            if key.jwt is not None:
                options["jwt"] = key.jwt
            inbox = f"{key.inbox}.{NAME}"
        elif self._url.password is not None:
            options["user"] = unquote(self._url.username or "")
            options["pass"] = unquote(self._url.password)
        elif self._url.username:
            options["auth_token"] = unquote(self._url.username)
        self._socket.sendall(
            b"CONNECT %s\r\nSUB %s 1\r\nPUB %s %s %d\r\n%s\r\n"
            % (
                json.dumps(options).encode(),
                inbox.encode(),
                subject.encode(),
                inbox.encode(),
                len(data),
                data,
            )
        )
        while True:
            line = self._line()
            if line.startswith(b"MSG "):
                return json.loads(self._exactly(int(line.split()[-1])))
            if line.startswith(b"-ERR"):
                raise OSError(line.decode())
            if line == b"PING":
                self._socket.sendall(b"PONG\r\n")

    def _line(self) -> bytes:
        while b"\r\n" not in self._buffer:
            self._more()
        line, _, self._buffer = self._buffer.partition(b"\r\n")
        return line

    def _exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._more()
        return self._buffer[:size]

    def _more(self) -> None:
        self._socket.settimeout(max(0.001, self._deadline - time.monotonic()))
        data = self._socket.recv(65_536)
        if not data:
            raise OSError("the server closed the connection")
        self._buffer += data
