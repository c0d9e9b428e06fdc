"""Makes, watches and deletes objects in the cluster for requests for capacity. The service has one
provider for each provisioning class, and one watch of the cluster for all classes.

All instances of the service are active. The instance that receives a request makes the request's
object. All instances watch the objects; an answer that several instances give is published once. A
request gets the status Accepted before its object is made, so the store of requests has the request
of every live object.
"""

from __future__ import annotations

import asyncio
import os
from typing import Final

import structlog

from admittance.events.requests.services import HealthReply
from admittance.provider_kubernetes import objects
from admittance.provider_kubernetes.cluster import STEPS, Cluster, connect
from admittance.provider_kubernetes.object_maker import ClusterRights, ObjectMaker
from admittance.provider_kubernetes.object_watch import ObjectWatch
from admittance.provider_kubernetes.objects import ObjectIdentity, status_of
from admittance.provider_kubernetes.settings import KubeSettings
from admittance.provider_kubernetes.sweeper import ObjectSweeper
from admittance.providers import Accepted, Cancellation, Failed, Request, Status
from admittance.providers.builtin import installation, provider_of
from admittance.providers.health import InactiveReasons
from admittance.providers.provider import ProviderService
from admittance.runtime.bus.bus import Bus
from admittance.runtime.process import health
from admittance.runtime.process.settings import Settings
from admittance.runtime.tasks import end_tasks

WATCH: Final = "watch"
RIGHTS_SECONDS: Final = 5.0
"""Seconds between two probes of missing rights in the cluster."""

log = structlog.get_logger()


class KubernetesReconciler:
    """Makes and deletes objects in the cluster as the requests for capacity need them. Several
    instances of the service may be active at once.
    """

    def __init__(
        self, bus: Bus, settings: Settings, kube: KubeSettings, cluster: Cluster, installation: str
    ) -> None:
        self._bus = bus
        self._settings = settings
        self._kube = kube
        self._installation = installation
        self._providers = {
            name: provider_of(STEPS, name, self.obtain, self.free) for name in kube.classes
        }
        self._reasons = InactiveReasons(self._providers.values())
        self._rights = ClusterRights(cluster, self._reasons)
        self._maker = ObjectMaker(cluster, installation, self._rights)
        self._objects = ObjectWatch(
            cluster,
            kube.only_namespace,
            objects.selector(installation),
            on_change=self._on_changed,
            on_listed=self._on_listed,
            on_health=self._on_health,
            away_seconds=kube.away_seconds,
        )
        self._in_progress: dict[str, asyncio.Event] = {}
        """The requests that this instance works on, each with an event for changes of its
        object."""
        self._sweeper = ObjectSweeper(
            bus,
            kube,
            cluster,
            installation,
            self._maker,
            self._objects,
            self._providers,
            self._in_progress,
        )
        self.ready = False

    @property
    def trouble(self) -> str:
        """Why the provisioning classes are inactive; "" if they are active."""
        return self._reasons.message

    async def run(self, stop: asyncio.Event) -> None:
        """Serves the provisioning classes and watches the cluster until ``stop`` is set. Raises the
        error of the first task that fails."""
        services = [
            asyncio.create_task(
                ProviderService(provider, self._bus, self._settings).run(stop), name=provider.name
            )
            for provider in self._providers.values()
        ]
        seconds = min(RIGHTS_SECONDS, self._kube.sweep_seconds)
        works = (self._objects.run(), self._sweeper.run(), self._rights.run(seconds))
        tasks = [*services, *(asyncio.create_task(work) for work in works)]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
            await asyncio.gather(*services)
        finally:
            self.ready = False
            await end_tasks(*tasks)
            await self._sweeper.close()

    # Obtaining and freeing. ---------------------------------------------------------------

    async def obtain(self, request: Request) -> Status:
        """Makes the request's objects in the cluster and waits for the final condition of the
        ProvisioningRequest."""
        identity = ObjectIdentity(
            id=request.id,
            provisioning_class=request.provisioning_class,
            installation=self._installation,
            namespace=self._kube.namespace(request.namespace),
            workload=request.name,
            about=f"{request.namespace}/{request.name}",
        )
        accepted = Accepted(f"{objects.KIND} {identity.namespace}/{identity.name} is being made")
        if request.last is None and not await request.say(accepted):
            return Failed("the request was cancelled")
        self._in_progress[request.id] = asyncio.Event()
        try:
            while True:
                made = await self._maker.make(identity, request)
                if isinstance(made, Failed):
                    return made
                self._objects.note(made)
                status = await self._until_end(request)
                if status is not None:
                    return status
                log.warning("object_made_again", id=request.id, name=identity.name)
        finally:
            del self._in_progress[request.id]
            # From now on the sweeper handles changes of the request's object.
            self._on_changed(request.id)

    async def _until_end(self, request: Request) -> Status | None:
        """The final answer to the request; None if the request's object was deleted before it had a
        final condition."""
        changed = self._in_progress[request.id]
        names = [name for pod_set in request.pod_sets for name in pod_set.names]
        last_message = ""
        while True:
            changed.clear()
            seen = self._objects.seen.get(request.id)
            if seen is None:
                return None
            status = status_of(seen, names)
            if status is not None and status.ends:
                return status
            if status is not None and status.message != last_message:
                last_message = status.message
                if not await request.say(status):
                    return Failed("the request was cancelled")
            await changed.wait()

    async def free(self, cancellation: Cancellation) -> None:
        """Deletes all objects of the request from the cluster."""
        places = {self._kube.namespace(cancellation.namespace)}
        seen = self._objects.seen.get(cancellation.id)
        if seen is not None:
            # The object may be in another namespace: it may have been made while
            # ADMIT_KUBE_NAMESPACES had another value.
            places.add(seen.namespace)
        for namespace in places:
            await self._maker.delete(cancellation.id, namespace)
        log.info("freed", id=cancellation.id, reason=cancellation.reason)

    # The watch. ------------------------------------------------------------------------

    def _on_changed(self, request_id: str) -> None:
        changed = self._in_progress.get(request_id)
        if changed is not None:
            changed.set()
        elif not self._objects.listing:
            self._sweeper.look(request_id)

    def _on_listed(self) -> None:
        self._sweeper.begin()
        self.ready = True

    def _on_health(self, error: str) -> None:
        if error:
            self._reasons.begin(WATCH, error)
        else:
            self._reasons.end(WATCH)


SERVICE: Final = STEPS.service


async def run(bus: Bus, settings: Settings, *, stop: asyncio.Event) -> None:
    """Runs the Kubernetes provider until ``stop`` is set. Raises SetupError if a setting is
    wrong.
    """
    kube = KubeSettings.from_env(os.environ)
    cluster = connect(kube)
    try:
        ours = kube.installation or await installation(bus, "kubernetes")
        reconciler = KubernetesReconciler(bus, settings, kube, cluster, ours)

        def health_reply() -> HealthReply:
            return HealthReply(
                service=SERVICE,
                instance=settings.instance,
                ready=reconciler.ready,
                details=health.trouble_details(reconciler.trouble),
            )

        async with health.answer_queries(bus, SERVICE, settings.instance, health_reply):
            await reconciler.run(stop)
    finally:
        await cluster.close()
