"""What is to be set and cancelled, so that the schedules on the bus follow the workloads. Pure.

The state is the truth and a schedule a copy of it: whatever is lost, doubled or late on the stream
of timers is found by comparing (`Timers.found`) and mended. Nothing here costs more than what has
changed, but for that comparison.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from itertools import islice
from typing import Final, NamedTuple

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
    name_of,
)
from admittance.workload.limits import Limits
from admittance.workload.stored import StoredWorkload
from admittance.workload.transition_context import CheckRules

SETTLE: Final = timedelta(seconds=1)
"""What has time waits so long for what comes next: most waits are over before they are on the bus,
such as an evicted job's for its stop."""
SOON: Final = timedelta(seconds=5)
"""What is due before that is ordered at once."""
SKEW: Final = timedelta(seconds=2)
"""Nobody judges a schedule so shortly before its time: by the server's clock it may have fired."""


class Corrections(NamedTuple):
    """Where the stream was not as we thought. ``missing``: nothing stood; ``wrong``: another time,
    or a namesake's; ``orphaned``: something stood that nobody waits for."""

    missing: tuple[Slot, ...] = ()
    wrong: tuple[Slot, ...] = ()
    orphaned: tuple[Slot, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.missing or self.wrong or self.orphaned)


class _SlotState:
    """What is known of a slot. ``sure``: ``stands`` is what the bus has, unless somebody meddled.
    ``flying``: an order is out, and not answered."""

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
    """The schedules as they should be, as they are, and what leads from here to there.

    ``now`` is the wall clock everywhere, aware. No order is given before the stream was read once.
    """

    def __init__(self, limits: Limits) -> None:
        self.wanted = WantedSchedules(limits)
        self.begun = False
        """The stream was read: orders are given."""
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
        """What the bucket has at a workload's key from now on; None: nothing.

        Raises ValueError for the key of something else."""
        self._want(self.wanted.apply(name_of(key), workload, revision, now), now)

    def rule(self, check: str, rules: CheckRules | None, now: datetime) -> None:
        """What an AdmissionCheck says from now on; None: it is gone."""
        self._want(self.wanted.rule(check, rules, now), now)

    def _want(self, changed: Iterable[Changed], now: datetime) -> None:
        for slot, want in changed:
            place = self._places.setdefault(slot, _SlotState())
            place.want = want
            self._overdue.forget(slot)
            self._weigh(slot, place, now)

    # Orders. ------------------------------------------------------------------------

    def orders(self, now: datetime, limit: int = 1000) -> list[Order]:
        """What is to be done now, the most urgent first; each to be answered by `done` or `failed`.

        One order of a slot at a time, so it does not matter in which order they take effect."""
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
        """When there may be orders, if nothing else changes; None: never."""
        if not self.begun or not self._ripening:
            return None
        return next(iter(self._ripening.values()))

    @property
    def pending(self) -> int:
        """Slots that do not stand as they should, as far as is known."""
        return len(self._urgent) + len(self._ripening) + len(self._flying)

    def done(self, order: Order, now: datetime) -> None:
        """The bus has acknowledged it."""
        place = self._landed(order.slot)
        place.sure = True
        place.stands = order.want.stands if isinstance(order, SetTimer) else None
        self._weigh(order.slot, place, now)

    def failed(self, order: Order, now: datetime) -> None:
        """Refused, or nobody knows what became of it: it is given once more."""
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
        """When to see whether a time that came was heard of; None: none is expected."""
        return self._overdue.next()

    def again(self, now: datetime) -> list[Slot]:
        """Slots whose time came a while ago, without a change of their workloads: the fact is lost,
        or changed nothing. They are set anew, ever less often. To be asked when everything that is
        due has been dealt with, or facts pile up before one who is only late."""
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
        """The stream is about to be read. What is ordered from now on, or is on its way, is not
        judged by what will be found."""
        self._touched = set(self._flying)

    def found(self, standing: Mapping[Slot, ActualSchedule], now: datetime) -> Corrections:
        """What stands on the stream; what of it is otherwise than we thought, which is mended by
        the next orders. ``now``: after it was read. The first time, everything is news."""
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
                # Its time has come: `again` sees to it that this had an effect.
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
        """Puts the slot where it belongs: to what is to be ordered, to what is as it should be, or
        out of sight."""
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
            # Further away than that it is only when the clock was set back.
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
    """Nobody waits for it, and its time has come: it fires, which changes nothing, and is gone."""
    return place.want is None and place.sure and _due(place.stands, now)
