"""Whatever jobs come and go: no device is doubled, no machine is over its capacity, gangs are
placed whole, and the result does not depend on the order in which things became known."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from admittance.api.meta import Taint
from admittance.events.placement import Placement, placement_error
from admittance.placement.machines.machine import Machine
from admittance.placement.search.ledger import Shares, shares_of
from admittance.placement.search.request import PlacementRequest
from admittance.placement.search.shortage import Shortage
from support.machines import GPU, Machines, a_group, a_machine, a_request

ZONES = ("1", "2")


def some_machines(chance: random.Random, count: int) -> list[Machine]:
    return [
        a_machine(
            f"m{number}",
            gpus=chance.choice((0, 2, 4)),
            cpu=chance.choice((4, 8, 16)),
            memory=chance.choice((8, 32)),
            slices=chance.choice((1, 1, 2)),
            labels={"zone": chance.choice(ZONES)},
            taints=(Taint(key="t", effect="NoSchedule"),) if chance.random() < 0.1 else (),
            unschedulable=chance.random() < 0.1,
        )
        for number in range(count)
    ]


def a_job(chance: random.Random, number: int) -> PlacementRequest:
    family = f"n/f{chance.randrange(3)}" if chance.random() < 0.2 else ""
    groups = [
        a_group(
            chance.choice((1, 1, 2, 3, 5)),
            gpus=chance.choice((0, 0, 1, 2, 3)),
            cpu=chance.choice((1, 2, 5)),
            memory=chance.choice((0, 4)),
            name=name,
            selector={"zone": chance.choice(ZONES)} if chance.random() < 0.4 else {},
            together=chance.random() < 0.1,
        )
        for name in ("main", "other")[: chance.choice((1, 1, 2))]
    ]
    return a_request(f"n/w{number}", *groups, family=family)


def check_bookings(
    machines: Iterable[Machine], booked: dict[str, tuple[PlacementRequest, Placement]]
) -> None:
    """Adds up all bookings anew, from the parts alone."""
    units: dict[tuple[str, str], str] = {}
    used: dict[str, Counter[str]] = {}
    families: dict[tuple[str, str], Counter[str]] = {}
    for request, parts in booked.values():
        assert placement_error(parts, {g.name: g.count for g in request.pod_sets}) == ""
        groups = {group.name: dict(group.requests) for group in request.pod_sets}
        here: dict[str, Counter[str]] = {}
        for part in parts:
            for resource, amount in groups[part.pod_set].items():
                here.setdefault(part.id, Counter())[resource] += amount * part.count
            assert len(part.devices.get(GPU, ())) == part.count * groups[part.pod_set].get(GPU, 0)
            for unit in part.devices.get(GPU, ()):
                assert units.setdefault((part.id, unit), request.family) == request.family
        for machine_id, amounts in here.items():
            families[machine_id, request.family] = (
                families.get((machine_id, request.family), Counter()) | amounts
            )
    for (machine_id, _), amounts in families.items():
        used.setdefault(machine_id, Counter()).update(amounts)
    for machine in machines:
        amounts = used.get(machine.id, Counter())
        assert amounts["cpu"] <= machine.capacity["cpu"]
        assert amounts["memory"] <= machine.capacity["memory"]
        assert sum(of == machine.id for of, _ in units) <= sum(d.slices for d in machine.devices)


@given(st.integers(0, 2**32))
@settings(max_examples=30)
def test_jobs_that_come_and_go_never_overlap(seed: int) -> None:
    chance = random.Random(seed)
    known = some_machines(chance, 6)
    machines = Machines(*known)
    empty = {machine.name: machines.free(machine.name) for machine in known}
    booked: dict[str, tuple[PlacementRequest, Placement]] = {}
    for number in range(30):
        if booked and chance.random() < 0.4:
            gone = chance.choice(sorted(booked))
            del booked[gone]
            machines.ledger.release(gone)
        request = a_job(chance, number)
        parts = machines.place(request)
        if isinstance(parts, Shortage):
            assert parts.message
            continue
        assert machines.ledger.overlap(request.family, _shares(request, parts)) == ""
        machines.book_parts(request, parts)
        booked[request.key] = request, parts
        check_bookings(known, booked)
    # Other orders of machines and bookings lead to the same decisions.
    again = Machines(*chance.sample(known[:3], 3))
    for key in chance.sample(sorted(booked), len(booked)):
        again.book_parts(*booked[key])
    for machine in chance.sample(known, len(known)):
        again.ledger.set_machine(machine)
    for number in range(100, 104):
        assert again.place(a_job(random.Random(seed + number), number)) == machines.place(
            a_job(random.Random(seed + number), number)
        )
    for key in booked:
        machines.ledger.release(key)
    assert {machine.name: machines.free(machine.name) for machine in known} == empty


def _shares(request: PlacementRequest, parts: Placement) -> Shares:
    return shares_of(parts, {group.name: group.requests for group in request.pod_sets})


@given(st.integers(0, 2**32))
@settings(max_examples=60)
def test_a_pod_is_refused_only_if_no_machine_has_room(seed: int) -> None:
    chance = random.Random(seed)
    known = some_machines(chance, 8)
    machines = Machines(*known)
    for number in range(12):
        group = a_job(chance, number).pod_sets[0]
        selector = dict(group.node_selector)
        single_pod = a_group(gpus=dict(group.requests).get(GPU, 0), cpu=3, selector=selector)
        request = a_request(f"n/w{number}", single_pod)
        parts = machines.place(request)
        fits = [
            machine.name
            for machine in known
            if machine.takes_pods
            and not machine.taints
            and machine.labels["zone"] == selector.get("zone", machine.labels["zone"])
            and all(
                machines.free(machine.name).get(resource, 0) >= amount
                for resource, amount in single_pod.requests
                if resource != "pods"
            )
        ]
        if isinstance(parts, Shortage):
            assert not fits
        else:
            assert parts[0].runner in fits
            machines.book_parts(request, parts)


def test_10000_jobs_on_100_machines_all_end() -> None:
    """A gang holds all of its devices or none, so that no two gangs wait for each other."""
    chance = random.Random(28)
    known = [a_machine(f"m{n:03}", gpus=4, labels={"zone": ZONES[n % 2]}) for n in range(100)]
    machines = Machines(*known)
    waiting: deque[PlacementRequest] = deque()
    for number in range(10_000):
        group = a_group(
            chance.choice((1, 1, 1, 2, 4, 8)),
            gpus=chance.choice((1, 1, 2, 4)),
            selector={"zone": chance.choice(ZONES)} if chance.random() < 0.3 else {},
        )
        waiting.append(a_request(f"n/w{number}", group))
    running: list[tuple[PlacementRequest, Placement]] = []
    ended = 0
    while waiting or running:
        while waiting:
            parts = machines.place(waiting[0])
            if isinstance(parts, Shortage):
                assert running, f"{parts.message}, and no job runs"
                break
            assert sum(part.count for part in parts) == waiting[0].pods
            machines.book_parts(waiting[0], parts)
            running.append((waiting.popleft(), parts))
        if ended % 2000 == 0:
            check_bookings(known, {request.key: (request, parts) for request, parts in running})
        for _ in range(min(len(running), 20)):
            place = chance.randrange(len(running))
            request, _ = running[place]
            running[place] = running[-1]
            running.pop()
            machines.ledger.release(request.key)
            ended += 1
    assert ended == 10_000
    assert all(machines.free(machine.name)[GPU] == 4 for machine in known)
