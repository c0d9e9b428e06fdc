"""Indexes of families: by queue, by time to look, by names of variants. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from heapq import heappop, heappush
from typing import Any, Final, NamedTuple

from admittance.api.queues import ClusterQueue, LocalQueue
from admittance.family.policy import FamilyRules, rules_of
from admittance.variants.members import Name


class QueueContext(NamedTuple):
    """The ClusterQueue of a family and its policy. ``queue`` "": it or the LocalQueue is missing.
    ``rules`` None: it has no concurrent admission policy, so workloads are regular there."""

    queue: str = ""
    rules: FamilyRules | None = None


NO_QUEUE = QueueContext()


class Queues:
    """Families by queue, and the policy of each ClusterQueue. ``enabled``: the feature gate
    ConcurrentAdmission; when off, no queue has a policy."""

    def __init__(self, *, enabled: bool = True) -> None:
        self._enabled = enabled
        self._rules: dict[str, FamilyRules | None] = {}
        self._behind: dict[Name, str] = {}
        self._before: dict[str, set[Name]] = {}
        self._families: dict[Name, set[Name]] = {}

    def around(self, namespace: str, local: str) -> QueueContext:
        """The context of families submitted to that LocalQueue."""
        queue = self._behind.get(Name(namespace, local), "")
        return QueueContext(queue, self._rules[queue]) if queue in self._rules else NO_QUEUE

    def join(self, family: Name, local: str) -> None:
        """The family was submitted to that LocalQueue."""
        self._families.setdefault(Name(family.namespace, local), set()).add(family)

    def leave(self, family: Name, local: str) -> None:
        """The family is not in that LocalQueue any more."""
        where = Name(family.namespace, local)
        families = self._families.get(where, set())
        families.discard(family)
        if not families:
            self._families.pop(where, None)

    def apply(self, kind: str, namespace: str, name: str, found: Any) -> Iterable[Name]:
        """The object changed to this (None: it was deleted). Returns the families that this may
        affect."""
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
            # Most edits change only quota or checks.
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
    """When to compute each family again. Outdated heap entries are dropped when they are popped, or
    when they are most of the heap."""

    def __init__(self) -> None:
        self._at: dict[Name, datetime] = {}
        self._heap: list[tuple[datetime, Name]] = []

    def set(self, family: Name, at: datetime | None) -> None:
        """Sets the family's time; None: removes it."""
        if at is None:
            self._at.pop(family, None)
        elif self._at.get(family) != at:
            self._at[family] = at
            heappush(self._heap, (at, family))
            if len(self._heap) > 2 * len(self._at) + SPARE:
                self._heap = sorted((when, family) for family, when in self._at.items())

    def sooner(self, family: Name, at: datetime) -> None:
        """Sets the family's time unless it has an earlier one."""
        set_for = self._at.get(family)
        if set_for is None or at < set_for:
            self.set(family, at)

    def next(self) -> datetime | None:
        """The earliest time; None: there is none."""
        while self._heap:
            at, family = self._heap[0]
            if self._at.get(family) == at:
                return at
            heappop(self._heap)
        return None

    def due(self, now: datetime) -> Iterator[Name]:
        """Removes and returns the families that are due."""
        while (at := self.next()) is not None and at <= now:
            _, family = heappop(self._heap)
            del self._at[family]
            yield family

    def __len__(self) -> int:
        return len(self._at)


class NameClaims:
    """The names that each family would give to missing variants."""

    def __init__(self) -> None:
        self._of: dict[Name, tuple[Name, ...]] = {}
        self._claimants: dict[Name, set[Name]] = {}

    def set(self, family: Name, names: tuple[Name, ...]) -> None:
        """Sets the family's names."""
        # A long name is hashed in any case, so the plain and the hashed name may be equal.
        names = tuple(dict.fromkeys(names))
        for name in self._of.pop(family, ()):
            self._claimants[name].discard(family)
            if not self._claimants[name]:
                del self._claimants[name]
        if names:
            self._of[family] = names
        for name in names:
            self._claimants.setdefault(name, set()).add(family)

    def claimants(self, name: Name) -> list[Name]:
        """The families that would use the name."""
        return sorted(self._claimants.get(name, ()))

    def __len__(self) -> int:
        return len(self._claimants)
