"""What a runner detects of its machine, below a folder that stands for /, and what options add."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from admittance.folders import MachineFacts
from admittance.job_rules.machine_options import MachineTexts, machine_of_texts
from admittance.runner.groups.job_groups import Offers
from admittance.runner.inventory.devices import Detected, NoNvml, ask_nvml, detect
from admittance.runner.inventory.limit_messages import limit_messages
from admittance.runner.inventory.machine_inventory import AnnouncedRunner, inventory_of
from admittance.runner.inventory.nvml import devices as devices_of_nvml
from admittance.runner.inventory.processors import cpu_milli, memory_bytes
from admittance.runtime.errors import SetupError

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
    assert detect(tmp_path, no_nvml) == ((), ())


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


class _Nvml:
    """Two cards, of which the second is divided into two parts."""

    NVML_DEVICE_MIG_ENABLE = 1

    class NVMLError(Exception):
        pass

    def __getattr__(self, name: str) -> Any:
        parts = {0: "part-a", 2: "part-b"}

        def missing(_card: str, number: int) -> str:
            if number not in parts:
                raise self.NVMLError("not found")
            return parts[number]

        def mode(card: str) -> tuple[int, int]:
            if card == "card-0":
                raise self.NVMLError("not supported")
            return (1, 1)

        calls: dict[str, Any] = {
            "nvmlDeviceGetCount": lambda: 2,
            "nvmlDeviceGetHandleByIndex": lambda index: f"card-{index}",
            "nvmlDeviceGetMinorNumber": lambda card: int(card[-1]) + 4,
            "nvmlDeviceGetName": lambda thing: (
                b"NVIDIA H100" if thing.startswith("card") else "NVIDIA H100 MIG 1g.10gb"
            ),
            "nvmlDeviceGetUUID": lambda thing: f"UUID-{thing}",
            "nvmlDeviceGetMigMode": mode,
            "nvmlDeviceGetMaxMigDeviceCount": lambda _: 4,
            "nvmlDeviceGetMigDeviceHandleByIndex": missing,
        }
        return calls[name]


def test_nvml_names_cards_and_the_parts_of_a_divided_card(tmp_path: Path) -> None:
    root = root_of(tmp_path, {"proc/driver/nvidia/version": "NVRM\n"})
    inventory = detect(root, lambda: json.dumps(devices_of_nvml(_Nvml())).encode())
    assert [(each.resource, each.index, each.id, each.minor) for each in inventory.devices] == [
        ("nvidia.com/gpu", 0, "UUID-card-0", 4),
        ("nvidia.com/mig-1g.10gb", 0, "UUID-part-a", 5),
        ("nvidia.com/mig-1g.10gb", 1, "UUID-part-b", 5),
    ]


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
    with pytest.raises(NoNvml, match="NVML did not answer within 0 s"):
        ask_nvml(seconds=0)
    with pytest.raises(NoNvml, match=r"pynvml|NVML"):
        ask_nvml()


def announced(texts: MachineTexts, env: Mapping[str, str] | None = None, **of: Any) -> Any:
    """The inventory that the options make of the machine below the folder ``of["root"]``."""
    given = machine_of_texts(texts, env or {})
    detected = of.pop("detected", ())
    return inventory_of(
        given,
        MachineFacts(host="Node-7.", boot_id="b-1", mount_namespace="mnt:[1]"),
        AnnouncedRunner(id="a1", name="gpu", executor="local"),
        detect=lambda _: Detected(detected),
        **of,
    )


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
        (MachineTexts(devices=("nvidia.com/gpu=a b",)), "is no index or UUID"),
        (MachineTexts(capacity=("cpu",)), "it must be RESOURCE=N"),
        (MachineTexts(capacity=("cpu=many",)), "is not a quantity"),
        (MachineTexts(capacity=("cpu=-1",)), "must not be negative"),
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
        (
            Offers(memory=True, cpu=True, processes=True, version="v2"),
            ("cannot keep jobs from devices that they were not given",),
        ),
        (
            Offers(processes=True, devices=True, why_not="/sys/fs/cgroup is read-only"),
            ("cannot limit memory and cpu of jobs: /sys/fs/cgroup is read-only",),
        ),
    ],
)
def test_a_machine_says_what_it_cannot_do(offers: Offers, said: tuple[str, ...]) -> None:
    assert limit_messages(offers) == said
