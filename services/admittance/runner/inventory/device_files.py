"""The files in /dev by which programs use devices, and which of them a job can be kept from."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from admittance.events.stored.machines import Device
from admittance.runner.plans.devices import (
    AMD,
    NVIDIA,
    DeviceFile,
    MachineDevices,
    is_uuid,
)
from admittance.runtime.process.this_machine import ROOT

NVIDIA_MAJOR: Final = 195
"""The major number of /dev/nvidia0 and its like: one of those that Linux assigns for good."""
DRM_MAJOR: Final = 226
NOT_OFFERED: Final = "not offered"
"""The id of a card that no job gets, such as one that options leave out, or that is lost."""


def is_character_device(path: str) -> bool:
    try:
        return stat.S_ISCHR(os.stat(path).st_mode)  # noqa: PTH116  (the path of an option)
    except OSError:
        return False


def device_files(devices: Iterable[Device], root: Path = ROOT) -> tuple[DeviceFile, ...]:
    """The files of these devices, and of all other NVIDIA cards. ``root``: the folder below which
    /dev lies."""
    files = [file for device in devices for file in _files_of(device, root)]
    known = {file.minor for file in files if file.major == NVIDIA_MAJOR}
    return (*files, *(file for file in _cards(root) if file.minor not in known))


def _files_of(device: Device, root: Path) -> Iterator[DeviceFile]:
    of = device.resource, device.id
    if device.id.startswith("/"):
        try:
            there = os.stat(device.id)  # noqa: PTH116  (the path of an option)
        except OSError:
            return  # it is lost
        number = there.st_rdev
        yield DeviceFile(*of, device.id, os.major(number), os.minor(number), there.st_gid)
    elif device.minor < 0:
        return
    elif device.resource.startswith(NVIDIA):
        # Parts of a card (MIG) have the file of the card.
        yield DeviceFile(*of, f"/dev/nvidia{device.minor}", NVIDIA_MAJOR, device.minor)
    elif device.resource.startswith(AMD):
        path = f"/dev/dri/renderD{device.minor}"
        yield DeviceFile(*of, path, DRM_MAJOR, device.minor, _group_of(root / path[1:]))


def _group_of(path: Path) -> int:
    try:
        return path.stat().st_gid
    except OSError:
        return -1


def _cards(root: Path) -> Iterator[DeviceFile]:
    """The files of all NVIDIA cards."""
    for path in sorted((root / "dev").glob("nvidia[0-9]*")):
        number = path.name.removeprefix("nvidia")
        if number.isdecimal():
            yield DeviceFile(
                f"{NVIDIA}gpu", NOT_OFFERED, f"/dev/{path.name}", NVIDIA_MAJOR, int(number)
            )


def machine_devices(
    runner: str, devices: tuple[Device, ...], *, can_deny: bool, root: Path = ROOT
) -> MachineDevices:
    """The devices that the runner with this id gives to jobs. ``can_deny``: whether it may keep
    jobs from files."""
    files = device_files(devices, root)
    denied = frozenset(_deniable(devices, files)) if can_deny else frozenset[str]()
    return MachineDevices(runner, devices, files, denied)


def _deniable(devices: Iterable[Device], files: Iterable[DeviceFile]) -> Iterator[str]:
    """The resources of which all devices have files. Cards of a maker must have UUIDs, too:
    libraries count only the cards that they may open."""
    with_files = {(file.resource, file.id) for file in files}
    lacking = {
        device.resource
        for device in devices
        if (device.resource, device.id) not in with_files
        or (device.resource.startswith((NVIDIA, AMD)) and not is_uuid(device.id))
    }
    if not any(resource.startswith(NVIDIA) for resource in lacking):
        yield f"{NVIDIA}gpu"
    yield from {device.resource for device in devices} - lacking
