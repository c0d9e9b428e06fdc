"""What is deleted while others need it goes as soon as nobody does any more.

Such an object is marked (``metadata.deletionTimestamp``) and stays as it is: a check or a flavor
until no ClusterQueue names it, a ClusterQueue, which takes nobody in from then on, until no
workload holds its quota. Applying it again takes the mark off.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from admittance.runtime.ending import end
from admittance.runtime.errors import AdmittanceError, Superseded
from admittance.runtime.waiting import set_within
from admittance.workload_controller.marks import unneeded

if TYPE_CHECKING:
    from admittance.workload_controller.decide import Controller
    from admittance.workload_controller.shell import Active

PAUSE_SECONDS: Final = 0.25
"""Between two looks: a ClusterQueue's users are counted over all workloads."""
TIDY_SECONDS: Final = 30.0
"""Between two looks at durables that have to outlive their manifests."""

log = structlog.get_logger()


class Deletions:
    """Removes what is marked, for one leader, once nobody needs it."""

    def __init__(self, active: Active) -> None:
        self._active = active
        self._dirty = asyncio.Event()
        self.task = asyncio.create_task(self._keep(), name="deletions")

    def look(self) -> None:
        """Something changed that a marked object may have waited for."""
        if self._controller.objects.terminating:
            self._dirty.set()

    async def stop(self) -> None:
        """Removes nothing any more."""
        # What it raised instead has ended the leader.
        await asyncio.gather(end(self.task), return_exceptions=True)

    @property
    def _controller(self) -> Controller:
        assert self._active.controller is not None, "a leader has read the bucket"
        return self._active.controller

    async def _keep(self) -> None:
        await self._active.caught_up.wait()
        # A predecessor may have died in the middle of it.
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
        if not unneeded(self._controller):
            return
        async with self._active.lock:
            # A queue that goes may have been the last one that named a check.
            while free := unneeded(self._controller):
                for key, kept in free:
                    await self._active.manifests.remove(key, kept)

    async def _tidy(self) -> None:
        if self._active.manifests.owes:
            async with self._active.lock:
                await self._active.manifests.tidy()
