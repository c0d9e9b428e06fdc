"""Makes all streams of a deployment anew from a backup."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import IO, Final

import msgspec

from admittance.backup.archive import SKIPPED_MAX, Archive, StreamContents, check
from admittance.backup.s2 import Corrupt
from admittance.backup.snapshot_reader import read_snapshot
from admittance.backup.taking import REPLACED
from admittance.client.errors import BadInput, RequestFailed
from admittance.client.health import health
from admittance.events import subjects
from admittance.events.system import Restored
from admittance.runtime import clock
from admittance.runtime.bus import bucket
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.bus.streams import KV_CLAIMS, KV_LOG, KV_PROVIDERS
from admittance.runtime.errors import AccessDenied, AdmittanceError, SetupError
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
revisions takes about a second.
"""

_encode = msgspec.json.Encoder().encode


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


async def refuse_used_server(bus: Bus, shown_url: str) -> None:
    """Raises RequestFailed if the server has streams of Admittance, or services."""
    streams = (await bus.api("STREAM.NAMES", {})).get("streams") or []
    # A restored bucket gives other revisions than the one of which this stream has the history.
    existing = [name for name in (*ORDER, subjects.HISTORY) if name in streams]
    if existing:
        raise RequestFailed(
            f"{shown_url} has the streams {', '.join(existing)}: restore into an empty "
            "server, or stop all services and delete them with `nats stream rm NAME`"
        )
    running = sorted({answer.service for answer in await health(bus)})
    if running:
        raise RequestFailed(
            f"services are running ({', '.join(running)}): stop them before a restore"
        )


async def restore_streams(bus: Bus, archive: Archive, replicas: int, steps: Steps) -> None:
    """Makes all streams of the backup. ``replicas``: of each stream; 0: as in the backup."""
    streams = {stream.name: stream for stream in archive.contents.streams}
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
    if stream.end - last > SKIPPED_MAX:
        raise SetupError(f"its snapshot ends at {last:,}, and the backup at {stream.end:,}")
    steps.begin(f"{stream.name}, what came later")
    later: list[tuple[int, Outgoing]] = []
    for message in archive.since(stream):
        if not message.subject.startswith(ALIVE):
            later.append(
                (message.sequence, Outgoing(message.subject, message.data, message.headers))
            )
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
) -> RequestFailed:
    wanted = replicas or int(stream.config.get("num_replicas", 1))
    text = str(error)
    if wanted > 1 and ("replicas" in text or "peers" in text):
        text = (
            f"the servers cannot hold {wanted} replicas ({error}): `--replicas N` restores with "
            "another number"
        )
    undo = f"; delete {', '.join(done)} before you try again" if done else "; nothing was restored"
    return RequestFailed(f"stream {name}: {text}{undo}")
