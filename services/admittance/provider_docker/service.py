"""Starts worker containers for requests and removes them when the requests are cancelled.

Only one instance of the provider is active, so only one process books resources of the engine. A
request gets the status Accepted before its workers start, so the store of requests has the request
of every live worker container.
"""

from __future__ import annotations

import asyncio
import os
from typing import Final

import structlog

from admittance.lease import service_domain
from admittance.provider_docker.comparer import ENGINE, WorkerComparer
from admittance.provider_docker.engine import (
    STEPS,
    DockerSettings,
    Engine,
    EngineDenied,
    EngineUnavailable,
)
from admittance.provider_docker.workers import (
    ListedWorker,
    NoWorkers,
    PodGroup,
    WorkerSpec,
    details_of,
    labels_of,
    lack_of_room,
    lost_message,
    missing_containers,
    workers_of,
)
from admittance.providers import (
    Accepted,
    Cancellation,
    Failed,
    Provisioned,
    Request,
    Status,
)
from admittance.providers.builtin import installation, provider_of
from admittance.providers.health import InactiveReasons
from admittance.providers.provider import ProviderService
from admittance.runtime.bus.bus import Bus
from admittance.runtime.leader.leader_elected_service import LeaderElectedService
from admittance.runtime.process.settings import Settings
from admittance.runtime.tasks import task_group

log = structlog.get_logger()


class DockerReconciler:
    """Starts and removes worker containers of one engine as the requests need them."""

    def __init__(
        self,
        bus: Bus,
        settings: Settings,
        docker: DockerSettings,
        engine: Engine,
        installation: str,
    ) -> None:
        self._bus = bus
        self._settings = settings
        self._docker = docker
        self._engine = engine
        self._installation = installation
        self._providers = {
            name: provider_of(STEPS, name, self.obtain, self.free) for name in docker.classes
        }
        self._booking = asyncio.Lock()
        """The lock that is held while the provider looks for room for a request and starts its
        workers, so that no two requests get the same room.
        """
        self._in_progress: set[str] = set()
        self._reasons = InactiveReasons(self._providers.values())
        self._comparer = WorkerComparer(
            bus, docker, engine, installation, self._providers, self._in_progress, self._reasons
        )
        self._stop = asyncio.Event()

    @property
    def ready(self) -> bool:
        """Whether the first comparison of workers with requests is done."""
        return self._comparer.ready

    @property
    def trouble(self) -> str:
        """Why the provisioning classes are inactive; "" if they are active."""
        return self._reasons.message

    async def run(self) -> None:
        """Serves the provisioning classes and compares workers with requests, until cancelled.
        Raises the error of the first task that fails."""
        async with task_group() as tasks:
            for provider in self._providers.values():
                service = ProviderService(provider, self._bus, self._settings)
                tasks.create_task(service.run(self._stop), name=provider.name)
            tasks.create_task(self._comparer.run(), name="compare")
            tasks.create_task(self._comparer.listen(), name="events")

    async def close(self) -> None:
        """Stops all work of this instance; the worker containers keep running."""
        self._comparer.ready = False
        self._stop.set()

    # Obtaining and freeing. ---------------------------------------------------------------

    async def obtain(self, request: Request) -> Status:
        """Starts all workers of the request; if one worker fails to start, removes all of them."""
        wanted = [
            PodGroup(pod_set.name, pod_set.count, pod_set.requests) for pod_set in request.pod_sets
        ]
        workers = workers_of(request.id, wanted)
        if isinstance(workers, NoWorkers):
            return Failed(workers.message, retryable=workers.ever)
        accepted = Accepted(f"{len(workers)} workers are being started")
        if request.last is None and not await request.say(accepted):
            return Failed("the request was cancelled")
        self._in_progress.add(request.id)
        try:
            while True:
                try:
                    return await self._book(request, workers)
                except EngineUnavailable as error:
                    self._reasons.begin(ENGINE, str(error))
                # The engine did not answer; a comparison of workers with requests succeeds once the
                # engine answers again.
                await self._comparer.compared()
        finally:
            self._in_progress.discard(request.id)

    async def _book(self, request: Request, workers: tuple[WorkerSpec, ...]) -> Status:
        async with self._booking:
            room = await self._engine.room()
            listed = await self._engine.workers()
            lacking = lack_of_room(request.id, workers, listed, room, self._docker.workers_max)
            if lacking is not None:
                await self._remove(self._of(request.id, listed))
                return Failed(lacking.message, retryable=lacking.ever)
            running = {worker.name for worker in self._of(request.id, listed) if worker.runs}
            # An interrupted attempt to start the request's workers may have left stopped
            # containers.
            await self._remove(
                [worker for worker in self._of(request.id, listed) if not worker.runs]
            )
            new = [worker for worker in workers if worker.name not in running]
            # All starts of workers are awaited, so that no start continues while a failure is
            # handled.
            outcomes = await asyncio.gather(
                *(self._start(worker, request) for worker in new), return_exceptions=True
            )
            for outcome in outcomes:
                if isinstance(outcome, EngineDenied):
                    await self._remove(self._of(request.id, await self._engine.workers(request.id)))
                    return Failed(str(outcome), retryable=outcome.code != 400)
                if outcome is not None:
                    raise outcome
        if new:
            await asyncio.sleep(self._docker.settle_seconds)
        details = details_of(room, workers)
        mine = self._of(request.id, await self._engine.workers(request.id))
        gone = missing_containers(details, mine)
        if gone:
            outputs = [
                await self._engine.last_lines(worker.container)
                for worker in mine
                if not worker.runs
            ]
            output = next((f": {output[-500:]}" for output in outputs if output), "")
            await self._remove(mine)
            return Failed(lost_message(gone, mine, room.host) + output)
        return Provisioned(f"{len(workers)} workers run on {room.host}", details)

    async def _start(self, worker: WorkerSpec, request: Request) -> None:
        labels = labels_of(worker, request.id, request.provisioning_class, self._installation)
        env = {
            "ADMITTANCE_NAMESPACE": request.namespace,
            "ADMITTANCE_WORKLOAD": request.name,
            "ADMITTANCE_WORKER": worker.name,
        }
        await self._engine.start(worker, labels, env)

    async def free(self, cancellation: Cancellation) -> None:
        """Removes all worker containers of the request."""
        workers = self._of(cancellation.id, await self._engine.workers(cancellation.id))
        await self._remove(workers)
        log.info("freed", id=cancellation.id, workers=len(workers), reason=cancellation.reason)

    def _of(self, request_id: str, listed: list[ListedWorker]) -> list[ListedWorker]:
        return [
            worker
            for worker in listed
            if worker.request_id == request_id and worker.installation == self._installation
        ]

    async def _remove(self, workers: list[ListedWorker]) -> None:
        await asyncio.gather(*(self._engine.remove(worker.container) for worker in workers))


SERVICE: Final = STEPS.service


async def run(bus: Bus, settings: Settings, *, stop: asyncio.Event) -> None:
    """Runs the container engine provider while this instance leads, until ``stop`` is set. Raises
    SetupError.
    """
    Engine.check()
    docker = DockerSettings.from_env(os.environ)
    ours = await installation(bus, "docker")

    def begin(_: int) -> DockerReconciler:
        return DockerReconciler(bus, settings, docker, Engine(docker), ours)

    elected = LeaderElectedService(
        bus,
        settings,
        SERVICE,
        service_domain(SERVICE),
        begin,
        trouble=lambda reconciler: reconciler.trouble,
    )
    await elected.run(stop)
