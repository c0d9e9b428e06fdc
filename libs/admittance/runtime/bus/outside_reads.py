"""Lists and follows keys of the bucket without a consumer, for programs that may not create one.

A list comes page by page, from a service or by direct get. To follow keys, a plain subscription
tells which key is written, and the entry is then read by direct get. The subscription gets the
message of a write before the server stores or refuses the write, so a key is read again after
growing pauses until the key's revision changes. The subscription gets no message when a value
expires, and none while the connection is lost: everything is read again from time to time and after
each reconnect.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from typing import Final, Protocol, TypeAlias, TypeVar

import msgspec
import nats.errors

from admittance.events import subjects
from admittance.events.names import token
from admittance.events.requests.reading import Objects, ObjectsReply
from admittance.events.subjects import ALL_NAMESPACES
from admittance.runtime import clock
from admittance.runtime.bus.bucket import Entry, get_directly, read_page
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import AccessDenied, BusUnavailable
from admittance.runtime.nats.connection import Connection, PermissionDenied, Subscription
from admittance.runtime.nats.jetstream import request_errors
from admittance.runtime.nats.protocol import status, text_of
from admittance.runtime.tasks import end_tasks, set_within

PAGE: Final = 2_500
DIRECT_PAGE: Final = 5_000
DIRECT_BYTES: Final = 8 * 1024 * 1024
"""The bytes after which the server ends a page of a batched direct get. The server closes the
connection of a client for which 64 MiB wait, so a page is far smaller.
"""


class InParts(Protocol):
    """One message of an answer that comes in ``parts`` messages."""

    @property
    def parts(self) -> int: ...


P = TypeVar("P", bound=InParts)


def _ignore(_first: object) -> None:
    pass


async def ask_in_parts(
    nc: Connection,
    subject: str,
    data: bytes,
    reply: type[P],
    *,
    timeout: float,
    on_first: Callable[[P], None] = _ignore,
) -> list[P]:
    """Returns all messages of an answer that a service sends in several messages. ``on_first`` is
    called with the first message of the answer as soon as that message comes. Raises
    PermissionDenied, NoRespondersError, TimeoutError, and the errors of decoding.
    """
    parts: list[P] = []
    complete: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_answer(_subject: bytes, _reply: bytes, body: bytes, headers: bytes) -> None:
        if complete.done():
            return
        if status(headers) == "503":
            complete.set_exception(nats.errors.NoRespondersError())
            return
        try:
            parts.append(msgspec.json.decode(body, type=reply))
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            complete.set_exception(error)
            return
        if len(parts) == 1:
            on_first(parts[0])
        if len(parts) >= parts[0].parts:
            complete.set_result(None)

    def on_denied(denied: str) -> None:
        if denied == subject.lower() and not complete.done():
            complete.set_exception(PermissionDenied(nc.denial_of(subject)))

    subscription = await nc.listen(nc.new_inbox(), on_answer)
    nc.on_denied.append(on_denied)
    try:
        await nc.publish(subject, data, reply=subscription.subject)
        async with asyncio.timeout(timeout):
            await complete
    finally:
        nc.on_denied.remove(on_denied)
        await nc.unlisten(subscription)
    return parts


async def request_in_parts(
    bus: Bus,
    subject: str,
    data: bytes,
    reply: type[P],
    *,
    timeout: float = 5.0,
    on_first: Callable[[P], None] = _ignore,
) -> list[P]:
    """Sends a request as `ask_in_parts` does, and returns all messages of the answer. Raises
    AccessDenied, or BusUnavailable if nothing responds or the answer is not complete in time.
    """
    with request_errors(subject):
        return await ask_in_parts(bus.nc, subject, data, reply, timeout=timeout, on_first=on_first)


def objects_subject(namespace: str | None) -> str:
    """The subject that lists objects of the namespace, of all namespaces (None), or without
    namespace ("").
    """
    if namespace == "":
        return "admit.api.objects"
    return f"admit.api.objects.{ALL_NAMESPACES if namespace is None else token(namespace)}"


FirstPart: TypeAlias = Callable[[ObjectsReply], None]
AskObjects: TypeAlias = Callable[[Objects, FirstPart], Coroutine[None, None, list[ObjectsReply]]]
"""A function that sends a request on an `objects_subject` and returns all parts of the reply. The
second argument gets the first part as soon as it comes.
"""


async def list_objects(bus: Bus, ask: AskObjects, kind: str, name: str = "") -> list[Entry]:
    """All objects of a kind that ``ask`` returns page by page, by key; with ``name``, those of that
    name. Raises what ``ask`` raises, BusUnavailable, and BusRefused.
    """
    entries: dict[str, Entry] = {}
    asked: deque[asyncio.Task[list[ObjectsReply]]] = deque()

    def begin(after: int) -> None:
        request = Objects(kind=kind, after=after, limit=PAGE, in_parts=True, name=name)
        asked.append(asyncio.create_task(ask(request, go_on)))

    def go_on(first: ObjectsReply) -> None:
        # The service makes the next page while this program reads the parts of this one.
        if first.last:
            begin(first.last)

    begin(0)
    try:
        while asked:
            for stored in (stored for reply in await asked[0] for stored in reply.objects):
                if name and not stored.key.endswith(f".{token(name)}"):
                    continue  # a workload-controller of an earlier version answers with all names
                if stored.value is not msgspec.UNSET:
                    entries[stored.key] = Entry(stored.key, bytes(stored.value), stored.revision)
                elif (entry := await get_directly(bus, stored.key)) is not None:
                    entries[stored.key] = entry
            asked.popleft()
    finally:
        await end_tasks(*asked)
    return _present(entries)


async def read_directly(bus: Bus, pattern: str, *, bucket: str = subjects.BUCKET) -> list[Entry]:
    """All entries under the pattern, by key, read by direct get: only for users that may read the
    whole bucket. Raises BusUnavailable and BusRefused.
    """
    entries: dict[str, Entry] = {}
    after = 0
    while True:
        page = await read_page(
            bus, pattern, after=after, limit=DIRECT_PAGE, bytes_max=DIRECT_BYTES, bucket=bucket
        )
        entries.update((entry.key, entry) for entry in page)
        size = sum(len(entry.value or b"") for entry in page)
        # The server may have ended the page because of its size, in which headers count, too.
        if not page or (len(page) < DIRECT_PAGE and size < DIRECT_BYTES // 4):
            return _present(entries)
        after = page[-1].revision


def _present(entries: dict[str, Entry]) -> list[Entry]:
    return sorted(
        (entry for entry in entries.values() if entry.value is not None),
        key=lambda entry: entry.key,
    )


PAUSES: Final = (0.0, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5)
"""Seconds to wait before each reading of a key after a write was received; if the last reading
finds no new revision, the write counts as refused."""
AWAY_SECONDS: Final = 0.5
"""Seconds to wait after a request without an answer."""
AT_ONCE: Final = 100
"""The most keys that are read at the same time."""


class KeyFollower:
    """Follows the keys under ``patterns``. ``read`` reads all present entries under the patterns;
    it is called again every ``again_seconds``.
    """

    def __init__(
        self,
        bus: Bus,
        patterns: Sequence[str],
        read: Callable[[], Awaitable[Sequence[Entry]]],
        *,
        again_seconds: float,
    ) -> None:
        self._bus = bus
        self._prefix = f"$KV.{subjects.BUCKET}."
        self._patterns = patterns
        self._read = read
        self._again = again_seconds
        self._known: dict[str, int] = {}
        self._present: set[str] = set()
        self._reads_since_write: dict[str, int] = {}
        """For each key with a received write: how often the key was read since then."""
        self._due: dict[str, float] = {}
        self._wake = asyncio.Event()
        self._stale = True
        self._read_at = 0.0
        self._denied: AccessDenied | None = None

    async def batches(self) -> AsyncGenerator[list[Entry]]:
        """Yields the present entries, then every change, in batches by revision; a deleted key has
        no value. Raises BusUnavailable and BusRefused if the first reading fails, and AccessDenied
        if this login may not follow or read the keys, or may not connect again.
        """
        nc = self._bus.nc
        subscriptions: list[Subscription] = []
        self._bus.reconnected.append(self._on_reconnected)
        nc.on_denied_subscription.append(self._on_denied)
        self._bus.login_refused.append(self._on_refused)
        try:
            for pattern in self._patterns:
                subscriptions.append(await nc.listen(self._prefix + pattern, self._on_write))
            yield await self._read_all()
            while True:
                if changed := await self._next():
                    yield changed
        finally:
            self._bus.reconnected.remove(self._on_reconnected)
            nc.on_denied_subscription.remove(self._on_denied)
            self._bus.login_refused.remove(self._on_refused)
            for subscription in subscriptions:
                await nc.unlisten(subscription)

    def _on_denied(self, subject: str) -> None:
        spelled = [self._prefix + pattern for pattern in self._patterns]
        if any(subject == allowed.lower() for allowed in spelled):
            self._on_refused(AccessDenied(self._bus.nc.denial_of(*spelled)))

    def _on_refused(self, error: AccessDenied) -> None:
        self._denied = error
        self._wake.set()

    def _on_reconnected(self) -> None:
        self._stale = True
        self._wake.set()

    def _on_write(self, subject: bytes, _reply: bytes, _data: bytes, _headers: bytes) -> None:
        key = text_of(subject)[len(self._prefix) :]
        self._reads_since_write[key] = 0
        self._due[key] = 0.0
        self._wake.set()

    async def _next(self) -> list[Entry]:
        """Waits until a key must be read; returns the entries that have changed."""
        if not self._stale:
            soonest = min([*self._due.values(), self._read_at + self._again])
            await set_within(self._wake, max(0.0, soonest - clock.monotonic()))
        self._wake.clear()
        if self._denied is not None:
            raise self._denied
        now = clock.monotonic()
        try:
            if self._stale or now >= self._read_at + self._again:
                return await self._read_all()
            due = [key for key, at in self._due.items() if at <= now]
            return await self._read_keys(due[:AT_ONCE])
        except AccessDenied:
            raise
        except BusUnavailable:
            self._stale = True
            await asyncio.sleep(AWAY_SECONDS)
            return []

    async def _read_all(self) -> list[Entry]:
        self._read_at = clock.monotonic()
        entries = await self._read()
        self._stale = False
        changed = self._newer(entries)
        gone = self._present - {entry.key for entry in entries}
        self._present -= gone
        return [*changed, *(Entry(key, None, self._known[key]) for key in sorted(gone))]

    async def _read_keys(self, keys: Sequence[str]) -> list[Entry]:
        # A write that is received while its key is read makes a new entry in ``_due``.
        counts = {key: self._reads_since_write.pop(key) for key in keys}
        for key in keys:
            del self._due[key]
        entries = await asyncio.gather(*(get_directly(self._bus, key) for key in keys))
        changed = self._newer([entry for entry in entries if entry is not None])
        for key in counts.keys() - {entry.key for entry in changed} - self._due.keys():
            count = counts[key] + 1
            if count < len(PAUSES):
                self._reads_since_write[key] = count
                self._due[key] = clock.monotonic() + PAUSES[count]
        return changed

    def _newer(self, entries: Sequence[Entry]) -> list[Entry]:
        changed = [entry for entry in entries if entry.revision > self._known.get(entry.key, 0)]
        for entry in changed:
            self._known[entry.key] = entry.revision
            if entry.value is None:
                self._present.discard(entry.key)
            else:
                self._present.add(entry.key)
        return sorted(changed, key=lambda entry: entry.revision)
