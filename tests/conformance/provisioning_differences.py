"""Cases of provisioning that come out differently here, or cannot be played, and why."""

from __future__ import annotations

from typing import Final

_OBJECTS: Final = (
    "pod templates are part of the request: there is nothing else to be created, or to fail"
)

UNPLAYED: Final[dict[str, str]] = {
    "request preserved on workload evicted when cleanup is disabled": (
        "the gate that keeps requests of evicted workloads is not offered"
    ),
    "with only zero-count PodSets": (
        "a request for these pods was made although there are none; here the counts of a "
        "reservation do not change, and none is made, see E1"
    ),
    "when pod template creation error": _OBJECTS,
    "when provisioning request creation error": (
        "a failed write of a record is repeated: see the tests of the provisioning check"
    ),
    "when the provisioning request already exists": (
        "a record that is there already is read, and counts: no error, as here nothing is told"
    ),
    "when the existing request is already visible in the cache": (
        "in Kueue a request without owner blocks the name; here another name is used"
    ),
}

MESSAGES: Final[dict[str, str]] = {
    "workload sets AdmissionCheck status to Rejected when it is not finished and receives the "
    "provisioning request's CapacityRevoked condition": "The capacity was revoked",
    "workload sets AdmissionCheck status to Rejected when it is not admitted and receives the "
    "provisioning request's CapacityRevoked condition": "The capacity was revoked",
    "workload rejects the admission check when is not admitted and receives the provisioning "
    "request's BookingExpired condition": "the request ended as BookingExpired",
}
"""A rejection always has a message, which is also in the reason why the workload is turned off."""

UNANSWERABLE: Final = "with podSetMergePolicy but no PodSetAssignments"
"""There an error that is logged and tried again; here the check's message."""
