"""Slots, schedules and orders of the retry-timer; and the schedules that stored workloads need,
updated with every change of a workload. The module is pure.

`WantedSchedules` keeps only the times at which a workload needs a schedule. If the times of a
workload depend on AdmissionChecks, `WantedSchedules` keeps the whole workload, so that a change of
a check can update the times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple, TypeAlias

from admittance.backoff import pause_after
from admittance.events import facts
from admittance.events.codec import encode
from admittance.events.subjects import WorkloadName
from admittance.workload.due_times import due_times
from admittance.workload.limits import Limits
from admittance.workload.stored import StoredWorkload
from admittance.workload.transition_context import CheckRules


class TimerSlot(NamedTuple):
    """The place of one schedule on the bus, which keeps one schedule for each workload and each
    kind of wait."""

    kind: str
    namespace: str
    name: str


class WantedSchedule(NamedTuple):
    """The schedule that a slot should have. ``revision``: the revision of the workload that needs
    the schedule; ``uid``: the workload's uid; ``at``: when the bus must publish the fact."""

    at: datetime
    uid: str
    revision: int = 0

    @property
    def expected(self) -> ActualSchedule:
        """The actual schedule that the bus has once this wanted schedule is set."""
        return ActualSchedule(self.at, self.uid)


class ActualSchedule(NamedTuple):
    """The schedule that a slot has on the bus. ``at``: the time of the schedule; None: it cannot be
    read."""

    at: datetime | None
    uid: str


class SetTimer(NamedTuple):
    """An order that sets or replaces the schedule of a slot."""

    slot: TimerSlot
    want: WantedSchedule


class Cancel(NamedTuple):
    """An order that removes the schedule of a slot."""

    slot: TimerSlot


Order: TypeAlias = SetTimer | Cancel


def due(order: SetTimer) -> bytes:
    """Returns the encoded fact `TimerDue`, which the bus must publish at the time of the ordered
    schedule."""
    slot, want = order
    fact = facts.TimerDue(
        namespace=slot.namespace,
        name=slot.name,
        uid=want.uid,
        kind=slot.kind,
        at=want.at,
        revision=want.revision,
    )
    return encode(fact)


Changed = tuple[TimerSlot, WantedSchedule | None]
_NOTHING: Final[Mapping[str, WantedSchedule]] = {}


class _RecordingContext:
    """A context for `due_times` that records the names of the AdmissionChecks that `due_times`
    reads."""

    def __init__(self, limits: Limits, rules: dict[str, CheckRules]) -> None:
        self.limits = limits
        self._rules = rules
        self.names: set[str] = set()

    def check(self, name: str) -> CheckRules | None:
        self.names.add(name)
        return self._rules.get(name)


class _CheckedWorkload(NamedTuple):
    workload: StoredWorkload
    revision: int
    checks: frozenset[str]


class WantedSchedules:
    """The schedules that stored workloads need. ``unreadable``: workloads with an invalid time,
    each with the reason. Workloads with an invalid time were written by hand or by a newer version
    of Admittance, and get no schedules."""

    def __init__(self, limits: Limits) -> None:
        self._rules: dict[str, CheckRules] = {}
        self._asked = _RecordingContext(limits, self._rules)
        self._times: dict[WorkloadName, Mapping[str, WantedSchedule]] = {}
        self._kept: dict[WorkloadName, _CheckedWorkload] = {}
        self._by_check: dict[str, set[WorkloadName]] = {}
        self.unreadable: dict[WorkloadName, str] = {}

    def apply(
        self, name: WorkloadName, workload: StoredWorkload | None, revision: int, now: datetime
    ) -> Iterator[Changed]:
        """Records that the workload changed (None: the workload was deleted). Yields each slot with
        a changed wanted schedule (None: the slot needs no schedule any more)."""
        self._forget(name)
        times = _NOTHING
        if workload is not None:
            asked = self._asked
            times = self._times_of(name, workload, revision, now, asked)
            if asked.names:
                self._kept[name] = _CheckedWorkload(workload, revision, frozenset(asked.names))
                for check in asked.names:
                    self._by_check.setdefault(check, set()).add(name)
                asked.names.clear()
        before = self._times.pop(name, _NOTHING)
        if times:
            self._times[name] = times
        elif not before:
            # The most frequent case, for which this method must be fast: the workload needed no
            # schedule before and needs none now.
            return
        for kind in sorted(before.keys() | times.keys()):
            old, new = before.get(kind), times.get(kind)
            if old is None or new is None or old.expected != new.expected:
                yield TimerSlot(kind, *name), new

    def apply_check(self, check: str, rules: CheckRules | None, now: datetime) -> Iterator[Changed]:
        """Records that the rules of the AdmissionCheck changed (None: the check was deleted).
        Yields each slot with a changed wanted schedule."""
        before = self._rules.get(check)
        if rules == before:
            return
        if rules is None:
            del self._rules[check]
        else:
            self._rules[check] = rules
        if before is None or rules is None or rules.timeout_seconds != before.timeout_seconds:
            for name in sorted(self._by_check.get(check, ())):
                kept = self._kept[name]
                yield from self.apply(name, kept.workload, kept.revision, now)

    def __len__(self) -> int:
        return sum(map(len, self._times.values()))

    def _times_of(
        self,
        name: WorkloadName,
        workload: StoredWorkload,
        revision: int,
        now: datetime,
        asked: _RecordingContext,
    ) -> Mapping[str, WantedSchedule]:
        try:
            return {
                str(kind): WantedSchedule(_aware(at), workload.metadata.uid, revision)
                for kind, at in due_times(workload, now, asked).items()
            }
        except (OverflowError, TypeError) as error:
            # A time of the workload is beyond the calendar, or only some of its times have a time
            # zone. One workload with invalid times must not block other workloads.
            self.unreadable[name] = str(error)
            return _NOTHING

    def _forget(self, name: WorkloadName) -> None:
        self.unreadable.pop(name, None)
        kept = self._kept.pop(name, None)
        for check in kept.checks if kept is not None else ():
            names = self._by_check[check]
            names.discard(name)
            if not names:
                del self._by_check[check]


def _aware(at: datetime) -> datetime:
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


PATIENCE: Final = timedelta(seconds=5)
"""How long after a schedule's time the retry-timer verifies that the schedule had an effect. The
wait doubles each time that the schedule had no effect."""
PATIENCE_MAX: Final = timedelta(minutes=5)
SPARE: Final = 1000


class _Expected(NamedTuple):
    """A schedule that should have an effect. ``at``: the time of the schedule; ``look``: when to
    verify that it had an effect; None: it was found overdue, and is not set again yet; ``tries``:
    how often it was found overdue."""

    at: datetime
    look: datetime | None
    tries: int


class OverdueSlots:
    """Finds the slots with a schedule that had no effect although its time has come. Outdated
    entries of the heap are dropped when they are popped, or when they are more than half of the
    heap."""

    def __init__(self) -> None:
        self._expected: dict[TimerSlot, _Expected] = {}
        self._heap: list[tuple[datetime, TimerSlot]] = []

    def expect(self, slot: TimerSlot, at: datetime, now: datetime) -> None:
        """Records that the slot has a schedule on the bus for the time ``at``."""
        before = self._expected.get(slot)
        if before is not None and before.at == at and before.look is not None:
            return
        tries = before.tries if before is not None and before.at == at else 0
        look = max(at, now) + pause_after(tries + 1, PATIENCE, PATIENCE_MAX)
        self._expected[slot] = _Expected(at, look, tries)
        heappush(self._heap, (look, slot))
        if len(self._heap) > 2 * len(self._expected) + SPARE:
            self._heap = [(e.look, s) for s, e in self._expected.items() if e.look is not None]
            heapify(self._heap)

    def forget(self, slot: TimerSlot) -> None:
        """Expects no effect of the slot's schedule any more, because the slot now needs no schedule
        or another one."""
        self._expected.pop(slot, None)

    def next(self) -> datetime | None:
        """Returns when to call `take` next; None: no schedule is expected to have an effect."""
        while self._heap:
            look, slot = self._heap[0]
            expected = self._expected.get(slot)
            if expected is not None and expected.look == look:
                return look
            heappop(self._heap)
        return None

    def take(self, now: datetime) -> Iterator[TimerSlot]:
        """Yields the slots with a schedule that should have had its effect by now. A yielded slot
        is checked again only after `expect`, when its schedule has been set again."""
        while (look := self.next()) is not None and look <= now:
            _, slot = heappop(self._heap)
            expected = self._expected[slot]
            self._expected[slot] = expected._replace(look=None, tries=expected.tries + 1)
            yield slot
