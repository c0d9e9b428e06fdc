"""What a capacity reservation is at the moment, and what follows for its request. Pure."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from admittance.providers import CapacityRevoked, Failed, Provisioned
from admittance.providers.builtin import REQUEST

RESERVATION: Final = "capacityReservationId"
COUNT: Final = "instanceCount"


class Standing(enum.Enum):
    """What a state comes to. States that are not known count as COMING: nobody's job is stopped,
    and nobody's started, for a word that EC2 has learnt since."""

    COMING = enum.auto()
    HERE = enum.auto()
    GONE = enum.auto()


_STANDINGS: Final = {
    "active": Standing.HERE,
    "cancelled": Standing.GONE,
    "cancelling": Standing.GONE,
    "expired": Standing.GONE,
    "failed": Standing.GONE,
    "payment-failed": Standing.GONE,
    "unavailable": Standing.GONE,
    "unsupported": Standing.GONE,
}


class Reservation(NamedTuple):
    """``token``: of the request it is for; "": not one of ours. ``total``: instances."""

    id: str
    token: str
    state: str
    total: int
    instance_type: str = ""
    zone: str = ""

    @property
    def standing(self) -> Standing:
        """What its state comes to."""
        return _STANDINGS.get(self.state, Standing.COMING)

    @property
    def costs(self) -> bool:
        """It has to be cancelled when nobody needs it."""
        return self.standing is not Standing.GONE or self.state == "unavailable"


def reservation_of(described: Mapping[str, Any]) -> Reservation:
    """Of an entry of DescribeCapacityReservations, or the answer of CreateCapacityReservation."""
    tags = {tag.get("Key"): tag.get("Value", "") for tag in described.get("Tags", ())}
    return Reservation(
        id=str(described.get("CapacityReservationId", "")),
        token=str(tags.get(REQUEST, "")),
        state=str(described.get("State", "")),
        total=int(described.get("TotalInstanceCount", 0)),
        instance_type=str(described.get("InstanceType", "")),
        zone=str(described.get("AvailabilityZone", "")),
    )


def before(found: Reservation) -> Provisioned | Failed | None:
    """What is answered while its request waits for it; None: not yet."""
    match found.standing:
        case Standing.COMING:
            return None
        case Standing.HERE:
            details = {
                RESERVATION: found.id,
                "availabilityZone": found.zone,
                "instanceType": found.instance_type,
                COUNT: str(found.total),
            }
            many = f"{found.total} {found.instance_type} in {found.zone}"
            return Provisioned(f"capacity reservation {found.id}: {many}", details)
        case Standing.GONE:
            return Failed(_told(found), retryable=found.state != "unsupported")


def after(found: Reservation, count: int) -> CapacityRevoked | None:
    """What is said of one that was provisioned with ``count`` instances; None: all is well.

    Whoever says it, whenever, says it in the same words: so it is said once."""
    if found.standing is Standing.GONE:
        return CapacityRevoked(_told(found))
    if found.total < count:
        told = f"capacity reservation {found.id} has {found.total} instances, not {count}"
        return CapacityRevoked(told)
    return None


def _told(found: Reservation) -> str:
    return f"capacity reservation {found.id} is {found.state}"
