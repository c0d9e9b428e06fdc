"""A checkpoint: the workload-controller's state as rows, packed into parts. The module is pure.

Each row is a length (four bytes, big-endian) followed by MessagePack; all rows form one zlib
stream. The newest checkpoints are kept. Of older checkpoints one per week is kept, for as many
weeks as messages of the log.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from hashlib import blake2b
from typing import Final, NamedTuple

import msgspec

from admittance.control.controller import Controller
from admittance.control.manifests.objects import StoredObject
from admittance.control.workloads import VersionedWorkload
from admittance.events.reader import BROKEN, reason_of
from admittance.events.stored.checkpoints import CheckpointMade, CheckpointRow, RowKind
from admittance.workload import stored

PART_SIZE: Final = 512 * 1024
"""Bytes of one part of a checkpoint: well below the server's limit of 1 MiB for a message."""
NEWEST: Final = 6
WEEKS: Final = 6
_LENGTH: Final = 4

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(CheckpointRow).decode


class BadCheckpoint(ValueError):
    """Parts of a checkpoint are missing or broken; the text names them."""


class Snapshot(NamedTuple):
    """The workload-controller's state between two commits. The lists of a snapshot are shallow
    copies of immutable values, so a snapshot is cheap."""

    through: int
    revision: int
    floor: int
    workloads: list[tuple[str, VersionedWorkload]]
    finished: list[tuple[str, int]]
    objects: list[tuple[str, StoredObject]]
    markers: list[tuple[str, int]]
    journaled: int = 0

    def __len__(self) -> int:
        kept = len(self.workloads) + len(self.finished)
        return kept + len(self.objects) + len(self.markers)


def snapshot(controller: Controller, through: int, revision: int, journaled: int = 0) -> Snapshot:
    """Returns a snapshot of the controller's state. ``through``: sequence of the last applied fact.
    ``revision``: the newest bucket revision in the state. ``journaled``: sequence of the last
    journal message that the state contains."""
    objects = list(controller.objects)
    markers = list(controller.objects.markers())
    newest = max((*(kept.revision for _, kept in objects), *(at for _, at in markers)), default=0)
    return Snapshot(
        through,
        max(revision, newest),
        controller.manifests_floor,
        list(controller.workloads.items()),
        controller.workloads.finished(),
        objects,
        markers,
        journaled,
    )


def rows(taken: Snapshot) -> Iterator[CheckpointRow]:
    """Yields the rows of the snapshot."""
    for key, kept in taken.objects:
        yield CheckpointRow(key, kept.revision, 0, RowKind.VALUE, kept.value)
    for key, revision in taken.markers:
        yield CheckpointRow(key, revision, 0, RowKind.GONE)
    held = set()
    for key, known in taken.workloads:
        held.add(key)
        if known.workload is None:
            yield CheckpointRow(key, known.revision, known.fact, RowKind.GONE)
        else:
            value = stored.encode(known.workload)
            yield CheckpointRow(key, known.revision, known.fact, RowKind.VALUE, value)
    for key, fact in taken.finished:
        if key not in held:
            yield CheckpointRow(key, 0, fact, RowKind.FINISHED)


class Packer:
    """Packs rows of a checkpoint into parts in steps, so that the caller can pause between two
    steps."""

    def __init__(self) -> None:
        self._zlib = zlib.compressobj(level=1)
        self._packed = bytearray()
        self._digest = blake2b(digest_size=16)
        self.rows = 0
        self.size = 0

    def add(self, several: Sequence[CheckpointRow]) -> list[bytes]:
        """Adds rows to the checkpoint; returns the parts that are now full."""
        made = bytearray()
        for row in several:
            data = _encode(row)
            made += len(data).to_bytes(_LENGTH, "big")
            made += data
        self.rows += len(several)
        self._packed += self._zlib.compress(bytes(made))
        return self._cut(PART_SIZE)

    def end(self) -> list[bytes]:
        """Ends the checkpoint; returns the remaining parts."""
        self._packed += self._zlib.flush()
        return self._cut(1)

    def digest(self) -> str:
        """The digest of all parts so far."""
        return self._digest.hexdigest()

    def _cut(self, least: int) -> list[bytes]:
        parts = []
        while len(self._packed) >= least:
            part = bytes(self._packed[:PART_SIZE])
            del self._packed[:PART_SIZE]
            self._digest.update(part)
            self.size += len(part)
            parts.append(part)
        return parts


def unpack(made: CheckpointMade, parts: Sequence[bytes]) -> Iterator[CheckpointRow]:
    """The rows of a checkpoint. Raises BadCheckpoint before the first row if a part is missing or
    was changed."""
    digest = blake2b(digest_size=16)
    for part in parts:
        digest.update(part)
    if len(parts) != made.parts or digest.hexdigest() != made.digest:
        raise BadCheckpoint(
            f"checkpoint {made.id} has {len(parts)} of {made.parts} parts, or changed parts"
        )
    return _rows(made, parts)


def _rows(made: CheckpointMade, parts: Iterable[bytes]) -> Iterator[CheckpointRow]:
    unpacking = zlib.decompressobj()
    left = b""
    count = 0
    for part in parts:
        try:
            left += unpacking.decompress(part)
        except zlib.error as error:
            raise BadCheckpoint(f"checkpoint {made.id} cannot be unpacked: {error}") from None
        at = 0
        while len(left) >= at + _LENGTH:
            end = at + _LENGTH + int.from_bytes(left[at : at + _LENGTH], "big")
            if len(left) < end:
                break
            try:
                yield _decode(left[at + _LENGTH : end])
            except BROKEN as error:
                why = reason_of(error)
                raise BadCheckpoint(f"checkpoint {made.id} cannot be read: {why}") from None
            count += 1
            at = end
        left = left[at:]
    if count != made.rows or left:
        raise BadCheckpoint(f"checkpoint {made.id} has {count} of {made.rows} rows")


def superfluous(made: Sequence[tuple[str, datetime]], now: datetime) -> list[str]:
    """The ids of checkpoints that are to be deleted. ``made``: id and time of each checkpoint,
    oldest first."""
    older = made[:-NEWEST] if len(made) > NEWEST else []
    gone: list[str] = []
    weeks: set[int] = set()
    for identity, time in older:
        week = (now - time).days // 7
        # Weeks are counted from a fixed date, so the oldest checkpoint of a week stays the oldest.
        # That checkpoint is kept until it is WEEKS weeks old.
        stamp = int(time.timestamp()) // (7 * 86_400)
        if week >= WEEKS or stamp in weeks:
            gone.append(identity)
        weeks.add(stamp)
    return gone
