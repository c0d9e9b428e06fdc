"""A client of nats-py that notices every loss of its connection, and passes messages of some
subscriptions directly to a function. The only module that touches private names of nats-py;
`PRIVATE_NAMES` lists them.

nats-py 2.16 can lose a connection and still count as connected, or give up for good:

- Its reading, flushing and ping tasks end silently on every error that they do not expect, such as
  a PONG for an abandoned `flush`. After the silent end of its reading task, nats-py reads nothing
  until two pings are unanswered.
- `_process_err` closes the client for good on most errors that a server may send.
- An unexpected error during a reconnect ends the reconnecting.
- Closing a socket waits until a server that does not read has read everything.
- A flush loses a cancellation that comes together with its answer (Python 3.11).
- A password in a URL is sent percent-encoded. Servers that the cluster announces do not get the
  password of a URL. A server at a tls:// address that offers no TLS gets the password unencrypted.

`ReconnectingClient` treats the end of any of the three tasks as a lost connection, and reconnects
after each loss.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import nats.errors
from nats.aio.client import PING_PROTO, Client, Server, Srv
from nats.aio.subscription import Subscription
from nats.aio.transport import TcpTransport, Transport

from admittance.runtime import clock
from admittance.runtime import tasks as ending
from admittance.runtime.nats import lazy_nats_js
from admittance.runtime.nats.connection_options import NO_OPTIONS, ConnectionOptions
from admittance.runtime.nats.credentials import password_of, tls_context, token_of, user_key_of
from admittance.runtime.nats.protocol import DirectParser, Handler
from admittance.runtime.nats.server_turns import ServerTurns
from admittance.runtime.nats.server_url import Login

if TYPE_CHECKING:
    from nats.micro.request import Request

lazy_nats_js.bind()

PRIVATE_NAMES: Final[Mapping[str, str]] = {
    # Overridden methods.
    "Client._attempt_reconnect": "an unexpected error must not end the reconnecting",
    "Client._connect_command": "logins are read from their files at each connection",
    "Client._connect_to_server": "a cancellation must not be lost, nor an old socket stay open",
    "Client._flush_pending": "it must lose no cancellation, and must not wait for other flushes",
    "Client._process_connect_init": "the end of the three tasks is watched from here on",
    "Client._process_err": "an error that a server sends must not close the client for good",
    "Client._process_info": "a server without TLS must not get a password unencrypted",
    "Client._process_msg": "requests with a forged reply subject are dropped",
    "Client._process_pong": "a PONG for an abandoned ping must not be an error",
    "Client._send_ping": "a PING comes after all waiting data, so that its PONG confirms the data",
    # Called methods.
    "Client._process_op_err": "begins to reconnect",
    "Client._send_command": "writes protocol bytes that `frame` has made",
    # State that is read or set.
    "Client._auth_configured": "credentials are sent",
    "Client._current_server": "the server whose login is sent, and that is tried last after a loss",
    "Client._flush_queue": "wakes the flushing task",
    "Client._flusher_task": "one of the three tasks",
    "Client._pending": "an unwritten PING is not sent on the next connection",
    "Client._pending_data_size": "the size of `_pending`",
    "Client._ping_interval_task": "one of the three tasks",
    "Client._pongs": "waits for PONGs, which end when the connection is lost",
    "Client._ps": "the parser, which is replaced by a faster one",
    "Client._public_nkey": "the login with an NKey: a credentials file may change its kind",
    "Client._reading_task": "one of the three tasks",
    "Client._reconnection_task": "is cancelled when the connection is abandoned",
    "Client._server_info": "what the server says of itself",
    "Client._signature_cb": "the login with an NKey or a JWT",
    "Client._status": "connected, reconnecting or closed",
    "Client._transport": "the socket, which is abandoned with unwritten data",
    "Client._user_jwt_cb": "the login with a JWT",
    "Request._msg": "the reply subject of a request: copies of the request have the same one",
    "Subscription._id": "the id by which the parser finds the function of a subscription",
    "TcpTransport._io_writer": "the writer of the socket, which closing would wait for",
}
"""Each private name of nats-py that this module uses, and what for: no public name does it."""


def reply_subject(request: Request) -> str:
    """The subject to which the answer of a request goes."""
    return request._msg.reply


RECONNECT_SECONDS: Final = 0.2
"""Pause between two attempts to connect to the same server."""
CLOSE_SECONDS: Final = 2.0
"""How long `close` waits until the server has read unwritten data."""
FLUSH_SECONDS: Final = 10.0
"""How long `flush` waits for the server, if the caller does not say."""
REQUESTS: Final = (b"admit.api.", b"admit.alive.", b"$SRV.")
"""How the subjects of requests begin, which programs of Admittance answer. Everything else that a
program receives (facts, and what JetStream sends to the program's own inboxes) is never answered
with a message of the program's own choice, so it may have any reply subject: JetStream asks for
confirmations on ``$JS.ACK.…``, ``$JS.FC.…``, ``$JS.SNAPSHOT.ACK.…``.
"""
_NO_INBOX: Final = (b"admit.", b"$")
"""How the subjects of facts, buckets and JetStream begin. A request that asks for its answer on
such a subject is dropped: the program would publish the answer with its own rights in place of the
asker's, and so state a fact, write a key, or acknowledge a delivery.
"""

OnError: TypeAlias = Callable[[Exception], Awaitable[None]]
OnChange: TypeAlias = Callable[[], Awaitable[None]]


async def ignore_error(_: Exception) -> None:
    """Ignores the error."""


async def raise_error(error: Exception) -> None:
    """Raises the error. While nats-py connects for the first time, this ends the attempt: nats-py
    would retry without end and not report the reason.
    """
    raise error


async def _do_nothing() -> None:
    return


class ReconnectingClient(Client):
    """A client that notices every loss of its connection and reconnects until it is closed.

    ``logins``: by the address of a server; a server that the cluster announces gets the first of
    them. A login in ``access`` replaces ``logins``. Files of ``access`` are read at each
    connection. ``on_error``, ``on_lost``, ``on_back``: awaited after an error, a loss of the
    connection, and its return.
    """

    def __init__(
        self,
        logins: Mapping[str, Login] | None = None,
        access: ConnectionOptions = NO_OPTIONS,
    ) -> None:
        super().__init__()
        self._access = access
        self._background = ending.BackgroundTasks()
        self._logins = dict(logins or {})
        self._turns = ServerTurns(RECONNECT_SECONDS)
        self._handlers: dict[int, Handler] = {}
        self._ps = DirectParser(self, self._handlers)
        self.on_error: OnError = ignore_error
        self.on_lost: OnChange = _do_nothing
        self.on_back: OnChange = _do_nothing
        self.user = ""
        """The user that the credentials file names; "": no credentials file with a name."""
        self.role = ""
        """The role that the credentials file names; "": none."""
        self.namespaces: tuple[str, ...] = ()
        self.has_jwt = False

    # For the subclass. ------------------------------------------------------------------

    def on_connecting(self) -> None:
        """Called before each login to a server."""

    def on_refused(self, text: str) -> Exception:
        """Called with the server's text, in lower case, when it refuses a subject to this login.
        Returns the error to report."""
        return nats.errors.Error(f"nats: {text.strip(chr(39))}")

    def fail_requests(self, error: Exception) -> None:
        """Ends every wait for an answer with the error; called when the connection is lost."""

    # What the server and the connection are. --------------------------------------------

    @property
    def server_info(self) -> Mapping[str, Any]:
        """What the server says of itself; empty before its first message."""
        return self._server_info

    @property
    def is_encrypted(self) -> bool:
        """Whether the socket has TLS."""
        writer = _writer_of(self._transport)
        return writer is not None and writer.get_extra_info("ssl_object") is not None

    @property
    def ssl_context(self) -> ssl.SSLContext:
        """The TLS settings of the next connection. Raises AccessDenied."""
        return tls_context(self._access)

    # Connecting. ------------------------------------------------------------------------

    async def connect_once(self, addresses: Sequence[str], **options: Any) -> None:
        """Connects for the first time, to the first address and without a second attempt; the
        others are servers to reconnect to. ``options``: those of `Client.connect`. Raises what
        nats-py raises, and AccessDenied.
        """
        self.on_error = raise_error
        await self.connect(
            list(addresses),
            allow_reconnect=False,
            dont_randomize=True,
            # nats-py's default is to give up after 60 attempts.
            max_reconnect_attempts=-1,
            reconnect_time_wait=RECONNECT_SECONDS,  # type: ignore[arg-type]
            error_cb=self.report,
            disconnected_cb=self._on_disconnected,
            reconnected_cb=self._on_reconnected,
            closed_cb=self._on_closed,
            reconnect_to_server_handler=self._choose_server,
            **options,
        )
        self.on_error = ignore_error

    def reconnect_from_now_on(
        self, on_error: OnError, on_lost: OnChange, on_back: OnChange
    ) -> None:
        """Makes the client reconnect after each loss, and sets the functions to await."""
        self.options["allow_reconnect"] = True
        self.options["dont_randomize"] = False
        self.on_error, self.on_lost, self.on_back = on_error, on_lost, on_back

    async def report(self, error: Exception) -> None:
        """Reports an error that no caller waits for."""
        await self.on_error(error)

    async def _on_disconnected(self) -> None:
        await self.on_lost()

    async def _on_reconnected(self) -> None:
        await self.on_back()

    async def _on_closed(self) -> None:
        # nats-py lets requests wait for an answer until their time limit.
        self._fail_waiting()

    async def _process_connect_init(self) -> None:
        # An unwritten ping of the old connection would be answered on the new one, and its PONG
        # would count for another ping.
        self._pending = [command for command in self._pending if command is not PING_PROTO]
        self._pending_data_size = sum(len(command) for command in self._pending)
        self.on_connecting()
        await super()._process_connect_init()
        for task in self._connection_tasks():
            task.add_done_callback(self._on_task_end)
        if not self.is_connected:
            # The server closed the connection instead of answering CONNECT.
            self._abandon_transport()
            raise ConnectionResetError("the server closed the connection")

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        server = self._current_server
        if (
            initial_connection
            and server is not None
            and (server.uri.scheme == "tls" or self._access.demands_tls)
        ):
            # Without this check, nats-py sends the password unencrypted to a server without TLS.
            if not (info.get("tls_required") or info.get("tls_available")):
                raise nats.errors.SecureConnWantedError
            info["tls_required"] = True
        await super()._process_info(info, initial_connection)

    def _connect_command(self) -> bytes:
        server = self._current_server
        logins = self._logins
        if self._access.has_login:
            self._log_in(self._access)
        elif logins and server is not None:
            address = f"{server.uri.scheme}://{server.uri.netloc}"
            login = logins.get(address) or next(iter(logins.values()))
            is_token = login.password is None
            self.options["user"] = None if is_token else login.user
            self.options["password"] = login.password
            self.options["token"] = login.user if is_token else None
            self._auth_configured = True
        return super()._connect_command()

    def _log_in(self, access: ConnectionOptions) -> None:
        self._auth_configured = True
        self.options["user"] = access.user
        self.options["password"] = password_of(access)
        self.options["token"] = token_of(access)
        if (key := user_key_of(access)) is not None:
            jwt = key.jwt.encode() if key.jwt else None
            self._signature_cb = key.sign
            self._user_jwt_cb = (lambda: jwt) if jwt else None
            self._public_nkey = key.public
            self.has_jwt = jwt is not None
            self.user, self.role, self.namespaces = key.user, key.role, key.namespaces

    async def _connect_to_server(self, s: Srv) -> None:
        if self.is_closed:
            # nats-py can lose a cancellation or a `close` that comes at the end of an attempt to
            # connect.
            raise asyncio.CancelledError
        ending.raise_if_cancelled()
        # An earlier attempt to connect may have failed after its socket was open, so its socket and
        # tasks are ended here.
        self._abandon_transport()
        await super()._connect_to_server(s)

    # The loss of a connection. ----------------------------------------------------------

    def _connection_tasks(self) -> list[asyncio.Task[None]]:
        tasks = (self._reading_task, self._flusher_task, self._ping_interval_task)
        return [task for task in tasks if task is not None]

    def _on_task_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            task.exception()
        if task in self._connection_tasks() and self.is_connected:
            self.lose(nats.errors.StaleConnectionError())

    def lose(self, error: Exception) -> None:
        """Takes the connection for lost, and begins to reconnect."""
        self.spawn(self._process_op_err(error))

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs the work as a task."""
        self._background.start(work)

    async def _process_err(self, err_msg: str) -> None:
        if "permissions violation" in err_msg:
            await self.report(self.on_refused(err_msg))
            return
        error = nats.errors.Error(f"nats: {err_msg.strip(chr(39))}")
        await self.report(error)
        await self._process_op_err(error)

    async def _process_pong(self) -> None:
        # PONGs come in the order of the PINGs, so an abandoned ping keeps its place.
        if self._pongs and self._pongs[0].done():
            self._pongs[0] = asyncio.get_running_loop().create_future()
        await super()._process_pong()

    async def _attempt_reconnect(self) -> None:
        self._abandon_transport()
        self._fail_waiting()
        self._turns.lost(self._current_server.uri.netloc if self._current_server else "")
        task = asyncio.current_task()
        assert task is not None
        while True:
            try:
                await super()._attempt_reconnect()
            except Exception as error:
                # Any error, for example uvloop's RuntimeError for a write to a closed socket, is
                # reported like a failed attempt.
                await self.report(error)
            if task.cancelling() or self.is_closed or self.is_connected:
                return
            self._status = Client.RECONNECTING
            await asyncio.sleep(RECONNECT_SECONDS)

    def _choose_server(
        self, servers: Sequence[Server], _: Mapping[str, Any]
    ) -> tuple[Server | None, float]:
        """The server of the next attempt to connect, and the seconds before it. nats-py gives the
        servers in random order."""
        known = {server.uri.netloc: server for server in servers}
        name, pause = self._turns.next(list(known), clock.monotonic())
        return known[name], pause

    def _abandon_transport(self) -> None:
        """Ends the socket and its tasks at once, and drops unwritten data."""
        for task in self._connection_tasks():
            task.cancel()
        transport, self._transport = self._transport, None
        writer = _writer_of(transport)
        if writer is not None:
            writer.transport.abort()

    def _fail_waiting(self) -> None:
        """Ends every wait for an answer on this connection."""
        pongs, self._pongs = self._pongs, []
        error = nats.errors.ConnectionReconnectingError()
        for waiting in pongs:
            fail(waiting, error)
        self.fail_requests(error)

    # Writing. ---------------------------------------------------------------------------

    async def send(self, blob: bytes) -> None:
        """Writes protocol bytes made by `frame`, in one go."""
        await self._send_command(blob)
        await self._flush_pending()

    async def _send_ping(self, future: asyncio.Future[Any] | None = None) -> None:
        # The PING is written after all waiting data, so that the PONG confirms all of this data;
        # nats-py sends the PING before that data.
        loop = asyncio.get_running_loop()
        self._pongs.append(future if future is not None else loop.create_future())
        await self._send_command(PING_PROTO)
        await self._flush_pending()

    async def _flush_pending(self, force_flush: bool = False) -> None:
        # Replaces the method of nats-py, which loses cancellations, and blocks while 1,024 other
        # flushes wait for a server that does not read. One wake-up of the flusher is enough,
        # because the flusher writes all pending data.
        queue = self._flush_queue
        assert queue is not None, "connect comes first"
        if not self.is_connected:
            return
        if force_flush:
            written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            await queue.put(written)
            await written
        elif queue.empty():
            queue.put_nowait(asyncio.get_running_loop().create_future())

    async def flush(self, timeout: float = FLUSH_SECONDS) -> None:
        """Waits until the server has read all messages sent before. Raises nats.errors.Error."""
        with ending.cancellation_kept():
            await super().flush(timeout)  # type: ignore[arg-type]

    # Reading. ---------------------------------------------------------------------------

    def pass_directly(self, subscription: Subscription, handler: Handler) -> None:
        """Calls ``handler`` for every message of the subscription, in order, from the parser."""
        self._handlers[subscription._id] = handler

    def pass_no_more(self, subscription: Subscription) -> None:
        """Ends `pass_directly`."""
        self._handlers.pop(subscription._id, None)

    async def _process_msg(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes
    ) -> None:
        handler = self._handlers.get(sid)
        if reply.startswith(_NO_INBOX) and subject.startswith(REQUESTS):
            return
        try:
            if handler is None:
                await super()._process_msg(sid, subject, reply, data, headers)
            else:
                handler(subject, reply, data, headers or b"")
        except Exception as error:
            # An exception here would end the reading task, and so the connection.
            await self.report(error)

    # The end. ---------------------------------------------------------------------------

    async def close(self) -> None:
        """Closes the connection for good, after up to `CLOSE_SECONDS` for data that is not written
        yet."""
        self._fail_waiting()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await super().close()
        self.abandon()

    def abandon(self) -> None:
        """Closes the connection for good and at once, without callbacks."""
        self._status = Client.CLOSED
        if self._reconnection_task is not None:
            self._reconnection_task.cancel()
        self._abandon_transport()
        self._fail_waiting()
        while self._flush_queue is not None and not self._flush_queue.empty():
            self._flush_queue.get_nowait().cancel()


def _writer_of(transport: Transport | None) -> asyncio.StreamWriter | None:
    return transport._io_writer if isinstance(transport, TcpTransport) else None


def fail(waiting: asyncio.Future[Any], error: Exception) -> None:
    """Ends a wait with the error, unless it has ended."""
    if not waiting.done():
        waiting.set_exception(error)
        # Marks the exception as retrieved, for a future that is no longer awaited.
        waiting.exception()
