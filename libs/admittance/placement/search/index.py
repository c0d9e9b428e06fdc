"""Machines that take pods, grouped and sorted so that a search looks at few of them.

Machines with the same labels, taints and rules are one class; only the hostname may differ. Devices
and other extended resources are scarce, so within a class machines with the same free amounts of
them are one bucket. A bucket has its machines sorted by each other resource, such as cpu. A search
takes the buckets that suffice, and in each the list with the fewest machines that suffice: most
machines that lack one resource are not looked at.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, NamedTuple

from admittance.api.fields.limits import is_extended
from admittance.api.meta import Taint
from admittance.api.pods import PreferredSchedulingTerm
from admittance.events.system import RunnerStarts
from admittance.placement.machines.machine import HOSTNAME, PODS, Machine, is_below
from admittance.placement.search.ledger import Ledger
from admittance.placement.search.request import Demands, PodGroup, names_machine
from admittance.placement.search.room import Room
from admittance.quota.labels import (
    affinity_matches,
    missing_labels,
    preference,
    tolerates,
    untolerated,
)

_ALL: Final = ""
"""The list of a bucket with all of its machines."""
Entry = tuple[int, str, str]
"""A free amount, the name and the id of a machine."""
Amounts = tuple[int, ...]
Size = tuple[tuple[str, int], ...]
"""The whole capacity of a machine, sorted by resource."""


class ClassKey(NamedTuple):
    """What the machines of a class have in common. ``scarce``: the names of scarce resources."""

    labels: tuple[tuple[str, str], ...]
    taints: tuple[tuple[str, str, str], ...]
    starts: RunnerStarts | None
    executors: tuple[str, ...]
    folders: tuple[str, ...]
    scarce: tuple[str, ...]


def class_key(machine: Machine) -> ClassKey:
    """The key of the machine's class."""
    devices = {device.resource for device in machine.devices}
    extended = {r for r, amount in machine.capacity.items() if amount > 0 and is_extended(r)}
    return ClassKey(
        tuple(sorted(item for item in machine.labels.items() if item[0] != HOSTNAME)),
        tuple(sorted({(t.key, t.value, t.effect) for t in machine.taints})),
        machine.starts,
        tuple(sorted(machine.executors)),
        tuple(sorted(machine.folders)),
        tuple(sorted(devices | extended)),
    )


class MachineClass:
    """The machines of one class. ``buckets``: by the free amounts of the scarce resources, for each
    other resource the sorted machines that offer it. ``order``: the keys of the buckets, sorted.
    ``sizes``: how many machines have each capacity."""

    __slots__ = ("buckets", "key", "labels", "order", "sizes", "taints")

    def __init__(self, key: ClassKey) -> None:
        self.key = key
        self.labels = dict(key.labels)
        self.taints = tuple([Taint(key=k, value=v, effect=e) for k, v, e in key.taints])
        self.buckets: dict[Amounts, dict[str, list[Entry]]] = {}
        self.order: list[Amounts] = []
        self.sizes: Counter[Size] = Counter()

    def add(self, scarce: Amounts, entries: dict[str, Entry], size: Size) -> None:
        """Adds a machine with these free amounts."""
        lists = self.buckets.get(scarce)
        if lists is None:
            lists = self.buckets[scarce] = {}
            insort(self.order, scarce)
        for resource, entry in entries.items():
            insort(lists.setdefault(resource, []), entry)
        self.sizes[size] += 1

    def remove(self, scarce: Amounts, entries: dict[str, Entry], size: Size) -> None:
        """Removes a machine that was added with the same values."""
        lists = self.buckets[scarce]
        for resource, entry in entries.items():
            entries_of = lists[resource]
            del entries_of[bisect_left(entries_of, entry)]
            if not entries_of:
                del lists[resource]
        if not lists:
            del self.buckets[scarce]
            del self.order[bisect_left(self.order, scarce)]
        self.sizes[size] -= 1
        if not self.sizes[size]:
            del self.sizes[size]

    def avoided(self, group: PodGroup) -> int:
        """How many taints of the class the pods should avoid, but need not."""
        return sum(
            [
                taint.effect == "PreferNoSchedule"
                and not any(tolerates(toleration, taint) for toleration in group.tolerations)
                for taint in self.taints
            ]
        )


Filter = Callable[[Machine], bool]
_NO: Final = (False, None)
_YES: Final = (True, None)


def suits(
    taken: MachineClass, group: PodGroup, demands: Demands, by_name: bool
) -> tuple[bool, Filter | None]:
    """Whether pods may run on machines of the class, whatever their room; and what a single machine
    must fulfil in addition, if anything. ``by_name``: the pods select machines by name."""
    key = taken.key
    if not by_name:
        if missing_labels(taken.labels, group.node_selector):
            return _NO
        if group.terms is not None and not affinity_matches("", taken.labels, group.terms):
            return _NO
    if taken.taints and untolerated(taken.taints, group.tolerations) is not None:
        return _NO
    if demands.executor and key.executors and demands.executor not in key.executors:
        return _NO
    if key.starts is not None and demands.refusal(key.starts):
        return _NO
    by_host = bool(demands.folder) and not any(
        is_below(demands.folder, shared) for shared in key.folders
    )
    if by_host and not demands.host:
        return _NO
    if not by_name and not by_host:
        return _YES
    return (
        True,
        lambda machine: (
            (not by_host or machine.host == demands.host)
            and (not by_name or names_match(machine, group))
        ),
    )


def names_match(machine: Machine, group: PodGroup) -> bool:
    """Whether the machine matches the node selector and the required node affinity of the pods."""
    labels = {HOSTNAME: machine.name, **machine.labels}
    return not missing_labels(labels, group.node_selector) and affinity_matches(
        machine.name, labels, group.terms
    )


SEARCHES_MAX: Final = 512
"""For how many different pods the index remembers how classes are searched."""


class _Place(NamedTuple):
    """Where a machine stands in the index."""

    machine: Machine
    taken: MachineClass
    scarce: Amounts
    entries: dict[str, Entry]
    size: Size


class MachineIndex:
    """The machines of a ledger that take pods, by class. `refresh` follows the ledger's changes.
    ``closed``: the machines that take none now, by id."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.classes: dict[ClassKey, MachineClass] = {}
        self.closed: dict[str, Machine] = {}
        self._places: dict[str, _Place] = {}
        self._searches: dict[object, Searches] = {}
        self._has_rules = False
        ledger.changed.update(machine.id for machine in ledger.machines())

    def rules(self) -> list[RunnerStarts]:
        """The different rules about the jobs that runners start, in no order."""
        return list({key.starts for key in self.classes if key.starts is not None})

    def searches(self, group: PodGroup, demands: Demands) -> Searches:
        """How classes are searched for such pods, as far as it is known: the caller adds to it.
        Equal pods share it, unless rules of runners may tell their jobs apart."""
        if self._has_rules:
            return {}
        resources = tuple([resource for resource, _ in group.requests])
        pods = group.node_selector, group.terms, group.tolerations, group.preferred
        key = pods, resources, demands[:3]
        known = self._searches.get(key)
        if known is None:
            if len(self._searches) >= SEARCHES_MAX:
                self._searches.clear()
            known = self._searches[key] = {}
        return known

    def _classes_changed(self) -> None:
        self._searches.clear()
        self._has_rules = any(key.starts is not None for key in self.classes)

    @property
    def machines(self) -> int:
        """The number of machines that take pods."""
        return len(self._places)

    def first_of(self, wanted: Collection[tuple[MachineClass, Size]]) -> tuple[str, Size]:
        """The name and the capacity of the first machine with one of these classes and
        capacities."""
        places = self._places.values()
        return min((p.machine.name, p.size) for p in places if (p.taken, p.size) in wanted)

    def refresh(self) -> None:
        """Reads the machines whose room has changed."""
        changed = self.ledger.changed
        while changed:
            self._update(changed.pop())

    def _update(self, machine_id: str) -> None:
        before = self._places.pop(machine_id, None)
        room = self.ledger.room(machine_id)
        if before is not None:
            before.taken.remove(before.scarce, before.entries, before.size)
        self.closed.pop(machine_id, None)
        if room is not None and not room.machine.takes_pods:
            self.closed[machine_id] = room.machine
        elif room is not None:
            if before is not None and before.machine is room.machine:
                taken, size = before.taken, before.size
            else:
                key = class_key(room.machine)
                taken = self.classes.get(key) or MachineClass(key)
                size = tuple(sorted(self.ledger.capacity(machine_id).items()))
            if taken.key not in self.classes:
                self.classes[taken.key] = taken
                self._classes_changed()
            scarce = tuple([room.free[resource] for resource in taken.key.scarce])
            entries = _entries(taken, room)
            taken.add(scarce, entries, size)
            self._places[machine_id] = _Place(room.machine, taken, scarce, entries, size)
        if before is not None and not before.taken.sizes:
            del self.classes[before.taken.key]
            self._classes_changed()


def _entries(taken: MachineClass, room: Room) -> dict[str, Entry]:
    machine, free, scarce = room.machine, room.free, taken.key.scarce
    entries = {
        resource: (free[resource], machine.name, machine.id)
        for resource in machine.capacity
        if resource not in scarce and resource != PODS
    }
    entries[_ALL] = 0, machine.name, machine.id
    return entries


class ClassSearch:
    """The machines of one class that suit pods, in two orders. ``needs``: amounts by resource that
    the machine must have free.

    ``standing``: how the class stands among those that suit the pods, the best first: by the taints
    that the pods should avoid, by their preferred affinity, and by the scarce resources that they
    do not need. ``scores_machines``: whether the pods prefer machines by name."""

    def __init__(
        self, index: MachineIndex, taken: MachineClass, group: PodGroup, only: Filter | None
    ) -> None:
        self._ledger = index.ledger
        self.taken = taken
        self._only = only
        scarce = taken.key.scarce
        needed = [resource for resource, _ in group.requests]
        self._requested = [n for n, r in enumerate(scarce) if r in needed]
        self._other = [n for n, r in enumerate(scarce) if r not in needed]
        self._counted = [r for r in needed if r not in scarce and r != PODS] or [_ALL]
        self._named: tuple[PreferredSchedulingTerm, ...] = ()
        score = 0
        if group.preferred:
            self._named = tuple([t for t in group.preferred if names_machine(t.preference)])
            score = preference(
                "", taken.labels, [t for t in group.preferred if not names_machine(t.preference)]
            )
        self.standing = taken.avoided(group), -score, len(self._other)
        self.scores_machines = bool(self._named)

    def standing_of(self, machine: Machine) -> tuple[int, int, int]:
        """How a machine of the class stands, also by what pods prefer by its name."""
        if not self._named:
            return self.standing
        avoided, score, other = self.standing
        labels = {HOSTNAME: machine.name, **machine.labels}
        return avoided, score - preference(machine.name, labels, self._named), other

    def order(self, scarce: Amounts) -> tuple[Amounts, Amounts]:
        """The order of buckets: those with the least scarce resources that suffice come first."""
        if not self._other:
            return scarce, ()
        if not self._requested:
            return (), scarce
        return (
            tuple([scarce[n] for n in self._requested]),
            tuple([scarce[n] for n in self._other]),
        )

    def most_first(self, bucket: Amounts) -> tuple[Amounts, Amounts, Entry]:
        """The order of buckets for a search: those with the most of the scarce resources that the
        pods need come first, and of these the ones with the least of others."""
        requested, other = self.order(bucket)
        first = self.taken.buckets[bucket][_ALL][0]
        return tuple([-amount for amount in requested]), other, first

    @property
    def is_filtered(self) -> bool:
        """Whether single machines must fulfil something that their class does not say."""
        return self._only is not None

    def admits(self, machine: Machine) -> bool:
        """Whether the machine fulfils what a single machine must fulfil."""
        return self._only is None or self._only(machine)

    def bound(self, requests: Mapping[str, int]) -> int | None:
        """The most pods that the free scarce resources of the class suffice for; None: the pods
        need no scarce resource."""
        names = self.taken.key.scarce
        floor = [(n, requests[names[n]]) for n in self._requested]
        if not floor:
            return None
        return sum(
            min(bucket[n] // least for n, least in floor) * len(self.taken.buckets[bucket][_ALL])
            for bucket in self.buckets(requests)
        )

    def buckets(self, needs: Mapping[str, int]) -> list[Amounts]:
        """The buckets whose scarce resources suffice, in no order."""
        names = self.taken.key.scarce
        floor = [(n, needs[names[n]]) for n in self._requested]
        if not floor:
            return self.taken.order
        if len(names) == 1:
            keys = self.taken.order
            return keys[bisect_left(keys, (floor[0][1],)) :]
        return [key for key in self.taken.order if all(key[n] >= least for n, least in floor)]

    def ascending(self, needs: Mapping[str, int]) -> Iterator[Room]:
        """The rooms that may have the needs, the ones with the least left first."""
        buckets = self.buckets(needs)
        if self._other and self._requested:
            buckets = sorted(buckets, key=self.order)
        for bucket in buckets:
            entries, first = self._shortest(bucket, needs)
            yield from self._rooms(entries[n] for n in range(first, len(entries)))

    def nearest(self, needs: Mapping[str, int], most: int) -> Iterator[Room]:
        """Some rooms with much of the needs: those with the most scarce resources, and of those
        with enough of them the ones with the most of each other resource."""
        some: dict[str, Entry] = {}
        for bucket in sorted(self.taken.order, key=self.order, reverse=True):
            for entry in self.taken.buckets[bucket][_ALL][:most]:
                some[entry[2]] = entry
            if len(some) >= most:
                break
        for bucket in self.buckets(needs):
            lists = self.taken.buckets[bucket]
            for resource in self._counted:
                for entry in lists.get(resource, ())[-most:]:
                    some[entry[2]] = entry
            if len(some) >= 2 * most * (1 + len(self._counted)):
                break
        yield from self._rooms(iter(some.values()))

    def descending(self, bucket: Amounts, needs: Mapping[str, int]) -> Iterator[Room]:
        """The rooms of one bucket that may have the needs, the ones with the most left first."""
        entries, first = self._shortest(bucket, needs)
        end = len(entries)
        while end > first:
            # Machines with equal amounts come in the order of their names.
            start = max(first, bisect_left(entries, (entries[end - 1][0],), first, end))
            yield from self._rooms(entries[n] for n in range(start, end))
            end = start

    def _shortest(self, bucket: Amounts, needs: Mapping[str, int]) -> tuple[list[Entry], int]:
        """Of the lists of the bucket the one with the fewest machines that suffice, and where they
        begin."""
        lists = self.taken.buckets[bucket]
        best: tuple[int, list[Entry], int] | None = None
        for resource in self._counted:
            entries = lists.get(resource)
            if entries is None:
                return [], 0
            first = bisect_left(entries, (needs.get(resource, 0),))
            left = len(entries) - first
            if best is None or left < best[0]:
                best = left, entries, first
        assert best is not None, "a request has resources, or all machines are looked at"
        return best[1], best[2]

    def _rooms(self, entries: Iterator[Entry]) -> Iterator[Room]:
        for _, _, machine_id in entries:
            room = self._ledger.room(machine_id)
            assert room is not None, "the index has known machines only"
            if self.admits(room.machine):
                yield room


Searches = dict[MachineClass, ClassSearch | None]
"""How classes are searched for some pods; None: the class does not suit them."""
