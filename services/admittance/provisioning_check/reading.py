"""Reads the bucket into the picture: objects at once, workloads once somebody asks for capacity."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec
import structlog

from admittance.api.manifest import ManifestError, decode_object
from admittance.events.names import plain
from admittance.events.subjects import CAPACITY
from admittance.provisioning.records import Record
from admittance.provisioning_check.acts import Step
from admittance.provisioning_check.picture import Picture
from admittance.provisioning_check.saying import key_of
from admittance.runtime import bucket
from admittance.runtime.bucket import BucketReader, Entry
from admittance.runtime.bus import Bus
from admittance.workload import stored

PATTERNS: Final = (
    "admissioncheck.>",
    "provisioningrequestconfig.>",
    "flavor.>",
    f"{CAPACITY}.>",
)

log = structlog.get_logger()


class Reading:
    """``changed`` is called after each batch, ``objects_changed`` after each object that checks and
    configurations consist of. ``needed``: there are checks of ours, or requests, so that workloads
    are of interest; ``loaded``: all that there was at the start is in the picture."""

    def __init__(
        self,
        bus: Bus,
        picture: Picture,
        changed: Callable[[], None],
        objects_changed: Callable[[], None],
    ) -> None:
        self._bus = bus
        self._picture = picture
        self._changed = changed
        self._objects_changed = objects_changed
        self.ready = False
        self.needed = asyncio.Event()
        self.loaded = asyncio.Event()

    async def objects(self) -> None:
        """Follows all but workloads, until cancelled."""
        reader = BucketReader(self._bus, PATTERNS)
        try:
            async for entries in reader.batches():
                for entry in entries:
                    self._read(entry)
                if reader.loaded.is_set():
                    # Where nobody asks for capacity, workloads are not even read.
                    self.ready = True
                    if self._picture.checks or self._picture.records:
                        self.needed.set()
                self._changed()
        finally:
            await reader.close()

    async def workloads(self) -> None:
        """Follows workloads, until cancelled."""
        await self.needed.wait()
        reader = BucketReader(self._bus, ("workload.>",))
        try:
            async for entries in reader.batches():
                for entry in entries:
                    self._read(entry)
                if reader.loaded.is_set() and not self.loaded.is_set():
                    self.loaded.set()
                    log.info("serving", requests=len(self._picture.records))
                self._changed()
        finally:
            await reader.close()

    async def again(self, step: Step) -> None:
        """Reads what is at the key of a step that was refused: somebody else wrote it, or it has a
        marker that we did not know of. Raises Unavailable or Refused."""
        assert step.write is not None, "it was refused"
        name = step.slot.namespace, step.write.name
        found = await bucket.get(self._bus, key_of(step.slot, step.write))
        revision = found.revision if found is not None else 0
        record = _record_of(found) if found is not None else None
        self._picture.record(name, record, revision)
        if record is None:
            self._picture.marked(step.slot, step.write.name, revision)

    def _read(self, entry: Entry) -> None:
        kind, _, tail = entry.key.partition(".")
        try:
            names = [plain(one) for one in tail.split(".")]
            if kind == "workload":
                workload = None if entry.value is None else stored.decode(entry.value)
                self._picture.workload((names[0], names[1]), workload)
            elif kind == CAPACITY:
                self._picture.record((names[0], names[1]), _record_of(entry), entry.revision)
            else:
                self._read_object(kind, names[0], entry)
        except (msgspec.MsgspecError, ManifestError, ValueError, IndexError) as error:
            # Written by hand.
            log.warning("unreadable", key=entry.key, error=str(error))

    def _read_object(self, kind: str, name: str, entry: Entry) -> None:
        found: Any = None if entry.value is None else decode_object(entry.value).manifest
        match kind:
            case "admissioncheck":
                self._picture.check(name, found)
            case "provisioningrequestconfig":
                self._picture.config(name, found)
            case "flavor":
                self._picture.flavor(name, found)
        self._objects_changed()


def _record_of(entry: Entry) -> Record | None:
    """The record there; None: there is none, or something else was put there by hand, which is as
    if somebody had deleted it."""
    if entry.value is None:
        return None
    try:
        return msgspec.json.decode(entry.value, type=Record)
    except msgspec.MsgspecError as error:
        log.warning("unreadable", key=entry.key, error=str(error))
        return None
