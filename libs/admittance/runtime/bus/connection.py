"""A NATS connection with a short way for many small messages.

nats-py spends 23 µs of CPU on publishing a message and noting its acknowledgement, and about 45 µs
on a pulled one (an asyncio.Queue, a task switch and a Msg each; measured; the short way takes 7 µs
for either). The log and the bucket are read and written at tens of thousands of
messages a second, so for those alone two short cuts are taken: a subscription whose handler is
called straight from the parser, and a write of many messages at once. Everything else is nats-py's.

They rest on private names of nats-py (`_process_msg`, `_send_command` with `_flush_pending`), as
does `reconnecting_client`; `tests/integration/bus/test_reconnecting.py` fails when a new version
moves them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, TypeAlias

import nats.errors
from nats.aio.client import PING_PROTO, Client, Srv
from nats.aio.subscription import Subscription as Subscription

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
        ending.raise_if_cancelled()
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


Handler: TypeAlias = Callable[[bytes, bytes, bytes, bytes], None]
"""Takes subject, reply, data, raw headers (each empty where there is none). Must not block."""


class Connection(ReconnectingClient):
    """A client that hands messages of some subscriptions straight to a function."""

    def __init__(self, logins: Mapping[str, Login] | None = None) -> None:
        super().__init__(logins)
        self._straight: dict[int, Handler] = {}

    async def listen(self, subject: str, handler: Handler) -> Subscription:
        """Calls handler for every message on subject, in order, before anything else is read."""
        subscription = await self.subscribe(subject)
        # The server answers after SUB is flushed, which is after this line: nothing is missed.
        self._straight[subscription._id] = handler
        return subscription

    async def deafen(self, subscription: Subscription) -> None:
        """Ends a `listen`. Harmless when the connection is gone."""
        self._straight.pop(subscription._id, None)
        if not self.is_closed and not subscription._closed:
            await subscription.unsubscribe()

    async def _process_msg(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes
    ) -> None:
        handler = self._straight.get(sid)
        try:
            if handler is None:
                await super()._process_msg(sid, subject, reply, data, headers)
            else:
                handler(subject, reply, data, headers or b"")
        except Exception as error:
            # An exception here would end the reading, and so the connection.
            await self._error_cb(error)

    async def send(self, blob: bytes) -> None:
        """Writes protocol bytes made by `frame`, in one go."""
        await self._send_command(blob)
        await self._flush_pending()


def frame(subject: str, reply: str, data: bytes, headers: Mapping[str, str] | None) -> bytes:
    """The protocol bytes of one publication. Raises ValueError for what could break out of them."""
    if not subject or not subject.isprintable() or " " in subject:
        raise ValueError(f"{subject!r} is no subject")
    if not headers:
        return b"PUB %b %b %d\r\n%b\r\n" % (subject.encode(), reply.encode(), len(data), data)
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    if lines.count("\n") != len(headers) or lines.count("\r") != len(headers):
        raise ValueError(f"a header of {subject} has a line break")
    head = f"NATS/1.0\r\n{lines}\r\n".encode()
    return b"HPUB %b %b %d %d\r\n%b%b\r\n" % (
        subject.encode(),
        reply.encode(),
        len(head),
        len(head) + len(data),
        head,
        data,
    )


class Headers(Mapping[str, str]):
    """Headers of a message, parsed on first use."""

    __slots__ = ("_parsed", "_raw")

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._parsed: dict[str, str] | None = None

    def _all(self) -> dict[str, str]:
        if self._parsed is None:
            self._parsed = parse_headers(self._raw)
        return self._parsed

    def __getitem__(self, name: str) -> str:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def __repr__(self) -> str:
        return f"Headers({self._all()!r})"


def text_of(subject: bytes) -> str:
    """A subject as text. The server accepts any bytes; those that are not UTF-8 become escapes that
    no token of ours contains, so a reader can report what is wrong."""
    return subject.decode("utf-8", "backslashreplace")


def parse_headers(raw: bytes) -> dict[str, str]:
    """Header lines to a dict; the status line is left out. Bytes that are not UTF-8 are replaced.

    Of a repeated name the first counts, and names are case-sensitive, as in the server: otherwise a
    client could show the server one fence and us another.
    """
    parsed: dict[str, str] = {}
    for line in raw.split(b"\r\n")[1:]:
        name, colon, value = line.partition(b":")
        if colon:
            parsed.setdefault(
                name.decode("utf-8", "replace"), value.strip().decode("utf-8", "replace")
            )
    return parsed


def status(raw: bytes) -> str:
    """The status of a message of the server itself ("100", "408", "503", …); "" for any other."""
    return raw[9:12].decode() if raw[8:9] == b" " else ""


def description(raw: bytes) -> str:
    """What stands behind the status, for people."""
    return raw[12 : raw.find(b"\r\n")].decode("utf-8", "replace").strip()
