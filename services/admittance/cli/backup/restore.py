"""``admit restore``: makes all streams of a deployment anew from a file of ``admit backup``."""

from __future__ import annotations

import asyncio
import io
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

import msgspec

from admittance.cli.backup.archive import Archive, StreamContents, check
from admittance.cli.backup.backup import REPLACED
from admittance.cli.backup.data_folder import served_folder
from admittance.cli.backup.s2 import Corrupt
from admittance.cli.backup.snapshot_reader import read_snapshot
from admittance.cli.support import output
from admittance.cli.support.errors import AnswerIsNo, BadInput, NotAllowed
from admittance.cli.support.files import STANDARD_INPUT
from admittance.cli.support.link import link
from admittance.cli.support.options import Call, UrlFrom
from admittance.cli.up.readiness import health
from admittance.events import subjects
from admittance.events.system import Restored
from admittance.runtime import clock
from admittance.runtime.bus import bucket
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.bus.streams import KV_CLAIMS, KV_LOG, KV_PROVIDERS
from admittance.runtime.errors import AccessDenied, AdmittanceError
from admittance.runtime.nats.connection_options import OPTIONS
from admittance.runtime.nats_server import snapshots
from admittance.runtime.process.progress import Steps

ORDER: Final = (
    subjects.CHECKPOINTS,
    KV_CLAIMS,
    KV_PROVIDERS,
    KV_LOG,
    subjects.SUMMARIES,
    # Timers are restored before the log, because the log copies due timers from their stream.
    subjects.TIMERS,
    subjects.STREAM,
)
"""The order in which streams are made."""
LATER: Final = frozenset({subjects.SUMMARIES})
"""Streams that backups of earlier versions do not have; a service makes them empty."""
ALIVE: Final = f"$KV.{subjects.CLAIMS}._alive."
"""First characters of the subjects of heartbeats: no instance of the old deployment is alive."""
WRITTEN_AT_ONCE: Final = 1_000
LOST_MAX: Final = 100_000
"""How many revisions of objects the lost deployment may have given after the backup: the restored
deployment does not give these revisions again. A runner that survived knows its runs by these
revisions, and would take the new admission of a workload for a run that has ended. Skipping these
revisions takes 2 to 3 s.
"""

_encode = msgspec.json.Encoder().encode


async def restore(call: Call, source: str, replicas: int, data_dir: Path | None = None) -> int:
    """Restores the backup in the file; ``-``: the backup on standard input. ``replicas``: the
    number of replicas of each restored stream; 0: as in the backup. ``data_dir``: the data folder
    of `admit up` to make, in place of a server. Nothing is changed if the file is damaged, if a
    stream exists, or if services run.
    """
    if data_dir is not None:
        _refuse_options_of_a_server(call, replicas)
    with _source(source) as (name, file), Steps("restore") as steps:
        archive = await asyncio.to_thread(check_all, name, file, steps)
        if data_dir is None:
            async with link(call) as one:
                try:
                    await _refuse_used_server(one.bus, call)
                    await _restore(one.bus, archive, replicas, steps)
                except AccessDenied as error:
                    needed = "a restore needs a login with the role backup"
                    raise NotAllowed(f"{error}; {needed}") from None
            todo = "start the services"
        else:
            async with served_folder(data_dir) as bus:
                await _restore(bus, archive, 1, steps)
                steps.begin("on the disk")
            todo = f"`admit up --data-dir {shlex.quote(str(data_dir))}` serves it"
    made = archive.head
    when = f"{made.time:%Y-%m-%d %H:%M:%S} UTC" if made.time is not None else "an unknown time"
    output.note(f"restored the backup of {when} (Admittance {made.version}): {todo}")
    return 0


def _refuse_options_of_a_server(call: Call, replicas: int) -> None:
    """Raises BadInput for options that mean another server than that of a data folder."""
    if call.url_from is UrlFrom.OPTION:
        raise BadInput("--nats and --data-dir are two places to restore to: leave one out")
    if typed := [OPTIONS[name] for name in OPTIONS if call.given.get(name)]:
        raise BadInput(f"{typed[0]} is for a server that runs: leave it out with --data-dir")
    if replicas > 1:
        raise BadInput("a data folder has one server, and so one replica: leave out --replicas")


def check_all(name: str, file: IO[bytes], steps: Steps) -> Archive:
    """Checks the file, and reads each snapshot in it as nats-server will. Raises BadInput."""
    steps.begin("reads the file", file.seek(0, io.SEEK_END))
    archive = check(name, file, steps.reach)
    for stream in archive.contents.streams:
        steps.begin(f"checks {stream.name}", stream.parts)
        try:
            read_snapshot(stream.name, stream.state, _counted(archive.parts(stream), steps))
        except Corrupt as error:
            raise BadInput(
                f"{name} is damaged: the snapshot of {stream.name} cannot be read ({error}); "
                "take another backup; nothing was restored"
            ) from None
    return archive


def _counted(parts: Iterable[bytes], steps: Steps) -> Iterator[bytes]:
    for done, part in enumerate(parts):
        steps.reach(done)
        yield part


async def _refuse_used_server(bus: Bus, call: Call) -> None:
    """Raises AnswerIsNo if the server has streams of Admittance, or if services are connected."""
    found = (await bus.api("STREAM.NAMES", {})).get("streams") or []
    existing = [name for name in ORDER if name in found]
    if existing:
        raise AnswerIsNo(
            f"{call.shown_url} has the streams {', '.join(existing)}: restore into an empty "
            "server, or stop all services and delete them with `nats stream rm NAME`"
        )
    running = sorted({answer.service for answer in await health(bus)})
    if running:
        raise AnswerIsNo(f"services are running ({', '.join(running)}): stop them before a restore")


async def _restore(bus: Bus, archive: Archive, replicas: int, steps: Steps) -> None:
    streams = {one.name: one for one in archive.contents.streams}
    if missing := [name for name in ORDER if name not in streams and name not in LATER]:
        raise BadInput(f"the backup has no stream {missing[0]}: nothing was restored")
    done: list[str] = []
    for name in ORDER:
        if name not in streams:
            continue
        try:
            await _restore_stream(bus, archive, streams[name], replicas, steps)
            if name == subjects.STREAM:
                for position in archive.contents.positions:
                    await snapshots.restore_position(bus, position, replicas=replicas)
        except AccessDenied:
            raise
        except AdmittanceError as error:
            raise _failure(name, error, streams[name], replicas, done) from None
        done.append(name)


async def _restore_stream(
    bus: Bus, archive: Archive, stream: StreamContents, replicas: int, steps: Steps
) -> None:
    steps.begin(stream.name, stream.parts)
    parts = _counted(archive.parts(stream), steps)
    last = await snapshots.restore_snapshot(
        bus, stream.config, stream.state, parts, replicas=replicas
    )
    steps.begin(f"{stream.name}, what came later")
    later: list[tuple[int, Outgoing]] = []
    for one in archive.since(stream):
        if not one.subject.startswith(ALIVE):
            later.append((one.sequence, Outgoing(one.subject, one.data, one.headers)))
        if len(later) >= WRITTEN_AT_ONCE:
            last = await snapshots.publish_at_sequences(bus, stream.name, last, later, later[-1][0])
            later = []
    if stream.name not in REPLACED:
        return
    end = stream.end + (LOST_MAX if stream.name == KV_LOG else 0)
    last = await snapshots.publish_at_sequences(bus, stream.name, last, later, end)
    if stream.name == KV_LOG:
        made = _encode(Restored(backup=archive.head.time, time=clock.now()))
        await bus.publish(bucket.put_message(subjects.RESTORED, made, expected=None))


def _failure(
    name: str, error: AdmittanceError, stream: StreamContents, replicas: int, done: list[str]
) -> AnswerIsNo:
    wanted = replicas or int(stream.config.get("num_replicas", 1))
    text = str(error)
    if wanted > 1 and ("replicas" in text or "peers" in text):
        text = (
            f"the servers cannot hold {wanted} replicas ({error}): `--replicas N` restores with "
            "another number"
        )
    undo = f"; delete {', '.join(done)} before you try again" if done else "; nothing was restored"
    return AnswerIsNo(f"stream {name}: {text}{undo}")


@contextmanager
def _source(path: str) -> Iterator[tuple[str, IO[bytes]]]:
    """The name and the bytes of the backup. Standard input is copied to a temporary file, since
    the file is checked before it is restored. Raises BadInput."""
    if path == STANDARD_INPUT:
        with tempfile.TemporaryFile() as copy:
            shutil.copyfileobj(sys.stdin.buffer, copy)
            yield "standard input", copy
        return
    try:
        file = open(path, "rb")  # noqa: SIM115, PTH123
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror or error}") from None
    with file:
        yield path, file
