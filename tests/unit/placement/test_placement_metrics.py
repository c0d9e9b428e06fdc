"""What the metrics of placement say of its decisions and machines."""

from __future__ import annotations

from typing import Any

from admittance.api.meta import ObjectMeta
from admittance.api.runners import Runner, RunnerDevice, RunnerDrain, RunnerSpec, RunnerStatus
from admittance.events.stored.machines import OpenRun, RunnerAlive, RunnerInventory
from admittance.placement.machines.known_runners import KnownRunners, StoredRunner
from admittance.placement.search.shortage import Why
from admittance.placement.tally import PlacementTally, allocated_of
from admittance.placement.verdicts import PlacementTimes, PlacementVerdict
from admittance.placement_service.machine_metrics import PlacementMetrics, values_of
from support.cores.placed_cores import PlacedCores
from support.machines import GPU, Machines, Run, a_group, a_machine, a_request


def test_what_workloads_and_open_runs_hold_is_allocated_device_by_device() -> None:
    machines = Machines(a_machine("a", gpus=2, slices=2, cpu=8))
    machines.book(a_request("n/w", a_group(gpus=3, cpu=2)))
    run = Run("n", "old", 4, {"cpu": 1000, GPU: 1}, {GPU: ("a-1::1",)})
    machines.ledger.set_runs("id-a", [run])
    held = allocated_of(machines.ledger, "id-a")
    assert (held.amounts[GPU], held.amounts["cpu"], held.amounts["memory"]) == (4, 3000, 0)
    assert held.units == {(GPU, "a-0"): 2, (GPU, "a-1"): 2}
    held = allocated_of(machines.ledger, "id-a", {"n/w"})
    assert (held.amounts[GPU], held.units) == (1, {(GPU, "a-0"): 0, (GPU, "a-1"): 1})
    assert allocated_of(machines.ledger, "unknown") == ({}, {})
    machines.ledger.set_runs("id-a", [Run("n", "old", 4, {"fpga": 2})])
    held = allocated_of(machines.ledger, "id-a")
    assert held.amounts["fpga"] == 2, "the machine has it no more"


def placed_cores(times: PlacementTimes | None = None) -> PlacedCores:
    cores = PlacedCores(a_machine("a", gpus=4, resource="gpu"), times=times)
    cores.offer({"default": 64}, checks={"default": ["slow"]})
    cores.go()
    return cores


def job(cores: PlacedCores, name: str, gpus: int) -> None:
    container = {"name": "c", "command": ["true"], "resources": {"requests": {"gpu": str(gpus)}}}
    pods = {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
    cores.job(name, pods=[pods])


def test_the_wait_of_a_workload_counts_once_from_its_last_other_check() -> None:
    cores = placed_cores()
    job(cores, "first", 4)
    cores.advance(40)
    cores.report("first", "slow", "Ready")
    cores.change_machine("a", labels={"zone": "b"})
    tally = cores.placement.tally.take()
    assert (tally.waits, tally.shortages) == ([0.0], {})

    job(cores, "second", 3)
    job(cores, "third", 5)
    for name in ("second", "third"):
        cores.report(name, "slow", "Ready")
    cores.advance(30)
    assert {key: short.why for key, short in cores.placement.shortages().items()} == {
        "ns/second": Why.ROOM,
        "ns/third": Why.SIZE,
    }
    cores.done("first")
    tally = cores.placement.tally.take()
    assert (tally.waits, tally.shortages) == ([30.0], {Why.ROOM: 1, Why.SIZE: 1})
    assert cores.placement.tally.take().waits == []


def test_room_that_is_held_back_is_not_allocated() -> None:
    cores = placed_cores(PlacementTimes(hold_after=PlacementTimes().say_after))
    for name, gpus in (("small", 3), ("gang", 4)):
        job(cores, name, gpus)
        cores.report(name, "slow", "Ready")
    cores.advance(10)
    assert "held back for ns/gang" in cores.placement.ledger.holders("id-a")
    assert cores.placement.allocated("id-a").amounts["gpu"] == 3
    assert cores.placement.waiting_for_victims() == 0


def runner(name: str, known: KnownRunners, *, alive: bool = True, **spec: Any) -> None:
    gpu = RunnerDevice(resource="gpu", index=0, id="a-0")
    status = RunnerStatus(id=f"id-{name}", capacity={"cpu": "8", "gpu": "4"}, devices=(gpu,))
    made = Runner(metadata=ObjectMeta(name=name), spec=RunnerSpec(**spec), status=status)
    known.set_object(name, StoredRunner(made, 1))
    known.inventories[name] = RunnerInventory(id=f"id-{name}", name=name)
    if alive:
        known.alive[name] = RunnerAlive(id=f"id-{name}")


DRAIN = RunnerDrain(reason="repair")


def test_gauges_show_the_state_of_runners_and_what_waits() -> None:
    known = KnownRunners()
    runner("a", known)
    runner("b", known, unschedulable=True)
    runner("c", known, unschedulable=True, drain=DRAIN)
    runner("d", known, alive=False, drain=DRAIN)
    known.set_object("gone", StoredRunner(None, 1))
    cores = placed_cores()
    for name, gpus in (("first", 3), ("second", 2), ("third", 5)):
        job(cores, name, gpus)
        cores.report(name, "slow", "Ready")

    values = values_of(known, cores.placement)

    assert values["runners"] == {
        ("ready",): 1,
        ("cordoned",): 1,
        ("draining",): 1,
        ("lost",): 1,
    }
    assert values["runner_ready"] == {("a",): 1, ("b",): 1, ("c",): 1, ("d",): 0}
    assert values["runner_allocated"] == {("a", "cpu"): 0, ("a", "gpu"): 3}
    assert values["runner_device_allocated"] == {
        ("a", "gpu", f"a-{number}"): int(number < 3) for number in range(4)
    }
    waiting = values["placement_waiting_workloads"]
    assert {labels: count for labels, count in waiting.items() if count} == {
        ("Room",): 1,
        ("Size",): 1,
    }
    assert waiting[("PreemptionRequired",)] == 0
    assert values_of(known)["runner_allocated"] == {}


def test_what_a_program_holds_is_in_use_on_its_machine_and_device() -> None:
    known = KnownRunners()
    runner("a", known)
    held = OpenRun(
        namespace="n",
        name="nb",
        revision=3,
        requests={"cpu": 2000, "gpu": 1},
        devices={"gpu": ("a-0",)},
        held=True,
    )
    known.held = {"id-a": [held]}.__getitem__
    assert known.state("a").in_use == held.requests
    assert known.state("a", with_runs=True).runs == (held,)
    assert known.state("not announced", with_runs=True).runs == ()
    values = values_of(known)
    assert values["runner_in_use"] == {("a", "cpu"): 2, ("a", "gpu"): 1}
    assert values["runner_device_jobs"] == {("a", "gpu", "a-0"): 1}


def test_counters_add_what_happened_and_begin_with_0() -> None:
    metrics = PlacementMetrics()
    tally = PlacementTally()
    tally.waits += [2.5, 0.5]
    tally.shortages[Why.ROOM] += 2
    ready = PlacementVerdict("n", "w", "u", "machines", 1, "Ready", "")
    metrics.count(tally, [ready, ready._replace(state="Retry"), ready])
    lines = [
        line
        for metric in metrics.metrics
        for _, series in metric.series("")
        for line in "".join(series).splitlines()
    ]
    for line in (
        "placement_wait_time_seconds_count{} 2",
        "placement_wait_time_seconds_sum{} 3.0",
        'placement_shortages_total{reason="Room"} 2',
        'placement_shortages_total{reason="Labels"} 0',
        'placement_verdicts_total{state="Ready"} 2',
        'placement_verdicts_total{state="Retry"} 1',
        'placement_verdicts_total{state="Pending"} 0',
    ):
        assert line in lines
