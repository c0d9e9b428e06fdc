"""Writes manifests: all or none, and publishes a message about each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import msgspec
import structlog

from admittance.control.decide import Controller
from admittance.control.manifest_changes import learn, statement
from admittance.control.objects import PlannedWrite, StoredObject
from admittance.events.applying import Applied
from admittance.runtime.bus import bucket
from admittance.runtime.bus.bus import BATCH_MAX, Bus, Outgoing
from admittance.runtime.bus.consume import persist
from admittance.runtime.errors import Refused, StaleRevision, Unavailable
from admittance.workload_controller.durables import Durables
from admittance.workload_controller.guard import Guard
from admittance.workload_controller.performing import state

log = structlog.get_logger()


class ManifestWriter:
    """Writes the manifests of one leader. ``on_written`` is called after each write.

    Invariant: the caller of `write`, `remove` and `tidy` holds ``lock``.
    """

    def __init__(
        self,
        bus: Bus,
        controller: Controller,
        guard: Guard,
        durables: Durables,
        on_written: Callable[[], None],
    ) -> None:
        self.controller = controller
        self.lock = asyncio.Lock()
        """Held while a batch of facts is committed and while manifests are written: a decision is
        judged by the queues that are in the bucket before it."""
        self.caught_up = asyncio.Event()
        """Set when every fact that a previous leader may be committing is applied. Manifests are
        not written earlier: the previous leader may have judged a decision by the old manifests,
        and its put may still arrive."""
        self._bus = bus
        self._guard = guard
        self._durables = durables
        self._on_written = on_written

    async def write(self, planned: list[PlannedWrite]) -> list[Applied]:
        """Writes the planned objects; returns the result of each, with its revision. Raises
        StaleRevision, Refused or Unavailable."""
        results = [one.told for one in planned]
        todo = [(number, one) for number, one in enumerate(planned) if one.value is not None]
        await self._durables.before(one.object for _, one in todo)
        most = BATCH_MAX - 1  # and the guard
        for start in range(0, len(todo), most):
            part = todo[start : start + most]
            puts = [
                bucket.put_message(one.key, one.value or b"", expected=one.expected)
                for _, one in part
            ]
            last = await self._guarded(puts, [one.key for _, one in part])
            statements = []
            written = []
            for offset, (number, one) in enumerate(part):
                revision = last - len(part) + 1 + offset
                results[number] = msgspec.structs.replace(one.told, revision=revision)
                kept = StoredObject(one.object, one.value or b"", revision)
                written.append((one, kept))
                before = self.controller.objects.get(one.key)
                statements.append(statement(self.controller, kept, before=before))
            # Publish before recording it: if publishing fails, the follower of the bucket finds the
            # object unknown and publishes its message.
            await state(self._bus, statements)
            for one, kept in written:
                if kept.revision > self.controller.objects.expected(one.key):
                    self.controller.keep_object(one.key, one.object, kept.value, kept.revision)
                log.info("object_applied", kind=one.kind, name=one.name, outcome=one.told.outcome)
        self._on_written()
        return results

    async def remove(self, key: str, kept: StoredObject) -> None:
        """Deletes the object at key. Raises the same errors as `write`."""
        marker = bucket.delete_message(key, expected=kept.revision)
        revision = await self._guarded([marker], [key])
        said = statement(self.controller, kept._replace(revision=revision), deleted=True)
        await state(self._bus, [said])
        self.controller.keep_object(key, None, b"", revision)
        log.info("object_deleted", key=key)
        self._on_written()
        await self.tidy()

    @property
    def owes(self) -> bool:
        """Whether durables remain to be deleted later: then call `tidy` from time to time."""
        return self._durables.owes

    async def tidy(self) -> None:
        """Deletes durables that no manifest requires."""
        try:
            await self._durables.after(self.controller.objects)
        except (Refused, Unavailable) as error:
            # The object is deleted anyway; the next call finds the remaining durable.
            log.warning("durable_not_removed", error=str(error))

    async def _guarded(self, puts: list[Outgoing], keys: list[str]) -> int:
        """Writes manifests, all or none. If the write failed or was not answered, loads the stored
        objects and moves the guard, so that the write cannot be stored later."""
        try:
            return await self._guard.write(puts)
        except (StaleRevision, Unavailable):
            await self._guard.take()
            for key in keys:
                entry = await persist(partial(bucket.get, self._bus, key))
                if entry is None:
                    continue
                said = learn(self.controller, key, entry.value, entry.revision, entry.headers)
                if said is not None:
                    await state(self._bus, [said])
            raise
