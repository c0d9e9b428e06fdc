"""The bus: pipelined publishing with an outcome for each message, atomic batches, requests.

`publish_all` sends all messages, then waits for all acknowledgements: 52,200 messages a second with
7 µs of this process's CPU each, nats-py's `publish_async` 27,400 with 23 µs. Never await one
acknowledgement before sending the next message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import inf
from typing import Any, Final

import nats.errors

from admittance.backoff import Backoff, pause_after
from admittance.runtime import chance, clock
from admittance.runtime.errors import (
    AccessDenied,
    BusRefused,
    BusUnavailable,
    Busy,
    Repeated,
    StaleRevision,
    TooBig,
)
from admittance.runtime.nats.connection import Connection, PermissionDenied
from admittance.runtime.nats.connection_options import NO_OPTIONS, ConnectionOptions
from admittance.runtime.nats.jetstream import BATCH_MAX as BATCH_MAX
from admittance.runtime.nats.jetstream import EXPECTED as EXPECTED
from admittance.runtime.nats.jetstream import FENCE as FENCE
from admittance.runtime.nats.jetstream import (
    FENCE_IN_FLIGHT,
    NO_BATCH,
    FenceLane,
    PendingAcks,
    ask,
    ask_api,
    check_batch,
    expects_revision,
    fence_groups,
    is_unknown,
    only_fences,
    plain_sequence,
    repeatable,
    repeated_places,
)
from admittance.runtime.nats.jetstream import MESSAGE_ID as MESSAGE_ID
from admittance.runtime.nats.jetstream import Outgoing as Outgoing
from admittance.runtime.nats.opening import Opening, open_connection
from admittance.runtime.nats.protocol import frame
from admittance.runtime.tasks import task_group
from admittance.runtime.telemetry.logger import LogThrottle, logger

WINDOW: Final = 1000
"""The most messages of one `publish_all` that are in flight at once. More messages in flight are
not faster, and the server's queue per stream holds 10,000 messages of all clients together.
"""
RESEND_SECONDS: Final = 1.0
"""Longest wait for an acknowledgement before a message is sent again. A message on its way to a
server that dies is never acknowledged; the next leader of the stream answers 5 to 8 s later.
"""
NOT_PERMITTED: Final = 403
"""The code of a refusal that the server reports to the connection instead of in an answer."""
BATCHES_IN_FLIGHT: Final = 16
"""The most atomic batches that one process has in flight at once. The server accepts 50 atomic
batches per stream from all clients together.
"""

log = logger()


class Bus:
    """One connection to the bus, made by `connect`. ``reconnected``: functions to call after each
    reconnect; ``login_refused``: functions to call when this login may not connect again;
    ``logs_denials``: False if the program ends with an error at the first missing right.
    """

    nc: Connection

    def __init__(self) -> None:
        self.reconnected: list[Callable[[], None]] = []
        self.login_refused: list[Callable[[AccessDenied], None]] = []
        self.heartbeat_seconds = 0.0
        self.refused: AccessDenied | None = None
        """Why the server refuses to let this login connect again; None while it is connected."""
        self.logs_denials = True
        self._up = asyncio.Event()
        self._closing = False
        self._inbox = ""
        self._next = 0
        self._waiting: dict[bytes, tuple[PendingAcks, int]] = {}
        self._throttles: dict[str, LogThrottle] = {}
        self._batches = asyncio.Semaphore(BATCHES_IN_FLIGHT)
        self._one_per_fence = False
        """Whether the server takes one message at a time for each fence, because its streams have
        replicas.
        """
        self._lanes: dict[tuple[str, str], FenceLane] = {}

    @classmethod
    async def connect(
        cls,
        url: str,
        *,
        name: str,
        access: ConnectionOptions = NO_OPTIONS,
        opening: Opening | None = None,
        heartbeat_seconds: float = 0.0,
    ) -> Bus:
        """Connects. After every later loss of the connection the bus reconnects, without limit.

        ``opening`` makes the connection instead of `open_connection`. ``heartbeat_seconds``: for
        the pull requests; 0: as the server needs it. Raises what ``opening`` raises.
        """
        bus = cls()
        bus.heartbeat_seconds = heartbeat_seconds
        bus.nc = await (opening or open_connection)(
            url,
            name=name,
            access=access,
            on_error=bus._on_error,
            on_lost=bus._on_disconnected,
            on_back=bus._on_reconnected,
        )
        bus.nc.on_denied.append(bus._on_denied)
        bus._inbox = f"{bus.nc.new_inbox()}."
        await bus.nc.listen(f"{bus._inbox}*", bus._on_ack)
        bus._up.set()
        return bus

    async def _on_error(self, error: Exception) -> None:
        if isinstance(error, AccessDenied):
            self.refused = error
            # A refusal on an open connection is not final: the login may have been renewed.
            for callback in () if self._up.is_set() else self.login_refused[:]:
                callback(error)
        if isinstance(error, OSError | nats.errors.UnexpectedEOF | nats.errors.NoServersError):
            return
        # Each attempt to reconnect may fail with the same error, which is logged once a minute. A
        # missing permission is logged once, and `admit doctor` shows the missing permission later.
        text, denied = repr(error), isinstance(error, PermissionDenied)
        if denied and not self.logs_denials:
            return
        throttle = LogThrottle(float("inf")) if denied else LogThrottle()
        if self._throttles.setdefault(text, throttle).due(clock.monotonic()):
            log.warning("permission_denied" if denied else "bus_error", error=str(error) or text)

    async def _on_disconnected(self) -> None:
        was_up = self._up.is_set()
        self._up.clear()
        waiting, self._waiting = self._waiting, {}
        for acks, _ in waiting.values():
            acks.lost()
        # If the first connection fails, `connect` raises the error.
        if was_up and not self._closing:
            log.warning("bus_disconnected")

    async def _on_reconnected(self) -> None:
        self._up.set()
        self.refused = None
        log.info("bus_reconnected")
        for callback in self.reconnected:
            callback()

    def _on_ack(self, subject: bytes, _reply: bytes, data: bytes, headers: bytes) -> None:
        waiting = self._waiting.pop(subject[subject.rfind(b".") + 1 :], None)
        if waiting is not None:
            acks, index = waiting
            acks.answer(index, data, headers)

    @property
    def is_up(self) -> bool:
        """Whether the connection to the bus is up at the moment."""
        return self._up.is_set()

    def _on_denied(self, subject: str) -> None:
        for key, (acks, index) in list(self._waiting.items()):
            spelled = acks.messages[index].subject
            if spelled.lower() == subject:
                del self._waiting[key]
                acks.settle(index, BusRefused(NOT_PERMITTED, self.nc.denial_of(spelled)))

    async def connected(self, timeout: float = 10.0) -> None:
        """Waits for the connection to the bus. Raises BusUnavailable if there is no connection
        within ``timeout`` seconds, and AccessDenied if the server refuses this login meanwhile.
        """
        if not self._up.is_set():
            try:
                async with asyncio.timeout(timeout):
                    await self._up.wait()
            except TimeoutError:
                raise self.refused or BusUnavailable("no connection to the bus") from None

    async def publish_all(
        self,
        messages: Sequence[Outgoing],
        *,
        timeout: float = 10.0,
        repeat_puts: bool = False,
        stored_before: set[int] | None = None,
    ) -> list[int | BusRefused]:
        """Publishes the messages in order, pipelined. Returns for each message its sequence in the
        stream, or its refusal.

        A message with a message id that is in the stream already gets the sequence of that first
        message; ``stored_before`` gets its place, unless this call may have stored it. A message
        refused as Busy, or because no stream listens yet, is sent again until ``timeout``, so it
        may come behind later messages of the same call. When the connection breaks, messages with a
        message id are sent again, except those that expect a revision: a repeated put would be
        refused as stale. Raises BusUnavailable if a message that cannot be sent again was in
        flight: its outcome is unknown. When all messages of the call may be repeated, messages
        without an answer are sent again every `RESEND_SECONDS`.

        ``repeat_puts``: messages that expect a revision may be repeated too. With ``repeat_puts`` a
        StaleRevision can mean that the first copy of a put was stored, so the caller must read the
        key.
        """
        outcomes: list[int | BusRefused] = [0] * len(messages)
        todo = list(range(len(messages)))
        deadline, refusals = clock.monotonic() + timeout, 0
        while todo:
            again: list[int] = []
            for start in range(0, len(todo), WINDOW):
                part = todo[start : start + WINDOW]
                await self.connected(max(0.0, deadline - clock.monotonic()))
                answers = await self._send_part([messages[i] for i in part], deadline, repeat_puts)
                if stored_before is not None and not refusals:
                    stored_before |= repeated_places(part, answers)
                for i, answer in zip(part, answers, strict=True):
                    if answer is not None:
                        outcomes[i] = answer if type(answer) is int else plain_sequence(answer)
                    elif not (repeat_puts or repeatable(messages[i])):
                        raise BusUnavailable(
                            "the connection broke; it is unknown whether "
                            f"the message on {messages[i].subject} was stored"
                        )
                    if answer is None or isinstance(answer, Busy):
                        again.append(i)
            todo, refusals = again, refusals + 1
            if todo:
                pause = pause_after(refusals, 0.002, 0.2)
                if clock.monotonic() + pause > deadline:
                    unknown = [i for i in todo if is_unknown(outcomes[i])]
                    if not unknown:
                        break
                    raise BusUnavailable(
                        f"no stream answered in time for {messages[unknown[0]].subject}"
                    )
                await asyncio.sleep(pause)
        return outcomes

    async def publish(self, message: Outgoing, *, timeout: float = 10.0) -> int:
        """Publishes one message. Returns the message's sequence in the stream. Raises BusRefused or
        BusUnavailable if the message is not stored.
        """
        outcome = (await self.publish_all([message], timeout=timeout))[0]
        if isinstance(outcome, BusRefused):
            raise outcome
        return outcome

    async def publish_each(
        self, messages: Sequence[Outgoing]
    ) -> Sequence[int | BusRefused | BusUnavailable]:
        """Publishes as `publish_all` does, but returns BusUnavailable for every message instead of
        raising it.
        """
        try:
            return await self.publish_all(messages)
        except BusUnavailable as error:
            return [error] * len(messages)

    async def atomic(self, messages: Sequence[Outgoing], *, timeout: float = 10.0) -> int:
        """Publishes all messages or none, to one stream. Returns the sequence of the last message.

        Every message may expect its own revision; a StaleRevision does not say which one was wrong.
        A batch that expects a revision cannot be stored twice, so it is sent again every
        `RESEND_SECONDS` until an answer comes. A batch may have at most `BATCH_MAX` messages.
        Raises BusRefused if the messages are not stored, and BusUnavailable if that is unknown.
        """
        check_batch(messages)
        if len(messages) == 1:
            return await self.publish(messages[0], timeout=timeout)
        deadline = clock.monotonic() + timeout
        backoff, is_unsure = Backoff(0.005, 0.2), False
        resend = any(map(expects_revision, messages))
        unsure = BusUnavailable(
            f"it is unknown whether the batch of {messages[0].subject} was stored"
        )
        async with self._batches:
            while True:
                await self.connected(max(0.0, deadline - clock.monotonic()))
                answer = await self._send_batch(messages, deadline, resend=resend)
                if isinstance(answer, int):
                    return int(answer)
                if answer is None or (isinstance(answer, Busy) and is_unknown(answer)):
                    is_unsure = True
                elif not isinstance(answer, Busy):
                    raise unsure if is_unsure and isinstance(answer, StaleRevision) else answer
                pause = backoff.next()
                is_over = clock.monotonic() + pause > deadline
                if is_over or (answer is None and not resend):
                    raise unsure if is_unsure or answer is None else answer
                await asyncio.sleep(pause)

    async def _send_part(
        self, messages: Sequence[Outgoing], deadline: float, repeat_puts: bool
    ) -> list[int | BusRefused | None]:
        groups = fence_groups(messages) if self._one_per_fence else {}
        if not groups:
            answers = await self._send(messages, deadline, repeat_puts)
            for answer in answers:
                if isinstance(answer, Busy) and answer.code == FENCE_IN_FLIGHT:
                    self._one_per_fence = True
            return answers
        answers = [None] * len(messages)
        grouped = {place for places in groups.values() for place in places}
        rest = [place for place in range(len(messages)) if place not in grouped]

        async def send(places: Sequence[int], fence: tuple[str, str] | None) -> None:
            part = [messages[place] for place in places]
            outcomes = (
                await self._send(part, deadline, repeat_puts)
                if fence is None
                else await self._lane(fence).put(part)
            )
            for place, answer in zip(places, outcomes, strict=True):
                answers[place] = answer

        async with task_group() as tasks:
            for fence, places in groups.items():
                tasks.create_task(send(places, fence))
            if rest:
                tasks.create_task(send(rest, None))
        return answers

    def _lane(self, fence: tuple[str, str]) -> FenceLane:
        lane = self._lanes.get(fence)
        if lane is None:
            lane = FenceLane(self._send_fenced, lambda: self._lanes.pop(fence), most=BATCH_MAX)
            self._lanes[fence] = lane
        return lane

    async def _send_fenced(self, messages: Sequence[Outgoing]) -> list[int | BusRefused | None]:
        deadline = _in_time()
        if len(messages) == 1:
            return await self._send(messages, deadline, False)
        async with self._batches:
            answer = await self._send_batch(messages, deadline, resend=True)
        if isinstance(answer, Busy) and answer.code in NO_BATCH:
            # A check, provider or runner could hold all batches of the stream open.
            return [(await self._send([message], _in_time(), False))[0] for message in messages]
        if isinstance(answer, TooBig | Repeated):
            # One of the messages is too long, or an earlier copy of it was stored.
            return await self._send(messages, deadline, False)
        if isinstance(answer, int):
            return list(range(answer - len(messages) + 1, answer + 1))
        return [answer] * len(messages)

    async def _send(
        self, messages: Sequence[Outgoing], deadline: float, repeat_puts: bool
    ) -> list[int | BusRefused | None]:
        acks = PendingAcks(messages)
        again = clock.monotonic() + RESEND_SECONDS
        if again < deadline and (repeat_puts or all(map(repeatable, messages))):
            acks.give_up_at = again
        blobs: list[bytes] = []
        for index, message in enumerate(messages):
            blob = self._frame(acks, index, message, message.headers)
            if blob:
                blobs.append(blob)
        return await self._send_and_wait(acks, blobs, deadline)

    async def _send_batch(
        self, messages: Sequence[Outgoing], deadline: float, *, resend: bool = False
    ) -> int | BusRefused | None:
        """With ``resend``, the method returns None if no answer has come after `RESEND_SECONDS`."""
        batch = chance.token_hex(12)
        acks = PendingAcks(messages[-1:], fenced=only_fences(messages))
        again = clock.monotonic() + RESEND_SECONDS
        if resend and again < deadline:
            acks.give_up_at = again
        blobs: list[bytes] = []
        limit = self.nc.max_payload
        for number, message in enumerate(messages, 1):
            headers = dict(message.headers or {})
            headers["Nats-Batch-Id"] = batch
            headers["Nats-Batch-Sequence"] = str(number)
            if number < len(messages):
                # The messages have no reply subject: the answer to the commit reports their errors.
                blob = frame(message.subject, "", message.data, headers)
                if len(blob) > limit:
                    return TooBig(10054, f"{message.subject} is {len(blob)} bytes long")
            else:
                headers["Nats-Batch-Commit"] = "1"
                blob = self._frame(acks, 0, message, headers)
                if not blob:
                    break
            blobs.append(blob)
        return (await self._send_and_wait(acks, blobs if acks.left else [], deadline))[0]

    def _frame(
        self,
        acks: PendingAcks,
        index: int,
        message: Outgoing,
        headers: Mapping[str, str] | None,
    ) -> bytes:
        self._next += 1
        number = str(self._next)
        blob = frame(message.subject, self._inbox + number, message.data, headers)
        if len(blob) > self.nc.max_payload:
            # A message longer than the limit would make the server close the connection for all
            # callers.
            acks.settle(index, TooBig(10054, f"{message.subject} is {len(blob)} bytes long"))
            return b""
        key = number.encode()
        acks.keys.append(key)
        self._waiting[key] = (acks, index)
        return blob

    async def _send_and_wait(
        self, acks: PendingAcks, blobs: list[bytes], deadline: float
    ) -> list[int | BusRefused | None]:
        try:
            if blobs:
                await self.nc.send(b"".join(blobs))
            # `wait_for` of Python 3.11 drops a cancellation that comes with the last answer.
            until = min(deadline, acks.give_up_at)
            async with asyncio.timeout(max(0.0, until - clock.monotonic())):
                await acks.done
        except TimeoutError:
            if not acks.left or acks.give_up_at < deadline:
                return acks.outcomes
            late = acks.messages[acks.outcomes.index(None)].subject
            raise BusUnavailable(f"the bus did not acknowledge {late} in time") from None
        except nats.errors.Error as error:
            raise BusUnavailable(f"the bus does not take messages: {error}") from None
        finally:
            if acks.left:
                for key in acks.keys:
                    self._waiting.pop(key, None)
        return acks.outcomes

    async def publish_unacknowledged(self, *messages: tuple[str, bytes]) -> None:
        """Publishes messages (subject and bytes) without acknowledgement, in one write. The
        messages are lost if the connection breaks.
        """
        blobs = [frame(subject, "", data, None) for subject, data in messages]
        with suppress(nats.errors.Error, OSError):
            await self.nc.send(b"".join(blobs))

    async def request(
        self, subject: str, data: bytes, timeout: float = 5.0, *, every: float = inf
    ) -> bytes:
        """Sends a request and returns the answer. Raises BusUnavailable if nothing responds or no
        answer comes in time. ``every``: seconds after which the request is sent again, since for
        some seconds a cluster delivers requests to programs that are connected to a lost server.
        """
        return await ask(self.nc, subject, data, timeout, every=every)

    async def api(
        self, what: str, payload: Mapping[str, Any] | None = None, *, timeout: float = 5.0
    ) -> dict[str, Any]:
        """Calls ``$JS.API.<what>`` and returns the answer. Raises BusRefused with the server's
        code, or BusUnavailable. nats-py's own calls lack some settings and do not wait for a
        server."""
        return await ask_api(self.nc, what, payload, timeout)

    async def answers(self) -> bool:
        """Whether the server answers a ping, as it does while a stream waits for its disk."""
        try:
            await self.nc.flush()
        except (nats.errors.Error, TimeoutError, OSError):
            return False
        return True

    async def close(self) -> None:
        """Closes the connection to the bus. Calls that still wait for answers raise BusUnavailable
        then.
        """
        self._closing = True
        # uvloop raises RuntimeError when nats-py still writes to the closed connection.
        with suppress(nats.errors.Error, OSError, RuntimeError):
            await self.nc.close()


def _in_time() -> float:
    """When a message of a fence counts as not answered."""
    return clock.monotonic() + 2 * RESEND_SECONDS
