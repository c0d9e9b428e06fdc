"""Decides which schedules the retry-timer must set and remove, so that the schedules on the bus
match the stored workloads. The module is pure.

The wanted schedules follow from the stored workloads. `Schedules.compare` finds lost and wrong
schedules, which the next orders correct. Except for `compare`, the work is proportional to the
number of changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from itertools import islice
from typing import Final, NamedTuple

from admittance.events.subjects import workload_name
from admittance.timers.schedules import (
    ActualSchedule,
    Cancel,
    Changed,
    Order,
    OverdueSlots,
    SetTimer,
    TimerSlot,
    WantedSchedule,
    WantedSchedules,
)
from admittance.workload.due_times import marks_of
from admittance.workload.limits import Limits
from admittance.workload.stored import StoredWorkload
from admittance.workload.transition_context import CheckRules

SETTLE: Final = timedelta(seconds=1)
"""How long an order that is not urgent is delayed. Most waits of workloads end before their
schedule is set, for instance the wait until an evicted job has stopped."""
SOON: Final = timedelta(seconds=5)
"""A wanted schedule that is due within this time is set at once."""
SKEW: Final = timedelta(seconds=2)
"""A schedule that is due within this time may be absent from the stream: by the NATS server's clock
the schedule may have fired already."""


class Corrections(NamedTuple):
    """The slots with a difference between the stream of schedules and what the retry-timer knew of
    the stream. ``missing``: slots without a schedule on the stream; ``wrong``: slots with a
    schedule on the stream that has another time or uid; ``orphaned``: slots with a schedule for
    which no workload waits."""

    missing: tuple[TimerSlot, ...] = ()
    wrong: tuple[TimerSlot, ...] = ()
    orphaned: tuple[TimerSlot, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.missing or self.wrong or self.orphaned)


class _SlotState:
    """What is known about the schedule of a slot. ``want``: the schedule that the slot should have.
    ``actual``: the schedule on the bus, as the retry-timer last set or read it; ``is_known``:
    ``actual`` is reliable. ``in_flight``: an order for the slot is not answered yet."""

    __slots__ = ("actual", "in_flight", "is_known", "want")

    def __init__(self) -> None:
        self.want: WantedSchedule | None = None
        self.actual: ActualSchedule | None = None
        self.is_known = True
        self.in_flight = False

    @property
    def is_settled(self) -> bool:
        return self.is_known and self.actual == (
            self.want.expected if self.want is not None else None
        )


class Schedules:
    """The wanted schedules and the actual schedules on the bus, with the orders that make both
    equal.

    ``now`` in all methods is the wall clock, with a time zone. `orders` returns nothing before
    `compare` was called once."""

    def __init__(self, limits: Limits) -> None:
        self.wanted = WantedSchedules(limits)
        self._marks = marks_of(limits)
        self.has_compared = False
        """Whether `compare` was called once, so that `orders` may return orders."""
        self._slots: dict[TimerSlot, _SlotState] = {}
        self._urgent: dict[TimerSlot, None] = {}
        self._ripening: dict[TimerSlot, datetime] = {}
        self._in_flight: set[TimerSlot] = set()
        self._overdue = OverdueSlots()
        self._touched: set[TimerSlot] | None = None

    # What changes. ------------------------------------------------------------------

    def may_wait(self, value: bytes) -> bool:
        """Whether the stored workload may need a schedule, now or after a change of a check. Of
        other workloads `apply` need not get the decoded value: they may count as deleted."""
        return any(mark in value for mark in self._marks)

    def apply(
        self, key: str, workload: StoredWorkload | None, revision: int, now: datetime
    ) -> None:
        """Records that the workload with the key ``key`` changed; None: the workload was deleted.

        Raises ValueError if ``key`` is not the key of a workload."""
        self._note_wanted(self.wanted.apply(workload_name(key), workload, revision, now), now)

    def apply_check(self, check: str, rules: CheckRules | None, now: datetime) -> None:
        """Records that the rules of the AdmissionCheck ``check`` changed; None: the check was
        deleted."""
        self._note_wanted(self.wanted.apply_check(check, rules, now), now)

    def _note_wanted(self, changed: Iterable[Changed], now: datetime) -> None:
        for slot, want in changed:
            state = self._slots.setdefault(slot, _SlotState())
            state.want = want
            self._overdue.forget(slot)
            self._list(slot, state, now)

    # Orders. ------------------------------------------------------------------------

    def orders(self, now: datetime, limit: int = 1000) -> list[Order]:
        """Returns the orders to perform now, the most urgent first. The caller must report the
        outcome of each order with `done` or `failed`.

        A slot has at most one order in flight, so orders may take effect in any sequence."""
        orders: list[Order] = []
        while self.has_compared and len(orders) < limit:
            ready = self._ready(now, limit - len(orders))
            if not ready:
                break
            for slot in ready:
                self._unlist(slot)
                state = self._slots[slot]
                if _goes_by_itself(state, now):
                    self._drop(slot)
                    continue
                state.in_flight = True
                self._in_flight.add(slot)
                self._touch(slot)
                orders.append(Cancel(slot) if state.want is None else SetTimer(slot, state.want))
        return orders

    def next_order_at(self) -> datetime | None:
        """When `orders` has its next order if nothing changes until then; None: never."""
        if not self.has_compared or not self._ripening:
            return None
        return next(iter(self._ripening.values()))

    @property
    def pending(self) -> int:
        """The number of slots with an actual schedule that differs, or may differ, from the wanted
        schedule."""
        return len(self._urgent) + len(self._ripening) + len(self._in_flight)

    def done(self, order: Order, now: datetime) -> None:
        """Records that the order has taken effect on the bus."""
        state = self._landed(order.slot)
        state.is_known = True
        state.actual = order.want.expected if isinstance(order, SetTimer) else None
        self._list(order.slot, state, now)

    def failed(self, order: Order, now: datetime) -> None:
        """Records that the order to set or remove a schedule was refused, or that the outcome of
        the order is unknown. `orders` returns a failed order again later."""
        state = self._landed(order.slot)
        state.is_known = False
        self._list(order.slot, state, now)

    def _landed(self, slot: TimerSlot) -> _SlotState:
        self._in_flight.discard(slot)
        self._touch(slot)
        state = self._slots[slot]
        state.in_flight = False
        return state

    # Overdue ones. ------------------------------------------------------------------

    def next_overdue_at(self) -> datetime | None:
        """When to call `take_overdue` next; None: no schedule is expected to have an effect."""
        return self._overdue.next()

    def take_overdue(self, now: datetime) -> list[TimerSlot]:
        """Returns the slots with a schedule that was due a while ago but had no effect on its
        workload, because the published fact was lost or changed nothing. The next orders set these
        schedules again, with growing pauses. `take_overdue` must be called only when the
        workload-controller has folded all due facts; otherwise more facts pile up for a
        workload-controller that is merely behind."""
        overdue = []
        for slot in self._overdue.take(now):
            state = self._slots.get(slot)
            if state is None or state.want is None or state.in_flight or not state.is_settled:
                continue
            state.actual = None
            self._list(slot, state, now)
            overdue.append(slot)
        return overdue

    # Comparison. --------------------------------------------------------------------

    def begin_comparison(self) -> None:
        """Must be called before the stream of schedules is read for `compare`. `compare` skips
        slots that have an order in flight at any time after `begin_comparison`."""
        self._touched = set(self._in_flight)

    def compare(self, standing: Mapping[TimerSlot, ActualSchedule], now: datetime) -> Corrections:
        """Compares ``standing``, the schedules read from the stream, with the schedules that the
        retry-timer believed to be there; the first call compares with the wanted schedules. Returns
        the differences, which the next orders correct. ``now``: a time after the stream was read.
        """
        touched = self._touched if self._touched is not None else set(self._in_flight)
        self._touched = None
        first, self.has_compared = not self.has_compared, True
        missing, wrong, orphaned = [], [], []
        for slot in [*self._slots, *(slot for slot in standing if slot not in self._slots)]:
            if slot in touched:
                continue
            real = standing.get(slot)
            state = self._slots.get(slot) or _SlotState()
            thought = state.actual
            if first:
                thought = state.want.expected if state.want is not None else None
            elif not state.is_known:
                thought = real
            elif real == thought:
                continue
            elif real is None and _due(thought, now + SKEW):
                # The schedule has probably fired; `take_overdue` checks that it had an effect.
                continue
            if real is not None and state.want is None and _due(real, now + SKEW):
                continue
            self._slots[slot] = state
            state.actual, state.is_known = real, True
            if real is None and thought is not None:
                missing.append(slot)
            elif real is not None and thought is None:
                orphaned.append(slot)
            elif real != thought:
                wrong.append(slot)
            self._list(slot, state, now)
        return Corrections(tuple(missing), tuple(wrong), tuple(orphaned))

    # Steps. -------------------------------------------------------------------------

    def _list(self, slot: TimerSlot, state: _SlotState, now: datetime) -> None:
        """Lists the slot as urgent, or as ripening until its order is due, if the slot needs an
        order; drops a slot that has and needs no schedule."""
        if state.in_flight:
            return
        if state.is_settled:
            self._unlist(slot)
            if state.want is None:
                self._drop(slot)
            else:
                self._overdue.expect(slot, state.want.at, now)
            return
        if _goes_by_itself(state, now):
            self._drop(slot)
        elif state.is_known and state.want is not None and state.want.at <= now + SOON:
            self._ripening.pop(slot, None)
            self._urgent[slot] = None
        elif slot not in self._urgent:
            self._ripening.setdefault(slot, now + SETTLE)

    def _ready(self, now: datetime, limit: int) -> list[TimerSlot]:
        ready = list(islice(self._urgent, limit))
        for slot, when in islice(self._ripening.items(), limit - len(ready)):
            # An order that becomes due later than `SETTLE` from now was listed before the clock was
            # set back: it is ready too.
            if now < when <= now + SETTLE:
                break
            ready.append(slot)
        return ready

    def _unlist(self, slot: TimerSlot) -> None:
        self._urgent.pop(slot, None)
        self._ripening.pop(slot, None)

    def _drop(self, slot: TimerSlot) -> None:
        self._unlist(slot)
        self._touch(slot)
        self._slots.pop(slot, None)

    def _touch(self, slot: TimerSlot) -> None:
        if self._touched is not None:
            self._touched.add(slot)


def _due(actual: ActualSchedule | None, by: datetime) -> bool:
    return actual is not None and actual.at is not None and actual.at <= by


def _goes_by_itself(state: _SlotState, now: datetime) -> bool:
    """Whether a schedule for which no workload waits can stay on the bus: the schedule is due, so
    it fires without effect and disappears."""
    return state.want is None and state.is_known and _due(state.actual, now)
