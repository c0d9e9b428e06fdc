"""The variant-controller reads the bucket and publishes the facts that the families of workloads
require.

One instance of the variant-controller is active; the others stand by. A stale leader does no harm:
its facts are requests, and the workload-controller applies the concurrent admission policy itself
before it grants a request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import structlog
from msgspec.structs import replace

from admittance.api.configuration import GATES
from admittance.api.kinds import OBJECT_KINDS
from admittance.events import facts
from admittance.events.base import Fact
from admittance.events.names import plain
from admittance.events.requests.services import FamiliesReply
from admittance.events.subjects import WorkloadName
from admittance.lease import service_domain
from admittance.object_errors import ObjectError
from admittance.runtime import clock
from admittance.runtime.bus.bucket import Entry
from admittance.runtime.bus.bus import Bus
from admittance.runtime.leader.acting_reconciler import ActingReconciler
from admittance.runtime.leader.leader_elected_service import LeaderElectedService
from admittance.runtime.nats import micro
from admittance.runtime.process.admin import show_metrics
from admittance.runtime.process.settings import Settings
from admittance.runtime.telemetry.metrics import Gauges, gauge
from admittance.variants.core import FAMILY_STATES, GATHER, FamilyActs
from admittance.workload.bucket_reader import names_of, read, read_manifest

SERVICE: Final = "variant-controller"
PATTERNS: Final = ("workload.>", "clusterqueue.>", "localqueue.>")
ROLE: Final = b'"role"'
"""The bytes of every stored parent and variant contain this text; a workload without the text is
regular."""
EVENTS: Final[dict[type[Fact], str]] = {
    facts.Submitted: "variant_submitted",
    facts.Activated: "variant_activated",
    facts.Deactivated: "variant_deactivated",
    facts.Reprioritized: "variant_reprioritized",
    facts.Deleted: "variant_deleted",
    facts.Ungated: "variant_ungated",
}

log = structlog.get_logger()


class FamilyReconciler(ActingReconciler[FamilyActs]):
    """Keeps the families of workloads (a parent and its variants) as the concurrent admission
    policy requires."""

    service = SERVICE
    patterns = PATTERNS
    parent, parents, child = "family", "families", "variant"
    events = EVENTS

    def parent_of(self, fact: Fact) -> WorkloadName | None:
        """The family that an act is about."""
        return self.core.parent_of(fact)

    def endpoints(self) -> Mapping[str, micro.Handler]:
        """The request about families."""
        return {"admit.api.families": self._status}

    async def _status(self, _: bytes, __: str) -> FamiliesReply:
        return FamiliesReply(
            families=len(self.core),
            pending=self.core.pending,
            stuck=self.core.stuck,
            stated=self.stated,
            gates_open=self.core.gates_open(),
        )

    def apply(self, entry: Entry) -> None:
        """Applies a workload or a queue."""
        kind, _, tail = entry.key.partition(".")
        now = clock.now()
        names_of(entry.key)
        if kind == "workload" and entry.value is not None and ROLE not in entry.value:
            self.core.regular(entry.key)
        elif kind == "workload":
            workload = None if entry.value is None else read(entry.key, entry.value)
            self.core.apply(entry.key, workload, entry.revision, now)
            self.trace(entry)
        else:
            self._object(kind, tail, _decoded(entry), now)

    def set_aside(self, entry: Entry) -> None:
        """Records that an entry cannot be read: it counts as deleted."""
        self.apply(replace(entry, value=None))

    def _object(self, kind: str, tail: str, manifest: Any, now: datetime) -> None:
        *namespace, name = map(plain, tail.split("."))
        self.core.apply_object(OBJECT_KINDS[kind], "".join(namespace), name, manifest, now)


def _decoded(entry: Entry) -> Any:
    return None if entry.value is None else read_manifest(entry.key, entry.value)


__all__ = ["SERVICE", "run"]

GATE: Final = "ConcurrentAdmission"
GATE_OPEN: Final = gauge(
    "preemption_gate_open",
    "Families in which a variant may preempt now",
    ("cluster_queue",),
)
FAMILIES: Final = gauge(
    "families",
    "Parents of variants that have not been deleted. "
    + "; ".join(f"{state}: {meaning}" for state, meaning in FAMILY_STATES.items()),
    ("state",),
)
STUCK_FACTS: Final = gauge(
    "family_facts_without_effect",
    "Facts about families that the variant-controller repeated without an effect",
)
FAMILY_GAUGES: Final = (GATE_OPEN, FAMILIES, STUCK_FACTS)


async def run(bus: Bus, settings: Settings, *, stop: asyncio.Event) -> None:
    """Runs the variant-controller while this instance leads, until ``stop`` is set."""
    enabled = (GATES | settings.configuration.feature_gates)[GATE]

    def begin(epoch: int) -> FamilyReconciler:
        errors: list[ObjectError] = []
        core = FamilyActs(enabled=enabled, gather=GATHER, errors=errors)
        return FamilyReconciler(bus, settings, core, epoch, errors)

    elected = LeaderElectedService(
        bus,
        settings,
        SERVICE,
        service_domain(SERVICE),
        begin,
        lag=lambda core_service: core_service.core.pending,
    )

    def gauges() -> dict[str, dict[tuple[str, ...], float]]:
        reconciler = elected.work
        if reconciler is None:
            return {}
        core = reconciler.core
        gates = dict.fromkeys(core.queues(), 0) | core.gates_open()
        return {
            GATE_OPEN.name: {(queue,): count for queue, count in gates.items()},
            FAMILIES.name: {(state,): count for state, count in core.states().items()},
            STUCK_FACTS.name: {(): core.stuck},
        }

    async with show_metrics(settings, Gauges(FAMILY_GAUGES, gauges)):
        await elected.run(stop)
