"""Machines as if nothing ran there, whatever their state."""

from __future__ import annotations

from typing import Any

from admittance.api.meta import ObjectMeta
from admittance.api.runners import Runner, RunnerDevice, RunnerDrain, RunnerSpec, RunnerStatus
from admittance.placement.search.empty_machines import EmptyMachines
from admittance.placement.search.shortage import Why
from support.machines import GPU, a_group, a_request


def a_runner(name: str, *, gpus: int = 0, id: str = "", cpu: str = "8", **spec: Any) -> Runner:
    devices = tuple(RunnerDevice(resource=GPU, index=n, id=f"{name}-{n}") for n in range(gpus))
    return Runner(
        metadata=ObjectMeta(name=name, labels={"of": name, "zone": "1"}),
        spec=RunnerSpec(**spec),
        status=RunnerStatus(id=id or f"id-{name}", capacity={"cpu": cpu}, devices=devices),
    )


def lacks(machines: EmptyMachines, gpus: int) -> Why | None:
    shortage = machines.shortage(a_request("n/w", a_group(gpus=gpus)))
    return shortage.why if shortage is not None else None


def test_a_machine_counts_in_whatever_state_until_its_runner_is_deleted() -> None:
    machines = EmptyMachines()
    assert lacks(machines, 1) is Why.NO_MACHINE
    machines.set_runner("a", a_runner("a", gpus=2, unschedulable=True, drain=RunnerDrain()))
    assert (lacks(machines, 2), lacks(machines, 3)) == (None, Why.SIZE)
    machines.set_runner("a", a_runner("a", gpus=4))
    assert lacks(machines, 4) is None
    machines.set_runner("a", a_runner("a", gpus=1, id="another folder"))
    assert (lacks(machines, 1), lacks(machines, 2)) == (None, Why.SIZE)
    machines.set_runner("a", None)
    machines.set_runner("a", None)
    assert lacks(machines, 1) is Why.NO_MACHINE


def test_a_runner_without_a_machine_or_with_bad_amounts_counts_as_none() -> None:
    machines = EmptyMachines()
    machines.set_runner("a", Runner(metadata=ObjectMeta(name="a")))
    assert lacks(machines, 0) is Why.NO_MACHINE
    machines.set_runner("a", a_runner("a"))
    assert lacks(machines, 0) is None
    machines.set_runner("a", a_runner("a", cpu="many"))
    assert lacks(machines, 0) is Why.NO_MACHINE


def test_devices_and_labels_of_any_machine_count() -> None:
    machines = EmptyMachines()
    assert (machines.have_devices, machines.any_has({})) == (False, False)
    machines.set_runner("a", a_runner("a"))
    assert not machines.have_devices
    machines.set_runner("b", a_runner("b", gpus=1))
    assert machines.have_devices
    for labels, has in (
        ({"of": "a"}, True),
        ({"of": "b", "zone": "1"}, True),
        ({"of": "b", "zone": "2"}, False),
        ({"rack": "1"}, False),
    ):
        assert machines.any_has(labels) is has
