"""After any history of changes and losses, the schedules are what the workloads wait for."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from admittance.timers.core import SKEW
from admittance.timers.schedules import PATIENCE_MAX, ActualSchedule, Order, SetTimer, TimerSlot
from admittance.workload.due_times import due_times
from admittance.workload.limits import Limits
from admittance.workload.stored import StoredWorkload
from admittance.workload.transition_context import CheckRules
from support.cores.stepped_timers import (
    LIMITS,
    SteppedTimers,
    admitted,
    checked,
    delayed,
    evicted,
    idle,
    rules,
    seconds,
)
from support.examples import examples

NAMES = st.sampled_from(["a", "b", "c"])
CHECKS = ("one", "two")
TIMES = st.integers(0, 400)


class _Rules:
    """The verdicts of the checks that the test has published."""

    limits: Limits = LIMITS

    def __init__(self) -> None:
        self.rules: dict[str, CheckRules] = {}

    def check(self, name: str) -> CheckRules | None:
        return self.rules.get(name)


class TimersConverge(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.table = SteppedTimers(begun=False)
        self.bucket: dict[str, StoredWorkload] = {}
        self.checks = _Rules()
        self.flying: list[Order] = []
        self.ordered: set[tuple[TimerSlot, ActualSchedule]] = set()

    # What happens to workloads. ---------------------------------------------------------

    def _has(self, name: str, workload: StoredWorkload | None) -> None:
        self.table.has(workload, name)
        if workload is None:
            self.bucket.pop(name, None)
        else:
            self.bucket[name] = workload

    @rule(name=NAMES, until=TIMES, uid=st.sampled_from("uv"))
    def is_delayed(self, name: str, until: int, uid: str) -> None:
        self._has(name, delayed(until, uid))

    @rule(name=NAMES, since=TIMES, longest=st.none() | TIMES)
    def is_admitted(self, name: str, since: int, longest: int | None) -> None:
        self._has(name, admitted(since, longest))

    @rule(name=NAMES, since=TIMES)
    def is_evicted(self, name: str, since: int) -> None:
        self._has(name, evicted(since))

    @rule(name=NAMES, since=TIMES)
    def waits_for_the_checks(self, name: str, since: int) -> None:
        self._has(name, checked(since, *CHECKS))

    @rule(name=NAMES)
    def needs_no_timer(self, name: str) -> None:
        self._has(name, idle())

    @rule(name=NAMES)
    def is_deleted(self, name: str) -> None:
        self._has(name, None)

    @rule(check=st.sampled_from(CHECKS), timeout=st.none() | st.integers(1, 300))
    def check_says(self, check: str, timeout: int | None) -> None:
        self.table.with_check(check, timeout)
        self.checks.rules[check] = rules(check, timeout)

    # What happens on the bus. -----------------------------------------------------------

    @rule(count=st.sampled_from([0.3, 1, 3, 10, 100]))
    def time_passes(self, count: float) -> None:
        self.table.later(count)

    @rule()
    def orders_go_out(self) -> None:
        orders = self.table.orders()
        slots = [order.slot for order in [*self.flying, *orders]]
        assert len(slots) == len(set(slots)), "two orders of one slot at once"
        for order in orders:
            if isinstance(order, SetTimer):
                self.ordered.add((order.slot, order.want.expected))
        self.flying += orders

    @rule(effect=st.booleans(), known=st.booleans())
    def an_order_lands(self, effect: bool, known: bool) -> None:
        if not self.flying:
            return
        order = self.flying.pop(0)
        if effect or known:
            self.table.bus.perform(order)
        if known:
            self.table.timers.done(order, self.table.now)
        else:
            self.table.timers.failed(order, self.table.now)

    @rule(data=st.data())
    def a_schedule_is_lost(self, data: st.DataObject) -> None:
        if self.table.bus.standing:
            del self.table.bus.standing[data.draw(st.sampled_from(sorted(self.table.bus.standing)))]

    @rule(name=NAMES, kind=st.sampled_from(["requeue", "drain", "strange"]), at=TIMES)
    def another_program_meddles(self, name: str, kind: str, at: int) -> None:
        self.table.bus.standing[TimerSlot(kind, "ns", name)] = ActualSchedule(seconds(at), "x")

    @rule()
    def the_stream_is_read(self) -> None:
        self.table.compare()

    @rule()
    def overdue_ones_are_set_anew(self) -> None:
        self.table.timers.take_overdue(self.table.now)

    # What always holds. -----------------------------------------------------------------

    def _wanted(self) -> dict[TimerSlot, ActualSchedule]:
        return {
            TimerSlot(str(kind), "ns", name): ActualSchedule(at, workload.metadata.uid)
            for name, workload in self.bucket.items()
            for kind, at in due_times(workload, self.table.now, self.checks).items()
        }

    @invariant()
    def no_timer_fires_early(self) -> None:
        assert all(stands.at <= when for _, stands, when in self.table.bus.fired if stands.at)

    @invariant()
    def no_more_is_known_than_is_wanted_or_stands(self) -> None:
        assert len(self.table.timers.wanted) == len(self._wanted())

    def teardown(self) -> None:
        """After any history, once all faults have ended and the service has compared its schedules,
        the schedules are right."""
        table = self.table
        for order in self.flying:
            table.timers.failed(order, table.now)
        table.compare()
        table.settled()
        # A timer that was due before it was judged has fired by then, if it was set at all.
        table.later(SKEW.total_seconds())
        wanted = self._wanted()
        ahead = {slot: timer for slot, timer in wanted.items() if timer.at and timer.at > table.now}
        assert {s: t for s, t in table.bus.standing.items() if t.at and t.at > table.now} == ahead
        # What the clock has passed was fired, or will be once more.
        table.later(PATIENCE_MAX.total_seconds() + 10)
        table.bus.fired.clear()
        table.timers.take_overdue(table.now)
        table.follow()
        table.bus.fire(table.now)
        fired = {(slot, stands) for slot, stands, _ in table.bus.fired}
        due = {(slot, stands) for slot, stands in wanted.items() if slot not in ahead}
        assert due <= fired


TestTimersConverge = TimersConverge.TestCase
TestTimersConverge.settings = settings(
    max_examples=examples(60), stateful_step_count=40, deadline=None
)
