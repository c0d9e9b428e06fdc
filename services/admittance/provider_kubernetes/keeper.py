"""Obtains, follows and frees: one provider for each class, one sight of the cluster for all.

Before anything is made it is said that it will be. So whatever is found in the cluster has a word
in the store, or nobody asks for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final

import msgspec
import structlog

from admittance.events.names import token
from admittance.events.subjects import PROVIDERS
from admittance.provider_kubernetes import objects
from admittance.provider_kubernetes.cluster import TEMPLATES, Away, Cluster, Denied
from admittance.provider_kubernetes.conditions import Seen, afterwards, answer, is_orphan
from admittance.provider_kubernetes.follow import Follower
from admittance.provider_kubernetes.making import Maker
from admittance.provider_kubernetes.objects import Asked
from admittance.provider_kubernetes.settings import KubeSettings
from admittance.providers import Accepted, Cancellation, Failed, Provider, Request, Status
from admittance.providers.service import Service
from admittance.providers.store import Said, Store
from admittance.runtime import bucket
from admittance.runtime.bus import Bus
from admittance.runtime.errors import AdmittanceError
from admittance.runtime.settings import Settings

AGAIN_SECONDS: Final = 0.2
COUNTS: Final = ("provisioned", "booking_expired")
"""What was said last where it is still of interest that capacity is lost."""

log = structlog.get_logger()


class Keeper:
    """What one process does; any number of them may run beside each other."""

    def __init__(
        self, bus: Bus, settings: Settings, kube: KubeSettings, cluster: Cluster, installation: str
    ) -> None:
        self._bus = bus
        self._settings = settings
        self._kube = kube
        self._cluster = cluster
        self._installation = installation
        self._maker = Maker(cluster, installation)
        self._follower = Follower(
            cluster,
            kube.only_namespace,
            objects.selector(installation),
            changed=self._on_changed,
            listed=self._on_listed,
            healthy=self._on_healthy,
            away_seconds=kube.away_seconds,
        )
        self._providers = {name: self._provider(name) for name in kube.classes}
        self._open: dict[str, asyncio.Event] = {}
        """Requests that are worked on here, and when their objects changed."""
        self._looking: set[str] = set()
        self._beside: set[asyncio.Task[None]] = set()
        self._to_sweep = asyncio.Event()
        self.ready = False

    def _provider(self, name: str) -> Provider:
        provider = Provider(name)
        provider.requested(self.obtain)
        provider.cancelled(self.free)
        return provider

    async def run(self, stop: asyncio.Event) -> None:
        """Provides until stop is set. Raises what ends one of its parts."""
        services = [
            asyncio.create_task(Service(one, self._bus, self._settings).run(stop), name=one.name)
            for one in self._providers.values()
        ]
        beside = [asyncio.create_task(work) for work in (self._follower.run(), self._sweeps())]
        tasks = [*services, *beside]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
            await asyncio.gather(*services)
        finally:
            self.ready = False
            for task in (*tasks, *self._beside):
                task.cancel()
            await asyncio.gather(*tasks, *self._beside, return_exceptions=True)

    # Obtaining and freeing. ---------------------------------------------------------------

    async def obtain(self, request: Request) -> Status:
        """Makes the objects, and waits for the condition that ends it."""
        asked = Asked(
            id=request.id,
            provisioning_class=request.provisioning_class,
            installation=self._installation,
            namespace=self._kube.namespace(request.namespace),
            workload=request.name,
            about=f"{request.namespace}/{request.name}",
        )
        begun = Accepted(f"{objects.KIND} {asked.namespace}/{asked.name} is being made")
        if request.last is None and not await request.say(begun):
            return Failed("it was taken back")
        self._open[request.id] = asyncio.Event()
        try:
            while True:
                made = await self._maker.make(asked, request)
                if isinstance(made, Failed):
                    return made
                self._follower.note(made)
                status = await self._until_end(request)
                if status is not None:
                    return status
                log.warning("made_again", id=request.id, name=asked.name)
        finally:
            del self._open[request.id]
            # What happens from now on is looked at by ourselves.
            self._on_changed(request.id)

    async def _until_end(self, request: Request) -> Status | None:
        """The answer that ends it; None: the object was deleted before there was one."""
        changed = self._open[request.id]
        names = [name for one in request.pod_sets for name in one.names]
        told = ""
        while True:
            changed.clear()
            seen = self._follower.seen.get(request.id)
            if seen is None:
                return None
            status = answer(seen, names)
            if status is not None and status.ends:
                return status
            if status is not None and status.message != told:
                told = status.message
                if not await request.say(status):
                    return Failed("it was taken back")
            try:
                await asyncio.wait_for(changed.wait(), self._kube.sweep_seconds)
            except TimeoutError:
                # A listing tells nothing of what went before it was known here.
                if not await self._maker.is_there(seen):
                    self._follower.gone(request.id)

    async def free(self, cancellation: Cancellation) -> None:
        """Deletes whatever there is of that request."""
        places = {self._kube.namespace(cancellation.namespace)}
        seen = self._follower.seen.get(cancellation.id)
        if seen is not None:
            # Made when the namespaces were mapped otherwise.
            places.add(seen.namespace)
        for namespace in places:
            await self._maker.delete(cancellation.id, namespace)
        log.info("freed", id=cancellation.id, reason=cancellation.reason)

    # What nobody here is waiting for. -----------------------------------------------------

    def _on_changed(self, request_id: str) -> None:
        changed = self._open.get(request_id)
        if changed is not None:
            changed.set()
        elif request_id not in self._looking and not self._follower.listing:
            self._looking.add(request_id)
            self._start(self._look(request_id))

    @property
    def trouble(self) -> str:
        """Why a class is not provided at the moment; "": all are."""
        return next((one.message for one in self._providers.values() if not one.active), "")

    def _on_listed(self) -> None:
        self._to_sweep.set()
        self.ready = True

    def _on_healthy(self, wrong: str) -> None:
        for provider in self._providers.values():
            if wrong and provider.message != wrong:
                provider.inactive(wrong)
            elif not wrong and not provider.active:
                provider.ready()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    async def _look(self, request_id: str) -> None:
        """An object has changed that nobody here works on: is it over, or nobody's?"""
        try:
            while request_id not in self._open:
                seen = self._follower.seen.get(request_id)
                if seen is None or seen.provisioning_class not in self._providers:
                    return
                try:
                    said = (await Store(self._bus, seen.provisioning_class).get(request_id)).said
                    if await self._judge(seen, said) and seen is self._follower.seen.get(
                        request_id
                    ):
                        return
                except AdmittanceError as error:
                    log.warning("not_looked", id=request_id, reason=str(error))
                await asyncio.sleep(AGAIN_SECONDS)
        finally:
            self._looking.discard(request_id)

    async def _judge(self, seen: Seen, said: Said | None) -> bool:
        """Does what is to be done about an object. False: its answer is still to be said, so look
        again."""
        if seen.id in self._open or seen.deleting:
            return True
        if is_orphan(said.status if said is not None else None):
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

    async def _sweeps(self) -> None:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._to_sweep.wait(), self._kube.sweep_seconds)
            self._to_sweep.clear()
            if not self.ready:
                continue
            try:
                await self._sweep()
            except (AdmittanceError, Away, Denied) as error:
                log.warning("not_swept", reason=str(error))
                await asyncio.sleep(AGAIN_SECONDS)

    async def _sweep(self) -> None:
        """Deletes what nobody asks for, and tells what is over, as the store knows it."""
        # Objects first, then words: what is there by now has had a word before.
        seen = [
            one for one in self._follower.seen.values() if one.provisioning_class in self._providers
        ]
        wanted = objects.selector(self._installation)
        templates, _ = await self._cluster.list(TEMPLATES, self._kube.only_namespace, wanted)
        said = {one.id: one for name in self._kube.classes for one in await self._said(name)}
        for one in seen:
            await self._judge(one, said.get(one.id))
        for template in templates:
            metadata = template["metadata"]
            annotations = metadata.get("annotations") or {}
            request_id = annotations.get(objects.REQUEST, "")
            known = said.get(request_id)
            if (
                annotations.get(objects.CLASS) in self._providers
                and not metadata.get("ownerReferences")
                and request_id not in self._open
                and is_orphan(known.status if known is not None else None)
            ):
                name, uid = metadata["name"], metadata["uid"]
                await self._cluster.delete(TEMPLATES, metadata["namespace"], name, uid)

    async def _said(self, provisioning_class: str) -> list[Said]:
        found = await bucket.read_all(self._bus, f"{token(provisioning_class)}.>", bucket=PROVIDERS)
        return [msgspec.json.decode(one.value or b"", type=Said) for one in found]
