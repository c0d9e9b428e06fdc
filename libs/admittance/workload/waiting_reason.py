"""Why a workload is in its phase: reason and message of the condition that explains it best."""

from __future__ import annotations

from datetime import datetime

from admittance.workload.conditions import Type, find, is_false
from admittance.workload.phase import Phase, phase
from admittance.workload.stored import StoredWorkload


def reason_of(workload: StoredWorkload, now: datetime) -> tuple[str, str]:
    """Reason and message of the condition that explains the workload's phase best."""
    order: tuple[Type, ...]
    match phase(workload, now):
        case Phase.FINISHED:
            order = (Type.FINISHED,)
        case Phase.EVICTING | Phase.DEACTIVATED | Phase.REJECTED:
            order = (Type.EVICTED, Type.QUOTA_RESERVED)
        case Phase.BACKOFF:
            if not is_false(workload, Type.REQUEUED):
                return _reason_of_variants(workload)
            order = (Type.REQUEUED, Type.EVICTED, Type.QUOTA_RESERVED)
        case Phase.QUOTA_RESERVED:
            order = (Type.ADMITTED,)
        case Phase.PENDING:
            order = (Type.QUOTA_RESERVED,)
        case Phase.ADMITTED | Phase.RUNNING:
            order = ()
    for kind in order:
        condition = find(workload, kind)
        if condition is not None and condition.reason:
            return condition.reason, condition.message
    return "", ""


def _reason_of_variants(parent: StoredWorkload) -> tuple[str, str]:
    """Reason and message of a parent that waits because all of its variants wait: the reason of the
    best variant that waits, and the message of the parent, which names each variant."""
    reserved = find(parent, Type.QUOTA_RESERVED)
    reason, message = (reserved.reason, reserved.message) if reserved is not None else ("", "")
    for row in parent.status.variants:
        for condition in row.conditions:
            if condition.type == Type.REQUEUED and condition.status == "False" and condition.reason:
                return condition.reason, message
    return reason, message
