"""Writes manifests to the bucket, all manifests of a write or none, and publishes a message about
each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec
import structlog

from admittance.control.controller import Controller
from admittance.control.manifests.object_messages import load_entry, message_about
from admittance.control.manifests.objects import StoredObject
from admittance.control.manifests.planned_writes import PlannedWrite, unneeded_objects
from admittance.events.requests.manifests import Applied
from admittance.runtime import clock
from admittance.runtime.bus import bucket
from admittance.runtime.bus.bus import BATCH_MAX, Bus, Outgoing
from admittance.runtime.bus.messages import with_retries
from admittance.runtime.errors import (
    AdmittanceError,
    BusRefused,
    BusUnavailable,
    StaleRevision,
    Superseded,
)
from admittance.runtime.tasks import raise_if_cancelled, set_within
from admittance.runtime.telemetry.logger import LogThrottle
from admittance.workload_controller.commit_writer import WriteGuard, publish_messages
from admittance.workload_controller.durables import Durables

log = structlog.get_logger()


class ManifestWriter:
    """Writes manifests for one leader of the workload-controller. ``on_written``: a function that
    is called after each write of manifests.

    Invariant: the caller of `write`, `remove` and `tidy` holds ``lock``.
    """

    def __init__(
        self,
        bus: Bus,
        controller: Controller,
        guard: WriteGuard,
        durables: Durables,
        on_written: Callable[[], None],
    ) -> None:
        self.controller = controller
        self.lock = asyncio.Lock()
        """The lock that is held while a batch of facts is committed and while manifests are
        written: the leader judges a decision of the scheduler by the queues that are in the bucket
        before the decision.
        """
        self.caught_up = asyncio.Event()
        """The event that is set when this leader has applied every fact that a previous leader may
        still be committing. Manifests are not written before: the previous leader may have judged a
        decision by the old manifests, and its put of the decision's workload may still arrive.
        """
        self._bus = bus
        self._guard = guard
        self._durables = durables
        self._on_written = on_written

    async def write(self, planned: list[PlannedWrite], *, user: str = "") -> list[Applied]:
        """Writes the planned objects; returns the result for each object, with the object's new
        revision. ``user``: the user that requests the write; "": unknown. Raises StaleRevision,
        BusRefused or BusUnavailable if the objects are not written.
        """
        results = [write.result for write in planned]
        todo = [(number, write) for number, write in enumerate(planned) if write.value is not None]
        await self._durables.before(write.object for _, write in todo)
        most = BATCH_MAX - 1  # one message of an atomic batch is the guard of the leader's epoch
        for start in range(0, len(todo), most):
            part = todo[start : start + most]
            puts = [
                bucket.put_message(write.key, write.value or b"", expected=write.expected)
                for _, write in part
            ]
            last = await self._guarded(puts, [write.key for _, write in part])
            statements = []
            written = []
            for offset, (number, write) in enumerate(part):
                revision = last - len(part) + 1 + offset
                results[number] = msgspec.structs.replace(write.result, revision=revision)
                kept = StoredObject(write.object, write.value or b"", revision)
                written.append((write, kept))
                before = self.controller.objects.get(write.key)
                statements.append(message_about(self.controller, kept, before=before, user=user))
            # The message about an object is published before the leader records the object: if
            # publishing fails, the task that follows the bucket finds the object unrecorded and
            # publishes the message.
            await publish_messages(self._bus, statements)
            for write, kept in written:
                if kept.revision > self.controller.objects.expected(write.key):
                    self.controller.keep_object(write.key, write.object, kept.value, kept.revision)
                by = {"user": user} if user else {}
                outcome = write.result.outcome
                log.info("object_applied", kind=write.kind, name=write.name, outcome=outcome, **by)
        self._on_written()
        return results

    async def remove(self, key: str, kept: StoredObject, *, user: str = "") -> None:
        """Deletes the stored object at the key. ``user``: the user that requests the deletion; "":
        unknown. Raises StaleRevision, BusRefused or BusUnavailable if the object is not deleted."""
        marker = bucket.delete_message(key, expected=kept.revision)
        revision = await self._guarded([marker], [key])
        gone = kept._replace(revision=revision)
        said = message_about(self.controller, gone, deleted=True, user=user)
        await publish_messages(self._bus, [said])
        self.controller.keep_object(key, None, b"", revision)
        log.info("object_deleted", key=key)
        self._on_written()
        await self.tidy()

    async def remove_value(self, key: str, revision: int, *, user: str = "") -> None:
        """Deletes the value at the key, readable or not, if ``revision`` is its last revision. The
        user and the exceptions are as for `remove`."""
        kept = self.controller.objects.get(key)
        if kept is not None and kept.revision == revision:
            await self.remove(key, kept, user=user)
            return
        written = await self._guarded([bucket.delete_message(key, expected=revision)], [key])
        said = load_entry(self.controller, key, None, written, {})
        if said is not None:
            await publish_messages(self._bus, [said])
        log.info("value_deleted", key=key, **({"user": user} if user else {}))
        self._on_written()
        await self.tidy()

    @property
    def has_pending_deletions(self) -> bool:
        """Whether some durable consumers must be deleted later, so that `tidy` must be called from
        time to time."""
        return self._durables.has_pending_deletions

    async def tidy(self) -> None:
        """Deletes durable consumers that no manifest requires."""
        try:
            await self._durables.after(self.controller.objects)
        except (BusRefused, BusUnavailable) as error:
            # The manifest stays deleted although the durable consumer for it could not be deleted;
            # the next call of `tidy` tries again.
            log.warning("durable_not_removed", error=str(error))

    async def _guarded(self, puts: list[Outgoing], keys: list[str]) -> int:
        """Writes manifests, all or none. If the write failed or got no answer, moves the guard, so
        that the bucket cannot store the write later, and loads the stored objects.
        """
        try:
            return await self._guard.write(puts)
        except (StaleRevision, BusUnavailable):
            await self._guard.take()
            for key in keys:
                entry = await with_retries(partial(bucket.get, self._bus, key))
                if entry is None:
                    continue
                said = load_entry(self.controller, key, entry.value, entry.revision, entry.headers)
                if said is not None:
                    await publish_messages(self._bus, [said])
            raise


PAUSE_SECONDS: Final = 0.25
"""Seconds between two searches for removable objects; a search is slow, because it counts the users
of a ClusterQueue over all workloads.
"""
TIDY_SECONDS: Final = 30.0
"""Seconds between two checks of durable consumers that outlive their manifests."""


class Deletions:
    """Removes objects that are marked for deletion and no longer used, while this instance
    leads."""

    def __init__(self, manifests: ManifestWriter) -> None:
        self._manifests = manifests
        self._dirty = asyncio.Event()

    def look(self) -> None:
        """Causes a search for removable objects; called after a change that may make an object
        marked for deletion removable."""
        if self._manifests.controller.objects.terminating:
            self._dirty.set()

    async def run(self) -> None:
        """Removes unused objects that are marked for deletion until cancelled, or until a leader
        with a newer epoch writes manifests."""
        await self._manifests.caught_up.wait()
        # A previous leader may have ended before it removed all marked objects.
        self.look()
        throttle = LogThrottle()
        while True:
            raise_if_cancelled()
            await set_within(self._dirty, TIDY_SECONDS)
            self._dirty.clear()
            try:
                await self._remove()
                await self._tidy()
                throttle = LogThrottle()
            except Superseded:
                return
            except AdmittanceError as error:
                if throttle.due(clock.monotonic()):
                    log.info("deletion_not_written", error=str(error))
                self._dirty.set()
            await asyncio.sleep(PAUSE_SECONDS)

    async def _remove(self) -> None:
        if not unneeded_objects(self._manifests.controller):
            return
        async with self._manifests.lock:
            # The search is repeated: when a queue is removed, AdmissionChecks that only this queue
            # named may become removable.
            while free := unneeded_objects(self._manifests.controller):
                for key, kept in free:
                    await self._manifests.remove(key, kept)

    async def _tidy(self) -> None:
        if self._manifests.has_pending_deletions:
            async with self._manifests.lock:
                await self._manifests.tidy()
