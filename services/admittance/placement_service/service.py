"""Placement as a service: keeps the Runner objects, and answers what runs on the machines."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec
import structlog

from admittance.api.kinds import KINDS
from admittance.api.reading.objects import encode
from admittance.api.runners import Runner
from admittance.events.names import plain
from admittance.events.requests.machines import Machines, MachinesReply
from admittance.events.stored.machines import OF_RUNNERS
from admittance.events.subjects import CLAIMS, object_key
from admittance.lease import service_domain
from admittance.placement.machines.known_runners import (
    NOT_STORED,
    KnownRunners,
    RunnerWrite,
    StoredRunner,
)
from admittance.placement_service.coverage_keeper import CoverageKeeper
from admittance.placement_service.judge import PlacementJudge
from admittance.placement_service.machine_metrics import (
    MACHINE_GAUGES,
    PlacementMetrics,
    values_of,
)
from admittance.runtime import clock
from admittance.runtime.bus import bucket
from admittance.runtime.bus.bucket import Entry, apply_each, follow_bucket, put_message
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import BusRefused, BusUnavailable, StaleRevision
from admittance.runtime.leader.leader_elected_service import LeaderElectedService
from admittance.runtime.nats import micro
from admittance.runtime.process.admin import show_metrics
from admittance.runtime.process.settings import Settings
from admittance.runtime.tasks import task_group
from admittance.runtime.telemetry.logger import LogThrottle
from admittance.runtime.telemetry.metrics import Gauges
from admittance.workload.bucket_reader import names_of, read_manifest

SERVICE: Final = "placement"
KEYS: Final = KINDS["Runner"].prefix
"""The first token of the keys of Runner objects."""
AGAIN_SECONDS: Final = 0.5
"""Seconds before a write that failed is tried again."""
PAGE_MAX: Final = 1000

log = structlog.get_logger()


class MachineReconciler:
    """The work of placement's leader: stores each machine that a runner announces."""

    def __init__(self, bus: Bus, settings: Settings, epoch: int, metrics: PlacementMetrics) -> None:
        self._bus = bus
        self._settings = settings
        self.runners = KnownRunners()
        self._objects_loaded = asyncio.Event()
        self._claims_loaded = asyncio.Event()
        self._changed = asyncio.Event()
        self._serving: micro.Serving | None = None
        self._throttle = LogThrottle()
        self.judge = PlacementJudge(bus, settings, epoch, service_domain(SERVICE), metrics)
        self.runners.held = self.judge.decisions.without_runner
        self.coverage = CoverageKeeper(bus, SERVICE, self.runners, self.judge.may_cover)
        self.judge.on_announced = self.coverage.changed.set
        self._serves = False

    @property
    def ready(self) -> bool:
        """Whether machines are stored and the check is answered."""
        return self._serves and self.judge.ready

    async def run(self) -> None:
        """Follows runners and their objects until cancelled. Raises the error of the first task
        that fails."""
        async with task_group() as tasks:
            tasks.create_task(self._follow_objects(), name="objects")
            tasks.create_task(self._follow_runners(), name="runners")
            tasks.create_task(self._store(), name="storing")
            tasks.create_task(self.judge.run(), name="judging")
            if self._settings.configuration.machines != "Off":
                tasks.create_task(self.coverage.follow(), name="covered flavors")
                tasks.create_task(self._cover(), name="covering")

    async def close(self) -> None:
        """Stops answering requests; the objects stay."""
        self._serves = False
        self.judge.close()
        serving, self._serving = self._serving, None
        if serving is not None:
            await serving.stop()

    async def _cover(self) -> None:
        await self.judge.machines_loaded.wait()
        await self.coverage.keep()

    # What is known. -----------------------------------------------------------------------

    async def _follow_objects(self) -> None:
        apply = partial(apply_each, apply=self._on_object, service=SERVICE)
        await follow_bucket(
            self._bus,
            (f"{KEYS}.*",),
            lambda entries: self._apply(apply, entries),
            lambda _: self._objects_loaded.set(),
        )

    async def _follow_runners(self) -> None:
        apply = partial(apply_each, apply=self._on_said, service=SERVICE, bucket=CLAIMS)
        await follow_bucket(
            self._bus,
            [f"{first}.*" for first in OF_RUNNERS],
            lambda entries: self._apply(apply, entries),
            lambda _: self._claims_loaded.set(),
            bucket=CLAIMS,
        )

    def _apply(self, apply: partial[None], entries: Sequence[Entry]) -> None:
        apply(entries)
        self._changed.set()

    def _on_object(self, entry: Entry) -> None:
        _, name = names_of(entry.key)
        # An object that cannot be read is written anew.
        self.runners.set_object(name, StoredRunner(None, entry.revision))
        if entry.value is not None:
            stored = read_manifest(entry.key, entry.value)
            assert isinstance(stored, Runner), "the key of a Runner"
            self.runners.set_object(name, StoredRunner(stored, entry.revision))
        self._runner_changed(name)

    def _on_said(self, entry: Entry) -> None:
        first, _, escaped = entry.key.partition(".")
        name = plain(escaped)
        self.runners.said(first, name, entry.value)
        self.judge.runner_changed(name)

    def _runner_changed(self, name: str) -> None:
        self.judge.runner_changed(name)
        self.coverage.changed.set()

    # Objects. -----------------------------------------------------------------------------

    async def _store(self) -> None:
        await self._objects_loaded.wait()
        await self._claims_loaded.wait()
        self._serving = await micro.serve(
            self._bus.nc, SERVICE, self._settings.instance, {"admit.api.machines": self._machines}
        )
        self._serves = True
        self.judge.use_runners(self.runners)
        log.info("serving", runners=len(self.runners.names()))
        while True:
            self._changed.clear()
            if await self._write_all():
                await self._changed.wait()
            else:
                await asyncio.sleep(AGAIN_SECONDS)

    async def _write_all(self) -> bool:
        """Writes the objects that changed; returns whether all are as they must be."""
        done = True
        for write in list(self.runners.writes(clock.now())):
            try:
                await self._write(write)
            except StaleRevision:
                # Another program changed the object, or a newer leader stored it.
                await self._read_again(write.name)
                done = False
            except (BusUnavailable, BusRefused) as error:
                if self._throttle.due(clock.monotonic()):
                    log.warning("runner_not_stored", runner=write.name, error=str(error))
                return False
        return done

    async def _write(self, write: RunnerWrite) -> None:
        key = object_key(KEYS, "", write.name)
        value = encode(write.object)
        revision = await self._bus.publish(put_message(key, value, expected=write.expected))
        log.info(
            "runner_stored", runner=write.name, id=write.object.status and write.object.status.id
        )
        if revision > self.runners.objects.get(write.name, NOT_STORED).revision:
            self.runners.set_object(write.name, StoredRunner(write.object, revision))
            self._runner_changed(write.name)

    async def _read_again(self, name: str) -> None:
        entry = await bucket.get(self._bus, object_key(KEYS, "", name))
        if entry is not None:
            apply_each([entry], self._on_object, service=SERVICE)

    # Answers. -----------------------------------------------------------------------------

    async def _machines(self, data: bytes, _subject: str) -> MachinesReply:
        asked = msgspec.json.decode(data, type=Machines) if data else Machines()
        if asked.runner:
            return MachinesReply(machines=(self.runners.state(asked.runner, with_runs=True),))
        names = [name for name in self.runners.names() if name > asked.after]
        page = self.runners.page(names[: max(1, min(asked.limit, PAGE_MAX))], asked.with_runs)
        decisions = self.judge.decisions
        return MachinesReply(
            machines=page,
            more=len(names) > len(page),
            lacking=decisions.lacking(min(asked.lacking, PAGE_MAX)) if asked.lacking > 0 else (),
            lacking_total=len(decisions.shortages()) if asked.lacking > 0 else 0,
        )


__all__ = ["SERVICE", "run"]


async def run(bus: Bus, settings: Settings, *, stop: asyncio.Event) -> None:
    """Runs placement while this instance leads, until ``stop`` is set."""

    metrics = PlacementMetrics()

    def begin(epoch: int) -> MachineReconciler:
        return MachineReconciler(bus, settings, epoch, metrics)

    elected = LeaderElectedService(bus, settings, SERVICE, service_domain(SERVICE), begin)

    def gauges() -> dict[str, dict[tuple[str, ...], float]]:
        work = elected.work
        return values_of(work.runners, work.judge.placing) if work is not None else {}

    async with show_metrics(settings, Gauges(MACHINE_GAUGES, gauges), *metrics.metrics):
        await elected.run(stop)
