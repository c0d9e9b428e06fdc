"""Names of objects for shell completion, requested without the NATS client.

To import the NATS client takes too long for a completion, so this module writes and reads the few
protocol lines of one request itself. Completion has no names if no server runs, or if the server
requires TLS or a login that is not in the URL.
"""

from __future__ import annotations

import json
import socket
import time
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from admittance.cli.support.kinds import Kind
from admittance.events.names import BadToken, plain
from admittance.runtime.connection_options import NO_OPTIONS, ConnectionOptions

SECONDS: Final = 1.0
PORT: Final = 4222
NAMES_MAX: Final = 1_000
INBOX: Final = "_INBOX.admit-completion"
STREAM: Final = "KV_admittance"


def names(
    url: str, kind: Kind, namespace: str, start: str, access: ConnectionOptions = NO_OPTIONS
) -> list[str]:
    """Names of objects of the kind that begin with start, sorted; empty on failure. The result may
    include the name of an object that was deleted within the last hour.
    """
    prefix = "$KV.admittance."
    question = {"subjects_filter": prefix + kind.patterns(namespace)[0]}
    try:
        with _Wire(url, access) as wire:
            answer = wire.ask(f"$JS.API.STREAM.INFO.{STREAM}", json.dumps(question).encode())
        subjects = answer["state"].get("subjects") or {}
        found = sorted({plain(subject.rpartition(".")[2]) for subject in subjects})
    except (OSError, ValueError, KeyError, TypeError, AttributeError, BadToken):
        return []
    return [name for name in found if name.startswith(start)][:NAMES_MAX]


class _Wire:
    """A plain NATS connection for one request, without nats-py, so that completion is fast."""

    def __init__(self, url: str, access: ConnectionOptions) -> None:
        self._access = access
        one = url.split(",")[0]
        self._url = urlsplit(one if "://" in one else f"nats://{one}")
        self._deadline = time.monotonic() + SECONDS
        self._buffer = b""

    def __enter__(self) -> _Wire:
        access = self._access
        if self._url.scheme != "nats" or access.demands_tls or access.has_login:
            raise OSError("only a login in the URL, without TLS, is supported")
        address = self._url.hostname or "", self._url.port or PORT
        self._socket = socket.create_connection(address, timeout=SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, subject: str, data: bytes) -> Any:
        """The answer to a request. Raises OSError or ValueError."""
        info = json.loads(self._line().removeprefix(b"INFO "))
        if info.get("tls_required") or info.get("nonce"):
            raise OSError("only a login in the URL, without TLS, is supported")
        options: dict[str, object] = {"verbose": False, "pedantic": False, "name": "admit"}
        options |= {"lang": "python", "version": "1", "protocol": 1}
        if self._url.password is not None:
            options["user"] = unquote(self._url.username or "")
            options["pass"] = unquote(self._url.password)
        elif self._url.username:
            options["auth_token"] = unquote(self._url.username)
        self._socket.sendall(
            b"CONNECT %s\r\nSUB %s 1\r\nPUB %s %s %d\r\n%s\r\n"
            % (
                json.dumps(options).encode(),
                INBOX.encode(),
                subject.encode(),
                INBOX.encode(),
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
