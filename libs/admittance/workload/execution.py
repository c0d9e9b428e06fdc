"""How long a workload has been admitted, over all its admissions. LIFECYCLE 6, invariant (vi)."""

from __future__ import annotations

from datetime import datetime

from admittance.workload.conditions import Type, find, is_true
from admittance.workload.stored import StoredWorkload, head


def admitted_seconds(workload: StoredWorkload, now: datetime) -> int:
    """Whole seconds of the admission that lasts, or that lasted until the job finished."""
    admitted = find(workload, Type.ADMITTED)
    if admitted is None or admitted.status != "True" or admitted.last_transition_time is None:
        return 0
    finished = find(workload, Type.FINISHED)
    end = now
    if finished is not None and finished.status == "True" and finished.last_transition_time:
        end = finished.last_transition_time
    return max(0, int((end - admitted.last_transition_time).total_seconds()))


def total_seconds(workload: StoredWorkload, now: datetime) -> int:
    """Those of earlier admissions, too."""
    past = workload.status.accumulated_past_execution_time_seconds or 0
    return past + admitted_seconds(workload, now)


def accumulated(workload: StoredWorkload, now: datetime) -> int | None:
    """What is remembered when the admission ends now; None: nothing.

    Being turned off wipes the account, and what the job runs on until it has stopped is of the
    same account: also where it was turned on again meanwhile.
    """
    requeued = find(workload, Type.REQUEUED)
    reactivated = requeued is not None and requeued.reason == "Reactivated"
    if not head(workload).active or (reactivated and is_true(workload, Type.EVICTED)):
        return None
    return total_seconds(workload, now) or None
