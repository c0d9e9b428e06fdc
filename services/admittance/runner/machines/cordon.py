"""Follows the runner's own object: a machine that is cordoned or drained gets no new jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from admittance.api.kinds import KINDS
from admittance.api.meta import Condition
from admittance.api.runners import Runner, RunnerSpec
from admittance.events.reader import SetAside, Unreadable
from admittance.events.subjects import BUCKET, object_key
from admittance.runtime import clock
from admittance.runtime.bus.bucket import get_directly
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import AccessDenied, AdmittanceError
from admittance.runtime.tasks import set_within
from admittance.runtime.telemetry.logger import LogThrottle, log_set_aside
from admittance.workload.bucket_reader import read_manifest

READ_SECONDS: Final = 30.0
"""How often the object is read without a change: a message of a subscription may be lost."""
AGAIN_SECONDS: Final = 0.5
"""Seconds after a change before the object is read a second time: the subscription gets the
message before the server has stored the write."""

log = structlog.get_logger(service="runner")


class Cordon:
    """What users have set for the machine of the runner ``name``. A runner that may not read its
    object is not cordoned."""

    def __init__(self, bus: Bus, name: str, on_change: Callable[[], None]) -> None:
        self._bus = bus
        self._key = object_key(KINDS["Runner"].token, "", name)
        self._on_change = on_change
        self._changed = asyncio.Event()
        self._throttle = LogThrottle()
        self.spec = RunnerSpec()
        self.conditions: tuple[Condition, ...] = ()

    @property
    def is_on(self) -> bool:
        """Whether the machine gets no new jobs."""
        return self.spec.unschedulable or self.spec.drain is not None

    async def read(self) -> None:
        """Reads the object. Raises BusUnavailable or BusRefused."""
        entry = await get_directly(self._bus, self._key)
        spec, conditions = RunnerSpec(), tuple[Condition, ...]()
        if entry is not None and entry.value is not None:
            try:
                stored = read_manifest(self._key, entry.value)
            except Unreadable as error:
                log_set_aside(SetAside(f"KV_{BUCKET}", self._key, entry.revision, str(error)))
                return
            assert isinstance(stored, Runner), "the key of a Runner"
            spec = stored.spec
            conditions = stored.status.conditions if stored.status is not None else ()
        before, self.spec = self.spec, spec
        said, self.conditions = self.conditions, conditions
        if (before.unschedulable, before.drain) != (spec.unschedulable, spec.drain):
            until = spec.drain.deadline if spec.drain is not None else None
            log.info("cordoned" if self.is_on else "uncordoned", drained_until=until)
            self._on_change()
        elif said != conditions:
            self._on_change()

    async def follow(self) -> None:
        """Reads the object at each change, until cancelled."""
        subject = f"$KV.{BUCKET}.{self._key}"
        subscription = await self._bus.nc.listen(subject, lambda *_: self._changed.set())
        try:
            while True:
                try:
                    await self.read()
                except AccessDenied as error:
                    log.warning("cordon_not_followed", reason=str(error))
                    await asyncio.Event().wait()
                except AdmittanceError as error:
                    if self._throttle.due(clock.monotonic()):
                        log.warning("cordon_not_read", error=str(error))
                if self._changed.is_set():
                    self._changed.clear()
                    await asyncio.sleep(AGAIN_SECONDS)
                else:
                    await set_within(self._changed, READ_SECONDS)
        finally:
            await self._bus.nc.unlisten(subscription)
