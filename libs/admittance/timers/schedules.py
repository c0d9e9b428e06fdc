"""From stored workloads to the times that they wait for, kept up to date change by change. Pure.

Of a workload only its times are kept, and of one whose times hang on what AdmissionChecks say, the
workload itself, so that a check that says otherwise moves them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple, TypeAlias

from admittance.events import facts
from admittance.events.codec import encode
from admittance.events.names import plain
from admittance.workload.due import due_times
from admittance.workload.limits import Limits
from admittance.workload.stored import StoredWorkload
from admittance.workload.transition_context import CheckRules


class Name(NamedTuple):
    """A workload's, plain."""

    namespace: str
    name: str


def name_of(key: str) -> Name:
    """The workload behind a key of the bucket. Raises BadToken, or ValueError for another key."""
    kind, namespace, name = key.split(".")
    if kind != "workload":
        raise ValueError(f"{key} is no workload's key")
    return Name(plain(namespace), plain(name))


class Slot(NamedTuple):
    """A place for one schedule: the bus keeps one for each kind and workload."""

    kind: str
    namespace: str
    name: str


class WantedSchedule(NamedTuple):
    """The schedule that a slot should have. ``revision``: of the workload as it asks for it."""

    at: datetime
    uid: str
    revision: int = 0

    @property
    def stands(self) -> ActualSchedule:
        """How it looks on the bus."""
        return ActualSchedule(self.at, self.uid)


class ActualSchedule(NamedTuple):
    """The schedule that a slot has. ``at`` None: it says no time that can be read."""

    at: datetime | None
    uid: str


class SetTimer(NamedTuple):
    """To be put where it belongs, in place of what stands there."""

    slot: Slot
    want: WantedSchedule


class Cancel(NamedTuple):
    """To be taken away."""

    slot: Slot


Order: TypeAlias = SetTimer | Cancel


def due(order: SetTimer) -> bytes:
    """The fact that the workload-controller hears when the time has come."""
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


Changed = tuple[Slot, WantedSchedule | None]
_NOTHING: Final[Mapping[str, WantedSchedule]] = {}


class _RecordingContext:
    """Answers for the rules, and notes which checks were asked for."""

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
    """``unreadable``: workloads with a time that nobody can reckon with, and why. Written by hand,
    or by a newer version: they wait for nothing here."""

    def __init__(self, limits: Limits) -> None:
        self._rules: dict[str, CheckRules] = {}
        self._asked = _RecordingContext(limits, self._rules)
        self._times: dict[Name, Mapping[str, WantedSchedule]] = {}
        self._kept: dict[Name, _CheckedWorkload] = {}
        self._by_check: dict[str, set[Name]] = {}
        self.unreadable: dict[Name, str] = {}

    def apply(
        self, name: Name, workload: StoredWorkload | None, revision: int, now: datetime
    ) -> Iterator[Changed]:
        """The workload is now so (None: there is none): the slots whose time it moves."""
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
            # As most writes about workloads: nothing is waited for.
            return
        for kind in sorted(before.keys() | times.keys()):
            old, new = before.get(kind), times.get(kind)
            if old is None or new is None or old.stands != new.stands:
                yield Slot(kind, *name), new

    def rule(self, check: str, rules: CheckRules | None, now: datetime) -> Iterator[Changed]:
        """The AdmissionCheck says so from now on (None: it is gone)."""
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
        name: Name,
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
            # Beyond the end of all calendars, or with and without a zone. One object that is so
            # must not take the time from all others.
            self.unreadable[name] = str(error)
            return _NOTHING

    def _forget(self, name: Name) -> None:
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
"""After a time has come, until somebody looks; doubled each time that nothing followed."""
PATIENCE_MAX: Final = timedelta(minutes=5)
SPARE: Final = 1000


class _Expected(NamedTuple):
    """``look`` None: taken, and not expected anew."""

    at: datetime
    look: datetime | None
    tries: int


class OverdueSlots:
    """Slots whose time is awaited. What is no longer awaited is dropped from the heap in passing,
    or when it is most of it."""

    def __init__(self) -> None:
        self._expected: dict[Slot, _Expected] = {}
        self._heap: list[tuple[datetime, Slot]] = []

    def expect(self, slot: Slot, at: datetime, now: datetime) -> None:
        """A schedule for that time stands there."""
        before = self._expected.get(slot)
        if before is not None and before.at == at and before.look is not None:
            return
        tries = before.tries if before is not None and before.at == at else 0
        look = max(at, now) + min(PATIENCE * 2 ** min(tries, 10), PATIENCE_MAX)
        self._expected[slot] = _Expected(at, look, tries)
        heappush(self._heap, (look, slot))
        if len(self._heap) > 2 * len(self._expected) + SPARE:
            self._heap = [(e.look, s) for s, e in self._expected.items() if e.look is not None]
            heapify(self._heap)

    def forget(self, slot: Slot) -> None:
        """Its workload waits for nothing there, or for another time."""
        self._expected.pop(slot, None)

    def next(self) -> datetime | None:
        """When to look; None: nothing is awaited."""
        while self._heap:
            look, slot = self._heap[0]
            expected = self._expected.get(slot)
            if expected is not None and expected.look == look:
                return look
            heappop(self._heap)
        return None

    def take(self, now: datetime) -> Iterator[Slot]:
        """Those to look at; they are awaited again once something is set there."""
        while (look := self.next()) is not None and look <= now:
            _, slot = heappop(self._heap)
            expected = self._expected[slot]
            self._expected[slot] = expected._replace(look=None, tries=expected.tries + 1)
            yield slot
