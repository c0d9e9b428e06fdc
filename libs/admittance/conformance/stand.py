"""Asks a program through its durable, and notes all that it says.

All messages are about a namespace that no cluster has, and workloads that were never submitted.
Real services on the same bus find no such workload and ignore these messages.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from admittance.conformance.faults import Fault, Looked, heartbeat_faults
from admittance.events.base import HEADER_MSG_ID, HEADER_SCHEMA, HEADER_TRACE, SCHEMA_VERSION
from admittance.events.names import BadToken, plain, token
from admittance.events.subjects import STREAM
from admittance.runtime import chance, clock
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.bus.connection import parse_headers
from admittance.runtime.bus.durables import ProgramDurables
from admittance.runtime.errors import AdmittanceError, Refused, SetupError
from admittance.runtime.tasks import set_within
from admittance.runtime.telemetry import tracing

NO_CONSUMER: Final = 10014
NO_STREAM: Final = 10059

A = TypeVar("A")
T = TypeVar("T")


class Said(NamedTuple, Generic[A, T]):
    """A message of the program. ``at``: seconds of a clock that never goes back. ``asked``: what it
    was said about; None: nothing that was asked. ``told``: what it says; None: nothing readable."""

    at: float
    asked: A | None
    told: T | None
    message_id: str
    data: bytes


class Part(NamedTuple):
    """Which part is played. ``kit``: prefix of the namespace. ``answers``: subjects that programs
    answer on. ``alive``: prefix of the subjects of heartbeats, which are of kind ``heartbeat``."""

    kit: str
    durables: ProgramDurables
    answers: str
    alive: str
    heartbeat: type[msgspec.Struct]


class Stand(ABC, Generic[A, T]):
    """``A``: what it is asked; ``T``: what it answers. `start` it, and `leave` in the end."""

    def __init__(self, bus: Bus, part: Part, program: str) -> None:
        """``program``: the name that the durable is of."""
        self._bus = bus
        self._part = part
        self.program = program
        self.namespace = f"{part.kit}-{chance.token_hex(4)}"
        self.said: list[Said[A, T]] = []
        self.faults: list[Fault] = []
        self.heartbeats = 0
        self._listening: list[Any] = []
        self._heard = asyncio.Event()
        self._made_durable = False
        self._delivered_before = 0

    # What a kit says. ---------------------------------------------------------------------

    @abstractmethod
    async def take_back(self) -> None:
        """Takes everything back that was asked, and not taken back before."""

    @abstractmethod
    def _meant(self, subject: str, data: bytes) -> A | None:
        """The request that a message is about, as well as can be told; None: it was not asked."""

    @abstractmethod
    def _look(self, subject: str, data: bytes, asked: A | None) -> Looked[T]:
        """What a message says."""

    # Being there. -------------------------------------------------------------------------

    async def start(self) -> None:
        """Listens, and makes the program's durable where there is none. Raises SetupError."""
        for subject, handler in (
            (self._part.answers, self._on_said),
            (f"{self._part.alive}{token(self.program)}", self._on_heartbeat),
        ):
            self._listening.append(await self._bus.nc.listen(subject, handler))
        await self._bus.nc.flush()
        found = await self.deliveries()
        if found is None:
            await self._part.durables.make(self._bus, self.program)
            self._made_durable = True
        else:
            self._delivered_before = found[2]

    async def leave(self) -> None:
        """Takes back what is still asked, and takes the durable away if it is ours."""
        with suppress(AdmittanceError):
            await self.take_back()
        for subscription in self._listening:
            await self._bus.nc.deafen(subscription)
        if self._made_durable:
            await self._part.durables.remove(self._bus, self.program)

    async def say(self, said: Iterable[tuple[str, bytes]]) -> None:
        """Says messages on the log, each under an id of its own. Raises Refused or Unavailable."""
        messages = []
        for subject, data in said:
            headers = {
                HEADER_MSG_ID: f"{self._part.kit}-{chance.token_hex(12)}",
                HEADER_SCHEMA: SCHEMA_VERSION,
                HEADER_TRACE: tracing.start(),
            }
            messages.append(Outgoing(subject, data, headers))
        for outcome in await self._bus.publish_all(messages):
            if isinstance(outcome, Refused):
                raise outcome

    # Listening. ---------------------------------------------------------------------------

    def about(self, *asked: A) -> list[Said[A, T]]:
        """What was said about those requests, in order."""
        wanted = set(asked)
        return [one for one in self.said if one.asked in wanted and one.told is not None]

    async def until(self, claim: Callable[[], bool], seconds: float) -> bool:
        """Waits until claim holds, seconds at most; whether it does."""
        deadline = clock.monotonic() + seconds
        while not claim():
            left = deadline - clock.monotonic()
            if left <= 0:
                return False
            self._heard.clear()
            await set_within(self._heard, min(left, 0.5))
        return True

    def is_ours(self, subject: str, data: bytes) -> bool:
        """Whether the message is about a workload of this test."""
        return token(self.namespace) in subject or self.namespace.encode() in data

    def _on_said(self, subject: bytes, _reply: bytes, data: bytes, headers: bytes) -> None:
        where = subject.decode("utf-8", "backslashreplace")
        if not self.is_ours(where, data):
            return
        asked = self._meant(where, data)
        told, faults = self._look(where, data, asked)
        self.faults += faults
        message_id = parse_headers(headers).get(HEADER_MSG_ID, "") if headers else ""
        self.said.append(Said(clock.monotonic(), asked, told, message_id, data))
        self._heard.set()

    def _on_heartbeat(self, subject: bytes, _reply: bytes, data: bytes, _headers: bytes) -> None:
        self.heartbeats += 1
        self.faults += heartbeat_faults(subject.decode(), data, self._part.heartbeat)
        self._heard.set()

    # The durable. -------------------------------------------------------------------------

    def delivered(self, deliveries: tuple[int, int, int]) -> bool:
        """Whether the durable has delivered anything since `start`."""
        return deliveries[2] > self._delivered_before

    async def deliveries(self) -> tuple[int, int, int] | None:
        """Of the durable: messages delivered and not acknowledged, still to be delivered, and
        delivered in all; None: there is none. Raises SetupError when there is no log."""
        name = self._part.durables.durable(self.program)
        try:
            info = await self._bus.api(f"CONSUMER.INFO.{STREAM}.{name}")
        except Refused as error:
            if error.code == NO_CONSUMER:
                return None
            if error.code == NO_STREAM:
                raise SetupError(
                    f"stream {STREAM} is missing: start `admit up`, or try it --embedded"
                ) from None
            raise
        return (
            int(info["num_ack_pending"]),
            int(info["num_pending"]),
            int(info["delivered"]["consumer_seq"]),
        )


def encoded(payload: dict[str, Any]) -> bytes:
    """A payload as it travels."""
    return msgspec.json.encode(payload)


def named_in(subject: str) -> str:
    """The workload that the end of a subject names; "": none."""
    with suppress(BadToken):
        return plain(subject.rpartition(".")[2])
    return ""
