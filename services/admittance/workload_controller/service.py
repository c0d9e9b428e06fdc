"""The workload-controller on the bus: receives facts, folds them into workloads and performs the
commits.

One instance of the workload-controller is active; the others stand by, and one of them takes over
when the lease of the active instance expires. A stale leader does no harm: its puts expect outdated
revisions, so the server refuses them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

import structlog

from admittance.control.commit import LogMessage
from admittance.control.controller import Controller
from admittance.control.user_requests.folder_views import FolderSights
from admittance.control.user_requests.runner_rules import AnnouncedRunners
from admittance.events import subjects
from admittance.events.requests.history import SettledReply
from admittance.events.shapes import Finding
from admittance.lease import service_domain
from admittance.quota.references import sharing_of
from admittance.replay.log_messages import log_message
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.puller import Delivery, Puller
from admittance.runtime.errors import BusUnavailable
from admittance.runtime.leader import lease_store
from admittance.runtime.leader.leader_elected_service import LeaderElectedService
from admittance.runtime.process.admin import show_metrics
from admittance.runtime.process.settings import Settings
from admittance.runtime.tasks import task_group
from admittance.runtime.telemetry.findings import report_findings
from admittance.runtime.telemetry.metrics import Gauges
from admittance.workload.limits import Limits, changed_limits, limits_of
from admittance.workload_controller.check_heartbeats import HeartbeatListener
from admittance.workload_controller.commit_writer import (
    SERVICE,
    CommitWriter,
    WorkloadWriter,
    WriteGuard,
    publish_messages,
)
from admittance.workload_controller.durables import Durables
from admittance.workload_controller.endpoints.user_requests import UserRequests
from admittance.workload_controller.endpoints.writing_endpoints import Endpoints
from admittance.workload_controller.job_files import JobFilesKeeper
from admittance.workload_controller.journal import HistoryRecorder
from admittance.workload_controller.manifest_writer import Deletions, ManifestWriter
from admittance.workload_controller.takeover import (
    follow_manifests,
    follow_runners,
    load_controller,
)
from admittance.workload_controller.usage.endpoint import UsageEndpoint
from admittance.workload_controller.usage.log_retention import (
    LOG_BOUND,
    LOG_BYTES,
    LogRetention,
    sizes_of_log,
)
from admittance.workload_controller.usage.summarizer import UsageSummarizer
from admittance.workload_controller.workload_metrics import (
    CHECK_ACTIVE,
    WorkloadMetrics,
    active_checks,
)

SETTLE_SECONDS: Final = 30.0
DEFERRED_SECONDS: Final = 0.05
"""How long messages that no service waits for may wait for others."""
SWEEP_EVERY: Final = 10_000
"""How many facts the leader reads between two searches for delete markers that it can forget."""
EXPIRY_SECONDS: Final = 3600.0
"""Seconds after the expiry of a finished workload within which the server certainly removes it from
the bucket."""

log = structlog.get_logger()


async def run(bus: Bus, settings: Settings, *, stop: asyncio.Event) -> None:
    """Stands by until this instance becomes leader, then leads; returns when ``stop`` is set."""
    limits = _limits(settings)
    metrics = WorkloadMetrics() if settings.admin is not None else None

    def begin(epoch: int) -> ActiveController:
        return ActiveController(bus, settings, limits, epoch, metrics)

    elected = LeaderElectedService(
        bus,
        settings,
        SERVICE,
        service_domain(SERVICE),
        begin,
        config=changed_limits(limits),
        lag=lambda one: one.lag,
    )

    def gauges() -> dict[str, dict[tuple[str, ...], float]]:
        active = elected.work
        if active is None or active.controller is None:
            return {}
        checks = {CHECK_ACTIVE.name: active_checks(active.controller)}
        return checks | sizes_of_log(active.retention)

    def findings() -> list[Finding]:
        if elected.work is None:
            return []
        kept = (elected.work.retention, elected.work.files)
        return [finding for each in kept if each is not None for finding in each.findings()]

    counted = metrics.metrics if metrics is not None else ()
    shown = Gauges((CHECK_ACTIVE, LOG_BYTES, LOG_BOUND), gauges)
    async with show_metrics(settings, *counted, shown):
        with report_findings(findings):
            await elected.run(stop)


def _limits(settings: Settings) -> Limits:
    return limits_of(
        settings.configuration,
        drain=settings.drain_seconds,
        check_delay=settings.check_delay_seconds,
    )


class ActiveController:
    """The work of the active leader: applies the facts of the log from the position where the
    previous leader stopped."""

    def __init__(
        self,
        bus: Bus,
        settings: Settings,
        limits: Limits,
        epoch: int,
        metrics: WorkloadMetrics | None,
    ) -> None:
        self._bus = bus
        self._settings = settings
        self._limits = limits
        self._epoch = epoch
        self._metrics = metrics
        self._puller = Puller(
            bus, SERVICE, subjects.READ_BY_CONTROLLER, generation=epoch, batch=1000
        )
        self._usage = UsageSummarizer(bus)
        self.retention: LogRetention | None = None
        self.files: JobFilesKeeper | None = None
        self._swept = 0
        self._marks: deque[tuple[float, int]] = deque()
        self._progress = asyncio.Event()
        self._deferred = asyncio.Event()
        self._unacknowledged: Delivery | None = None
        self._endpoints: Endpoints | None = None
        self._heartbeats: HeartbeatListener | None = None
        self._deletions: Deletions | None = None
        self._people: UserRequests | None = None
        self._history: HistoryRecorder | None = None
        self._commits: CommitWriter | None = None
        self.controller: Controller | None = None
        self.ready = False

    @property
    def lag(self) -> int:
        """How many facts of the log the leader has not read yet."""
        return self._puller.pending

    async def run(self) -> None:
        """Loads the bucket and applies facts until another leader with a newer epoch reads the log;
        then raises Superseded."""
        bus, settings = self._bus, self._settings
        await self._puller.start()
        guard = WriteGuard(bus, self._epoch)
        await guard.take()
        durables = Durables(bus)
        loaded = await load_controller(bus, self._puller.floor, self._limits, durables)
        controller = self.controller = loaded.controller
        now = clock.now()
        outboxes = [m for key in loaded.unpublished for m in controller.outbox(key, now)]
        await publish_messages(bus, outboxes)
        for key in loaded.unpublished:
            controller.outbox_published(key)
        manifests = ManifestWriter(bus, controller, guard, durables, self._on_written)
        history = self._history = HistoryRecorder(
            bus,
            manifests.lock,
            controller,
            loaded.journal,
            epoch=self._epoch,
            every_seconds=settings.checkpoint_seconds,
        )
        history.start(now)
        puts = WorkloadWriter(bus, finished_seconds=settings.finished_seconds)
        self._commits = CommitWriter(bus, controller, guard, puts, history, self._metrics)
        heartbeats = self._heartbeats = HeartbeatListener(bus, manifests, settings.beat_seconds)
        deletions = self._deletions = Deletions(manifests)
        limits = settings.configuration.user_limits
        runners, sights, runners_known = AnnouncedRunners(), FolderSights(), asyncio.Event()
        files = self.files = JobFilesKeeper(
            bus,
            controller,
            limit=settings.file_limit,
            bound=settings.files_bytes,
            replicas=settings.replicas,
        )
        self._endpoints = Endpoints(
            bus,
            settings.instance,
            manifests,
            heartbeats,
            self.settled,
            self.outcome,
            runners,
            sights,
            limits.max_manifest_bytes,
            sharing_of(settings.configuration),
            {**UsageEndpoint(bus, controller, self._usage).endpoints(), **files.endpoints()},
            lambda: self._usage.store.position.compacted_until,
        )
        people = self._people = UserRequests(bus, controller, limits, self._metrics, runners)
        following = follow_manifests(bus, controller, durables, self._on_written)
        # If one of the tasks fails, all end: for instance, without the task that follows manifests
        # the leader would judge decisions by old manifests.
        async with task_group() as tasks:
            if settings.log_bytes:
                retention = self.retention = LogRetention(
                    bus, settings.log_bytes, self._usage, lambda: self._puller.floor, controller
                )
                tasks.create_task(retention.run(), name="log retention")
            tasks.create_task(following, name="manifests")
            tasks.create_task(heartbeats.run(), name="heartbeats")
            tasks.create_task(deletions.run(), name="deletions")
            tasks.create_task(people.run(), name="people")
            tasks.create_task(self._usage.run(), name="usage")
            tasks.create_task(files.run(), name="files")
            await self._endpoints.start()
            # Only a server that demands credentials knows the submitters of jobs, by whom the
            # rules of runners refuse submissions.
            rules = runners if bus.nc.user else None
            tasks.create_task(follow_runners(bus, rules, sights, runners_known), name="runners")
            if rules is not None:
                await runners_known.wait()
            await people.start()
            deferred = self._publish_deferred(manifests, self._commits)
            tasks.create_task(deferred, name="deferred messages")
            await self._apply_facts(controller, manifests, self._commits, deletions)

    async def _apply_facts(
        self,
        controller: Controller,
        manifests: ManifestWriter,
        commits: CommitWriter,
        deletions: Deletions,
    ) -> None:
        end = await lease_store.end_of_log(self._bus)
        if self._puller.idle:
            manifests.caught_up.set()
        self.ready = True
        log.info("serving", workloads=len(controller.workloads), floor=self._puller.floor)
        while True:
            batch = await self._puller.batch()
            async with manifests.lock:
                await commits.perform([_heard(delivery) for delivery in batch])
                self._unacknowledged = batch[-1]
            if commits.has_deferred:
                self._deferred.set()
            else:
                self._acknowledge()
            controller.acknowledged(batch[-1].sequence)
            self._sweep(controller)
            deletions.look()
            self._usage.wake()
            if self._people is not None:
                self._people.applied(controller.read)
            if self._puller.idle or controller.read >= end:
                manifests.caught_up.set()
            self._progress.set()
            self._progress.clear()

    async def _publish_deferred(self, manifests: ManifestWriter, commits: CommitWriter) -> None:
        """Publishes messages that waited for others but got none, and acknowledges their facts."""
        while True:
            await self._deferred.wait()
            await asyncio.sleep(DEFERRED_SECONDS)
            self._deferred.clear()
            async with manifests.lock:
                await commits.publish_deferred()
                self._acknowledge()

    def _acknowledge(self) -> None:
        """Acknowledges every fact whose commit is performed and whose messages are published."""
        if self._unacknowledged is not None:
            self._puller.ack_soon(self._unacknowledged)
            self._unacknowledged = None

    def _on_written(self) -> None:
        if self._heartbeats is not None:
            self._heartbeats.look()
        if self._deletions is not None:
            self._deletions.look()

    async def close(self) -> None:
        """Stops answering requests, and publishes the rest of the journal. The durable consumer on
        the server keeps the position on the log.
        """
        self.ready = False
        if self._endpoints is not None:
            await self._endpoints.stop()
        if self._people is not None:
            await self._people.stop()
        await self._puller.close()
        if self._history is not None:
            await self._history.close()

    async def settled(self, sequence: int) -> SettledReply:
        """Waits until the fact at ``sequence`` is applied; returns its outcome. Raises
        BusUnavailable if the fact is not applied within `SETTLE_SECONDS`, because the leader lags
        or no such fact exists."""
        assert self.controller is not None, "endpoints are served by a leader"
        assert self._commits is not None, "endpoints are served by a leader"
        try:
            async with asyncio.timeout(SETTLE_SECONDS):
                while self.controller.read < sequence:
                    await self._progress.wait()
        except TimeoutError:
            raise BusUnavailable(
                f"the workload-controller has not read fact {sequence} yet, only facts up to "
                f"{self.controller.read}"
            ) from None
        return self._commits.outcomes.get(sequence, SettledReply(outcome="applied"))

    def outcome(self, sequence: int) -> SettledReply | None:
        """Returns the outcome of the fact at ``sequence``; None if the fact was applied, or if the
        leader does not remember the outcome."""
        return self._commits.outcomes.get(sequence) if self._commits is not None else None

    def _sweep(self, controller: Controller) -> None:
        # The leader keeps delete markers of workloads in memory because facts may be read again;
        # facts up to this leader's floor are never read again, so their markers can be forgotten.
        # An occasional search for such markers is enough.
        if controller.read - self._swept > SWEEP_EVERY:
            controller.workloads.drop_tombstones(self._puller.floor)
            self._swept = controller.read
            now = clock.monotonic()
            self._marks.append((now, controller.read))
            while now - self._marks[0][0] > self._settings.finished_seconds + EXPIRY_SECONDS:
                controller.workloads.drop_finished(self._marks.popleft()[1])


def _heard(delivery: Delivery) -> LogMessage:
    return log_message(
        delivery.sequence, delivery.subject, delivery.data, delivery.headers, delivery.time
    )
