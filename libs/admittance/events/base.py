"""What every fact has in common, and the version of the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Final

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
