"""``admit backup``: writes all streams of a running deployment to one file.

The order in which streams are read makes the backup consistent (decision 44). First the positions
of the consumers of the log, then the buckets, then the log: the log has every fact that the buckets
have applied, and the workload-controller of the restored deployment reads again what the buckets
lack.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from admittance.cli.backup.archive import (
    FORMAT,
    KIND,
    ArchiveWriter,
    Head,
    SinceMessage,
    StreamContents,
    check,
)
from admittance.cli.backup.s2 import Corrupt
from admittance.cli.backup.snapshot_reader import SnapshotReader
from admittance.cli.support import output
from admittance.cli.support.errors import AnswerIsNo, BadInput, NotAllowed
from admittance.cli.support.files import STANDARD_INPUT
from admittance.cli.support.link import link
from admittance.cli.support.options import Call
from admittance.events import subjects
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.streams import KV_CLAIMS, KV_LOG, KV_PROVIDERS, NO_STREAM
from admittance.runtime.errors import (
    AccessDenied,
    AdmittanceError,
    Busy,
    Refused,
    Unavailable,
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


def _needed(role: str) -> str:
    """What a login with the role, that lacks a right, needs for a backup."""
    if role != "backup":
        return "a backup needs a login with the role backup"
    return (
        "the server knows the role backup of another version: run `admit auth reload` of this "
        "version, and with JWTs revoke the user and add it again"
    )


async def backup(call: Call, target: str) -> int:
    """Writes the backup to the file; ``-``: to standard output."""
    shown = "standard output" if target == STANDARD_INPUT else target
    async with link(call) as one:
        with open_target(target) as file, Steps("backup") as steps:
            try:
                written = await _write(one.bus, file, steps)
                await asyncio.to_thread(_read_again, file, shown, steps)
            except AccessDenied as error:
                raise NotAllowed(f"{error}; {_needed(one.bus.nc.role)}") from None
            except Refused as error:
                if error.code == NO_STREAM:
                    raise AnswerIsNo(
                        f"Admittance was never set up at {call.shown_url}: nothing to back up"
                    ) from None
                raise AnswerIsNo(f"the server refused the backup: {error}; try again") from None
            except Unavailable as error:
                raise AnswerIsNo(f"the backup is not complete: {error}; try again") from None
    output.note(f"backup of {call.shown_url} in {shown}: {written:,} bytes")
    return 0


async def _write(bus: Bus, file: IO[bytes], steps: Steps) -> int:
    head = Head(KIND, FORMAT, version("admittance"), clock.now())
    archive = ArchiveWriter(file, head)
    positions = await snapshots.log_positions(bus)
    taken: list[StreamContents] = []
    for name in ORDER:
        taken.append(await _stream(bus, archive, name, steps))
    # Facts and decisions on the log name revisions of the bucket of workloads. After a restore the
    # bucket must not give a revision again that came after the bucket was read.
    last = await snapshots.last_sequence(bus, KV_LOG)
    ended = [
        msgspec.structs.replace(one, end=max(one.end, last)) if one.name == KV_LOG else one
        for one in taken
    ]
    archive.finish(ended, positions)
    return archive.written


def _read_again(file: IO[bytes], shown: str, steps: Steps) -> None:
    """Reads the file that was written, and compares its checksums. A pipe or a device cannot be
    read again. Raises AnswerIsNo."""
    if not (file.seekable() and file.readable()):
        return
    file.flush()
    steps.begin("reads the file again", file.tell())
    try:
        check(shown, file, steps.reach)
    except BadInput as error:
        why = error.lines[0].removesuffix("; nothing was restored")
        raise AnswerIsNo(f"the backup was not written: {why}") from None


async def _stream(bus: Bus, archive: ArchiveWriter, name: str, steps: Steps) -> StreamContents:
    for left in reversed(range(ATTEMPTS)):
        try:
            parts, config, state = await _snapshot(bus, archive, name, steps)
            break
        except (snapshots.SnapshotEnded, Corrupt, Busy) as error:
            why = str(error) if isinstance(error, AdmittanceError) else f"stream {name}: {error}"
            if not left:
                raise Unavailable(why) from None
            output.note(f"{why}: trying again")
            await asyncio.sleep(PAUSE_SECONDS)
    end = int(state["last_seq"])
    pages = 0
    if name in REPLACED:
        async for page in snapshots.messages_since(bus, name, end):
            found = []
            for message in page:
                again = snapshots.outgoing(message)
                headers = dict(again.headers) if again.headers else None
                found.append(SinceMessage(message.sequence, again.subject, again.data, headers))
            archive.add(f"{name}/since/{pages}", _encode(found))
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


@contextmanager
def open_target(path: str) -> Iterator[IO[bytes]]:
    """The file to write, readable only for this user. The file gets the name ``path`` only after
    everything is written; a device or pipe is written directly. Raises BadInput, or AnswerIsNo for
    a full disk."""
    if path == STANDARD_INPUT:
        if sys.stdout.isatty():
            raise BadInput("a backup is not text: name a file, or redirect standard output")
        with _sentences("standard output"):
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        return
    # A file that the path links to is replaced, not the link.
    final = Path(path).resolve()
    try:
        if final.is_dir():
            raise BadInput(f"{path} is a folder: name a file")
        if final.exists() and not final.is_file():
            with _sentences(path), final.open("wb") as file:
                yield file
            return
        handle, made = tempfile.mkstemp(prefix=f".{final.name}.", dir=final.parent)  # mode 0600
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror or error}") from None
    try:
        with _sentences(path):
            with os.fdopen(handle, "w+b") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            Path(made).replace(final)
    except BaseException:
        with suppress(OSError):
            Path(made).unlink()
        raise


@contextmanager
def _sentences(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        raise AnswerIsNo(f"{path}: {why}; the backup was not written") from None
