"""What workloads hold on machines beside the runs that runners report. Pure."""

from __future__ import annotations

from admittance.events.stored.machines import OpenRun
from admittance.placement.machines.machine import PODS
from admittance.placement.reservation import Held
from admittance.placement.search.ledger import Ledger, Share
from admittance.workload.stored import StoredWorkload, head


class Holds:
    """The admitted workloads that no runner starts, by the ids of their machines."""

    def __init__(self) -> None:
        self._on: dict[str, dict[str, OpenRun]] = {}
        self._machines: dict[str, tuple[str, ...]] = {}
        """The ids of the machines of each workload, by its key."""

    def set(self, key: str, workload: StoredWorkload | None, held: Held | None) -> None:
        """Sets what a workload holds; None: nothing."""
        for machine_id in self._machines.pop(key, ()):
            del self._on[machine_id][key]
        if workload is None or held is None or not held.revision:
            return
        if head(workload).lease_duration_seconds is None:
            return
        self._machines[key] = tuple(held.shares)
        for machine_id, share in held.shares.items():
            run = run_of(key, share, held.revision, held=True)
            self._on.setdefault(machine_id, {})[key] = run

    def on(self, machine_id: str) -> list[OpenRun]:
        """What programs hold on the machine."""
        return list(self._on.get(machine_id, {}).values())


def left_on(ledger: Ledger, machine_id: str) -> list[OpenRun]:
    """What admitted workloads hold of the earlier data folders of the machine's runner."""
    earlier = ledger.earlier_ids(machine_id)
    if not earlier:
        return []
    return [
        run_of(key, share, revision, held=False)
        for key in ledger.holders(machine_id)
        for on, share in ledger.shares(key).items()
        if on in earlier and (revision := ledger.revision(key))
    ]


def run_of(key: str, share: Share, revision: int, *, held: bool) -> OpenRun:
    """What the admitted workload holds on one machine, as a run. ``held``: see `OpenRun`."""
    namespace, _, name = key.partition("/")
    devices = dict(share.units)
    requests = {name: amount for name, amount in share.amounts.items() if name != PODS}
    requests |= {resource: len(units) for resource, units in devices.items()}
    return OpenRun(
        namespace=namespace,
        name=name,
        revision=revision,
        requests=requests,
        devices=devices,
        held=held,
    )
