"""Subjects with wildcards, and the header block of a message."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

Matches = Callable[[str], object]
"""Tells whether a subject is meant."""

_compiled: dict[tuple[str, ...], Matches] = {}


def is_literal(subject: str) -> bool:
    """Whether the subject has no wildcard."""
    return "*" not in subject and not subject.endswith(">")


def matching(patterns: Sequence[str]) -> Matches:
    """A test whether a subject is under any of the patterns."""
    key = tuple(patterns)
    matcher = _compiled.get(key)
    if matcher is None:
        if len(key) == 1 and is_literal(key[0]):
            matcher = key[0].__eq__
        else:
            parts = (re.escape(p).replace(r"\*", "[^.]+").replace(">", ".+") for p in key)
            matcher = re.compile("|".join(parts)).fullmatch
        _compiled[key] = matcher
    return matcher


def header_block(headers: Mapping[str, str]) -> bytes:
    """The bytes of headers on the wire; none for no headers."""
    if not headers:
        return b""
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    return f"NATS/1.0\r\n{lines}\r\n".encode()


def status_block(status: str, headers: Mapping[str, str] | None = None) -> bytes:
    """The bytes of a message of the server itself, such as "408 Request Timeout"."""
    lines = "".join([f"{name}: {value}\r\n" for name, value in (headers or {}).items()])
    return f"NATS/1.0 {status}\r\n{lines}\r\n".encode()
