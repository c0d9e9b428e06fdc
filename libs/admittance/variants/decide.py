"""What is to be stated, so that all families become what policy wants of them. Pure.

Every act is derived from what is stored, so nothing needs to be remembered over a restart: who
takes over says what is still lacking. Only so that nothing is said again while it is on its way, it
is noted what was said of a family, as long as it is wanted. A step costs what changed: the families
whose workloads moved, whose queue says something else, or whose time has come.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from admittance.events.base import Fact
from admittance.events.reading import BROKEN
from admittance.variants.known import Family, Name, family_of, kin, name_of, parent
from admittance.variants.queues import NOWHERE, Names, Queues, Times
from admittance.variants.said import COALESCE, Said
from admittance.variants.wanted import Act, wanted
from admittance.workload.roles import PARENT
from admittance.workload.stored import StoredWorkload, head

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
        self._said = Said(coalesce, gather)
        self._names = Names()
        self._times = Times()
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
            else NOWHERE
        )
        try:
            result = wanted(family, around, partial(self._taken, name.namespace), now)
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
