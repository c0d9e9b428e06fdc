"""How many instances of a type hold all pods of a request. Pure.

Pods are packed as a scheduler would do it on empty machines: the largest first, each on the first
machine with room. What a node keeps for itself is not known here: who knows it names InstanceCount.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

ELSEWHERE: Final = frozenset({"pods", "ephemeral-storage"})
"""Resources that are no matter of the instance type: how many there are is set up beside it."""
MEBI: Final = 2**20
GPUS: Final = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu", "habana": "habana.ai/gaudi"}


class Pods(NamedTuple):
    """So many ``pods`` of one shape: ``needs`` of one, in whole numbers (cpu in thousandths)."""

    name: str
    pods: int
    needs: Mapping[str, int]


class TooLarge(NamedTuple):
    """Why no number of instances holds the pods."""

    message: str


def machine_of(described: Mapping[str, Any]) -> dict[str, int]:
    """What one instance has, of an entry of DescribeInstanceTypes; cpu in thousandths, memory in
    bytes, devices in pieces."""
    found = {
        "cpu": int(described.get("VCpuInfo", {}).get("DefaultVCpus", 0)) * 1000,
        "memory": int(described.get("MemoryInfo", {}).get("SizeInMiB", 0)) * MEBI,
    }
    for gpu in described.get("GpuInfo", {}).get("Gpus", ()):
        maker = str(gpu.get("Manufacturer", "")).lower()
        resource = GPUS.get(maker)
        if resource is not None:
            found[resource] = found.get(resource, 0) + int(gpu.get("Count", 0))
    for neuron in described.get("NeuronInfo", {}).get("NeuronDevices", ()):
        chips = int(neuron.get("Count", 0))
        cores = chips * int(neuron.get("CoreInfo", {}).get("Count", 0))
        for resource, much in (
            ("aws.amazon.com/neuron", chips),
            ("aws.amazon.com/neurondevice", chips),
            ("aws.amazon.com/neuroncore", cores),
        ):
            found[resource] = found.get(resource, 0) + much
    fabric = described.get("NetworkInfo", {}).get("EfaInfo", {}).get("MaximumEfaInterfaces")
    if fabric:
        found["vpc.amazonaws.com/efa"] = int(fabric)
    return found


def instances(pods: Iterable[Pods], machine: Mapping[str, int], type_: str) -> int | TooLarge:
    """How many; at least one. Machines of which as much is left are kept as one, so that thousands
    of pods cost no more than a few."""
    groups = [(one, _counted(one.needs)) for one in pods if one.pods]
    for one, needs in groups:
        for resource, much in needs.items():
            has = machine.get(resource, 0)
            if much > has:
                told = f"a pod of {one.name} needs {much} {resource}, {type_} has {has}"
                return TooLarge(told + (" (thousandths)" if resource == "cpu" else ""))
    groups.sort(key=lambda group: _share(group[1], machine), reverse=True)
    # What is left of so many machines, those that were begun first in front.
    left: list[tuple[dict[str, int], int]] = []
    for one, needs in groups:
        waiting = one.pods
        after: list[tuple[dict[str, int], int]] = []
        for free, number in left:
            each = _fits(needs, free, waiting)
            full, rest = divmod(waiting, each) if each else (0, 0)
            full, rest = (full, rest) if full < number else (number, 0)
            waiting -= full * each + rest
            after += _taken(free, needs, each, full, rest)
            after.append((free, number - full - bool(rest)))
        if waiting:
            each = _fits(needs, machine, waiting)
            after += _taken(machine, needs, each, *divmod(waiting, each))
        left = [(free, number) for free, number in after if number]
    return max(1, sum(number for _, number in left))


def _taken(
    free: Mapping[str, int], needs: Mapping[str, int], each: int, full: int, rest: int
) -> list[tuple[dict[str, int], int]]:
    """What is left of ``full`` machines with ``each`` pods more, and of one with ``rest``."""
    return [(_less(free, needs, each), full), (_less(free, needs, rest), int(bool(rest)))]


def _counted(needs: Mapping[str, int]) -> dict[str, int]:
    return {name: much for name, much in needs.items() if much > 0 and name not in ELSEWHERE}


def _share(needs: Mapping[str, int], machine: Mapping[str, int]) -> float:
    return max((much / machine[name] for name, much in needs.items()), default=0.0)


def _fits(needs: Mapping[str, int], free: Mapping[str, int], most: int) -> int:
    return min((free.get(name, 0) // much for name, much in needs.items()), default=most)


def _less(free: Mapping[str, int], needs: Mapping[str, int], pods: int) -> dict[str, int]:
    return {name: much - pods * needs.get(name, 0) for name, much in free.items()}
