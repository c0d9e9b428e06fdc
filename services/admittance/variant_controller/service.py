"""The variant-controller reads the bucket and publishes the facts that the families of workloads
require.

One instance of the variant-controller is active; the others stand by. A stale leader does no harm:
its facts are requests, and the workload-controller applies the concurrent admission policy itself
before it grants a request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import structlog
from msgspec.structs import replace

from admittance.acts import STUCK, Act
from admittance.api.configuration import GATES
from admittance.api.kinds import OBJECT_KINDS
from admittance.backoff import Backoff
from admittance.events import facts
from admittance.events.base import HEADER_MSG_ID, HEADER_SCHEMA, SCHEMA_VERSION, Fact
from admittance.events.codec import encode
from admittance.events.names import plain
from admittance.events.requests.services import FamiliesReply
from admittance.events.subjects import WorkloadName, subject_of, workload_name
from admittance.lease import service_domain
from admittance.object_errors import ObjectError
from admittance.runtime import clock
from admittance.runtime.bus.bucket import Entry, apply_each, follow_bucket
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.bus.messages import known_secret, message_id
from admittance.runtime.errors import AdmittanceError, BusRefused, BusUnavailable, is_temporary
from admittance.runtime.leader.leader_elected_service import LeaderElectedService
from admittance.runtime.nats import micro
from admittance.runtime.process.admin import show_metrics
from admittance.runtime.process.settings import Settings
from admittance.runtime.tasks import set_before, task_group, until_returned
from admittance.runtime.telemetry.logger import LogThrottle
from admittance.runtime.telemetry.metrics import Gauges, gauge
from admittance.runtime.telemetry.object_faults import faults
from admittance.runtime.telemetry.tracing import extract, inject, trace_id
from admittance.variants.core import FAMILY_STATES, GATHER, FamilyActs
from admittance.workload.bucket_reader import names_of, read, read_manifest

SERVICE: Final = "variant-controller"
PATTERNS: Final = ("workload.>", "clusterqueue.>", "localqueue.>")
ROLE: Final = b'"role"'
"""The bytes of every stored parent and variant contain this text; a workload without the text is
regular."""
SECRET_PAUSE_SECONDS: Final = 0.5
EVENTS: Final[dict[type[Fact], str]] = {
    facts.Submitted: "variant_submitted",
    facts.Activated: "variant_activated",
    facts.Deactivated: "variant_deactivated",
    facts.Reprioritized: "variant_reprioritized",
    facts.Deleted: "variant_deleted",
    facts.Ungated: "variant_ungated",
}

log = structlog.get_logger()


class FamilyReconciler:
    """Keeps the families of workloads (a parent and its variants) as the concurrent admission
    policy requires. ``epoch``: the epoch of this instance's leadership. ``stated`` counts this
    instance's facts that the bus has acknowledged.
    """

    def __init__(
        self, bus: Bus, settings: Settings, core: FamilyActs, epoch: int, errors: list[ObjectError]
    ) -> None:
        self._errors = errors
        self._bus = bus
        self._settings = settings
        self.core = core
        self.stated = 0
        self.ready = False
        self._epoch = epoch
        self._serial = 0
        self._traces: dict[tuple[str, str], str] = {}
        self._logged_unreadable: set[WorkloadName] = set()
        self._loaded = asyncio.Event()
        self._changed = asyncio.Event()
        self._serving: micro.Serving | None = None
        self._throttle = LogThrottle()

    async def run(self) -> None:
        """Watches the bucket and publishes facts until cancelled. Raises the error of the first
        task that fails."""
        async with task_group() as tasks:
            tasks.create_task(self._watch(), name="bucket")
            tasks.create_task(self._publish_acts(), name="ordering")

    async def close(self) -> None:
        """Stops answering requests about families."""
        self.ready = False
        serving, self._serving = self._serving, None
        if serving is not None:
            await serving.stop()

    async def _status(self, _: bytes, __: str) -> FamiliesReply:
        return FamiliesReply(
            families=len(self.core),
            pending=self.core.pending,
            stuck=self.core.stuck,
            stated=self.stated,
            gates_open=self.core.gates_open(),
        )

    # The bucket. --------------------------------------------------------------------

    async def _watch(self) -> None:
        await follow_bucket(self._bus, PATTERNS, self._apply_batch, self._on_loaded)

    def _apply_batch(self, entries: Sequence[Entry]) -> None:
        apply_each(entries, self._apply, self._apply_as_deleted, service=SERVICE)
        self._changed.set()

    def _on_loaded(self, revision: int) -> None:
        self._loaded.set()
        log.info("families_known", families=len(self.core), through=revision)

    def _apply(self, entry: Entry) -> None:
        kind, _, tail = entry.key.partition(".")
        now = clock.now()
        names_of(entry.key)
        if kind == "workload" and entry.value is not None and ROLE not in entry.value:
            self.core.regular(entry.key)
        elif kind == "workload":
            workload = None if entry.value is None else read(entry.key, entry.value)
            self.core.apply(entry.key, workload, entry.revision, now)
            self._trace(entry)
        else:
            self._object(kind, tail, _decoded(entry), now)

    def _apply_as_deleted(self, entry: Entry) -> None:
        self._apply(replace(entry, value=None))

    def _object(self, kind: str, tail: str, manifest: Any, now: datetime) -> None:
        *namespace, name = map(plain, tail.split("."))
        self.core.apply_object(OBJECT_KINDS[kind], "".join(namespace), name, manifest, now)

    def _trace(self, entry: Entry) -> None:
        name = workload_name(entry.key)
        context = extract(entry.headers)
        if context and name in self.core:
            self._traces[name] = context
        elif name in self._traces and name not in self.core:
            del self._traces[name]

    # Orders. ------------------------------------------------------------------------

    async def _publish_acts(self) -> None:
        # Nothing is published before the whole bucket is read: until then variants may seem to have
        # no parent.
        await self._loaded.wait()
        secret = await self._secret()
        while True:
            # The event ``_changed`` is cleared before publishing, so that a change of the bucket
            # during publishing causes another round.
            self._changed.clear()
            while acts := self.core.acts(clock.now()):
                await self._publish(acts, secret)
            faults.record_all(SERVICE, self._errors)
            self._errors.clear()
            self._log_unreadable()
            if self._serving is None:
                await self._serve()
            await set_before(self._changed, self.core.wake())

    def _log_unreadable(self) -> None:
        unreadable = self.core.unreadable
        for name in unreadable.keys() - self._logged_unreadable:
            log.warning(
                "family_unreadable",
                namespace=name.namespace,
                family=name.name,
                error=unreadable[name],
            )
        self._logged_unreadable = set(unreadable)

    async def _secret(self) -> bytes:
        throttle = LogThrottle()

        def failed(error: AdmittanceError, _: float) -> None:
            if not is_temporary(error):
                raise error
            if throttle.due(clock.monotonic()):
                log.warning("secret_missing", error=str(error))

        backoff = Backoff(SECRET_PAUSE_SECONDS, SECRET_PAUSE_SECONDS)
        return await until_returned(
            lambda: known_secret(self._bus), backoff, failed, on=(BusUnavailable, BusRefused)
        )

    async def _serve(self) -> None:
        self._serving = await micro.serve(
            self._bus.nc, SERVICE, self._settings.instance, {"admit.api.families": self._status}
        )
        self.ready = True
        log.info("serving", families=len(self.core))

    async def _publish(self, acts: list[Act], secret: bytes) -> None:
        now = clock.now()
        messages: list[Outgoing] = []
        said: list[Act] = []
        for act in acts:
            try:
                messages.append(self._message(act, secret))
                said.append(act)
            except Exception as error:
                about = f"workload {act.fact.namespace}/{act.fact.name}"
                faults.record(SERVICE, "publish an act of a family", about, error)
                self.core.failed(act.fact, now)
        outcomes = await self._bus.publish_each(messages)
        now = clock.now()
        failed: dict[str, int] = {}
        for act, outcome in zip(said, outcomes, strict=True):
            if isinstance(outcome, int):
                self.stated += 1
                self._throttle = LogThrottle()
                self.core.stated(act.fact, outcome)
                continue
            self.core.failed(act.fact, now)
            failed[str(outcome)] = failed.get(str(outcome), 0) + 1
        if failed and self._throttle.due(clock.monotonic()):
            for reason, count in failed.items():
                log.warning("facts_not_published", error=reason, count=count)

    def _message(self, act: Act, secret: bytes) -> Outgoing:
        fact = act.fact
        family = self.core.family_of(fact)
        trace = self._traces.get(family, "") if family is not None else ""
        event = EVENTS.get(type(fact))
        if event is not None:
            log.log(
                logging.WARNING if act.tries >= STUCK else logging.INFO,
                event,
                namespace=fact.namespace,
                family=family.name if family is not None else "",
                variant=fact.name,
                why=act.why,
                trace=trace_id(trace),
                **({"without_effect": act.tries} if act.tries else {}),
            )
        # Each fact gets a new message id: the bus drops a message that the client sends twice after
        # a lost connection, but keeps a fact that is published again because it had no effect.
        self._serial += 1
        said = message_id(secret, SERVICE, self._epoch, self._serial)
        headers = {HEADER_MSG_ID: said, HEADER_SCHEMA: SCHEMA_VERSION}
        return Outgoing(subject_of(fact), encode(fact), inject(headers, trace))


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
