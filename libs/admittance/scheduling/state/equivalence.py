"""Classes of equal waiting workloads, their order in a ClusterQueue, and when refusals are due.

Workloads of one shape and priority share a class, and only a class has a place in the order of its
ClusterQueue: the place of its first workload. A scan of flavors without a result parks the whole
class, with one step for a class of any size.

Without admission fair sharing, all classes of a ClusterQueue are in one order; else `lanes` has
the order. Source: `docs/spec/scheduling.md#3.2, #8`."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from heapq import heapify, heappop, heappush
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from admittance.events.shapes import Refusal, Scan
from admittance.scheduling.state.assignment import Assignment, Cursor
from admittance.scheduling.state.flavor_plan import FlavorPlan
from admittance.scheduling.state.requests import RequestShape

Key: TypeAlias = tuple[str, str]
"""Namespace and name of a workload or LocalQueue."""


class Waiting(Protocol):
    """The fields of a waiting workload that its class and lane read.

    ``user``: the user that submitted it, or ""; ``status_reason``: the reason for waiting in the
    workload's status; ``reason_group``: the workloads of its class with that reason in their
    status. ``entry``: the workload's place in its class."""

    local_queue: Key
    user: str
    status_reason: str
    reason_group: Any

    @property
    def entry(self) -> tuple[datetime, str, Key, Any] | None: ...


W = TypeVar("W", bound=Waiting)

ClassEntry: TypeAlias = tuple[datetime, str, Key, W]
"""Place of a workload in an equivalence class: timestamp, uid, name, and the workload."""

CandidateEntry: TypeAlias = tuple[int, float, str, Key, W]
"""Place of a workload among the candidates for preemption: priority, negated reservation time in
seconds, uid, name, and the workload."""

Kind: TypeAlias = RequestShape | tuple[RequestShape, str]
"""What a workload has in common with the other workloads of its class, besides priority: its shape.
For a variant a pair of the shape and the uid of its family, or "" if the family makes no
difference."""

ClassKey: TypeAlias = tuple[int, Kind, Key | None, tuple[Any, ...] | None]
"""Key of an equivalence class: priority, kind, the key of its lane if there are lanes, else None,
and the persons of its workloads if the ClusterQueue limits what one person may hold, else None."""

Item: TypeAlias = tuple[int, datetime, str, Key, int, "EquivalenceClass[W]"]
"""Item of an equivalence class in a heap: negated priority and the place of its first workload, a
number, and the class. The number in the item orders a new item of a class after an outdated item
with the same first workload."""


class ClassHeap(Generic[W]):
    """The competing classes of a queue or lane in a heap, each at the place of its first workload.
    Outdated heap items are skipped."""

    __slots__ = ("_bound", "_number", "heap")

    def __init__(self) -> None:
        self.heap: list[Item[W]] = []
        self._number = 0
        self._bound = 64

    def put(self, cls: EquivalenceClass[W]) -> bool:
        """Puts the class into the heap at the place of its first workload. Returns False if the
        class was at that place already, or is empty."""
        entry = cls.first()
        if entry is None:
            return False
        item = cls.item
        if item is not None and item[3] == entry[2] and item[1] == entry[0] and item[2] == entry[1]:
            return False
        self._number += 1
        cls.item = (-cls.key[0], entry[0], entry[1], entry[2], self._number, cls)
        heappush(self.heap, cls.item)
        if len(self.heap) > self._bound:
            self.heap = [entry for entry in self.heap if entry[5].item is entry]
            heapify(self.heap)
            self._bound = 2 * len(self.heap) + 64
        return True

    def first(self) -> ClassEntry[W] | None:
        """Returns the entry of the first competing workload; None: no workload competes."""
        heap = self.heap
        while heap:
            item = heap[0]
            if item[5].item is item:
                entry = item[5].first()
                if entry is not None:
                    return entry
            heappop(heap)
        return None


class SavedNomination(NamedTuple):
    """A nomination that is saved with the class of the head. The nomination is valid while the
    domain's version, the queue's flavor plan, the head's cursor and the stamp are equal to the
    saved ones.

    ``version``: the version of the domain. ``stamp``: the workload's age in its queue if that
    decides what the workload may preempt; else None."""

    version: int
    plan: FlavorPlan
    cursor: Cursor | None
    stamp: datetime | None
    nomination: tuple[Assignment, Sequence[Any]]


class SavedCursor(NamedTuple, Generic[W]):
    """The cursor at which a workload's last scan of flavors stopped, in the cycle number ``cycle``.
    The cursor is valid while the workload is in the class ``owner``, and only in the next cycle or
    while the generations of queue and domain still add up to ``generation``."""

    at: Cursor
    cycle: int
    generation: int
    owner: EquivalenceClass[W]


class RefusalQueue(Generic[W]):
    """The parked classes and workloads for which refusals are scheduled, the longest parked first.

    A class has at most one item in the queue. Items of classes and workloads that are not parked
    any more have no effect."""

    __slots__ = ("_number", "items")

    def __init__(self) -> None:
        self.items: list[tuple[datetime, int, EquivalenceClass[W] | W]] = []
        self._number = 0

    def put(self, since: datetime, item: EquivalenceClass[W] | W) -> None:
        """Schedules the refusal of a class or workload that has been parked since ``since``."""
        self._number += 1
        if isinstance(item, EquivalenceClass):
            item.is_scheduled = True
        heappush(self.items, (since, self._number, item))

    def pop(self) -> EquivalenceClass[W] | W:
        """Removes and returns the class or workload with the next scheduled refusal."""
        item = heappop(self.items)[2]
        if isinstance(item, EquivalenceClass):
            item.is_scheduled = False
        return item


class ScanRecord(NamedTuple, Generic[W]):
    """A scan of flavors for a head: ``at``, its time; ``seen``, the bucket revision that the
    scheduler had seen; ``cursor``, where the scan began; ``recorded``, what a replay needs if a
    promise of a start held the head back."""

    seen: int
    at: datetime
    head: W
    cursor: Cursor | None
    recorded: Scan | None = None


@dataclass(slots=True, eq=False, repr=False)
class BlockedHead(Generic[W]):
    """The head of a StrictFIFO queue that got no quota and blocks the queue: the workload, since
    when it blocks the queue, and the reason (``refusal``)."""

    workload: W
    assignment: Assignment
    scan: ScanRecord[W]
    refusal: Refusal
    since: datetime
    is_scheduled: bool = False  # the refusal of the head is in the refusal queue


@dataclass(slots=True, eq=False, repr=False)
class EquivalenceClass(Generic[W]):
    """The waiting workloads of one ClusterQueue that differ only by age and name."""

    key: ClassKey
    # The entries of the class, sorted by place from index ``start`` on.
    entries: list[ClassEntry[W]] = field(default_factory=list)
    start: int = 0
    item: Item[W] | None = None  # place of the class in a heap
    # Why the class is parked, as a refusal; None: the workloads of the class compete.
    parked: Refusal | None = None
    parked_since: datetime | None = None
    scan: ScanRecord[W] | None = None  # the scan that parked the class
    # The workloads of the class without a refusal in flight, grouped by the waiting reason in their
    # status. Each workload is mapped to the time since when it has been in the class with that
    # status reason.
    by_reason: dict[str, dict[W, datetime]] = field(default_factory=dict)
    is_scheduled: bool = False  # the class is in the queue of scheduled refusals
    # The nomination of the first workload of the class when it was last tried.
    saved_nomination: SavedNomination | None = None

    @property
    def is_of_variants(self) -> bool:
        """Whether the workloads of the class are variants of families."""
        return isinstance(self.key[1], tuple)

    @property
    def live(self) -> int:
        """How many workloads the class has."""
        return len(self.entries) - self.start

    def first(self) -> ClassEntry[W] | None:
        """Returns the entry of the oldest workload; None: the class is empty."""
        return self.entries[self.start] if self.start < len(self.entries) else None

    def insert(self, entry: ClassEntry[W]) -> None:
        """Adds an entry at its place in the class."""
        insort(self.entries, entry, self.start)

    def delete(self, entry: ClassEntry[W]) -> None:
        """Removes an entry from the class. In most cases the removed entry is the first one of the
        class, and then only the index ``start`` changes."""
        workloads = self.entries
        at = bisect_left(workloads, entry, self.start)
        if at != self.start:
            del workloads[at]
            return
        self.start += 1
        if self.start > 64 and self.start * 2 > len(workloads):
            del workloads[: self.start]
            self.start = 0

    def before(self, place: tuple[datetime, str, tuple[str, str]]) -> int:
        """Returns how many workloads of the class come before ``place``."""
        return bisect_left(self.entries, place, self.start) - self.start

    def waiting(self) -> Iterator[W]:
        """Yields all workloads of the class, oldest first."""
        return (entry[3] for entry in self.entries[self.start :])

    def note_reason(self, workload: W, now: datetime) -> None:
        """Puts the workload into the group of its class for the waiting reason in its status, so
        that parking the class need not look at every workload."""
        group = self.by_reason.get(workload.status_reason)
        if group is None:
            group = self.by_reason[workload.status_reason] = {}
        if workload.reason_group is not group:
            forget_reason(workload)
            group[workload] = now
            workload.reason_group = group

    def unrefused(self, latest: datetime) -> Iterator[W]:
        """Yields the workloads of a parked class to refuse: those parked at ``latest`` or before,
        with another reason in their status than the class is parked for.

        The caller must not call `note_reason` while it iterates."""
        if self.parked is None or self.parked_since is None or self.parked_since > latest:
            return
        for reason, group in self.by_reason.items():
            if reason != self.parked.reason:
                # A group keeps the order of insertion, so the workloads that joined it first come
                # first.
                for workload, joined in group.items():
                    if joined > latest:
                        break
                    yield workload

    def refusal_since(self) -> datetime | None:
        """Returns since when the oldest workload of the class is parked that has no refusal for the
        class's reason yet; None: all have one. The cost does not depend on the number of workloads
        in the class."""
        if self.parked is None or self.parked_since is None:
            return None
        firsts = [
            next(iter(group.values()))
            for reason, group in self.by_reason.items()
            if group and reason != self.parked.reason
        ]
        return max(min(firsts), self.parked_since) if firsts else None


def forget_reason(workload: Waiting) -> None:
    """Removes the workload from the group of its class for its status reason
    (`EquivalenceClass.by_reason`)."""
    if workload.reason_group is not None:
        del workload.reason_group[workload]
        workload.reason_group = None
