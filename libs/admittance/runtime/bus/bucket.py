"""The bucket: current objects by key, written with an expected revision, read with a consumer. Does
not use nats-py's `KeyValue`: its ``put`` checks no revision, ``update(last=None)`` creates, its
``get`` may be stale on replicas, and its ``watch`` recovers only 17 s after a server restart.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from admittance.events import subjects
from admittance.events.reader import BROKEN, SetAside, reason_of
from admittance.runtime import clock
from admittance.runtime.bus import history
from admittance.runtime.bus.bus import EXPECTED, Bus, Outgoing
from admittance.runtime.bus.history import last
from admittance.runtime.bus.pull_consumer import ConsumerRequest, PullConsumer, RawMessage
from admittance.runtime.errors import AdmittanceError, BusRefused, BusUnavailable
from admittance.runtime.nats.protocol import Headers, text_of
from admittance.runtime.tasks import cancel_and_wait, first_of, raise_if_cancelled, set_within
from admittance.runtime.telemetry.logger import log_set_aside

OPERATION: Final = "KV-Operation"
MARKER: Final = "Nats-Marker-Reason"
TTL: Final = "Nats-TTL"
_NO_HEADERS: Final[Mapping[str, str]] = {}


class Entry(msgspec.Struct, frozen=True, gc=False):
    """The value that a key has since ``revision``. ``value`` None: the key was deleted or purged,
    or its value expired.
    """

    key: str
    value: bytes | None
    revision: int
    headers: Mapping[str, str] = _NO_HEADERS


def put_message(
    key: str,
    value: bytes,
    *,
    expected: int | None,
    headers: Mapping[str, str] | None = None,
    ttl_seconds: float | None = None,
    bucket: str = subjects.BUCKET,
) -> Outgoing:
    """The message of a put, which the server refuses unless the key's last revision is ``expected``
    (0 if the key was never written).

    If the key was deleted, ``expected`` is the revision of the delete marker. With ``expected``
    None the server checks no revision, for keys with one writer. ``ttl_seconds``: after this many
    seconds the value of the put expires.
    """
    return Outgoing(
        f"$KV.{bucket}.{key}", value, _put_headers(expected, headers, ttl_seconds) or None
    )


def delete_message(
    key: str,
    *,
    expected: int | None,
    headers: Mapping[str, str] | None = None,
    ttl_seconds: float | None = None,
    bucket: str = subjects.BUCKET,
) -> Outgoing:
    """The message of a deletion. A deletion leaves a marker, so that a stale writer is refused
    afterwards.
    """
    made = _put_headers(expected, headers, ttl_seconds)
    made[OPERATION] = "DEL"
    return Outgoing(f"$KV.{bucket}.{key}", b"", made)


def _put_headers(
    expected: int | None, headers: Mapping[str, str] | None, ttl_seconds: float | None
) -> dict[str, str]:
    made = dict(headers) if headers else {}
    if expected is not None:
        made[EXPECTED] = str(expected)
    if ttl_seconds is not None:
        # The time to live in whole seconds, at least 1: the server refuses a shorter time to live.
        made[TTL] = f"{max(1, round(ttl_seconds))}s"
    return made


async def get(bus: Bus, key: str, *, bucket: str = subjects.BUCKET) -> Entry | None:
    """The current entry of a key, from the leader of its stream; None if the key was never written.

    The entry of a deleted key has no value; the next put must expect its revision.
    """
    message = await last(bus, f"$KV.{bucket}.{key}", stream=f"KV_{bucket}")
    return None if message is None else _read(key, message.sequence, message.data, message.headers)


LAG_SECONDS: Final = 10.0
"""How long `get_directly` waits for a replica that lags."""
LAG_PAUSE_SECONDS: Final = 0.05


async def get_directly(
    bus: Bus, key: str, *, bucket: str = subjects.BUCKET, at_least: int = 0
) -> Entry | None:
    """Like `get`, by direct get: from any replica, which may lag behind the leader, and with
    permissions that can name the key. ``at_least``: a revision that the key has had; an older entry
    is read again for up to `LAG_SECONDS`, after which the key must have expired or the bucket was
    restored. Raises BusUnavailable or BusRefused.
    """
    deadline = clock.monotonic() + LAG_SECONDS
    while True:
        message = await history.last_by_direct_get(
            bus, f"$KV.{bucket}.{key}", stream=f"KV_{bucket}"
        )
        revision = message.sequence if message is not None else 0
        if revision >= at_least or clock.monotonic() > deadline:
            break
        await asyncio.sleep(LAG_PAUSE_SECONDS)
    return None if message is None else _read(key, message.sequence, message.data, message.headers)


async def read_page(
    bus: Bus,
    pattern: str,
    *,
    after: int,
    limit: int,
    bytes_max: int = 0,
    bucket: str = subjects.BUCKET,
) -> list[Entry]:
    """The first ``limit`` entries under the pattern with revisions after ``after``, by revision,
    without a consumer. The entry of a deleted key has no value. ``bytes_max``: the page ends after
    about so many bytes; 0: no limit. Raises BusUnavailable or BusRefused.
    """
    prefix = f"$KV.{bucket}."
    request: dict[str, Any] = {"batch": limit, "next_by_subj": prefix + pattern, "seq": after + 1}
    if bytes_max:
        request["max_bytes"] = bytes_max
    page = await history.batched_direct_get(bus, f"KV_{bucket}", request)
    entries = []
    for data, raw in page:
        # A list has thousands of entries, so the time of each message stays undecoded.
        revision, subject = history.place_of(raw)
        entries.append(_read(subject[len(prefix) :], revision, data, Headers(raw)))
    return entries


def _read(key: str, revision: int, data: bytes, headers: Mapping[str, str]) -> Entry:
    # A delete marker is empty. A message with data is a value, whatever its headers say.
    gone = not data and is_gone(headers)
    return Entry(key, None if gone else data, revision, headers)


async def read_all(
    bus: Bus, pattern: str = "workload.>", *, bucket: str = subjects.BUCKET
) -> list[Entry]:
    """All entries of the bucket under the pattern at one moment, without deleted keys; nothing that
    was written before the call is missing."""
    entries: dict[str, Entry] = {}
    reader = BucketReader(bus, (pattern,), bucket=bucket, current=True)
    try:
        async for batch in reader.batches():
            for entry in batch:
                entries[entry.key] = entry
            if reader.loaded.is_set():
                break
    finally:
        await reader.close()
    return [entry for entry in entries.values() if entry.value is not None]


BATCH: Final = 2000
"""The most messages that a BucketReader requests at once."""
RECHECK_SECONDS: Final = 0.5
"""How long a BucketReader waits for a replica that lags before it asks the leader again."""


class BucketReader:
    """Reads the current entries under some patterns, then every change, in the order of revisions.

    After a restart of the server the reader continues after the last revision that it read.
    ``loaded`` is set just before `batches` yields the batch that completes the entries present at
    the start, so the body of a loop over `batches` can check it. ``last`` is the newest revision
    that was yielded. ``request``: a function that creates the consumer instead of the reader,
    beginning after the given revision; None: beginning with all present entries. ``current``:
    ``loaded`` waits for every entry that the leader of the stream had at the start. The consumer
    may read from a replica that lags: without ``current`` the reader would count as loaded too
    early.
    """

    def __init__(
        self,
        bus: Bus,
        patterns: Sequence[str] = (">",),
        *,
        bucket: str = subjects.BUCKET,
        request: ConsumerRequest | None = None,
        current: bool = False,
    ) -> None:
        self._request = request
        self._current = current
        self._newest = 0
        """The newest revision that the leader had at the start."""
        self._drained = False
        self._bus = bus
        self._stream = f"KV_{bucket}"
        self._prefix = f"$KV.{bucket}."
        self._patterns = [self._prefix + pattern for pattern in patterns]
        self.loaded = asyncio.Event()
        self.last = 0
        self.pending = 0
        """How many more entries the server had when it sent the newest one."""
        self._read = 0
        self._complete = False
        self._buffer: list[RawMessage] = []
        self._ready = asyncio.Event()
        self._pull: PullConsumer | None = None

    async def batches(self) -> AsyncIterator[list[Entry]]:
        """Yields the entries as they arrive, in batches. The first batch is empty if no key matches
        the patterns. Raises BucketReplaced if the bucket's last revision is older than a revision
        that was read: then everything must be read again.
        """
        pull = self._pull = PullConsumer(
            self._bus, self._stream, self._make, self._on_raw, batch=BATCH
        )
        await pull.start()
        pull.failed.add_done_callback(lambda _: self._ready.set())
        try:
            while True:
                lags = self._drained and not self._complete
                if not await set_within(self._ready, RECHECK_SECONDS if lags else None):
                    # The newest entry of the bucket may have expired since its revision was read.
                    with suppress(BusRefused, BusUnavailable):
                        self._newest = await self._end_of_patterns()
                    self._note_pending(0)
                self._ready.clear()
                if pull.failed.done():
                    pull.failed.result()
                raws, self._buffer = self._buffer, []
                pull.taken(len(raws))
                entries = [self._entry(raw) for raw in raws]
                if entries:
                    self.last = entries[-1].revision
                first = self._complete and not self.loaded.is_set()
                if first:
                    self.loaded.set()
                if entries or first:
                    yield entries
        finally:
            await self.close()

    async def close(self) -> None:
        """Stops reading. The server removes the reader's consumer after a while."""
        pull, self._pull = self._pull, None
        if pull is not None:
            await pull.stop()

    async def _make(self) -> str:
        if self._request is not None:
            made = await self._request(self._read or None)
            self._raise_if_older(made.last)
            self._note_pending(made.pending)
            return made.name
        config: dict[str, Any] = {
            "ack_policy": "none",
            "filter_subjects": self._patterns,
            "inactive_threshold": 30_000_000_000,
            "mem_storage": True,
            "num_replicas": 1,
            "max_waiting": 512,
        }
        if self._read:
            await self._check_not_older()
            config["deliver_policy"] = "by_start_sequence"
            config["opt_start_seq"] = self._read + 1
        else:
            config["deliver_policy"] = "last_per_subject"
            if self._current:
                self._newest = await self._end_of_patterns()
        info = await self._bus.api(
            f"CONSUMER.CREATE.{self._stream}", {"stream_name": self._stream, "config": config}
        )
        self._note_pending(info.get("num_pending", 0))
        return str(info["name"])

    def _note_pending(self, pending: int) -> None:
        self._drained = not pending
        if not pending:
            self._complete = self._complete or self._read >= self._newest
            self._ready.set()

    async def _end_of_patterns(self) -> int:
        return await history.newest_sequence(self._bus, self._patterns, stream=self._stream)

    async def _check_not_older(self) -> None:
        info = await self._bus.api(f"STREAM.INFO.{self._stream}")
        self._raise_if_older(info["state"]["last_seq"])

    def _raise_if_older(self, last: int) -> None:
        if last < self._read:
            raise BucketReplaced(
                f"stream {self._stream} ends at revision {last}, but {self._read} was already read"
            )

    def _on_raw(self, raw: RawMessage) -> None:
        if raw.sequence <= self._read:
            return
        self._read = raw.sequence
        self.pending = raw.pending
        self._buffer.append(raw)
        if not raw.pending:
            # When the server sent this message, no other message was left, so all entries have been
            # received. (Counting entries would be wrong: a key overwritten meanwhile comes later,
            # after new keys.)
            self._note_pending(0)
        else:
            self._drained = False
        self._ready.set()

    def _entry(self, raw: RawMessage) -> Entry:
        key = text_of(raw.subject)[len(self._prefix) :]
        if not raw.headers:
            return Entry(key, raw.data, raw.sequence)
        if raw.data:
            return Entry(key, raw.data, raw.sequence, Headers(raw.headers))
        return _read(key, raw.sequence, raw.data, Headers(raw.headers))


async def follow_bucket(
    bus: Bus,
    patterns: Sequence[str],
    apply: Callable[[Sequence[Entry]], Awaitable[None] | None],
    on_loaded: Callable[[int], Awaitable[None] | None] = lambda _: None,
    *,
    bucket: str = subjects.BUCKET,
    request: ConsumerRequest | None = None,
    current: bool = False,
) -> None:
    """Loads the entries under some patterns, then follows every change, until cancelled.

    ``apply`` gets the entries in batches. ``on_loaded`` is called once with the newest revision,
    after the batch that completes the entries present at the start. Raises what ``apply`` and
    ``on_loaded`` raise, and BucketReplaced. ``request`` and ``current`` are passed to the
    `BucketReader`.
    """
    reader = BucketReader(bus, patterns, bucket=bucket, request=request, current=current)
    loaded = False
    try:
        async for entries in reader.batches():
            applying = apply(entries)
            if applying is not None:
                await applying
            if reader.loaded.is_set() and not loaded:
                loaded = True
                reporting = on_loaded(reader.last)
                if reporting is not None:
                    await reporting
            # The start of a reader always yields a batch, so this check also ends a task whose
            # cancellation came with an answer of the server: `wait_for` of Python 3.11 drops such a
            # cancellation.
            raise_if_cancelled()
    finally:
        await reader.close()


async def follow_until(
    needed: asyncio.Event,
    bus: Bus,
    patterns: Sequence[str],
    apply: Callable[[Sequence[Entry]], None],
    loaded: asyncio.Event,
) -> None:
    """Follows the current entries under some patterns until ``needed`` is set, as `follow_bucket`
    does, and at least until the entries present at the start are applied, which sets ``loaded``."""
    following = asyncio.create_task(
        follow_bucket(bus, patterns, apply, lambda _: loaded.set(), current=True)
    )
    try:
        # One of the first entries may set `needed`, and ``loaded`` is waited for, too.
        for event in (needed, loaded):
            await first_of(following, event=event)
        if following.done():
            following.result()
    finally:
        await cancel_and_wait(following)


def apply_each(
    entries: Iterable[Entry],
    apply: Callable[[Entry], None],
    on_broken: Callable[[Entry], None] = lambda _: None,
    *,
    service: str,
    bucket: str = subjects.BUCKET,
) -> None:
    """Applies entries one by one. An entry that cannot be decoded, or that raises an exception by a
    bug, is logged as set aside and passed to ``on_broken``, so that it does not stop the others.
    """
    for entry in entries:
        try:
            apply(entry)
        except Exception as error:
            # A program other than Admittance wrote the unreadable entry; the workload-controller
            # ignores such an entry, too.
            if not isinstance(error, BROKEN):
                _record(service, "read an entry", entry.key, error)
            log_set_aside(SetAside(f"KV_{bucket}", entry.key, entry.revision, reason_of(error)))
            try:
                on_broken(entry)
            except BROKEN:
                pass  # the error is the same as that of the entry itself
            except Exception as error:
                _record(service, "forget an entry", entry.key, error)


def _record(service: str, step: str, key: str, error: Exception) -> None:
    # Imported late, because short commands read the bucket without metrics.
    from admittance.runtime.telemetry.object_faults import faults

    faults.record(service, step, key, error)


class BucketReplaced(AdmittanceError):
    """The bucket was deleted and created anew: revisions that were read are missing. Read
    everything again."""


def is_gone(headers: Mapping[str, str]) -> bool:
    """Whether a message of a bucket says that its key has no value any more."""
    return headers.get(OPERATION) in ("DEL", "PURGE") or MARKER in headers
