"""Handles objects without a request in progress here: reports the end of provisioned ones, deletes
orphans.

One listing of each kind serves all objects."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final

import structlog

from admittance.provider_kubernetes import objects
from admittance.provider_kubernetes.cluster import REQUESTS, TEMPLATES, Away, Cluster, Denied
from admittance.provider_kubernetes.follower import Follower
from admittance.provider_kubernetes.object_maker import Maker
from admittance.provider_kubernetes.objects import Seen, afterwards
from admittance.provider_kubernetes.settings import KubeSettings
from admittance.providers import Provider
from admittance.providers.builtin import CLASS, INSTALLATION, REQUEST, is_orphan, stored_requests
from admittance.providers.status_store import StatusStore, StoredStatus
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import AdmittanceError
from admittance.runtime.tasks import set_within

AGAIN_SECONDS: Final = 0.2
COUNTS: Final = ("provisioned", "booking_expired")
"""Last statuses after which a loss of capacity must be reported."""

log = structlog.get_logger()


class Sweeper:
    """``open_``: requests in progress here; they handle their objects themselves."""

    def __init__(
        self,
        bus: Bus,
        kube: KubeSettings,
        cluster: Cluster,
        installation: str,
        maker: Maker,
        follower: Follower,
        providers: Mapping[str, Provider],
        open_: Collection[str],
    ) -> None:
        self._bus = bus
        self._installation = installation
        self._kube = kube
        self._cluster = cluster
        self._maker = maker
        self._follower = follower
        self._providers = providers
        self._open = open_
        self._looking: set[str] = set()
        self._beside: set[asyncio.Task[None]] = set()
        self._due = asyncio.Event()
        self._began = False
        self._told = False

    def begin(self) -> None:
        """The objects were listed again."""
        self._began = True
        self._due.set()

    async def run(self) -> None:
        """Sweeps periodically, until cancelled."""
        while True:
            await set_within(self._due, self._kube.sweep_seconds)
            self._due.clear()
            if not self._began:
                continue
            try:
                await self._sweep()
                if not self._told:
                    await self._tell_of_others()
            except (AdmittanceError, Away, Denied) as error:
                log.warning("not_swept", reason=str(error))
                await asyncio.sleep(AGAIN_SECONDS)

    async def close(self) -> None:
        """Stops all work."""
        for task in self._beside:
            task.cancel()
        await asyncio.gather(*self._beside, return_exceptions=True)

    def look(self, request_id: str) -> None:
        """The request's object changed: checks whether it has ended or is an orphan."""
        if request_id not in self._looking:
            self._looking.add(request_id)
            self._start(self._look(request_id))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    async def _look(self, request_id: str) -> None:
        try:
            while request_id not in self._open:
                seen = self._follower.seen.get(request_id)
                if seen is None or seen.provisioning_class not in self._providers:
                    return
                try:
                    said = (
                        await StatusStore(self._bus, seen.provisioning_class).get(request_id)
                    ).status
                    if await self._judge(seen, said) and seen is self._follower.seen.get(
                        request_id
                    ):
                        return
                except AdmittanceError as error:
                    log.warning("not_looked", id=request_id, reason=str(error))
                await asyncio.sleep(AGAIN_SECONDS)
        finally:
            self._looking.discard(request_id)

    async def _judge(self, seen: Seen, said: StoredStatus | None) -> bool:
        """Reports the end of an object, or deletes an orphan. False: its previous answer is not
        stored yet, so check again."""
        if seen.id in self._open or seen.deleting:
            return True
        if is_orphan(said):
            log.info("orphan", id=seen.id, name=seen.name)
            await self._delete(seen.id, seen.namespace)
            return True
        over = afterwards(seen)
        if over is None or said is None or said.status == over.word:
            return True
        if said.status in COUNTS:
            with suppress(RuntimeError):  # not running yet, or no more
                await self._providers[seen.provisioning_class].report(seen.id, over)
                return True
        return said.status != "accepted"

    async def _delete(self, request_id: str, namespace: str) -> None:
        try:
            await self._maker.delete(request_id, namespace)
        except Denied as error:
            log.error("not_deleted", id=request_id, reason=str(error))

    async def _tell_of_others(self) -> None:
        """Logs objects of other installations once. They are left alone, because that installation
        may still run; only an operator knows."""
        wanted = objects.selector_of_others(self._installation)
        found, _ = await self._cluster.list(REQUESTS, self._kube.only_namespace, wanted)
        self._told = True
        others = Counter(one["metadata"]["labels"][INSTALLATION] for one in found)
        if others:
            log.info("objects_of_others", ours=self._installation, others=dict(others))

    async def _find_gone(self, seen: Collection[Seen], there: Collection[str]) -> None:
        """Notes objects that were deleted unseen by the watch. ``seen``: known before the listing;
        ``there``: the listed uids."""
        for one in seen:
            lost = one.uid not in there and self._follower.seen.get(one.id) is one
            if lost and not await self._maker.is_there(one):
                self._follower.gone(one.id)

    async def _sweep(self) -> None:
        """Deletes orphans, reports ended objects, and notes objects deleted unseen."""
        seen = list(self._follower.seen.values())
        wanted = objects.selector(self._installation)
        requests, _ = await self._cluster.list(REQUESTS, self._kube.only_namespace, wanted)
        await self._find_gone(seen, {one["metadata"]["uid"] for one in requests})
        # Objects are taken before the statuses are read, so each live one has a status.
        mine = [
            one for one in self._follower.seen.values() if one.provisioning_class in self._providers
        ]
        templates, _ = await self._cluster.list(TEMPLATES, self._kube.only_namespace, wanted)
        asked = await stored_requests(self._bus, self._providers)
        said = {id: one.status for id, one in asked.items()}
        for one in mine:
            await self._judge(one, said.get(one.id))
        for template in templates:
            metadata = template["metadata"]
            annotations = metadata.get("annotations") or {}
            request_id = annotations.get(REQUEST, "")
            if (
                annotations.get(CLASS) in self._providers
                and not metadata.get("ownerReferences")
                and request_id not in self._open
                and is_orphan(said.get(request_id))
            ):
                await self._delete_template(metadata)

    async def _delete_template(self, metadata: Mapping[str, Any]) -> None:
        name, uid = metadata["name"], metadata["uid"]
        try:
            await self._cluster.delete(TEMPLATES, metadata["namespace"], name, uid)
        except Denied as error:
            # Templates in other namespaces may still be deletable.
            log.error("not_deleted", template=name, reason=str(error))
