"""The schedules to set and cancel so that the schedules on the bus match the stored workloads. The
module is pure.

Schedules are derived from stored workloads. A lost, doubled or late schedule is found by comparison
(`Schedules.compare`) and corrected. Except for the comparison, the work is proportional to the
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
from admittance.workload.limits import Limits
from admittance.workload.stored import StoredWorkload
from admittance.workload.transition_context import CheckRules

SETTLE: Final = timedelta(seconds=1)
"""How long a schedule change that is not urgent is delayed. Most waits end before their schedule
would be set, for instance an evicted job's wait for its stop."""
SOON: Final = timedelta(seconds=5)
"""A schedule that is due within this time is set at once."""
SKEW: Final = timedelta(seconds=2)
"""A schedule that is due within this time is not compared, because by the server's clock the
schedule may have fired already."""


class Corrections(NamedTuple):
    """The number of differences between the stream of schedules and what was known of it.
    ``missing``: schedules that the stream lacks; ``wrong``: schedules with another time or uid;
    ``orphaned``: schedules for which no workload waits."""

    missing: tuple[TimerSlot, ...] = ()
    wrong: tuple[TimerSlot, ...] = ()
    orphaned: tuple[TimerSlot, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.missing or self.wrong or self.orphaned)


class _SlotState:
    """What is known about the schedule of a slot. ``is_known``: ``actual`` is the schedule that the
    bus has, unless another process changed it. ``in_flight``: an order is not answered yet."""

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
    """Keeps the wanted and the actual schedules, and gives the orders that make both equal.

    ``now`` is always the wall clock with a time zone. No order to set or remove a schedule is given
    before the stream of schedules was read once.
    """

    def __init__(self, limits: Limits) -> None:
        self.wanted = WantedSchedules(limits)
        self.has_compared = False
        """The stream of schedules was compared once, so orders to set or remove schedules may be
        given."""
        self._slots: dict[TimerSlot, _SlotState] = {}
        self._urgent: dict[TimerSlot, None] = {}
        self._ripening: dict[TimerSlot, datetime] = {}
        self._in_flight: set[TimerSlot] = set()
        self._overdue = OverdueSlots()
        self._touched: set[TimerSlot] | None = None

    # What changes. ------------------------------------------------------------------

    def apply(
        self, key: str, workload: StoredWorkload | None, revision: int, now: datetime
    ) -> None:
        """Records that the workload at the key changed; None: the workload was deleted.

        Raises ValueError if the key is not a workload's key."""
        self._note_wanted(self.wanted.apply(workload_name(key), workload, revision, now), now)

    def apply_check(self, check: str, rules: CheckRules | None, now: datetime) -> None:
        """Records that the rules of the AdmissionCheck changed; None: the check was deleted."""
        self._note_wanted(self.wanted.apply_check(check, rules, now), now)

    def _note_wanted(self, changed: Iterable[Changed], now: datetime) -> None:
        for slot, want in changed:
            state = self._slots.setdefault(slot, _SlotState())
            state.want = want
            self._overdue.forget(slot)
            self._list(slot, state, now)

    # Orders. ------------------------------------------------------------------------

    def orders(self, now: datetime, limit: int = 1000) -> list[Order]:
        """Returns the orders to perform now, the most urgent first. The caller reports each order
        with `done` or `failed`.

        A slot has at most one order at a time, so orders may take effect in any sequence."""
        found: list[Order] = []
        while self.has_compared and len(found) < limit:
            ready = self._ready(now, limit - len(found))
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
                found.append(Cancel(slot) if state.want is None else SetTimer(slot, state.want))
        return found

    def next_order_at(self) -> datetime | None:
        """When the next order becomes due although nothing changes; None: never."""
        if not self.has_compared or not self._ripening:
            return None
        return next(iter(self._ripening.values()))

    @property
    def pending(self) -> int:
        """The number of slots with a schedule that differs, or may differ, from the wanted one."""
        return len(self._urgent) + len(self._ripening) + len(self._in_flight)

    def done(self, order: Order, now: datetime) -> None:
        """Records that the bus has acknowledged the order."""
        state = self._landed(order.slot)
        state.is_known = True
        state.actual = order.want.expected if isinstance(order, SetTimer) else None
        self._list(order.slot, state, now)

    def failed(self, order: Order, now: datetime) -> None:
        """Records that the order to set or remove a schedule was refused, or that the outcome of
        the order is unknown. A failed order is given again later."""
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
        """When to check whether the next due schedule had an effect; None: no schedule is set."""
        return self._overdue.next()

    def take_overdue(self, now: datetime) -> list[TimerSlot]:
        """Returns the slots that were due a while ago and whose workload has not changed since,
        because the fact was lost or changed nothing. The schedules of overdue slots are set again,
        with growing pauses. Call this method only when all due facts have been processed; otherwise
        facts pile up for a workload-controller that is merely behind."""
        found = []
        for slot in self._overdue.take(now):
            state = self._slots.get(slot)
            if state is None or state.want is None or state.in_flight or not state.is_settled:
                continue
            state.actual = None
            self._list(slot, state, now)
            found.append(slot)
        return found

    # Comparison. --------------------------------------------------------------------

    def begin_comparison(self) -> None:
        """Called before the stream of schedules is read. The comparison skips slots that have an
        order in flight at this time or later."""
        self._touched = set(self._in_flight)

    def compare(self, standing: Mapping[TimerSlot, ActualSchedule], now: datetime) -> Corrections:
        """Compares the schedules in ``standing``, which were read from the stream, with the known
        ones. Returns the differences, which the next orders correct. ``now``: a time after the
        stream was read. The first comparison is with the wanted schedules."""
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
                # The schedule's time has come, and `take_overdue` checks that the schedule had an
                # effect.
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
        """Lists the slot as urgent or ripening if it needs an order; drops a slot without
        schedules."""
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
            # A time later than now plus `SETTLE` is possible only if the clock was set back.
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
    """Whether the schedule needs no order although no workload waits for it: it is due, so it fires
    without effect and disappears."""
    return state.want is None and state.is_known and _due(state.actual, now)
