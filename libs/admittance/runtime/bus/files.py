"""Files of jobs on the bus: stores the parts of a file, and reads them back.

The stream has no bound of bytes: nats-server reserves such a bound on its disk, and with less free
space than that it refuses to create or change any stream (measured with 2.15.1). The number of
messages and their size are bounded instead.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Callable
from typing import Any, BinaryIO, Final, NamedTuple

from admittance.backoff import Backoff
from admittance.events.files import (
    FILES,
    PART_BYTES,
    PARTS,
    part_subject,
    subjects_of_upload,
    upload_of_subject,
)
from admittance.events.names import BadToken
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.bus.streams import NO_STREAM
from admittance.runtime.errors import BusRefused, BusUnavailable, Full, Meaning
from admittance.runtime.nats.jetstream import request_errors

AT_ONCE: Final = 8
"""How many parts are on their way at once."""
PARTS_MAX: Final = 200_000
"""The most messages of the stream."""
PART_BYTES_MAX: Final = PART_BYTES + 4096
"""The most bytes of a message of the stream, with its headers."""
PUBLISH_SECONDS: Final = 60.0
READ_SECONDS: Final = 60.0
"""Longest wait for `AT_ONCE` parts to be stored, and for one part to be read."""
ATTEMPTS: Final = 5
PURGE_SECONDS: Final = 30.0
IS_STORED: Final = "per subject"
"""Words of the server's refusal of a second message on a subject (code 10077)."""
NOT_FOUND: Final = "404"


class StoredBytes(NamedTuple):
    """What was stored of a file."""

    size: int
    parts: int
    sha256: str


class FileMissing(Exception):
    """The error that a part of a file is not stored; its text is a clause about the file."""


class FileChanged(Exception):
    """The error that a file is not the one that was stored; its text is a clause about the file."""


def stream_config(replicas: int) -> dict[str, Any]:
    """The settings of the stream."""
    return {
        "name": FILES,
        "subjects": [PARTS],
        "retention": "limits",
        "storage": "file",
        "discard": "new",
        # A part is written once: nothing can replace what a workload names.
        "max_msgs_per_subject": 1,
        "discard_new_per_subject": True,
        "allow_rollup_hdrs": False,
        "deny_delete": True,
        "max_msgs": PARTS_MAX,
        "max_msg_size": PART_BYTES_MAX,
        "max_bytes": -1,
        "max_age": 0,
        "allow_direct": True,
        "num_replicas": replicas,
    }


async def make_stream(bus: Bus, replicas: int = 1) -> None:
    """Creates the stream if there is none. Raises BusRefused and BusUnavailable."""
    try:
        await bus.api(f"STREAM.CREATE.{FILES}", stream_config(replicas))
    except BusRefused as error:
        if error.meaning is not Meaning.TAKEN:  # it is there with other settings
            raise


async def store_file(
    bus: Bus, namespace: str, upload: str, place: str, file: BinaryIO
) -> StoredBytes:
    """Stores the rest of the file, part by part. Raises BusRefused, such as `Full`, BusUnavailable,
    and OSError if the file cannot be read."""
    digest, size, number = hashlib.sha256(), 0, 0
    while parts := await asyncio.to_thread(_read, file, digest.update):
        await _store(
            bus,
            [
                Outgoing(part_subject(namespace, upload, place, number + index), part, None)
                for index, part in enumerate(parts)
            ],
        )
        number += len(parts)
        size += sum(map(len, parts))
    return StoredBytes(size, number, digest.hexdigest())


def _read(file: BinaryIO, see: Callable[[bytes], Any]) -> list[bytes]:
    """The next parts of the file, fewer than `AT_ONCE` at its end."""
    parts: list[bytes] = []
    while len(parts) < AT_ONCE and (part := file.read(PART_BYTES)):
        see(part)
        parts.append(part)
    return parts


async def _store(bus: Bus, messages: list[Outgoing]) -> None:
    # Without message ids, nothing is sent twice to a server that is slow: a part whose answer is
    # lost is sent again here, and the stream has each part once.
    backoff = Backoff(0.2, 2.0)
    for attempt in range(ATTEMPTS):
        try:
            outcomes = await bus.publish_all(messages, timeout=PUBLISH_SECONDS)
        except BusUnavailable:
            if attempt == ATTEMPTS - 1:
                raise
            await asyncio.sleep(backoff.next())
            continue
        for outcome in outcomes:
            if isinstance(outcome, Full) and IS_STORED in outcome.description:
                continue
            if isinstance(outcome, BusRefused):
                raise outcome
        return


async def read_file(
    bus: Bus, namespace: str, upload: str, place: str, parts: int
) -> AsyncGenerator[bytes]:
    """The parts of a file, in their order. Raises FileMissing, BusRefused and BusUnavailable."""
    waiting: list[asyncio.Task[bytes]] = []
    number = 0
    try:
        while waiting or number < parts:
            while number < parts and len(waiting) < AT_ONCE:
                subject = part_subject(namespace, upload, place, number)
                waiting.append(asyncio.create_task(_part(bus, subject, number, parts)))
                number += 1
            yield await waiting[0]
            del waiting[0]
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def _part(bus: Bus, subject: str, number: int, parts: int) -> bytes:
    request = f"$JS.API.DIRECT.GET.{FILES}.{subject}"
    backoff = Backoff(0.2, 2.0)
    for attempt in range(ATTEMPTS):
        try:
            with request_errors(request):
                reply = await bus.nc.request(request, b"", timeout=READ_SECONDS)
        except BusUnavailable:
            if attempt == ATTEMPTS - 1 or bus.is_up:
                raise
            await asyncio.sleep(backoff.next())
            continue
        status = (reply.headers or {}).get("Status", "")
        if status == NOT_FOUND:
            raise FileMissing(f"part {number + 1} of {parts} is not on the server")
        if status:
            raise BusRefused(int(status), f"{request}: {(reply.headers or {}).get('Description')}")
        return bytes(reply.data)
    raise BusUnavailable(f"no answer on {request}")


class CheckedBytes:
    """Counts and hashes the parts of a file, which must have the size and the digest."""

    def __init__(self, size: int, sha256: str) -> None:
        self._size = size
        self._sha256 = sha256
        self._seen = 0
        self._digest = hashlib.sha256()

    def see(self, part: bytes) -> None:
        """Takes the next part. Raises FileChanged if the file is too long."""
        self._digest.update(part)
        self._seen += len(part)
        if self._seen > self._size:
            raise FileChanged(f"it has more than {self._size:,} bytes on the server")

    def end(self) -> None:
        """Raises FileChanged if the parts are not those of the file."""
        if self._seen != self._size:
            raise FileChanged(f"it has {self._seen:,} of {self._size:,} bytes on the server")
        if self._digest.hexdigest() != self._sha256:
            raise FileChanged("it is not the file of its SHA-256")


# What the stream has. -----------------------------------------------------------------------


class StreamState(NamedTuple):
    """What the stream has now."""

    messages: int
    bytes: int
    last: int


async def stream_state(bus: Bus) -> StreamState | None:
    """The state of the stream; None if there is none. Raises BusRefused and BusUnavailable."""
    try:
        state = (await bus.api(f"STREAM.INFO.{FILES}"))["state"]
    except BusRefused as error:
        if error.code == NO_STREAM:
            return None
        raise
    return StreamState(state["messages"], state["bytes"], state["last_seq"])


async def stored_uploads(bus: Bus) -> dict[tuple[str, str], str]:
    """Each upload (namespace and name) with one of its subjects. Raises BusRefused and
    BusUnavailable."""
    uploads: dict[tuple[str, str], str] = {}
    offset = 0
    while True:
        request = {"subjects_filter": PARTS, "offset": offset}
        info = await bus.api(f"STREAM.INFO.{FILES}", request, timeout=PURGE_SECONDS)
        subjects = info["state"].get("subjects") or {}
        for subject in subjects:
            try:
                uploads.setdefault(upload_of_subject(subject), subject)
            except (BadToken, ValueError):
                continue
        offset += len(subjects)
        if not subjects or offset >= info.get("total", 0):
            return uploads


async def purge_upload(bus: Bus, namespace: str, upload: str) -> None:
    """Removes all parts of an upload. Raises BusRefused and BusUnavailable."""
    request = {"filter": subjects_of_upload(namespace, upload)}
    await bus.api(f"STREAM.PURGE.{FILES}", request, timeout=PURGE_SECONDS)
