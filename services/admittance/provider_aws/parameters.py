"""What a ProvisioningRequestConfig or a workload says of the instances it wants, and the call of
EC2 that follows from it. Pure.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Annotated, Any, Final, Literal

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
