"""The array-controller reads workloads from the bucket and publishes the facts that arrays require.

One instance is active; the others stand by. A stale leader does no harm: it opens only gates that
the newest state opens, too (docs/spec/arrays.md#2).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import ClassVar, Final

import structlog

from admittance.acts import STUCK
from admittance.api.arrays import INDEX_LABEL
from admittance.arrays.controller_core import ArrayControllerCore
from admittance.arrays.core import ARRAY_STATES, GATHER
from admittance.backoff import Backoff
from admittance.events import facts
from admittance.events.base import Fact
from admittance.events.reader import BROKEN
from admittance.events.requests.services import ArraysReply
from admittance.events.subjects import WorkloadName, workload_key
from admittance.lease import service_domain
from admittance.object_errors import ObjectError
from admittance.runtime import clock
from admittance.runtime.bus import bucket
from admittance.runtime.bus.bucket import Entry
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import AdmittanceError, BusRefused, BusUnavailable
from admittance.runtime.leader.acting_reconciler import ActingReconciler
from admittance.runtime.leader.leader_elected_service import LeaderElectedService
from admittance.runtime.nats import micro
from admittance.runtime.process.admin import show_metrics
from admittance.runtime.process.settings import Settings
from admittance.runtime.tasks import until_returned
from admittance.runtime.telemetry.logger import LogThrottle
from admittance.runtime.telemetry.metrics import Gauges, gauge
from admittance.workload.bucket_reader import read

SERVICE: Final = "array-controller"
MARKS: Final = (f'"{INDEX_LABEL}"'.encode(), b'"role":"array"', b'"dependencies":[')
"""The bytes of every stored element, of every stored array, and of every workload that waits for
others or has waited; a workload without these texts is ordinary."""

READ_PAUSE_SECONDS: Final = 0.5

__all__ = ["SERVICE", "run"]

log = structlog.get_logger()


class ArrayReconciler(ActingReconciler[ArrayControllerCore]):
    """Keeps the elements of arrays."""

    service = SERVICE
    patterns = ("workload.>",)
    parent, parents, child = "array", "arrays", "element"
    events: ClassVar[Mapping[type[Fact], str]] = {
        facts.Deactivated: "element_deactivated",
        facts.Activated: "element_activated",
        facts.Deleted: "element_deleted",
    }

    def parent_of(self, fact: Fact) -> WorkloadName | None:
        """The array that an act is about."""
        return self.core.arrays.parent_of(fact)

    def endpoints(self) -> Mapping[str, micro.Handler]:
        """The request about arrays."""
        return {"admit.api.arrays": self._status}

    async def _status(self, _: bytes, __: str) -> ArraysReply:
        return ArraysReply(
            arrays=len(self.core),
            unfinished=self.core.arrays.unfinished(),
            waiting=len(self.core.dependents),
            pending=self.core.pending,
            stuck=self.core.stuck,
            stated=self.stated,
        )

    def apply(self, entry: Entry) -> None:
        """Applies a workload."""
        value = entry.value
        is_marked = value is not None and any(mark in value for mark in MARKS)
        if value is not None and not is_marked and not self.core.dependents.wants(entry.key):
            self.core.ordinary(entry.key)
        else:
            workload = None if value is None else read(entry.key, value)
            self.core.apply(entry.key, workload, entry.revision, clock.now())

    async def prepare(self) -> None:
        """Reads the workloads that others begin to wait for, which were not decoded before."""
        dependents = self.core.dependents
        for name in list(dependents.unknown):
            key = workload_key(*name)
            entry = await self._read(key)
            value = entry.value if entry is not None else None
            if entry is None or value is None:
                dependents.apply_target(name, None, 0)
                continue
            try:
                dependents.apply_target(name, read(key, value), entry.revision)
            except BROKEN:
                log.warning("target_unreadable", key=key, revision=entry.revision)

    async def _read(self, key: str) -> Entry | None:
        throttle = LogThrottle()

        def failed(error: AdmittanceError, _: float) -> None:
            if throttle.due(clock.monotonic()):
                log.warning("target_not_read", key=key, error=str(error))

        backoff = Backoff(READ_PAUSE_SECONDS, READ_PAUSE_SECONDS)
        return await until_returned(
            lambda: bucket.get(self._bus, key), backoff, failed, on=(BusUnavailable, BusRefused)
        )

    def set_aside(self, entry: Entry) -> None:
        """Records that a workload cannot be read."""
        self.core.set_aside(entry.key)


ARRAYS: Final = gauge(
    "arrays",
    "Arrays that have not been deleted. "
    + "; ".join(f"{state}: {meaning}" for state, meaning in ARRAY_STATES.items()),
    ("state",),
)
UNFINISHED: Final = gauge("array_elements_unfinished", "Elements of arrays without a result")
STUCK_FACTS: Final = gauge(
    "array_facts_without_effect",
    f"Facts about arrays that the array-controller repeated {STUCK} times or more without an "
    "effect",
)
ARRAY_GAUGES: Final = (ARRAYS, UNFINISHED, STUCK_FACTS)


async def run(bus: Bus, settings: Settings, *, stop: asyncio.Event) -> None:
    """Runs the array-controller while this instance leads, until ``stop`` is set."""

    def begin(epoch: int) -> ArrayReconciler:
        errors: list[ObjectError] = []
        return ArrayReconciler(
            bus, settings, ArrayControllerCore(gather=GATHER, errors=errors), epoch, errors
        )

    elected = LeaderElectedService(
        bus,
        settings,
        SERVICE,
        service_domain(SERVICE),
        begin,
        lag=lambda reconciler: reconciler.core.pending,
    )

    def gauges() -> dict[str, dict[tuple[str, ...], float]]:
        reconciler = elected.work
        if reconciler is None:
            return {}
        core = reconciler.core
        return {
            ARRAYS.name: {(state,): count for state, count in core.arrays.states().items()},
            UNFINISHED.name: {(): core.arrays.unfinished()},
            STUCK_FACTS.name: {(): core.stuck},
        }

    async with show_metrics(settings, Gauges(ARRAY_GAUGES, gauges)):
        await elected.run(stop)
