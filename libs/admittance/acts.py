"""Acts: facts that a service publishes so that stored workloads reach the state that its rules ask
for. The module is pure.

The variant-controller and the array-controller compute acts from stored objects, so nothing has to
survive a restart: a new leader publishes the acts that are still required. `SentActs` keeps the
published acts, so that no act is published twice before it has had time to take effect. `LookTimes`
keeps when to compute the acts of a parent again. `ParentActs` is what the cores of both services
share: the acts of one parent are computed together. A parent is an array, the parent workload of a
family, or a workload that waits for others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from heapq import heappop, heappush
from typing import Final, NamedTuple, TypeAlias

from admittance.backoff import pause_after
from admittance.events.base import Fact
from admittance.events.subjects import WorkloadName

PATIENCE: Final = timedelta(seconds=5)
"""Delay before an act without effect is published again; the delay doubles each time."""
PATIENCE_MAX: Final = timedelta(minutes=5)
BEHIND_MAX: Final = timedelta(seconds=30)
"""How long a published act is not repeated if the workload-controller makes no progress and has not
read the act on the log yet: a repeat would add to its backlog. While the workload-controller makes
progress, the act is not repeated at all."""
AGAIN: Final = timedelta(seconds=1)
"""Delay before a failed publish of an act is tried again."""
ACTS_MAX: Final = 1000
"""How many acts `ParentActs.acts` returns at once, if one parent does not need more."""
STUCK: Final = 2
"""After so many repeats without effect an act counts as stuck."""


class Act(NamedTuple):
    """An act of a service: a fact to publish, and the reason. ``mark``: the goal of the act; two
    acts for one workload with equal marks are the same act. ``revision``: the revision of the
    workload that the act is about; 0: the workload does not exist yet. ``tries``: how often the act
    was published before without effect. ``at_once``: the act is not gathered with later ones."""

    fact: Fact
    why: str
    mark: object = None
    revision: int = 0
    tries: int = 0
    at_once: bool = False


class _SentAct(NamedTuple):
    """A published act. ``due``: when to publish the act again if it is still required.
    ``sequence``: the act's position on the log; 0: unknown. ``until``: from this time on the act is
    published again even if the workload-controller has not read it, unless the workload-controller
    makes progress."""

    mark: object
    revision: int
    due: datetime
    tries: int
    until: datetime
    sequence: int = 0


_Key: TypeAlias = tuple[type[Fact], str]


class SentActs:
    """The published acts that have had no effect yet. A published act is not published again before
    the time ``due`` in its `_SentAct`. Acts that are no longer required are removed. A new leader
    starts without published acts, because publishing an act twice does no harm.

    A parent has one kind of act, ``gathered``, that sums up its members. ``gather``: the delay of
    such an act, in which further changes join it; ``coalesce``: the shortest time between two acts
    of one parent."""

    def __init__(
        self,
        gathered: type[Fact],
        coalesce: timedelta = timedelta(0),
        gather: timedelta = timedelta(0),
    ) -> None:
        self._gathered = gathered
        self._coalesce = coalesce
        self._gather = gather
        self._through = 0
        self._progress_at: datetime | None = None
        self._sent: dict[WorkloadName, dict[_Key, _SentAct]] = {}
        self._last_gathered: dict[WorkloadName, datetime] = {}
        self._differs_since: dict[WorkloadName, datetime] = {}

    def to_publish(
        self, parent: WorkloadName, acts: Iterable[Act], now: datetime
    ) -> tuple[list[Act], datetime | None]:
        """Returns those of ``acts`` that must be published now, and when to call this method again
        for the acts that wait (None: no act waits). ``acts``: all acts that the parent requires.
        Published acts that are not in ``acts`` are forgotten."""
        before = self._sent.get(parent, {})
        sent: dict[_Key, _SentAct] = {}
        due_acts: list[Act] = []
        looks: list[datetime] = []
        gathers = False
        for act in acts:
            gathers = gathers or isinstance(act.fact, self._gathered)
            key = _key(act.fact)
            mark = act.mark, act.fact.uid
            last = before.get(key)
            if last is not None and last.mark != mark:
                last = None
            if last is not None:
                last = self._postponed(last, now)
                wait: datetime | None = last.due
            else:
                wait = self._gather_until(parent, act, now)
            # If the time to publish is later than PATIENCE_MAX from now, the clock was set back,
            # and the act is published.
            if wait is not None and now < wait <= now + PATIENCE_MAX:
                if last is not None:
                    sent[key] = last
                looks.append(wait)
                continue
            tries = last.tries + 1 if last is not None and last.revision == act.revision else 0
            due = now + pause_after(tries + 1, PATIENCE, PATIENCE_MAX)
            sent[key] = _SentAct(mark, act.revision, due, tries, max(due, now + BEHIND_MAX))
            looks.append(due)
            due_acts.append(act._replace(tries=tries) if tries else act)
            if isinstance(act.fact, self._gathered):
                self._last_gathered[parent] = now
        if sent:
            self._sent[parent] = sent
        else:
            self._sent.pop(parent, None)
        if not gathers:
            self._differs_since.pop(parent, None)
        return due_acts, min(looks, default=None)

    def through(self, sequence: int, now: datetime) -> None:
        """Records that the workload-controller has processed the log up to ``sequence``."""
        if sequence > self._through:
            self._through = sequence
            self._progress_at = now

    def has(self, parent: WorkloadName, fact: Fact) -> bool:
        """Whether the fact was published as an act of the parent that is still required."""
        return _key(fact) in self._sent.get(parent, {})

    def stated(self, parent: WorkloadName, fact: Fact, sequence: int) -> None:
        """Records that the log has stored the act at ``sequence``: the act is not repeated before
        the workload-controller has read that message, see `BEHIND_MAX`."""
        sent = self._sent[parent]
        sent[_key(fact)] = sent[_key(fact)]._replace(sequence=sequence)

    def failed(self, parent: WorkloadName, fact: Fact, now: datetime) -> datetime:
        """Records that publishing the act failed, or that the outcome is unknown. Returns when to
        publish the act again."""
        sent = self._sent[parent]
        sent[_key(fact)] = sent[_key(fact)]._replace(due=now + AGAIN)
        return now + AGAIN

    def forget(self, parent: WorkloadName) -> None:
        """Removes the published acts of a parent that does not exist any more."""
        for kept in (self._sent, self._last_gathered, self._differs_since):
            kept.pop(parent, None)

    def __len__(self) -> int:
        """The number of published acts that have had no effect yet, plus the number of parents with
        a delayed gathered act."""
        waiting = sum(
            not any(kind is self._gathered for kind, _ in self._sent.get(parent, ()))
            for parent in self._differs_since
        )
        return waiting + sum(map(len, self._sent.values()))

    @property
    def stuck(self) -> int:
        """The number of acts that were repeated at least `STUCK` times without effect."""
        return sum(act.tries >= STUCK for sent in self._sent.values() for act in sent.values())

    def _postponed(self, last: _SentAct, now: datetime) -> _SentAct:
        """Returns the published act, with a later ``due`` if the workload-controller has not read
        the act on the log."""
        if now < last.due or self._through >= last.sequence:
            return last
        if now < last.until:
            return last._replace(due=min(now + PATIENCE, last.until))
        progresses = (
            self._progress_at is not None
            and self._progress_at <= now < self._progress_at + PATIENCE
        )
        return last._replace(due=now + PATIENCE) if progresses else last

    def _gather_until(self, parent: WorkloadName, act: Act, now: datetime) -> datetime | None:
        if not isinstance(act.fact, self._gathered) or act.at_once:
            return None
        after = self._differs_since.setdefault(parent, now) + self._gather
        last = self._last_gathered.get(parent)
        return max(after, last + self._coalesce) if last is not None else after


def _key(fact: Fact) -> _Key:
    return type(fact), fact.name


SPARE: Final = 1000
"""So many outdated entries of the heap are kept in any case."""


class LookTimes:
    """The times at which the acts of each parent must be computed again. Outdated entries of the
    heap are dropped when they are popped, or when they are more than half of the heap."""

    def __init__(self) -> None:
        self._at: dict[WorkloadName, datetime] = {}
        self._heap: list[tuple[datetime, WorkloadName]] = []

    def set(self, parent: WorkloadName, at: datetime | None) -> None:
        """Sets the time at which the parent's acts must be computed again; None: the parent has no
        such time."""
        if at is None:
            self._at.pop(parent, None)
        elif self._at.get(parent) != at:
            self._at[parent] = at
            heappush(self._heap, (at, parent))
            if len(self._heap) > 2 * len(self._at) + SPARE:
                self._heap = sorted((when, parent) for parent, when in self._at.items())

    def sooner(self, parent: WorkloadName, at: datetime) -> None:
        """Sets the time at which the parent's acts must be computed again, unless an earlier time
        is set already."""
        set_for = self._at.get(parent)
        if set_for is None or at < set_for:
            self.set(parent, at)

    def next(self) -> datetime | None:
        """Returns the earliest time at which the acts of a parent must be computed again; None: no
        parent has such a time."""
        while self._heap:
            at, parent = self._heap[0]
            if self._at.get(parent) == at:
                return at
            heappop(self._heap)
        return None

    def due(self, now: datetime) -> Iterator[WorkloadName]:
        """Yields the parents with a time that has come, and removes these times."""
        while (at := self.next()) is not None and at <= now:
            _, parent = heappop(self._heap)
            del self._at[parent]
            yield parent

    def __len__(self) -> int:
        return len(self._at)


class ParentActs(ABC):
    """The parents of which the acts must be computed again, and the acts that were published.
    ``now`` is always the wall clock with a time zone."""

    def __init__(self, sent: SentActs) -> None:
        self._sent = sent
        self._times = LookTimes()
        self._changed: dict[WorkloadName, None] = {}

    @abstractmethod
    def parent_of(self, fact: Fact) -> WorkloadName | None:
        """Returns the name of the parent that a fact is about; None: no such parent exists."""

    @abstractmethod
    def _acts_of(self, parent: WorkloadName, now: datetime) -> list[Act]:
        """The acts of a parent to publish now; empty if the parent does not exist."""

    def orders(self, now: datetime) -> list[Fact]:
        """Returns the facts of the acts to publish now, in order."""
        return [act.fact for act in self.acts(now)]

    def acts(self, now: datetime, limit: int = ACTS_MAX) -> list[Act]:
        """Returns the acts to publish now, in order. Each returned act counts as published, unless
        `failed` is called for it. All acts of a parent are returned together, so the result may
        have more than ``limit`` acts."""
        self._changed.update(dict.fromkeys(self._times.due(now)))
        due_acts: list[Act] = []
        while self._changed and len(due_acts) < limit:
            parent = next(iter(self._changed))
            del self._changed[parent]
            due_acts += self._acts_of(parent, now)
        return due_acts

    def stated(self, fact: Fact, sequence: int) -> None:
        """Records that the log has stored the act at ``sequence``: the act is not repeated before
        the workload-controller has read that message, see `BEHIND_MAX`."""
        parent = self.parent_of(fact)
        if parent is not None and self._sent.has(parent, fact):
            self._sent.stated(parent, fact, sequence)

    def failed(self, fact: Fact, now: datetime) -> None:
        """Records that publishing the act failed, or that the outcome is unknown. `acts` returns a
        failed act again after the time `AGAIN`, if it is still required."""
        parent = self.parent_of(fact)
        if parent is not None and self._sent.has(parent, fact):
            self._times.sooner(parent, self._sent.failed(parent, fact, now))

    def wake(self) -> datetime | None:
        """Returns when to call `acts` next if nothing changes until then; None: never."""
        return self._times.next()

    @property
    def pending(self) -> int:
        """The number of parents with acts to be computed again, plus the number of published acts
        that have had no effect yet."""
        return len(self._changed) + len(self._sent)

    @property
    def stuck(self) -> int:
        """The number of acts that were repeated at least `STUCK` times without effect."""
        return self._sent.stuck

    def _forget_acts(self, parent: WorkloadName) -> None:
        """Removes what is kept about a parent that does not exist any more."""
        self._sent.forget(parent)
        self._times.set(parent, None)
        self._changed.pop(parent, None)
