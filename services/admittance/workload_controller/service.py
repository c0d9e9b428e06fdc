"""Receives facts, folds them and performs the commits: the workload-controller on the bus.

One instance is active; the others stand by and take over when its lease expires. A stale leader is
harmless: its puts expect revisions that are gone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Final

import structlog

from admittance.control.commit import LogMessage
from admittance.control.controller import Controller
from admittance.events import subjects
from admittance.events.requests import Health, HealthReply, SettledReply
from admittance.lease.lease_state import CONTROLLER
from admittance.runtime import clock
from admittance.runtime.bus import micro
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.puller import Delivery, Puller
from admittance.runtime.errors import Superseded, Unavailable
from admittance.runtime.leader import lease_store
from admittance.runtime.leader.leader_elector import LeaderElector
from admittance.runtime.process.settings import Settings
from admittance.runtime.tasks import Backoff, end, first_of
from admittance.runtime.telemetry.metrics import served
from admittance.workload.limits import Limits, differing, limits_of
from admittance.workload_controller.check_heartbeats import HeartbeatListener
from admittance.workload_controller.checkpoints import HistoryRecorder
from admittance.workload_controller.commit_writer import (
    SERVICE,
    CommitWriter,
    WorkloadWriter,
    WriteGuard,
    log_message,
    publish_messages,
)
from admittance.workload_controller.durables import Durables
from admittance.workload_controller.endpoints import Endpoints
from admittance.workload_controller.manifest_writer import Deletions, ManifestWriter
from admittance.workload_controller.takeover import open_controller
from admittance.workload_controller.workload_metrics import WorkloadMetrics

SETTLE_SECONDS: Final = 30.0
SWEEP_EVERY: Final = 10_000
"""Facts between two searches for delete markers that can be forgotten."""
EXPIRY_SECONDS: Final = 3600.0
"""Time after its expiry when a finished workload is certainly gone from the bucket."""

FILTERS: Final = [
    *(f"admit.workload.{key}.*.*" for key in sorted(subjects.INPUTS)),
    "admit.check.reported.*.*.*",
    "admit.timer.due.>",
    "admit.object.>",
    "admit.lease.barrier.*",
]

log = structlog.get_logger()


async def run(bus: Bus, settings: Settings, *, stop: asyncio.Event) -> None:
    """Stands by until this instance becomes leader, then leads; returns when ``stop`` is set."""
    leading = LeaderElector(
        bus,
        SERVICE,
        settings.instance,
        ttl_seconds=settings.lease_seconds,
        config=differing(_limits(settings)),
    )
    active: list[ActiveController] = []

    async def health(_: bytes, __: str) -> Health | HealthReply:
        leads = tuple(leading.lease.leads())
        return HealthReply(
            service=SERVICE,
            instance=settings.instance,
            ready=bool(active and active[0].ready) or not leads,
            leads=leads,
            lag=active[0].lag if active else 0,
            details=leading.standby_details([CONTROLLER]),
        )

    watch = asyncio.create_task(leading.run(), name="leading")
    stopping = asyncio.create_task(stop.wait(), name="stop")
    tally = WorkloadMetrics() if settings.metrics is not None else None
    service = await micro.serve(
        bus, SERVICE, settings.instance, {}, every_instance={"admit.api.health": health}
    )
    figures = AsyncExitStack()
    again = Backoff(clock.monotonic)
    try:
        await figures.enter_async_context(
            served(settings.metrics, tally.metrics if tally is not None else ())
        )
        await first_of(watch, stopping, event=leading.watching)
        while not stop.is_set():
            if watch.done():
                watch.result()
            leading.changed.clear()
            await leading.take([CONTROLLER], barrier=False)
            epoch = leading.lease.fence(CONTROLLER)
            if epoch is None:
                await first_of(stopping, watch, event=leading.changed)
                continue
            log.info("leading", domain=CONTROLLER, epoch=epoch)
            leader = ActiveController(bus, settings, epoch, tally)
            active[:] = [leader]
            again.begun()
            work = asyncio.create_task(leader.run(), name="workload-controller")
            while leading.lease.fence(CONTROLLER) == epoch:
                leading.changed.clear()
                await first_of(stopping, watch, work, event=leading.changed)
                if any(task.done() for task in (stopping, watch, work)):
                    break
            # Ask before close, since close ends the task as well.
            ended = work.done()
            await leader.close()
            active.clear()
            if ended:
                try:
                    work.result()
                except Superseded as error:
                    log.warning("superseded", epoch=epoch, reason=str(error))
                leading.lease.lost(CONTROLLER)
                await again.pause(stopping)
            else:
                with suppress(Superseded):
                    await end(work)
    finally:
        # First, since the awaits below can be cancelled while they wait for the bus.
        watch.cancel()
        stopping.cancel()
        await figures.aclose()
        await service.stop()
        # One cancellation can be lost while the first heartbeat is on its way.
        with suppress(Exception):
            await end(watch)
        await end(stopping)
        await leading.goodbye()


def _limits(settings: Settings) -> Limits:
    return limits_of(
        settings.configuration,
        drain=settings.drain_seconds,
        check_delay=settings.check_delay_seconds,
    )


class ActiveController:
    """The active leader: reads the log from where the previous leader stopped."""

    def __init__(
        self, bus: Bus, settings: Settings, epoch: int, tally: WorkloadMetrics | None = None
    ) -> None:
        self._bus = bus
        self._settings = settings
        self._epoch = epoch
        self._tally = tally
        self._limits = _limits(settings)
        self._puller = Puller(bus, SERVICE, FILTERS, generation=epoch, batch=1000)
        self.guard = WriteGuard(bus, epoch)
        self._swept = 0
        self._marks: deque[tuple[float, int]] = deque()
        self._progress = asyncio.Event()
        self._endpoints: Endpoints | None = None
        self._heartbeats: HeartbeatListener | None = None
        self._deletions: Deletions | None = None
        self._config: asyncio.Task[None] | None = None
        self._memory: HistoryRecorder | None = None
        self._performing: CommitWriter | None = None
        self._failed: BaseException | None = None
        self.controller: Controller | None = None
        self.ready = False

    @property
    def lag(self) -> int:
        """Facts not yet read."""
        return self._puller.pending

    async def run(self) -> None:
        """Leads until a newer epoch reads the log; then raises Superseded."""
        try:
            await self._lead()
        except asyncio.CancelledError:
            # A part has failed, for example the follower of manifests: decisions would be judged by
            # old manifests.
            if self._failed is not None:
                raise self._failed from None
            raise

    async def _lead(self) -> None:
        await self._puller.start()
        await self.guard.take()
        durables = Durables(self._bus)
        controller, unsaid, self._config, found = await open_controller(
            self._bus, self._puller.floor, self._limits, durables, self._on_written
        )
        manifests = ManifestWriter(self._bus, controller, self.guard, durables, self._on_written)
        leading = asyncio.current_task()
        assert leading is not None, "it runs as a task"
        failing = partial(self._on_part_failure, leading)
        self._config.add_done_callback(failing)
        self.controller = controller
        now = clock.now()
        await publish_messages(
            self._bus, [m for key in unsaid for m in controller.outbox(key, now)]
        )
        for key in unsaid:
            controller.said(key)
        end = await lease_store.end_of_log(self._bus)
        if self._puller.idle:
            manifests.caught_up.set()
        self._memory = HistoryRecorder(
            self._bus,
            manifests.lock,
            controller,
            found,
            epoch=self._epoch,
            every_seconds=self._settings.checkpoint_seconds,
        )
        self._memory.start(now)
        puts = WorkloadWriter(self._bus, finished_seconds=self._settings.finished_seconds)
        performing = CommitWriter(
            self._bus, controller, self.guard, puts, self._memory, self._tally
        )
        self._performing = performing
        heartbeats = HeartbeatListener(self._bus, manifests, self._settings.beat_seconds)
        self._heartbeats = heartbeats
        (await heartbeats.start()).add_done_callback(failing)
        self._endpoints = Endpoints(
            self._bus, self._settings.instance, manifests, heartbeats, self.settled
        )
        self._deletions = Deletions(manifests)
        self._deletions.task.add_done_callback(failing)
        await self._endpoints.start()
        self.ready = True
        log.info("serving", workloads=len(controller.workloads), floor=self._puller.floor)
        while True:
            batch = await self._puller.batch()
            async with manifests.lock:
                await performing.perform([_heard(delivery) for delivery in batch])
            self._puller.note(batch[-1])
            controller.acknowledged(batch[-1].sequence)
            self._sweep(controller)
            self._deletions.look()
            if self._puller.idle or controller.read >= end:
                manifests.caught_up.set()
            self._progress.set()
            self._progress.clear()

    def _on_written(self) -> None:
        if self._heartbeats is not None:
            self._heartbeats.look()
        if self._deletions is not None:
            self._deletions.look()

    def _on_part_failure(self, leading: asyncio.Task[None], part: asyncio.Task[None]) -> None:
        if not part.cancelled() and part.exception() is not None:
            self._failed = part.exception()
            leading.cancel()

    async def close(self) -> None:
        """Stops all tasks. The durable consumer keeps the position on the log."""
        self.ready = False
        if self._endpoints is not None:
            await self._endpoints.stop()
        if self._heartbeats is not None:
            await self._heartbeats.stop()
        if self._deletions is not None:
            await self._deletions.stop()
        if self._config is not None:
            self._config.cancel()
            await asyncio.gather(self._config, return_exceptions=True)
        await self._puller.close()
        if self._memory is not None:
            await self._memory.close()

    async def settled(self, sequence: int) -> SettledReply:
        """Waits until the fact at ``sequence`` is applied; returns its outcome. Raises Unavailable
        after `SETTLE_SECONDS`: the leader lags, or no such fact exists."""
        assert self.controller is not None, "endpoints are served by a leader"
        assert self._performing is not None, "endpoints are served by a leader"
        try:
            async with asyncio.timeout(SETTLE_SECONDS):
                while self.controller.read < sequence:
                    await self._progress.wait()
        except TimeoutError:
            raise Unavailable(
                f"fact {sequence} has not been read yet; read so far: {self.controller.read}"
            ) from None
        return self._performing.outcomes.get(sequence, SettledReply(outcome="applied"))

    def _sweep(self, controller: Controller) -> None:
        # Tombstones of what was deleted guard against facts that are read again; those before our
        # floor never are. Now and then is enough.
        if controller.read - self._swept > SWEEP_EVERY:
            controller.workloads.drop_tombstones(self._puller.floor)
            self._swept = controller.read
            now = clock.monotonic()
            self._marks.append((now, controller.read))
            while now - self._marks[0][0] > self._settings.finished_seconds + EXPIRY_SECONDS:
                controller.workloads.drop_finished(self._marks.popleft()[1])


def _heard(one: Delivery) -> LogMessage:
    return log_message(one.sequence, one.subject, one.data, one.headers, one.time)
