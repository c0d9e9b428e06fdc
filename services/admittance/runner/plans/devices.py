"""Which devices of the machine each pod of a run gets, and the environment variables that say so.
Pure.

The pods of a pod set that run at once have slots: a pod takes a free slot when it starts, and the
slot has the devices. So a further completion gets the devices of a pod that has ended.

Variables show the index of a card that was detected, as programs of its maker do, and the id of
every other device. Where jobs are kept from the files of other cards, libraries count only the
cards that they may open, so their variables have UUIDs there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from admittance.events.placement import PlacementPart, runners_of
from admittance.events.shapes import PodSetToRun
from admittance.events.stored.machines import Device
from admittance.job_rules.rules import CannotRun

NVIDIA: Final = "nvidia.com/"
AMD: Final = "amd.com/"
ALL_DEVICES: Final = "ADMITTANCE_DEVICES"
"""The variable with all devices of a pod; followed by ``_`` and the name of a resource, such as
``ADMITTANCE_DEVICES_NVIDIA_COM_GPU``, those of one resource."""
ENGINE_DEVICES: Final = "ADMITTANCE_ENGINE_DEVICES"
"""The variable with the ids of a pod's NVIDIA devices, for the client of a container engine."""
ENGINE_DEVICE: Final = "ADMITTANCE_ENGINE_DEVICE_"
"""Followed by a number: the variables with the devices that the client of an engine names one by
one."""
NO_DEVICES: Final = dict.fromkeys(
    ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", ALL_DEVICES), ""
)
"""The variables of a pod without devices: empty values hide all devices."""
UNSET_FOR_AMD: Final = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")
"""Variables that count within what ROCR leaves: a pod with AMD devices has none of them."""
KFD: Final = "/dev/kfd"
"""The file that all AMD cards share."""
DOCKER: Final = "docker"
PODMAN: Final = "podman"
"""Kinds of container engines."""


def is_uuid(device: str) -> bool:
    """Whether the id of a device is one that its maker gave to it."""
    return device.startswith(("GPU-", "MIG-"))


FileNumber: TypeAlias = tuple[int, int]
"""The major and the minor number of a character device."""


class NotAsPlaced(CannotRun):
    """The machine is not as it was when the workload was placed: the job must be placed again."""


class PodsHere(NamedTuple):
    """The pods of a pod set that this runner starts: ``parallel`` pods at once, with indices from
    ``first`` on, until ``completions`` of them have succeeded."""

    first: int
    parallel: int
    completions: int


class Units(NamedTuple):
    """The units of one resource that one pod gets, in their order."""

    resource: str
    ids: tuple[str, ...]


class DeviceFile(NamedTuple):
    """A file in /dev of the device ``id``: a character device with the two numbers. ``group``: the
    number of the Unix group that may use it; -1: not known."""

    resource: str
    id: str
    path: str
    major: int
    minor: int
    group: int = -1

    @property
    def number(self) -> FileNumber:
        return self.major, self.minor


class MachineDevices(NamedTuple):
    """The devices of the machine, and the ``runner`` that gives them to jobs, by the id of its data
    folder. ``files``: of the devices, and of cards that no job gets. ``denied``: the resources of
    which a job is kept from the files of all devices but its own."""

    runner: str = ""
    devices: tuple[Device, ...] = ()
    files: tuple[DeviceFile, ...] = ()
    denied: frozenset[str] = frozenset()

    def deniable(self) -> tuple[FileNumber, ...]:
        """The files from which jobs are kept that did not get their devices."""
        files = (file for file in self.files if file.resource in self.denied)
        return tuple(sorted({file.number for file in files}))


NO_MACHINE: Final = MachineDevices()


class PlannedDevices(NamedTuple):
    """What the pods of one pod set get. ``every``: the variables of all pods; ``slots``: those of
    each slot, if the pods have devices. ``own``: the numbers of the device files that each slot may
    open, or, without slots, those of all pods. ``unset``: variables that no pod has.
    ``resources``: of which each pod has units. ``named``: how many devices the client of an engine
    names one by one; ``groups``: the Unix groups that a container needs for them."""

    every: dict[str, str]
    slots: tuple[dict[str, str], ...] = ()
    own: tuple[tuple[FileNumber, ...], ...] = ()
    unset: tuple[str, ...] = ()
    resources: frozenset[str] = frozenset()
    named: int = 0
    groups: tuple[int, ...] = ()


def parts_here(pod_set: PodSetToRun, runner: str) -> list[PlacementPart]:
    """The parts of a pod set that the runner with this id starts."""
    return [part for part in pod_set.parts if part.id == runner and part.count]


def pods_here(pod_set: PodSetToRun, completions: int, runner: str) -> PodsHere:
    """The pods of a pod set that the runner starts; all of them if it is assigned to no runner.
    Raises NotAsPlaced."""
    here = parts_here(pod_set, runner)
    if not pod_set.parts or sum(part.count for part in here) == pod_set.count:
        return PodsHere(0, min(pod_set.count, completions), completions)
    if not here:
        return PodsHere(0, 0, 0)
    if len(here) > 1 or completions > pod_set.count:
        # The indices of further completions are drawn while the pods run.
        raise NotAsPlaced(f"pod set {pod_set.name}: its pods cannot be split among machines")
    (part,) = here
    return PodsHere(part.first, part.count, part.count)


def runners_to_run(pod_sets: Iterable[PodSetToRun]) -> tuple[str, ...]:
    """The ids of the runners that an admission is assigned to; empty: any runner may start it."""
    return runners_of(part for pod_set in pod_sets for part in pod_set.parts)


def is_for(runners: Sequence[str], runner: str) -> bool:
    """Whether the runner with this id may start an admission that is assigned to these."""
    return not runners or runner in runners


def part_here(runners: Sequence[str], runner: str) -> int:
    """The part of the job that the runner starts, from 1 on; 0: the whole job."""
    return runners.index(runner) + 1 if len(runners) > 1 and runner in runners else 0


def all_parts(runners: Sequence[str]) -> tuple[int, ...]:
    """The parts of a job that is assigned to these runners; only 0: the whole job."""
    return tuple(range(1, len(runners) + 1)) if len(runners) > 1 else (0,)


def slots_of(parts: Iterable[PlacementPart]) -> tuple[tuple[Units, ...], ...]:
    """The units of each pod of these parts, in the order of the pods."""
    return tuple(
        tuple(
            Units(resource, ids[pod * len(ids) // part.count : (pod + 1) * len(ids) // part.count])
            for resource, ids in sorted(part.devices.items())
        )
        for part in parts
        for pod in range(part.count)
    )


def device_of(unit: str) -> str:
    """The id of the device that a unit belongs to."""
    return unit.partition("::")[0]


def owners_of(slot: Iterable[Units], devices: Iterable[Device]) -> dict[str, tuple[Device, ...]]:
    """The devices of a slot by their resource, in the order of its units. ``devices``: those of the
    machine. Raises NotAsPlaced for a device that the machine does not have: a GPU may be lost
    between a placement and the start."""
    here = {(device.resource, device.id): device for device in devices}
    owners: dict[str, tuple[Device, ...]] = {}
    for resource, ids in slot:
        names = dict.fromkeys(map(device_of, ids))
        lost = [name for name in names if (resource, name) not in here]
        if lost:
            raise NotAsPlaced(f"this machine has no device {lost[0]} of {resource} any more")
        owners[resource] = tuple(here[resource, name] for name in names)
    return owners


def _shown_variables(owners: Mapping[str, Sequence[Device]]) -> dict[str, str]:
    """The variables of a pod about all its devices, whatever their maker."""
    shown = {resource: ",".join(map(_shown, devices)) for resource, devices in owners.items()}
    said = {ALL_DEVICES: ",".join(filter(None, shown.values()))}
    return said | {f"{ALL_DEVICES}_{_suffix(resource)}": names for resource, names in shown.items()}


def variables_of(owners: Mapping[str, Sequence[Device]], denied: frozenset[str]) -> dict[str, str]:
    """The variables of a local process with these devices, by their resource. ``denied``: the
    resources of which the process cannot open the devices of others."""
    said = dict(NO_DEVICES)
    for resource, devices in owners.items():
        named = (device.id if resource in denied else _shown(device) for device in devices)
        names = ",".join(named)
        if resource.startswith(NVIDIA):
            # Without this variable CUDA counts by speed, and everything else by the bus.
            said |= {
                "CUDA_VISIBLE_DEVICES": names,
                "NVIDIA_VISIBLE_DEVICES": names,
                "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            }
        elif resource.startswith(AMD):
            said["ROCR_VISIBLE_DEVICES"] = names
    said |= _shown_variables(owners)
    return {name: value for name, value in said.items() if name not in unset_for(owners)}


def unset_for(resources: Iterable[str]) -> tuple[str, ...]:
    """The variables that a pod with devices of these resources does not have."""
    makers = {resource.partition("/")[0] + "/" for resource in resources}
    if AMD not in makers:
        return ()
    # CUDA_VISIBLE_DEVICES would name the NVIDIA devices of a pod that has devices of both makers.
    return UNSET_FOR_AMD[1:] if NVIDIA in makers else UNSET_FOR_AMD


def _shown(device: Device) -> str:
    """What people call the device. A part of a card has no index."""
    is_detected = device.minor >= 0 and not device.id.startswith("MIG-")
    return str(device.index) if is_detected else device.id


def _suffix(resource: str) -> str:
    return "".join(sign if sign.isalnum() else "_" for sign in resource.upper())


def units_of(pod_sets: Iterable[PodSetToRun], runner: str) -> tuple[str, ...]:
    """All units that a run takes on this runner, as ``<resource>=<id>``."""
    return tuple(
        sorted(
            f"{resource}={unit}"
            for pod_set in pod_sets
            for part in parts_here(pod_set, runner)
            for resource, ids in part.devices.items()
            for unit in ids
        )
    )


def planned_devices(
    pod_set: PodSetToRun, requests: Iterable[str], machine: MachineDevices, engine: str = ""
) -> PlannedDevices:
    """What the pods of a pod set get. ``requests``: the resources that a pod asks for. ``engine``:
    the kind of the container engine; "": the pods are local processes. Pods that ask for a maker's
    devices and are placed nowhere get no variables, and may open all devices for which they ask:
    all runners may start them, and no runner can tell which devices are free. Raises
    NotAsPlaced."""
    slots = slots_of(parts_here(pod_set, machine.runner))
    resources = frozenset(units.resource for slot in slots for units in slot)
    if not resources:
        asked = [] if pod_set.parts else [_subject(name) for name in requests]
        own = sorted({file.number for file in machine.files if _subject(file.resource) in asked})
        every = {} if {NVIDIA, AMD}.intersection(asked) else dict(NO_DEVICES)
        return PlannedDevices(every, own=(tuple(own),))
    owners = [owners_of(slot, machine.devices) for slot in slots]
    files = [_files_of(each, machine.files) for each in owners]
    planned = PlannedDevices(
        {},
        own=tuple(tuple(sorted({file.number for file in each})) for each in files),
        resources=resources,
    )
    if engine:
        return _for_engine(planned, owners, files, engine)
    return planned._replace(
        slots=tuple(variables_of(each, machine.denied) for each in owners),
        unset=unset_for(resources),
    )


def _subject(resource: str) -> str:
    """The maker of a resource of which pods may use all devices together, or the resource."""
    return next((maker for maker in (NVIDIA, AMD) if resource.startswith(maker)), resource)


def _files_of(
    owners: Mapping[str, Sequence[Device]], files: Iterable[DeviceFile]
) -> tuple[DeviceFile, ...]:
    """The files of the devices of a slot. Raises NotAsPlaced for a device that is a file, if the
    file is gone."""
    devices = {(resource, device.id) for resource, each in owners.items() for device in each}
    of_slot = tuple(file for file in files if (file.resource, file.id) in devices)
    gone = {of for of in devices if of[1].startswith("/")} - {(f.resource, f.id) for f in of_slot}
    for resource, path in sorted(gone):
        raise NotAsPlaced(f"this machine has no device {path} of {resource} any more")
    return of_slot


# Containers. -----------------------------------------------------------------------------


def _for_engine(
    planned: PlannedDevices,
    owners: Sequence[Mapping[str, Sequence[Device]]],
    files: Sequence[Sequence[DeviceFile]],
    engine: str,
) -> PlannedDevices:
    named = [_named_devices(*slot, engine) for slot in zip(owners, files, strict=True)]
    most = max(map(len, named))
    slots = []
    for devices, names in zip(owners, named, strict=True):
        ids = [
            device.id
            for resource, each in devices.items()
            if resource.startswith(NVIDIA)
            for device in each
        ]
        # Each slot has as many words: where two units belong to one device, it is named twice.
        words = {f"{ENGINE_DEVICE}{n}": names[min(n, len(names) - 1)] for n in range(most)}
        slots.append({**_shown_variables(devices), ENGINE_DEVICES: ",".join(ids), **words})
    groups = {file.group for each in files for file in each if file.group > 0}
    return planned._replace(slots=tuple(slots), named=most, groups=tuple(sorted(groups)))


def _named_devices(
    owners: Mapping[str, Sequence[Device]], files: Iterable[DeviceFile], engine: str
) -> list[str]:
    """What the options ``--device`` of a container say. Raises CannotRun."""
    here = {(file.resource, file.id) for file in files}
    for resource, each in owners.items():
        if resource.startswith(AMD) and any((resource, device.id) not in here for device in each):
            raise CannotRun(
                f"containers get no devices of {resource} that an option names and nothing "
                "detects: run the job as a local process"
            )
    names = [file.path for file in files if not file.resource.startswith(NVIDIA)]
    if any(resource.startswith(AMD) for resource in owners):
        names.append(KFD)
    if engine == PODMAN:
        # All kinds of NVIDIA devices are one kind of the Container Device Interface.
        names += [
            f"{NVIDIA}gpu={device.id}"
            for resource, each in owners.items()
            if resource.startswith(NVIDIA)
            for device in each
        ]
    return names


def engine_words(planned: PlannedDevices, engine: str) -> tuple[str, ...]:
    """The options with which the client of a container engine gives a container the devices of its
    slot, or hides all. In a container the assigned devices count from 0, so the variables of
    makers, which have indices of the machine, are not passed on."""
    words = ["--env", ALL_DEVICES]
    for resource in sorted(planned.resources):
        words += ["--env", f"{ALL_DEVICES}_{_suffix(resource)}"]
    for number in range(planned.named):
        words += ["--device", f"$({ENGINE_DEVICE}{number})"]
    for group in planned.groups:
        words += ["--group-add", str(group)]
    if any(name.startswith(NVIDIA) for name in planned.resources):
        if engine == DOCKER:
            # The value is a list of the form CSV, so quotes around it keep its commas.
            words += ["--gpus", f'"device=$({ENGINE_DEVICES})"']
    elif planned.every or planned.resources:
        # An image may ask for all devices, which the engine would then give to it.
        words += ["--env", "NVIDIA_VISIBLE_DEVICES=void"]
    return tuple(words) if planned.every or planned.resources else ()
