"""When the job of a workload started, and how long it has run."""

from __future__ import annotations

from datetime import datetime

from admittance.workload.conditions import Type, find
from admittance.workload.stored import StoredWorkload


def started_at(workload: StoredWorkload) -> datetime | None:
    """When it was admitted to run; None: it is not admitted, and did not run to its end."""
    admitted = find(workload, Type.ADMITTED)
    if admitted is None or admitted.status != "True":
        return None
    return admitted.last_transition_time


def duration_seconds(workload: StoredWorkload, now: datetime) -> float | None:
    """How long the job has run since then, or ran until its end; None: it does not run."""
    began = started_at(workload)
    if began is None:
        return None
    finished = find(workload, Type.FINISHED)
    over = finished is not None and finished.status == "True"
    end = finished.last_transition_time if over and finished is not None else None
    return ((end or now) - began).total_seconds()
