"""Connections between processes and the server: nats-py's client above a simulated wire.

The client of `admittance.runtime` runs as it ships, with its subscriptions, requests, reconnecting
and what it does about a lost connection. Only sockets and its three tasks that read, flush and ping
are replaced: what it writes goes on a `Wire`, which delays, cuts and loses it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, Final, cast

import nats.errors
from nats.aio.client import PING_PROTO, Client, Srv

from admittance.runtime.errors import NoServer
from admittance.runtime.nats.connection import Connection, Subscription
from admittance.runtime.nats.connection_options import ConnectionOptions
from simulation.nats import core
from simulation.nats.core import Server, commands
from simulation.virtual_time.loop import Process, VirtualLoop

TOGETHER_SECONDS: Final = 0.0002
"""What is sent within this time arrives together."""
STALE_SECONDS: Final = (9.0, 12.0)
"""A client without answers to its pings takes its connection for lost after this time."""
CONNECT_SECONDS: Final = 2.0
RECONNECT_SECONDS: Final = 0.5

Call = tuple[Callable[..., None], tuple[Any, ...]]


Delays = Callable[[Random], float]


def calm(_: Random) -> float:
    """Half a millisecond, always."""
    return 0.0005


def rough(rng: Random) -> float:
    """Some milliseconds, and now and then more than a second."""
    delay = 0.0005 + rng.random() * 0.004
    if rng.random() < 0.03:
        delay += rng.random() * 1.5
    return delay


class Way:
    """One direction of a wire: first in, first out."""

    def __init__(self, wire: Wire, process: Process | None) -> None:
        self.silent_until = 0.0
        self.waiting: deque[tuple[float, float, list[Call]]] = deque()
        """The messages under way: the time of sending, the time of arrival, and the calls that
        deliver them."""
        self._wire = wire
        self._process = process
        self._last = 0.0

    def send(self, call: Callable[..., None], *args: Any) -> None:
        """Makes the other end run the call after the delay of the wire; calls stay in order."""
        loop, waiting = self._wire.loop, self.waiting
        if waiting and waiting[-1][0] >= loop.now - TOGETHER_SECONDS:
            waiting[-1][2].append((call, args))
            return
        now = loop.now
        last = now + self._wire.delay()
        if last < self._last:
            last = self._last
        self._last = last
        waiting.append((now, last, [(call, args)]))
        if last - now > STALE_SECONDS[0]:
            self._wire.look_whether_stale(last - now)
        loop.at(last, self._arrive)

    def clear(self) -> None:
        """Loses what is on its way."""
        self.waiting.clear()
        self._last = 0.0

    def _arrive(self) -> None:
        loop = self._wire.loop
        if loop.now < self.silent_until:
            loop.at(self.silent_until, self._arrive)
        elif self.waiting and self.waiting[0][1] <= loop.now:
            _, _, calls = self.waiting.popleft()
            if self._process is None:
                _call_all(calls)
            else:
                loop.enter(self._process, _call_all, calls)


class Wire:
    """One connection between a client and the server, until either end closes it.

    ``delays``: draws the seconds that something takes to the other end. ``slow``: a factor on them.
    """

    def __init__(
        self,
        loop: VirtualLoop,
        server: Server,
        process: Process | None,
        rng: Random,
        delays: Delays,
    ) -> None:
        self.loop = loop
        self.slow = 1.0
        self.open = False
        self.out = Way(self, None)
        self.back = Way(self, process)
        self._server = server
        self._rng = rng
        self._delays = delays
        self._process = process
        self._connection: SimulatedConnection
        self._client: core.Client | None = None

    def join(self, connection: SimulatedConnection) -> None:
        """The connection of this wire."""
        self._connection = connection

    def delay(self) -> float:
        """The seconds until the next message arrives at the other end."""
        return self._delays(self._rng) * self.slow

    # The client's end. --------------------------------------------------------------------

    def silent_seconds(self) -> float:
        """Seconds for which nothing passes."""
        return max(self.out.silent_until, self.back.silent_until) - self.loop.now

    def connect(self) -> None:
        """Makes the connection. Raises ConnectionRefusedError when the server is down or away."""
        if not self._server.up or self.silent_seconds() > 0.0:
            raise ConnectionRefusedError("the simulated server does not answer")
        self.close()
        self.open = True
        self._client = self._server.accept(self, self._on_server_closed)

    def write(self, blob: bytes) -> None:
        """Sends commands of the protocol."""
        if self.open:
            self.out.send(self._receive, self._client, blob)

    def close(self) -> None:
        """Ends the connection; what is on its way is lost."""
        self.open = False
        self.out.clear()
        self.back.clear()
        self._end_client()

    def end(self) -> None:
        """Ends the connection behind what is on its way to the server."""
        if self.open:
            self.open = False
            self.out.send(self._end_client)

    def die(self) -> None:
        """The process was killed: a part of what it wrote arrives, cut between two commands."""
        waiting, self.out.waiting = list(self.out.waiting), deque()
        written = [
            (args[0], command)
            for _, _, calls in waiting
            for _, args in calls
            if args
            for command in _pieces(args[1])
        ]
        arrives = self._rng.randrange(len(written) + 1) if self._rng.random() < 0.5 else None
        for client, command in written[:arrives]:
            self.out.send(self._receive, client, command)
        self.open = False
        self.back.waiting.clear()
        self.out.send(self._end_client)

    def _receive(self, client: core.Client, blob: bytes) -> None:
        if client is self._client:
            client.receive(blob)

    def _end_client(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    # The server's end. --------------------------------------------------------------------

    def on_message(self, sid: int, subject: str, reply: str, data: bytes, headers: bytes) -> None:
        words = (subject.encode(), reply.encode(), data, headers)
        self.back.send(self._connection.on_message, sid, *words)

    def on_pong(self) -> None:
        self.back.send(self._connection.on_pong)

    def _on_server_closed(self) -> None:
        self._client = None
        self.lose()

    # Faults. ------------------------------------------------------------------------------

    def lose(self) -> None:
        """Breaks the connection. Both ends notice it, and the client connects again."""
        if self.open:
            self.close()
            self.loop.post(self._process, self._connection.on_broken)

    def silence(self, seconds: float, *, out: bool = True, back: bool = True) -> None:
        """Lets nothing pass in these directions for a time; messages arrive afterwards, or never if
        the client takes the connection for lost."""
        until = self.loop.now + seconds
        if out:
            self.out.silent_until = until
        if back:
            self.back.silent_until = until
        self.look_whether_stale(seconds)

    def stall(self, seconds: float) -> None:
        """The client reads nothing for so long; then the server closes the connection, and what
        waited for the client is lost: a slow consumer."""
        self.silence(seconds, out=False)
        self.loop.after(seconds, self._lose_stale, self._client)

    def look_whether_stale(self, seconds: float) -> None:
        """Has the client take the connection for lost if nothing passes for so long."""
        if seconds > STALE_SECONDS[0]:
            stale = self._rng.uniform(*STALE_SECONDS)
            if seconds > stale:
                self.loop.after(stale, self._lose_stale, self._client)

    def _lose_stale(self, client: core.Client | None) -> None:
        if client is self._client:
            self.lose()


class SimulatedConnection(Connection):
    """The client of the runtime on a wire."""

    def __init__(self, wire: Wire, name: str, number: Callable[[], int]) -> None:
        super().__init__()
        self._wire = wire
        wire.join(self)
        self._nuid = cast(Any, _Numbers(number))
        self._flush_queue = asyncio.Queue()
        self._error_cb = self.report
        self._disconnected_cb = self._on_disconnected
        self._reconnected_cb = self._on_reconnected
        self._quiet: dict[int, Callable[..., Any]] = {}
        """The callbacks of subscriptions that have received no message so far."""
        self.options = {
            "name": name,
            "allow_reconnect": True,
            "reconnect_time_wait": RECONNECT_SECONDS,
            "max_reconnect_attempts": -1,
            "dont_randomize": True,
        }
        self._setup_server_pool(["nats://127.0.0.1:4222"])
        self._current_server = self._server_pool[0]

    async def begin(self) -> None:
        """Connects for the first time. Raises ConnectionRefusedError."""
        await self._connect_to_server(self._server_pool[0])
        await self._process_connect_init()

    # Instead of a socket. -----------------------------------------------------------------

    async def _connect_to_server(self, s: Srv) -> None:
        if self.is_closed:
            raise asyncio.CancelledError
        # Nothing refuses a connection over a wire on which nothing passes.
        seconds = max(self._wire.delay(), self._wire.silent_seconds())
        await asyncio.sleep(min(seconds, CONNECT_SECONDS))
        self._wire.connect()
        self._transport = cast(Any, _Transport(self._wire))

    async def _select_next_server(self) -> None:
        # nats-py would read the real clock to decide whether to wait.
        while True:
            try:
                await self._connect_to_server(self._server_pool[0])
            except OSError as error:
                await self.report(error)
                await asyncio.sleep(RECONNECT_SECONDS)
            else:
                return

    async def _process_connect_init(self) -> None:
        self._pending = [command for command in self._pending if command is not PING_PROTO]
        self._server_info = {"version": "2.15.1", "jetstream": True, "max_payload": MAX_PAYLOAD}
        self._max_payload = MAX_PAYLOAD
        self._pongs = []
        self._status = Client.CONNECTED

    def _abandon_transport(self) -> None:
        self._transport = None
        self._wire.end()

    async def _send_command(self, cmd: bytes, priority: bool = False) -> None:
        if self.is_connected:
            self._wire.write(cmd)
        else:
            self._pending.append(cmd)

    async def _flush_pending(self, force_flush: bool = False) -> None:
        pending, self._pending = self._pending, []
        if self.is_connected:
            for command in pending:
                self._wire.write(command)
        else:
            self._pending = pending

    # What the wire brings. ----------------------------------------------------------------

    async def subscribe(  # type: ignore[override]
        self, subject: str, queue: str = "", cb: Callable[..., Any] | None = None, **more: Any
    ) -> Subscription:
        # The task of a subscription starts with its first message, which most never get.
        subscription = await super().subscribe(subject, queue, **more)
        if cb is not None:
            self._quiet[subscription._id] = cb
        return subscription

    def on_message(self, sid: int, *words: bytes) -> None:
        handler = self._handlers.get(sid)
        if handler is None:
            if sid in self._quiet and sid in self._subs:
                subscription = self._subs[sid]
                subscription._cb = self._quiet.pop(sid)
                subscription._message_iterator = None
                subscription._start(self.report)  # type: ignore[no-untyped-call]
            _finish(self._process_msg(sid, *words))
            return
        try:
            handler(*words)
        except Exception as error:
            _finish(self.report(error))

    def on_pong(self) -> None:
        _finish(self._process_pong())

    def on_broken(self) -> None:
        self.lose(nats.errors.UnexpectedEOF())


class Network:
    """The connections of all processes to one server. ``opening`` makes them, in place of
    `open_connection`: each belongs to the process that asks for it."""

    def __init__(
        self, loop: VirtualLoop, server: Server, rng: Random, delays: Delays = rough
    ) -> None:
        self._loop = loop
        self._server = server
        self._rng = rng
        self._delays = delays
        self._wires: dict[Process | None, list[Wire]] = {}
        self._numbers = 0

    def wires(self, process: Process | None) -> list[Wire]:
        """The wires of a process."""
        return self._wires.get(process, [])

    async def opening(
        self,
        url: str,
        *,
        name: str,
        access: ConnectionOptions,
        on_error: Callable[[Exception], Awaitable[None]],
        on_lost: Callable[[], Awaitable[None]],
        on_back: Callable[[], Awaitable[None]],
    ) -> Connection:
        """A connection of the current process. Raises NoServer."""
        process = self._loop.current
        wire = Wire(self._loop, self._server, process, self._rng, self._delays)
        connection = SimulatedConnection(wire, name, self._number)
        if process is not None:
            process.on_kill.append(wire.die)
        self._wires.setdefault(process, []).append(wire)
        try:
            await connection.begin()
        except ConnectionRefusedError as error:
            raise NoServer(str(error)) from None
        connection.reconnect_from_now_on(on_error, on_lost, on_back)
        return connection

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers


MAX_PAYLOAD: Final = core.MAX_PAYLOAD


class _Numbers:
    """Names of inboxes in place of random ones, as long as these."""

    def __init__(self, number: Callable[[], int]) -> None:
        self._number = number

    def next(self) -> bytearray:
        return bytearray(b"%022d" % self._number())


class _Transport:
    """The transport of nats-py while it reconnects."""

    def __init__(self, wire: Wire) -> None:
        self.write = wire.write
        self.close = wire.end

    async def drain(self) -> None:
        return

    wait_closed = drain


def _call_all(calls: list[Call]) -> None:
    for call, args in calls:
        call(*args)


def _pieces(blob: bytes) -> list[bytes]:
    """The commands of a blob, each as its own bytes."""
    blocks, at = [], 0
    for words, body in commands(blob):
        size = len(" ".join(words).encode()) + 2 + (len(body) + 2 if words[0][-3:] == "PUB" else 0)
        blocks.append(blob[at : at + size])
        at += size
    return blocks


def _finish(work: Awaitable[None]) -> None:
    """Runs a coroutine that waits for nothing."""
    try:
        next(work.__await__())
    except StopIteration:
        return
    raise RuntimeError(f"{work} waits, although the client does not wait there")
