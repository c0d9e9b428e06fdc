"""Sends requests to the tested program through the program's durable, records the program's
messages, and finds faults in a single message.

The kits play services, with requests that no service would send too, so they publish and read on
the bus itself, below the client.

All requests of a test are about workloads that were never submitted, in a namespace that no cluster
has. Real services on the same bus find no such workload and ignore the answers to these requests.
"""

from __future__ import annotations

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from admittance.events.base import HEADER_MSG_ID, HEADER_SCHEMA, HEADER_TRACE, SCHEMA_VERSION
from admittance.events.names import BadToken, plain, token
from admittance.events.shapes import PodSetUpdate
from admittance.events.subjects import STREAM
from admittance.runtime import chance, clock
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.bus.durables import ProgramDurables
from admittance.runtime.errors import AdmittanceError, BusRefused, SetupError
from admittance.runtime.nats.protocol import parse_headers
from admittance.runtime.tasks import set_within
from admittance.runtime.telemetry import tracing

NO_CONSUMER: Final = 10014
NO_STREAM: Final = 10059

A = TypeVar("A")
T = TypeVar("T")


class ReceivedMessage(NamedTuple, Generic[A, T]):
    """A message that the tested program sent. ``at``: when the test received the message, in
    monotonic seconds. ``request``: the request that the message is about; None if the message names
    none. ``content``: the decoded message; None if the message cannot be decoded.
    """

    at: float
    request: A | None
    content: T | None
    message_id: str
    data: bytes


class ProgramKind(NamedTuple):
    """The kind of the tested program: check controller or provider. ``kit``: prefix of the
    namespace that the test uses. ``answers``: the subjects on which programs of this kind answer
    requests. ``alive``: prefix of the subjects of heartbeats of this kind.
    """

    kit: str
    durables: ProgramDurables
    answers: str
    alive: str
    heartbeat: type[msgspec.Struct]


class Requester(ABC, Generic[A, T]):
    """Sends requests of type ``A`` to the tested program and receives answers of type ``T``. Call
    `start` before the first request, and `stop` at the end.
    """

    def __init__(self, bus: Bus, kind: ProgramKind, program: str) -> None:
        """``program``: the program's name, from which the name of its durable is made."""
        self._bus = bus
        self._kind = kind
        self.program = program
        self.namespace = f"{kind.kit}-{chance.token_hex(4)}"
        self.messages: list[ReceivedMessage[A, T]] = []
        self.faults: list[Fault] = []
        self.heartbeats = 0
        self._subscriptions: list[Any] = []
        self._received = asyncio.Event()
        self._created_durable = False
        self._delivered_before = 0

    # Methods that each kit implements. -----------------------------------------------------

    @abstractmethod
    async def withdraw_all(self) -> None:
        """Withdraws every request that was not withdrawn yet."""

    @abstractmethod
    def _request_of(self, subject: str, data: bytes) -> A | None:
        """The request that a message is most likely about; None if the message names no request."""

    @abstractmethod
    def _parse(self, subject: str, data: bytes, request: A | None) -> ParsedMessage[T]:
        """Returns the decoded content of a message of the program, and the faults of the message.
        ``request``: the request that the message is about; None if unknown.
        """

    # Start and end. -----------------------------------------------------------------------

    async def start(self) -> None:
        """Subscribes to the program's answers and heartbeats, and creates the program's durable if
        it is missing. Raises SetupError.
        """
        for subject, handler in (
            (self._kind.answers, self._on_answer),
            (f"{self._kind.alive}{token(self.program)}", self._on_heartbeat),
        ):
            self._subscriptions.append(await self._bus.nc.listen(subject, handler))
        await self._bus.nc.flush()
        deliveries = await self.deliveries()
        if deliveries is None:
            await self._kind.durables.make(self._bus, self.program)
            self._created_durable = True
        else:
            self._delivered_before = deliveries[2]

    async def stop(self) -> None:
        """Withdraws open requests, unsubscribes, and deletes the program's durable if `start`
        created it.
        """
        with suppress(AdmittanceError):
            await self.withdraw_all()
        for subscription in self._subscriptions:
            await self._bus.nc.unlisten(subscription)
        if self._created_durable:
            await self._kind.durables.remove(self._bus, self.program)

    async def publish(self, messages: Iterable[tuple[str, bytes]]) -> None:
        """Publishes messages on the log with new message ids. Raises BusRefused or BusUnavailable
        if a message is not stored.
        """
        outgoing = []
        for subject, data in messages:
            headers = {
                HEADER_MSG_ID: f"{self._kind.kit}-{chance.token_hex(12)}",
                HEADER_SCHEMA: SCHEMA_VERSION,
                HEADER_TRACE: tracing.start(),
            }
            outgoing.append(Outgoing(subject, data, headers))
        for outcome in await self._bus.publish_all(outgoing):
            if isinstance(outcome, BusRefused):
                raise outcome

    # Received messages. -------------------------------------------------------------------

    def answers_to(self, *requests: A) -> list[ReceivedMessage[A, T]]:
        """Returns the program's messages about these requests that could be decoded, in the order
        received.
        """
        wanted = set(requests)
        return [
            message
            for message in self.messages
            if message.request in wanted and message.content is not None
        ]

    async def until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Waits until the condition holds. Returns False if the condition does not hold within
        ``seconds``.
        """
        deadline = clock.monotonic() + seconds
        while not condition():
            left = deadline - clock.monotonic()
            if left <= 0:
                return False
            self._received.clear()
            await set_within(self._received, min(left, 0.5))
        return True

    def concerns_test(self, subject: str, data: bytes) -> bool:
        """Whether the message is about a workload of this test."""
        return token(self.namespace) in subject or self.namespace.encode() in data

    def _on_answer(self, raw_subject: bytes, _reply: bytes, data: bytes, headers: bytes) -> None:
        subject = raw_subject.decode("utf-8", "backslashreplace")
        if not self.concerns_test(subject, data):
            return
        request = self._request_of(subject, data)
        content, faults = self._parse(subject, data, request)
        self.faults += faults
        message_id = parse_headers(headers).get(HEADER_MSG_ID, "") if headers else ""
        self.messages.append(ReceivedMessage(clock.monotonic(), request, content, message_id, data))
        self._received.set()

    def _on_heartbeat(self, subject: bytes, _reply: bytes, data: bytes, _headers: bytes) -> None:
        self.heartbeats += 1
        self.faults += heartbeat_faults(subject.decode(), data, self._kind.heartbeat)
        self._received.set()

    # The durable. -------------------------------------------------------------------------

    def has_delivered(self, deliveries: tuple[int, int, int]) -> bool:
        """Whether the program's durable has delivered a message since `start`."""
        return deliveries[2] > self._delivered_before

    async def deliveries(self) -> tuple[int, int, int] | None:
        """The counts of unacknowledged, undelivered and all delivered messages of the program's
        durable; None if the durable is missing. Raises SetupError if the bus has no log.
        """
        name = self._kind.durables.durable(self.program)
        try:
            info = await self._bus.api(f"CONSUMER.INFO.{STREAM}.{name}")
        except BusRefused as error:
            if error.code == NO_CONSUMER:
                return None
            if error.code == NO_STREAM:
                raise SetupError(
                    f"stream {STREAM} is missing: start `admit up`, or use --embedded"
                ) from None
            raise
        return (
            int(info["num_ack_pending"]),
            int(info["num_pending"]),
            int(info["delivered"]["consumer_seq"]),
        )


def workload_in(subject: str) -> str:
    """The workload's name in the last token of a subject; empty if the token is not a valid
    name.
    """
    with suppress(BadToken):
        return plain(subject.rpartition(".")[2])
    return ""


DELAY_MAX: Final = 7 * 86_400
SHOWN: Final = 120
"""How many characters of a message the sentence about the message's fault quotes."""


class Fault(NamedTuple):
    """A fault of a message that the tested program sent. ``case``: the name of the test case that
    fails because of the fault. ``sentence``: describes the fault for the program's author.
    """

    case: str
    sentence: str


class ParsedMessage(NamedTuple, Generic[T]):
    """A message of the tested program: the decoded content, None if the message cannot be decoded,
    and the faults of the message.
    """

    content: T | None
    faults: tuple[Fault, ...]


def object_of(data: bytes) -> dict[str, Any] | Fault:
    """The JSON object in a message, or the fault if the message holds no JSON object."""
    try:
        content = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Fault("json", f"sent {quoted(data)}, which is not JSON: {error}")
    if not isinstance(content, dict):
        return Fault("json", f"sent {quoted(data)}, which is not a JSON object")
    return content


def missing(content: Mapping[str, Any], wanted: Iterable[str]) -> list[Fault]:
    """The fault of a message that leaves out required fields; empty if the message has all
    of them.
    """
    absent = [field for field in wanted if field not in content]
    if not absent:
        return []
    return [Fault("json", f"left out {', '.join(absent)}: {quoted(msgspec.json.encode(content))}")]


def wrong_names(pairs: Iterable[tuple[str, Any, Any]]) -> list[Fault]:
    """Returns a fault for each field in which a message differs from its request. ``pairs``: for
    each compared field its name, its value in the message and its value in the request.
    """
    return [
        Fault("names", f"sent {field} {said!r}; the request has {wanted!r}")
        for field, said, wanted in pairs
        if said != wanted
    ]


def bad_delay(delay: Any) -> str | None:
    """Says what is wrong with the delay that a message asks for, in seconds; None if the delay is
    valid or missing.
    """
    if delay is None:
        return None
    if isinstance(delay, bool) or not isinstance(delay, int | float):
        return f"asked for a delay of {delay!r}: it must be whole seconds"
    if not math.isfinite(delay) or delay != int(delay):
        return f"asked for a delay of {delay!r} s: it must be whole seconds"
    if delay < 0:
        return f"asked for a delay of {delay} s, which is negative"
    if delay > DELAY_MAX:
        return f"asked for a delay of {delay} s; the maximum is seven days"
    return None


def delay_faults(delay: Any, state: Any, needed: str) -> list[Fault]:
    """Returns the fault of the delay that a message asks for, or none. ``state``: the state that
    the message reports. ``needed``: the only state with which a message may ask for a delay.
    """
    why = bad_delay(delay)
    if why is None and delay is not None and state != needed:
        why = f"asked for a delay with {state!r}: only {needed} can have one"
    return [Fault("delay", why)] if why is not None else []


def update_faults(
    updates: Collection[PodSetUpdate], known: Collection[str], state: str, needed: str
) -> list[Fault]:
    """Returns the faults of the pod set updates in a message. ``known``: the names of the
    workload's pod sets. ``state``: the state that the message reports. ``needed``: the only state
    with which pod set updates have an effect.
    """
    faults = []
    if updates and state != needed:
        faults.append(Fault("updates", f"sent podSetUpdates with {state}: they are ignored"))
    return faults + [
        Fault(
            "updates", f"updates the pod set {update.name!r}; the workload has {', '.join(known)}"
        )
        for update in updates
        if update.name not in known
    ]


def wrong_subject(subject: str, expected: str | None) -> list[Fault]:
    """Returns the fault of a message that was not published on ``expected``. ``expected`` None: the
    test sent no request that the message answers, which is a fault too.
    """
    if expected is None:
        return [Fault("names", f"answered a request that was not sent, on {subject}")]
    if subject != expected:
        return [Fault("subject", f"published on {subject} instead of {expected}")]
    return []


def heartbeat_faults(subject: str, data: bytes, kind: type[msgspec.Struct]) -> tuple[Fault, ...]:
    """The faults of a message on a heartbeat subject. An empty heartbeat is valid."""
    if not data:
        return ()
    try:
        msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return (Fault("heartbeat", f"sent {quoted(data)} on {subject}: {error}"),)
    return ()


def quoted(data: bytes) -> str:
    """Quotes the bytes of a message for a sentence: printable, and cut to `SHOWN` characters."""
    text = data.decode("utf-8", "backslashreplace")
    shown = "".join(c if c.isprintable() else " " for c in text)
    return f"{shown[:SHOWN]}…" if len(shown) > SHOWN else shown
