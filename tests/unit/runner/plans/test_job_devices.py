"""Which devices the pods of a job get, and what their variables say."""

from __future__ import annotations

import msgspec
import pytest

from admittance.events.facts import Admitted
from admittance.events.placement import PlacementPart
from admittance.events.shapes import PodSetToRun
from admittance.events.stored.machines import Device
from admittance.job_rules.rules import CannotRun
from admittance.runner.jobs.job_policy import PodSetProgress
from admittance.runner.jobs.pod import Pod
from admittance.runner.jobs.pod_process import program_of, program_words
from admittance.runner.plans.devices import (
    DOCKER,
    NO_DEVICES,
    PODMAN,
    DeviceFile,
    MachineDevices,
    NotAsPlaced,
    all_parts,
    is_for,
    part_here,
    planned_devices,
    pods_here,
    units_of,
    unset_for,
)
from admittance.runner.plans.docker_plan import plan_docker
from admittance.runner.plans.local_plan import plan_local

GPU = "nvidia.com/gpu"
AMD_GPU = "amd.com/gpu"
FPGA = "example.com/fpga"
MIG = "nvidia.com/mig-1g.5gb"
CARDS = tuple(
    Device(resource=GPU, index=index, id=f"GPU-{index}{index}", minor=index) for index in range(4)
)
HERE = MachineDevices("r1", CARDS)
CARD_FILES = tuple(
    DeviceFile(GPU, card.id, f"/dev/nvidia{card.minor}", 195, card.minor) for card in CARDS
)
OF_AMD = tuple(
    Device(resource=AMD_GPU, index=index, id=f"GPU-a{index}", minor=128 + index)
    for index in range(2)
)
AMD_FILES = tuple(
    DeviceFile(AMD_GPU, card.id, f"/dev/dri/renderD{card.minor}", 226, card.minor, 44)
    for card in OF_AMD
)
FPGAS = tuple(
    Device(resource=FPGA, index=index, id=f"/dev/fpga{index}", slices=4) for index in range(2)
)
FPGA_FILES = tuple(DeviceFile(FPGA, fpga.id, fpga.id, 240, fpga.index, 0) for fpga in FPGAS)
PARTS = tuple(Device(resource=MIG, index=0, id=f"MIG-{name}", minor=3) for name in "ab")
PART_FILES = tuple(DeviceFile(MIG, part.id, "/dev/nvidia3", 195, 3) for part in PARTS)
HIDDEN = DeviceFile(GPU, "not offered", "/dev/nvidia9", 195, 9)
ALL = MachineDevices(
    "r1",
    (*CARDS[:3], *OF_AMD, *FPGAS, *PARTS),
    (*CARD_FILES[:3], *AMD_FILES, *FPGA_FILES, *PART_FILES, HIDDEN),
    frozenset((GPU, AMD_GPU, FPGA, MIG)),
)


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
    }


NONE_OF_NVIDIA = {"CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": ""}


@pytest.mark.parametrize(
    ("units", "denied", "shown"),
    [
        pytest.param(
            {GPU: ("GPU-22", "GPU-00")},
            True,
            {
                "CUDA_VISIBLE_DEVICES": "GPU-22,GPU-00",
                "NVIDIA_VISIBLE_DEVICES": "GPU-22,GPU-00",
                "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
                "ROCR_VISIBLE_DEVICES": "",
                "ADMITTANCE_DEVICES": "2,0",
                "ADMITTANCE_DEVICES_NVIDIA_COM_GPU": "2,0",
            },
            id="CUDA counts only the cards that it may open",
        ),
        pytest.param(
            {AMD_GPU: ("GPU-a1",)},
            False,
            {
                "NVIDIA_VISIBLE_DEVICES": "",
                "ROCR_VISIBLE_DEVICES": "1",
                "ADMITTANCE_DEVICES": "1",
                "ADMITTANCE_DEVICES_AMD_COM_GPU": "1",
            },
            id="AMD by ROCR alone",
        ),
        pytest.param(
            {AMD_GPU: ("GPU-a1",)},
            True,
            {
                "NVIDIA_VISIBLE_DEVICES": "",
                "ROCR_VISIBLE_DEVICES": "GPU-a1",
                "ADMITTANCE_DEVICES": "1",
                "ADMITTANCE_DEVICES_AMD_COM_GPU": "1",
            },
            id="ROCR counts only the cards that it may open",
        ),
        pytest.param(
            {FPGA: ("/dev/fpga1::3",)},
            True,
            {
                **NONE_OF_NVIDIA,
                "ROCR_VISIBLE_DEVICES": "",
                "ADMITTANCE_DEVICES": "/dev/fpga1",
                "ADMITTANCE_DEVICES_EXAMPLE_COM_FPGA": "/dev/fpga1",
            },
            id="a slice of a file",
        ),
        pytest.param(
            {MIG: ("MIG-a",), AMD_GPU: ("GPU-a0",)},
            False,
            {
                "CUDA_VISIBLE_DEVICES": "MIG-a",
                "NVIDIA_VISIBLE_DEVICES": "MIG-a",
                "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
                "ROCR_VISIBLE_DEVICES": "0",
                "ADMITTANCE_DEVICES": "0,MIG-a",
                "ADMITTANCE_DEVICES_AMD_COM_GPU": "0",
                "ADMITTANCE_DEVICES_NVIDIA_COM_MIG_1G_5GB": "MIG-a",
            },
            id="devices of two makers",
        ),
    ],
)
def test_the_variables_follow_the_maker_and_what_a_job_may_open(
    units: dict[str, tuple[str, ...]], denied: bool, shown: dict[str, str]
) -> None:
    part = msgspec.structs.replace(a_part(), devices=units)
    machine = ALL if denied else ALL._replace(denied=frozenset())
    (slot,) = planned_devices(a_pod_set(part), (), machine).slots
    assert slot == shown


@pytest.mark.parametrize("id", ["0", "GPU-by-hand"])
def test_a_device_that_only_an_option_names_is_shown_by_its_id(id: str) -> None:
    device = Device(resource=GPU, index=7, id=id, slices=4)
    (slot,) = planned_devices(
        a_pod_set(a_part(f"{id}::3")), (), MachineDevices("r1", (device,))
    ).slots
    assert (slot["CUDA_VISIBLE_DEVICES"], slot["ADMITTANCE_DEVICES"]) == (id, id)


@pytest.mark.parametrize(
    ("resources", "unset"),
    [
        ((), ()),
        ((GPU, FPGA), ()),
        ((AMD_GPU,), ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")),
        ((AMD_GPU, MIG), ("HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")),
    ],
)
def test_no_variable_counts_within_what_rocr_leaves(
    resources: tuple[str, ...], unset: tuple[str, ...]
) -> None:
    assert unset_for(resources) == unset


def test_a_container_cannot_have_a_variable_that_is_unset() -> None:
    part = msgspec.structs.replace(a_part(), devices={AMD_GPU: ("GPU-a1",)})
    env = [{"name": name, "value": "0"} for name in ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")]
    fact = Admitted(
        namespace="ns", name="w", uid="u", revision=1, pod_sets=(a_pod_set(part, env=env),)
    )
    spec = msgspec.to_builtins(plan_local(fact, given={}, machine=HERE._replace(devices=OF_AMD)))
    pod = Pod(PodSetProgress(spec["sets"][0]), 0, 0.0)
    given = {"CUDA_VISIBLE_DEVICES": "1"}
    left, _ = program_of(pod.set.spec["main"][0], given, {}, pod.devices(), pod.unset)
    assert left == {
        "NVIDIA_VISIBLE_DEVICES": "",
        "ROCR_VISIBLE_DEVICES": "1",
        "ADMITTANCE_DEVICES": "1",
        "ADMITTANCE_DEVICES_AMD_COM_GPU": "1",
    }


@pytest.mark.parametrize(
    ("units", "asked", "denied"),
    [
        pytest.param(None, (), "all", id="it asks for none"),
        pytest.param({}, (GPU,), "all", id="it is placed without devices"),
        pytest.param({GPU: ("GPU-11",)}, (GPU,), "all but 195:1", id="it has a card"),
        pytest.param({GPU: ("GPU-11::2",)}, (GPU,), "all but 195:1", id="it has a slice"),
        pytest.param({MIG: ("MIG-b",)}, (MIG,), "all but 195:3", id="it has a part of a card"),
        pytest.param(
            {AMD_GPU: ("GPU-a0",), FPGA: ("/dev/fpga0",)},
            (AMD_GPU, FPGA),
            "all but 226:128, 240:0",
            id="it has two kinds",
        ),
        pytest.param(
            None, (MIG,), "226:128, 226:129, 240:0, 240:1", id="it asks, and is placed nowhere"
        ),
        pytest.param(
            None,
            (FPGA, "cpu"),
            "all but 240:0, 240:1",
            id="it asks for files, and is placed nowhere",
        ),
    ],
)
def test_a_job_is_kept_from_the_files_of_all_devices_but_its_own(
    units: dict[str, tuple[str, ...]] | None, asked: tuple[str, ...], denied: str
) -> None:
    parts = () if units is None else (msgspec.structs.replace(a_part(), devices=units),)
    pod_set = a_pod_set(*parts, resources={"requests": dict.fromkeys(asked, 1)})
    fact = Admitted(namespace="ns", name="w", uid="u", revision=1, pod_sets=(pod_set,))
    plan = msgspec.to_builtins(plan_local(fact, given={}, machine=ALL))
    pod = Pod(PodSetProgress(plan["sets"][0]), 0, 0.0)
    every = [*(f"195:{n}" for n in (0, 1, 2, 3, 9)), "226:128", "226:129", "240:0", "240:1"]
    own = denied.removeprefix("all").removeprefix(" but ").split(", ")
    expected = [n for n in every if n not in own] if denied.startswith("all") else own
    assert [f"{major}:{minor}" for major, minor in pod.denied(plan["deviceFiles"])] == expected


def test_a_machine_that_can_deny_nothing_plans_no_denial() -> None:
    fact = Admitted(namespace="ns", name="w", uid="u", revision=1, pod_sets=(a_pod_set(),))
    plan = plan_local(fact, given={}, machine=ALL._replace(denied=frozenset()))
    assert plan.device_files == ()


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
    part = msgspec.structs.replace(a_part(), devices={FPGA: ("/dev/fpga0",)})
    with pytest.raises(NotAsPlaced, match=r"no device /dev/fpga0 of example\.com/fpga any more"):
        planned_devices(a_pod_set(part), (), ALL._replace(files=FPGA_FILES[1:]))


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


HALF, REST = a_part(count=1), a_part(first=1, count=2)
ELSEWHERE = a_part(first=1, count=2, runner="r2")


@pytest.mark.parametrize(
    ("parts", "completions", "expected"),
    [
        pytest.param((), 7, (0, 3, 7), id="it is placed nowhere"),
        pytest.param((), 2, (0, 2, 2), id="it is placed nowhere and has fewer completions"),
        pytest.param((HALF, REST), 7, (0, 3, 7), id="all its pods are here, in two parts"),
        pytest.param((HALF, ELSEWHERE), 3, (0, 1, 1), id="its first pod is here"),
        pytest.param((ELSEWHERE,), 3, (0, 0, 0), id="all its pods are elsewhere"),
    ],
)
def test_a_runner_starts_the_pods_that_are_placed_on_it(
    parts: tuple[PlacementPart, ...], completions: int, expected: tuple[int, int, int]
) -> None:
    assert pods_here(a_pod_set(*parts, count=3), completions, "r1") == expected


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


@pytest.mark.parametrize(
    ("engine", "units", "words"),
    [
        pytest.param(DOCKER, {GPU: ("GPU-00", "GPU-22")}, '--gpus "device=GPU-00,GPU-22"'),
        pytest.param(DOCKER, {MIG: ("MIG-b",)}, '--gpus "device=MIG-b"'),
        pytest.param(
            PODMAN,
            {GPU: ("GPU-00", "GPU-22")},
            "--device nvidia.com/gpu=GPU-00 --device nvidia.com/gpu=GPU-22",
        ),
        pytest.param(PODMAN, {MIG: ("MIG-b",)}, "--device nvidia.com/gpu=MIG-b"),
        pytest.param(
            DOCKER,
            {AMD_GPU: ("GPU-a1",)},
            "--device /dev/dri/renderD129 --device /dev/kfd --group-add 44 "
            "--env NVIDIA_VISIBLE_DEVICES=void",
        ),
        pytest.param(
            DOCKER,
            {FPGA: ("/dev/fpga1::0", "/dev/fpga1::1")},
            "--device /dev/fpga1 --env NVIDIA_VISIBLE_DEVICES=void",
        ),
        pytest.param(PODMAN, None, "--env NVIDIA_VISIBLE_DEVICES=void"),
    ],
)
def test_a_container_gets_its_devices_from_the_engine(
    engine: str, units: dict[str, tuple[str, ...]] | None, words: str
) -> None:
    parts = () if units is None else (msgspec.structs.replace(a_part(), devices=units),)
    fact = Admitted(namespace="ns", name="w", uid="u", revision=1, pod_sets=(a_pod_set(*parts),))
    plan = plan_docker(fact, given={}, docker="docker", mark="m", machine=ALL, engine=engine)
    assert plan.device_files == (), "the engine keeps containers from all other devices"
    spec = msgspec.to_builtins(plan.sets[0])
    container = spec["main"][0]
    variables = Pod(PodSetProgress(spec), 0, 0.0).devices()
    own_words = container["argv"][: container["ownWords"]]
    argv = program_words(own_words, len(own_words), variables, {})
    shown = "--env ADMITTANCE_DEVICES "
    rest = " ".join(argv).partition(shown)[2]
    for resource in units or ():
        name = "".join(sign if sign.isalnum() else "_" for sign in resource.upper())
        assert rest.startswith(f"--env ADMITTANCE_DEVICES_{name} ")
        rest = rest.partition(f"{name} ")[2]
    assert rest == words
    assert not variables.get("CUDA_VISIBLE_DEVICES"), "a container counts its devices from 0"


def test_each_slot_of_a_container_has_as_many_words() -> None:
    units = tuple(f"/dev/fpga{n}::{slice}" for n, slice in ((0, 0), (0, 1), (0, 2), (1, 0)))
    part = msgspec.structs.replace(a_part(count=2), devices={FPGA: units})
    planned = planned_devices(a_pod_set(part, count=2), (), ALL, DOCKER)
    named = [
        [slot[f"ADMITTANCE_ENGINE_DEVICE_{n}"] for n in range(planned.named)]
        for slot in planned.slots
    ]
    assert named == [["/dev/fpga0", "/dev/fpga0"], ["/dev/fpga0", "/dev/fpga1"]]


def test_a_container_gets_no_card_of_amd_without_a_known_file() -> None:
    part = msgspec.structs.replace(a_part(), devices={AMD_GPU: ("GPU-a0", "0")})
    by_hand = MachineDevices(
        "r1", (OF_AMD[0], Device(resource=AMD_GPU, index=9, id="0")), AMD_FILES
    )
    with pytest.raises(CannotRun, match=r"no devices of amd\.com/gpu that an option names"):
        planned_devices(a_pod_set(part), (), by_hand, DOCKER)


def test_the_units_of_a_run_are_those_of_its_parts_on_this_runner() -> None:
    parts = (a_part("GPU-00"), a_part("GPU-11", first=1, runner="r2"))
    assert units_of((a_pod_set(*parts, count=2),), "r1") == (f"{GPU}=GPU-00",)
