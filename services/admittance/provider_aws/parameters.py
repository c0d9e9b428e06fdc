"""The parameters of a request for capacity, the number of instances that its pods need, and the
arguments of the call to EC2. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec

from admittance.providers.builtin import REQUEST

CLASS: Final = "admittance.dev/class"
"""The key of the tag with the provisioning class, by which the provider finds its reservations."""
TAG_MAX: Final = 256


class Parameters(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """The parameters of a request, named as in CreateCapacityReservation. ``instance_count``: how
    many instances to reserve; None: as many as the pods need. Exactly one of the two zone
    parameters is required. Unknown parameters are ignored, because the annotations of a workload go
    to all its providers.
    """

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
            raise ValueError("exactly one of AvailabilityZone and AvailabilityZoneId must be set")


def token_of(request_id: str) -> str:
    """The token of a request, which is the ClientToken and a tag of its reservation: 64 characters
    that are derived from the request's id.
    """
    return hashlib.sha256(request_id.encode()).hexdigest()


def creation_arguments(
    parameters: Parameters,
    count: int,
    *,
    request_id: str,
    provisioning_class: str,
    namespace: str,
    name: str,
) -> dict[str, Any]:
    """The arguments of CreateCapacityReservation. The arguments are the same for each call for one
    request, so that EC2 returns the existing reservation when the call is repeated.
    """
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


UNCOUNTED: Final = frozenset({"pods", "ephemeral-storage"})
"""Resources of pods that do not count in the number of instances, because their amount does not
depend on the instance type."""
MEBI: Final = 2**20
GPUS: Final = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu", "habana": "habana.ai/gaudi"}


class Pods(NamedTuple):
    """The equal pods of one pod set in a request. ``pods``: the number of pods; ``needs``: the
    resources of one pod, as integers (cpu in thousandths).
    """

    name: str
    pods: int
    needs: Mapping[str, int]


class TooLarge(NamedTuple):
    """The answer that a pod needs more than one instance has; the message names the pod set."""

    message: str


def machine_of(described: Mapping[str, Any]) -> dict[str, int]:
    """The resources of one instance, from an entry of DescribeInstanceTypes: cpu in thousandths,
    memory in bytes, devices as counts."""
    amounts = {
        "cpu": int(described.get("VCpuInfo", {}).get("DefaultVCpus", 0)) * 1000,
        "memory": int(described.get("MemoryInfo", {}).get("SizeInMiB", 0)) * MEBI,
    }
    for gpu in described.get("GpuInfo", {}).get("Gpus", ()):
        maker = str(gpu.get("Manufacturer", "")).lower()
        resource = GPUS.get(maker)
        if resource is not None:
            amounts[resource] = amounts.get(resource, 0) + int(gpu.get("Count", 0))
    for neuron in described.get("NeuronInfo", {}).get("NeuronDevices", ()):
        chips = int(neuron.get("Count", 0))
        cores = chips * int(neuron.get("CoreInfo", {}).get("Count", 0))
        for resource, much in (
            ("aws.amazon.com/neuron", chips),
            ("aws.amazon.com/neurondevice", chips),
            ("aws.amazon.com/neuroncore", cores),
        ):
            amounts[resource] = amounts.get(resource, 0) + much
    fabric = described.get("NetworkInfo", {}).get("EfaInfo", {}).get("MaximumEfaInterfaces")
    if fabric:
        amounts["vpc.amazonaws.com/efa"] = int(fabric)
    return amounts


def instances(pods: Iterable[Pods], machine: Mapping[str, int], type_: str) -> int | TooLarge:
    """The number of equal instances that hold all pods; at least one. ``machine``: the resources of
    one instance; ``type_``: the name of the instance type.

    The largest pods are placed first, each on the first instance with room. The computation does
    not know which resources a node reserves for itself; the parameter InstanceCount overrides the
    result. Instances with equal free resources are counted as one group, so the computation for
    thousands of pods takes no longer than for a few.
    """
    groups = [(pod, _counted(pod.needs)) for pod in pods if pod.pods]
    for pods_of_group, needs in groups:
        for resource, much in needs.items():
            has = machine.get(resource, 0)
            if much > has:
                message = (
                    f"a pod of {pods_of_group.name} needs {much} {resource}, {type_} has {has}"
                )
                return TooLarge(message + (" (thousandths)" if resource == "cpu" else ""))
    groups.sort(key=lambda group: _share(group[1], machine), reverse=True)
    # ``left`` has one element for each group of equal instances, in the order in which the groups
    # were opened: the free resources of one instance, and the number of instances in the group.
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
    """The free resources that are left on ``full`` instances after each of them gets ``each`` more
    pods, and on one instance after it gets ``rest`` more pods.
    """
    return [(_less(free, needs, each), full), (_less(free, needs, rest), int(bool(rest)))]


def _counted(needs: Mapping[str, int]) -> dict[str, int]:
    return {name: much for name, much in needs.items() if much > 0 and name not in UNCOUNTED}


def _share(needs: Mapping[str, int], machine: Mapping[str, int]) -> float:
    return max((much / machine[name] for name, much in needs.items()), default=0.0)


def _fits(needs: Mapping[str, int], free: Mapping[str, int], most: int) -> int:
    return min((free.get(name, 0) // much for name, much in needs.items()), default=most)


def _less(free: Mapping[str, int], needs: Mapping[str, int], pods: int) -> dict[str, int]:
    return {name: much - pods * needs.get(name, 0) for name, much in free.items()}
