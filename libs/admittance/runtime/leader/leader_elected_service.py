"""Runs a service of which one instance works while the others stand by."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Generic, Protocol, TypeVar

import structlog

from admittance.backoff import Backoff
from admittance.events.requests.services import HealthReply
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import Superseded
from admittance.runtime.leader.leader_elector import LeaderElector
from admittance.runtime.process import health
from admittance.runtime.process.admin import show_metrics
from admittance.runtime.process.settings import Settings
from admittance.runtime.tasks import cancel_and_wait, first_of
from admittance.runtime.telemetry.metrics import Definition, Gauges, Labels, gauge

PAUSE_MIN: Final = 0.1
PAUSE_MAX: Final = 5.0
CALM_SECONDS: Final = 10.0
"""After work that lasted so long, the next work begins without a pause."""

log = structlog.get_logger()


class LeaderWork(Protocol):
    """The work of a service's leader. ``ready``: whether that work has started completely."""

    @property
    def ready(self) -> bool: ...

    async def run(self) -> None:
        """Does the work of a leader until cancelled. Raises Superseded when a newer epoch of the
        domain exists.
        """
        ...

    async def close(self) -> None:
        """Ends all tasks of the work, and sets ``ready`` to False."""
        ...


W = TypeVar("W", bound=LeaderWork)


class LeaderElectedService(Generic[W]):
    """One instance of a service: stands by until it leads the domain, then runs the leader's work.

    ``begin`` makes the work for the epoch that it is called with. ``config``: the configuration
    published with every epoch, for the replay of decisions. ``lag``: the number of facts on the log
    that the leader's work has not read yet. ``trouble``: what prevents the leader's running work
    from progress; "" if nothing does.
    """

    def __init__(
        self,
        bus: Bus,
        settings: Settings,
        service: str,
        domain: str,
        begin: Callable[[int], W],
        *,
        config: dict[str, Any] | None = None,
        lag: Callable[[W], int] | None = None,
        trouble: Callable[[W], str] | None = None,
    ) -> None:
        self._bus = bus
        self._settings = settings
        self._service = service
        self._instance = settings.instance
        self._domain = domain
        self._begin = begin
        self._lag = lag
        self._trouble = trouble
        self._elector = LeaderElector(
            bus, service, settings.instance, ttl_seconds=settings.lease_seconds, config=config
        )
        self._begun: W | None = None
        self._again = Backoff(PAUSE_MIN, PAUSE_MAX, free=1, calm_seconds=CALM_SECONDS)

    @property
    def work(self) -> W | None:
        """The leader's work in this instance; None while the instance stands by."""
        return self._begun if self._elector.lease.leads() else None

    async def run(self, stop: asyncio.Event) -> None:
        """Stands by or works, and answers health queries, until stop is set. Raises the exceptions
        of the leader's work, except Superseded: after Superseded the instance stands by again.
        """
        metrics = leader_metrics(self._elector, self._service, self._unread)
        async with (
            show_metrics(self._settings, metrics),
            health.answer_queries(self._bus, self._service, self._instance, self._health),
        ):
            await self._stand_by_or_work(stop)

    def _unread(self) -> int | None:
        work = self.work
        return self._lag(work) if work is not None and self._lag is not None else None

    def _health(self) -> HealthReply:
        leads = tuple(self._elector.lease.leads())
        work = self.work
        return HealthReply(
            service=self._service,
            instance=self._instance,
            # An instance that stands by is ready.
            ready=not leads or (work is not None and work.ready),
            leads=leads,
            lag=self._unread() or 0,
            details={
                **self._elector.standby_details([self._domain]),
                **health.trouble_details(
                    self._trouble(work) if work is not None and self._trouble is not None else ""
                ),
            },
        )

    async def _stand_by_or_work(self, stop: asyncio.Event) -> None:
        elector = self._elector
        watch = asyncio.create_task(elector.run(), name="leading")
        stopping = asyncio.create_task(stop.wait(), name="stop")
        try:
            await first_of(watch, stopping, event=elector.watching)
            while not stop.is_set():
                if watch.done():
                    watch.result()
                elector.changed.clear()
                await elector.take([self._domain], barrier=False)
                epoch = elector.lease.fence(self._domain)
                if epoch is None:
                    await first_of(watch, stopping, event=elector.changed)
                    continue
                log.info("leading", domain=self._domain, epoch=epoch)
                await self._work(epoch, watch, stopping)
        finally:
            for task in (watch, stopping):
                task.cancel()
            # The first cancellation can be lost while the first heartbeat is on its way, so the
            # task is cancelled again.
            with suppress(Exception):
                await cancel_and_wait(watch)
            await cancel_and_wait(stopping)
            await elector.resign()

    async def _work(
        self, epoch: int, watch: asyncio.Task[None], stopping: asyncio.Task[Any]
    ) -> None:
        elector = self._elector
        began = clock.monotonic()
        work = self._begun = self._begin(epoch)
        working = asyncio.create_task(work.run(), name=self._domain)
        try:
            while elector.lease.fence(self._domain) == epoch:
                elector.changed.clear()
                await first_of(watch, stopping, working, event=elector.changed)
                if any(task.done() for task in (watch, stopping, working)):
                    break
            ended = working.done()
        finally:
            # The first cancellation can be lost while nats-py flushes, so the task is cancelled
            # again.
            with suppress(Exception):
                await cancel_and_wait(working)
            await work.close()
        if ended:
            try:
                working.result()
            except Superseded as error:
                log.warning("superseded", epoch=epoch, reason=str(error))
            elector.lease.lost(self._domain)
            if pause := self._again.next(clock.monotonic() - began):
                await asyncio.wait([stopping], timeout=pause)


_SERVICE: Final = ("service",)
LED: Final = gauge(
    "led_domains",
    "Domains that the instance leads: of a service with one leader 1, or 0 on a standby",
    _SERVICE,
)
TAKES: Final = Definition(
    "leader_epochs", "counter", "Epochs with which the instance took a domain over", _SERVICE
)
ROUND_TRIP: Final = gauge(
    "bus_round_trip_seconds",
    "How long the bus took to acknowledge the last heartbeat of the instance",
    _SERVICE,
)
UNREAD: Final = gauge(
    "unread_facts",
    "What the leader has not processed yet: facts of the log; for the variant-controller facts "
    "that had no effect yet",
    _SERVICE,
)
LEADER_METRICS: Final = (LED, TAKES, ROUND_TRIP, UNREAD)


def leader_metrics(
    elector: LeaderElector, service: str, lag: Callable[[], int | None] = lambda: None
) -> Gauges:
    """The metrics of one instance. ``lag``: how many facts the leader's work in this instance has
    not processed yet; None: the instance does not lead, or its service has no such number.
    """

    def read() -> dict[str, dict[Labels, float]]:
        labels = (service,)
        values: dict[str, dict[Labels, float]] = {
            LED.name: {labels: len(tuple(elector.lease.leads()))},
            TAKES.name: {labels: elector.takes},
        }
        if elector.round_trip is not None:
            values[ROUND_TRIP.name] = {labels: elector.round_trip}
        unread = lag()
        if unread is not None:
            values[UNREAD.name] = {labels: unread}
        return values

    return Gauges(LEADER_METRICS, read)
