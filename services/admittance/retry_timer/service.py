"""The retry-timer reads the bucket, compares the schedules that workloads need with the timers
stream, and sets and cancels schedules.

One instance of the retry-timer is active; the others stand by. A stale leader does no harm: a wrong
schedule only makes the workload-controller look at a workload without effect, and the next
comparison of schedules corrects the schedule.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec
import structlog
from msgspec.structs import replace

from admittance.api.checks import AdmissionCheck
from admittance.events.names import plain
from admittance.events.reader import Reader, Unreadable
from admittance.events.requests.history import Settled, SettledReply
from admittance.events.requests.services import TimersReply
from admittance.events.subjects import TIMER_DUE
from admittance.lease import service_domain
from admittance.runtime import chance, clock
from admittance.runtime.bus import history, timers
from admittance.runtime.bus.bucket import Entry, apply_each, follow_bucket
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.errors import BusRefused, BusUnavailable
from admittance.runtime.leader.leader_elected_service import LeaderElectedService
from admittance.runtime.nats import micro
from admittance.runtime.process.settings import Settings
from admittance.runtime.tasks import end_tasks, set_before, task_group
from admittance.runtime.telemetry.logger import LogThrottle
from admittance.runtime.telemetry.object_faults import faults
from admittance.timers.core import Schedules
from admittance.timers.schedules import ActualSchedule, Cancel, Order, SetTimer, TimerSlot, due
from admittance.workload.bucket_reader import names_of, read, read_manifest
from admittance.workload.limits import limits_of
from admittance.workload.transition_context import CheckRules, check_rules

SERVICE: Final = "retry-timer"
PATTERNS: Final = ("workload.>", "admissioncheck.>")
SHARE: Final = 30
"""The pause after a comparison of all schedules is at least this many times the comparison's
duration.
"""
READ_AGAIN_SECONDS: Final = 1.0
"""Seconds before the timers stream is read again after a failure."""
LATER_SECONDS: Final = 5.0
"""Seconds before the retry-timer looks at overdue schedules again, if the workload-controller may
not have processed all due timers.
"""
ANSWER_SECONDS: Final = 35.0
CANCELS: Final = 200
"""The most cancellations of schedules that are in flight at once."""
SLOTS_LOGGED: Final = 20
"""The most slots (a kind of timer of a workload) that one log line names."""

log = structlog.get_logger()
_settled = Reader(SettledReply)


class ScheduleReconciler:
    """Sets and cancels schedules so that the bus has one schedule for every time for which a
    workload waits. ``mended``: how many schedules comparisons have corrected. ``repeated``: how
    many schedules were set again because they came due without effect.
    """

    def __init__(self, bus: Bus, settings: Settings, core: Schedules) -> None:
        self._bus = bus
        self._settings = settings
        self.core = core
        self.mended = 0
        self.repeated = 0
        self.ready = False
        self._compared: datetime | None = None
        self._loaded = asyncio.Event()
        self._changed = asyncio.Event()
        self._repeating: asyncio.Task[None] | None = None
        self._serving: micro.Serving | None = None
        self._throttle = LogThrottle()

    async def run(self) -> None:
        """Watches the bucket, compares schedules and sets them until cancelled. Raises the error of
        the first task that fails."""
        async with task_group() as tasks:
            tasks.create_task(self._watch(), name="bucket")
            tasks.create_task(self._compare_periodically(), name="comparing")
            tasks.create_task(self._perform_orders(), name="ordering")

    async def close(self) -> None:
        """Stops answering requests about schedules. The schedules stay on the bus."""
        self.ready = False
        repeating, self._repeating = self._repeating, None
        if repeating is not None:
            await end_tasks(repeating)
        serving, self._serving = self._serving, None
        if serving is not None:
            await serving.stop()

    async def _status(self, _: bytes, __: str) -> TimersReply:
        return TimersReply(
            wanted=len(self.core.wanted),
            pending=self.core.pending,
            mended=self.mended,
            again=self.repeated,
            compared=self._compared,
        )

    # The bucket. --------------------------------------------------------------------

    async def _watch(self) -> None:
        await follow_bucket(self._bus, PATTERNS, self._apply_batch, self._on_loaded)

    def _apply_batch(self, entries: Sequence[Entry]) -> None:
        apply_each(entries, self._apply, self._apply_as_deleted, service=SERVICE)
        self._changed.set()

    def _on_loaded(self, revision: int) -> None:
        self._loaded.set()
        log.info("workloads_known", wanted=len(self.core.wanted), through=revision)

    def _apply(self, entry: Entry) -> None:
        kind, _, tail = entry.key.partition(".")
        now = clock.now()
        names_of(entry.key)
        if kind == "workload":
            value = entry.value
            waits = value is not None and self.core.may_wait(value)
            workload = read(entry.key, value) if value is not None and waits else None
            self.core.apply(entry.key, workload, entry.revision, now)
        else:
            self.core.apply_check(plain(tail), _rules(entry), now)

    def _apply_as_deleted(self, entry: Entry) -> None:
        # For an unreadable AdmissionCheck the last readable rules stay in force.
        if entry.key.startswith("workload."):
            self._apply(replace(entry, value=None))

    # Orders. ------------------------------------------------------------------------

    async def _perform_orders(self) -> None:
        while True:
            # The event ``_changed`` is cleared before schedules are set and cancelled, so that a
            # change of the bucket meanwhile causes another round.
            self._changed.clear()
            while orders := self.core.orders(clock.now()):
                await self._perform(orders)
            wakes = [self.core.next_order_at()]
            if self._repeating is not None and self._repeating.done():
                self._repeating.result()
                self._repeating = None
            if self._repeating is None:
                wakes.append(self.core.next_overdue_at())
                if _is_past(wakes[-1]):
                    self._repeating = asyncio.create_task(self._repeat_overdue(), name="overdue")
                    continue
            soonest = min((wake for wake in wakes if wake is not None), default=None)
            await set_before(self._changed, soonest)

    async def _perform(self, orders: list[Order]) -> None:
        sets = [order for order in orders if isinstance(order, SetTimer)]
        cancels = [order for order in orders if isinstance(order, Cancel)]
        if sets:
            await self._set(sets)
        for start in range(0, len(cancels), CANCELS):
            part = cancels[start : start + CANCELS]
            outcomes = await asyncio.gather(
                *(timers.cancel(self._bus, *order.slot) for order in part), return_exceptions=True
            )
            for order, outcome in zip(part, outcomes, strict=True):
                self._note(order, outcome)

    async def _set(self, orders: list[SetTimer]) -> None:
        messages: list[Outgoing] = []
        sent: list[SetTimer] = []
        for order in orders:
            try:
                message = timers.schedule_message(
                    *order.slot, order.want.at, due(order), uid=order.want.uid
                )
            except Exception as error:
                faults.record(SERVICE, "set a schedule", f"schedule {order.slot}", error)
                self.core.failed(order, clock.now())
                continue
            messages.append(message)
            sent.append(order)
        for order, outcome in zip(sent, await self._bus.publish_each(messages), strict=True):
            self._note(order, outcome)

    def _note(self, order: Order, outcome: object) -> None:
        now = clock.now()
        if not isinstance(outcome, BaseException):
            self.core.done(order, now)
            self._throttle = LogThrottle()
            return
        self.core.failed(order, now)
        if not isinstance(outcome, BusUnavailable | BusRefused):
            raise outcome
        if self._throttle.due(clock.monotonic()):
            log.warning("order_failed", **_named([order.slot]), error=str(outcome))

    # Comparison. --------------------------------------------------------------------

    async def _compare_periodically(self) -> None:
        await self._loaded.wait()
        throttle = LogThrottle()
        while True:
            began = clock.monotonic()
            try:
                await self._compare()
            except (BusUnavailable, BusRefused) as error:
                if throttle.due(clock.monotonic()):
                    log.warning("comparison_failed", error=str(error))
                await asyncio.sleep(READ_AGAIN_SECONDS)
                continue
            took = clock.monotonic() - began
            # Because of the jitter of 20 %, several deployments on one machine do not compare their
            # schedules at the same time.
            pause = max(self._settings.compare_seconds, SHARE * took)
            await asyncio.sleep(pause * chance.uniform(0.8, 1.2))

    async def _compare(self) -> None:
        first = not self.core.has_compared
        self.core.begin_comparison()
        listed, strange = await timers.schedules(self._bus)
        standing = {
            TimerSlot(*schedule[:3]): ActualSchedule(schedule.at, schedule.uid)
            for schedule in listed
        }
        now = clock.now()
        mended = self.core.compare(standing, now)
        for what, slots in mended._asdict().items():
            if slots and first:
                log.info("schedules_differ", what=what, count=len(slots))
            elif slots:
                self.mended += len(slots)
                log.warning("schedules_corrected", what=what, count=len(slots), **_named(slots))
        for subject in strange:
            log.warning("schedule_without_slot", subject=subject)
            await timers.purge(self._bus, subject)
        self._compared = now
        self._changed.set()
        await timers.purge_copied(self._bus)
        if first:
            self._serving = await micro.serve(
                self._bus.nc, SERVICE, self._settings.instance, {"admit.api.timers": self._status}
            )
            self.ready = True
            log.info("serving", standing=len(listed), wanted=len(self.core.wanted))

    # Overdue ones. ------------------------------------------------------------------

    async def _repeat_overdue(self) -> None:
        if await self._all_due_are_processed():
            slots = self.core.take_overdue(clock.now())
            if slots:
                self.repeated += len(slots)
                log.warning("due_without_effect", count=len(slots), **_named(slots))
        else:
            await asyncio.sleep(LATER_SECONDS)
        self._changed.set()

    async def _all_due_are_processed(self) -> bool:
        """Whether the workload-controller has processed every ``timer.due`` on the log. Only then
        an overdue schedule has come due without effect; otherwise its effect may still follow.
        """
        try:
            newest = await history.last(self._bus, f"{TIMER_DUE}>")
            if newest is None:
                return True
            question = msgspec.json.encode(Settled(sequence=newest.sequence))
            answer = await self._bus.request("admit.api.settled", question, ANSWER_SECONDS)
            return not _settled(answer).error
        except (BusUnavailable, BusRefused, Unreadable):
            return False


def _rules(entry: Entry) -> CheckRules | None:
    if entry.value is None:
        return None
    manifest = read_manifest(entry.key, entry.value)
    return check_rules(manifest) if isinstance(manifest, AdmissionCheck) else None


def _is_past(when: datetime | None) -> bool:
    return when is not None and when <= clock.now()


def _named(slots: Sequence[TimerSlot]) -> dict[str, str]:
    shown = [f"{slot.kind} {slot.namespace}/{slot.name}" for slot in slots[:SLOTS_LOGGED]]
    return {"slots": ", ".join(shown)}


__all__ = ["SERVICE", "run"]


async def run(bus: Bus, settings: Settings, *, stop: asyncio.Event) -> None:
    """Runs the retry-timer while this instance leads, until ``stop`` is set."""
    limits = limits_of(
        settings.configuration,
        drain=settings.drain_seconds,
        check_delay=settings.check_delay_seconds,
    )

    def begin(_: int) -> ScheduleReconciler:
        return ScheduleReconciler(bus, settings, Schedules(limits))

    elected = LeaderElectedService(
        bus,
        settings,
        SERVICE,
        service_domain(SERVICE),
        begin,
        lag=lambda service: service.core.pending,
    )
    await elected.run(stop)
