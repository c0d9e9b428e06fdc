"""A commit as a value, and the order in which the service performs it.

    0. notes      messages that no object stores: ends of workloads, rejections, dead letters
    1. puts       every changed object, each expecting the revision it was decided from; the puts
                  of a group in one atomic batch
    2. outboxes   the messages of each put, with message ids made of uid, revision and entry
    3. echoes     barriers that lie before the end of the batch
    4. ack        one acknowledgement for the whole batch

A crash after each step leaves behind:
  before 1  only notes: the facts are read again, and the notes are published under the same ids;
  within 1  some objects written: ``status.log.fact`` tells which facts they hold, so those facts
            are skipped when read again, and the next leader publishes the outboxes;
  within 2  the same; messages published before are published again under the same ids, and the bus
            drops them or the receiver recognises the revision;
  within 3  the same; a repeated echo changes nothing;
  before 4  the same; the facts are read again and change nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final, NamedTuple

from admittance.events.requests.history import SettledReply
from admittance.lease import Fence
from admittance.workload.stored import StoredWorkload

_NO_HEADERS: Final[Mapping[str, str]] = {}


class LogMessage(NamedTuple):
    """A message as received from the log. ``message_id``: the id that its publisher chose;
    ``trace``: W3C traceparent; ``headers``: all headers, which a dead letter repeats."""

    sequence: int
    subject: str
    data: bytes
    time: datetime
    fence: Fence | None = None
    message_id: str = ""
    trace: str = ""
    headers: Mapping[str, str] = _NO_HEADERS


class Put(NamedTuple):
    """Write ``key`` of the bucket if its revision is still ``expected`` (0: no such key).

    A ``value`` of None deletes the key; any other ``value`` is ``workload`` encoded. ``fact``:
    sequence of the last fact applied to the object. ``trace``: W3C traceparent. ``group``: all puts
    with the same number, or none of them, are written, in their order; 0: no group.
    """

    key: str
    expected: int
    value: bytes | None
    fact: int
    trace: str = ""
    workload: StoredWorkload | None = None
    group: int = 0


class Message(NamedTuple):
    """A message to publish once. ``id``: the message id, by which the bus drops a duplicate;
    ``trace``: W3C traceparent, sent as it is. ``rights``: the header `HEADER_RIGHTS`, "": none."""

    subject: str
    data: bytes
    id: str
    trace: str = ""
    rights: str = ""


class RejectedMessage(NamedTuple):
    """A message that cannot be applied, and the reason. A rejected message becomes a dead
    letter."""

    logged: LogMessage
    reason: str


class Echo(NamedTuple):
    """A barrier that the workload-controller has read; the commit writes the echo of the barrier to
    the bucket."""

    domain: str
    epoch: int


class Commit(NamedTuple):
    """The result of one batch of facts. ``rest``: facts that must wait until this commit is
    stored."""

    puts: list[Put]
    notes: list[Message]
    dead: list[RejectedMessage]
    echoes: list[Echo]
    outcomes: dict[int, SettledReply]
    through: int
    rest: list[LogMessage]


BURST: Final = 500
PER_SECOND: Final = 20.0
VERDICTS: Final = "admit.check.reported."


class DeadLetterLimiter:
    """Limits the dead letters of one leader about check verdicts; other dead letters are rare.

    The rejected message itself stays on the log. After a burst only `PER_SECOND` letters are
    written, and the next letter says how many were dropped. A faulty check controller therefore
    cannot fill the log of dead letters."""

    def __init__(self) -> None:
        self._left = float(BURST)
        self._at = 0.0
        self._without: dict[str, int] = {}

    def of(self, dead: Iterable[RejectedMessage], now: float) -> list[RejectedMessage]:
        """Returns the rejected messages that get a dead letter. ``now``: monotonic seconds."""
        self._left = min(float(BURST), self._left + (now - self._at) * PER_SECOND)
        self._at = now
        letters = []
        for rejected in dead:
            subject = rejected.logged.subject
            if not subject.startswith(VERDICTS):
                letters.append(rejected)
                continue
            controller = subject.split(".")[3]
            if self._left < 1:
                self._without[controller] = self._without.get(controller, 0) + 1
                continue
            self._left -= 1
            without = self._without.pop(controller, 0)
            if without:
                reason = (
                    f"{rejected.reason} ({without} verdicts of this controller before it got none)"
                )
                rejected = rejected._replace(reason=reason)  # noqa: PLW2901
            letters.append(rejected)
        return letters
