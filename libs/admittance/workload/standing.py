"""Why a workload without a reservation is not even considered: reasons of QuotaReserved=False that
the queues, the workload itself or its user give. LIFECYCLE T02, T30.
"""

from __future__ import annotations

from typing import NamedTuple

from admittance.api.workload import GATED_BY
from admittance.workload.conditions import Type, find
from admittance.workload.occasion import Occasion
from admittance.workload.stored import StoredWorkload, head
from admittance.workload.surroundings import RequiredCheck


class Standing(NamedTuple):
    """A reason of QuotaReserved=False and its message."""

    reason: str
    message: str


def gated_by(workload: StoredWorkload) -> str:
    """The gates that keep it out of its queue, as its annotation names them; "" without any."""
    return workload.metadata.annotations.get(GATED_BY, "").strip()


def is_held(workload: StoredWorkload) -> bool:
    """A user keeps it out of its queue."""
    reserved = find(workload, Type.QUOTA_RESERVED)
    return reserved is not None and reserved.status == "False" and reserved.reason == "OnHold"


def hindered(workload: StoredWorkload, at: Occasion) -> Standing | None:
    """What keeps an active workload out of the running; None: it competes as soon as it may."""
    gates = gated_by(workload)
    if gates:
        return Standing("AdmissionGated", f"The admission is gated by: {gates}")
    spec = head(workload)
    hindrance = at.around.hindrance(workload.metadata.namespace, spec.queue_name)
    if hindrance is not None:
        return Standing(hindrance.reason, hindrance.message)
    return None


def required_now(workload: StoredWorkload, at: Occasion) -> tuple[RequiredCheck, ...]:
    """The checks of the workload as long as no flavor is assigned to it. While its queue is missing
    nobody knows, and those that it has stay."""
    queue = at.around.cluster_queue(workload.metadata.namespace, head(workload).queue_name)
    if queue:
        return at.around.required_checks(queue, None)
    return tuple(RequiredCheck(row.name, "") for row in workload.status.admission_checks)
