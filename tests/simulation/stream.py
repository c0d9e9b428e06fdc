"""A stream as the real server was measured to behave: sequences, expectations, dedupe, expiry.

One class serves the log, the bucket (subjects are keys) and the claims. What it answers is what
the server answers; a test plays the same script to both and compares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

DEDUPE_SECONDS: Final = 120.0
WRONG_LAST_SEQUENCE: Final = 10071
EXPECTED: Final = "Nats-Expected-Last-Subject-Sequence"
FENCE: Final = "Nats-Expected-Last-Subject-Sequence-Subject"
MESSAGE_ID: Final = "Nats-Msg-Id"
OPERATION: Final = "KV-Operation"
MARKER: Final = "Nats-Marker-Reason"
NO_HEADERS: Final[Mapping[str, str]] = {}


class Outgoing(NamedTuple):
    """A message to a stream."""

    subject: str
    data: bytes
    headers: Mapping[str, str] = NO_HEADERS


class Stored(NamedTuple):
    """A message as a stream keeps it. ``time``: seconds of the virtual clock."""

    sequence: int
    subject: str
    data: bytes
    headers: Mapping[str, str]
    time: float

    @property
    def gone(self) -> bool:
        """It is the marker of a key that was deleted or ran out."""
        return self.headers.get(OPERATION) in ("DEL", "PURGE") or MARKER in self.headers


class Refused(NamedTuple):
    """The server said no. ``fenced``: by an expectation about another subject."""

    code: int
    fenced: bool = False


class Stream:
    """``history``: every message counts (a log), or only the last of each subject (a bucket).

    ``fences`` False takes the check of fences out, to show what it is good for.
    """

    def __init__(self, clock: Callable[[], float], *, fences: bool = True) -> None:
        self.messages: list[Stored] = []
        self.last: dict[str, Stored] = {}
        self.on_stored: list[Callable[[Stored], None]] = []
        self.on_whole: list[Callable[[], None]] = []
        """Called when a message that goes alone is stored, or all of a batch are."""
        self._clock = clock
        self._fences = fences
        self._ids: dict[str, tuple[float, int]] = {}

    @property
    def end(self) -> int:
        """The sequence of the newest message."""
        return len(self.messages)

    def publish(self, message: Outgoing) -> int | Refused:
        """The message's sequence, that of the first with its id, or why it was refused."""
        # In this order, as measured: a repetition is refused, too, if what it expects is no more.
        refused = self._refusal(message)
        if refused is not None:
            return refused
        return self._duplicate(message) or self._whole(self._store(message))

    def atomic(self, messages: Sequence[Outgoing]) -> int | Refused:
        """All or none; the sequence of the last."""
        for message in messages:
            refused = self._refusal(message)
            if refused is not None:
                return refused
        sequence = 0
        for message in messages:
            sequence = self._store(message)
        return self._whole(sequence)

    def expire(self, subject: str, sequence: int) -> None:
        """The time of that message is over; nothing happens if it is no longer the last one."""
        found = self.last.get(subject)
        if found is not None and found.sequence == sequence and not found.gone:
            self._store(Outgoing(subject, b"", {MARKER: "MaxAge"}))

    def _whole(self, sequence: int) -> int:
        for told in self.on_whole:
            told()
        return sequence

    def _duplicate(self, message: Outgoing) -> int:
        identity = message.headers.get(MESSAGE_ID)
        if identity is None:
            return 0
        known = self._ids.get(identity)
        if known is None or self._clock() - known[0] >= DEDUPE_SECONDS:
            return 0
        return known[1]

    def _refusal(self, message: Outgoing) -> Refused | None:
        expected = message.headers.get(EXPECTED)
        if expected is None:
            return None
        subject = message.headers.get(FENCE)
        if subject is not None and not self._fences:
            return None
        found = self.last.get(subject or message.subject)
        if (found.sequence if found is not None else 0) != int(expected):
            return Refused(WRONG_LAST_SEQUENCE, subject is not None)
        return None

    def _store(self, message: Outgoing) -> int:
        now = self._clock()
        stored = Stored(self.end + 1, message.subject, message.data, message.headers, now)
        self.messages.append(stored)
        self.last[message.subject] = stored
        identity = message.headers.get(MESSAGE_ID)
        if identity is not None:
            self._ids[identity] = (now, stored.sequence)
        for told in self.on_stored:
            told(stored)
        return stored.sequence
