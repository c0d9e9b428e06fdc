"""Whether machines could start the pods of a workload at all, if nothing else ran there. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from admittance.api.fields.units import BadQuantity
from admittance.api.runners import Runner
from admittance.placement.machines.stored_machine import machine_of
from admittance.placement.search.index import MachineIndex
from admittance.placement.search.ledger import Ledger
from admittance.placement.search.place import place
from admittance.placement.search.request import PlacementRequest
from admittance.placement.search.shortage import Shortage


class EmptyMachines:
    """The machines of stored runners, as if each runner were alive and nothing ran there. Cordoned
    and drained machines count, too: their state may change, and their size does not."""

    def __init__(self) -> None:
        self._ledger = Ledger()
        self._index = MachineIndex(self._ledger)
        self._ids: dict[str, str] = {}

    def set_runner(self, name: str, runner: Runner | None) -> None:
        """Sets what a runner has announced; None: its object was deleted."""
        before = self._ids.pop(name, None)
        if before is not None:
            self._ledger.forget_machine(before)
        try:
            machine = machine_of(runner) if runner is not None else None
        except BadQuantity:
            return  # no runner announces it: the object was written by hand
        if machine is not None:
            self._ids[name] = machine.id
            self._ledger.set_machine(replace(machine, unschedulable=False, draining=False))

    @property
    def have_devices(self) -> bool:
        """Whether any of them has devices."""
        return any(machine.devices for machine in self._ledger.machines())

    def any_has(self, labels: Mapping[str, str]) -> bool:
        """Whether a machine has all of these labels."""
        return any(labels.items() <= each.labels.items() for each in self._ledger.machines())

    def shortage(self, request: PlacementRequest) -> Shortage | None:
        """Why the machines do not suffice for the request; None: they do."""
        placed = place(request, self._index)
        return placed if isinstance(placed, Shortage) else None
