"""The free room of one machine, and how many pods it holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from admittance.api.fields.units import INT64_MAX
from admittance.placement.machines.machine import PODS, Machine, offered_units
from admittance.placement.search.request import Amounts

Bits = int
"""A set of units of one resource on one machine: bit n is the unit with the number n."""


class Units:
    """The units of one resource on one machine, numbered in the order of their devices.

    ``offered``: the units that the machine has; bookings may name others, which were there before.
    ``shared``: for each device with several units, its units.
    """

    __slots__ = ("_numbers", "ids", "offered", "shared")

    def __init__(self, offered: Iterable[str] = (), shared: tuple[Bits, ...] = ()) -> None:
        self.ids: list[str] = list(offered)
        self._numbers = {unit: number for number, unit in enumerate(self.ids)}
        self.offered: Bits = (1 << len(self.ids)) - 1
        self.shared = shared

    def bits(self, ids: Iterable[str]) -> Bits:
        """The set of the units with these ids. Unknown units get numbers that are not offered."""
        chosen = 0
        for unit in ids:
            number = self._numbers.get(unit)
            if number is None:
                number = self._numbers[unit] = len(self.ids)
                self.ids.append(unit)
            chosen |= 1 << number
        return chosen

    def offered_bits(self, ids: Iterable[str]) -> Bits:
        """The set of those units with these ids that the machine offers."""
        chosen = 0
        for unit in ids:
            number = self._numbers.get(unit)
            chosen |= 0 if number is None else 1 << number
        return chosen & self.offered

    def names(self, chosen: Bits) -> tuple[str, ...]:
        """The ids of the units, in the order of their devices."""
        names = []
        while chosen:
            lowest = chosen & -chosen
            names.append(self.ids[lowest.bit_length() - 1])
            chosen ^= lowest
        return tuple(names)

    def choose(self, free: Bits, count: int) -> Bits:
        """Returns ``count`` of the free units for one pod. Of shared devices it takes the one with
        the least free units that suffice, so that devices without jobs stay free."""
        if not self.shared:
            return _lowest(free, count)
        left = [(free & device).bit_count() for device in self.shared]
        enough = [(n, place) for place, n in enumerate(left) if n >= count]
        if enough:
            return _lowest(free & self.shared[min(enough)[1]], count)
        chosen = 0
        # No device suffices: whole devices first, so that the pod is on few of them.
        for place in sorted(range(len(left)), key=lambda place: (-left[place], place)):
            part = free & self.shared[place]
            part = part if part.bit_count() <= count else _lowest(part, count)
            chosen |= part
            count -= part.bit_count()
            if not count:
                break
        return chosen


def _lowest(free: Bits, count: int) -> Bits:
    chosen = 0
    for _ in range(count):
        lowest = free & -free
        chosen |= lowest
        free ^= lowest
    return chosen


def units_of(machine: Machine) -> dict[str, Units]:
    """The units of the machine's devices, by resource."""
    slices = {device.id: device.slices for device in machine.devices}
    units = {}
    for resource, ids in offered_units(machine.devices).items():
        devices: dict[str, Bits] = {}
        for number, unit in enumerate(ids):
            device = unit if slices.get(unit) == 1 else unit.rpartition("::")[0]
            devices[device] = devices.get(device, 0) | 1 << number
        shared = tuple(devices.values()) if len(devices) < len(ids) else ()
        units[resource] = Units(ids, shared)
    return units


class Room:
    """The free room of a machine. ``free``: the amount of each resource; of devices the number of
    free units. ``units``: the free units of each resource with devices. ``numbering``: their ids.
    """

    __slots__ = ("free", "machine", "numbering", "units")

    def __init__(
        self,
        machine: Machine,
        free: dict[str, int],
        units: dict[str, Bits],
        numbering: Mapping[str, Units],
    ) -> None:
        self.machine = machine
        self.free = free
        self.units = units
        self.numbering = numbering

    def copy(self) -> Room:
        """A copy that may be changed."""
        return Room(self.machine, dict(self.free), dict(self.units), self.numbering)

    def pods(self, requests: Amounts, most: int) -> int:
        """How many pods with these requests fit, at most ``most``."""
        free = self.free
        for resource, amount in requests:
            most = min(most, free.get(resource, 0) // amount)
        return max(0, most)

    def take(self, requests: Amounts, count: int) -> dict[str, tuple[str, ...]]:
        """Takes the room of ``count`` pods, which must fit. Returns the ids of their units by
        resource, in the order of the pods."""
        taken: dict[str, tuple[str, ...]] = {}
        for resource, amount in requests:
            self.free[resource] -= amount * count
            units = self.numbering.get(resource)
            if units is None:
                continue
            free = self.units[resource]
            ids: list[str] = []
            for _ in range(count):
                chosen = units.choose(free, amount)
                free ^= chosen
                ids += units.names(chosen)
            self.units[resource] = free
            taken[resource] = tuple(ids)
        return taken


def capacity_of(machine: Machine, units: Mapping[str, Units]) -> dict[str, int]:
    """All amounts of the machine: of devices the number of their units."""
    capacity = {PODS: INT64_MAX, **machine.capacity}
    for resource, numbered in units.items():
        capacity[resource] = numbered.offered.bit_count()
    return capacity


def empty_room(machine: Machine) -> Room:
    """The room of the machine without any job."""
    units = units_of(machine)
    free = capacity_of(machine, units)
    return Room(machine, free, {name: each.offered for name, each in units.items()}, units)
