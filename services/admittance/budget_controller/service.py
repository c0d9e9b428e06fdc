"""The budget-controller: reads the bucket and the sums of usage, and publishes the verdicts of
`admittance.budgets`.

A verdict carries the fence of this leader, so that the server refuses it once another instance
leads. This leader decides when its state includes everything that its predecessor has published: it
publishes a barrier, which the workload-controller echoes to the bucket after it has committed all
earlier facts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

import msgspec
import structlog

from admittance.api.budgets import BUDGET_CONTROLLER, Budget
from admittance.api.checks import AdmissionCheck
from admittance.budget_controller.usage_reader import UsageReader
from admittance.budgets.decisions import BudgetDecisions, BudgetVerdict
from admittance.budgets.states import ACCOUNTS_MAX, state_in, state_of
from admittance.checks import AdmissionCheckController, Later, Request
from admittance.checks.controller import CheckService
from admittance.events.requests.budgets import Budgets, BudgetsReply, BudgetState
from admittance.events.subjects import namespace_of_request
from admittance.lease import service_domain
from admittance.runtime import clock
from admittance.runtime.bus.bucket import Entry, apply_each, follow_bucket, follow_until
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import BusRefused, BusUnavailable
from admittance.runtime.leader.barriers import echo_key, read_echo
from admittance.runtime.leader.leader_elected_service import LeaderElectedService
from admittance.runtime.leader.verdict_publisher import VerdictPublisher
from admittance.runtime.nats import micro
from admittance.runtime.process.admin import show_metrics
from admittance.runtime.process.settings import Settings
from admittance.runtime.tasks import set_before, task_group
from admittance.runtime.telemetry.logger import LogThrottle
from admittance.runtime.telemetry.metrics import Counter, Gauges, gauge
from admittance.workload.bucket_reader import names_of, read, read_manifest

SERVICE: Final = "budget-controller"
DOMAIN: Final = service_domain(SERVICE)
OBJECTS: Final = ("admissioncheck.>", "budget.>")
REFRESH_SECONDS: Final = 30.0
"""How often the states of budgets are computed for the metrics."""
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
        self._reading = asyncio.Lock()
        self.states: dict[str, BudgetState] = {}
        """For the metrics, as of a moment ago."""
        self._needed = asyncio.Event()
        self._echoed = asyncio.Event()
        self._changed = asyncio.Event()
        self._stop = asyncio.Event()
        self._serving: micro.Serving | None = None
        self._publisher = VerdictPublisher(
            bus, DOMAIN, epoch, owner=settings.instance, ids="budget"
        )
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
            tasks.create_task(self._serve_requests(), name="answering")
            tasks.create_task(self._refresh(), name="metrics")

    async def close(self) -> None:
        """Stops the answers to requests."""
        self._stop.set()
        serving, self._serving = self._serving, None
        if serving is not None:
            await serving.stop()

    # What is known. -----------------------------------------------------------------------

    async def _follow(self) -> None:
        """Follows checks and budgets alone until there is a check to answer, then workloads too."""
        await follow_until(self._needed, self._bus, OBJECTS, self._on_objects, self._checks_loaded)
        await self._publisher.barrier()
        await follow_bucket(
            self._bus,
            (*OBJECTS, "workload.>", echo_key(DOMAIN)),
            self._on_entries,
            lambda _: self._loaded.set(),
            current=True,
        )

    def _on_objects(self, entries: Sequence[Entry]) -> None:
        apply_each(entries, self._on_entry, service=SERVICE)
        if self.decisions.serves:
            self._needed.set()

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
        try:
            await self._read_sums()
        except (BusUnavailable, BusRefused) as error:
            why = f"the usage is not summed up to now: {error}"
            if self._throttle.due(clock.monotonic()):
                log.warning("usage_not_summed", reason=str(error))
            await self._publish(self.decisions.undecided(clock.now(), why))
            return False
        await self._publish(self.decisions.decide(clock.now()))
        return True

    async def _read_sums(self) -> None:
        """Reads the sums up to the end of the log. Raises BusUnavailable and BusRefused."""
        async with self._reading:
            sums = await self._usage.read(self.decisions.periods(clock.now()))
            self.decisions.apply_sums(sums.summaries, sums.periods, sums.changed)

    async def _publish(self, verdicts: Sequence[BudgetVerdict]) -> None:
        if not verdicts:
            return
        now = clock.now()
        refusals = await self._publisher.publish([verdict.fact(now) for verdict in verdicts])
        for verdict, refused in zip(verdicts, refusals, strict=True):
            about = {
                "namespace": verdict.holder.namespace,
                "workload": verdict.holder.name,
                "check": verdict.check,
            }
            if refused is not None:
                # The decisions send it again after a time.
                if self._throttle.due(clock.monotonic()):
                    log.warning("verdict_refused", **about, error=str(refused))
                continue
            self._counted.add((verdict.check, verdict.answer.state))
            log.info("judged", **about, state=verdict.answer.state, message=verdict.answer.message)

    # Answers. -----------------------------------------------------------------------------

    async def _serve_requests(self) -> None:
        await self._checks_loaded.wait()
        endpoints = {"admit.api.budgets": self._budgets, "admit.api.budgets.*": self._budgets}
        self._serving = await micro.serve(self._bus.nc, SERVICE, self._settings.instance, endpoints)

    async def _budgets(self, data: bytes, subject: str) -> BudgetsReply:
        namespace = namespace_of_request(subject)
        asked = msgspec.json.decode(data, type=Budgets) if data else Budgets()
        if self._needed.is_set():
            await self._loaded.wait()
            try:
                await self._read_sums()
            except (BusUnavailable, BusRefused) as error:
                return BudgetsReply(error=f"the usage is not summed up to now: {error}")
        names = [
            name
            for name in self.decisions.budgets()
            if (name == asked.budget if asked.budget else name > asked.after)
        ]
        now, states, accounts, read = clock.now(), list[BudgetState](), 0, 0
        for name in names:
            if len(states) >= max(1, asked.limit) or accounts >= ACCOUNTS_MAX:
                break
            read += 1
            if namespace:
                state = state_in(self.decisions, name, namespace, now)
            else:
                state = state_of(self.decisions, name, now)
            if state is not None:
                states.append(state)
                accounts += len(state.accounts)
        return BudgetsReply(budgets=tuple(states), more=len(names) > read)

    async def _refresh(self) -> None:
        """Keeps the states for the metrics, while there is a check."""
        await self._loaded.wait()
        while True:
            try:
                await self._read_sums()
            except (BusUnavailable, BusRefused) as error:
                if self._throttle.due(clock.monotonic()):
                    log.warning("usage_not_summed", reason=str(error))
            else:
                now = clock.now()
                names = self.decisions.budgets()
                self.states = {name: state_of(self.decisions, name, now) for name in names}
            await asyncio.sleep(REFRESH_SECONDS)


async def _later(request: Request) -> Later:
    log.debug("asked", workload=f"{request.namespace}/{request.name}", check=request.check)
    return Later()


__all__ = ["SERVICE", "run"]

WAITING: Final = gauge(
    "budget_workloads_waiting", "Workloads that wait for a verdict of the budget-controller"
)


_ACCOUNT: Final = ("budget", "account")
USED: Final = gauge(
    "budget_used", "What the account has used in the window of its budget, in its unit", _ACCOUNT
)
AHEAD: Final = gauge(
    "budget_ahead", "What jobs of the account may still use by their time limits", _ACCOUNT
)
LIMIT: Final = gauge("budget_limit", "The limit of the account in a window", _ACCOUNT)
DELAYED: Final = gauge(
    "budget_workloads_delayed",
    "Workloads that wait for a budget, in backoff or for its verdict",
    ("budget",),
)
GAUGES: Final = (WAITING, USED, AHEAD, LIMIT, DELAYED)


def values_of(states: Mapping[str, BudgetState]) -> dict[str, dict[tuple[str, ...], float]]:
    """The values of the gauges about budgets, of at most `ACCOUNTS_MAX` accounts of each."""
    values: dict[str, dict[tuple[str, ...], float]] = {each.name: {} for each in GAUGES}
    for name, state in states.items():
        values[DELAYED.name][(name,)] = state.waiting_total
        for account in state.accounts:
            about = name, account.name
            values[USED.name][about], values[AHEAD.name][about] = account.used, account.ahead
            if account.limit is not None:
                values[LIMIT.name][about] = account.limit
    return values


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
        if work is None:
            return {}
        waiting: dict[tuple[str, ...], float] = {(): len(work.decisions.waiting())}
        return {**values_of(work.states), WAITING.name: waiting}

    async with show_metrics(settings, Gauges(GAUGES, gauges), counted):
        await elected.run(stop)
