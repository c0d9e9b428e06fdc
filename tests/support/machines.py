"""Machines, requests and bookings for tests of the placement."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from admittance.events.placement import Placement
from admittance.placement.machines.machine import HOSTNAME, Device, Machine
from admittance.placement.search.index import MachineIndex
from admittance.placement.search.ledger import Ledger, shares_of
from admittance.placement.search.place import place
from admittance.placement.search.request import NO_DEMANDS, Demands, PlacementRequest, PodGroup
from admittance.placement.search.shortage import Shortage

GPU = "nvidia.com/gpu"
GI = 2**30


def a_machine(
    name: str,
    *,
    gpus: int = 0,
    cpu: int = 64,
    memory: int = 256,
    slices: int = 1,
    resource: str = GPU,
    labels: Mapping[str, str] | None = None,
    capacity: Mapping[str, int] | None = None,
    **more: Any,
) -> Machine:
    """A machine with cpu in whole cores and memory in Gi."""
    return Machine(
        name=name,
        id=f"id-{name}",
        capacity={"cpu": cpu * 1000, "memory": memory * GI, **(capacity or {})},
        devices=tuple([Device(resource, f"{name}-{n}", n, slices) for n in range(gpus)]),
        labels={HOSTNAME: name, **(labels or {})},
        **more,
    )


def a_group(
    count: int = 1,
    *,
    gpus: int = 0,
    cpu: int = 1,
    memory: int = 0,
    name: str = "main",
    selector: Mapping[str, str] | None = None,
    **more: Any,
) -> PodGroup:
    """Pods that need so much each."""
    needs = {GPU: gpus, "cpu": cpu * 1000, "memory": memory * GI, "pods": 1}
    return PodGroup(
        name=name,
        count=count,
        requests=tuple(sorted((r, a) for r, a in needs.items() if a)),
        node_selector=tuple(sorted((selector or {}).items())),
        **more,
    )


def a_request(
    key: str, *groups: PodGroup, family: str = "", demands: Demands = NO_DEMANDS
) -> PlacementRequest:
    """A workload with these pod sets."""
    return PlacementRequest(key, family or key, groups or (a_group(),), demands)


class Run(NamedTuple):
    """An open run, as a runner reports it."""

    namespace: str
    name: str
    revision: int
    requests: Mapping[str, int]
    devices: Mapping[str, tuple[str, ...]] = {}


class Machines:
    """Machines with a ledger and an index."""

    def __init__(self, *machines: Machine) -> None:
        self.ledger = Ledger()
        for machine in machines:
            self.ledger.set_machine(machine)
        self.index = MachineIndex(self.ledger)

    def place(self, request: PlacementRequest, freed: Collection[str] = ()) -> Placement | Shortage:
        """Returns where the request would be placed, without a booking."""
        return place(request, self.index, freed=freed)

    def book(self, request: PlacementRequest, *, revision: int = 0) -> Placement:
        """Places the request, which must have room, and books it."""
        parts = self.place(request)
        assert not isinstance(parts, Shortage), parts.message
        self.book_parts(request, parts, revision=revision)
        return parts

    def book_parts(self, request: PlacementRequest, parts: Placement, *, revision: int = 0) -> None:
        """Books an assignment of the request."""
        requests = {group.name: group.requests for group in request.pod_sets}
        shares = shares_of(parts, requests)
        self.ledger.book(request.key, request.family, shares, revision=revision, parts=parts)

    def free(self, name: str) -> dict[str, int]:
        """What a machine has free, without the number of pods."""
        room = self.ledger.room(f"id-{name}")
        assert room is not None
        return {resource: amount for resource, amount in room.free.items() if resource != "pods"}


def placed(parts: Placement | Shortage) -> list[tuple[str, int]]:
    """The runner and the number of pods of each part."""
    assert not isinstance(parts, Shortage), parts.message
    return [(part.runner, part.count) for part in parts]
