"""Reads earlier messages of a stream, by subject."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from admittance.events import subjects
from admittance.runtime import clock
from admittance.runtime.bus import direct
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.connection import parse_headers
from admittance.runtime.bus.direct import DirectMessage
from admittance.runtime.errors import Refused

NO_MESSAGE: Final = 10037
"""The server's error code if the stream has no such message."""
PAGE: Final = 500
"""How many messages one request to the server returns."""
_NO_HEADERS: Final[Mapping[str, str]] = {}


class StoredMessage(NamedTuple):
    """A message that is stored on the log."""

    sequence: int
    time: datetime
    subject: str
    data: bytes
    headers: Mapping[str, str] = _NO_HEADERS


async def read_messages(
    bus: Bus,
    filters: Sequence[str],
    *,
    after: int = 0,
    since: datetime | None = None,
    limit: int = PAGE,
    stream: str = subjects.STREAM,
) -> list[StoredMessage]:
    """The first ``limit`` messages of these subjects after the sequence ``after``, in order.

    ``since`` counts only if ``after`` is 0. Raises Unavailable or Refused.
    """
    pages = await asyncio.gather(
        *(_page(bus, stream, subject, after, since, limit) for subject in filters)
    )
    merged = {found.sequence: found for page in pages for found in page}
    return [merged[sequence] for sequence in sorted(merged)[:limit]]


async def _page(
    bus: Bus, stream: str, subject: str, after: int, since: datetime | None, limit: int
) -> list[StoredMessage]:
    request: dict[str, Any] = {"batch": limit, "next_by_subj": subject}
    if after or since is None:
        request["seq"] = after + 1
    else:
        request["start_time"] = since.astimezone(UTC).isoformat()
    found = await direct.messages(bus, stream, request)
    return [_stored(one) for one in found]


def _stored(found: DirectMessage) -> StoredMessage:
    return StoredMessage(
        found.sequence, time_of(found.stamp), found.subject, found.data, found.headers
    )


def time_of(stamp: str) -> datetime:
    """The time of a message, rounded as `clock` rounds it: a workload's uid is derived from this
    time.
    """
    whole, _, fraction = stamp.removesuffix("Z").partition(".")
    seconds = int(datetime.fromisoformat(f"{whole}+00:00").timestamp())
    return clock.from_nanoseconds(seconds * 1_000_000_000 + int(fraction.ljust(9, "0") or 0))


async def last(bus: Bus, subject: str, *, stream: str = subjects.STREAM) -> StoredMessage | None:
    """The newest message on the subject, read from the leader of the stream; None if the subject
    has no message."""
    return await _from_leader(bus, stream, {"last_by_subj": subject})


async def message_at(bus: Bus, sequence: int) -> StoredMessage | None:
    """The message of the log with that sequence, from any replica; None if the log has no such
    message. Raises Unavailable or Refused."""
    found = await read_messages(bus, ["admit.>"], after=sequence - 1, limit=1)
    return found[0] if found and found[0].sequence == sequence else None


async def _from_leader(bus: Bus, stream: str, query: dict[str, Any]) -> StoredMessage | None:
    try:
        answer = await bus.api(f"STREAM.MSG.GET.{stream}", query)
    except Refused as error:
        if error.code == NO_MESSAGE:
            return None
        raise
    message: dict[str, Any] = answer["message"]
    return StoredMessage(
        message["seq"],
        time_of(message["time"]),
        message["subject"],
        base64.b64decode(message.get("data", "")),
        parse_headers(base64.b64decode(message.get("hdrs", ""))),
    )


async def last_by_direct_get(
    bus: Bus, subject: str, *, stream: str = subjects.STREAM
) -> StoredMessage | None:
    """The newest message on the subject, without wildcards, from any replica of the stream; None if
    there is none. Raises Unavailable or Refused.
    """
    found = await direct.last_message(bus, stream, subject)
    return _stored(found) if found is not None else None
