"""Receives the heartbeats of check controllers, and writes the Active conditions of
AdmissionChecks.

After each write of conditions the listener pauses, so that frequent heartbeats cause few writes.
Between heartbeats the listener sleeps until the next check controller would count as lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container, Iterable
from contextlib import suppress
from typing import Final

import structlog

from admittance.api.checks import AdmissionCheck
from admittance.api.reading.manifest import encode
from admittance.control.manifests.heartbeats import (
    Heartbeats,
    active_of,
    reports_missing_parameters,
    with_new_condition,
)
from admittance.control.manifests.objects import Objects
from admittance.control.manifests.planned_writes import PlannedWrite, planned_write
from admittance.events.names import token
from admittance.events.reader import Reader, Unreadable
from admittance.events.subjects import ALIVE_CHECK, object_key
from admittance.events.system import CheckAlive
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import AdmittanceError, Superseded
from admittance.runtime.tasks import raise_if_cancelled
from admittance.runtime.telemetry.logger import LogThrottle
from admittance.runtime.telemetry.object_faults import faults
from admittance.workload_controller.manifest_writer import ManifestWriter

PAUSE_SECONDS: Final = 0.5
"""Seconds between two writes of conditions of AdmissionChecks."""
OVERSLEPT_SECONDS: Final = 5.0
"""If the process wakes up later than planned by more than this time, it was suspended and could
receive no heartbeats.
"""
BEAT_MAX: Final = 64 * 1024
"""The most bytes of a heartbeat; a longer heartbeat is ignored."""

log = structlog.get_logger()
_beat = Reader(CheckAlive)
_PREFIX: Final = len(ALIVE_CHECK)


def decode_heartbeat(data: bytes, *, known: bool) -> CheckAlive | None:
    """Decodes a heartbeat of a check controller; returns None if the message is not a heartbeat.

    An empty message counts as a heartbeat only if the controller has sent heartbeats before
    (``known``). Otherwise a stray empty message would start the timeout that makes the controller's
    checks inactive.
    """
    if len(data) > BEAT_MAX or not (data or known):
        return None
    try:
        return _beat(data) if data else CheckAlive()
    except Unreadable:
        return None


class HeartbeatListener:
    """Listens for heartbeats of check controllers while this instance leads. ``every_seconds``: the
    interval at which each controller must send heartbeats.
    """

    def __init__(self, bus: Bus, manifests: ManifestWriter, every_seconds: float) -> None:
        self._bus = bus
        self._manifests = manifests
        self._beats = Heartbeats(every_seconds)
        self._dirty = asyncio.Event()
        self._controllers: dict[bytes, str] = {}
        self._written: dict[str, float] = {}
        self._rivals: dict[str, tuple[str, ...]] = {}

    async def run(self) -> None:
        """Receives heartbeats and writes the Active conditions of AdmissionChecks until cancelled,
        or until a newer leader writes the conditions.
        """
        now = clock.monotonic()
        checks = self._checks()
        self._beats.expect(
            (
                c.spec.controller_name
                for c in checks
                if active_of(c) is not None and not reports_missing_parameters(c)
            ),
            now,
        )
        self.look()
        subscription = await self._bus.nc.listen(f"{ALIVE_CHECK}*", self._on_beat)
        self._bus.reconnected.append(self._on_reconnected)
        try:
            await self._keep_conditions()
        finally:
            self._bus.reconnected.remove(self._on_reconnected)
            await self._bus.nc.unlisten(subscription)

    def look(self) -> None:
        """Causes the Active conditions to be computed again; called after AdmissionChecks were
        created, changed or deleted.
        """
        names = {check.spec.controller_name for check in self._checks()}
        self._controllers = {token(name).encode(): name for name in names}
        self._beats.forget(names)
        self._dirty.set()

    def known(self, planned: Iterable[PlannedWrite]) -> list[PlannedWrite]:
        """Returns the planned writes with Active conditions filled in: an AdmissionCheck is created
        inactive if its controller has reported that it cannot judge, or if the check's parameters
        are missing.
        """
        every = list(planned)
        coming = {write.key for write in every}
        return [self._known(write, coming) for write in every]

    def _known(self, planned: PlannedWrite, coming: Container[str]) -> PlannedWrite:
        check = planned.object
        if planned.value is None or not isinstance(check, AdmissionCheck):
            return planned
        new = with_new_condition(
            check,
            self._objects,
            self._beats,
            clock.monotonic(),
            clock.now(),
            coming=coming,
        )
        return planned if new is None else planned._replace(object=new, value=encode(new))

    @property
    def _objects(self) -> Objects:
        return self._manifests.controller.objects

    def _checks(self) -> list[AdmissionCheck]:
        return list(self._objects.of_kind("admissioncheck"))

    def _on_beat(self, subject: bytes, _reply: bytes, data: bytes, _headers: bytes) -> None:
        controller = self._controllers.get(subject[_PREFIX:])
        if controller is None:
            return
        beat = decode_heartbeat(data, known=self._beats.knows(controller))
        if beat is not None and self._beats.record(controller, beat, clock.monotonic()):
            self._dirty.set()

    def _on_reconnected(self) -> None:
        # All timeouts start again, because no heartbeat could arrive while the bus was
        # disconnected.
        self._beats.expect_all(clock.monotonic())

    async def _keep_conditions(self) -> None:
        await self._manifests.caught_up.wait()
        throttle = LogThrottle()
        while True:
            raise_if_cancelled()
            self._dirty.clear()
            looked = clock.monotonic()
            try:
                await self._bus.connected()
                await self._write()
                throttle = LogThrottle()
            except Superseded:
                return
            except AdmittanceError as error:
                if throttle.due(clock.monotonic()):
                    log.info("heartbeats_not_written", error=str(error))
                self._dirty.set()
            # During the pause, many heartbeats are collected for one write.
            await asyncio.sleep(PAUSE_SECONDS)
            now = clock.monotonic()
            # The next loss is computed from the time before the pause, so that a controller that is
            # lost during the pause is not missed.
            due = self._beats.next_loss(looked)
            with suppress(TimeoutError):
                async with asyncio.timeout(None if due is None else max(0.0, due - now)):
                    await self._dirty.wait()
            if due is not None and clock.monotonic() > due + OVERSLEPT_SECONDS:
                self._beats.expect_all(clock.monotonic())

    async def _write(self) -> None:
        if not self._changes():
            return
        async with self._manifests.lock:
            planned = self._changes()
            await self._manifests.write(planned)
        now = clock.monotonic()
        for write in planned:
            self._written[write.name] = now
            condition = active_of(write.object)
            if condition is not None:
                tell = log.info if condition.status == "True" else log.warning
                tell(
                    "check_activity",
                    check=write.name,
                    active=condition.status,
                    reason=condition.reason,
                )

    def _changes(self) -> list[PlannedWrite]:
        now, wall = clock.monotonic(), clock.now()
        planned = []
        for check in self._checks():
            name = check.metadata.name
            try:
                new = with_new_condition(
                    check, self._objects, self._beats, now, wall, self._written.get(name)
                )
            except Exception as error:
                faults.record("workload-controller", "judge a check", f"check {name}", error)
                continue
            if new is not None:
                planned.append(self._planned(new))
                self._log_rivals(check.spec.controller_name, now)
        return planned

    def _planned(self, check: AdmissionCheck) -> PlannedWrite:
        key = object_key("admissioncheck", "", check.metadata.name)
        return planned_write(key, check, self._objects.expected(key), "changed")

    def _log_rivals(self, controller: str, now: float) -> None:
        rivals = self._beats.rivals(controller, now)
        if rivals and self._rivals.get(controller) != rivals:
            log.warning("controllers_conflict", controller=controller, programs=rivals)
        self._rivals[controller] = rivals
