"""How much of the log may be removed when it is larger than its bound."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

ROOM: Final = 0.8
"""To which part of the bound the log is reduced, so that it is not reduced all the time."""
PATIENCE: Final = 2
"""A log larger than this many times its bound does not wait for readers that have fallen behind: a
program that is away must not fill the disk."""


class LogSize(NamedTuple):
    """The size of the log. ``first``, ``last``: its first and last sequence."""

    bytes: int
    messages: int
    first: int
    last: int


class LogConsumer(NamedTuple):
    """A consumer of the log with unread or unacknowledged messages. ``floor``: it needs no message
    up to this sequence."""

    name: str
    floor: int


class Removal(NamedTuple):
    """``through``: facts up to this sequence may be removed; ``held_by``: the reader because of
    which more may not be removed now; "": none."""

    through: int
    held_by: str = ""


def removal(
    size: LogSize, bound: int, removed: int, needed: int, readers: Iterable[LogConsumer]
) -> Removal:
    """What may be removed from the log. ``removed``: facts up to this sequence are removed already.
    ``needed``: the first sequence that the sums of usage or the workload-controller still need."""
    start = max(removed, size.first - 1)
    if size.bytes <= bound or not size.messages:
        return Removal(start)
    excess = size.bytes - int(bound * ROOM)
    through = min(start + -(-excess * size.messages // size.bytes), size.last, needed - 1)
    held_by = ""
    if size.bytes <= PATIENCE * bound:
        for reader in readers:
            if reader.floor < through:
                through, held_by = reader.floor, reader.name
    return Removal(max(start, through), held_by)
