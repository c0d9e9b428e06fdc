"""Classes of equal waiting workloads, their order in a ClusterQueue, and when to say why they wait.

Workloads of one shape and priority share a class, and only a class has a place in the order: that
of its first workload. A scan that finds nothing parks the whole class, whatever its size.

Without admission fair sharing all classes are in one order. With it, each LocalQueue has a lane,
and the lane of the LocalQueue that used least goes first. A change of usage then costs one step in
the order of lanes, however many workloads wait. Source: `docs/spec/scheduling.md#3.2, #8`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

from admittance.events.shapes import Refusal
from admittance.scheduling.fairsharing.usage import Account
from admittance.scheduling.state.assignment import Cursor
from admittance.scheduling.state.flavor_plan import Plan
from admittance.scheduling.state.requests import Shape
from admittance.scheduling.state.workload_info import Entry, Key, Ranked, WorkloadInfo

if TYPE_CHECKING:
    from admittance.scheduling.state.workload_info import Nomination


Kind = Shape | tuple[Shape, str]
"""What is asked for; of variants, also the family that it is asked beside, "" where that makes no
difference."""

ClassKey = tuple[int, Kind, Key | None]
"""Priority, what is asked for, and the LocalQueue where that makes a difference."""

Item = tuple[int, datetime, str, Key, int, "EqClass"]
"""A class's place; the number parts an item from one of the same workload that is out of date."""

LaneItem = tuple[float, Item, int, "Lane"]
"""A lane's place: the usage of its LocalQueue, then the place of its first class."""


class Places:
    """Classes that compete, each at the place of its first member; what is out of date is passed
    over."""

    __slots__ = ("_bound", "_number", "heap")

    def __init__(self) -> None:
        self.heap: list[Item] = []
        self._number = 0
        self._bound = 64

    def put(self, cls: EqClass) -> bool:
        """The class is at the place of its first member. True: that is new."""
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
            self.heap = [one for one in self.heap if one[5].item is one]
            heapify(self.heap)
            self._bound = 2 * len(self.heap) + 64
        return True

    def first(self) -> Entry | None:
        """The entry of whoever is first; None: nobody competes."""
        heap = self.heap
        while heap:
            item = heap[0]
            if item[5].item is item:
                entry = item[5].first()
                if entry is not None:
                    return entry
            heappop(heap)
        return None


class Lane:
    """The workloads of one LocalQueue. ``item``: its place among the lanes; None: it has none."""

    __slots__ = ("account", "item", "key", "places")

    def __init__(self, key: Key, account: Account | None) -> None:
        self.key = key
        self.account = account
        self.places = Places()
        self.item: LaneItem | None = None

    @property
    def usage(self) -> float:
        """What it is compared by."""
        return self.account.value if self.account is not None else 0.0


class Lanes:
    """The LocalQueues of one ClusterQueue, by usage. Classes that are equal but for the LocalQueue
    are a family: what stands in the way of one stands in the way of all. ``keeps_place``: whoever
    others were told to go for comes first, whatever its LocalQueue used; else its victim, whose
    LocalQueue used less, could take the room that it left, and be told to go again."""

    __slots__ = ("_bound", "_families", "_heap", "_number", "by_key", "keeps_place")

    def __init__(self, *, keeps_place: bool = True) -> None:
        self.keeps_place = keeps_place
        self.by_key: dict[Key, Lane] = {}
        self._families: dict[tuple[int, Kind], dict[EqClass, None]] = {}
        self._heap: list[LaneItem] = []
        self._number = 0
        self._bound = 64

    def lane(self, key: Key) -> Lane:
        """The lane of a LocalQueue, made where there is none."""
        found = self.by_key.get(key)
        if found is None:
            found = self.by_key[key] = Lane(key, None)
        return found

    def usage_of(self, key: Key | None) -> float:
        """What the LocalQueue is compared by."""
        found = self.by_key.get(key) if key is not None else None
        return found.usage if found is not None else 0.0

    def join(self, cls: EqClass) -> list[EqClass]:
        """The class is new. Returns the others of its family."""
        family = self._families.setdefault(cls.key[:2], {})
        others = list(family)
        family[cls] = None
        return others

    def leave(self, cls: EqClass) -> None:
        """The class is empty and no more."""
        family = self._families[cls.key[:2]]
        family.pop(cls, None)
        if not family:
            del self._families[cls.key[:2]]

    def family(self, cls: EqClass) -> list[EqClass]:
        """All that are equal to it but for the LocalQueue, itself included."""
        return list(self._families[cls.key[:2]])

    def told_all(self) -> dict[str, float]:
        """What each LocalQueue that used anything is compared by, if it does not go last anyway."""
        return {
            "/".join(key): lane.usage
            for key, lane in self.by_key.items()
            if 0.0 < lane.usage < float("inf")
        }

    def pretend(self, usages: Mapping[str, float]) -> None:
        """Compares by these usages until something changes them; the other way of `told_all`."""
        for key, lane in self.by_key.items():
            if lane.account is not None and lane.account.weight > 0:
                lane.account.value = usages.get("/".join(key), 0.0)
                self.moved(lane)

    def told(self, member: WorkloadInfo) -> float | None:
        """What its LocalQueue is compared by, as it is told; None: it goes last."""
        usage = self.usage_of(member.local)
        return usage if usage != float("inf") else None

    def put(self, cls: EqClass) -> None:
        """The class competes, at the place of its first member."""
        key = cls.key[2]
        assert key is not None, "every class is of one LocalQueue here"
        lane = self.lane(key)
        if lane.places.put(cls):
            self.moved(lane)

    def moved(self, lane: Lane) -> None:
        """The lane's first class or its usage may have changed."""
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
            self._heap = [one for one in self._heap if one[3].item is one]
            heapify(self._heap)
            self._bound = 2 * len(self._heap) + 64

    def first(self, sticky: WorkloadInfo | None) -> Entry | None:
        """The entry of whoever is first: ``sticky``, which keeps its place; else of the LocalQueue
        that used least. Where no place is kept, sticky comes first only there, or where others used
        as little."""
        if sticky is not None and self.keeps_place:
            return sticky.entry
        while self._heap:
            place = self._heap[0]
            lane = place[3]
            if lane.item is not place:
                heappop(self._heap)
                continue
            entry = lane.places.first()
            if entry is not None and lane.places.heap[0] is place[1]:
                if sticky is not None and self.usage_of(sticky.local) <= place[0]:
                    return sticky.entry
                return entry
            # Its first class was parked or went since.
            heappop(self._heap)
            lane.item = None
            self.moved(lane)
        return None

    def before(self, member: WorkloadInfo, head: WorkloadInfo) -> str:
        """That the head goes first since its LocalQueue used less, in words; "": it is not so."""
        mine, theirs = self.usage_of(member.local), self.usage_of(head.local)
        if theirs >= mine:
            return ""
        used = "has no weight" if mine == float("inf") else f"used more ({mine:.4g})"
        return (
            f"LocalQueue {member.local[0]}/{member.local[1]} {used}, "
            f"and {head.local[0]}/{head.local[1]} ({theirs:.4g}) goes first"
        )

    def used_most_first(self, ranked: Iterable[Ranked]) -> list[Ranked]:
        """Possible victims, those of LocalQueues that used more before others; otherwise in the
        given order."""
        return sorted(ranked, key=lambda entry: -self.usage_of(entry[4].local))


class Memo(NamedTuple):
    """A nomination, and what must not have changed for it to be the same again. ``version``: of
    the domain; ``stamp``: the age of the workload where it decides whom it may preempt."""

    version: int
    plan: Plan
    cursor: Cursor | None
    stamp: datetime | None
    nomination: Nomination


class Loud:
    """When somebody parked is to be told why, soonest first: a class (at most once), or a single
    workload, and since when it had been parked then. An item that is out of date says nothing."""

    __slots__ = ("_number", "items")

    def __init__(self) -> None:
        self.items: list[tuple[datetime, int, EqClass | WorkloadInfo]] = []
        self._number = 0

    def put(self, since: datetime, who: EqClass | WorkloadInfo) -> None:
        """Somebody is parked, and its status does not say why."""
        self._number += 1
        if isinstance(who, EqClass):
            who.listed = True
        heappush(self.items, (since, self._number, who))

    def pop(self) -> EqClass | WorkloadInfo:
        """Removes and returns the class or workload that is next."""
        who = heappop(self.items)[2]
        if isinstance(who, EqClass):
            who.listed = False
        return who


class Scanned(NamedTuple):
    """When a head was looked at, what the picture had seen then, and where its scan began."""

    seen: int
    at: datetime
    head: WorkloadInfo
    cursor: Cursor | None


class EqClass:
    """The waiting workloads of one queue that are equal but for their age.

    ``members`` are sorted, from ``start`` on. ``parked``: why none of them can be placed; None:
    they compete. ``said``: all members but those that are just being told, by the reason that their
    status gives for waiting, and since when each has been here with it. ``listed``: it has an item
    in `Loud`. ``scanned``: how it came to be parked. ``memo``: what its first member would have got
    when it was last looked at.
    """

    __slots__ = (
        "item",
        "key",
        "listed",
        "members",
        "memo",
        "parked",
        "said",
        "scanned",
        "since",
        "start",
    )

    def __init__(self, key: ClassKey) -> None:
        self.key = key
        self.members: list[Entry] = []
        self.start = 0
        self.item: Item | None = None
        self.parked: Refusal | None = None
        self.since: datetime | None = None
        self.scanned: Scanned | None = None
        self.said: dict[str, dict[WorkloadInfo, datetime]] = {}
        self.listed = False
        self.memo: Memo | None = None

    @property
    def is_of_variants(self) -> bool:
        """They are variants of families."""
        return isinstance(self.key[1], tuple)

    @property
    def live(self) -> int:
        """How many there are."""
        return len(self.members) - self.start

    def first(self) -> Entry | None:
        """The oldest member's entry; None: the class is empty."""
        return self.members[self.start] if self.start < len(self.members) else None

    def insert(self, entry: Entry) -> None:
        """Takes a member in, at its place."""
        insort(self.members, entry, self.start)

    def delete(self, entry: Entry) -> None:
        """Takes a member out. Heads go most often, so they only move the start."""
        members = self.members
        at = bisect_left(members, entry, self.start)
        if at != self.start:
            del members[at]
            return
        self.start += 1
        if self.start > 64 and self.start * 2 > len(members):
            del members[: self.start]
            self.start = 0

    def before(self, place: tuple[datetime, str, tuple[str, str]]) -> int:
        """How many are older than that place."""
        return bisect_left(self.members, place, self.start) - self.start

    def waiting(self) -> Iterator[WorkloadInfo]:
        """All members, oldest first."""
        return (entry[3] for entry in self.members[self.start :])

    def file(self, member: WorkloadInfo, now: datetime) -> None:
        """Notes what the member's status says, so that parking need not ask everybody."""
        group = self.said.get(member.said)
        if group is None:
            group = self.said[member.said] = {}
        if member.filed is not group:
            unfile(member)
            group[member] = now
            member.filed = group

    def untold(self, latest: datetime) -> Iterator[WorkloadInfo]:
        """Who has been parked since latest or longer, and has a status that does not say why.
        No workload may be filed while this is read."""
        if self.parked is None or self.since is None or self.since > latest:
            return
        for reason, group in self.said.items():
            if reason != self.parked.reason:
                # In the order in which they came.
                for member, joined in group.items():
                    if joined > latest:
                        break
                    yield member

    def loud_since(self) -> datetime | None:
        """Since when the longest parked of the untold has been; None: all know. No look at each."""
        if self.parked is None or self.since is None:
            return None
        firsts = [
            next(iter(group.values()))
            for reason, group in self.said.items()
            if group and reason != self.parked.reason
        ]
        return max(min(firsts), self.since) if firsts else None


def unfile(member: WorkloadInfo) -> None:
    """Nothing is noted about what the member's status says."""
    if member.filed is not None:
        del member.filed[member]
        member.filed = None
