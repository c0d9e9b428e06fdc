"""Keeps the AdmissionCheck `machines`: adds the flavors that the machines of runners cover."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from admittance.api.checks import MACHINES_CHECK, MACHINES_CONTROLLER, AdmissionCheck
from admittance.api.kinds import KINDS
from admittance.api.queues import ClusterQueue, ResourceFlavor
from admittance.api.reading.objects import encode
from admittance.events.subjects import object_key
from admittance.placement.machines.coverage import Coverage
from admittance.placement.machines.known_runners import KnownRunners
from admittance.placement.machines.stored_machine import machine_of
from admittance.runtime import clock
from admittance.runtime.bus.bucket import Entry, apply_each, follow_bucket, put_message
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import BusRefused, BusUnavailable
from admittance.runtime.tasks import set_before
from admittance.runtime.telemetry.logger import LogThrottle
from admittance.workload.bucket_reader import names_of, read_manifest

PATTERNS: Final = ("admissioncheck.>", "clusterqueue.>", "flavor.>")
KEY: Final = object_key(KINDS["AdmissionCheck"].token, "", MACHINES_CHECK)
AGAIN_SECONDS: Final = 0.5
"""Seconds before a write that failed is tried again."""

log = structlog.get_logger()


class CoverageKeeper:
    """``runners``: what is known of machines. ``may_cover``: whether flavors may be covered now:
    not while a runner of an earlier version is announced, which would stop their queues."""

    def __init__(
        self, bus: Bus, service: str, runners: KnownRunners, may_cover: Callable[[], bool]
    ) -> None:
        self._bus = bus
        self._service = service
        self._runners = runners
        self._may_cover = may_cover
        self._coverage = Coverage()
        self._revision = 0
        self._loaded = asyncio.Event()
        self._throttle = LogThrottle()
        self._has_warned = False
        self.changed = asyncio.Event()
        """The event that is set when the machines of runners have changed."""

    async def follow(self) -> None:
        """Follows queues, flavors and checks until cancelled."""
        await follow_bucket(
            self._bus, PATTERNS, self._on_entries, lambda _: self._loaded.set(), current=True
        )

    async def keep(self) -> None:
        """Writes the check whenever more flavors are covered, until cancelled. The machines must be
        known."""
        await self._loaded.wait()
        while True:
            self.changed.clear()
            written = await self._write() if self._may_cover() else True
            if written:
                await set_before(self.changed, None)
            else:
                await asyncio.sleep(AGAIN_SECONDS)

    def _on_entries(self, entries: Sequence[Entry]) -> None:
        apply_each(entries, self._on_entry, self._on_unreadable, service=self._service)
        self.changed.set()

    def _on_entry(self, entry: Entry) -> None:
        _, name = names_of(entry.key)
        if entry.key == KEY:
            self._revision = entry.revision
        manifest = read_manifest(entry.key, entry.value) if entry.value is not None else None
        coverage = self._coverage
        match entry.key.partition(".")[0]:
            case "clusterqueue":
                coverage.queues.pop(name, None)
            case "flavor":
                coverage.flavors.pop(name, None)
            case _:
                coverage.checks.pop(name, None)
        match manifest:
            case ClusterQueue():
                coverage.queues[name] = manifest
            case ResourceFlavor():
                coverage.flavors[name] = manifest
            case AdmissionCheck():
                coverage.checks[name] = manifest

    def _on_unreadable(self, entry: Entry) -> None:
        # What cannot be read has no effect, except that a check of this name is not replaced.
        if entry.key == KEY:
            self._revision = -1

    def _warn_of_name(self, check: AdmissionCheck | None) -> None:
        taken = check is not None and check.spec.controller_name != MACHINES_CONTROLLER
        if check is not None and taken and not self._has_warned:
            log.warning(
                "no_flavors_covered", check=MACHINES_CHECK, is_of=check.spec.controller_name
            )
        self._has_warned = taken

    async def _write(self) -> bool:
        """Writes the check if it must change; returns False to try again."""
        if self._revision < 0:
            return True
        objects = ((name, kept.object) for name, kept in self._runners.objects.items())
        known = ((name, machine_of(runner)) for name, runner in objects if runner is not None)
        self._coverage.machines = {name: m for name, m in known if m is not None}
        wanted = self._coverage.wanted(clock.now())
        if wanted is None:
            self._warn_of_name(self._coverage.checks.get(MACHINES_CHECK))
            return True
        message = put_message(KEY, encode(wanted), expected=self._revision)
        try:
            self._revision = await self._bus.publish(message)
        except (BusRefused, BusUnavailable) as error:
            # Another program has changed the check: its new state is read soon.
            if self._throttle.due(clock.monotonic()):
                log.warning("flavors_not_covered", error=str(error))
            return False
        self._coverage.checks[MACHINES_CHECK] = wanted
        log.info("flavors_covered", flavors=list(wanted.spec.on_flavors))
        return True
