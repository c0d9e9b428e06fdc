"""Writes all streams of a running deployment to one file.

The order in which streams are read makes the backup consistent (decision 44). First the positions
of the consumers of the log, then the buckets, then the log: the log has every fact that the buckets
have applied, and the workload-controller of the restored deployment reads again what the buckets
lack.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import IO, Any, Final

import msgspec

from admittance.backup.archive import (
    FORMAT,
    KIND,
    ArchiveWriter,
    Head,
    SinceMessage,
    StreamContents,
    check,
)
from admittance.backup.s2 import Corrupt
from admittance.backup.snapshot_reader import SnapshotReader
from admittance.client.errors import BadInput, RequestFailed
from admittance.events import subjects
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.streams import KV_CLAIMS, KV_LOG, KV_PROVIDERS
from admittance.runtime.errors import (
    AdmittanceError,
    BusUnavailable,
    Busy,
)
from admittance.runtime.nats_server import snapshots
from admittance.runtime.process.progress import Steps

ORDER: Final = (
    # The journal and the claims are read before the bucket: the journal may name no revision that
    # the bucket has not reached, and no claim may name an admission that the bucket lacks.
    subjects.CHECKPOINTS,
    KV_CLAIMS,
    KV_LOG,
    # Bookings are read after the bucket, so that each booking that the bucket counts on is read.
    KV_PROVIDERS,
    # The sums of usage are read before the log: their position is on it.
    subjects.SUMMARIES,
    # The log is read after the buckets, so that it has every fact that the buckets have applied.
    subjects.STREAM,
    # Timers are read after the log: the log copies facts from the timers stream by sequence, and
    # would skip facts of a timers stream that is older than the log.
    subjects.TIMERS,
)
"""The order in which streams are read."""
REPLACED: Final = frozenset({KV_CLAIMS, KV_LOG, KV_PROVIDERS, subjects.SUMMARIES})
"""Streams in which a new message replaces the previous one of its subject."""
ATTEMPTS: Final = 4
"""How often a snapshot is tried: on a busy machine nats-server ends a snapshot with ``408 No Flow
Response`` when a part was not confirmed within 5 s."""
PAUSE_SECONDS: Final = 2.0
"""The pause before another attempt: the server may still be ending the earlier snapshot."""

_encode = msgspec.json.Encoder().encode


async def write_backup(bus: Bus, file: IO[bytes], steps: Steps, note: Callable[[str], None]) -> int:
    """Writes a backup to the file, and returns its size in bytes. ``note``: is told what is tried
    again."""
    head = Head(KIND, FORMAT, version("admittance"), clock.now())
    archive = ArchiveWriter(file, head)
    positions = await snapshots.log_positions(bus)
    taken: list[StreamContents] = []
    for name in ORDER:
        taken.append(await _stream(bus, archive, name, steps, note))
    # Facts and decisions on the log name revisions of the bucket of workloads. After a restore the
    # bucket must not give a revision again that came after the bucket was read.
    last = await snapshots.last_sequence(bus, KV_LOG)
    ended = [
        msgspec.structs.replace(stream, end=max(stream.end, last))
        if stream.name == KV_LOG
        else stream
        for stream in taken
    ]
    archive.finish(ended, positions)
    return archive.size()


def read_again(file: IO[bytes], shown: str, steps: Steps) -> None:
    """Reads the file that was written, and compares its checksums. A pipe or a device cannot be
    read again. Raises RequestFailed."""
    if not (file.seekable() and file.readable()):
        return
    file.flush()
    steps.begin("reads the file again", file.tell())
    try:
        check(shown, file, steps.reach)
    except BadInput as error:
        why = error.lines[0].removesuffix("; nothing was restored")
        raise RequestFailed(f"the backup was not written: {why}") from None


async def _stream(
    bus: Bus, archive: ArchiveWriter, name: str, steps: Steps, note: Callable[[str], None]
) -> StreamContents:
    for left in reversed(range(ATTEMPTS)):
        try:
            parts, config, state = await _snapshot(bus, archive, name, steps)
            break
        except (snapshots.SnapshotEnded, Corrupt, Busy) as error:
            why = str(error) if isinstance(error, AdmittanceError) else f"stream {name}: {error}"
            if not left:
                raise BusUnavailable(why) from None
            note(f"{why}: trying again")
            await asyncio.sleep(PAUSE_SECONDS)
    end = int(state["last_seq"])
    pages = 0
    if name in REPLACED:
        async for page in snapshots.messages_since(bus, name, end):
            chunks = []
            for message in page:
                again = snapshots.outgoing(message)
                headers = dict(again.headers) if again.headers else None
                chunks.append(SinceMessage(message.sequence, again.subject, again.data, headers))
            archive.add(f"{name}/since/{pages}", _encode(chunks))
            pages += 1
            end = page[-1].sequence
    return StreamContents(name, config, state, parts, pages, end)


async def _snapshot(
    bus: Bus, archive: ArchiveWriter, name: str, steps: Steps
) -> tuple[int, dict[str, Any], dict[str, Any]]:
    """Adds a snapshot of the stream to the archive, and reads it meanwhile as a restore will: the
    number of its parts, the configuration and the state of the stream. Members of an earlier
    attempt are replaced. Raises Corrupt if the snapshot is not complete, and what `take_snapshot`
    raises."""
    parts = 0
    reader: SnapshotReader | None = None

    def begin(state: Mapping[str, Any]) -> Callable[[bytes], None]:
        nonlocal reader
        made = reader = SnapshotReader(name, state)
        steps.begin(name, int(state["messages"]))

        def write(part: bytes) -> None:
            nonlocal parts
            made.feed(part)
            steps.reach(made.messages)
            archive.add(f"{name}/{parts}", part)
            parts += 1

        return write

    config, state = await snapshots.take_snapshot(bus, name, begin)
    assert reader is not None, "the snapshot has begun"
    reader.end()
    if reader.missing():
        # The server may have removed messages before it came to read them.
        now = await snapshots.state_of(bus, name)
        added = int(now["last_seq"]) - int(state["last_seq"])
        removed = int(state["messages"]) + added - int(now["messages"])
        if why := reader.missing(removed=removed):
            raise Corrupt(f"the snapshot has only {why}")
    return parts, config, state
