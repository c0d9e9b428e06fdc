"""Messages of a stream, and an index of them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final, NamedTuple

from simulation.virtual_time.loop import START

START_NANOSECONDS: Final = int(START.timestamp()) * 1_000_000_000


class Message(NamedTuple):
    """A message as a stream keeps it. ``raw``: its header block. ``time``: virtual seconds."""

    sequence: int
    subject: str
    data: bytes
    raw: bytes
    headers: Mapping[str, str]
    time: float

    @property
    def nanoseconds(self) -> int:
        return START_NANOSECONDS + int(self.time * 1e6) * 1000

    @property
    def stamp(self) -> str:
        whole, rest = divmod(self.nanoseconds, 1_000_000_000)
        return f"{datetime.fromtimestamp(whole, START.tzinfo).isoformat()[:19]}.{rest:09d}Z"


class SubjectIndex:
    """The messages by the last token of their subjects, which names a workload most often, and by
    the first two, in the order of their sequences. Those that were removed stay in it."""

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self._by_end: dict[str, list[Message]] = {}
        self._by_head: dict[str, list[Message]] = {}
        for message in messages:
            self.add(message)

    def add(self, message: Message) -> None:
        """Adds the newest message."""
        tokens = message.subject.split(".")
        self._by_end.setdefault(tokens[-1], []).append(message)
        self._by_head.setdefault(".".join(tokens[:2]), []).append(message)

    def since(self, pattern: str, sequence: int) -> Iterator[Message] | None:
        """The messages with the last token of the pattern, or with its first two, from a sequence
        on; None: all of these are wildcards."""
        tokens = pattern.split(".")
        if tokens[-1] not in _WILD:
            messages = self._by_end.get(tokens[-1], [])
        elif len(tokens) > 2 and _WILD.isdisjoint(tokens[:2]):
            messages = self._by_head.get(".".join(tokens[:2]), [])
        else:
            return None
        begin = bisect_left(messages, sequence, key=_sequence)
        return (messages[at] for at in range(begin, len(messages)))


_WILD: Final = {"*", ">"}


def _sequence(message: Message) -> int:
    return message.sequence
