"""What metrics say of placement: what happened, and what is held of machines. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Final, NamedTuple

from admittance.placement.search.ledger import Ledger
from admittance.placement.search.shortage import Why


class PlacementTally:
    """What happened since `take` was called last. ``waits``: for each workload that was placed, the
    seconds since its other checks were Ready, or its quota was reserved. ``shortages``: how often a
    workload began to lack a machine, by reason."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self.shortages: Counter[Why] = Counter()

    def take(self) -> PlacementTally:
        """Returns what happened, and begins anew."""
        taken = PlacementTally()
        taken.waits, self.waits = self.waits, []
        taken.shortages, self.shortages = self.shortages, Counter()
        return taken


class Allocated(NamedTuple):
    """What is held of one machine. ``amounts``: by resource, of devices the number of units.
    ``units``: the number of held units of each device, by resource and id."""

    amounts: dict[str, int]
    units: dict[tuple[str, str], int]


NOTHING: Final = Allocated({}, {})


def allocated_of(ledger: Ledger, machine_id: str, but: Collection[str] = ()) -> Allocated:
    """What is held of the machine, without what the bookings ``but`` hold."""
    room = ledger.room_without(machine_id, "", but) if but else ledger.room(machine_id)
    capacity = ledger.capacity(machine_id)
    if room is None:
        return NOTHING
    units: dict[tuple[str, str], int] = {}
    for resource, numbered in room.numbering.items():
        held = numbered.offered & ~room.units[resource]
        for unit in numbered.names(numbered.offered):
            # A unit of a shared device is named <id>::<number>.
            device = resource, unit.partition("::")[0]
            units.setdefault(device, 0)
            units[device] += bool(numbered.offered_bits((unit,)) & held)
    return Allocated({r: capacity.get(r, 0) - free for r, free in room.free.items()}, units)
