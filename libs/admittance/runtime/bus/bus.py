"""The bus: pipelined publishing with an outcome per message, atomic batches, requests.

Never await one acknowledgement before sending the next: `publish_all` sends everything, then
gathers. Measured (two busy cores, 600 bytes, message id and trace header, best of three): nats-py's
`publish_async` 27,400 a second at 23 µs of our CPU a message, this 52,200 at 7 µs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

import msgspec
import nats.errors
from nats.js import JetStreamContext

from admittance.runtime import chance, clock
from admittance.runtime.bus.connection import Connection, PermissionDenied, frame, status
from admittance.runtime.bus.opening import Opening, open_connection
from admittance.runtime.errors import (
    IN_PROCESS,
    NO_ANSWER,
    AccessDenied,
    Busy,
    Refused,
    TooBig,
    Unavailable,
    refusal,
)
from admittance.runtime.telemetry.logger import LogThrottle, logger

EXPECTED: Final = "Nats-Expected-Last-Subject-Sequence"
FENCE: Final = "Nats-Expected-Last-Subject-Sequence-Subject"
MESSAGE_ID: Final = "Nats-Msg-Id"

BATCH_MAX: Final = 1000
"""Messages in one atomic batch; the server's limit."""
WINDOW: Final = 1000
"""Messages of one call in flight at once. More is no faster, and the server's queue per stream
takes 10,000 from all clients together."""
NOT_PERMITTED: Final = 403
"""The code of a refusal that the server reports to the connection instead of in an answer."""
HEARTBEAT_SECONDS: Final = 0.3
"""How often the server says that an open request is still open. After 2.5 times this without a
message, the reader looks after it."""
BATCHES_IN_FLIGHT: Final = 16
"""Atomic batches of one process at once; the server takes 50 per stream from all clients
together, and more than 8 were slower when measured."""

log = logger()


class Outgoing(NamedTuple):
    """A message to publish to a stream."""

    subject: str
    data: bytes
    headers: Mapping[str, str] | None = None


class ApiError(msgspec.Struct, frozen=True):
    code: int = 0
    err_code: int = 0
    description: str = ""


class Ack(msgspec.Struct, frozen=True):
    """The server's answer to a publication."""

    seq: int = 0
    duplicate: bool = False
    error: ApiError | None = None


_ack = msgspec.json.Decoder(Ack)
_json = msgspec.json.Encoder()
_NO_RESPONDERS: Final = refusal(NO_ANSWER, "no stream takes this subject")
_OUTCOME_UNKNOWN: Final = frozenset({NO_ANSWER, IN_PROCESS})
"""Codes of "not now" that do not say that nothing happened, or ever will: after the last try what
became of the message is unknown."""


class Bus:
    """One connection. Made by `connect`; `close` it at the end.

    ``reconnected`` are called (synchronously) whenever the connection is back.
    """

    nc: Connection
    js: JetStreamContext

    def __init__(self) -> None:
        self.reconnected: list[Callable[[], None]] = []
        self.heartbeat_seconds = HEARTBEAT_SECONDS
        self._up = asyncio.Event()
        self._closing = False
        self._inbox = ""
        self._next = 0
        self._waiting: dict[bytes, tuple[_Gathering, int]] = {}
        self._told: dict[str, LogThrottle] = {}
        self._batches = asyncio.Semaphore(BATCHES_IN_FLIGHT)

    @classmethod
    async def connect(
        cls,
        url: str,
        *,
        name: str,
        creds: str | None = None,
        opening: Opening | None = None,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
    ) -> Bus:
        """Connects; afterwards a lost connection is sought for ever, every 0.25 s at the latest.

        ``opening`` makes the connection, in place of `open_connection`.

        Raises NoServer when no server answers at url, AccessDenied when it refuses credentials,
        certificate or permissions, Unavailable when JetStream has no leader there, and SetupError
        for what a person must change here: the address, the credentials file, a server without
        JetStream or older than 2.12.
        """
        bus = cls()
        bus.heartbeat_seconds = heartbeat_seconds
        bus.nc = await (opening or open_connection)(
            url,
            name=name,
            creds=creds,
            on_error=bus._on_error,
            on_lost=bus._on_disconnected,
            on_back=bus._on_reconnected,
        )
        bus.nc.on_denied.append(bus._on_denied)
        bus.js = bus.nc.jetstream()
        bus._inbox = f"{bus.nc.new_inbox()}."
        await bus.nc.listen(f"{bus._inbox}*", bus._on_ack)
        bus._up.set()
        return bus

    async def _on_error(self, error: Exception) -> None:
        if isinstance(error, OSError | nats.errors.UnexpectedEOF | nats.errors.NoServersError):
            return
        # Each attempt to reconnect may end with it: told once, and again when it lasts.
        text = repr(error)
        if self._told.setdefault(text, LogThrottle()).due(clock.monotonic()):
            event = "permission_denied" if isinstance(error, PermissionDenied) else "bus_error"
            log.warning(event, error=str(error) or text)

    async def _on_disconnected(self) -> None:
        was_up = self._up.is_set()
        self._up.clear()
        waiting, self._waiting = self._waiting, {}
        for gathering, _ in waiting.values():
            gathering.lost()
        # A client that was never connected gets the exception of `connect`.
        if was_up and not self._closing:
            log.warning("bus_disconnected")

    async def _on_reconnected(self) -> None:
        self._up.set()
        log.info("bus_reconnected")
        for told in self.reconnected:
            told()

    def _on_ack(self, subject: bytes, _reply: bytes, data: bytes, headers: bytes) -> None:
        found = self._waiting.pop(subject[subject.rfind(b".") + 1 :], None)
        if found is not None:
            gathering, index = found
            gathering.answer(index, data, headers)

    @property
    def is_up(self) -> bool:
        """Whether there is a connection at the moment."""
        return self._up.is_set()

    def _on_denied(self, subject: str) -> None:
        for key, (gathering, index) in list(self._waiting.items()):
            if gathering.messages[index].subject.lower() == subject:
                del self._waiting[key]
                gathering.settle(index, Refused(NOT_PERMITTED, self.nc.denied))

    async def connected(self, timeout: float = 10.0) -> None:
        """Waits for the connection. Raises Unavailable."""
        if not self._up.is_set():
            try:
                async with asyncio.timeout(timeout):
                    await self._up.wait()
            except TimeoutError:
                raise Unavailable("no connection to the bus") from None

    async def publish_all(
        self, messages: Sequence[Outgoing], *, timeout: float = 10.0
    ) -> list[int | Refused]:
        """Publishes in order, pipelined; the sequence of each, or why it was refused.

        A repeated message id answers the sequence of the first. Those told "busy", or that no
        stream listens yet, are sent again until timeout, so they may land behind later ones of the
        same call. When the connection breaks, messages with a message id are sent again, unless
        they expect a revision of their own: a repeated one would be stale by itself. If any others
        are on their way then, Unavailable is raised, and what became of them is unknown.
        """
        outcomes: list[int | Refused] = [0] * len(messages)
        todo = list(range(len(messages)))
        deadline = clock.monotonic() + timeout
        pause = 0.002
        while todo:
            again: list[int] = []
            for start in range(0, len(todo), WINDOW):
                part = todo[start : start + WINDOW]
                await self.connected(max(0.0, deadline - clock.monotonic()))
                answers = await self._send([messages[i] for i in part], deadline)
                for i, answer in zip(part, answers, strict=True):
                    if answer is None:
                        if not _repeatable(messages[i]):
                            raise Unavailable(f"the connection broke; unknown: {messages[i][0]}")
                        again.append(i)
                        continue
                    outcomes[i] = answer
                    if isinstance(answer, Busy):
                        again.append(i)
            todo = again
            if todo:
                if clock.monotonic() + pause > deadline:
                    unknown = [i for i in todo if _is_unknown(outcomes[i])]
                    if not unknown:
                        break
                    raise Unavailable(f"no stream answered in time for {messages[unknown[0]][0]}")
                await asyncio.sleep(pause)
                pause = min(pause * 2, 0.2)
        return outcomes

    async def publish(self, message: Outgoing, *, timeout: float = 10.0) -> int:
        """Publishes one message; its sequence. Raises Refused or Unavailable."""
        outcome = (await self.publish_all([message], timeout=timeout))[0]
        if isinstance(outcome, Refused):
            raise outcome
        return outcome

    async def atomic(self, messages: Sequence[Outgoing], *, timeout: float = 10.0) -> int:
        """Publishes all or none, to one stream; the sequence of the last.

        Every message may expect its own revision; on StaleRevision the server does not say which
        one was wrong. At most `BATCH_MAX` messages. Raises Refused or Unavailable.
        """
        if not messages:
            raise ValueError("an empty batch")
        if len(messages) == 1:
            return await self.publish(messages[0], timeout=timeout)
        expecting = [m.subject for m in messages if m.headers and EXPECTED in m.headers]
        if len(expecting) != len(set(expecting)) and not _only_fences(messages):
            # The server would call it busy (10164), for ever.
            raise ValueError("a batch expects two revisions of one key")
        if len(messages) > BATCH_MAX:
            raise TooBig(0, f"{len(messages)} messages in one batch, {BATCH_MAX} are allowed")
        deadline = clock.monotonic() + timeout
        pause = 0.005
        async with self._batches:
            while True:
                await self.connected(max(0.0, deadline - clock.monotonic()))
                answer = await self._send_batch(messages, deadline)
                if answer is None:
                    raise Unavailable("the connection broke while a batch was committed")
                if isinstance(answer, int):
                    return answer
                if not isinstance(answer, Busy):
                    raise answer
                if clock.monotonic() + pause > deadline:
                    if _is_unknown(answer):
                        raise Unavailable(f"no stream answered in time for {messages[0].subject}")
                    raise answer
                await asyncio.sleep(pause)
                pause = min(pause * 2, 0.2)

    async def _send(
        self, messages: Sequence[Outgoing], deadline: float
    ) -> list[int | Refused | None]:
        gathering = _Gathering(messages)
        blobs: list[bytes] = []
        for index, message in enumerate(messages):
            blob = self._frame(gathering, index, message, message.headers)
            if blob:
                blobs.append(blob)
        return await self._gather(gathering, blobs, deadline)

    async def _send_batch(
        self, messages: Sequence[Outgoing], deadline: float
    ) -> int | Refused | None:
        batch = chance.token_hex(12)
        gathering = _Gathering(messages[-1:], fenced=_only_fences(messages))
        blobs: list[bytes] = []
        limit = self.nc.max_payload
        for number, message in enumerate(messages, 1):
            headers = dict(message.headers or {})
            headers["Nats-Batch-Id"] = batch
            headers["Nats-Batch-Sequence"] = str(number)
            if number < len(messages):
                # Without a reply subject: what is wrong with it is said at the commit.
                blob = frame(message.subject, "", message.data, headers)
                if len(blob) > limit:
                    return TooBig(10054, f"{message.subject} is {len(blob)} bytes long")
            else:
                headers["Nats-Batch-Commit"] = "1"
                blob = self._frame(gathering, 0, message, headers)
                if not blob:
                    break
            blobs.append(blob)
        return (await self._gather(gathering, blobs if gathering.left else [], deadline))[0]

    def _frame(
        self,
        gathering: _Gathering,
        index: int,
        message: Outgoing,
        headers: Mapping[str, str] | None,
    ) -> bytes:
        self._next += 1
        number = str(self._next)
        blob = frame(message.subject, self._inbox + number, message.data, headers)
        if len(blob) > self.nc.max_payload:
            # The server would close the connection, which others share.
            gathering.settle(index, TooBig(10054, f"{message.subject} is {len(blob)} bytes long"))
            return b""
        key = number.encode()
        gathering.keys.append(key)
        self._waiting[key] = (gathering, index)
        return blob

    async def _gather(
        self, gathering: _Gathering, blobs: list[bytes], deadline: float
    ) -> list[int | Refused | None]:
        try:
            if blobs:
                await self.nc.send(b"".join(blobs))
            # `wait_for` of Python 3.11 drops a cancellation that comes with the last answer.
            async with asyncio.timeout(max(0.0, deadline - clock.monotonic())):
                await gathering.done
        except TimeoutError:
            raise Unavailable("the bus did not acknowledge in time") from None
        except nats.errors.Error as error:
            raise Unavailable(str(error)) from None
        finally:
            if gathering.left:
                for key in gathering.keys:
                    self._waiting.pop(key, None)
        return gathering.outcomes

    async def tell(self, *messages: tuple[str, bytes]) -> None:
        """Publishes messages (subject and bytes) without acknowledgement, in one write. Messages on
        their way are lost if the connection breaks."""
        blobs = [frame(subject, "", data, None) for subject, data in messages]
        with suppress(nats.errors.Error, OSError):
            await self.nc.send(b"".join(blobs))

    async def request(self, subject: str, data: bytes, timeout: float = 5.0) -> bytes:
        """Sends a request. Raises Unavailable without a responder or without an answer in time."""
        try:
            message = await self.nc.request(subject, data, timeout=timeout)
        except nats.errors.NoRespondersError:
            raise Unavailable(f"no responder on {subject}") from None
        except PermissionDenied as error:
            raise AccessDenied(str(error)) from None
        except (nats.errors.Error, TimeoutError) as error:
            raise Unavailable(f"no answer on {subject}: {error or 'timeout'}") from None
        answer: bytes = message.data
        return answer

    async def api(
        self, what: str, payload: Mapping[str, Any] | None = None, *, timeout: float = 5.0
    ) -> dict[str, Any]:
        """The JetStream API, ``$JS.API.<what>``. Raises Refused with the server's code, or
        Unavailable. nats-py's own calls know neither all settings nor how to wait for a server."""
        data = _json.encode(payload) if payload is not None else b""
        answer = msgspec.json.decode(await self.request(f"$JS.API.{what}", data, timeout))
        error = answer.get("error")
        if error:
            status = error.get("code", 0)
            code = error.get("err_code", status)
            raise refusal(code, error.get("description", ""), status=status)
        return dict(answer)

    async def close(self) -> None:
        """Closes the connection. Calls that still wait for an answer raise Unavailable."""
        self._closing = True
        # RuntimeError: uvloop raises it when nats-py still writes to the closed connection.
        with suppress(nats.errors.Error, OSError, RuntimeError):
            await self.nc.close()


class _Gathering:
    """Answers that one call waits for; None: the connection broke before the answer."""

    __slots__ = ("done", "fenced", "keys", "left", "messages", "outcomes")

    def __init__(self, messages: Sequence[Outgoing], *, fenced: bool | None = None) -> None:
        self.messages = messages
        self.fenced = fenced
        self.outcomes: list[int | Refused | None] = [None] * len(messages)
        self.left = len(messages)
        self.keys: list[bytes] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def answer(self, index: int, data: bytes, headers: bytes) -> None:
        if not data and status(headers) == "503":
            self.settle(index, _NO_RESPONDERS)
            return
        ack = _ack.decode(data)
        if ack.error is None:
            self.settle(index, ack.seq)
            return
        fenced = self.fenced
        if fenced is None:
            fenced = _only_fences(self.messages[index : index + 1])
        error = ack.error
        code = error.err_code or error.code
        self.settle(index, refusal(code, error.description, status=error.code, fenced=fenced))

    def settle(self, index: int, outcome: int | Refused) -> None:
        self.outcomes[index] = outcome
        self.left -= 1
        if not self.left and not self.done.done():
            self.done.set_result(None)

    def lost(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


def _is_unknown(outcome: int | Refused) -> bool:
    return not isinstance(outcome, Busy) or outcome.code in _OUTCOME_UNKNOWN


def _repeatable(message: Outgoing) -> bool:
    # The server looks at expectations before it looks at message ids (measured on 2.15.1): a put
    # that is repeated with its id is told that it is stale, by itself. A fence does not move by it.
    headers = message.headers
    return (
        headers is not None
        and MESSAGE_ID in headers
        and (EXPECTED not in headers or FENCE in headers)
    )


def _only_fences(messages: Sequence[Outgoing]) -> bool:
    """Whether a wrong sequence can only mean a fence, not a revision."""
    expecting = [m.headers for m in messages if m.headers and EXPECTED in m.headers]
    return bool(expecting) and all(FENCE in headers for headers in expecting)
