"""What the queues say of families, and whose families they are. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from heapq import heappop, heappush
from typing import Any, Final, NamedTuple

from admittance.api.queues import ClusterQueue, LocalQueue
from admittance.family.policy import FamilyRules, rules_of
from admittance.variants.members import Name


class QueueContext(NamedTuple):
    """The ClusterQueue of a family, and what it says. ``queue`` "": it, or the LocalQueue, is
    missing: nobody knows what it would say. ``rules`` None: workloads are regular there."""

    queue: str = ""
    rules: FamilyRules | None = None


NO_QUEUE = QueueContext()


class Queues:
    """``enabled``: the gate ConcurrentAdmission; off, no queue has families."""

    def __init__(self, *, enabled: bool = True) -> None:
        self._enabled = enabled
        self._rules: dict[str, FamilyRules | None] = {}
        self._behind: dict[Name, str] = {}
        self._before: dict[str, set[Name]] = {}
        self._families: dict[Name, set[Name]] = {}

    def around(self, namespace: str, local: str) -> QueueContext:
        """Of a family that was submitted to that LocalQueue."""
        queue = self._behind.get(Name(namespace, local), "")
        return QueueContext(queue, self._rules[queue]) if queue in self._rules else NO_QUEUE

    def join(self, family: Name, local: str) -> None:
        """The family is of that LocalQueue from now on."""
        self._families.setdefault(Name(family.namespace, local), set()).add(family)

    def leave(self, family: Name, local: str) -> None:
        """It is not any more."""
        where = Name(family.namespace, local)
        families = self._families.get(where, set())
        families.discard(family)
        if not families:
            self._families.pop(where, None)

    def apply(self, kind: str, namespace: str, name: str, found: Any) -> Iterable[Name]:
        """The object is now so (None: there is none): the families that this may concern."""
        match kind:
            case "ClusterQueue":
                return self._cluster_queue(name, found)
            case "LocalQueue":
                return self._local_queue(Name(namespace, name), found)
        return ()

    def _cluster_queue(self, name: str, found: ClusterQueue | None) -> list[Name]:
        known = name in self._rules
        before = self._rules.pop(name, None)
        if found is not None:
            self._rules[name] = rules_of(found.spec) if self._enabled else None
        if known == (name in self._rules) and before == self._rules.get(name):
            # As most edits: of quota, or of checks.
            return []
        locals_ = sorted(self._before.get(name, ()))
        return [family for local in locals_ for family in sorted(self._families.get(local, ()))]

    def _local_queue(self, name: Name, found: LocalQueue | None) -> list[Name]:
        before = self._behind.pop(name, "")
        if before:
            self._before[before].discard(name)
        now = found.spec.cluster_queue if found is not None else ""
        if now:
            self._behind[name] = now
            self._before.setdefault(now, set()).add(name)
        return sorted(self._families.get(name, ())) if now != before else []


SPARE: Final = 1000


class LookTimes:
    """One time for each family. What holds no longer is dropped from the heap in passing, or when
    it is most of it."""

    def __init__(self) -> None:
        self._at: dict[Name, datetime] = {}
        self._heap: list[tuple[datetime, Name]] = []

    def set(self, family: Name, at: datetime | None) -> None:
        """To be looked at then, and not before; None: at no time."""
        if at is None:
            self._at.pop(family, None)
        elif self._at.get(family) != at:
            self._at[family] = at
            heappush(self._heap, (at, family))
            if len(self._heap) > 2 * len(self._at) + SPARE:
                self._heap = sorted((when, who) for who, when in self._at.items())

    def sooner(self, family: Name, at: datetime) -> None:
        """To be looked at then at the latest."""
        set_for = self._at.get(family)
        if set_for is None or at < set_for:
            self.set(family, at)

    def next(self) -> datetime | None:
        """The first of them; None: there is none."""
        while self._heap:
            at, family = self._heap[0]
            if self._at.get(family) == at:
                return at
            heappop(self._heap)
        return None

    def due(self, now: datetime) -> Iterator[Name]:
        """Families whose time has come; they have none any more."""
        while (at := self.next()) is not None and at <= now:
            _, family = heappop(self._heap)
            del self._at[family]
            yield family

    def __len__(self) -> int:
        return len(self._at)


class NameClaims:
    """Which family would take which names."""

    def __init__(self) -> None:
        self._of: dict[Name, tuple[Name, ...]] = {}
        self._who: dict[Name, set[Name]] = {}

    def set(self, family: Name, names: tuple[Name, ...]) -> None:
        """These, and no others."""
        # A long name is the same whether somebody else has it or not.
        names = tuple(dict.fromkeys(names))
        for name in self._of.pop(family, ()):
            self._who[name].discard(family)
            if not self._who[name]:
                del self._who[name]
        if names:
            self._of[family] = names
        for name in names:
            self._who.setdefault(name, set()).add(family)

    def who(self, name: Name) -> list[Name]:
        """The families that would take it."""
        return sorted(self._who.get(name, ()))

    def __len__(self) -> int:
        return len(self._who)
