"""Removes objects that were deleted while in use, once nothing uses them.

Such an object is marked (``metadata.deletionTimestamp``). A check or a flavor stays until no
ClusterQueue names it. A marked ClusterQueue admits no workload and stays until no workload holds
its quota. Applying the object again removes the mark.
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Final

import structlog
from msgspec.structs import replace

from admittance.control.manifest_changes import unneeded
from admittance.events.applying import DeleteReply
from admittance.events.codec import encode
from admittance.events.reading import Unreadable
from admittance.events.subjects import CAPACITY, object_key
from admittance.provisioning.records import read_record
from admittance.runtime.bus import bucket
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import AdmittanceError, StaleRevision, Superseded
from admittance.runtime.tasks import end, set_within
from admittance.workload_controller.manifests import ManifestWriter

PAUSE_SECONDS: Final = 0.25
"""Between two searches: the users of a ClusterQueue are counted over all workloads."""
TIDY_SECONDS: Final = 30.0
"""Between two checks of durables that outlive their manifests."""

log = structlog.get_logger()


class Deletions:
    """Removes marked objects while this instance leads."""

    def __init__(self, manifests: ManifestWriter) -> None:
        self._manifests = manifests
        self._dirty = asyncio.Event()
        self.task = asyncio.create_task(self._keep(), name="deletions")

    def look(self) -> None:
        """Called after a change that may free a marked object."""
        if self._manifests.controller.objects.terminating:
            self._dirty.set()

    async def stop(self) -> None:
        """Stops removing objects."""
        # An error of the task has already ended the leader.
        await asyncio.gather(end(self.task), return_exceptions=True)

    async def _keep(self) -> None:
        await self._manifests.caught_up.wait()
        # A previous leader may have ended before it removed them all.
        self.look()
        while True:
            await set_within(self._dirty, TIDY_SECONDS)
            self._dirty.clear()
            try:
                await self._remove()
                await self._tidy()
            except Superseded:
                return
            except AdmittanceError as error:
                log.info("deletion_not_written", error=str(error))
                self._dirty.set()
            await asyncio.sleep(PAUSE_SECONDS)

    async def _remove(self) -> None:
        if not unneeded(self._manifests.controller):
            return
        async with self._manifests.lock:
            # Removing a queue can free the checks that only it named.
            while free := unneeded(self._manifests.controller):
                for key, kept in free:
                    await self._manifests.remove(key, kept)

    async def _tidy(self) -> None:
        if self._manifests.owes:
            async with self._manifests.lock:
                await self._manifests.tidy()


KINDS: Final = frozenset({CAPACITY, f"{CAPACITY}.autoscaling.x-k8s.io"})
"""Spellings of the kind of a provisioning request, in lower case."""
TIMES: Final = 10
"""Attempts, since the provisioning check writes the same records."""
TAKEN_BACK: Final = "provisioning-check takes it back first"


async def delete_request(bus: Bus, namespace: str, name: str, now: datetime) -> DeleteReply:
    """Marks the request of that name. Raises Unavailable, Refused."""
    key = object_key(CAPACITY, namespace, name)
    for _ in range(TIMES):
        entry = await bucket.get(bus, key)
        if entry is None or entry.value is None:
            return DeleteReply(outcome="absent")
        try:
            record = read_record(key, entry.value)
        except Unreadable:
            # Written by another program, so it is deleted at once.
            message, outcome = bucket.delete_message(key, expected=entry.revision), "deleted"
        else:
            if record.metadata.deletion_timestamp is not None:
                return DeleteReply(outcome="deferred", error=TAKEN_BACK)
            meta = replace(record.metadata, deletion_timestamp=now)
            going = replace(record, metadata=meta)
            message = bucket.put_message(key, encode(going), expected=entry.revision)
            outcome = "deferred"
        try:
            await bus.publish(message)
        except StaleRevision:
            continue
        log.info("request_deleted", namespace=namespace, name=name)
        return DeleteReply(outcome=outcome, error=TAKEN_BACK if outcome == "deferred" else "")
    return DeleteReply(error="it changes all the time: delete again")
