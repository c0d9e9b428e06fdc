"""What a client sends to JetStream: messages with revisions and fences, the acknowledgements for
which a publisher waits, and requests to the API.

While a stream or the cluster elects a leader, 4 to 9 s, no server answers a request, and the next
leader does not know the request. So a request is sent again until it is answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import inf
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
import nats.errors

from admittance.runtime import clock
from admittance.runtime.errors import (
    IN_PROCESS,
    NO_ANSWER,
    AccessDenied,
    BusRefused,
    BusUnavailable,
    Busy,
    NoAnswer,
    NoResponders,
    TooBig,
    refusal,
)
from admittance.runtime.nats.connection import Connection, PermissionDenied
from admittance.runtime.nats.protocol import status

EXPECTED: Final = "Nats-Expected-Last-Subject-Sequence"
FENCE: Final = "Nats-Expected-Last-Subject-Sequence-Subject"
MESSAGE_ID: Final = "Nats-Msg-Id"

FENCE_IN_FLIGHT: Final = 10164
"""The error code of a replicated stream while another message with the same fence is in flight."""
TOO_MANY_BATCHES: Final = 10210
NO_BATCH: Final = frozenset({TOO_MANY_BATCHES, 10176})
"""Codes of a stream while 50 atomic batches are open, each for at most 10 s: the code for the first
message of another batch, and for its last."""

T = TypeVar("T")
_json = msgspec.json.Encoder()


class Outgoing(msgspec.Struct, frozen=True, gc=False):
    """A message to publish to a stream."""

    subject: str
    data: bytes
    headers: Mapping[str, str] | None = None


def repeatable(message: Outgoing) -> bool:
    """Whether the message may be sent again when it is unknown whether it was stored."""
    # The server checks expected revisions before message ids (measured on 2.15.1): a put that was
    # stored and is sent again is refused as stale. A fence stays the same when a message is stored,
    # so a message with a fence can be sent again.
    headers = message.headers
    return (
        headers is not None
        and MESSAGE_ID in headers
        and (EXPECTED not in headers or FENCE in headers)
    )


def expects_revision(message: Outgoing) -> bool:
    """Whether the message expects a revision of its own key, which changes when it is stored."""
    headers = message.headers
    return headers is not None and EXPECTED in headers and FENCE not in headers


def only_fences(messages: Sequence[Outgoing]) -> bool:
    """Whether these messages have fences and no expected revisions, so that the error "wrong
    sequence" means a stale fence.
    """
    expecting = [m.headers for m in messages if m.headers and EXPECTED in m.headers]
    return bool(expecting) and all(FENCE in headers for headers in expecting)


BATCH_MAX: Final = 1000
"""The most messages in one atomic batch; the server's limit."""


def check_batch(messages: Sequence[Outgoing]) -> None:
    """Raises ValueError or TooBig if the messages cannot be one atomic batch."""
    if not messages:
        raise ValueError("an atomic batch needs at least one message")
    if len(messages) > BATCH_MAX:
        raise TooBig(0, f"{len(messages)} messages in one batch, {BATCH_MAX} are allowed")
    expecting = [
        message.subject for message in messages if message.headers and EXPECTED in message.headers
    ]
    if len(expecting) != len(set(expecting)) and not only_fences(messages):
        # The server would refuse such a batch as busy (10164) at every attempt.
        raise ValueError("a batch expects two revisions of one key")


def fence_groups(messages: Sequence[Outgoing]) -> dict[tuple[str, str], list[int]]:
    """The places of the messages that may be sent again, for each fence: subject and epoch."""
    groups: dict[tuple[str, str], list[int]] = {}
    for place, message in enumerate(messages):
        headers = message.headers
        if headers and FENCE in headers and repeatable(message):
            groups.setdefault((headers[FENCE], headers[EXPECTED]), []).append(place)
    return groups


Outcomes: TypeAlias = "list[int | BusRefused | None]"
"""For each message its sequence, its refusal, or None if neither is known."""


class FenceLane:
    """Sends the messages of one fence batch after batch, each with everything that was put
    meanwhile, since a replicated stream takes one message or batch at a time for each fence and
    refuses the others. ``send`` sends a batch of messages; ``ended`` is called when no message of
    the fence waits any more.
    """

    def __init__(
        self,
        send: Callable[[Sequence[Outgoing]], Awaitable[Outcomes]],
        ended: Callable[[], object],
        *,
        most: int,
    ) -> None:
        self._send = send
        self._ended = ended
        self._most = most
        self._waiting: list[tuple[Outgoing, asyncio.Future[int | BusRefused | None]]] = []
        self._task: asyncio.Task[None] | None = None

    async def put(self, messages: Sequence[Outgoing]) -> Outcomes:
        """For each given message its sequence in the stream, its refusal, or None if neither is
        known. Raises what ``send`` raises.
        """
        loop = asyncio.get_running_loop()
        put = [(message, loop.create_future()) for message in messages]
        self._waiting += put
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="fence lane")
        return list(await asyncio.gather(*(outcome for _, outcome in put)))

    async def _run(self) -> None:
        while self._waiting:
            part, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
            waiting = [outcome for _, outcome in part]
            try:
                outcomes = await self._send([message for message, _ in part])
            except Exception as error:
                for waiter in waiting:
                    if not waiter.done():
                        waiter.set_exception(error)
                continue
            for waiter, outcome in zip(waiting, outcomes, strict=True):
                if not waiter.done():
                    waiter.set_result(outcome)
        self._ended()


class ApiError(msgspec.Struct, frozen=True):
    """The error in an answer of the server."""

    code: int = 0
    err_code: int = 0
    description: str = ""


class Ack(msgspec.Struct, frozen=True):
    """The server's answer to a publication."""

    seq: int = 0
    duplicate: bool = False
    error: ApiError | None = None


_ack = msgspec.json.Decoder(Ack)
_NO_RESPONDERS: Final = refusal(NO_ANSWER, "no stream takes this subject")


class StoredBefore(int):
    """The sequence of a message that the stream had already, with the same message id. It stays
    inside of the bus: msgspec does not encode it."""


def plain_sequence(outcome: int | BusRefused) -> int | BusRefused:
    """The outcome, with a sequence that may be encoded."""
    return int(outcome) if isinstance(outcome, StoredBefore) else outcome


_OUTCOME_UNKNOWN: Final = frozenset({NO_ANSWER, IN_PROCESS})
"""Codes of Busy after which the server may have stored the message all the same: after the last
attempt the outcome is unknown.
"""


def is_unknown(outcome: int | BusRefused) -> bool:
    """Whether the server may have stored the message all the same."""
    return not isinstance(outcome, Busy) or outcome.code in _OUTCOME_UNKNOWN


def repeated_places(places: Sequence[int], outcomes: Sequence[int | BusRefused | None]) -> set[int]:
    """The places of the messages that the stream had already."""
    pairs = zip(places, outcomes, strict=True)
    return {place for place, outcome in pairs if isinstance(outcome, StoredBefore)}


class PendingAcks:
    """The acknowledgements for which one call waits. An outcome stays None if the connection broke
    before the answer, or if there was no answer before ``give_up_at`` (monotonic seconds).
    """

    __slots__ = ("done", "fenced", "give_up_at", "keys", "left", "messages", "outcomes")

    def __init__(self, messages: Sequence[Outgoing], *, fenced: bool | None = None) -> None:
        self.messages = messages
        self.fenced = fenced
        self.outcomes: list[int | BusRefused | None] = [None] * len(messages)
        self.left = len(messages)
        self.give_up_at = inf
        self.keys: list[bytes] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def answer(self, index: int, data: bytes, headers: bytes) -> None:
        if not data and status(headers) == "503":
            self.settle(index, _NO_RESPONDERS)
            return
        ack = _ack.decode(data)
        if ack.error is None:
            self.settle(index, StoredBefore(ack.seq) if ack.duplicate else ack.seq)
            return
        fenced = self.fenced
        if fenced is None:
            fenced = only_fences(self.messages[index : index + 1])
        error = ack.error
        code = error.err_code or error.code
        self.settle(index, refusal(code, error.description, status=error.code, fenced=fenced))

    def settle(self, index: int, outcome: int | BusRefused) -> None:
        self.outcomes[index] = outcome
        self.left -= 1
        if not self.left and not self.done.done():
            self.done.set_result(None)

    def lost(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


# Requests. ------------------------------------------------------------------------------

RESEND_SECONDS: Final = 0.5
"""How often an unanswered request is sent again."""
NOT_REPEATED: Final = ("STREAM.PURGE.", "STREAM.DELETE.", "STREAM.SNAPSHOT.", "STREAM.RESTORE.")
"""The beginnings of requests that are sent once: a copy that a server executes late could remove
messages that were published after the first copy, or would begin anew."""


RELOAD_SECONDS: Final = 2.0
"""For so long a request that nothing responds to is sent again. A server that reads its
configuration again, for example for a new user, has no responder for JetStream for some
milliseconds.
"""
PAUSE_SECONDS: Final = 0.02


async def ask_api(
    nc: Connection, what: str, payload: Mapping[str, Any] | None, timeout: float
) -> dict[str, Any]:
    """The answer to the request ``$JS.API.<what>``. Raises BusRefused with the server's code,
    BusUnavailable or AccessDenied."""
    subject = f"$JS.API.{what}"
    data = _json.encode(payload) if payload is not None else b""
    every = inf if what.startswith(NOT_REPEATED) else RESEND_SECONDS

    answer = msgspec.json.decode(
        await until_something_responds(
            lambda: ask(nc, subject, data, timeout, every=every),
            seconds=min(timeout, RELOAD_SECONDS),
        )
    )
    if error := answer.get("error"):
        status_code = error.get("code", 0)
        raise refusal(
            error.get("err_code", status_code), error.get("description", ""), status=status_code
        )
    return dict(answer)


async def until_something_responds(
    ask: Callable[[], Awaitable[T]], *, seconds: float | None = None
) -> T:
    """The answer to a request, which is sent again while nothing responds to it, for ``seconds``,
    by default `RELOAD_SECONDS`: it has reached nothing, so a copy is safe for every request. Raises
    what ``ask`` raises."""
    give_up_at = clock.monotonic() + (RELOAD_SECONDS if seconds is None else seconds)
    while True:
        try:
            return await ask()
        except NoResponders:
            if clock.monotonic() >= give_up_at:
                raise
        await asyncio.sleep(PAUSE_SECONDS)


@contextmanager
def request_errors(subject: str) -> Iterator[None]:
    """Turns the errors of the NATS client about a request on the subject into NoResponders,
    NoAnswer, AccessDenied, and BusUnavailable for a connection that was lost."""
    try:
        yield
    except PermissionDenied as error:
        raise AccessDenied(str(error)) from None
    except nats.errors.NoRespondersError:
        raise NoResponders(f"no responder on {subject}") from None
    except (nats.errors.TimeoutError, TimeoutError):
        raise NoAnswer(f"no answer on {subject}: timeout") from None
    except nats.errors.Error as error:
        raise BusUnavailable(f"no answer on {subject}: {error}") from None


async def ask(
    nc: Connection, subject: str, data: bytes, timeout: float, *, every: float = inf
) -> bytes:
    """The answer to a request, which is sent again ``every`` so many seconds. Raises what
    `request_errors` raises."""
    with request_errors(subject):
        return bytes((await nc.request_repeatedly(subject, data, timeout, every=every)).data)
