"""Answers the check `machines`: reads workloads, checks and flavors from the bucket, and publishes
the verdicts of `admittance.placement.decisions`.

A verdict carries the fence of this leader, so that the server refuses it once another instance
leads. This leader decides when its state includes everything that its predecessor has published: it
publishes a barrier, which the workload-controller echoes to the bucket after it has committed all
earlier facts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import structlog

from admittance.api.checks import MACHINES_CONTROLLER, AdmissionCheck
from admittance.api.queues import ResourceFlavor
from admittance.checks import AdmissionCheckController, Later, Request
from admittance.checks.controller import CheckService
from admittance.control.user_requests.runner_rules import JobRefusal
from admittance.events import reasons
from admittance.events.stored.formats import read_announcement
from admittance.events.subjects import ANNOUNCED_RUNNERS, CLAIMS
from admittance.events.system import RunnerAnnouncement
from admittance.folders import FolderSight
from admittance.placement.decisions import PlacementDecisions
from admittance.placement.machines.folder_demands import folder_demand, submitted_folder
from admittance.placement.machines.known_runners import KnownRunners
from admittance.placement.machines.machine_feed import MachineFeed, older_runners
from admittance.placement.search.request import Demands
from admittance.placement.verdicts import PlacementVerdict
from admittance.placement_service.machine_metrics import PlacementMetrics
from admittance.runtime import clock
from admittance.runtime.bus.bucket import Entry, apply_each, follow_bucket, follow_until
from admittance.runtime.bus.bus import Bus
from admittance.runtime.leader.barriers import echo_key, read_echo
from admittance.runtime.leader.verdict_publisher import VerdictPublisher
from admittance.runtime.process.settings import Settings
from admittance.runtime.tasks import set_before, task_group
from admittance.runtime.telemetry.logger import LogThrottle
from admittance.workload.bucket_reader import names_of, read, read_manifest
from admittance.workload.stored import StoredWorkload
from admittance.workload.transition_context import CheckRules, FlavorParts, check_rules

OBJECTS: Final = ("admissioncheck.>", "flavor.>")

log = structlog.get_logger()


class PlacementObjects:
    """The checks and flavors that placement reads beside workloads, and which folders the runners
    see, by the ids of their data folders."""

    def __init__(self) -> None:
        self.sights: dict[str, FolderSight | None] = {}
        self._checks: dict[str, CheckRules] = {}
        self._flavors: dict[str, FlavorParts] = {}

    def apply(self, entry: Entry) -> None:
        """Applies a check or a flavor from the bucket."""
        kind = entry.key.partition(".")[0]
        _, name = names_of(entry.key)
        manifest = read_manifest(entry.key, entry.value) if entry.value is not None else None
        if kind == "admissioncheck":
            self._checks.pop(name, None)
            if isinstance(manifest, AdmissionCheck):
                self._checks[name] = check_rules(manifest)
        else:
            self._flavors.pop(name, None)
            if isinstance(manifest, ResourceFlavor):
                spec = manifest.spec
                self._flavors[name] = FlavorParts(spec.node_labels, spec.tolerations)

    @property
    def serves(self) -> bool:
        """Whether there is a check to answer."""
        return any(check.controller == MACHINES_CONTROLLER for check in self._checks.values())

    # The view of the decisions.

    def check(self, name: str) -> CheckRules | None:
        return self._checks.get(name)

    def flavor(self, name: str) -> FlavorParts:
        return self._flavors.get(name, FlavorParts())

    def demands(self, workload: StoredWorkload) -> Demands:
        meta = workload.metadata
        refusal = JobRefusal(workload.status.submitted_by, meta.namespace, bytes(workload.spec))
        submitted = submitted_folder(workload)
        if submitted is None:
            return Demands(refusal=refusal)
        known = [sight for sight in self.sights.values() if sight is not None]
        folder, host = folder_demand(submitted, known)
        return Demands(folder=folder, host=host, refusal=refusal)


class PlacementJudge:
    """The verdicts of one leader. Its owner calls `use_runners` once all machines are known, and
    `runner_changed` when what is known of one changes.

    No workload is read before there is a check to answer, so that a deployment without the check
    `machines` does nothing."""

    def __init__(
        self,
        bus: Bus,
        settings: Settings,
        epoch: int,
        domain: str,
        metrics: PlacementMetrics,
    ) -> None:
        self._bus = bus
        self._settings = settings
        self._epoch = epoch
        self._domain = domain
        self._metrics = metrics
        self.placing: PlacementDecisions | None = None
        """The decisions, once they are made."""
        self.objects = PlacementObjects()
        self.decisions = PlacementDecisions(self.objects)
        self.machines_loaded = asyncio.Event()
        self._feed: MachineFeed | None = None
        self._announced: dict[str, RunnerAnnouncement] = {}
        self._older: list[str] = []
        self.on_announced: Callable[[], None] = _nothing
        self._checks_loaded = asyncio.Event()
        self._loaded = asyncio.Event()
        self._announced_loaded = asyncio.Event()
        self._needed = asyncio.Event()
        self._echoed = asyncio.Event()
        self._changed = asyncio.Event()
        self._stop = asyncio.Event()
        self._publisher = VerdictPublisher(
            bus, domain, epoch, owner=settings.instance, ids="placement"
        )
        self._throttle = LogThrottle()
        self.controller = AdmissionCheckController(MACHINES_CONTROLLER)
        self.controller.check(_later)

    @property
    def ready(self) -> bool:
        """Whether requests are answered, or there is no check to answer."""
        if self._needed.is_set():
            return self._echoed.is_set()
        return self._checks_loaded.is_set()

    def use_runners(self, runners: KnownRunners) -> None:
        """Sets what is known of machines, once all of it is read."""
        self._feed = MachineFeed(runners, self.decisions, self.objects.sights)
        self.machines_loaded.set()

    def runner_changed(self, name: str) -> None:
        """Something of the runner has changed."""
        if self._feed is not None:
            self._feed.touched.add(name)
            self._changed.set()

    def may_cover(self) -> bool:
        """Whether all announced runners honour placements, as far as they are read."""
        return self._announced_loaded.is_set() and not older_runners(self._announced)

    async def run(self) -> None:
        """Answers until cancelled. Raises Superseded when another instance leads."""
        async with task_group() as tasks:
            tasks.create_task(self._follow(), name="placed workloads")
            tasks.create_task(self._follow_announcements(), name="announcements")
            tasks.create_task(self._serve_check(), name="check machines")
            tasks.create_task(self._decide(), name="placing")

    def close(self) -> None:
        """Stops the answers to requests."""
        self._stop.set()

    # What is known. -----------------------------------------------------------------------

    async def _follow(self) -> None:
        """Follows checks alone until one is to be answered, then workloads too."""
        await follow_until(self._needed, self._bus, OBJECTS, self._on_objects, self._checks_loaded)
        await self._publisher.barrier()
        # One reader for all, so that a row is never read before its check.
        await follow_bucket(
            self._bus,
            (*OBJECTS, "workload.>", echo_key(self._domain)),
            self._on_entries,
            lambda _: self._loaded.set(),
            current=True,
        )

    def _on_objects(self, entries: Sequence[Entry]) -> None:
        apply_each(entries, self.objects.apply, service=self._domain)
        if self.objects.serves:
            self._needed.set()

    async def _follow_announcements(self) -> None:
        await follow_bucket(
            self._bus,
            (f"{ANNOUNCED_RUNNERS}.*",),
            partial(apply_each, apply=self._on_announced, service=self._domain, bucket=CLAIMS),
            lambda _: self._on_announced_loaded(),
            bucket=CLAIMS,
        )

    def _on_announced_loaded(self) -> None:
        self._announced_loaded.set()
        self.on_announced()

    def _on_announced(self, entry: Entry) -> None:
        runner = entry.key.partition(".")[2]
        before = self.objects.sights.pop(runner, None)
        self._announced.pop(runner, None)
        if entry.value is not None:
            said = read_announcement(entry.value)
            self._announced[runner] = said
            self.objects.sights[runner] = said.folders
        if before != self.objects.sights.get(runner) and self._feed is not None:
            self._feed.look_at_id(runner)
            self.decisions.configuration_changed()
        self._changed.set()
        self.on_announced()

    def _on_entries(self, entries: Sequence[Entry]) -> None:
        apply_each(entries, self._on_entry, self._on_unreadable, service=self._domain)
        self._changed.set()

    def _on_entry(self, entry: Entry) -> None:
        if entry.key == echo_key(self._domain):
            if entry.value is not None and read_echo(entry.key, entry.value).epoch >= self._epoch:
                self._echoed.set()
        elif entry.key.startswith("workload."):
            workload = read(entry.key, entry.value) if entry.value is not None else None
            self.decisions.apply_workload(*names_of(entry.key), workload, entry.revision)
        else:
            self.objects.apply(entry)
            self.decisions.configuration_changed()

    def _on_unreadable(self, entry: Entry) -> None:
        if entry.key.startswith("workload."):
            self.decisions.apply_workload(*names_of(entry.key), None, entry.revision)

    # The check. ---------------------------------------------------------------------------

    async def _serve_check(self) -> None:
        # Requests need no answer of their own: what is judged is read from the bucket. They are
        # received, so that the log does not keep them, and heartbeats say that the check is active.
        await self._needed.wait()
        await self._echoed.wait()
        await CheckService(self.controller, self._bus, self._settings).run(self._stop)

    def _note_older_runners(self) -> None:
        """Makes the check inactive while a runner of an earlier version is announced, which would
        start what is placed on others."""
        older = older_runners(self._announced)
        if older == self._older:
            return
        self._older = older
        if not older:
            self.controller.active()
            return
        self.controller.inactive(
            f"runners of an earlier version start jobs that are placed on others: "
            f"{', '.join(older)}; start them with this version, or `admit delete runner` those "
            "that are gone",
            reason=reasons.OLD_RUNNER,
        )

    # Verdicts. ----------------------------------------------------------------------------

    async def _decide(self) -> None:
        for known in (self._loaded, self._echoed, self.machines_loaded, self._announced_loaded):
            await known.wait()
        assert self._feed is not None, "machines are known"
        log.info("placing", epoch=self._epoch, machines=len(self._feed.touched))
        self.placing = self.decisions
        while True:
            self._changed.clear()
            now = clock.now()
            self._note_older_runners()
            self._feed.pass_on(now)
            verdicts = self.decisions.decide(now)
            self._metrics.count(self.decisions.tally.take(), verdicts)
            if verdicts:
                await self._publish(verdicts)
            await set_before(self._changed, self.decisions.next_due)

    async def _publish(self, verdicts: Sequence[PlacementVerdict]) -> None:
        now = clock.now()
        refusals = await self._publisher.publish([verdict.fact(now) for verdict in verdicts])
        for verdict, refused in zip(verdicts, refusals, strict=True):
            if refused is not None and self._throttle.due(clock.monotonic()):
                # The decisions send it again after a time.
                log.warning(
                    "verdict_refused",
                    namespace=verdict.namespace,
                    workload=verdict.name,
                    error=str(refused),
                )


def _nothing() -> None:
    """An ``on_announced`` without an owner."""


async def _later(request: Request) -> Later:
    log.debug("asked", workload=f"{request.namespace}/{request.name}", check=request.check)
    return Later()
