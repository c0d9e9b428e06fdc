"""What workloads hold of machines, counted by the one writer of workloads. The module is pure.

Placement decides from its own state, which may be behind: two leaders may assign one device for a
moment. So an assignment is compared once more with everything that is stored, before it is stored
itself. Runs that runners report do not count here: placement reads them, and no verdict depends on
how soon the workload-controller would.
"""

from __future__ import annotations

from admittance.api.runners import Runner
from admittance.events.placement import Placement
from admittance.events.reader import BROKEN
from admittance.placement.machines.stored_machine import machine_of
from admittance.placement.search.ledger import Ledger, shares_of
from admittance.placement.search.request import Amounts, family_of, pod_requests, workload_key
from admittance.workload.checks.rows import placement_of
from admittance.workload.phase import holds_quota
from admittance.workload.stored import StoredWorkload


def held_placement(workload: StoredWorkload) -> Placement:
    """The parts of machines that the workload holds: those of its admission, until its job has
    stopped, or those that a check has assigned to its reservation."""
    status = workload.status
    parts = status.placement
    if not parts:
        if not status.admission_checks or status.admission is None:
            return ()
        parts = placement_of(status.admission_checks)
    return parts if parts and holds_quota(workload) else ()


class Bookings:
    """The bookings of all held workloads, with the changes of the batch that is being folded."""

    def __init__(self) -> None:
        self._ledger = Ledger()
        self._booked: dict[str, str] = {}
        """The name of each workload that holds something, by its key."""
        self._ids: dict[str, str] = {}
        """The id of each known machine by the name of its runner."""

    def __len__(self) -> int:
        return len(self._booked)

    def set_runner(self, name: str, runner: Runner | None) -> None:
        """Sets what a runner has announced; None: its object was deleted. Without the object only
        devices are compared, not amounts."""
        machine = machine_of(runner) if runner is not None else None
        before = self._ids.pop(name, None)
        if before is not None and (machine is None or machine.id != before):
            self._ledger.forget_machine(before)
        if machine is not None:
            self._ids[name] = machine.id
            self._ledger.set_machine(machine)
        self._ledger.changed.clear()

    def note(self, key: str, workload: StoredWorkload | None) -> None:
        """Sets what the workload at the key holds."""
        parts = held_placement(workload) if workload is not None else ()
        if parts and workload is not None:
            name = self._booked[key] = workload_key(workload)
            shares = shares_of(parts, _requests(workload))
            self._ledger.book(name, family_of(workload), shares, parts=parts)
        elif key in self._booked:
            self._ledger.release(self._booked.pop(key))
        else:
            return
        self._ledger.changed.clear()

    def overlap(self, workload: StoredWorkload, parts: Placement) -> str:
        """Why the parts cannot be assigned to the workload: other workloads hold them; "": they
        can."""
        shares = shares_of(parts, _requests(workload))
        return self._ledger.overlap(family_of(workload), shares)


def _requests(workload: StoredWorkload) -> dict[str, Amounts]:
    try:
        return pod_requests(workload)
    except BROKEN:
        # Another program wrote the object, so that only its devices can be counted.
        return {}
