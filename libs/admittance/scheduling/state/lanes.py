"""The order of a ClusterQueue with admission fair sharing: each LocalQueue, or each user, has a
lane of classes, and the workloads in the lane of the LocalQueue or user that used least are tried
first.

A change of usage moves only one lane, however many workloads wait. Source:
`docs/spec/scheduling.md#3.2, #7.4`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush
from typing import Any, Final, Generic, TypeAlias, TypeVar

from admittance.scheduling.fairsharing.usage import Account
from admittance.scheduling.state.equivalence import (
    CandidateEntry,
    ClassEntry,
    ClassHeap,
    ClassKey,
    EquivalenceClass,
    Item,
    Key,
    Waiting,
)

CLUSTER_QUEUE: Final = "clusterqueue/"
USER: Final = "user/"
"""The prefixes of the two parts of a user's key among the lanes and the stored usages."""

W = TypeVar("W", bound=Waiting)

LaneItem: TypeAlias = tuple[float, "Item[W]", int, "Lane[W]"]
"""Item of a lane in the heap of a ClusterQueue's lanes, smallest first: usage of the lane's
LocalQueue, the item of the lane's first equivalence class, a number, and the lane."""


class Lane(Generic[W]):
    """The classes of one LocalQueue or user. ``item``: the place of the lane among the lanes of its
    ClusterQueue; None: no class of the lane competes. ``recorded``: the usage in a recorded
    decision, of a user without an account."""

    __slots__ = ("account", "item", "key", "places", "recorded")

    def __init__(self, key: Key, account: Account | None) -> None:
        self.key = key
        self.account = account
        self.places: ClassHeap[W] = ClassHeap()
        self.item: LaneItem[W] | None = None
        self.recorded = 0.0

    @property
    def usage(self) -> float:
        """The usage of the LocalQueue or user, which orders the lane."""
        return self.account.value if self.account is not None else self.recorded


class Lanes(Generic[W]):
    """The LocalQueues or users of one ClusterQueue, ordered by usage.

    ``users_of``: the name of the ClusterQueue if its users have lanes; "": its LocalQueues have.
    Classes that differ only by lane are a group, and the classes of a group are refused
    together. ``preemptor_first``: the preemptor that waits for its victims comes first, even if its
    LocalQueue or user used more than others. Without ``preemptor_first`` a victim that used less
    could take back the quota freed for the preemptor, and would be preempted again."""

    __slots__ = (
        "_bound", "_groups", "_heap", "_number", "by_key", "preemptor_first", "users_of",
    )  # fmt: skip

    def __init__(self, *, preemptor_first: bool = True, users_of: str = "") -> None:
        self.preemptor_first = preemptor_first
        self.users_of = users_of
        self.by_key: dict[Key, Lane[W]] = {}
        self._groups: dict[tuple[Any, ...], dict[EquivalenceClass[W], None]] = {}
        self._heap: list[LaneItem[W]] = []
        self._number = 0
        self._bound = 64

    def key_of(self, workload: W) -> Key:
        """Returns the key of the workload's lane."""
        if not self.users_of:
            return workload.local_queue
        return user_key(self.users_of, workload.user)

    def lane(self, key: Key) -> Lane[W]:
        """Returns the lane with that key and creates the lane if needed."""
        lane = self.by_key.get(key)
        if lane is None:
            lane = self.by_key[key] = Lane(key, None)
        return lane

    def usage_of(self, key: Key | None) -> float:
        """Returns the usage that orders the lane."""
        lane = self.by_key.get(key) if key is not None else None
        return lane.usage if lane is not None else 0.0

    def join(self, cls: EquivalenceClass[W]) -> list[EquivalenceClass[W]]:
        """Adds a new class to the lane of its LocalQueue. Returns the other classes that differ
        from the new class only by LocalQueue."""
        group = self._groups.setdefault(_without_lane(cls.key), {})
        others = list(group)
        group[cls] = None
        return others

    def leave(self, cls: EquivalenceClass[W]) -> None:
        """Removes an empty class from its lane."""
        key = _without_lane(cls.key)
        group = self._groups[key]
        group.pop(cls, None)
        if not group:
            del self._groups[key]

    def group(self, cls: EquivalenceClass[W]) -> list[EquivalenceClass[W]]:
        """Returns all classes that differ from ``cls`` only by LocalQueue, including ``cls``."""
        return list(self._groups[_without_lane(cls.key)])

    def recorded_usages(self) -> dict[str, float]:
        """Returns the usage of each LocalQueue or user that used anything and has a weight."""
        return {
            "/".join(key): lane.usage
            for key, lane in self.by_key.items()
            if 0.0 < lane.usage < float("inf")
        }

    def set_usages(self, usages: Mapping[str, float]) -> None:
        """Orders the lanes by ``usages``, the usages from a recorded decision, until a usage
        changes."""
        for key, lane in self.by_key.items():
            if lane.account is None:
                lane.recorded = usages.get("/".join(key), 0.0)
                self.lane_changed(lane)
            elif lane.account.weight > 0:
                lane.account.value = usages.get("/".join(key), 0.0)
                self.lane_changed(lane)

    def recorded_usage(self, workload: W) -> float | None:
        """Returns the usage of the workload's LocalQueue or user; None: the LocalQueue has no
        weight, and its workloads are tried last."""
        usage = self.usage_of(self.key_of(workload))
        return usage if usage != float("inf") else None

    def put(self, cls: EquivalenceClass[W]) -> None:
        """Lets the class compete, in its lane at the place of its first workload."""
        key = cls.key[2]
        assert key is not None, "every class is of one LocalQueue here"
        lane = self.lane(key)
        if lane.places.put(cls):
            self.lane_changed(lane)

    def lane_changed(self, lane: Lane[W]) -> None:
        """Updates the lane's place among the lanes. Must be called after the lane's first class or
        its LocalQueue's usage changed."""
        entry = lane.places.first()
        if entry is None:
            lane.item = None
            return
        item = lane.places.heap[0]
        usage = lane.usage
        old = lane.item
        if old is not None and old[0] == usage and old[1] is item:
            return
        self._number += 1
        lane.item = (usage, item, self._number, lane)
        heappush(self._heap, lane.item)
        if len(self._heap) > self._bound:
            self._heap = [entry for entry in self._heap if entry[3].item is entry]
            heapify(self._heap)
            self._bound = 2 * len(self._heap) + 64

    def first(self, preemptor: W | None) -> ClassEntry[W] | None:
        """Returns the entry of the workload that is tried first: the preemptor, or the first
        workload in the lane with the least usage.

        Without ``preemptor_first``, the preemptor comes first only if no lane used less."""
        if preemptor is not None and self.preemptor_first:
            return preemptor.entry
        while self._heap:
            place = self._heap[0]
            lane = place[3]
            if lane.item is not place:
                heappop(self._heap)
                continue
            entry = lane.places.first()
            if entry is not None and lane.places.heap[0] is place[1]:
                if preemptor is not None and self.usage_of(self.key_of(preemptor)) <= place[0]:
                    return preemptor.entry
                return entry
            # The item is outdated: the lane had this place because of its former first class, which
            # has been parked or removed since.
            heappop(self._heap)
            lane.item = None
            self.lane_changed(lane)
        return None

    def before(self, workload: W, head: W) -> str:
        """Returns a sentence if ``head`` is tried before ``workload`` because the LocalQueue or
        user of ``head`` used less; else ""."""
        mine, theirs = self.usage_of(self.key_of(workload)), self.usage_of(self.key_of(head))
        if theirs >= mine:
            return ""
        if self.users_of:
            names = workload.user or "the workloads without a user", head.user or "without a user"
            return f"{names[0]} used more ({mine:.4g}), and {names[1]} ({theirs:.4g}) goes first"
        used = "has no weight" if mine == float("inf") else f"used more ({mine:.4g})"
        return (
            f"LocalQueue {workload.local_queue[0]}/{workload.local_queue[1]} {used}, "
            f"and {head.local_queue[0]}/{head.local_queue[1]} ({theirs:.4g}) goes first"
        )

    def used_most_first(self, ranked: Iterable[CandidateEntry[W]]) -> list[CandidateEntry[W]]:
        """Sorts candidates for preemption: those of LocalQueues or users that used more come
        first; candidates with equal usage stay in the given order."""
        return sorted(ranked, key=lambda entry: -self.usage_of(self.key_of(entry[4])))


def user_key(cluster_queue: str, user: str) -> Key:
    """Returns the key of a user's lane in a ClusterQueue. No LocalQueue has it, since names of
    objects have no slash."""
    return f"{CLUSTER_QUEUE}{cluster_queue}", f"{USER}{user}"


def names_in(key: Key) -> tuple[str, str] | None:
    """Returns the ClusterQueue and the user of the key of a user's lane; None: the key is of a
    LocalQueue."""
    if not key[0].startswith(CLUSTER_QUEUE):
        return None
    return key[0].removeprefix(CLUSTER_QUEUE), key[1].removeprefix(USER)


def _without_lane(key: ClassKey) -> tuple[Any, ...]:
    priority, kind, _, persons = key
    return priority, kind, persons
