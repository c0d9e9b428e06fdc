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
    """JSON's null as bytes, the default of raw fields. A factory: a schema cannot show it."""
    return msgspec.Raw(b"null")


class Fact(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Something that happened to a workload.

    ``namespace`` and ``name`` are the workload's, not escaped. ``uid`` guards against a later
    workload of the same name; empty when the publisher does not know it. ``time`` is the
    publisher's clock, for information only: the order of the log counts.
    """

    namespace: str
    name: str
    uid: str = ""
    time: datetime | None = None


MESSAGE_MAX: Final = 32_768
"""Characters of a message; a longer one is not stored."""
WHOLE_MAX: Final = 131_072
"""Bytes of JSON of all details together, and of all pod set updates together."""


DEEP_MAX: Final = 16
"""Levels of nesting in free-form JSON. A deeper value that one program reads could exceed the
recursion limit of another program, or of the same program when it writes the value."""


def too_deep(what: str, value: Any) -> str:
    """A sentence about ``what`` when the value is nested too deeply, else ""."""
    return f"{what}: more than {DEEP_MAX} levels deep" if _is_deep(value, DEEP_MAX) else ""


def _is_deep(value: Any, left: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value
    if not isinstance(value, dict | list | tuple):
        return False
    return left < 0 or any(_is_deep(one, left - 1) for one in inner)


def too_long(what: str, value: Any) -> str:
    """A sentence about ``what`` when the value is too long, else ""."""
    size = len(msgspec.json.encode(value))
    if size <= WHOLE_MAX:
        return ""
    return f"{what}: {size:,} bytes of JSON in all, {WHOLE_MAX:,} are allowed"
