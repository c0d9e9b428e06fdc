"""What is to be stated, so that all families become what policy wants of them. Pure.

Every act is derived from what is stored, so nothing needs to be remembered over a restart: who
takes over says what is still lacking. Only so that nothing is said again while it is on its way, it
is noted what was said of a family, as long as it is wanted. A step costs what changed: the families
whose workloads moved, whose queue says something else, or whose time has come.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from heapq import heappop, heappush
from typing import Any, Final, NamedTuple

import msgspec

from admittance.events import facts
from admittance.events.base import Fact
from admittance.variant_controller.known import Family, Name, family_of, kin, name_of, parent
from admittance.variant_controller.queues import NOWHERE, Queues
from admittance.variant_controller.wanted import Act, wanted
from admittance.workload.families.reading import PARENT
from admittance.workload.stored import StoredWorkload, head

PATIENCE: Final = timedelta(seconds=5)
"""After an act was stated and had no effect, until it is stated again; doubled each time."""
PATIENCE_MAX: Final = timedelta(minutes=5)
BEHIND_MAX: Final = timedelta(seconds=30)
"""The writer may be so far behind with what was stated: said again meanwhile it is even further."""
COALESCE: Final = timedelta(milliseconds=100)
"""Between two nudges of one parent, while its variants move."""
GATHER: Final = timedelta(milliseconds=100)
"""Before a nudge: most of what moves variants moves their parent, which then tells by itself."""
AGAIN: Final = timedelta(seconds=1)
"""After an act could not be stated."""
STUCK: Final = 2
"""An act that was stated so often before has no effect, it seems."""
SPARE: Final = 1000
CROWD: Final = 1000
"""Acts that are stated together."""


class _Said(NamedTuple):
    """``due``: when it is said again, if it is still wanted then. ``sequence``: its place on the
    log; 0: nobody knows. ``until``: when it is said again even if the writer has not come there."""

    mark: object
    revision: int
    due: datetime
    tries: int
    until: datetime
    sequence: int = 0


_Key = tuple[type[Fact], str]


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
        self._coalesce = coalesce
        self._gather = gather
        self._queues = Queues(enabled=enabled)
        self._families: dict[Name, Family] = {}
        self._whose: dict[Name, Name | None] = {}
        self._said: dict[Name, dict[_Key, _Said]] = {}
        self._nudged: dict[Name, datetime] = {}
        self._unlike: dict[Name, datetime] = {}
        self._through = 0
        self._awaited: dict[Name, set[Name]] = {}
        self._awaits: dict[Name, tuple[Name, ...]] = {}
        self._dirty: dict[Name, None] = {}
        self._looks: dict[Name, datetime] = {}
        self._heap: list[tuple[datetime, Name]] = []
        self._open: dict[Name, str] = {}
        self.unreadable: dict[Name, str] = {}
        """Families of which nobody can be made, and why: written by hand, or by a newer version."""

    # What changes. ------------------------------------------------------------------

    def apply(self, key: str, stored: StoredWorkload | None, revision: int, _: datetime) -> None:
        """What the bucket has at a workload's key from now on; None: nothing. Nothing hangs on the
        time of a change.

        Raises ValueError for the key of something else."""
        name = name_of(key)
        self._moved(name, stored, family_of(stored) if stored is not None else None, revision)
        if stored is not None:
            self._through = max(self._through, stored.status.log.fact)
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
        for family in (before, whose, *sorted(self._awaited.get(name, ()))):
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
            family.parent = parent(stored, revision)
            self._queues.join(whose, family.parent.state.queue)
        else:
            family.kin[name.name] = kin(stored, revision)

    def _forget(self, name: Name, whose: Name) -> None:
        family = self._families[whose]
        if family.kin.pop(name.name, None) is None and family.parent is not None:
            self._queues.leave(whose, family.parent.state.queue)
            family.parent = None

    def _drop(self, name: Name) -> None:
        family = self._families.get(name)
        if family is None or family.parent is not None or family.kin:
            return
        self._await(name, ())
        for kept in (
            self._families,
            self._said,
            self._nudged,
            self._unlike,
            self._looks,
            self._open,
            self._dirty,
            self.unreadable,
        ):
            kept.pop(name, None)

    # Orders. ------------------------------------------------------------------------

    def orders(self, now: datetime, limit: int = CROWD) -> list[Fact]:
        """The facts to be stated now, in their order."""
        return [act.fact for act in self.acts(now, limit)]

    def acts(self, now: datetime, limit: int = CROWD) -> list[Act]:
        """The same, with why. They count as stated, unless `failed` says otherwise. At least those
        of one family, if there are any; whole families in any case."""
        self._rouse(now)
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
        name = self.family_of(fact)
        said = self._said.get(name) if name is not None else None
        key = type(fact), fact.name
        if said is not None and key in said:
            said[key] = said[key]._replace(sequence=sequence)

    def failed(self, fact: Fact, now: datetime) -> None:
        """It was not stated, or nobody knows: it is given again a little later, if still wanted."""
        key = type(fact), fact.name
        name = self.family_of(fact)
        said = self._said.get(name, {}).get(key) if name is not None else None
        if name is not None and said is not None:
            self._said[name][key] = said._replace(due=now + AGAIN)
            self._look(name, now + AGAIN)

    def family_of(self, fact: Fact) -> Name | None:
        """The family that an order is about; None: it is there no more."""
        about = Name(fact.namespace, fact.name)
        key = type(fact), fact.name
        for name in self._awaited.get(about, ()):
            if key in self._said.get(name, {}):
                return name
        return self._whose.get(about)

    def wake(self) -> datetime | None:
        """When there may be orders again, after all of them were given, if nothing else changes;
        None: never."""
        while self._heap:
            at, name = self._heap[0]
            if self._looks.get(name) == at:
                return at
            heappop(self._heap)
        return None

    @property
    def pending(self) -> int:
        """Families to be looked at, and acts whose effect is not seen yet."""
        return len(self._dirty) + sum(map(len, self._said.values()))

    @property
    def stuck(self) -> int:
        """Acts that were stated again and again, and had no effect."""
        return sum(one.tries >= STUCK for said in self._said.values() for one in said.values())

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
            else NOWHERE
        )
        try:
            result = wanted(family, around, partial(self._taken, name.namespace), now)
        except (msgspec.MsgspecError, OverflowError, TypeError) as error:
            # One object that is so must not keep all others from what they lack.
            self.unreadable[name] = str(error)
            return []
        self.unreadable.pop(name, None)
        if result.gate_open:
            self._open[name] = around.queue
        else:
            self._open.pop(name, None)
        before = self._said.get(name, {})
        said: dict[_Key, _Said] = {}
        looks = [result.look] if result.look is not None else []
        found = []
        if not any(isinstance(act.fact, facts.Aggregated) for act in result.acts):
            self._unlike.pop(name, None)
        for act in result.acts:
            key = type(act.fact), act.fact.name
            mark = act.mark, act.fact.uid
            last = before.get(key)
            if last is not None and last.mark != mark:
                last = None
            wait = last.due if last is not None else self._nudge_after(name, act, now)
            if last is not None and last.due <= now < last.until and self._through < last.sequence:
                wait = min(now + PATIENCE, last.until)
                last = last._replace(due=wait)
            # Further away than that it is only when the clock was set back.
            if wait is not None and now < wait <= now + PATIENCE_MAX:
                if last is not None:
                    said[key] = last
                looks.append(wait)
                continue
            tries = last.tries + 1 if last is not None and last.revision == act.revision else 0
            due = now + min(PATIENCE * 2 ** min(tries, 10), PATIENCE_MAX)
            said[key] = _Said(mark, act.revision, due, tries, max(due, now + BEHIND_MAX))
            looks.append(due)
            found.append(act._replace(tries=tries) if tries else act)
            if isinstance(act.fact, facts.Aggregated):
                self._nudged[name] = now
        if said:
            self._said[name] = said
        else:
            self._said.pop(name, None)
        self._await(name, tuple(Name(name.namespace, one) for one in result.names))
        self._look(name, min(looks, default=None))
        return found

    def _nudge_after(self, name: Name, act: Act, now: datetime) -> datetime | None:
        if not isinstance(act.fact, facts.Aggregated):
            return None
        after = self._unlike.setdefault(name, now) + self._gather
        nudged = self._nudged.get(name)
        return max(after, nudged + self._coalesce) if nudged is not None else after

    def _taken(self, namespace: str, name: str) -> bool:
        return Name(namespace, name) in self._whose

    def _await(self, family: Name, names: tuple[Name, ...]) -> None:
        """The family is to be looked at when one of the names is taken, or free again."""
        before = self._awaits.pop(family, ())
        # A long name is the same whether somebody else has it or not.
        names = tuple(dict.fromkeys(names))
        if names:
            self._awaits[family] = names
        for name in before:
            waiting = self._awaited[name]
            waiting.discard(family)
            if not waiting:
                del self._awaited[name]
        for name in names:
            self._awaited.setdefault(name, set()).add(family)

    def _look(self, name: Name, at: datetime | None) -> None:
        """To be looked at again then, and not before, unless something changes."""
        if at is None:
            self._looks.pop(name, None)
        elif self._looks.get(name) != at:
            self._looks[name] = at
            heappush(self._heap, (at, name))
            if len(self._heap) > 2 * len(self._looks) + SPARE:
                self._heap = sorted((when, who) for who, when in self._looks.items())

    def _rouse(self, now: datetime) -> None:
        while self._heap and self._heap[0][0] <= now:
            at, name = heappop(self._heap)
            if self._looks.get(name) == at:
                del self._looks[name]
                self._dirty[name] = None
