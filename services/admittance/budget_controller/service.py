"""The budget-controller: reads the bucket and the sums of usage, and publishes the verdicts of
`admittance.budgets`.

A verdict carries the fence of this leader, so that the server refuses it once another instance
leads. This leader decides when its state includes everything that its predecessor has published: it
publishes a barrier, which the workload-controller echoes to the bucket after it has committed all
earlier facts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import structlog

from admittance.api.budgets import BUDGET_CONTROLLER, Budget
from admittance.api.checks import AdmissionCheck
from admittance.budget_controller.usage_reader import UsageReader
from admittance.budgets.decisions import BudgetDecisions, BudgetVerdict
from admittance.checks import AdmissionCheckController, Later, Request
from admittance.checks.controller import CheckService
from admittance.events.base import HEADER_MSG_ID, HEADER_SCHEMA, SCHEMA_VERSION
from admittance.events.codec import encode
from admittance.events.names import token
from admittance.events.subjects import BARRIER, subject_of
from admittance.events.system import Barrier
from admittance.lease import service_domain
from admittance.runtime import clock
from admittance.runtime.bus.bucket import Entry, apply_each, follow_bucket
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.bus.messages import with_retries
from admittance.runtime.errors import BusRefused, BusUnavailable, Fenced, Superseded
from admittance.runtime.leader.barriers import echo_key, read_echo
from admittance.runtime.leader.leader_elected_service import LeaderElectedService
from admittance.runtime.leader.lease_store import fence
from admittance.runtime.process.admin import show_metrics
from admittance.runtime.process.settings import Settings
from admittance.runtime.tasks import cancel_and_wait, first_of, set_before, task_group
from admittance.runtime.telemetry.logger import LogThrottle
from admittance.runtime.telemetry.metrics import Counter, Gauges, gauge
from admittance.workload.bucket_reader import names_of, read, read_manifest

SERVICE: Final = "budget-controller"
DOMAIN: Final = service_domain(SERVICE)
OBJECTS: Final = ("admissioncheck.>", "budget.>")
AGAIN_SECONDS: Final = 1.0
"""Seconds before the sums are read again, when they could not be read."""

log = structlog.get_logger()


class BudgetReconciler:
    """The verdicts of one leader. No workload is read before there is a check to answer, so that a
    deployment without budgets does nothing. ``counted``: the counter of verdicts."""

    def __init__(self, bus: Bus, settings: Settings, epoch: int, counted: Counter) -> None:
        self._bus = bus
        self._settings = settings
        self._epoch = epoch
        self._counted = counted
        self.decisions = BudgetDecisions(timedelta(seconds=settings.check_delay_seconds))
        self._usage = UsageReader(bus, self.decisions.apply_run)
        self._checks_loaded = asyncio.Event()
        self._loaded = asyncio.Event()
        self._needed = asyncio.Event()
        self._echoed = asyncio.Event()
        self._changed = asyncio.Event()
        self._stop = asyncio.Event()
        self._serial = 0
        self._throttle = LogThrottle()
        self.controller = AdmissionCheckController(BUDGET_CONTROLLER)
        self.controller.check(_later)

    @property
    def ready(self) -> bool:
        """Whether requests are answered, or there is no check to answer."""
        known = self._echoed if self._needed.is_set() else self._checks_loaded
        return known.is_set() and not self._stop.is_set()

    async def run(self) -> None:
        """Answers until cancelled. Raises Superseded when another instance leads."""
        async with task_group() as tasks:
            tasks.create_task(self._follow(), name="workloads")
            tasks.create_task(self._serve_check(), name="check")
            tasks.create_task(self._decide(), name="deciding")

    async def close(self) -> None:
        """Stops the answers to requests."""
        self._stop.set()

    # What is known. -----------------------------------------------------------------------

    async def _follow(self) -> None:
        """Follows checks and budgets alone until there is a check to answer, then workloads too."""
        waiting = asyncio.create_task(self._follow_objects(), name="objects")
        try:
            await first_of(waiting, event=self._needed)
            if waiting.done():
                waiting.result()
        finally:
            await cancel_and_wait(waiting)
        # Everything that the predecessor has published stands before this barrier.
        await with_retries(self._publish_barrier)
        await follow_bucket(
            self._bus,
            (*OBJECTS, "workload.>", echo_key(DOMAIN)),
            self._on_entries,
            lambda _: self._loaded.set(),
            current=True,
        )

    async def _follow_objects(self) -> None:
        await follow_bucket(
            self._bus,
            OBJECTS,
            self._on_objects,
            lambda _: self._checks_loaded.set(),
            current=True,
        )

    def _on_objects(self, entries: Sequence[Entry]) -> None:
        apply_each(entries, self._on_entry, service=SERVICE)
        if self.decisions.serves:
            self._needed.set()

    async def _publish_barrier(self) -> None:
        barrier = Barrier(domain=DOMAIN, owner=self._settings.instance, epoch=self._epoch)
        headers = fence(DOMAIN, self._epoch)
        try:
            await self._bus.publish(Outgoing(f"{BARRIER}{token(DOMAIN)}", encode(barrier), headers))
        except Fenced as error:
            raise Superseded(f"another instance leads {DOMAIN}") from error

    def _on_entries(self, entries: Sequence[Entry]) -> None:
        apply_each(entries, self._on_entry, self._on_unreadable, service=SERVICE)
        self._changed.set()

    def _on_entry(self, entry: Entry) -> None:
        if entry.key == echo_key(DOMAIN):
            if entry.value is not None and read_echo(entry.key, entry.value).epoch >= self._epoch:
                self._echoed.set()
            return
        kind = entry.key.partition(".")[0]
        namespace, name = names_of(entry.key)
        if kind == "workload":
            workload = read(entry.key, entry.value) if entry.value is not None else None
            self.decisions.apply_workload(namespace, name, workload, clock.now())
            return
        manifest = read_manifest(entry.key, entry.value) if entry.value is not None else None
        if kind == "budget":
            budget = manifest if isinstance(manifest, Budget) else None
            self.decisions.apply_budget(name, budget)
        else:
            check = manifest if isinstance(manifest, AdmissionCheck) else None
            self.decisions.apply_check(name, check)

    def _on_unreadable(self, entry: Entry) -> None:
        # Without its value an object has no effect; a workload keeps what it held before.
        kind, _, _ = entry.key.partition(".")
        _, name = names_of(entry.key)
        if kind == "budget":
            self.decisions.apply_budget(name, None)

    # The check. ---------------------------------------------------------------------------

    async def _serve_check(self) -> None:
        # Requests need no answer of their own: what is judged is read from the bucket. They are
        # received, so that the log does not keep them, and heartbeats say that the check is active.
        await self._needed.wait()
        await self._echoed.wait()
        await CheckService(self.controller, self._bus, self._settings).run(self._stop)

    async def _decide(self) -> None:
        await self._loaded.wait()
        await self._echoed.wait()
        log.info("serving", epoch=self._epoch)
        while True:
            self._changed.clear()
            now = clock.now()
            due = self.decisions.due(now)
            if due is None or due > now:
                await set_before(self._changed, due)
            elif not await self._judge():
                await asyncio.sleep(AGAIN_SECONDS)

    async def _judge(self) -> bool:
        """Publishes the verdicts that are due; returns False to try again after a pause."""
        now = clock.now()
        try:
            sums = await self._usage.summaries(self.decisions.periods(now))
        except (BusUnavailable, BusRefused) as error:
            why = f"the usage is not summed up to now: {error}"
            if self._throttle.due(clock.monotonic()):
                log.warning("usage_not_summed", reason=str(error))
            await self._publish(self.decisions.undecided(now, why))
            return False
        await self._publish(self.decisions.decide(now, sums))
        return True

    async def _publish(self, verdicts: Sequence[BudgetVerdict]) -> None:
        messages = [self._message(verdict) for verdict in verdicts]
        if not messages:
            return
        outcomes = await with_retries(lambda: self._bus.publish_all(messages))
        for verdict, outcome in zip(verdicts, outcomes, strict=True):
            if isinstance(outcome, Fenced):
                raise Superseded(f"another instance leads {DOMAIN}")
            about = {
                "namespace": verdict.holder.namespace,
                "workload": verdict.holder.name,
                "check": verdict.check,
            }
            if isinstance(outcome, BusRefused):
                # The decisions send it again after a time.
                if self._throttle.due(clock.monotonic()):
                    log.warning("verdict_refused", **about, error=str(outcome))
                continue
            self._counted.add((verdict.check, verdict.answer.state))
            log.info("judged", **about, state=verdict.answer.state, message=verdict.answer.message)

    def _message(self, verdict: BudgetVerdict) -> Outgoing:
        self._serial += 1
        fact = verdict.fact(clock.now())
        headers = {
            HEADER_MSG_ID: f"budget/{self._epoch}/{self._serial}",
            HEADER_SCHEMA: SCHEMA_VERSION,
            **fence(DOMAIN, self._epoch),
        }
        return Outgoing(subject_of(fact), encode(fact), headers)


async def _later(request: Request) -> Later:
    log.debug("asked", workload=f"{request.namespace}/{request.name}", check=request.check)
    return Later()


__all__ = ["SERVICE", "run"]

WAITING: Final = gauge(
    "budget_workloads_waiting", "Workloads that wait for a verdict of the budget-controller"
)


def verdict_counter() -> Counter:
    """The counter of verdicts."""
    return Counter(
        "budget_verdicts",
        "Verdicts of the budget-controller, by check and state",
        ("check", "state"),
    )


async def run(bus: Bus, settings: Settings, *, stop: asyncio.Event) -> None:
    """Runs the budget-controller while this instance leads, until ``stop`` is set."""
    counted = verdict_counter()

    def begin(epoch: int) -> BudgetReconciler:
        return BudgetReconciler(bus, settings, epoch, counted)

    elected = LeaderElectedService(bus, settings, SERVICE, DOMAIN, begin)

    def gauges() -> dict[str, dict[tuple[str, ...], float]]:
        work = elected.work
        return {WAITING.name: {(): len(work.decisions.waiting())}} if work is not None else {}

    async with show_metrics(settings, Gauges((WAITING,), gauges), counted):
        await elected.run(stop)
