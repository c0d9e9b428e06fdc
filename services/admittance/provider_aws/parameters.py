"""What a ProvisioningRequestConfig or a workload says of the instances it wants, and the call of
EC2 that follows from it. Pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec

from admittance.providers.builtin import REQUEST

CLASS: Final = "admittance.dev/class"
"""Tag: the class, by which all reservations of ours are found."""
TAG_MAX: Final = 256


class Parameters(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """The words are EC2's, of CreateCapacityReservation. ``instance_count`` None: as many as hold
    all the pods. One of the two zones is needed. What is not named here is somebody else's: the
    annotations of a workload go to every provider that it is sent to."""

    instance_type: Annotated[str, msgspec.Meta(min_length=1)]
    availability_zone: str = ""
    availability_zone_id: str = ""
    instance_count: Annotated[int, msgspec.Meta(ge=1)] | None = None
    instance_platform: str = "Linux/UNIX"
    tenancy: Literal["default", "dedicated"] = "default"
    instance_match_criteria: Literal["open", "targeted"] = "open"
    ebs_optimized: bool = False
    end_date: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    placement_group_arn: str = ""

    def __post_init__(self) -> None:
        if bool(self.availability_zone) == bool(self.availability_zone_id):
            raise ValueError("name one of AvailabilityZone and AvailabilityZoneId")


def token_of(request_id: str) -> str:
    """The request as EC2 knows it: ClientToken and tag, 64 characters, always the same."""
    return hashlib.sha256(request_id.encode()).hexdigest()


def creation(
    parameters: Parameters,
    count: int,
    *,
    request_id: str,
    provisioning_class: str,
    namespace: str,
    name: str,
) -> dict[str, Any]:
    """Arguments of CreateCapacityReservation. The same request always gives the same ones: EC2
    answers the reservation that there is to a token that it has seen, if nothing else differs."""
    token = token_of(request_id)
    tags = {
        "Name": f"{namespace}/{name}",
        REQUEST: token,
        CLASS: provisioning_class,
        "admittance.dev/request-id": request_id,
        "admittance.dev/namespace": namespace,
        "admittance.dev/workload": name,
    }
    made: dict[str, Any] = {
        "ClientToken": token,
        "InstanceType": parameters.instance_type,
        "InstancePlatform": parameters.instance_platform,
        "InstanceCount": count,
        "Tenancy": parameters.tenancy,
        "InstanceMatchCriteria": parameters.instance_match_criteria,
        "EndDateType": "unlimited" if parameters.end_date is None else "limited",
        "TagSpecifications": [
            {
                "ResourceType": "capacity-reservation",
                "Tags": [{"Key": key, "Value": value[:TAG_MAX]} for key, value in tags.items()],
            }
        ],
    }
    if parameters.end_date is not None:
        made["EndDate"] = parameters.end_date
    optional = {
        "AvailabilityZone": parameters.availability_zone,
        "AvailabilityZoneId": parameters.availability_zone_id,
        "PlacementGroupArn": parameters.placement_group_arn,
        "EbsOptimized": parameters.ebs_optimized,
    }
    return made | {key: value for key, value in optional.items() if value}


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
