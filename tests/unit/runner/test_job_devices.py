"""Which devices the pods of a job get, and what their variables say."""

from __future__ import annotations

import msgspec
import pytest

from admittance.events.facts import Admitted
from admittance.events.placement import PlacementPart
from admittance.events.shapes import PodSetToRun
from admittance.events.stored.machines import Device
from admittance.runner.jobs.job_policy import PodSetProgress
from admittance.runner.jobs.pod import Pod
from admittance.runner.plans.devices import (
    NO_DEVICES,
    MachineDevices,
    NotAsPlaced,
    all_parts,
    is_for,
    part_here,
    planned_devices,
    units_of,
)
from admittance.runner.plans.docker_plan import plan_docker
from admittance.runner.plans.local_plan import plan_local

GPU = "nvidia.com/gpu"
CARDS = tuple(Device(resource=GPU, index=index, id=f"GPU-{index}{index}") for index in range(4))
HERE = MachineDevices("r1", CARDS)


def a_pod_set(*parts: PlacementPart, count: int = 1, **container: object) -> PodSetToRun:
    spec = {"containers": [{"name": "main", "command": ["true"], "image": "x", **container}]}
    template = msgspec.Raw(msgspec.json.encode({"spec": spec}))
    return PodSetToRun(name="main", count=count, template=template, parts=parts)


def a_part(*units: str, first: int = 0, count: int = 1, runner: str = "r1") -> PlacementPart:
    return PlacementPart(
        runner="gpu-1",
        id=runner,
        pod_set="main",
        first=first,
        count=count,
        devices={GPU: units} if units else {},
    )


def test_each_pod_gets_its_share_of_the_units_in_their_order() -> None:
    pod_set = a_pod_set(a_part("GPU-33", "GPU-00", "GPU-11", "GPU-22", count=2), count=2)
    slots = planned_devices(pod_set, (), HERE).slots
    assert [slot["CUDA_VISIBLE_DEVICES"] for slot in slots] == ["3,0", "1,2"]
    assert slots[0] == {
        "CUDA_VISIBLE_DEVICES": "3,0",
        "NVIDIA_VISIBLE_DEVICES": "3,0",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "ROCR_VISIBLE_DEVICES": "",
        "ADMITTANCE_DEVICES": "3,0",
        "ADMITTANCE_DEVICES_NVIDIA_COM_GPU": "3,0",
        "ADMITTANCE_ENGINE_DEVICES": "GPU-33,GPU-00",
    }


@pytest.mark.parametrize(
    ("device", "shown"),
    [
        (Device(resource="amd.com/gpu", index=2, id="0x7a"), {"ROCR_VISIBLE_DEVICES": "2"}),
        (Device(resource="example.com/fpga", index=0, id="left"), {"ADMITTANCE_DEVICES": "left"}),
        (
            Device(resource="nvidia.com/mig-1g.5gb", index=0, id="MIG-7"),
            {"CUDA_VISIBLE_DEVICES": "MIG-7"},
        ),
        (Device(resource=GPU, index=0, id="0", slices=4), {"CUDA_VISIBLE_DEVICES": "0"}),
    ],
)
def test_the_variables_follow_the_maker_of_the_device(
    device: Device, shown: dict[str, str]
) -> None:
    unit = f"{device.id}::3" if device.slices > 1 else device.id
    part = PlacementPart(
        runner="m", id="r1", pod_set="main", first=0, count=1, devices={device.resource: (unit,)}
    )
    (slot,) = planned_devices(a_pod_set(part), (), MachineDevices("r1", (device,))).slots
    assert shown.items() <= slot.items()


@pytest.mark.parametrize(
    ("pod_set", "expected"),
    [
        pytest.param(a_pod_set(), NO_DEVICES, id="it asks for none"),
        pytest.param(a_pod_set(a_part()), NO_DEVICES, id="it is placed and asks for none"),
        pytest.param(
            a_pod_set(resources={"requests": {GPU: 1}}), {}, id="it asks and is not placed"
        ),
    ],
)
def test_a_pod_without_assigned_devices_sees_none_unless_no_runner_can_say(
    pod_set: PodSetToRun, expected: dict[str, str]
) -> None:
    fact = Admitted(namespace="ns", name="w", uid="u", revision=1, pod_sets=(pod_set,))
    (planned,) = plan_local(fact, given={}, machine=HERE).sets
    assert (planned.devices, planned.slots) == (expected, ())


def test_a_device_that_the_machine_has_lost_starts_no_pod() -> None:
    with pytest.raises(NotAsPlaced, match=r"no device GPU-99 of nvidia\.com/gpu any more"):
        planned_devices(a_pod_set(a_part("GPU-99")), (), HERE)


def test_each_runner_plans_its_part_of_a_pod_set() -> None:
    parts = (a_part("GPU-00"), a_part("GPU-11", "GPU-22", first=1, count=2, runner="r2"))
    pod_set = a_pod_set(*parts, count=3)
    fact = Admitted(namespace="ns", name="w", uid="u", revision=1, pod_sets=(pod_set,))
    (one,) = plan_local(fact, given={}, machine=HERE).sets
    (two,) = plan_local(fact, given={}, machine=HERE._replace(runner="r2")).sets
    planned = [(each.first, each.parallel, each.completions) for each in (one, two)]
    assert planned == [(0, 1, 1), (1, 2, 2)]
    assert [slot["CUDA_VISIBLE_DEVICES"] for slot in two.slots] == ["1", "2"]
    pods = PodSetProgress(msgspec.to_builtins(two))
    assert [pods.take(0.0), pods.take(0.0), pods.take(0.0)] == [1, 2, None]


def test_a_runner_plans_no_pod_set_that_is_on_other_machines() -> None:
    there = msgspec.structs.replace(a_pod_set(a_part("GPU-11", runner="r2")), name="other")
    pod_sets = (a_pod_set(a_part("GPU-00")), there)
    fact = Admitted(namespace="ns", name="w", uid="u", revision=1, pod_sets=pod_sets)
    assert [each.name for each in plan_local(fact, given={}, machine=HERE).sets] == ["main"]


def test_pods_with_further_completions_are_not_split_among_machines() -> None:
    parts = (a_part("GPU-00"), a_part("GPU-11", first=1, runner="r2"))
    pod_set = msgspec.structs.replace(a_pod_set(*parts, count=2), completions=5)
    fact = Admitted(namespace="ns", name="w", uid="u", revision=1, pod_sets=(pod_set,))
    with pytest.raises(NotAsPlaced, match="cannot be split"):
        plan_local(fact, given={}, machine=HERE)


def test_runners_of_a_job_have_parts_in_the_order_of_its_placement() -> None:
    assert [part_here(("a", "b"), runner) for runner in ("a", "b", "c")] == [1, 2, 0]
    assert (part_here(("a",), "a"), part_here((), "a")) == (0, 0)
    assert (all_parts(("a", "b")), all_parts(("a",)), all_parts(())) == ((1, 2), (0,), (0,))
    assert [is_for(runners, "a") for runners in (("a",), ("b",), ())] == [True, False, True]


def test_a_pod_that_starts_later_takes_the_devices_of_one_that_has_ended() -> None:
    slots = [{"ADMITTANCE_DEVICES": "0"}, {"ADMITTANCE_DEVICES": "1"}]
    spec = {"name": "main", "parallel": 2, "completions": 3, "init": [], "slots": slots}
    pods = PodSetProgress(spec)
    first, second = Pod(pods, 0, 0.0), Pod(pods, 1, 0.0)
    pods.free_slot(second.slot)
    third = Pod(pods, 2, 0.0)
    shown = [pod.devices()["ADMITTANCE_DEVICES"] for pod in (first, second, third)]
    assert shown == ["0", "1", "1"]


def test_a_container_gets_its_devices_from_the_engine() -> None:
    pod_set = a_pod_set(a_part("GPU-00", "GPU-22"))
    fact = Admitted(namespace="ns", name="w", uid="u", revision=1, pod_sets=(pod_set,))
    (planned,) = plan_docker(fact, given={}, docker="docker", mark="m", machine=HERE).sets
    argv = planned.main[0].argv
    assert argv[argv.index("--gpus") + 1] == '"device=$(ADMITTANCE_ENGINE_DEVICES)"'
    assert argv.index("--gpus") < planned.main[0].own_words
    assert "CUDA_VISIBLE_DEVICES" not in argv


def test_a_container_without_devices_sees_none_whatever_its_image_asks_for() -> None:
    fact = Admitted(namespace="ns", name="w", uid="u", revision=1, pod_sets=(a_pod_set(),))
    (planned,) = plan_docker(fact, given={}, docker="docker", mark="m", machine=HERE).sets
    assert "NVIDIA_VISIBLE_DEVICES=void" in planned.main[0].argv


def test_the_units_of_a_run_are_those_of_its_parts_on_this_runner() -> None:
    parts = (a_part("GPU-00"), a_part("GPU-11", first=1, runner="r2"))
    assert units_of((a_pod_set(*parts, count=2),), "r1") == (f"{GPU}=GPU-00",)
