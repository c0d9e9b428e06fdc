"""Reads the newest stored messages of the log first.

The server reads forward only, so a reader asks for windows of sequences, one before the other: wide
ones where few messages match, narrow ones where many do. The server counts at each request for some
subjects how many messages match, which takes a tenth of a second on a log of 250,000 subjects; so
the first windows have all messages, of which the reader keeps those that match.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from admittance.events.subjects import STREAM
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.history import (
    StoredMessage,
    newest_sequence,
    read_in_order,
    read_messages,
)

EVERYTHING: Final = (">",)
"""The filter that the server does not compare with the subjects of a stream."""
READS_MAX: Final = 24
"""The most windows of one call: with eight times the width after each empty one, the windows of a
call reach back over any log."""
UNFILTERED_READS: Final = 4
"""How many windows are read with all messages."""
FILTERS_MAX: Final = 16
"""The most filters of these windows: each message is compared with each filter."""
WIDTH: Final = 500
"""The sequences of such a window."""
WIDER_IF_EMPTY: Final = 8
WIDER: Final = 2
NARROWER: Final = 4


class Backward(NamedTuple):
    """``messages``: the newest first. ``covered``: all matching messages from this sequence on, up
    to where the call began, are among them."""

    messages: list[StoredMessage]
    covered: int


async def read_backward(
    bus: Bus, filters: Sequence[str], *, before: int, after: int = 0, limit: int, bytes_max: int
) -> Backward:
    """The newest ``limit`` messages of these subjects before the sequence ``before`` and after
    ``after``; fewer, with ``covered`` above ``after`` + 1, if these have more than ``bytes_max``
    bytes or are too far apart for one call. The bounds are as those of `read_in_order`, which
    raises the same. A replica that lags misses messages at the end of the log for a moment."""
    messages: list[StoredMessage] = []
    unfiltered = UNFILTERED_READS if len(filters) <= FILTERS_MAX else 0
    patterns = [pattern.split(".") for pattern in filters]
    width = limit if tuple(filters) == EVERYTHING else max(limit, WIDTH)
    end, size = before, 0
    for read in range(READS_MAX):
        if end <= after + 1 or len(messages) >= limit or size >= bytes_max:
            break
        start = max(after, end - 1 - width)
        page, whole = await read_in_order(
            bus,
            EVERYTHING if read < unfiltered else filters,
            after=start,
            limit=max(limit, WIDTH),
            bytes_max=bytes_max,
        )
        if not whole and page[-1].sequence < end - 1:
            width = max(1, (end - 1 - start) // NARROWER)
            continue
        inside = [
            message
            for message in page
            if message.sequence < end and (read >= unfiltered or matches(patterns, message.subject))
        ]
        messages += reversed(inside)
        size += sum(len(message.data) for message in inside)
        end = start + 1
        if read >= unfiltered:
            width *= WIDER if inside else WIDER_IF_EMPTY
    if len(messages) > limit:
        messages = messages[:limit]
        end = messages[-1].sequence
    return Backward(messages, max(end, after + 1))


def matches(patterns: Iterable[Sequence[str]], subject: str) -> bool:
    """Whether the subject matches one of the filters, which are given by their tokens."""
    parts = subject.split(".")
    return any(
        all(token in ("*", part) for token, part in zip(pattern, parts, strict=False))
        if len(pattern) == len(parts) and pattern[-1] != ">"
        else pattern[-1] == ">"
        and len(parts) >= len(pattern)
        and all(token in ("*", part) for token, part in zip(pattern[:-1], parts, strict=False))
        for pattern in patterns
    )


async def end_of_log(bus: Bus) -> int:
    """The sequence after the newest message of the log, from the leader of the stream."""
    return await newest_sequence(bus, EVERYTHING, stream=STREAM) + 1


async def sequence_at(bus: Bus, moment: datetime) -> int | None:
    """The sequence of the first message of the log from this time on; None: there is none."""
    first = await read_messages(bus, EVERYTHING, since=moment, limit=1)
    return first[0].sequence if first else None
