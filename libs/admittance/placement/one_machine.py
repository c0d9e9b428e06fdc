"""Chooses one machine for all pods of a workload, for runners that start whole workloads only."""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from admittance.events.placement import Placement, runners_of
from admittance.placement.index import MachineIndex
from admittance.placement.machine import HOSTNAME
from admittance.placement.place import place
from admittance.placement.request import PlacementRequest
from admittance.placement.shortage import Shortage, Why


def together(request: PlacementRequest) -> PlacementRequest:
    """The request with the pods of each pod set on one machine."""
    groups = tuple(replace(group, together=group.count > 1) for group in request.pod_sets)
    return request._replace(pod_sets=groups)


def place_on_one(
    request: PlacementRequest, index: MachineIndex, *, freed: Collection[str] = ()
) -> Placement | Shortage:
    """Returns the parts of an assignment of all pods to one machine, or why there is none. Books
    nothing. The pods of each pod set must be `together`. ``freed``: workloads with bookings that do
    not count."""
    found = place(request, index, freed=freed)
    if isinstance(found, Shortage) or len(runners_of(found)) < 2:
        return found
    # Each pod set has a machine of its own, so the machines are tried one by one.
    chosen = runners_of(found)
    machines = sorted(index.ledger.machines(), key=lambda m: (m.id not in chosen, m.name, m.id))
    for machine in machines:
        host = machine.labels.get(HOSTNAME)
        if host is None or not machine.takes_pods:
            continue
        here = tuple(
            replace(group, node_selector=tuple(sorted({*group.node_selector, (HOSTNAME, host)})))
            for group in request.pod_sets
        )
        alone = place(request._replace(pod_sets=here), index, freed=freed)
        if not isinstance(alone, Shortage) and len(runners_of(alone)) == 1:
            return alone
    names = ", ".join(group.name for group in request.pod_sets)
    message = f"no machine has room for the pod sets {names} together"
    return Shortage(Why.ROOM, f"{message}, and a runner starts whole workloads only")
