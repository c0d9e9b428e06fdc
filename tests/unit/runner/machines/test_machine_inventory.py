"""What a runner detects of its machine, below a folder that stands for /, and what options add."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

import pytest

from admittance.events.stored.machines import Device
from admittance.folders import MachineFacts
from admittance.job_rules.machine_options import MachineTexts, machine_of_texts
from admittance.runner.groups.job_groups import Offers
from admittance.runner.inventory.device_files import is_character_device, machine_devices
from admittance.runner.inventory.device_list import DeviceList
from admittance.runner.inventory.devices import Detected, detect
from admittance.runner.inventory.limit_messages import (
    advice_messages,
    limit_messages,
    why_not_denied,
)
from admittance.runner.inventory.machine_inventory import AnnouncedRunner, inventory_of
from admittance.runner.inventory.nvml import listed
from admittance.runner.inventory.nvml_child import NoNvml, NvmlChild
from admittance.runtime.errors import SetupError
from admittance.runtime.process.this_machine import cpu_milli, memory_bytes

HOST = {
    "proc/self/status": "Name:\tpython\nCpus_allowed_list:\t0-3,8,10-11\n",
    "proc/meminfo": "MemTotal:       65842756 kB\nMemFree: 1 kB\n",
}
CARD = "Model: \t\t NVIDIA A100\nGPU UUID: \t {}\nDevice Minor: \t {}\n"


def root_of(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def no_nvml() -> bytes:
    raise NoNvml("no module named pynvml")


@pytest.mark.parametrize(
    ("files", "cpu", "memory"),
    [
        pytest.param({}, 7000, 64299 << 20, id="a host without limits"),
        pytest.param(
            {
                "proc/self/cgroup": "0::/system.slice/runner.service\n",
                "sys/fs/cgroup/system.slice/cpu.max": "250000 100000\n",
                "sys/fs/cgroup/system.slice/runner.service/cpu.max": "max 100000\n",
                "sys/fs/cgroup/system.slice/runner.service/memory.max": "1073741824\n",
                "sys/fs/cgroup/system.slice/memory.max": "max\n",
            },
            2500,
            1 << 30,
            id="limits of cgroups of version 2, also above",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "5:cpu,cpuacct:/docker/x\n3:memory:/docker/x\n",
                "sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "150000\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes": "9223372036854771712\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "536870912\n",
            },
            1500,
            512 << 20,
            id="limits of cgroups of version 1",
        ),
    ],
)
def test_processors_and_memory_are_those_that_the_runner_may_use(
    tmp_path: Path, files: Mapping[str, str], cpu: int, memory: int
) -> None:
    root = root_of(tmp_path, {**HOST, **files})
    assert (cpu_milli(root), memory_bytes(root)) == (cpu, memory)


def test_a_machine_that_says_nothing_has_no_devices_and_no_amounts(tmp_path: Path) -> None:
    assert (cpu_milli(tmp_path), memory_bytes(tmp_path)) == (0, 0)
    assert detect(tmp_path, no_nvml) == ((), (), "")


def test_cards_of_nvidia_are_found_without_nvml_in_the_order_of_the_bus(tmp_path: Path) -> None:
    cards = {
        f"proc/driver/nvidia/gpus/0000:{bus}:00.0/information": CARD.format(uuid, minor)
        for bus, uuid, minor in (("65", "GPU-b", 0), ("17", "GPU-a", 1))
    }
    inventory = detect(root_of(tmp_path, cards), no_nvml)
    assert [(card.index, card.id, card.minor, card.model) for card in inventory.devices] == [
        (0, "GPU-a", 1, "NVIDIA A100"),
        (1, "GPU-b", 0, "NVIDIA A100"),
    ]
    assert inventory.messages == (
        "parts of divided cards (MIG) are not known: no module named pynvml",
    )
    assert inventory.nvml_problem == "no module named pynvml"


LOST, DIVIDED, WITHOUT_PARTS = "lost", "divided", "divided without parts"


class Nvml:
    """NVML of a machine with one card for each state; "" is that of a card that works."""

    NVML_DEVICE_MIG_ENABLE = 1
    NVML_ERROR_GPU_IS_LOST = 15
    NVML_ERROR_RESET_REQUIRED = 16

    class NVMLError(Exception):
        def __init__(self, value: int) -> None:
            super().__init__({3: "Not Supported", 6: "Not Found", 15: "GPU is lost"}[value])
            self.value = value

    def __init__(self, *states: str) -> None:
        self._states = states

    def _refuse(self, value: int) -> Any:
        raise self.NVMLError(value)

    def nvmlDeviceGetCount(self) -> int:
        return len(self._states)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return f"card-{index}"

    def nvmlDeviceGetMinorNumber(self, card: str) -> int:
        return int(card[-1]) + 4

    def nvmlDeviceGetName(self, thing: str) -> bytes | str:
        return b"NVIDIA H100" if thing.startswith("card") else f"NVIDIA H100 MIG {thing[:-2]}"

    def nvmlDeviceGetUUID(self, thing: str) -> str:
        return f"{'GPU' if thing.startswith('card') else 'MIG'}-{thing}"

    def nvmlDeviceGetMigMode(self, card: str) -> tuple[int, int]:
        divided = self._states[int(card[-1])].startswith(DIVIDED)
        return (1, 1) if divided else self._refuse(3)

    def nvmlDeviceGetMemoryInfo(self, card: str) -> None:
        if self._states[int(card[-1])] == LOST:
            self._refuse(15)

    def nvmlDeviceGetMaxMigDeviceCount(self, _: str) -> int:
        return 4

    def nvmlDeviceGetMigDeviceHandleByIndex(self, card: str, number: int) -> str:
        parts = {0: "1g.10gb-a", 2: "1g.10gb+me-b"}
        if self._states[int(card[-1])] == WITHOUT_PARTS or number not in parts:
            self._refuse(6)
        return parts[number]


def test_nvml_names_cards_and_the_parts_of_a_divided_card_but_no_lost_card(tmp_path: Path) -> None:
    root = root_of(tmp_path, {"proc/driver/nvidia/version": "NVRM\n"})
    nvml = Nvml("", DIVIDED, LOST, WITHOUT_PARTS)
    inventory = detect(root, lambda: json.dumps(listed(nvml)).encode())
    assert [(each.resource, each.index, each.id, each.minor) for each in inventory.devices] == [
        ("nvidia.com/gpu", 0, "GPU-card-0", 4),
        ("nvidia.com/mig-1g.10gb", 0, "MIG-1g.10gb-a", 5),
        ("nvidia.com/mig-1g.10gb.me", 0, "MIG-1g.10gb+me-b", 5),
    ]
    assert inventory.messages == (
        "the NVIDIA card 2 cannot be used: GPU is lost",
        "the NVIDIA card 3 is to be divided (MIG) and has no parts",
    )
    assert inventory.nvml_problem == ""


def cards(*ids: str, resource: str = "nvidia.com/gpu") -> tuple[Device, ...]:
    return tuple(
        Device(resource=resource, index=index, id=id, minor=index) for index, id in enumerate(ids)
    )


def a_list(*options: str, files: Container[str] = ()) -> DeviceList:
    given = machine_of_texts(MachineTexts(devices=options), {}).devices
    return DeviceList(given, files.__contains__)


@pytest.mark.parametrize(
    ("options", "looks", "expected", "lost"),
    [
        pytest.param(
            (),
            [Detected(cards("GPU-a", "GPU-b")), Detected(cards("GPU-b", "GPU-c"))],
            [("GPU-b", 0, 1), ("GPU-c", 1, 1)],
            ["GPU-a"],
            id="a card vanishes and another one comes",
        ),
        pytest.param(
            (),
            [Detected(cards("GPU-a")), Detected(()), Detected(cards("GPU-a"))],
            [("GPU-a", 0, 1)],
            [],
            id="a card comes back",
        ),
        pytest.param(
            ("nvidia.com/gpu=1x2,0",),
            [Detected(cards("GPU-a", "GPU-b")), Detected(cards("GPU-b", "GPU-c"))],
            [("GPU-b", 0, 2)],
            ["GPU-a"],
            id="options name cards by their first index",
        ),
        pytest.param(
            ("nvidia.com/gpu=0",),
            [Detected(()), Detected(())],
            [("0", 0, 1)],
            [],
            id="nothing detects a device of an option",
        ),
        pytest.param(
            ("nvidia.com/gpu=",),
            [Detected(cards("GPU-a")), Detected(())],
            [],
            [],
            id="no job gets a hidden card, so none misses it",
        ),
    ],
)
def test_a_device_that_vanishes_is_no_longer_offered(
    options: tuple[str, ...],
    looks: list[Detected],
    expected: list[tuple[str, int, int]],
    lost: list[str],
) -> None:
    known = a_list(*options)
    offered = [known.look(each) for each in looks][-1]
    assert [(each.id, each.index, each.slices) for each in offered.devices] == expected
    assert offered.messages == tuple(
        f"the device {id} of nvidia.com/gpu is lost, so no job gets it" for id in lost
    )


def test_a_silent_nvml_proves_no_loss() -> None:
    known = a_list()
    parts = cards("MIG-a", resource="nvidia.com/mig-1g.5gb")
    of_amd = cards("GPU-1", resource="amd.com/gpu")
    silent = Detected((*cards("GPU-a"), *of_amd), ("parts are not known",), "it hangs")
    known.look(Detected(()))
    assert known.look(silent) == silent, "the driver was loaded later, and NVML is not installed"
    assert known.look(
        Detected((*parts, *cards("GPU-2", resource="amd.com/gpu")))
    ).messages == tuple(
        f"the device {id} is lost, so no job gets it"
        for id in ("GPU-a of nvidia.com/gpu", "GPU-1 of amd.com/gpu")
    )
    offered = known.look(silent)
    assert offered.devices == (*parts, *of_amd)
    assert offered.messages == (
        "NVML does not answer any more: it hangs",
        "the device GPU-a of nvidia.com/gpu is lost, so no job gets it",
        "the device GPU-2 of amd.com/gpu is lost, so no job gets it",
    )


def test_a_device_may_be_a_file(tmp_path: Path) -> None:
    files = ["/dev/fpga0", "/dev/fpga1", "/dev/xilinx2"]
    known = a_list("example.com/fpga=/dev/fpga0,/dev/fpga1x4,/dev/xilinx2", files=files)
    offered = known.look(Detected(()))
    assert [(each.id, each.index, each.slices) for each in offered.devices] == [
        ("/dev/fpga0", 0, 1),
        ("/dev/fpga1", 1, 4),
        ("/dev/xilinx2", 2, 1),
    ]
    files.remove("/dev/fpga0")
    offered = known.look(Detected(()))
    assert [each.id for each in offered.devices] == ["/dev/fpga1", "/dev/xilinx2"]
    assert offered.messages == (
        "the device /dev/fpga0 of example.com/fpga is lost, so no job gets it",
    )
    with pytest.raises(SetupError, match=r"=/dev/fpga0: this machine has no such character dev"):
        a_list("example.com/fpga=/dev/fpga0", files=files).look(Detected(()))
    (tmp_path / "plain").touch()
    paths = ("/dev/null", str(tmp_path / "plain"), str(tmp_path / "missing"))
    assert [is_character_device(path) for path in paths] == [True, False, False]


MIG = "nvidia.com/mig-1g.5gb"
FPGA = Device(resource="example.com/fpga", index=0, id="/dev/full")


@pytest.mark.parametrize(
    ("devices", "files", "denied"),
    [
        pytest.param(
            cards("GPU-a", "GPU-b"),
            [("GPU-a", "/dev/nvidia0", 195, 0), ("GPU-b", "/dev/nvidia1", 195, 1)],
            {"nvidia.com/gpu"},
            id="cards",
        ),
        pytest.param(
            cards("GPU-a")[:1],
            [("GPU-a", "/dev/nvidia0", 195, 0), ("not offered", "/dev/nvidia1", 195, 1)],
            {"nvidia.com/gpu"},
            id="one of two cards",
        ),
        pytest.param(
            cards("MIG-a", resource=MIG),
            [("MIG-a", "/dev/nvidia0", 195, 0), ("not offered", "/dev/nvidia1", 195, 1)],
            {"nvidia.com/gpu", MIG},
            id="a part of a card",
        ),
        pytest.param(
            (Device(resource="nvidia.com/gpu", index=0, id="0"),),
            [("not offered", "/dev/nvidia0", 195, 0), ("not offered", "/dev/nvidia1", 195, 1)],
            set(),
            id="a card that nothing detects",
        ),
        pytest.param(
            (Device(resource="amd.com/gpu", index=0, id="GPU-1", minor=128),),
            [
                ("GPU-1", "/dev/dri/renderD128", 226, 128),
                ("not offered", "/dev/nvidia0", 195, 0),
                ("not offered", "/dev/nvidia1", 195, 1),
            ],
            {"nvidia.com/gpu", "amd.com/gpu"},
            id="a card of AMD",
        ),
        pytest.param(
            (Device(resource="amd.com/gpu", index=0, id="0", minor=128), FPGA),
            [
                ("0", "/dev/dri/renderD128", 226, 128),
                ("/dev/full", "/dev/full", 1, 7),
                ("not offered", "/dev/nvidia0", 195, 0),
                ("not offered", "/dev/nvidia1", 195, 1),
            ],
            {"nvidia.com/gpu", "example.com/fpga"},
            id="a card without an identity, and a file",
        ),
    ],
)
def test_a_job_can_be_kept_from_devices_with_files(
    tmp_path: Path,
    devices: tuple[Device, ...],
    files: list[tuple[str, str, int, int]],
    denied: set[str],
) -> None:
    root = root_of(
        tmp_path,
        {f"dev/{name}": "" for name in ("nvidia0", "nvidia1", "nvidiactl", "dri/renderD128")},
    )
    made = machine_devices("r1", devices, can_deny=True, root=root)
    assert [(each.id, each.path, each.major, each.minor) for each in made.files] == files
    assert made.denied == denied
    group = (root / "dev/dri/renderD128").stat().st_gid
    groups = {each.group for each in made.files if each.resource == "amd.com/gpu"}
    assert groups <= {group}, "a container needs the group of the file"
    not_denied = machine_devices("r1", devices, can_deny=False, root=root)
    assert (not_denied.denied, not_denied.deniable()) == (frozenset(), ())


@pytest.mark.parametrize(
    ("devices", "denied", "why", "expected"),
    [
        ((), (), "cgroup v2 does not", ()),
        (cards("GPU-a"), ("nvidia.com/gpu",), "", ()),
        (
            (*cards("GPU-a"), FPGA),
            (),
            "cgroup v2 does not",
            (
                "the assignment of devices is advice for example.com/fpga, nvidia.com/gpu: a job "
                "is not kept from those of other jobs, since cgroup v2 does not",
            ),
        ),
        (
            cards("0"),
            (),
            "",
            (
                "the assignment of devices is advice for nvidia.com/gpu: a job is not kept from "
                "those of other jobs, since their files in /dev are not known",
            ),
        ),
        (
            cards("MIG-a", resource=MIG),
            (MIG,),
            "",
            (
                f"the assignment of devices is advice for {MIG} within one card: its parts have "
                "the file of the card",
            ),
        ),
    ],
)
def test_a_machine_says_which_assignments_are_advice(
    devices: tuple[Device, ...], denied: tuple[str, ...], why: str, expected: tuple[str, ...]
) -> None:
    assert advice_messages(devices, frozenset(denied), why) == expected


def test_cards_of_amd_are_the_nodes_that_are_no_processors(tmp_path: Path) -> None:
    nodes = "sys/class/kfd/kfd/topology/nodes"
    files = {
        f"{nodes}/0/gpu_id": "0\n",
        f"{nodes}/0/properties": "cpu_cores_count 64\n",
        f"{nodes}/10/gpu_id": "7\n",
        f"{nodes}/10/properties": "drm_render_minor 129\nunique_id 0\n",
        f"{nodes}/2/gpu_id": "9\n",
        f"{nodes}/2/properties": "drm_render_minor 128\nunique_id 255\n",
    }
    devices = detect(root_of(tmp_path, files), no_nvml).devices
    assert [(card.resource, card.index, card.id, card.minor) for card in devices] == [
        ("amd.com/gpu", 0, "GPU-00000000000000ff", 128),
        ("amd.com/gpu", 1, "1", 129),
    ]


def test_the_child_that_asks_nvml_ends_with_one_reason_and_in_time() -> None:
    child = NvmlChild()
    with pytest.raises(NoNvml, match="NVML did not answer within 0 s"):
        child.ask(seconds=0)
    with pytest.raises(NoNvml, match=r"pynvml|NVML"):
        child.ask()


def test_no_second_child_asks_nvml_while_one_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    child = NvmlChild(("/bin/sleep", "60"))
    killed: list[subprocess.Popen[bytes]] = []
    with monkeypatch.context() as patch:
        # A process that hangs in the kernel does not end when it is killed.
        patch.setattr(subprocess.Popen, "kill", lambda child: killed.append(child))  # noqa: PLW0108
        with pytest.raises(NoNvml, match="NVML did not answer within 0 s"):
            child.ask(seconds=0, kill_seconds=0)
    with pytest.raises(NoNvml, match=f"process {killed[0].pid}, which asked NVML, hangs"):
        child.ask()
    killed[0].kill()
    killed[0].wait()
    with pytest.raises(NoNvml, match="NVML did not answer within 0 s"):
        child.ask(seconds=0)


def announced(texts: MachineTexts, env: Mapping[str, str] | None = None, **of: Any) -> Any:
    """The inventory that the options make of the machine below the folder ``of["root"]``."""
    given = machine_of_texts(texts, env or {})
    detected = of.pop("detected", ())
    return inventory_of(
        given,
        MachineFacts(host="Node-7.", boot_id="b-1", mount_namespace="mnt:[1]"),
        AnnouncedRunner(id="a1", name="gpu", executor="local"),
        DeviceList(given.devices, lambda _: False),
        detect=lambda _: Detected(detected),
        **of,
    )


@pytest.mark.parametrize(
    ("capacity", "said"),
    [
        (("cpu=2", "example.com/license=3"), ()),
        (("nvidia.com/gpu=0",), ()),
        (
            ("nvidia.com/mig-1g.5gb=1", "amd.com/gpu=4"),
            (
                "--capacity (ADMIT_CAPACITY) amd.com/gpu=4 assigns no device: a job that gets "
                "amd.com/gpu sees none; name each with --device amd.com/gpu=IDS",
                "--capacity (ADMIT_CAPACITY) nvidia.com/mig-1g.5gb=1 assigns no device: a job that "
                "gets nvidia.com/mig-1g.5gb sees none; name each with --device "
                "nvidia.com/mig-1g.5gb=IDS",
            ),
        ),
    ],
)
def test_a_runner_warns_of_capacity_without_devices(
    tmp_path: Path, capacity: tuple[str, ...], said: tuple[str, ...]
) -> None:
    assert announced(MachineTexts(capacity=capacity), root=tmp_path).messages == said


def test_options_replace_what_is_detected(tmp_path: Path) -> None:
    root = root_of(tmp_path, HOST)
    texts = MachineTexts(
        devices=("nvidia.com/gpu=0,1", "nvidia.com/gpu=2x4", "example.com/fpga=left"),
        capacity=("cpu=1500m", "example.com/license=3"),
        labels=("zone=b", "kubernetes.io/hostname=node-7"),
        taints=("gpu=yes:NoSchedule", "own:NoExecute"),
    )
    said = announced(texts, root=root)
    assert said.capacity == {
        "cpu": 1500,
        "memory": 64299 << 20,
        "nvidia.com/gpu": 6,
        "example.com/fpga": 1,
        "example.com/license": 3,
    }
    assert [(each.id, each.index, each.slices) for each in said.devices] == [
        ("0", 0, 1),
        ("1", 1, 1),
        ("2", 2, 4),
        ("left", 0, 1),
    ]
    assert said.labels["kubernetes.io/hostname"] == "node-7"
    assert {"kubernetes.io/arch", "kubernetes.io/os", "zone"} <= said.labels.keys()
    assert [(taint.key, taint.value, taint.effect) for taint in said.taints] == [
        ("gpu", "yes", "NoSchedule"),
        ("own", "", "NoExecute"),
    ]
    assert (said.host, said.boot_id, said.mount_namespace) == ("Node-7.", "b-1", "mnt:[1]")
    default = announced(MachineTexts(), root=root).labels["kubernetes.io/hostname"]
    assert default == "node-7"


def test_variables_say_the_same_as_options(tmp_path: Path) -> None:
    env = {
        "ADMIT_DEVICES": "nvidia.com/gpu=0,1x4; amd.com/gpu=",
        "ADMIT_CAPACITY": "cpu=2,example.com/license=3",
        "ADMIT_LABELS": "zone=b",
        "ADMIT_TAINTS": "gpu:NoSchedule",
    }
    texts = MachineTexts(
        devices=("nvidia.com/gpu=0,1x4", "amd.com/gpu="),
        capacity=("cpu=2", "example.com/license=3"),
        labels=("zone=b",),
        taints=("gpu:NoSchedule",),
    )
    assert announced(MachineTexts(), env, root=tmp_path) == announced(texts, root=tmp_path)
    assert announced(texts, root=tmp_path).capacity["amd.com/gpu"] == 0


def test_options_choose_among_the_cards_of_the_machine(tmp_path: Path) -> None:
    cards = {
        f"proc/driver/nvidia/gpus/{bus}/information": CARD.format(f"GPU-{bus}", bus)
        for bus in (1, 2, 3)
    }
    devices = detect(root_of(tmp_path, cards), no_nvml).devices
    said = announced(
        MachineTexts(devices=("nvidia.com/gpu=2,GPU-1x2",)), root=tmp_path, detected=devices
    )
    assert [(each.index, each.id, each.slices) for each in said.devices] == [
        (2, "GPU-3", 1),
        (0, "GPU-1", 2),
    ]
    none = announced(MachineTexts(devices=("nvidia.com/gpu=",)), root=tmp_path, detected=devices)
    assert (none.devices, none.capacity["nvidia.com/gpu"]) == ((), 0)
    with pytest.raises(SetupError, match=r"=7: this machine has no such device, only 0, 1, 2"):
        announced(MachineTexts(devices=("nvidia.com/gpu=7",)), root=tmp_path, detected=devices)
    with pytest.raises(SetupError, match="this machine has devices of it"):
        announced(MachineTexts(capacity=("nvidia.com/gpu=9",)), root=tmp_path, detected=devices)


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        (MachineTexts(devices=("gpu=0",)), "it must be RESOURCE=ID"),
        (MachineTexts(devices=("nvidia.com/gpu",)), "it must be RESOURCE=ID"),
        (MachineTexts(devices=("nvidia.com/gpu=0,0",)), "nvidia.com/gpu 0 is given twice"),
        (MachineTexts(devices=("nvidia.com/gpu=0x0",)), "has 1 to 1024 slices, not 0"),
        (MachineTexts(devices=("nvidia.com/gpu=0x-3",)), "'0x-3' is neither a device nor INDEXxN"),
        (MachineTexts(devices=("nvidia.com/gpu=0x",)), "'0x' is neither a device nor INDEXxN"),
        (MachineTexts(devices=("nvidia.com/gpu=0x1.5",)), "'0x1.5' is neither a device nor"),
        (MachineTexts(devices=("nvidia.com/gpu=0x4x2",)), "'0x4x2' is neither a device nor"),
        (MachineTexts(devices=("nvidia.com/gpu=0xx",)), "'0xx' is neither a device nor"),
        (MachineTexts(devices=("nvidia.com/gpu=,1",)), "'' is no index, UUID or file"),
        (MachineTexts(devices=("nvidia.com/gpu=0,",)), "'' is no index, UUID or file"),
        (MachineTexts(devices=("nvidia.com/gpu=a b",)), "is no index, UUID or file"),
        (MachineTexts(devices=("x.com/fpga=/dev//fpga",)), "is no index, UUID or file"),
        (MachineTexts(devices=("x.com/fpga=/dev/null",)), "every job needs /dev/null"),
        (MachineTexts(capacity=("cpu",)), "it must be RESOURCE=N"),
        (MachineTexts(capacity=("cpu=many",)), "is not a quantity"),
        (MachineTexts(capacity=("cpu=-1",)), "must not be negative"),
        (MachineTexts(capacity=("memory=1e400",)), "memory=1e400: no machine has so much"),
        (MachineTexts(capacity=("memory=99999999Ei",)), "no machine has so much"),
        (MachineTexts(capacity=("cpu=1e16",)), "no machine has so much"),
        (MachineTexts(capacity=("cpu=1", "cpu=2")), "cpu is given twice"),
        (MachineTexts(capacity=("x.com/y=1",), devices=("x.com/y=0",)), "how many there are"),
        (MachineTexts(labels=("zone",)), "it must be KEY=VALUE"),
        (MachineTexts(labels=("zone=a b",)), "--label"),
        (MachineTexts(taints=("gpu",)), "it must be KEY=VALUE:EFFECT"),
        (MachineTexts(taints=("gpu:Never",)), "one of the effects"),
    ],
)
def test_a_wrong_option_is_one_error_that_names_it(texts: MachineTexts, why: str) -> None:
    with pytest.raises(SetupError, match=why) as error:
        machine_of_texts(texts, {})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("offers", "said"),
    [
        (Offers(memory=True, cpu=True, processes=True, devices=True, version="v1"), ()),
        (Offers(memory=True, cpu=True, processes=True, version="v2"), ()),
        (
            Offers(processes=True, devices=True, why_not="/sys/fs/cgroup is read-only"),
            ("cannot limit memory and cpu of jobs: /sys/fs/cgroup is read-only",),
        ),
    ],
)
def test_a_machine_says_what_it_cannot_do(offers: Offers, said: tuple[str, ...]) -> None:
    assert limit_messages(offers) == said


@pytest.mark.parametrize(
    ("offers", "why"),
    [
        (Offers(devices=True, version="v1", why_not="the machine has no controller pids"), ""),
        (Offers(memory=True, version="v2"), "cgroup v2 does that by BPF programs only"),
        (Offers(memory=True, version="v1", why_not="no controller devices"), "no controller devi"),
        (Offers(), "the machine has no control groups"),
    ],
)
def test_a_machine_says_why_it_keeps_jobs_from_no_devices(offers: Offers, why: str) -> None:
    assert why_not_denied(offers).startswith(why)
    assert bool(why_not_denied(offers)) == bool(why)
