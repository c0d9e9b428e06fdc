"""A NATS connection that reconnects after every loss and is fast for many small messages.

nats-py 2.16 can lose a connection and still count as connected, or give up for good:

- Its reading, flushing and ping tasks end silently on every error that they do not expect, such as
  a PONG for an abandoned `flush`. After the silent end of its reading task, nats-py reads nothing
  until two pings are unanswered.
- `_process_err` closes the client for good on most errors that a server may send.
- An unexpected error during a reconnect ends the reconnecting.
- Closing a socket waits until a server that does not read has read everything.
- A request or a flush loses a cancellation that comes together with its answer (Python 3.11).
- A request waits until its timeout if the connection is lost or the permission is missing.
- A password in a URL is sent percent-encoded. Servers that the cluster announces do not get the
  password of a URL. A server at a tls:// address that offers no TLS gets the password unencrypted.

`ReconnectingClient` treats the end of any of the three tasks as a lost connection, reconnects after
each loss, and ends requests at once when the connection is lost.

nats-py spends 23 µs of CPU to publish a message and handle its acknowledgement, and about 45 µs for
a pulled message (an asyncio.Queue, a task switch and a Msg each). `Connection` needs 7 µs (all
measured): it calls the handlers of some subscriptions directly from the parser, and writes many
messages at once. The log, the bucket and the answers of requests use these handlers and this
writing; everything else uses nats-py.

`ReconnectingClient` and `Connection` use private names of nats-py.
`tests/integration/bus/test_reconnecting.py` fails if a new version of nats-py changes these private
names.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from math import inf
from typing import Any, Final

import nats.errors
from nats.aio.client import PING_PROTO, Client, Srv
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as Subscription

from admittance.runtime import clock
from admittance.runtime import tasks as ending
from admittance.runtime.nats import lazy_nats_js
from admittance.runtime.nats.connection_options import NO_OPTIONS, ConnectionOptions
from admittance.runtime.nats.credentials import password_of, read_user_key, tls_context, token_of
from admittance.runtime.nats.protocol import DirectParser, Handler, parse_headers, status
from admittance.runtime.nats.server_url import Login

lazy_nats_js.bind()

FLUSH_SECONDS: Final = 10.0
"""How long `flush` waits for the server, if the caller does not say."""
CLOSE_SECONDS: Final = 2.0
"""How long `close` waits until the server has read unwritten data."""


_DENIED_ACTION: Final = {"publish": "publish to", "subscription": "subscribe to"}
_DENIED: Final = re.compile(r'permissions violation for (publish|subscription) to "([^"]*)"')


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
NO_RESPONDERS: Final = "503"
DENIALS_MAX: Final = 100
"""The most refused subjects of one connection that are remembered."""


class PermissionDenied(nats.errors.Error):
    """The server does not permit the operation to this user."""


class ReconnectingClient(Client):
    """A client that notices every loss of its connection and reconnects until it is closed.

    ``logins``: by the address of a server; a server that the cluster announces gets the first of
    them. A login in ``access`` replaces ``logins``. Files of ``access`` are read at each
    connection. ``on_denied``, ``on_denied_subscription``: called with a subject, in lower case, to
    which this user may not publish or subscribe. ``denied``: the last such refusal as a sentence,
    with the subject in lower case;
    ``denials``: all of this connection, as ``publish SUBJECT`` or ``subscribe SUBJECT`` with the
    monotonic time of the last.
    """

    def __init__(
        self,
        logins: Mapping[str, Login] | None = None,
        access: ConnectionOptions = NO_OPTIONS,
    ) -> None:
        super().__init__()
        self._access = access
        self._tasks: set[asyncio.Task[None]] = set()
        self._logins = dict(logins or {})
        self._lost_server = ""
        self._asked: dict[str, dict[asyncio.Future[Any], str]] = {}
        self.on_denied: list[Callable[[str], None]] = []
        self.on_denied_subscription: list[Callable[[str], None]] = []
        self.denied = ""
        self.denials: dict[str, float] = {}
        self.user = ""
        """The user that the credentials file names; "": no credentials file with a name."""
        self.role = ""
        """The role that the credentials file names; "": none."""
        self.namespaces: tuple[str, ...] = ()
        self.replicas_wanted = 0
        """The replicas of each stream that this program asked for; 0: it makes no streams."""

    # The loss of a connection. ----------------------------------------------------------

    async def _process_connect_init(self) -> None:
        # An unwritten ping of the old connection would be answered on the new one, and its PONG
        # would count for another ping.
        self._pending = [command for command in self._pending if command is not PING_PROTO]
        self._pending_data_size = sum(len(command) for command in self._pending)
        self.denials.clear()
        await super()._process_connect_init()
        for task in self._connection_tasks():
            task.add_done_callback(self._on_task_end)
        if not self.is_connected:
            # The server closed the connection instead of answering CONNECT.
            self._abandon_transport()
            raise ConnectionResetError("the server closed the connection")

    def _connection_tasks(self) -> list[asyncio.Task[None]]:
        tasks = (self._reading_task, self._flusher_task, self._ping_interval_task)
        return [task for task in tasks if task is not None]

    def _on_task_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            task.exception()
        if task in self._connection_tasks() and self.is_connected:
            self._spawn(self._process_op_err(nats.errors.StaleConnectionError()))

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _process_err(self, err_msg: str) -> None:
        if "permissions violation" in err_msg:
            await self._error_cb(self._on_denied_permission(err_msg))
            return
        error = nats.errors.Error(f"nats: {err_msg.strip(chr(39))}")
        await self._error_cb(error)
        await self._process_op_err(error)

    def _on_denied_permission(self, text: str) -> PermissionDenied:
        """Ends the requests that get no answer because of a denied permission. The server's text
        comes in lower case; the error of a request has the subject as the request spells it."""
        found = _DENIED.search(text)
        what, subject = found.groups() if found else ("", "")
        asked = self._asked.pop(subject, {}) if what == "publish" else {}
        self.denied = f"this login may not {_DENIED_ACTION[what]} {subject}" if what else text
        error = PermissionDenied(self.denial_of(*asked.values()))
        if what and len(self.denials) < DENIALS_MAX:
            verb = _DENIED_ACTION[what].partition(" ")[0]
            self.denials[f"{verb} {subject}"] = clock.monotonic()
        waiting = set(asked)
        if what == "subscription" and self._resp_sub_prefix is not None:
            answers = self._resp_sub_prefix.decode().lower()
            waiting = set(self._resp_map.values()) if subject.startswith(answers) else set()
        _fail(waiting, error)
        told = self.on_denied if what == "publish" else self.on_denied_subscription
        for callback in list(told):
            callback(subject)
        return error

    def denial_of(self, *subjects: str) -> str:
        """The last refusal as a sentence. If the refusal is about one of ``subjects``, the sentence
        has that subject as it is spelled there."""
        for one in subjects:
            if self.denied.endswith(f" {one.lower()}"):
                return self.denied.removesuffix(one.lower()) + one
        return self.denied

    async def _process_pong(self) -> None:
        if not self._pongs:
            return
        # PONGs come in the order of the PINGs, so an abandoned ping keeps its place.
        waiting = self._pongs.pop(0)
        if not waiting.done():
            waiting.set_result(True)
        self._pongs_received += 1
        self._pings_outstanding = 0

    # Reconnecting. ----------------------------------------------------------------------

    async def _attempt_reconnect(self) -> None:
        self._abandon_transport()
        self._fail_waiting()
        self._lost_server = self._current_server.uri.netloc if self._current_server else ""
        task = asyncio.current_task()
        assert task is not None
        while True:
            try:
                await super()._attempt_reconnect()
            except Exception as error:
                # Any error, for example uvloop's RuntimeError for a write to a closed socket, is
                # reported like a failed attempt.
                await self._error_cb(error)
            if task.cancelling() or self.is_closed or self.is_connected:
                return
            self._status = Client.RECONNECTING
            await asyncio.sleep(self.options["reconnect_time_wait"])

    async def _select_next_server(self) -> None:
        if self.options["allow_reconnect"]:
            # The order is random, and a paused server accepts connections without serving them.
            self._server_pool.sort(key=lambda server: server.uri.netloc == self._lost_server)
            self._lost_server = ""
            await super()._select_next_server()
            return
        # The first connection: nats-py would retry without end and not report the reason.
        self._current_server = self._server_pool[0]
        await self._connect_to_server(self._current_server)

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

    @property
    def ssl_context(self) -> ssl.SSLContext:
        """The TLS settings of the next connection. Raises AccessDenied."""
        return tls_context(self._access)

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
        if access.creds:
            key = read_user_key(access.creds)
            jwt = key.jwt.encode() if key.jwt else None
            self._signature_cb = key.sign
            self._user_jwt_cb = (lambda: jwt) if jwt else None
            self._public_nkey = key.public
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

    def _abandon_transport(self) -> None:
        """Ends the socket and its tasks at once, and drops unwritten data."""
        for task in self._connection_tasks():
            task.cancel()
        transport, self._transport = self._transport, None
        writer = getattr(transport, "_io_writer", None)
        if writer is not None:
            writer.transport.abort()

    def _fail_waiting(self) -> None:
        """Ends every wait for an answer on this connection."""
        pongs, self._pongs = self._pongs, []
        _fail((*pongs, *self._resp_map.values()), nats.errors.ConnectionReconnectingError())

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        # nats-py lets requests wait for an answer until their time limit.
        self._fail_waiting()
        await super()._close(status, do_cbs)

    # Writing. ---------------------------------------------------------------------------

    async def _send_ping(self, future: asyncio.Future[Any] | None = None) -> None:
        # The PING is written after all waiting data, so that the PONG confirms all of this data;
        # nats-py
        # sends the PING before that data.
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

    # Requests. --------------------------------------------------------------------------

    async def flush(self, timeout: float = FLUSH_SECONDS) -> None:
        """Waits until the server has read all messages sent before. Raises nats.errors.Error."""
        with ending.cancellation_kept():
            await super().flush(timeout)  # type: ignore[arg-type]

    async def _request_new_style(
        self,
        subject: str,
        payload: bytes,
        timeout: float = 1,
        headers: dict[str, Any] | None = None,
    ) -> Msg:
        # Replaces the method of nats-py, whose `asyncio.wait_for` loses cancellations in Python
        # 3.11, and which does not end a request to a subject that this login may not use.
        return await self._ask(subject, payload, timeout, headers, inf)

    async def request_repeatedly(
        self, subject: str, payload: bytes, timeout: float, *, every: float
    ) -> Msg:
        """Returns the first answer to any copy of the request, which is sent again ``every`` so
        many seconds. Raises what `request` raises."""
        found = await self._ask(subject, payload, timeout, None, every)
        if found.headers and found.headers.get("Status") == NO_RESPONDERS:
            raise nats.errors.NoRespondersError
        return found

    async def _ask(
        self,
        subject: str,
        payload: bytes,
        timeout: float,
        headers: dict[str, Any] | None,
        every: float,
    ) -> Msg:
        if self.is_draining_pubs:
            raise nats.errors.ConnectionDrainingError
        if not self._resp_sub_prefix:
            await self._init_request_sub()
        assert self._resp_sub_prefix, "the subscription is made"
        token, denied_as = self._nuid.next().decode(), subject.lower()
        inbox = self._resp_sub_prefix.decode() + token
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Msg] = loop.create_future()
        self._resp_map[token] = answer
        self._asked.setdefault(denied_as, {})[answer] = subject
        repeating: asyncio.TimerHandle | None = None

        def repeat() -> None:
            nonlocal repeating
            repeating = loop.call_later(every, repeat)
            self._spawn(self._publish_again(subject, payload, inbox))

        try:
            await self.publish(subject, payload, inbox, headers)
            if every < timeout:
                repeating = loop.call_later(every, repeat)
            async with asyncio.timeout(timeout):
                return await answer
        except TimeoutError:
            raise nats.errors.TimeoutError from None
        finally:
            if repeating is not None:
                repeating.cancel()
            self._resp_map.pop(token, None)
            waiting = self._asked.get(denied_as, {})
            waiting.pop(answer, None)
            if not waiting:
                self._asked.pop(denied_as, None)

    async def _publish_again(self, subject: str, payload: bytes, inbox: str) -> None:
        # Without a connection the request ends by itself, or at its timeout.
        with suppress(nats.errors.Error, OSError):
            await self.publish(subject, payload, inbox)

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


def _fail(waiting: Iterable[asyncio.Future[Any]], error: Exception) -> None:
    for one in waiting:
        if not one.done():
            one.set_exception(error)
            # Marks the exception as retrieved, for a future that is no longer awaited.
            one.exception()


class Connection(ReconnectingClient):
    """A client that passes messages of some subscriptions directly to a function."""

    def __init__(
        self,
        logins: Mapping[str, Login] | None = None,
        access: ConnectionOptions = NO_OPTIONS,
    ) -> None:
        super().__init__(logins, access)
        self._handlers: dict[int, Handler] = {}
        self._ps = DirectParser(self, self._handlers)

    async def listen(self, subject: str, handler: Handler, *, queue: str = "") -> Subscription:
        """Subscribes, and calls ``handler`` for every message, in order, from the parser.
        ``queue``: only one member of the group gets each message; "": no group."""
        subscription = await self.subscribe(subject, queue=queue)
        # SUB is flushed after this line, so no message comes earlier.
        self._handlers[subscription._id] = handler
        return subscription

    async def _init_request_sub(self) -> None:
        # nats-py would pass each answer through a queue and a task.
        self._resp_map = {}
        self._resp_sub_prefix = bytearray(f"{self.new_inbox()}.".encode())
        await self.listen(f"{self._resp_sub_prefix.decode()}*", self._on_answer)

    def _on_answer(self, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        asking = self._resp_map.get(subject[subject.rfind(b".") + 1 :].decode())
        if asking is None or asking.done():
            return
        named = parse_headers(headers)
        if code := status(headers):
            named["Status"] = code
        asking.set_result(self._build_message(0, subject, reply, data, named or None))

    async def unlisten(self, subscription: Subscription) -> None:
        """Ends a subscription of `listen`. After the connection is lost, `unlisten` does no
        harm.
        """
        self._handlers.pop(subscription._id, None)
        if not self.is_closed and not subscription._closed:
            await subscription.unsubscribe()

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
            await self._error_cb(error)

    async def send(self, blob: bytes) -> None:
        """Writes protocol bytes made by `frame`, in one go."""
        await self._send_command(blob)
        await self._flush_pending()
