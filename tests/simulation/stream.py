"""A stream of the simulated server, as an observer and the actors outside see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from simulation.nats.stream import FENCE, Message
from simulation.nats.stream import Stream as NatsStream
from simulation.nats.subjects import header_block

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
        """Whether it is the marker of a key that was deleted or has expired."""
        return self.headers.get(OPERATION) in ("DEL", "PURGE") or MARKER in self.headers


class Refused(NamedTuple):
    """The server refused a message. ``fenced``: by an expectation about another subject."""

    code: int
    fenced: bool = False


class Stream:
    """``messages`` are all that were ever stored, ``last`` the newest of each subject that is still
    there. ``on_stored`` is called with each message, ``on_whole`` when a message that goes alone is
    stored, or all of a batch are.

    ``prefix``: of its subjects, left out here; subjects that then begin with an underscore are the
    services' own, and left out, too.
    """

    def __init__(self, stream: NatsStream, prefix: str = "") -> None:
        self.messages: list[Stored] = []
        self.last: dict[str, Stored] = {}
        self.on_stored: list[Callable[[Stored], None]] = []
        self.on_whole: list[Callable[[], None]] = stream.on_whole
        self._stream = stream
        self._prefix = prefix
        stream.on_stored.append(self._on_stored)
        stream.on_removed.append(self._on_removed)

    def _on_stored(self, message: Message) -> None:
        subject = message.subject[len(self._prefix) :]
        headers, time = message.headers, message.time
        stored = Stored(message.sequence, subject, message.data, headers, time)
        self.messages.append(stored)
        if not subject.startswith("_"):
            self.last[subject] = stored
            for told in self.on_stored:
                told(stored)

    def _on_removed(self, message: Message) -> None:
        subject = message.subject[len(self._prefix) :]
        found = self.last.get(subject)
        if found is not None and found.sequence == message.sequence:
            del self.last[subject]

    def publish(self, message: Outgoing) -> int | Refused:
        """The message's sequence, that of the first with its id, or why it was refused."""
        subject = self._prefix + message.subject
        headers = dict(message.headers)
        answer = self._stream.publish(subject, message.data, header_block(headers), headers)
        assert answer is not None, "it is no part of a batch"
        error = answer.fields.get("error")
        if error is not None:
            return Refused(error["err_code"], FENCE in headers)
        return int(answer.fields["seq"])
