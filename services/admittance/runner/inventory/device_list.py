"""The devices of a machine, at which the runner looks again: cards vanish and come back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from admittance.events.stored.machines import Device
from admittance.job_rules.machine_options import GivenDevice, shown
from admittance.runner.inventory.devices import Detected
from admittance.runtime.errors import SetupError


class DeviceList:
    """``given``: by resource, as `GivenMachine.devices`; it replaces what is detected of the
    resource. ``is_file``: whether a path is that of a character device.

    Names of options mean the devices of the first look: the index of a card changes when another
    one vanishes.
    """

    def __init__(
        self, given: Mapping[str, Sequence[GivenDevice]], is_file: Callable[[str], bool]
    ) -> None:
        self._given = given
        self._is_file = is_file
        self._named: dict[str, tuple[Device, ...]] | None = None
        """What the options name, by resource; None: before the first look."""
        self._seen: dict[tuple[str, str], Device] = {}
        """Every device that was detected, as it was the last time."""
        self._here: dict[tuple[str, str], Device] = {}
        """The devices that were detected at the last look."""
        self._nvml_answered = False

    def look(self, now: Detected) -> Detected:
        """The devices that the machine offers, if so many are detected ``now``, and what is wrong
        with them. Raises SetupError at the first look if an option names a device that is not
        there."""
        now = self._without_silence(now)
        self._here = {_key(device): device for device in now.devices}
        self._seen |= self._here
        if self._named is None:
            self._named = {
                resource: tuple(self._named_devices(resource, named, now.devices))
                for resource, named in self._given.items()
            }
        named = self._named
        devices = [device for device in now.devices if device.resource not in named]
        lost = [
            device
            for key, device in self._seen.items()
            if key not in self._here and device.resource not in named
        ]
        for device in (device for devices in named.values() for device in devices):
            if (there := self._as_it_is(device)) is None:
                lost.append(device)
            else:
                devices.append(there)
        messages = *now.messages, *map(_lost_text, lost)
        return Detected(tuple(devices), messages, now.nvml_problem)

    def resources(self) -> set[str]:
        """The resources of all devices that were ever detected: of those that are lost the machine
        has 0."""
        return {resource for resource, _ in self._seen}

    def _without_silence(self, now: Detected) -> Detected:
        """What is detected; the NVIDIA devices of the last look while NVML, which has answered
        before, does not answer: that proves no loss."""
        if not now.nvml_problem:
            # Without cards nothing asks NVML.
            self._nvml_answered |= bool(now.messages) or any(map(_is_of_nvidia, now.devices))
            return now
        if not self._nvml_answered:
            return now
        before = filter(_is_of_nvidia, self._here.values())
        others = [device for device in now.devices if not _is_of_nvidia(device)]
        message = f"NVML does not answer any more: {now.nvml_problem}"
        return Detected((*before, *others), (message,), now.nvml_problem)

    def _as_it_is(self, device: Device) -> Device | None:
        """A device that options name as it is now; None: it is lost."""
        if device.id.startswith("/"):
            return device if self._is_file(device.id) else None
        if _key(device) not in self._seen:
            return device  # nothing detects it
        there = self._here.get(_key(device))
        return None if there is None else replace(there, slices=device.slices)

    def _named_devices(
        self, resource: str, named: Sequence[GivenDevice], detected: Sequence[Device]
    ) -> Iterator[Device]:
        matching = [device for device in detected if device.resource == resource]
        for place, given in enumerate(named):
            yield self._named_device(resource, place, given, matching)

    def _named_device(
        self, resource: str, place: int, given: GivenDevice, matching: Sequence[Device]
    ) -> Device:
        where = f"{shown('devices')} {resource}={given.id}"
        if given.id.startswith("/"):
            if not self._is_file(given.id):
                raise SetupError(f"{where}: this machine has no such character device")
            return Device(resource=resource, index=place, id=given.id, slices=given.slices)
        same = [device for device in matching if given.id in (device.id, str(device.index))]
        if same:
            return replace(same[0], slices=given.slices)
        if matching:
            there = ", ".join(str(device.index) for device in matching)
            raise SetupError(f"{where}: this machine has no such device, only {there}")
        index = int(given.id) if given.id.isdecimal() else place
        return Device(resource=resource, index=index, id=given.id, slices=given.slices)


def _key(device: Device) -> tuple[str, str]:
    return device.resource, device.id


def _is_of_nvidia(device: Device) -> bool:
    return device.resource.startswith("nvidia.com/")


def _lost_text(device: Device) -> str:
    return f"the device {device.id} of {device.resource} is lost, so no job gets it"
