"""Handles the objects of requests that this instance is not working on: reports the end of
provisioned capacity, and deletes orphans.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

import structlog

from admittance.provider_kubernetes import objects
from admittance.provider_kubernetes.cluster import (
    REQUESTS,
    STEPS,
    TEMPLATES,
    Cluster,
    ClusterDenied,
    ClusterUnavailable,
)
from admittance.provider_kubernetes.object_maker import ObjectMaker
from admittance.provider_kubernetes.object_watch import ObjectWatch
from admittance.provider_kubernetes.objects import Seen, end_of
from admittance.provider_kubernetes.settings import KubeSettings
from admittance.providers import Provider
from admittance.providers.builtin import (
    CLASS,
    INSTALLATION,
    REQUEST,
    OrphanSweep,
    OtherInstallations,
)
from admittance.providers.status_store import StatusStore, StoredStatus
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import AdmittanceError
from admittance.runtime.tasks import BackgroundTasks, set_within
from admittance.runtime.telemetry.object_faults import faults

AGAIN_SECONDS: Final = 0.2
HOLDING: Final = ("provisioned", "booking_expired")
"""The stored statuses of a request after which a loss of the request's capacity must still be
reported."""

log = structlog.get_logger()


class ObjectSweeper:
    """Reports the end of provisioned capacity, and deletes orphans. ``in_progress``: the ids of the
    requests that this instance is working on; the sweeper leaves their objects alone.
    """

    def __init__(
        self,
        bus: Bus,
        kube: KubeSettings,
        cluster: Cluster,
        installation: str,
        maker: ObjectMaker,
        watch: ObjectWatch,
        providers: Mapping[str, Provider],
        in_progress: Collection[str],
    ) -> None:
        self._bus = bus
        self._installation = installation
        self._kube = kube
        self._cluster = cluster
        self._maker = maker
        self._watch = watch
        self._providers = providers
        self._in_progress = in_progress
        self._orphans = OrphanSweep(bus, STEPS, providers, in_progress)
        self._others = OtherInstallations(installation, "objects_of_others")
        self._looking: set[str] = set()
        self._tasks = BackgroundTasks()
        self._due = asyncio.Event()
        self._is_listed = False
        self._others_logged = False

    def begin(self) -> None:
        """Starts the next sweep now; called after the objects were listed again."""
        self._is_listed = True
        self._due.set()

    async def run(self) -> None:
        """Sweeps the objects of the cluster periodically, until cancelled."""
        while True:
            await set_within(self._due, self._kube.sweep_seconds)
            self._due.clear()
            if not self._is_listed:
                continue
            try:
                await self._sweep()
                if not self._others_logged:
                    await self._log_others()
            except (AdmittanceError, ClusterUnavailable, ClusterDenied) as error:
                log.warning("sweep_failed", reason=str(error))
                await asyncio.sleep(AGAIN_SECONDS)
            except Exception as error:
                faults.record(STEPS.service, "sweep objects", "the cluster", error)

    async def close(self) -> None:
        """Stops all work of the sweeper."""
        await self._tasks.end()

    def look(self, request_id: str) -> None:
        """Checks, after the request's object has changed, whether the request's capacity has ended
        and whether the object is an orphan."""
        if request_id not in self._looking:
            self._looking.add(request_id)
            self._tasks.start(self._look(request_id))

    async def _look(self, request_id: str) -> None:
        try:
            while request_id not in self._in_progress:
                seen = self._watch.seen.get(request_id)
                if seen is None or seen.provisioning_class not in self._providers:
                    return
                try:
                    store = StatusStore(self._bus, seen.provisioning_class)
                    status = (await store.get(request_id)).status
                    if not seen.deleting and self._orphans.is_orphan(request_id, status):
                        await self._delete_orphan(seen)
                    is_settled = await self._report_end(seen, status)
                    if is_settled and seen is self._watch.seen.get(request_id):
                        return
                except AdmittanceError as error:
                    log.warning("look_failed", id=request_id, reason=str(error))
                await asyncio.sleep(AGAIN_SECONDS)
        except Exception as error:
            faults.record(STEPS.service, "look at an object", f"request {request_id}", error)
        finally:
            self._looking.discard(request_id)

    async def _report_end(self, seen: Seen, status: StoredStatus | None) -> bool:
        """Reports the end of the request's capacity if the object shows the end. Returns False if
        the previous answer to the request is not stored yet, so the object must be checked again.
        """
        if seen.id in self._in_progress or seen.deleting:
            return True
        over = end_of(seen)
        if over is None or status is None or status.status == over.word:
            return True
        if status.status in HOLDING:
            # A RuntimeError means that the provider of the object's class has not started, or has
            # stopped.
            with suppress(RuntimeError):
                await self._providers[seen.provisioning_class].report(seen.id, over)
                return True
        return status.status != "accepted"

    async def _delete_orphan(self, seen: Seen) -> None:
        log.info("orphan", id=seen.id, name=seen.name)
        try:
            await self._maker.delete(seen.id, seen.namespace)
        except ClusterDenied as error:
            log.error("not_deleted", id=seen.id, reason=str(error))

    async def _log_others(self) -> None:
        wanted = objects.selector_of_others(self._installation)
        listed, _ = await self._cluster.list(REQUESTS, self._kube.only_namespace, wanted)
        self._others_logged = True
        self._others.log(manifest["metadata"]["labels"][INSTALLATION] for manifest in listed)

    async def _find_deleted(self, seen: Collection[Seen], listed: Collection[str]) -> None:
        """Tells the watch which objects were deleted from the cluster without an event. ``seen``:
        the objects that the watch knew before the last listing; ``listed``: the uids of the objects
        in that listing.
        """
        for each in seen:
            if each.uid not in listed and self._watch.seen.get(each.id) is each:
                await STEPS.attempt("look for an object", each.id, self._find_out(each))

    async def _find_out(self, unlisted: Seen) -> None:
        if not await self._maker.is_there(unlisted):
            self._watch.gone(unlisted.id)

    async def _sweep(self) -> None:
        seen = list(self._watch.seen.values())
        wanted = objects.selector(self._installation)
        requests, _ = await self._cluster.list(REQUESTS, self._kube.only_namespace, wanted)
        await self._find_deleted(seen, {request["metadata"]["uid"] for request in requests})
        mine = [
            each for each in self._watch.seen.values() if each.provisioning_class in self._providers
        ]
        templates, _ = await self._cluster.list(TEMPLATES, self._kube.only_namespace, wanted)
        listed = [
            (each.id, partial(self._delete_orphan, each)) for each in mine if not each.deleting
        ]
        for template in templates:
            metadata = template["metadata"]
            annotations = metadata.get("annotations") or {}
            # A template with an owner is skipped: the cluster deletes it together with its owner.
            if annotations.get(CLASS) in self._providers and not metadata.get("ownerReferences"):
                request_id = annotations.get(REQUEST, "")
                listed.append((request_id, partial(self._delete_template, metadata)))
        stored = await self._orphans.sweep(listed)
        for each in mine:
            kept = stored.get(each.id)
            work = self._report_end(each, kept.status if kept is not None else None)
            await STEPS.attempt("report the end of capacity", each.id, work)

    async def _delete_template(self, metadata: Mapping[str, Any]) -> None:
        name, uid = metadata["name"], metadata["uid"]
        try:
            await self._cluster.delete(TEMPLATES, metadata["namespace"], name, uid)
        except ClusterDenied as error:
            # The sweep continues after the error, because templates in other namespaces can still
            # be deleted.
            log.error("not_deleted", template=name, reason=str(error))
