"""Chooses the machines and devices of all pods of a workload, or says what is missing.

A pod is on one machine as a whole, and all pods are placed or none. The fewest machines win, since
each of them is a runner that must start its part: pods that fit on one machine go to the one with
the least left, otherwise the machine with the most room is filled before the next, and the rest
goes to the machine with the least left. Of as many machines, those that the pods prefer come first
(preferred node affinity). Equal machines are chosen by name. The result follows from the request,
the machines and the bookings alone, in whichever order they came.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

import msgspec
from msgspec.structs import replace

from admittance.events.placement import (
    PARTS_MAX,
    PLACEMENT_BYTES_MAX,
    Placement,
    PlacementPart,
)
from admittance.placement.machines.machine import PODS
from admittance.placement.search.index import (
    ClassSearch,
    MachineClass,
    MachineIndex,
    Searches,
    class_key,
    suits,
)
from admittance.placement.search.request import PlacementRequest, PodGroup
from admittance.placement.search.room import Room
from admittance.placement.search.shortage import Attempt, Shortage, Why, shortage_of

_SMALL: Final = 64
"""Assignments with fewer parts are not measured: they are far below the limit."""
_MANY: Final = 256
"""With more machines a gang for which the devices do not suffice is not tried, but counted."""


def place(
    request: PlacementRequest, index: MachineIndex, *, freed: Collection[str] = ()
) -> Placement | Shortage:
    """Returns the parts of an assignment of all pods, by pod set and index, or why there is none.
    Books nothing.

    The bookings of the request's family and of the workloads ``freed`` do not count: the room of
    planned victims is room to come. A workload without pods gets one part of 0 pods.
    """
    index.refresh()
    return _Search(request, index, freed).placed()


class _Search:
    """One attempt. ``rooms``: the rooms that differ from those of the index. ``used``: those of
    them with pods of this attempt, by id."""

    def __init__(
        self, request: PlacementRequest, index: MachineIndex, freed: Collection[str]
    ) -> None:
        self._request = request
        self._index = index
        self._rooms: dict[str, Room] = {}
        self._used: dict[str, Room] = {}
        self._group: PodGroup | None = None
        self._searches: Searches = {}
        self._by_name = False
        ledger = index.ledger
        for machine_id in sorted(ledger.machines_of(request.family, freed)):
            room = ledger.room_without(machine_id, request.family, freed)
            if room is not None and room.machine.takes_pods:
                self._rooms[machine_id] = room

    def placed(self) -> Placement | Shortage:
        parts: dict[str, list[PlacementPart]] = {}
        groups = self._request.pod_sets
        if not self._request.pods and groups:
            # Some runner must start the job, which ends at once.
            groups = (replace(groups[0], count=1, requests=()),)
        for group in sorted(groups, key=group_order) if len(groups) > 1 else groups:
            self._group, self._by_name = group, group.names_machines
            self._searches = self._index.searches(group, self._request.demands)
            placed = self._place(group)
            if isinstance(placed, Shortage):
                return placed
            parts[group.name] = placed
        if not self._request.pods:
            parts = {name: [replace(part, count=0) for part in of] for name, of in parts.items()}
        every = tuple([part for group in groups for part in parts[group.name]])
        if len(every) > _SMALL and (
            len(every) > PARTS_MAX or len(msgspec.json.encode(every)) > PLACEMENT_BYTES_MAX
        ):
            text = f"the assignment of {self._request.pods:,} pods to {len(self._used):,} machines"
            return Shortage(Why.PARTS, f"{text} would be too large to be stored")
        return every

    def _place(self, group: PodGroup) -> list[PlacementPart] | Shortage:
        left = group.count
        parts: list[PlacementPart] = []
        if not left:
            return parts
        room = self._tightest(group, left)
        if room is not None:
            return [self._take(group, room, 0, left)]
        most = None if group.together else self._bound(group)
        if not group.together and most is None:
            for room in self._roomiest(group):
                pods = room.pods(group.requests, left)
                if pods == left:
                    room = self._tightest(group, left) or room  # noqa: PLW2901
                if pods:
                    parts.append(self._take(group, room, group.count - left, pods))
                    left -= pods
                if not left:
                    return parts
        pods = group.count - left
        attempt = Attempt(self._request, group, pods, most, self._rooms, self._search)
        return shortage_of(attempt, self._index)

    def _take(self, group: PodGroup, room: Room, first: int, count: int) -> PlacementPart:
        machine = room.machine
        if machine.id not in self._used:
            copy = self._rooms.get(machine.id) or room.copy()
            self._used[machine.id] = self._rooms[machine.id] = copy
        devices = self._used[machine.id].take(group.requests, count)
        return PlacementPart(
            runner=machine.name,
            id=machine.id,
            pod_set=group.name,
            first=first,
            count=count,
            devices=devices,
        )

    # How the classes are searched. ------------------------------------------------------

    def _search(self, taken: MachineClass) -> ClassSearch | None:
        """How to search the class; None: the class does not suit the present pod set."""
        try:
            return self._searches[taken]
        except KeyError:
            group = self._group
            assert group is not None, "a search is for a pod set"
            fits, only = suits(taken, group, self._request.demands, self._by_name)
            search = ClassSearch(self._index, taken, group, only) if fits else None
            if taken.sizes:
                self._searches[taken] = search
            return search

    def _class_searches(self) -> Iterator[ClassSearch]:
        for taken in self._index.classes.values():
            search = self._search(taken)
            if search is not None:
                yield search

    def _own_rooms(self, *, used: bool) -> Iterator[tuple[ClassSearch, Room]]:
        """The rooms that differ from those of the index and suit the present pod set: those with
        pods of this attempt, or the others."""
        for machine_id, room in self._rooms.items():
            if (machine_id in self._used) != used:
                continue
            key = class_key(room.machine)
            search = self._search(self._index.classes.get(key) or MachineClass(key))
            if search is not None and search.admits(room.machine):
                yield search, room

    def _bound(self, group: PodGroup) -> int | None:
        """The most pods for which the free scarce resources suffice, if these are fewer than all;
        None: an attempt must show it. Counting is quick, and saves the attempt."""
        if self._index.machines <= _MANY:
            return None
        requests = dict(group.requests)
        total = sum(room.pods(group.requests, group.count) for room in self._rooms.values())
        for search in self._class_searches():
            bound = search.bound(requests)
            if bound is None or total + bound >= group.count:
                return None
            total += bound
        return total

    def _tightest(self, group: PodGroup, count: int) -> Room | None:
        """Of the machines with room for that many pods the one with the least left; machines with
        pods of this attempt come first. None: no machine has the room."""
        requests = group.requests
        fitting: list[tuple[ClassSearch, Room]] = []
        for used in (True, False) if self._rooms else ():
            fitting = [
                (search, room)
                for search, room in self._own_rooms(used=used)
                if room.pods(requests, count) == count
            ]
            if used and fitting:
                break
        else:
            needs = {resource: amount * count for resource, amount in requests}
            for search in self._class_searches():
                for room in search.ascending(needs):
                    if room.machine.id not in self._rooms and room.pods(requests, count) == count:
                        fitting.append((search, room))
                        if not search.scores_machines:
                            break
        if len(fitting) > 1:
            return min(fitting, key=lambda pair: _rank(*pair))[1]
        return fitting[0][1] if fitting else None

    def _roomiest(self, group: PodGroup) -> Iterator[Room]:
        """The machines that may have room for a pod, the ones with the most room first; machines
        with pods of this attempt come before all others, and preferred ones before those that are
        not preferred."""
        for _, room in self._own_by_room(group, used=True):
            yield room
        others = self._others_by_room(group)
        if group.preferred:
            others = iter(sorted(others, key=lambda pair: pair[0].standing_of(pair[1].machine)))
        for _, room in others:
            yield room

    def _own_by_room(self, group: PodGroup, *, used: bool) -> list[tuple[ClassSearch, Room]]:
        def order(pair: tuple[ClassSearch, Room]) -> tuple[int, str, str]:
            room = pair[1]
            pods = room.pods(group.requests, group.count)
            return -pods, room.machine.name, room.machine.id

        return sorted(self._own_rooms(used=used), key=order)

    def _others_by_room(self, group: PodGroup) -> Iterator[tuple[ClassSearch, Room]]:
        yield from self._own_by_room(group, used=False)
        needs = dict(group.requests)
        buckets = [
            (search.standing, search.most_first(bucket), search, bucket)
            for search in self._class_searches()
            for bucket in search.buckets(needs)
        ]
        for *_, search, bucket in sorted(buckets, key=lambda entry: entry[:2]):
            for room in search.descending(bucket, needs):
                if room.machine.id not in self._rooms:
                    yield search, room


def group_order(group: PodGroup) -> tuple[object, ...]:
    """Pods with devices come first, then the larger ones, so that small pods fill the gaps."""
    requests = dict(group.requests)
    plain = {"cpu", "memory", PODS}
    devices = sorted((amount for r, amount in requests.items() if r not in plain), reverse=True)
    return (
        [-amount for amount in devices] or [0],
        -requests.get("cpu", 0),
        -requests.get("memory", 0),
        group.name,
    )


def _rank(search: ClassSearch, room: Room) -> tuple[object, ...]:
    """The order of machines that have room: the one with the least left comes first."""
    free, machine = room.free, room.machine
    scarce = tuple([free[resource] for resource in search.taken.key.scarce])
    left = free.get("cpu", 0), free.get("memory", 0)
    standing = search.standing_of(machine) if search.scores_machines else search.standing
    return standing, search.order(scarce), left, machine.name, machine.id
