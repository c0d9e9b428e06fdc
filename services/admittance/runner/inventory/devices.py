"""Finds the devices of this machine: NVIDIA through NVML or /proc, AMD through /sys."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from admittance.events.stored.machines import Device
from admittance.runner.inventory.nvml_child import NoNvml

NVIDIA: Final = "nvidia.com/gpu"
AMD: Final = "amd.com/gpu"


class Detected(NamedTuple):
    """The devices that were found, and what is wrong or uncertain about them, one sentence each.
    ``nvml_problem``: why NVML does not answer although there are NVIDIA cards; "": it does, or
    there are none."""

    devices: tuple[Device, ...]
    messages: tuple[str, ...] = ()
    nvml_problem: str = ""


class _NvmlDevice(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    index: int
    minor: int = -1
    model: str = ""
    profile: str = ""


class _NvmlAnswer(msgspec.Struct, frozen=True, kw_only=True):
    devices: tuple[_NvmlDevice, ...]
    problems: tuple[str, ...] = ()


_nvml_answer = msgspec.json.Decoder(_NvmlAnswer)
_NO_NAME: Final = re.compile(r"[^A-Za-z0-9.-]+", re.ASCII)
"""What no name of a resource has, such as the sign in the profile ``1g.5gb+me``."""


AskNvml = Callable[[], bytes]
"""Returns what the program `nvml.py` printed. Raises NoNvml."""


def detect(root: Path, ask: AskNvml) -> Detected:
    """The devices of the machine. ``root``: the folder below which /proc and /sys lie."""
    nvidia = _nvidia(root, ask) if (root / "proc/driver/nvidia").is_dir() else Detected(())
    return nvidia._replace(devices=(*nvidia.devices, *_amd(root)))


def _nvidia(root: Path, ask: AskNvml) -> Detected:
    try:
        answer = _nvml_answer.decode(ask())
    except (NoNvml, msgspec.MsgspecError) as error:
        devices = tuple(_nvidia_of_proc(root))
        if not devices:
            return Detected(())
        message = f"parts of divided cards (MIG) are not known: {error}"
        return Detected(devices, (message,), str(error))
    return Detected(tuple(_of_nvml(answer.devices)), answer.problems)


def _of_nvml(listed: Iterable[_NvmlDevice]) -> Iterator[Device]:
    parts: Counter[str] = Counter()
    for device in listed:
        resource, index = NVIDIA, device.index
        if device.profile:
            # All parts of a card have its index, so they are numbered by their kind.
            resource = f"nvidia.com/mig-{_NO_NAME.sub('.', device.profile)}"
            index = parts[resource]
            parts[resource] += 1
        yield Device(
            resource=resource, index=index, id=device.id, model=device.model, minor=device.minor
        )


def _nvidia_of_proc(root: Path) -> Iterator[Device]:
    """The cards in the order of the PCI bus, which is also that of NVML."""
    for index, folder in enumerate(sorted((root / "proc/driver/nvidia/gpus").glob("*"))):
        about = _fields((folder / "information").read_text(encoding="utf-8", errors="replace"))
        minor = about.get("Device Minor", "")
        yield Device(
            resource=NVIDIA,
            index=index,
            id=about.get("GPU UUID", str(index)),
            model=about.get("Model", ""),
            minor=int(minor) if minor.isdecimal() else -1,
        )


def _amd(root: Path) -> Iterator[Device]:
    nodes = (root / "sys/class/kfd/kfd/topology/nodes").glob("*")
    index = 0
    for node in sorted(nodes, key=lambda node: (len(node.name), node.name)):
        try:
            if (node / "gpu_id").read_text(encoding="utf-8").strip() in ("", "0"):
                continue  # a processor
            about = _words((node / "properties").read_text(encoding="utf-8", errors="replace"))
        except OSError:
            continue  # a card of another container, which only its own may read
        unique, minor = about.get("unique_id", "0"), about.get("drm_render_minor", "")
        # 16 digits, as the tools of ROCm show it; 0: the card has none.
        name = f"GPU-{int(unique):016x}" if unique.isdecimal() and int(unique) else str(index)
        yield Device(
            resource=AMD, index=index, id=name, minor=int(minor) if minor.isdecimal() else -1
        )
        index += 1


def _fields(text: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _words(text: str) -> dict[str, str]:
    pairs = (line.partition(" ") for line in text.splitlines())
    return {name: value.strip() for name, _, value in pairs}
