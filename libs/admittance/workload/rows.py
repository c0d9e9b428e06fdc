"""Rows of ``status.admissionChecks``: kept in step with the checks that are required.

LIFECYCLE 2.3. Admission reads the required set from the queue and the rows from the workload, and
both must match by name: a row that nobody requires is not consulted.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from msgspec.structs import replace

from admittance.api.workload import CheckState
from admittance.workload.surroundings import RequiredCheck

Rows = tuple[CheckState, ...]


def synced(rows: Rows, required: Iterable[RequiredCheck], *, now: datetime) -> Rows:
    """Rows for exactly the required checks: missing ones come as Pending, kept ones unchanged."""
    have = {row.name: row for row in rows}
    return tuple(
        have.get(check.name) or CheckState(name=check.name, last_transition_time=now)
        for check in required
    )


def cleared(rows: Rows, required: Iterable[RequiredCheck], *, now: datetime) -> Rows:
    """Rows of the required checks, all Pending, saying what they were. Retry counts stay."""
    have = {row.name: row for row in rows}
    fresh = []
    for check in required:
        row = have.get(check.name)
        if row is None:
            fresh.append(CheckState(name=check.name, last_transition_time=now))
        elif row.state == "Pending" and not row.pod_set_updates and not row.reason:
            fresh.append(row)
        else:
            fresh.append(
                CheckState(
                    name=row.name,
                    message=f"Reset to Pending after eviction. Previously: {row.state}",
                    last_transition_time=now,
                    retry_count=row.retry_count,
                )
            )
    return tuple(fresh)


def all_ready(rows: Rows, required: Iterable[RequiredCheck]) -> bool:
    """Every required check has a row, and it says Ready."""
    ready = {row.name for row in rows if row.state == "Ready"}
    return all(check.name in ready for check in required)


def replaced(rows: Rows, new: CheckState) -> Rows:
    """The rows with the one of that name replaced."""
    return tuple(new if row.name == new.name else row for row in rows)


def without_counts(rows: Rows) -> Rows:
    """The rows with every retry count at 0."""
    return tuple(replace(row, retry_count=0) if row.retry_count else row for row in rows)
