"""What is to be stated, so that all families become what policy wants of them. Pure.

Every act is derived from what is stored, so nothing needs to be remembered over a restart: who
takes over says what is still lacking. Only so that nothing is said again while it is on its way, it
is noted what was said of a family, as long as it is wanted. A step costs what changed: the families
whose workloads moved, whose queue says something else, or whose time has come.
"""

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
"""After an act was stated and had no effect, until it is stated again; doubled each time."""
PATIENCE_MAX: Final = timedelta(minutes=5)
BEHIND_MAX: Final = timedelta(seconds=30)
"""The writer may be so far behind with what was stated, and further as long as it goes on: said
again meanwhile it is even further."""
COALESCE: Final = timedelta(milliseconds=100)
"""Between two nudges of one parent, while its variants move."""
GATHER: Final = timedelta(milliseconds=100)
"""Before a nudge: most of what moves variants moves their parent, which then tells by itself."""
AGAIN: Final = timedelta(seconds=1)
"""After an act could not be stated."""
STUCK: Final = 2
"""An act that was stated so often before has no effect, it seems."""


class _One(NamedTuple):
    """``due``: when it is said again, if it is still wanted then. ``sequence``: its place on the
    log; 0: nobody knows. ``until``: from when on it is said again also where the writer has not
    come there, and stands still."""

    mark: object
    revision: int
    due: datetime
    tries: int
    until: datetime
    sequence: int = 0


_Key: TypeAlias = tuple[type[Fact], str]


class SentActs:
    """``coalesce``, ``gather``: see `COALESCE` and `GATHER`."""

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
        """Those of all acts that are wanted of the family that are to be stated now, and when to
        ask for the others; None: there are none. What was said and is not wanted is forgotten."""
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
            # Further away than that it is only when the clock was set back.
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
        """The writer of workloads has come so far with the log."""
        if sequence > self._through:
            self._through = sequence
            self._moves = now

    def has(self, family: Name, fact: Fact) -> bool:
        """It was said of that family, and is still wanted."""
        return _key(fact) in self._said.get(family, {})

    def stated(self, family: Name, fact: Fact, sequence: int) -> None:
        """It is on the log, there: until the writer is through with that it is not said again."""
        said = self._said[family]
        said[_key(fact)] = said[_key(fact)]._replace(sequence=sequence)

    def failed(self, family: Name, fact: Fact, now: datetime) -> datetime:
        """It was not stated, or nobody knows: when it is given again."""
        said = self._said[family]
        said[_key(fact)] = said[_key(fact)]._replace(due=now + AGAIN)
        return now + AGAIN

    def forget(self, family: Name) -> None:
        """There is no such family any more."""
        for kept in (self._said, self._nudged, self._unlike):
            kept.pop(family, None)

    def __len__(self) -> int:
        """Acts whose effect is not seen yet, and parents that are to be nudged later."""
        waiting = sum(
            not any(kind is facts.Aggregated for kind, _ in self._said.get(family, ()))
            for family in self._unlike
        )
        return waiting + sum(map(len, self._said.values()))

    @property
    def stuck(self) -> int:
        """Acts that were stated again and again, and had no effect."""
        return sum(one.tries >= STUCK for said in self._said.values() for one in said.values())

    def _patient(self, last: _One, now: datetime) -> _One:
        """Due later, where the writer has not come to it."""
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
"""Acts that are stated together."""


class Families:
    """All families, and what is to be said of them. ``now`` is the wall clock everywhere, aware.

    ``enabled``: the gate ConcurrentAdmission. Orders are to be asked for once everything that is
    stored was applied: until then a variant may look like nobody's.
    """

    def __init__(
        self,
        *,
        enabled: bool = True,
        coalesce: timedelta = COALESCE,
        gather: timedelta = timedelta(0),
    ) -> None:
        self._queues = Queues(enabled=enabled)
        self._families: dict[Name, Family] = {}
        self._whose: dict[Name, Name | None] = {}
        self._said = SentActs(coalesce, gather)
        self._names = NameClaims()
        self._times = LookTimes()
        self._dirty: dict[Name, None] = {}
        self._open: dict[Name, str] = {}
        self.unreadable: dict[Name, str] = {}
        """Families of which nobody can be made, and why: written by hand, or by a newer version."""

    # What changes. ------------------------------------------------------------------

    def apply(self, key: str, stored: StoredWorkload | None, revision: int, now: datetime) -> None:
        """What the bucket has at a workload's key from now on; None: nothing.

        Raises ValueError for the key of something else."""
        name = name_of(key)
        self._moved(name, stored, family_of(stored) if stored is not None else None, revision)
        if stored is not None:
            self._said.through(stored.status.log.fact, now)
        else:
            self._whose.pop(name, None)

    def regular(self, key: str) -> None:
        """At that key is a workload that is of no family. Most are, and need not be decoded.

        Raises ValueError for the key of something else."""
        name = name_of(key)
        if name not in self._whose or self._whose[name] is not None:
            self._moved(name, None, None, 0)

    def _moved(
        self, name: Name, stored: StoredWorkload | None, whose: Name | None, revision: int
    ) -> None:
        before = self._whose.get(name)
        if before is not None:
            self._forget(name, before)
        self._whose[name] = whose
        if stored is not None and whose is not None:
            self._keep(name, whose, stored, revision)
        for family in (before, whose, *self._names.who(name)):
            if family is not None:
                self._dirty[family] = None
        if before is not None and before != whose:
            self._drop(before)

    def apply_object(self, kind: str, namespace: str, name: str, found: Any, _: datetime) -> None:
        """A ClusterQueue or LocalQueue is now so; None: there is none. Other kinds say nothing of
        families."""
        self._dirty.update(dict.fromkeys(self._queues.apply(kind, namespace, name, found)))

    def _keep(self, name: Name, whose: Name, stored: StoredWorkload, revision: int) -> None:
        family = self._families.setdefault(whose, Family(whose))
        if head(stored).role == PARENT:
            family.parent = parent_of(stored, revision)
            self._queues.join(whose, family.parent.state.queue)
        else:
            family.kin[name.name] = variant_of(stored, revision)

    def _forget(self, name: Name, whose: Name) -> None:
        family = self._families[whose]
        if family.kin.pop(name.name, None) is None and family.parent is not None:
            self._queues.leave(whose, family.parent.state.queue)
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

    # Orders. ------------------------------------------------------------------------

    def orders(self, now: datetime, limit: int = CROWD) -> list[Fact]:
        """The facts to be stated now, in their order."""
        return [act.fact for act in self.acts(now, limit)]

    def acts(self, now: datetime, limit: int = CROWD) -> list[Act]:
        """The same, with why. They count as stated, unless `failed` says otherwise. At least those
        of one family, if there are any; whole families in any case."""
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
        """It is on the log, there: until the writer is through with that it is not said again."""
        family = self.family_of(fact)
        if family is not None and self._said.has(family, fact):
            self._said.stated(family, fact, sequence)

    def failed(self, fact: Fact, now: datetime) -> None:
        """It was not stated, or nobody knows: it is given again a little later, if still wanted."""
        family = self.family_of(fact)
        if family is not None and self._said.has(family, fact):
            self._times.sooner(family, self._said.failed(family, fact, now))

    def family_of(self, fact: Fact) -> Name | None:
        """The family that an order is about; None: it is there no more."""
        about = Name(fact.namespace, fact.name)
        for family in self._names.who(about):
            if self._said.has(family, fact):
                return family
        return self._whose.get(about)

    def wake(self) -> datetime | None:
        """When there may be orders again, after all of them were given, if nothing else changes;
        None: never."""
        return self._times.next()

    @property
    def pending(self) -> int:
        """Families to be looked at, and acts whose effect is not seen yet."""
        return len(self._dirty) + len(self._said)

    @property
    def stuck(self) -> int:
        """Acts that were stated again and again, and had no effect."""
        return self._said.stuck

    def gates_open(self) -> dict[str, int]:
        """How many families have somebody who may preempt, by ClusterQueue."""
        found: dict[str, int] = {}
        # All at once: whoever scrapes asks from a thread of its own.
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
            # One object that is so must not keep all others from what they lack.
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
        return Name(namespace, name) in self._whose
