"""Which devices of the machine each pod of a run gets, and the environment variables that say so.
Pure.

The pods of a pod set that run at once have slots: a pod takes a free slot when it starts, and the
slot has the devices. So a further completion gets the devices of a pod that has ended.

Variables name a device by its index where the id is that of a maker (a UUID), because programs show
indices, and by its id where a person has named the device.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

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
NO_DEVICES: Final = dict.fromkeys(
    ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", ALL_DEVICES), ""
)
"""The variables of a pod without devices: empty values hide all devices."""
_OF_MAKERS: Final = ("GPU-", "MIG-")


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


class MachineDevices(NamedTuple):
    """The devices of the machine, and the ``runner`` that gives them to jobs, by the id of its data
    folder."""

    runner: str = ""
    devices: tuple[Device, ...] = ()


NO_MACHINE: Final = MachineDevices()


class PlannedDevices(NamedTuple):
    """The variables of the pods of one pod set. ``slots``: of each slot; empty: all pods have the
    variables ``every``. ``resources``: of which each pod has units."""

    every: dict[str, str]
    slots: tuple[dict[str, str], ...] = ()
    resources: frozenset[str] = frozenset()


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


def variables_of(slot: Sequence[Units], devices: Iterable[Device]) -> dict[str, str]:
    """The variables of a pod with these units. ``devices``: those of the machine. Raises
    NotAsPlaced for a device that the machine does not have: a GPU may be lost between a placement
    and the start."""
    here = {(device.resource, device.id): device for device in devices}
    named: dict[str, str] = {}
    said = dict(NO_DEVICES)
    for resource, ids in slot:
        owners = dict.fromkeys(map(device_of, ids))
        lost = [owner for owner in owners if (resource, owner) not in here]
        if lost:
            raise NotAsPlaced(f"this machine has no device {lost[0]} of {resource} any more")
        names = ",".join(_shown(here[resource, owner]) for owner in owners)
        said |= _of_maker(resource, names, ",".join(owners))
        named[resource] = names
    said[ALL_DEVICES] = ",".join(filter(None, named.values()))
    return said | {f"{ALL_DEVICES}_{_suffix(resource)}": names for resource, names in named.items()}


def _of_maker(resource: str, names: str, ids: str) -> dict[str, str]:
    """The variables that the libraries of the resource's maker read."""
    if resource.startswith(NVIDIA):
        # Without this variable CUDA counts by speed, and everything else by the bus.
        return {
            "CUDA_VISIBLE_DEVICES": names,
            "NVIDIA_VISIBLE_DEVICES": names,
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            ENGINE_DEVICES: ids,
        }
    # The variables of HIP and CUDA would count within what ROCR leaves, so AMD has this one alone.
    return {"ROCR_VISIBLE_DEVICES": names} if resource.startswith(AMD) else {}


def _shown(device: Device) -> str:
    """What programs of the device's maker call it. A part of a card has no index."""
    if device.resource.startswith(AMD):
        return str(device.index)
    return str(device.index) if device.id.startswith("GPU-") else device.id


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
    pod_set: PodSetToRun, requests: Iterable[str], machine: MachineDevices
) -> PlannedDevices:
    """What the pods of a pod set get. ``requests``: the resources that a pod asks for. Pods that
    ask for a maker's devices and are placed nowhere get no variables: all runners may start them,
    and no runner can tell which devices are free. Raises NotAsPlaced."""
    slots = slots_of(parts_here(pod_set, machine.runner))
    resources = frozenset(units.resource for slot in slots for units in slot)
    if not resources:
        unknown = not pod_set.parts and any(name.startswith((NVIDIA, AMD)) for name in requests)
        return PlannedDevices({} if unknown else dict(NO_DEVICES))
    found = tuple(variables_of(slot, machine.devices) for slot in slots)
    return PlannedDevices({}, found, resources)


def engine_words(planned: PlannedDevices) -> tuple[str, ...]:
    """The options with which the client of a container engine gives a container the devices of its
    slot, or hides all. In a container the assigned devices count from 0, so the variables of
    makers, which have indices of the machine, are not passed on. Raises CannotRun."""
    of_amd = sorted(name for name in planned.resources if name.startswith(AMD))
    if of_amd:
        raise CannotRun(f"containers get no devices of {of_amd[0]}: run the job as a local process")
    words = ["--env", ALL_DEVICES]
    for resource in sorted(planned.resources):
        words += ["--env", f"{ALL_DEVICES}_{_suffix(resource)}"]
    if any(name.startswith(NVIDIA) for name in planned.resources):
        # The value is a list of the form CSV, so quotes around it keep its commas.
        return (*words, "--gpus", f'"device=$({ENGINE_DEVICES})"')
    if planned.every:
        # An image may ask for all devices, which the engine would then give to it.
        words += ["--env", "NVIDIA_VISIBLE_DEVICES=void"]
    return tuple(words) if planned.every or planned.resources else ()
