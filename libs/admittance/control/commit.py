"""A commit as a value, and the order in which it is performed.

    0. notes      what no object will remember: ends of workloads, rejections, dead letters
    1. puts       every changed object, each expecting the revision it was decided from; those of a
                  group in one atomic batch
    2. said       what follows, under message ids made of uid, revision and what
    3. echoes     barriers that lie before the end of the batch
    4. ack        one acknowledgement for the whole batch

A crash after each step leaves behind:
  before 1  nothing but notes: the facts are read again, and the notes are said under the same ids;
  within 1  some objects that know (``status.log.fact``) which facts they hold: read again, those
            facts are skipped, and what the objects have to say is said by whoever takes over;
  within 2  the same; what was said already is said again under the same ids, and dropped by the
            bus or recognised by its revision;
  within 3  the same; an echo says nothing new the second time;
  before 4  the same: the facts are read again and change nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final, NamedTuple

from admittance.events.applying import SettledReply
from admittance.events.codec import encode
from admittance.events.names import token
from admittance.events.system import BarrierEcho
from admittance.workload.stored import StoredWorkload


class LogMessage(NamedTuple):
    """A message of the log as it came."""

    sequence: int
    subject: str
    data: bytes
    headers: Mapping[str, str]
    time: datetime


class Put(NamedTuple):
    """Write ``key`` of the bucket if its revision is still ``expected`` (0: no such key).

    ``value`` None deletes; else it is ``workload`` as bytes. ``fact``: the last fact that is in
    it. ``trace``: W3C traceparent. ``group``: those of one number are written all or none, in their
    order; 0: each for itself.
    """

    key: str
    expected: int
    value: bytes | None
    fact: int
    trace: str = ""
    workload: StoredWorkload | None = None
    group: int = 0


class Message(NamedTuple):
    """Something to be said on the log, once: ``id`` is its idempotence."""

    subject: str
    data: bytes
    id: str
    trace: str = ""


class RejectedMessage(NamedTuple):
    """A message that nobody can use, and why."""

    heard: LogMessage
    reason: str


class Echo(NamedTuple):
    """A barrier that has been reached."""

    domain: str
    epoch: int


class Commit(NamedTuple):
    """All that one batch of facts leads to. ``rest``: facts that must wait for this commit."""

    puts: list[Put]
    notes: list[Message]
    dead: list[RejectedMessage]
    echoes: list[Echo]
    outcomes: dict[int, SettledReply]
    through: int
    rest: list[LogMessage]


def echo_put(echo: Echo) -> tuple[str, bytes]:
    """Key and value of a barrier's echo."""
    return (
        f"barrier.{token(echo.domain)}",
        encode(BarrierEcho(domain=echo.domain, epoch=echo.epoch)),
    )


BURST: Final = 500
PER_SECOND: Final = 20.0
VERDICTS: Final = "admit.check.reported."


class DeadLetterLimiter:
    """The letters of one leader. Only those about verdicts are counted out: others are rare."""

    def __init__(self) -> None:
        self._left = float(BURST)
        self._at = 0.0
        self._without: dict[str, int] = {}

    def of(self, dead: Iterable[RejectedMessage], now: float) -> list[RejectedMessage]:
        """Those that get a letter. ``now``: monotonic seconds."""
        self._left = min(float(BURST), self._left + (now - self._at) * PER_SECOND)
        self._at = now
        letters = []
        for one in dead:
            subject = one.heard.subject
            if not subject.startswith(VERDICTS):
                letters.append(one)
                continue
            controller = subject.split(".")[3]
            if self._left < 1:
                self._without[controller] = self._without.get(controller, 0) + 1
                continue
            self._left -= 1
            without = self._without.pop(controller, 0)
            if without:
                reason = f"{one.reason} ({without} verdicts of this controller before it got none)"
                one = one._replace(reason=reason)  # noqa: PLW2901
            letters.append(one)
        return letters
