"""Tables and fields about a workload's admission checks and its next attempt."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from admittance.api.workload import CheckState
from admittance.cli.show.objects import check_conditions
from admittance.cli.support.output import NOTHING, Table, columns_of
from admittance.cli.support.times import age, span, stamp
from admittance.workload.conditions import Type, is_false
from admittance.workload.phase import Phase, phase
from admittance.workload.stored import PARENT, StoredWorkload, head

DECIDES = "decides"


def end_of(row: CheckState) -> datetime | None:
    """When the delay requested by the check ends; None if the check requested no delay."""
    from admittance.workload.moves import backoff

    return backoff.end_of(row)


def deciding(workload: StoredWorkload) -> tuple[str, ...]:
    """Names of the checks with the longest delay; after that delay all checks are requested
    again."""
    state = workload.status.requeue_state
    until = state.requeue_at if state is not None else None
    if until is None:
        return ()
    return tuple(row.name for row in workload.status.admission_checks if end_of(row) == until)


def check_table(workload: StoredWorkload, now: datetime) -> Table:
    """One row per check: state, since when, number of retries, remaining delay."""
    last = deciding(workload)
    rows = []
    for row in workload.status.admission_checks:
        end = end_of(row)
        left = NOTHING
        if end is not None:
            left = span((end - now).total_seconds()) if end > now else "over"
            left += f" ({DECIDES})" if row.name in last else ""
        rows.append(
            (
                row.name,
                row.state,
                row.reason or NOTHING,
                age(row.last_transition_time, now),
                str(row.retry_count),
                left,
                row.message or NOTHING,
            )
        )
    columns = columns_of("CHECK", "STATE", "REASON", "SINCE", "#RETRIES", "STILL WAITS", "MESSAGE")
    return Table(columns, rows)


def next_attempt(
    workload: StoredWorkload, now: datetime, variants: Iterable[StoredWorkload] = ()
) -> str:
    """When the workload competes for quota again, and what sets that time; "" if no time is set.
    ``variants``: the variants if the workload is a parent.
    """
    state = workload.status.requeue_state
    until = state.requeue_at if state is not None else None
    if until is None or state is None or phase(workload, now) is Phase.FINISHED:
        return ""
    last = deciding(workload)
    cause = (
        ", ".join(f'"{name}"' for name in last) if last else "the backoff after PodsReadyTimeout"
    )
    if head(workload).role == PARENT and not is_false(workload, Type.REQUEUED):
        first = [
            head(one).variant
            for one in variants
            if one.status.requeue_state is not None and one.status.requeue_state.requeue_at == until
        ]
        cause = f"variant {', '.join(first)}" if first else "the first of its variants"
    left = f"in {span((until - now).total_seconds())}" if until > now else "by now"
    return f"{stamp(until)} ({left}, set by {cause})"


def pods_ready_evictions(workload: StoredWorkload) -> str:
    """How often the workload was evicted because its pods were not ready in time; "" if never."""
    state = workload.status.requeue_state
    return str(state.count) if state is not None and state.count else ""


def check_values(rows: list[dict[str, Any]], workload: StoredWorkload) -> list[dict[str, Any]]:
    """The workload's checks as conditions with their delays, for JSON and YAML."""
    last = deciding(workload)
    values = []
    for condition, row in zip(
        check_conditions(rows), workload.status.admission_checks, strict=True
    ):
        value = {**condition, "retryCount": row.retry_count}
        end = end_of(row)
        if end is not None:
            value["requeueAfterSeconds"] = row.requeue_after_seconds
            value["notBefore"] = stamp(end)
            value[DECIDES] = row.name in last
        values.append(value)
    return values
