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

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from admittance.events.applying import SettledReply
from admittance.events.codec import encode
from admittance.events.names import token
from admittance.events.system import BarrierEcho
from admittance.workload.stored import StoredWorkload


class Heard(NamedTuple):
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


class Dead(NamedTuple):
    """A message that nobody can use, and why."""

    heard: Heard
    reason: str


class Echo(NamedTuple):
    """A barrier that has been reached."""

    domain: str
    epoch: int


class Commit(NamedTuple):
    """All that one batch of facts leads to. ``rest``: facts that must wait for this commit."""

    puts: list[Put]
    notes: list[Message]
    dead: list[Dead]
    echoes: list[Echo]
    outcomes: dict[int, SettledReply]
    through: int
    rest: list[Heard]


def echo_put(echo: Echo) -> tuple[str, bytes]:
    """Key and value of a barrier's echo."""
    return (
        f"barrier.{token(echo.domain)}",
        encode(BarrierEcho(domain=echo.domain, epoch=echo.epoch)),
    )
