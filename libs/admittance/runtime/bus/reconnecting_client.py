"""nats-py's client, which reconnects after every way in which a connection can be lost.

nats-py 2.16 has ways to lose a connection and still count as connected, or to give up for good:

- its reading, flushing and ping tasks end without a word on every error that they do not expect
  (a PONG for a `flush` that was given up is one): nothing is read any more until two pings are
  unanswered;
- `_process_err` closes for good on most errors that a server may send;
- an error that is not expected while it reconnects ends the reconnecting;
- closing a socket waits until a server that does not read has read everything;
- what waits for an answer on a lost connection, or for one to a request that the user may not
  make, waits until its own time is over;
- a password in a URL is sent percent-encoded, not at all to servers that the cluster tells of, and
  unencrypted if a server at a tls:// address has no TLS.

Here every end of one of the three tasks is a lost connection, every lost connection is made anew,
and what waits for an answer learns of the loss at once. This rests on private names of nats-py;
`tests/integration/bus/test_reconnecting.py` fails when a new version moves them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

import nats.errors
from nats.aio.client import PING_PROTO, Client, Srv

from admittance.runtime import tasks as ending
from admittance.runtime.server_url import Login

CLOSE_SECONDS: Final = 2.0
"""How long `close` waits for a server to read what is still to be written."""


_MAY_NOT: Final = {"publish": "publish to", "subscription": "subscribe to"}
_DENIED: Final = re.compile(r'permissions violation for (publish|subscription) to "([^"]*)"')


class PermissionDenied(nats.errors.Error):
    """The server lets this user not do that."""


class ReconnectingClient(Client):
    """A client that notices every loss of its connection and reconnects, unless it is closed.

    ``logins``: what to log in with, by the address of a server; servers that the cluster tells of
    get the first of them. ``on_denied`` are called with a subject, in small letters, that this user
    may not publish to; ``denied`` is the newest such refusal, as a sentence.
    """

    def __init__(self, logins: Mapping[str, Login] | None = None) -> None:
        super().__init__()
        self._tasks: set[asyncio.Task[None]] = set()
        self._logins = dict(logins or {})
        self._asked: dict[str, set[asyncio.Future[Any]]] = {}
        self.on_denied: list[Callable[[str], None]] = []
        self.denied = ""

    # What ends the connection. ----------------------------------------------------------

    async def _process_connect_init(self) -> None:
        # A ping of the old connection that is still to be written would be answered on the new one,
        # in place of another.
        self._pending = [command for command in self._pending if command is not PING_PROTO]
        self._pending_data_size = sum(len(command) for command in self._pending)
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
            await self._error_cb(self._note_denied(err_msg))
            return
        error = nats.errors.Error(f"nats: {err_msg.strip(chr(39))}")
        await self._error_cb(error)
        await self._process_op_err(error)

    def _note_denied(self, text: str) -> PermissionDenied:
        """Ends the waits for answers that cannot come. The text of the server is in small letters,
        and so is the subject in it."""
        found = _DENIED.search(text)
        what, subject = found.groups() if found else ("", "")
        error = PermissionDenied(
            f"the user of this connection may not {_MAY_NOT[what]} {subject}" if what else text
        )
        self.denied = str(error)
        waiting = self._asked.pop(subject, set()) if what == "publish" else set()
        if what == "subscription" and self._resp_sub_prefix is not None:
            answers = self._resp_sub_prefix.decode().lower()
            waiting = set(self._resp_map.values()) if subject.startswith(answers) else set()
        _fail(waiting, error)
        if what == "publish":
            for told in self.on_denied:
                told(subject)
        return error

    async def publish(
        self,
        subject: str,
        payload: bytes = b"",
        reply: str = "",
        headers: dict[str, Any] | None = None,
    ) -> None:
        """As nats-py's; a request whose subject is denied fails at once."""
        asking = self._resp_map.get(reply.rpartition(".")[2]) if reply else None
        if asking is not None:
            key = subject.lower()
            self._asked.setdefault(key, set()).add(asking)
            asking.add_done_callback(lambda done: self._answered(key, done))
        await super().publish(subject, payload, reply, headers)

    def _answered(self, subject: str, asking: asyncio.Future[Any]) -> None:
        waiting = self._asked.get(subject, set())
        waiting.discard(asking)
        if not waiting:
            self._asked.pop(subject, None)

    async def _process_pong(self) -> None:
        if not self._pongs:
            return
        # PONGs come in the order of the PINGs, so one that was given up keeps its place.
        waiting = self._pongs.pop(0)
        if not waiting.done():
            waiting.set_result(True)
        self._pongs_received += 1
        self._pings_outstanding = 0

    # Making it anew. --------------------------------------------------------------------

    async def _attempt_reconnect(self) -> None:
        self._abandon_transport()
        self._fail_waiting()
        task = asyncio.current_task()
        assert task is not None
        while True:
            try:
                await super()._attempt_reconnect()
            except Exception as error:
                # Such as uvloop's RuntimeError for a write to a closed socket.
                await self._error_cb(error)
            if task.cancelling() or self.is_closed or self.is_connected:
                return
            self._status = Client.RECONNECTING
            await asyncio.sleep(self.options["reconnect_time_wait"])

    async def _select_next_server(self) -> None:
        if self.options["allow_reconnect"]:
            await super()._select_next_server()
            return
        # The first connection: nats-py would try for ever, and not tell why.
        self._current_server = self._server_pool[0]
        await self._connect_to_server(self._current_server)

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        server = self._current_server
        if initial_connection and server is not None and server.uri.scheme == "tls":
            # Else nats-py sends the password unencrypted to a server without TLS.
            if not (info.get("tls_required") or info.get("tls_available")):
                raise nats.errors.SecureConnWantedError
            info["tls_required"] = True
        await super()._process_info(info, initial_connection)

    def _connect_command(self) -> bytes:
        server = self._current_server
        logins = self._logins
        if logins and server is not None:
            address = f"{server.uri.scheme}://{server.uri.netloc}"
            login = logins.get(address) or next(iter(logins.values()))
            is_token = login.password is None
            self.options["user"] = None if is_token else login.user
            self.options["password"] = login.password
            self.options["token"] = login.user if is_token else None
            self._auth_configured = True
        return super()._connect_command()

    async def _connect_to_server(self, s: Srv) -> None:
        if self.is_closed:
            # A cancellation that came with the end of an attempt is lost, and so is the end of the
            # attempts: each is made at the latest here.
            raise asyncio.CancelledError
        ending.go_on()
        # The socket and the tasks of an attempt that failed later than here.
        self._abandon_transport()
        await super()._connect_to_server(s)

    def _abandon_transport(self) -> None:
        """Ends socket and tasks at once, whatever is still to be written."""
        for task in self._connection_tasks():
            task.cancel()
        transport, self._transport = self._transport, None
        writer = getattr(transport, "_io_writer", None)
        if writer is not None:
            writer.transport.abort()

    def _fail_waiting(self) -> None:
        """Ends every wait for an answer on this connection: none will come."""
        pongs, self._pongs = self._pongs, []
        _fail((*pongs, *self._resp_map.values()), nats.errors.ConnectionReconnectingError())

    # Writing. ---------------------------------------------------------------------------

    async def _send_ping(self, future: asyncio.Future[Any] | None = None) -> None:
        # Behind everything that waits to be written, so that the PONG answers for all of it;
        # nats-py overtakes it.
        loop = asyncio.get_running_loop()
        self._pongs.append(future if future is not None else loop.create_future())
        await self._send_command(PING_PROTO)
        await self._flush_pending()

    async def _flush_pending(self, force_flush: bool = False) -> None:
        # nats-py's swallows cancellations, and blocks behind 1,024 others while a server does not
        # read. One wake-up is enough: the flusher writes all that is there.
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

    # The end. ---------------------------------------------------------------------------

    async def close(self) -> None:
        """Closes for good; what is still to be written gets `CLOSE_SECONDS`."""
        self._fail_waiting()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await super().close()
        self.abandon()

    def abandon(self) -> None:
        """Closes for good and at once; tells no callback."""
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
            # Asked for here, so that a wait that was given up is no "never retrieved".
            one.exception()
