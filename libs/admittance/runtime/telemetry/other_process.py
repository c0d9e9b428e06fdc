"""The metrics of a child process among those of this process, so that Prometheus reads one port."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Final

ANSWER_SECONDS: Final = 5.0
"""Longest wait for the text of the other process."""
_HEAD: Final = "# HELP "


class _Connection(http.client.HTTPConnection):
    """HTTP over a socket that is a file."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=ANSWER_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def text_of_process(path: Path) -> str:
    """What the admin port at ``unix:PATH`` answers to ``/metrics``; "" without an answer, such as
    while the process starts."""
    connection = _Connection(path)
    try:
        connection.request("GET", "/metrics")
        reply = connection.getresponse()
        text = reply.read().decode()
        return text if reply.status == http.HTTPStatus.OK else ""
    except (OSError, http.client.HTTPException):
        return ""
    finally:
        connection.close()


def merged(pieces: Iterable[bytes], other: str) -> list[bytes]:
    """The pieces of `metrics.text_of` with the series of the text ``other``. Series of one metric
    stand together. Of a counter that both have the values are added; of another series that both
    have, such as the one of ``build_info``, the own value stays.
    """
    theirs = {_name(text): text for text in _families(other)}
    result = []
    for piece in pieces:
        same = theirs.pop(_name(piece[: piece.find(b"\n")].decode()), None)
        result.append(piece if same is None else _joined(piece.decode(), same).encode())
    return [*result, *(text.encode() for text in theirs.values())]


def _families(text: str) -> list[str]:
    """The text of each metric, from its line HELP on."""
    first, *more = text.split(f"\n{_HEAD}")
    return [
        text if text.endswith("\n") else f"{text}\n"
        for text in (first, *(f"{_HEAD}{rest}" for rest in more))
        if text
    ]


def _name(head: str) -> str:
    return head.removeprefix(_HEAD).partition(" ")[0]


def _joined(own: str, other: str) -> str:
    heads = [line for line in own.splitlines() if line.startswith("#")]
    adds = heads[-1].endswith(" counter")
    values = _values(own)
    for series, value in _values(other).items():
        if series not in values:
            values[series] = value
        elif adds:
            values[series] = _sum(values[series], value)
    lines = [*heads, *(f"{series} {value}" for series, value in values.items())]
    return "".join(f"{line}\n" for line in lines)


def _values(text: str) -> dict[str, str]:
    lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {series: value for series, _, value in lines}


def _sum(own: str, other: str) -> str:
    total = float(own) + float(other)
    return str(int(total)) if total.is_integer() else str(total)
