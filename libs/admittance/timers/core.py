"""The schedules to set and cancel so that the bus follows the workloads. Pure.

The stored workloads are the truth; schedules are derived. A lost, doubled or late schedule is found
by comparison (`Timers.found`) and corrected. Except for that comparison, work is proportional to
change."""

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
    Slot,
    WantedSchedule,
    WantedSchedules,
)
from admittance.workload.limits import Limits
from admittance.workload.stored import StoredWorkload
from admittance.workload.transition_context import CheckRules

SETTLE: Final = timedelta(seconds=1)
"""A change that is not urgent is delayed this long: most waits end before their schedule would be
set, for instance an evicted job's wait for its stop."""
SOON: Final = timedelta(seconds=5)
"""A schedule that is due within this time is set at once."""
SKEW: Final = timedelta(seconds=2)
"""A schedule this close to its time is not compared: by the server's clock it may have fired."""


class Corrections(NamedTuple):
    """Differences between the stream and what was known of it. ``missing``: no schedule; ``wrong``:
    another time or uid; ``orphaned``: a schedule that no workload waits for."""

    missing: tuple[Slot, ...] = ()
    wrong: tuple[Slot, ...] = ()
    orphaned: tuple[Slot, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.missing or self.wrong or self.orphaned)


class _SlotState:
    """What is known of a slot. ``sure``: ``stands`` is what the bus has, unless another process
    changed it. ``flying``: an order is not answered yet."""

    __slots__ = ("flying", "stands", "sure", "want")

    def __init__(self) -> None:
        self.want: WantedSchedule | None = None
        self.stands: ActualSchedule | None = None
        self.sure = True
        self.flying = False

    @property
    def right(self) -> bool:
        return self.sure and self.stands == (self.want.stands if self.want is not None else None)


class Timers:
    """The wanted schedules, the actual schedules, and the orders that make them equal.

    ``now`` is the wall clock everywhere, aware. No order is given before the stream was read once.
    """

    def __init__(self, limits: Limits) -> None:
        self.wanted = WantedSchedules(limits)
        self.begun = False
        """The stream was read once, so orders may be given."""
        self._places: dict[Slot, _SlotState] = {}
        self._urgent: dict[Slot, None] = {}
        self._ripening: dict[Slot, datetime] = {}
        self._flying: set[Slot] = set()
        self._overdue = OverdueSlots()
        self._touched: set[Slot] | None = None

    # What changes. ------------------------------------------------------------------

    def apply(
        self, key: str, workload: StoredWorkload | None, revision: int, now: datetime
    ) -> None:
        """The workload at that key changed to this; None: it was deleted.

        Raises ValueError if it is not a workload's key."""
        self._want(self.wanted.apply(workload_name(key), workload, revision, now), now)

    def rule(self, check: str, rules: CheckRules | None, now: datetime) -> None:
        """The AdmissionCheck's rules changed to this; None: it was deleted."""
        self._want(self.wanted.rule(check, rules, now), now)

    def _want(self, changed: Iterable[Changed], now: datetime) -> None:
        for slot, want in changed:
            place = self._places.setdefault(slot, _SlotState())
            place.want = want
            self._overdue.forget(slot)
            self._weigh(slot, place, now)

    # Orders. ------------------------------------------------------------------------

    def orders(self, now: datetime, limit: int = 1000) -> list[Order]:
        """The orders to perform now, the most urgent first. The caller answers each with `done` or
        `failed`.

        A slot has at most one order at a time, so orders may take effect in any sequence."""
        found: list[Order] = []
        while self.begun and len(found) < limit:
            ready = self._ready(now, limit - len(found))
            if not ready:
                break
            for slot in ready:
                self._unlist(slot)
                place = self._places[slot]
                if _goes_by_itself(place, now):
                    self._drop(slot)
                    continue
                place.flying = True
                self._flying.add(slot)
                self._touch(slot)
                found.append(Cancel(slot) if place.want is None else SetTimer(slot, place.want))
        return found

    def wake(self) -> datetime | None:
        """When time alone causes the next order; None: never."""
        if not self.begun or not self._ripening:
            return None
        return next(iter(self._ripening.values()))

    @property
    def pending(self) -> int:
        """Slots with a schedule that differs, or may differ, from the wanted one."""
        return len(self._urgent) + len(self._ripening) + len(self._flying)

    def done(self, order: Order, now: datetime) -> None:
        """The bus has acknowledged it."""
        place = self._landed(order.slot)
        place.sure = True
        place.stands = order.want.stands if isinstance(order, SetTimer) else None
        self._weigh(order.slot, place, now)

    def failed(self, order: Order, now: datetime) -> None:
        """The order was refused or its outcome is unknown: it is given again."""
        place = self._landed(order.slot)
        place.sure = False
        self._weigh(order.slot, place, now)

    def _landed(self, slot: Slot) -> _SlotState:
        self._flying.discard(slot)
        self._touch(slot)
        place = self._places[slot]
        place.flying = False
        return place

    # Overdue ones. ------------------------------------------------------------------

    def overdue(self) -> datetime | None:
        """When to check whether the next due time had an effect; None: no time is expected."""
        return self._overdue.next()

    def again(self, now: datetime) -> list[Slot]:
        """Slots that came due a while ago without a change of their workload: the fact was lost or
        changed nothing. They are set again, with growing pauses. Call it only when all due facts
        have been processed; otherwise facts pile up for a workload-controller that is merely
        behind."""
        found = []
        for slot in self._overdue.take(now):
            place = self._places.get(slot)
            if place is None or place.want is None or place.flying or not place.right:
                continue
            place.stands = None
            self._weigh(slot, place, now)
            found.append(slot)
        return found

    # Comparison. --------------------------------------------------------------------

    def looking(self) -> None:
        """The stream is about to be read. Slots with an order in flight, or one given from now on,
        are left out of the comparison."""
        self._touched = set(self._flying)

    def found(self, standing: Mapping[Slot, ActualSchedule], now: datetime) -> Corrections:
        """The schedules on the stream. Returns the differences, which the next orders correct.
        ``now``: after the stream was read. The first comparison is against the wanted schedules."""
        touched = self._touched if self._touched is not None else set(self._flying)
        self._touched = None
        first, self.begun = not self.begun, True
        missing, wrong, orphaned = [], [], []
        for slot in [*self._places, *(slot for slot in standing if slot not in self._places)]:
            if slot in touched:
                continue
            real = standing.get(slot)
            place = self._places.get(slot) or _SlotState()
            thought = place.stands
            if first:
                thought = place.want.stands if place.want is not None else None
            elif not place.sure:
                thought = real
            elif real == thought:
                continue
            elif real is None and _due(thought, now + SKEW):
                # Its time has come; `again` checks that it had an effect.
                continue
            if real is not None and place.want is None and _due(real, now + SKEW):
                continue
            self._places[slot] = place
            place.stands, place.sure = real, True
            if real is None and thought is not None:
                missing.append(slot)
            elif real is not None and thought is None:
                orphaned.append(slot)
            elif real != thought:
                wrong.append(slot)
            self._weigh(slot, place, now)
        return Corrections(tuple(missing), tuple(wrong), tuple(orphaned))

    # Steps. -------------------------------------------------------------------------

    def _weigh(self, slot: Slot, place: _SlotState, now: datetime) -> None:
        """Lists the slot as urgent or ripening if it needs an order; drops it if it is empty."""
        if place.flying:
            return
        if place.right:
            self._unlist(slot)
            if place.want is None:
                self._drop(slot)
            else:
                self._overdue.expect(slot, place.want.at, now)
            return
        if _goes_by_itself(place, now):
            self._drop(slot)
        elif place.sure and place.want is not None and place.want.at <= now + SOON:
            self._ripening.pop(slot, None)
            self._urgent[slot] = None
        elif slot not in self._urgent:
            self._ripening.setdefault(slot, now + SETTLE)

    def _ready(self, now: datetime, limit: int) -> list[Slot]:
        ready = list(islice(self._urgent, limit))
        for slot, when in islice(self._ripening.items(), limit - len(ready)):
            # A later time is possible only if the clock was set back.
            if now < when <= now + SETTLE:
                break
            ready.append(slot)
        return ready

    def _unlist(self, slot: Slot) -> None:
        self._urgent.pop(slot, None)
        self._ripening.pop(slot, None)

    def _drop(self, slot: Slot) -> None:
        self._unlist(slot)
        self._touch(slot)
        self._places.pop(slot, None)

    def _touch(self, slot: Slot) -> None:
        if self._touched is not None:
            self._touched.add(slot)


def _due(stands: ActualSchedule | None, by: datetime) -> bool:
    return stands is not None and stands.at is not None and stands.at <= by


def _goes_by_itself(place: _SlotState, now: datetime) -> bool:
    """No workload waits for the schedule and it is due: it fires without effect and disappears."""
    return place.want is None and place.sure and _due(place.stands, now)
