"""What every fact has in common, and the version of the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import msgspec

SCHEMA_VERSION: Final = "1"
"""Goes with every message as the header `HEADER_SCHEMA`. A new field has a default and a
field's type never changes, so a reader tolerates newer messages of the same version."""

HEADER_SCHEMA: Final = "Admit-Schema"
HEADER_TRACE: Final = "traceparent"
HEADER_MSG_ID: Final = "Nats-Msg-Id"


def null() -> msgspec.Raw:
    """Where nothing was said: JSON's null, as bytes. A factory, since a schema cannot show it."""
    return msgspec.Raw(b"null")


class Fact(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Something that happened to a workload.

    ``namespace`` and ``name`` are the workload's, plain. ``uid`` guards against a namesake that
    came later; empty when the publisher does not know it. ``time`` is the publisher's clock and
    informs only: what counts is the order of the log.
    """

    namespace: str
    name: str
    uid: str = ""
    time: datetime | None = None


MESSAGE_MAX: Final = 32_768
"""Characters of a message; more is kept nowhere."""
WHOLE_MAX: Final = 131_072
"""Bytes of JSON that all details have together, and all updates of pod sets."""


DEEP_MAX: Final = 16
"""Levels of what has no shape of its own. Whoever writes again what he has read, or reads it where
more functions have called one another, cannot go as deep as whoever read it first."""


def too_deep(what: str, value: Any) -> str:
    """What is wrong with lists within lists, a sentence about ``what``; "": nothing."""
    return f"{what}: more than {DEEP_MAX} levels deep" if _is_deep(value, DEEP_MAX) else ""


def _is_deep(value: Any, left: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value
    if not isinstance(value, dict | list | tuple):
        return False
    return left < 0 or any(_is_deep(one, left - 1) for one in inner)


def too_long(what: str, value: Any) -> str:
    """What is wrong with so much, a sentence about ``what``; "": nothing."""
    size = len(msgspec.json.encode(value))
    if size <= WHOLE_MAX:
        return ""
    return f"{what}: {size:,} bytes of JSON in all, {WHOLE_MAX:,} are allowed"
