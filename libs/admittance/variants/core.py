"""The facts to publish so that all families match the policy. Pure.

Every act is derived from the stored objects, so nothing has to survive a restart: a new leader
publishes what is still missing. `SentActs` remembers published acts only to avoid repeating them
while they take effect. Work is proportional to change: only families that changed, have a changed
queue, or are due are computed again."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from admittance.events import facts
from admittance.events.base import Fact
from admittance.events.reading import BROKEN
from admittance.variants.indexes import NO_QUEUE, LookTimes, NameClaims, Queues
from admittance.variants.members import Family, Name, family_of, name_of, parent_of, variant_of
from admittance.variants.required_acts import Act, required_acts
from admittance.workload.stored import PARENT, StoredWorkload, head

PATIENCE: Final = timedelta(seconds=5)
"""Wait before an act without effect is published again; doubled each time."""
PATIENCE_MAX: Final = timedelta(minutes=5)
BEHIND_MAX: Final = timedelta(seconds=30)
"""An act that the workload-controller has not reached on the log yet is not repeated for this long,
or longer while it makes progress: repeating it would add to its backlog."""
COALESCE: Final = timedelta(milliseconds=100)
"""Shortest time between two aggregations of one parent."""
GATHER: Final = timedelta(milliseconds=100)
"""Delay before an aggregation: most changes of variants also change the parent, which then updates
its rows itself."""
AGAIN: Final = timedelta(seconds=1)
"""Wait after an act could not be published."""
STUCK: Final = 2
"""An act published again this often counts as having no effect."""


class _One(NamedTuple):
    """A published act. ``due``: when to publish it again if it is still required. ``sequence``: its
    position on the log; 0: unknown. ``until``: from then on it is published again even if the
    workload-controller has not reached it and makes no progress."""

    mark: object
    revision: int
    due: datetime
    tries: int
    until: datetime
    sequence: int = 0


_Key: TypeAlias = tuple[type[Fact], str]


class SentActs:
    """Acts that were published and have had no effect yet, so that none is repeated too early.

    An act is forgotten when it is no longer required. A new leader starts empty: publishing an act
    twice changes nothing. ``coalesce``, ``gather``: see `COALESCE` and `GATHER`."""

    def __init__(self, coalesce: timedelta, gather: timedelta) -> None:
        self._coalesce = coalesce
        self._gather = gather
        self._through = 0
        self._moves: datetime | None = None
        self._said: dict[Name, dict[_Key, _One]] = {}
        self._nudged: dict[Name, datetime] = {}
        self._unlike: dict[Name, datetime] = {}

    def sift(
        self, family: Name, acts: Iterable[Act], now: datetime
    ) -> tuple[list[Act], datetime | None]:
        """The acts to publish now, of all that the family requires, and when to ask for the others;
        None: there are no others. Published acts that are not required any more are forgotten."""
        before = self._said.get(family, {})
        said: dict[_Key, _One] = {}
        found: list[Act] = []
        looks: list[datetime] = []
        nudge = False
        for act in acts:
            nudge = nudge or isinstance(act.fact, facts.Aggregated)
            key = _key(act.fact)
            mark = act.mark, act.fact.uid
            last = before.get(key)
            if last is not None and last.mark != mark:
                last = None
            if last is not None:
                last = self._patient(last, now)
                wait: datetime | None = last.due
            else:
                wait = self._nudge_after(family, act, now)
            # A later time is possible only if the clock was set back.
            if wait is not None and now < wait <= now + PATIENCE_MAX:
                if last is not None:
                    said[key] = last
                looks.append(wait)
                continue
            tries = last.tries + 1 if last is not None and last.revision == act.revision else 0
            due = now + min(PATIENCE * 2 ** min(tries, 10), PATIENCE_MAX)
            said[key] = _One(mark, act.revision, due, tries, max(due, now + BEHIND_MAX))
            looks.append(due)
            found.append(act._replace(tries=tries) if tries else act)
            if isinstance(act.fact, facts.Aggregated):
                self._nudged[family] = now
        if said:
            self._said[family] = said
        else:
            self._said.pop(family, None)
        if not nudge:
            self._unlike.pop(family, None)
        return found, min(looks, default=None)

    def through(self, sequence: int, now: datetime) -> None:
        """The workload-controller has processed the log up to this sequence."""
        if sequence > self._through:
            self._through = sequence
            self._moves = now

    def has(self, family: Name, fact: Fact) -> bool:
        """Whether the act was published for the family and is still required."""
        return _key(fact) in self._said.get(family, {})

    def stated(self, family: Name, fact: Fact, sequence: int) -> None:
        """The act is on the log at ``sequence``; it is not repeated before the workload-controller
        has processed it."""
        said = self._said[family]
        said[_key(fact)] = said[_key(fact)]._replace(sequence=sequence)

    def failed(self, family: Name, fact: Fact, now: datetime) -> datetime:
        """Publishing failed or its outcome is unknown. Returns when to try again."""
        said = self._said[family]
        said[_key(fact)] = said[_key(fact)]._replace(due=now + AGAIN)
        return now + AGAIN

    def forget(self, family: Name) -> None:
        """The family is gone."""
        for kept in (self._said, self._nudged, self._unlike):
            kept.pop(family, None)

    def __len__(self) -> int:
        """Acts without effect yet, and parents with a delayed aggregation."""
        waiting = sum(
            not any(kind is facts.Aggregated for kind, _ in self._said.get(family, ()))
            for family in self._unlike
        )
        return waiting + sum(map(len, self._said.values()))

    @property
    def stuck(self) -> int:
        """Acts published repeatedly without effect."""
        return sum(one.tries >= STUCK for said in self._said.values() for one in said.values())

    def _patient(self, last: _One, now: datetime) -> _One:
        """The act, due later if the workload-controller has not reached it on the log."""
        if now < last.due or self._through >= last.sequence:
            return last
        if now < last.until:
            return last._replace(due=min(now + PATIENCE, last.until))
        goes_on = self._moves is not None and self._moves <= now < self._moves + PATIENCE
        return last._replace(due=now + PATIENCE) if goes_on else last

    def _nudge_after(self, family: Name, act: Act, now: datetime) -> datetime | None:
        if not isinstance(act.fact, facts.Aggregated):
            return None
        after = self._unlike.setdefault(family, now) + self._gather
        nudged = self._nudged.get(family)
        return max(after, nudged + self._coalesce) if nudged is not None else after


def _key(fact: Fact) -> _Key:
    return type(fact), fact.name


CROWD: Final = 1000
"""Most acts published together."""


class Families:
    """All families and the acts that they require. ``now`` is the wall clock everywhere, aware.

    ``enabled``: the feature gate ConcurrentAdmission. Call `acts` only after all stored objects
    were applied: before that a variant may seem to have no parent."""

    def __init__(
        self,
        *,
        enabled: bool = True,
        coalesce: timedelta = COALESCE,
        gather: timedelta = timedelta(0),
    ) -> None:
        self._queues = Queues(enabled=enabled)
        self._families: dict[Name, Family] = {}
        self._family_of: dict[Name, Name | None] = {}
        self._said = SentActs(coalesce, gather)
        self._names = NameClaims()
        self._times = LookTimes()
        self._dirty: dict[Name, None] = {}
        self._open: dict[Name, str] = {}
        self.unreadable: dict[Name, str] = {}
        """Families that cannot be computed, and why: written by hand, or by a newer version."""

    # What changes. ------------------------------------------------------------------

    def apply(self, key: str, stored: StoredWorkload | None, revision: int, now: datetime) -> None:
        """The workload at that key changed to this; None: it was deleted.

        Raises ValueError if it is not a workload's key."""
        name = name_of(key)
        self._moved(name, stored, family_of(stored) if stored is not None else None, revision)
        if stored is not None:
            self._said.through(stored.status.log.fact, now)
        else:
            self._family_of.pop(name, None)

    def regular(self, key: str) -> None:
        """The workload at that key belongs to no family. Most do not, and need not be decoded.

        Raises ValueError if it is not a workload's key."""
        name = name_of(key)
        if name not in self._family_of or self._family_of[name] is not None:
            self._moved(name, None, None, 0)

    def _moved(
        self, name: Name, stored: StoredWorkload | None, owner: Name | None, revision: int
    ) -> None:
        before = self._family_of.get(name)
        if before is not None:
            self._forget(name, before)
        self._family_of[name] = owner
        if stored is not None and owner is not None:
            self._keep(name, owner, stored, revision)
        for family in (before, owner, *self._names.claimants(name)):
            if family is not None:
                self._dirty[family] = None
        if before is not None and before != owner:
            self._drop(before)

    def apply_object(self, kind: str, namespace: str, name: str, found: Any, _: datetime) -> None:
        """A ClusterQueue or LocalQueue changed to this; None: it was deleted. Other kinds are
        ignored."""
        self._dirty.update(dict.fromkeys(self._queues.apply(kind, namespace, name, found)))

    def _keep(self, name: Name, owner: Name, stored: StoredWorkload, revision: int) -> None:
        family = self._families.setdefault(owner, Family(owner))
        if head(stored).role == PARENT:
            family.parent = parent_of(stored, revision)
            self._queues.join(owner, family.parent.state.queue)
        else:
            family.kin[name.name] = variant_of(stored, revision)

    def _forget(self, name: Name, owner: Name) -> None:
        family = self._families[owner]
        if family.kin.pop(name.name, None) is None and family.parent is not None:
            self._queues.leave(owner, family.parent.state.queue)
            family.parent = None

    def _drop(self, name: Name) -> None:
        family = self._families.get(name)
        if family is None or family.parent is not None or family.kin:
            return
        self._said.forget(name)
        self._names.set(name, ())
        self._times.set(name, None)
        for kept in (self._families, self._open, self._dirty, self.unreadable):
            kept.pop(name, None)

    # Acts. ------------------------------------------------------------------------

    def orders(self, now: datetime, limit: int = CROWD) -> list[Fact]:
        """The facts to publish now, in order."""
        return [act.fact for act in self.acts(now, limit)]

    def acts(self, now: datetime, limit: int = CROWD) -> list[Act]:
        """The same, with their reasons. They count as published unless `failed` is called. Acts of
        one family are never split; at least one family is included, even beyond ``limit``."""
        self._dirty.update(dict.fromkeys(self._times.due(now)))
        found: list[Act] = []
        while self._dirty and len(found) < limit:
            name = next(iter(self._dirty))
            del self._dirty[name]
            family = self._families.get(name)
            if family is not None:
                found += self._acts_of(family, now)
        return found

    def stated(self, fact: Fact, sequence: int) -> None:
        """The act is on the log at ``sequence``; it is not repeated before the workload-controller
        has processed it."""
        family = self.family_of(fact)
        if family is not None and self._said.has(family, fact):
            self._said.stated(family, fact, sequence)

    def failed(self, fact: Fact, now: datetime) -> None:
        """Publishing failed or its outcome is unknown: the act is tried again later if it is still
        required."""
        family = self.family_of(fact)
        if family is not None and self._said.has(family, fact):
            self._times.sooner(family, self._said.failed(family, fact, now))

    def family_of(self, fact: Fact) -> Name | None:
        """The family that a fact is about; None: it is gone."""
        about = Name(fact.namespace, fact.name)
        for family in self._names.claimants(about):
            if self._said.has(family, fact):
                return family
        return self._family_of.get(about)

    def wake(self) -> datetime | None:
        """When time alone may cause new acts; None: never."""
        return self._times.next()

    @property
    def pending(self) -> int:
        """Families to compute again, and acts without effect yet."""
        return len(self._dirty) + len(self._said)

    @property
    def stuck(self) -> int:
        """Acts published repeatedly without effect."""
        return self._said.stuck

    def gates_open(self) -> dict[str, int]:
        """The number of families with a variant that may preempt, by ClusterQueue."""
        found: dict[str, int] = {}
        # Copied at once: metrics are read from another thread.
        for queue in tuple(self._open.values()):
            found[queue] = found.get(queue, 0) + 1
        return found

    def __contains__(self, name: object) -> bool:
        family = self._families.get(name)  # type: ignore[call-overload]
        return family is not None and family.parent is not None

    def __len__(self) -> int:
        return sum(1 for one in self._families.values() if one.parent is not None)

    # Steps. -------------------------------------------------------------------------

    def _acts_of(self, family: Family, now: datetime) -> list[Act]:
        name = family.name
        around = (
            self._queues.around(name.namespace, family.parent.state.queue)
            if family.parent is not None
            else NO_QUEUE
        )
        try:
            result = required_acts(family, around, partial(self._taken, name.namespace), now)
        except (*BROKEN, TypeError) as error:
            # One broken object must not block the other families.
            self.unreadable[name] = str(error)
            return []
        self.unreadable.pop(name, None)
        if result.gate_open:
            self._open[name] = around.queue
        else:
            self._open.pop(name, None)
        self._names.set(name, tuple(Name(name.namespace, one) for one in result.names))
        found, again = self._said.sift(name, result.acts, now)
        looks = [at for at in (result.look, again) if at is not None]
        self._times.set(name, min(looks, default=None))
        return found

    def _taken(self, namespace: str, name: str) -> bool:
        return Name(namespace, name) in self._family_of
