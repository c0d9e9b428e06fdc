"""What every fact has in common, the version of the wire, and the limits of messages: a text that
is too long is cut, a structured value that is too long is refused.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import msgspec

SCHEMA_VERSION: Final = "1"
"""The version of the wire, sent with every message in the header `HEADER_SCHEMA`. A new field has a
default and a field's type never changes, so a reader tolerates newer messages of the same version.
"""

HEADER_SCHEMA: Final = "Admit-Schema"
HEADER_TRACE: Final = "traceparent"
HEADER_MSG_ID: Final = "Nats-Msg-Id"
HEADER_RIGHTS: Final = "Admit-Rights"
"""Header of a person's fact on the log: the name of a role that limits what the fact may change; no
header: the fact may change every workload that its subject names."""


def null() -> msgspec.Raw:
    """JSON's null as bytes, the default of raw fields. A function, since a schema cannot show bytes
    as a default.
    """
    return msgspec.Raw(b"null")


class Shape(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False
):
    """A part of a message; unknown fields of newer versions are tolerated. A message is a tree, so
    the collector of reference cycles need not look at its parts (``gc``)."""


class Fact(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """Something that happened to a workload.

    ``namespace`` and ``name`` are the workload's, not escaped. ``uid`` is the workload's, so that
    the fact does not affect a later workload of the same name; empty if the publisher does not know
    the uid. ``time`` is the publisher's clock, for information only: the order of the log counts.
    """

    namespace: str
    name: str
    uid: str = ""
    time: datetime | None = None


MESSAGE_MAX: Final = 32_768
"""The most characters of a message for people; a longer message is cut when it is stored."""
WHOLE_MAX: Final = 131_072
"""The most bytes of JSON of all details of a fact together, and of all its pod set updates
together.
"""


DEEP_MAX: Final = 16
"""The most levels of nesting in free-form JSON. A deeper value that one program can read could
exceed the recursion limit of another program, or of the same program when it writes the value.
"""


def too_deep(what: str, value: Any) -> str:
    """A sentence about ``what`` when the value is nested too deeply, else ""."""
    return f"{what}: more than {DEEP_MAX} levels deep" if _is_deep(value, DEEP_MAX) else ""


def _is_deep(value: Any, left: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value
    if not isinstance(value, dict | list | tuple):
        return False
    return left < 0 or any(_is_deep(item, left - 1) for item in inner)


def too_long(what: str, value: Any) -> str:
    """A sentence about ``what`` when the value is too long, else ""."""
    size = len(msgspec.json.encode(value))
    if size <= WHOLE_MAX:
        return ""
    return f"{what}: {size:,} bytes of JSON in all, {WHOLE_MAX:,} are allowed"


def clipped_message(message: str, most: int = MESSAGE_MAX) -> str:
    """A message cut to ``most`` characters, with undecodable characters (as in file names)
    replaced."""
    return message[:most].encode("utf-8", "replace").decode()


def check_length(what: str, value: Any) -> None:
    """Raises ValueError, with a sentence about ``what``, if the value is too long or cannot be
    encoded."""
    try:
        problem = too_long(what, value)
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
        raise ValueError(f"the field {what} cannot be encoded as JSON: {error}") from None
    if problem:
        raise ValueError(problem)
