"""The scheduler on the bus: it watches the bucket, decides, and publishes its decisions.

The running instances of the scheduler share the domains. An instance of the scheduler decides for a
domain when it has the domain's epoch and the echo of its own barrier. Every decision carries the
fence of its domain, so the server refuses decisions of a former leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

import msgspec
import structlog

from admittance.api.kinds import KINDS
from admittance.events.base import HEADER_MSG_ID, HEADER_SCHEMA, HEADER_TRACE, SCHEMA_VERSION
from admittance.events.codec import encode
from admittance.events.facts import Assigned, Decision
from admittance.events.reader import SetAside, Unreadable, reason_of
from admittance.events.requests.explanation import Explain, ExplainReply
from admittance.events.requests.queues import PendingQuery, PendingReply, Queues, QueuesReply
from admittance.events.requests.services import HealthReply
from admittance.events.requests.whatif import Fit, FitReply
from admittance.events.subjects import BUCKET, USAGE, namespace_of_request, subject_of
from admittance.object_errors import ObjectError
from admittance.runtime import chance, clock
from admittance.runtime.bus.bucket import Entry, follow_bucket
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.errors import BusRefused, BusUnavailable, Fenced, is_temporary
from admittance.runtime.leader.barriers import read_echo
from admittance.runtime.leader.leader_elected_service import leader_metrics
from admittance.runtime.leader.leader_elector import LeaderElector
from admittance.runtime.leader.lease_store import fence
from admittance.runtime.nats import micro
from admittance.runtime.process.admin import show_metrics
from admittance.runtime.process.settings import Settings
from admittance.runtime.tasks import BackgroundTasks, end_tasks
from admittance.runtime.telemetry.last_hour import LastHour
from admittance.runtime.telemetry.logger import LogThrottle, log_set_aside
from admittance.runtime.telemetry.metrics import Counter, Gauges, Histogram, Metric, gauge
from admittance.runtime.telemetry.object_faults import faults
from admittance.runtime.telemetry.tracing import extract, follow, trace_id
from admittance.scheduler.change_notices import ChangeNotices
from admittance.scheduler.errands import Errands
from admittance.scheduler.pasts import Pasts
from admittance.scheduler.replays import Replays
from admittance.scheduler.simulations import Simulations
from admittance.scheduler.usage_keys import UsageKeys
from admittance.scheduling.cycle.decisions import Decided
from admittance.scheduling.last_day import SAMPLE_SECONDS
from admittance.scheduling.queue_gauges import GAUGES
from admittance.scheduling.scheduler import Scheduler
from admittance.scheduling.state.config import Config, changed_settings, config_of
from admittance.scheduling.state.object_errors import Suspect
from admittance.scheduling.state.workload_view import Inadmissible
from admittance.workload.bucket_reader import names_of, read, read_manifest
from admittance.workload.conditions import Type, is_true

QUEUE_GAUGES: Final = tuple(gauge(name, about, labels) for name, (about, labels) in GAUGES.items())
SUCCESS: Final = ("success",)
INADMISSIBLE: Final = ("inadmissible",)


class AttemptMetrics:
    """Counts and times the attempts to admit: the scheduling cycles of one domain. The label
    ``result`` is success if a workload got quota in the cycle, else inadmissible."""

    def __init__(self) -> None:
        about = "Cycles of a domain; success: a workload got quota, inadmissible: none did"
        self.attempts = Counter(
            "admission_attempts", about, ("result",), start=(SUCCESS, INADMISSIBLE)
        )
        self.durations = Histogram(
            "admission_attempt_duration_seconds",
            "How long a scheduling cycle of a domain took",
            ("result",),
        )
        self.metrics: tuple[Metric, ...] = (self.attempts, self.durations)

    def count(self, decided: Sequence[Decided], seconds: float) -> None:
        """Counts one scheduling cycle. ``decided``: the decisions of the cycle; ``seconds``: its
        duration."""
        got = any(isinstance(decision, Assigned) for decision in decided)
        result = SUCCESS if got else INADMISSIBLE
        self.attempts.add(result)
        self.durations.observe(result, seconds)


SERVICE: Final = "scheduler"
REFUSED_PAUSE_SECONDS: Final = 0.5
"""Seconds that the scheduler waits after the log has refused a decision for another reason than the
decision's fence."""
LEAVING_SECONDS: Final = 2.0
"""Most seconds that a scheduler waits, before it ends, until the bucket has stored the usages of
LocalQueues."""
LONG_WORK_SECONDS: Final = 0.005
"""Seconds of scheduling work after which the scheduler pauses, so that other tasks of the process
can run."""
PAUSE_FACTOR: Final = 3
"""Length of the pause after long scheduling work, as a multiple of the time of this work. With
50,000 workloads at once, admission took 42 s with a factor of 3, and 46 s and a fifth more CPU with
a factor of 1, because of failed searches."""
SUSPECTS_MAX: Final = 10_000
log = structlog.get_logger()

suspects: Final[dict[str, Inadmissible]] = {}
"""Why workloads are set aside that made the state of a scheduler of this process wrong, by uid."""


async def run(bus: Bus, settings: Settings, *, stop: asyncio.Event) -> None:
    """Schedules the domains of this instance until ``stop`` is set."""
    config = config_of(settings.configuration)
    leading = LeaderElector(
        bus,
        SERVICE,
        settings.instance,
        ttl_seconds=settings.lease_seconds,
        config=changed_settings(config),
    )
    scheduler = SchedulerService(bus, leading, config)
    errands = Errands(settings)
    simulations = Simulations(settings, config, errands)
    replays = Replays(errands)
    pasts = Pasts(settings, config)
    service = await micro.serve(
        bus.nc,
        SERVICE,
        settings.instance,
        {
            # The requests of a user must not keep the scheduler from its decisions.
            **micro.in_turns(
                {
                    "admit.api.explain.*": scheduler.explain,
                    "admit.api.fit.*": scheduler.fit,
                    "admit.api.pending": scheduler.pending,
                    "admit.api.pending.*": scheduler.pending,
                    "admit.api.queues": scheduler.queues,
                    "admit.api.queues.*": scheduler.queues,
                }
            ),
            "admit.api.simulate": simulations.simulate,
            "admit.api.simulate.*": simulations.simulate,
            "admit.api.replay": replays.replay,
            "admit.api.replay.*": replays.replay,
            **pasts.endpoints(),
        },
        every_instance={"admit.api.health": scheduler.health},
    )
    work = [
        asyncio.create_task(leading.run(), name="leading"),
        asyncio.create_task(scheduler.watch(), name="watch"),
        asyncio.create_task(scheduler.lead(), name="lead"),
        asyncio.create_task(scheduler.decide(), name="decide"),
        asyncio.create_task(scheduler.notices.run(), name="notices"),
        asyncio.create_task(scheduler.count(), name="count"),
    ]
    stopping = asyncio.create_task(stop.wait(), name="stop")
    try:
        gauges = Gauges(QUEUE_GAUGES, scheduler.gauges)
        attempts = scheduler.attempts.metrics
        async with show_metrics(settings, gauges, *attempts, leader_metrics(leading, SERVICE)):
            done, _ = await asyncio.wait([*work, stopping], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        await service.stop()
        await pasts.close()
        await end_tasks(*work, stopping)
        await scheduler.leave()
        await leading.resign()


def _set_aside(error: Suspect) -> BusUnavailable:
    """Sets a workload aside that made the state of the core wrong. Returns the exception to raise:
    then the service starts again, with a new state. The service then takes a new lease. The
    barrier of the new lease is on the log after all decisions of the old state."""
    faults.record_all(SERVICE, [error.error])
    if len(suspects) >= SUSPECTS_MAX:
        del suspects[next(iter(suspects))]
    suspects[error.uid] = error.problem
    return BusUnavailable(f"the state is made again without {error.error.about}")


class SchedulerService:
    """The scheduler of one instance: the core with its state, the lease of the instance, and the
    decisions that are being published."""

    def __init__(self, bus: Bus, leading: LeaderElector, config: Config | None = None) -> None:
        self._bus = bus
        self._leading = leading
        self._errors: list[ObjectError] = []
        self._core = Scheduler(config, self._errors, suspects)
        self._loaded = asyncio.Event()
        self._changed = asyncio.Event()
        self._traces: dict[tuple[str, str], str] = {}
        self._publishing = BackgroundTasks(self._on_failed)
        self._unwilling = False
        self._failed: BaseException | None = None
        self._usages = UsageKeys(bus)
        self.notices = ChangeNotices(bus, self._core)
        self.attempts = AttemptMetrics()
        self._hour = LastHour(self._core.pending_count)

    # State. -------------------------------------------------------------------------

    async def watch(self) -> None:
        """Reads the bucket and then follows its changes."""
        await follow_bucket(self._bus, (">",), self.read, self._on_loaded)

    def _on_loaded(self, revision: int) -> None:
        self._loaded.set()
        self._leading.changed.set()
        log.info("state_complete", revision=revision)

    def read(self, entries: Sequence[Entry]) -> None:
        """Applies changed entries of the bucket, in the order of their revisions."""
        now = clock.now()
        for entry in entries:
            try:
                self._take(entry, now)
            except Unreadable as error:
                # The scheduler keeps the last readable value of the entry: a workload keeps its
                # quota, because its job may run.
                log_set_aside(SetAside(f"KV_{BUCKET}", entry.key, entry.revision, str(error)))
            except Exception as error:
                # One invalid value must not hide the rest of the bucket.
                faults.record(SERVICE, "read an entry", entry.key, error)
                log_set_aside(SetAside(f"KV_{BUCKET}", entry.key, entry.revision, reason_of(error)))
        if entries:
            self._core.seen(entries[-1].revision)
        self.notices.look()
        self._changed.set()

    def _take(self, entry: Entry, now: datetime) -> None:
        prefix = entry.key.partition(".")[0]
        if prefix == "workload":
            self._take_workload(*names_of(entry.key), entry, now)
        elif prefix == "barrier":
            if entry.value is not None:
                echo = read_echo(entry.key, entry.value)
                if self._leading.echoed(echo.domain, echo.epoch):
                    self._core.own(echo.domain)
                    log.info("leading", domain=echo.domain, epoch=echo.epoch)
        elif prefix == USAGE:
            key, record = self._usages.read(entry)
            self._core.apply_usage(*key, record)
        elif prefix in _KIND_OF_TOKEN:
            self._take_object(_KIND_OF_TOKEN[prefix], entry)

    def _take_workload(self, namespace: str, name: str, entry: Entry, now: datetime) -> None:
        if entry.value is None:
            self._core.apply_workload(namespace, name, None, entry.revision, now=now)
            self._traces.pop((namespace, name), None)
            return
        workload = read(entry.key, entry.value)
        trace = extract(entry.headers)
        if is_true(workload, Type.FINISHED):
            self._traces.pop((namespace, name), None)
        elif trace:
            self._traces[namespace, name] = trace
        self._core.apply_workload(namespace, name, workload, entry.revision, now=now)

    def _take_object(self, kind: str, entry: Entry) -> None:
        namespace, name = names_of(entry.key)
        manifest = None if entry.value is None else read_manifest(entry.key, entry.value)
        self._core.apply_object(kind, namespace, name, manifest, entry.revision)
        self._leading.changed.set()

    # Leading. -----------------------------------------------------------------------

    async def lead(self) -> None:
        """Takes the lead of domains without a live leader, when such domains appear, and gives up
        domains whose last ClusterQueue is gone."""
        await self._loaded.wait()
        await self._leading.watching.wait()
        throttle = LogThrottle()
        while True:
            self._leading.changed.clear()
            domains = self._core.domains()
            self._leading.drop_others(domains)
            held = set(self._leading.lease.leads())
            for domain in self._core.owned() - held:
                self._core.disown(domain)
            try:
                await self._leading.take(sorted(domains), barrier=True)
            except (BusUnavailable, BusRefused) as error:
                # After a temporary error of the bus the scheduler's state is still correct, so the
                # service continues without a restart.
                if not is_temporary(error):
                    raise
                if throttle.due(clock.monotonic()):
                    log.warning("domains_not_taken", error=str(error))
                await asyncio.sleep(REFUSED_PAUSE_SECONDS)
                self._leading.changed.set()
            for domain in set(self._leading.lease.leads()) - self._core.owned():
                self._core.own(domain)
            self._changed.set()
            await self._leading.changed.wait()

    # Deciding. ----------------------------------------------------------------------

    async def decide(self) -> None:
        """Runs scheduling cycles while a cycle could make a decision. Between two cycles, changes
        from the bucket reach the scheduler's state."""
        await self._loaded.wait()
        loop = asyncio.get_running_loop()
        while True:
            if self._failed is not None:
                raise self._failed
            if self._unwilling:
                self._unwilling = False
                await asyncio.sleep(REFUSED_PAUSE_SECONDS)
            self._changed.clear()
            now = clock.now()
            self._core.wake(now=now)
            self._usages.write(self._core.usages_to_write(now=now))
            decisions: list[Decision] = []
            if self._core.has_work():
                begun = cycle_begun = clock.monotonic()
                for decided in self._decisions(now):
                    decisions += decided
                    cycle_ended = clock.monotonic()
                    self.attempts.count(decided, cycle_ended - cycle_begun)
                    self._hour.count(clock.now(), len(decided), cycle_ended - cycle_begun)
                    cycle_begun = cycle_ended
                    spent = cycle_ended - begun
                    if spent > LONG_WORK_SECONDS:
                        # The scheduler pauses, so that the task that reads the bucket can run:
                        # decisions made from an outdated state are refused.
                        self._publish_soon(decisions)
                        decisions = []
                        await asyncio.sleep(PAUSE_FACTOR * spent)
                        begun = cycle_begun = clock.monotonic()
            try:
                decisions += self._core.refusals(now=now)
            except Suspect as error:
                raise _set_aside(error) from error
            self._publish_soon(decisions)
            if self._errors:
                faults.record_all(SERVICE, self._errors)
                self._errors.clear()
            if self._core.has_work():
                # The sleep lets the scheduler read entries of the bucket that have arrived before
                # the next cycle.
                await asyncio.sleep(0)
                continue
            wake = self._core.next_wake()
            alarm = None
            if wake is not None:
                left = max(0.0, (wake - clock.now()).total_seconds())
                alarm = loop.call_later(left, self._changed.set)
            await self._changed.wait()
            if alarm is not None:
                alarm.cancel()

    def _decisions(self, now: datetime) -> Iterator[list[Decided]]:
        try:
            yield from self._core.by_domain(now=now)
        except Suspect as error:
            raise _set_aside(error) from error

    async def count(self) -> None:
        """Counts once a minute what waits and what is held, also in domains of others."""
        await self._loaded.wait()
        while True:
            self._core.count(now=clock.now())
            await asyncio.sleep(SAMPLE_SECONDS)

    async def leave(self) -> None:
        """Stores the consumption of LocalQueues up to now in the bucket, for the next leader."""
        self._usages.write(self._core.usages_to_write(now=clock.now(), at_once=True))
        await self._usages.settled(LEAVING_SECONDS)

    def _publish_soon(self, decisions: list[Decision]) -> None:
        # The next cycle does not wait until the log has acknowledged the decisions of this cycle:
        # it assumes that they hold, and the fence of the domain accepts or refuses the decisions of
        # both cycles.
        messages: list[tuple[Decision, Outgoing]] = []
        if not decisions:
            return
        for decision in decisions:
            epoch = self._leading.lease.fence(decision.domain)
            if epoch is None:
                self._core.disown(decision.domain)
                continue
            trace = self._traces.get((decision.namespace, decision.name), "")
            headers = {
                **fence(decision.domain, epoch),
                HEADER_SCHEMA: SCHEMA_VERSION,
                # The message id must be unguessable: if another program published a message with
                # the same id first, the server would drop the decision as a duplicate.
                HEADER_MSG_ID: chance.token_hex(12),
            }
            if trace:
                headers[HEADER_TRACE] = follow(trace)
            # The workload-controller logs each reservation and admission that it stores.
            write = log.debug if isinstance(decision, Assigned) else log.info
            write(
                f"workload_{type(decision).__name__.lower()}",
                namespace=decision.namespace,
                workload=decision.name,
                revision=decision.revision,
                trace=trace_id(trace),
            )
            for victim, preemptor, times in self._core.repeated(decision):
                log.warning("preemption_loop", victim=victim, preemptor=preemptor, times=times)
            messages.append((decision, Outgoing(subject_of(decision), encode(decision), headers)))
        self._publishing.start(self._publish(messages), name="publish")

    def _on_failed(self, _: asyncio.Task[Any], error: BaseException) -> None:
        # The scheduler would assume the decisions of the failed task forever, so the service ends
        # with the task's error.
        self._failed = error
        self._changed.set()

    async def _publish(self, messages: list[tuple[Decision, Outgoing]]) -> None:
        try:
            outcomes = await self._bus.publish_all([message for _, message in messages])
        except BusUnavailable as error:
            # The bus gave no answer, so some of the decisions may be on the log. The instance takes
            # the lead of the domains with a new epoch: when the new barrier's echo arrives, every
            # decision of the old epoch that reached the log is in the bucket, and no further
            # decision of the old epoch can reach the log.
            log.warning("decisions_unknown", error=str(error), decisions=len(messages))
            for domain in {decision.domain for decision, _ in messages}:
                await self._lose(domain)
            return
        for (decision, _), outcome in zip(messages, outcomes, strict=True):
            if isinstance(outcome, Fenced):
                await self._lose(decision.domain)
            elif isinstance(outcome, BusRefused):
                # The log refused a decision, for example because the log is full. The scheduler
                # forgets the decision and decides again after a pause.
                log.error("decision_refused", error=str(outcome), workload=decision.name)
                self._unwilling = True
                self._core.forget(decision.namespace, decision.name, decision.revision)
        self._changed.set()

    async def _lose(self, domain: str) -> None:
        if self._leading.lease.held(domain) is None:
            return
        log.warning("domain_lost", domain=domain)
        self._core.disown(domain)
        with suppress(BusUnavailable, BusRefused):
            await self._leading.lost(domain)

    # Requests. ----------------------------------------------------------------------

    async def explain(self, data: bytes, subject: str) -> ExplainReply:
        request = msgspec.json.decode(data, type=Explain)
        return self._core.explain(namespace_of_request(subject), request.name, now=clock.now())

    async def fit(self, data: bytes, subject: str) -> FitReply:
        request = msgspec.json.decode(data, type=Fit)
        return self._core.fit(request, namespace_of_request(subject))

    async def pending(self, data: bytes, subject: str) -> PendingReply:
        request = msgspec.json.decode(data or b"{}", type=PendingQuery)
        return self._core.pending(request, namespace=namespace_of_request(subject))

    async def queues(self, data: bytes, subject: str) -> QueuesReply:
        request = msgspec.json.decode(data or b"{}", type=Queues)
        return self._core.queues(request, namespace=namespace_of_request(subject))

    def gauges(self) -> dict[str, dict[tuple[str, ...], float]]:
        """The gauges of the queues in the domains that this scheduler leads. The thread that serves
        the metrics calls this function."""
        return self._core.gauges()

    async def health(self, _: bytes, __: str) -> HealthReply:
        domains = self._core.domains()
        lease = self._leading.lease
        leads = tuple(lease.leads())
        led = all(lease.owner(domain) not in ("", lease.instance) for domain in domains)
        ready = self._loaded.is_set() and (led or set(domains) <= set(leads) or bool(leads))
        return HealthReply(
            service=SERVICE,
            instance=lease.instance,
            ready=ready or (self._loaded.is_set() and not domains),
            leads=leads,
            details=self._leading.standby_details(domains),
            series=self._hour.series(clock.now()),
        )


_KIND_OF_TOKEN: Final[Mapping[str, str]] = {
    kind.prefix: kind.name for kind in KINDS.values() if kind.name not in ("Workload", "Job")
}
