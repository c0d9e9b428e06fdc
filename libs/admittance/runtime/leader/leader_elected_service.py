"""A service of which one instance works while the others stand by."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

import structlog

from admittance.events.requests import HealthReply
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import Superseded
from admittance.runtime.leader.leader_elector import Leading
from admittance.runtime.process import health
from admittance.runtime.process.backoff import Backoff
from admittance.runtime.process.settings import Settings
from admittance.runtime.tasks import first_of

log = structlog.get_logger()


class Work(Protocol):
    """What the one does. ``ready``: it does all of it by now."""

    @property
    def ready(self) -> bool: ...

    async def run(self) -> None:
        """Works until it is cancelled, or until it knows of a newer epoch: raises Superseded."""
        ...

    async def close(self) -> None:
        """Ends what was begun; is not ready any more."""
        ...


W = TypeVar("W", bound=Work)


class Alone(Generic[W]):
    """One instance: stands by until it is its turn to lead the domain, then works under the epoch
    that ``begin`` is told. ``lag``: facts that the work has not read yet; None: nobody counts them.
    ``trouble``: what keeps it from its work though nothing is wrong with it; "": nothing does.
    """

    def __init__(
        self,
        bus: Bus,
        settings: Settings,
        service: str,
        domain: str,
        begin: Callable[[int], W],
        *,
        lag: Callable[[W], int] | None = None,
        trouble: Callable[[W], str] | None = None,
    ) -> None:
        self._bus = bus
        self._service = service
        self._instance = settings.instance
        self._domain = domain
        self._begin = begin
        self._lag = lag
        self._trouble = trouble
        self._leading = Leading(bus, service, settings.instance, ttl_seconds=settings.lease_seconds)
        self._begun: W | None = None
        self._again = Backoff(clock.monotonic)

    @property
    def work(self) -> W | None:
        """What is done here; None while it is another one's turn."""
        return self._begun if self._leading.tenure.leads() else None

    async def run(self, stop: asyncio.Event) -> None:
        """Works, stands by, and answers for itself, until stop is set. Raises what the work raises,
        but for Superseded: then it stands by again."""
        async with health.answered(self._bus, self._service, self._instance, self._health):
            await self._take_turns(stop)

    def _health(self) -> HealthReply:
        leads = tuple(self._leading.tenure.leads())
        work = self.work
        return HealthReply(
            service=self._service,
            instance=self._instance,
            # Who stands by lacks nothing.
            ready=not leads or (work is not None and work.ready),
            leads=leads,
            lag=self._lag(work) if work is not None and self._lag is not None else 0,
            details={
                **self._leading.standby_details([self._domain]),
                **health.told(
                    self._trouble(work) if work is not None and self._trouble is not None else ""
                ),
            },
        )

    async def _take_turns(self, stop: asyncio.Event) -> None:
        leading = self._leading
        watch = asyncio.create_task(leading.run(), name="leading")
        stopping = asyncio.create_task(stop.wait(), name="stop")
        try:
            await first_of(watch, stopping, event=leading.watching)
            while not stop.is_set():
                if watch.done():
                    watch.result()
                await leading.take([self._domain], barrier=False)
                epoch = leading.tenure.fence(self._domain)
                if epoch is None:
                    leading.changed.clear()
                    await first_of(watch, stopping, event=leading.changed)
                    continue
                log.info("leading", domain=self._domain, epoch=epoch)
                await self._work(epoch, watch, stopping)
        finally:
            for task in (watch, stopping):
                task.cancel()
            await asyncio.gather(watch, stopping, return_exceptions=True)
            await leading.goodbye()

    async def _work(
        self, epoch: int, watch: asyncio.Task[None], stopping: asyncio.Task[Any]
    ) -> None:
        leading = self._leading
        self._again.begun()
        work = self._begun = self._begin(epoch)
        working = asyncio.create_task(work.run(), name=self._domain)
        try:
            while leading.tenure.fence(self._domain) == epoch:
                leading.changed.clear()
                await first_of(watch, stopping, working, event=leading.changed)
                if any(task.done() for task in (watch, stopping, working)):
                    break
            if working.done():
                try:
                    working.result()
                except Superseded as error:
                    log.warning("superseded", epoch=epoch, reason=str(error))
                leading.tenure.lost(self._domain)
                await self._again.pause(stopping)
        finally:
            if not working.done():
                working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            await work.close()
