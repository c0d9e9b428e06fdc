"""Names on the bus: a name is escaped into one token, and can be read back from the token.

A dot becomes ``_``; any other character outside ``A-Z a-z 0-9 -``, and ``_`` itself, becomes ``=``
and two hexadecimal digits per UTF-8 byte: ``example.com/budget`` is ``example_com=2Fbudget``. This
escape is used in subjects, bucket keys and names of durables.
"""

from __future__ import annotations

import re
from datetime import datetime
from hashlib import blake2b
from typing import Final

from admittance.text_cache import text_cache

NO_NAMESPACE: Final = "_"
"""The token in place of the namespace for an object without a namespace. No valid name has this
token.
"""

_PLAIN = re.compile(r"\A[A-Za-z0-9-]+\Z")
_UNSAFE = re.compile(r"[^A-Za-z0-9-]")
_ESCAPED = re.compile(r"\A(?:[A-Za-z0-9_-]|=[0-9A-F]{2})+\Z")
_UNESCAPE = re.compile(r"(?:=[0-9A-F]{2})+|_")
_UNNAMEABLE = re.compile(r"[^A-Za-z0-9_-]+")


class BadToken(ValueError):
    """The error for a token that is not an escaped name."""


def _escape(match: re.Match[str]) -> str:
    char = match.group()
    if char == ".":
        return "_"
    # ``surrogatepass`` encodes a lone surrogate, which a JSON decoder may return: every name must
    # have a token.
    return "".join(f"={byte:02X}" for byte in char.encode("utf-8", "surrogatepass"))


@text_cache(65_536)
def token(name: str) -> str:
    """The token of ``name`` in subjects, bucket keys and durables. Raises ValueError for ""."""
    if _PLAIN.match(name):
        return name
    if not name:
        raise ValueError("an empty name has no token")
    return _UNSAFE.sub(_escape, name)


def _unescape(match: re.Match[str]) -> str:
    escaped = match.group()
    if escaped == "_":
        return "."
    return bytes.fromhex(escaped.replace("=", "")).decode("utf-8", "surrogatepass")


def service_name(name: str) -> str:
    """The name under which ``nats micro`` lists a service, which may not have other characters."""
    return _UNNAMEABLE.sub("-", name)


@text_cache(65_536)
def plain(escaped: str) -> str:
    """The name of a token; the inverse of `token`. Raises BadToken."""
    if _PLAIN.match(escaped):
        return escaped
    if not _ESCAPED.match(escaped):
        raise BadToken(f"the token {escaped!r} is not an escaped name")
    try:
        name = _UNESCAPE.sub(_unescape, escaped)
    except UnicodeDecodeError as error:
        raise BadToken(f"the token {escaped!r} is not an escaped name") from error
    if token(name) != escaped:
        raise BadToken(f"the token {escaped!r} is not the escaped form of {name!r}")
    return name


def uid_of(seed: str) -> str:
    """A uid in the form of a UUID, always the same for the same seed."""
    digest = blake2b(seed.encode(), digest_size=16).hexdigest()
    return "-".join((digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:]))


def workload_uid(namespace: str, name: str, sequence: int, at: datetime) -> str:
    """The uid of the workload that the message at ``sequence`` of the log submitted, stored ``at``
    that time."""
    return uid_of(f"{namespace}/{name}/{sequence}/{at.isoformat()}")
