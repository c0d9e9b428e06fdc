"""Measures the core of the placement: one Python process, no bus.

    .venv/bin/python -m benchmarks.placement [--json FILE] [--only NAME ...]

Figures are medians of several runs, each after a garbage collection, in milliseconds of CPU time.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec

from admittance.api.checks import MACHINES_CONTROLLER
from admittance.api.meta import Condition, ObjectMeta
from admittance.api.workload import CheckState
from admittance.events.placement import Placement
from admittance.events.shapes import Admission, PodSetAssignment
from admittance.placement.decisions import PlacementDecisions
from admittance.placement.machines.machine import HOSTNAME, Device, Machine
from admittance.placement.search.index import MachineIndex
from admittance.placement.search.ledger import Ledger, shares_of
from admittance.placement.search.place import place
from admittance.placement.search.request import NO_DEMANDS, Demands, PlacementRequest, PodGroup
from admittance.placement.search.shortage import Shortage
from admittance.runtime.process.startup import collect_garbage_less_often
from admittance.workload.stored import StoredWorkload, WorkloadStatus
from admittance.workload.transition_context import CheckRules, FlavorParts

GPU: Final = "nvidia.com/gpu"
GI: Final = 2**30
RUNS: Final = 5
NOON: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)
KINDS: Final = ("a100", "h100", "l4", "mi300")

clock = time.process_time


def a_machine(number: int, *, gpus: int = 8, cpu: int = 96) -> Machine:
    """A machine with devices; its label ``gpu`` is one of `KINDS`."""
    name = f"node-{number:04}"
    return Machine(
        name=name,
        id=f"{number:032x}",
        capacity={"cpu": cpu * 1000, "memory": 1024 * GI},
        devices=tuple([Device(GPU, f"GPU-{number}-{index}", index) for index in range(gpus)]),
        labels={HOSTNAME: name, "gpu": KINDS[number % len(KINDS)]},
    )


def a_request(name: str, pods: int, gpus: int, *, cpu: int = 4, kind: str = "") -> PlacementRequest:
    """A workload with equal pods."""
    devices = ((GPU, gpus),) if gpus else ()
    group = PodGroup(
        name="main",
        count=pods,
        requests=tuple(sorted((("cpu", cpu * 1000), ("memory", 16 * GI), ("pods", 1), *devices))),
        node_selector=(("gpu", kind),) if kind else (),
    )
    return PlacementRequest(name, name, (group,))


class Cluster:
    """Machines with a ledger and an index."""

    def __init__(self, machines: int, *, gpus: int = 8, cpu: int = 96) -> None:
        self.ledger = Ledger()
        for number in range(machines):
            self.ledger.set_machine(a_machine(number, gpus=gpus, cpu=cpu))
        self.index = MachineIndex(self.ledger)
        self.index.refresh()

    def book(self, request: PlacementRequest, parts: Placement) -> None:
        """Books an assignment."""
        requests = {group.name: group.requests for group in request.pod_sets}
        self.ledger.book(request.key, request.family, shares_of(parts, requests))

    def try_all(self, requests: list[PlacementRequest]) -> int:
        """Places and books the requests in turn. Returns how many had room."""
        placed = 0
        for request in requests:
            parts = place(request, self.index)
            if not isinstance(parts, Shortage):
                self.book(request, parts)
                placed += 1
        return placed

    def fill_half(self) -> None:
        """Books half of the devices, at random."""
        chance = random.Random(1)
        wanted = [chance.choice((1, 2, 4)) for _ in range(3 * 1000)]
        left = len(list(self.ledger.machines())) * 4
        for number, gpus in enumerate(wanted):
            if left <= 0:
                break
            kind = KINDS[number % len(KINDS)]
            self.try_all([a_request(f"ns/old-{number}", 1, gpus, kind=kind)])
            left -= gpus
        self.index.refresh()


def _measured(cluster: Cluster, requests: list[PlacementRequest], placed: int) -> float:
    before = clock()
    had_room = cluster.try_all(requests)
    took = (clock() - before) * 1000
    assert had_room == placed, f"{had_room} of {len(requests)} had room, not {placed}"
    return took


def single_pods() -> float:
    """1,000 workloads of one pod on 1,000 machines that are half full, in four classes."""
    cluster = Cluster(1000)
    cluster.fill_half()
    requests = [a_request(f"ns/w-{n}", 1, 1, kind=KINDS[n % len(KINDS)]) for n in range(1000)]
    return _measured(cluster, requests, 1000)


def gang_of_1000() -> float:
    """One workload of 1,000 pods on 1,000 machines with room for one pod each."""
    return _measured(Cluster(1000, gpus=1), [a_request("ns/gang", 1000, 1)], 1)


def gangs_of_64() -> float:
    """100 workloads of 64 pods with one GPU each on 1,000 machines."""
    return _measured(Cluster(1000), [a_request(f"ns/g-{n}", 64, 1) for n in range(100)], 100)


def refused_gangs() -> float:
    """100 workloads of 64 pods with 8 GPUs each on 1,000 machines: 85 have no room."""
    return _measured(Cluster(1000), [a_request(f"ns/g-{n}", 64, 8) for n in range(100)], 15)


def machines_without_cpu() -> float:
    """60 pods without a GPU, where 999 machines have GPUs and no cpu left."""
    cluster = Cluster(1000, cpu=64)
    fills = [a_request(f"ns/fill-{n}", 1, 0, cpu=64) for n in range(999)]
    assert cluster.try_all(fills) == 999
    cluster.index.refresh()
    return _measured(cluster, [a_request(f"ns/w-{n}", 1, 0, cpu=1) for n in range(60)], 60)


def rebuilt() -> float:
    """A ledger and its index from 100 stored workloads of 64 pods."""
    first = Cluster(1000)
    requests = [a_request(f"ns/g-{n}", 64, 1) for n in range(100)]
    stored: list[tuple[PlacementRequest, Placement]] = []
    for request in requests:
        parts = place(request, first.index)
        assert not isinstance(parts, Shortage)
        first.book(request, parts)
        stored.append((request, parts))
    again = Cluster(1000)
    before = clock()
    for request, parts in stored:
        again.book(request, parts)
    again.index.refresh()
    return (clock() - before) * 1000


def random_bookings() -> float:
    """20,000 workloads that come and go on 40 machines."""
    chance = random.Random(7)
    cluster = Cluster(40)
    running: list[str] = []
    before = clock()
    for number in range(20_000):
        while running and (len(running) > 60 or chance.random() < 0.3):
            cluster.ledger.release(running.pop(chance.randrange(len(running))))
        request = a_request(f"ns/w-{number}", chance.choice((1, 1, 2, 4)), chance.choice((0, 1, 2)))
        parts = place(request, cluster.index)
        if not isinstance(parts, Shortage):
            cluster.book(request, parts)
            running.append(request.key)
    return (clock() - before) * 1000


class _View:
    """One check and no flavors."""

    def check(self, name: str) -> CheckRules | None:
        return CheckRules(name, MACHINES_CONTROLLER)

    def flavor(self, _: str) -> FlavorParts:
        return FlavorParts()

    def demands(self, _: StoredWorkload) -> Demands:
        return NO_DEMANDS


def _reserved(number: int, gpus: int) -> StoredWorkload:
    """A workload of one pod that waits for the check alone."""
    requests = {"cpu": "4", "memory": "16Gi", GPU: str(gpus)}
    container = {"name": "c", "resources": {"requests": requests}}
    pods = {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
    place = PodSetAssignment(name="main", flavors={GPU: "default"}, count=1)
    at = NOON + timedelta(milliseconds=number)
    condition = Condition(type="QuotaReserved", status="True", last_transition_time=at)
    return StoredWorkload(
        api_version="kueue.x-k8s.io/v1beta2",
        kind="Workload",
        metadata=ObjectMeta(name=f"w-{number}", namespace="ns", uid=f"{number}"),
        spec=msgspec.Raw(msgspec.json.encode({"queueName": "lq", "podSets": [pods]})),
        status=WorkloadStatus(
            conditions=(condition,),
            admission=Admission(cluster_queue="cq", pod_set_assignments=(place,)),
            admission_checks=(CheckState(name="machines"),),
        ),
    )


def room_among_waiting() -> float:
    """A job with 8 GPUs ends, while 5,000 reservations for 1 to 8 GPUs wait for room."""
    cluster = Cluster(100)
    decisions = PlacementDecisions(_View())
    for machine in cluster.ledger.machines():
        decisions.set_machine(machine)
    for number in range(5100):
        gpus = 8 if number < 100 else number % 8 + 1
        decisions.apply_workload("ns", f"w-{number}", _reserved(number, gpus), number)
    assert len(decisions.decide(NOON)) == 100
    decisions.decide(NOON + timedelta(seconds=20))
    before = clock()
    decisions.apply_workload("ns", "w-7", None, 6000)
    verdicts = decisions.decide(NOON + timedelta(seconds=21))
    took = (clock() - before) * 1000
    assert [verdict.state for verdict in verdicts if verdict.state == "Ready"]
    return took


FIGURES: Final[dict[str, Callable[[], float]]] = {
    "singlePods1000": single_pods,
    "gangOf1000": gang_of_1000,
    "gangsOf64With1Gpu": gangs_of_64,
    "gangsOf64With8Gpus": refused_gangs,
    "machinesWithoutCpu": machines_without_cpu,
    "rebuild": rebuilt,
    "roomAmong5000Waiting": room_among_waiting,
    "randomBookings20000": random_bookings,
}


def _results(names: list[str]) -> Iterator[tuple[str, float]]:
    for name in names:
        results = []
        for _ in range(RUNS):
            gc.collect()
            results.append(FIGURES[name]())
        yield name, round(statistics.median(results), 2)


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", type=Path, help="write the figures there too")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=FIGURES, help="figures")
    options = parser.parse_args()
    # As the services do.
    collect_garbage_less_often()
    figures = dict(_results(options.only or list(FIGURES)))
    text = json.dumps(figures, indent=2)
    sys.stdout.write(text + "\n")
    if options.json is not None:
        options.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
