"""Rows of ``status.admissionChecks``, one for each required check. docs/spec/lifecycle.md#2.3.

Admission takes the required checks from the queue and their rows from the workload, and ignores the
row of a check that is not required.

``status.checkRetryCounts`` keeps the retry count of a check without a row, even 0: a count shows
that the check had a row before and may still send a verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from admittance.api.workload import CheckState
from admittance.events.placement import Placement
from admittance.workload.stored import OutboxEntry, StoredWorkload, head
from admittance.workload.transition_context import RequiredCheck, TransitionContext

Rows = tuple[CheckState, ...]


class RowsAndCounts(NamedTuple):
    """The rows of a workload's checks, and the retry counts of the checks without a row."""

    rows: Rows
    counts: dict[str, int]


def synced_rows(
    rows: Rows, counts: Mapping[str, int], required: Iterable[RequiredCheck], *, now: datetime
) -> RowsAndCounts:
    """Returns rows for exactly the required checks: new rows are Pending, existing rows are
    unchanged."""
    have = {row.name: row for row in rows}
    wanted = tuple(
        have.get(check.name) or _new_row(check.name, counts, now=now) for check in required
    )
    return _with_counts(wanted, counts)


def frozen_rows(
    rows: Rows,
    counts: Mapping[str, int],
    named: frozenset[str],
    required: Iterable[RequiredCheck],
    *,
    now: datetime,
) -> RowsAndCounts:
    """The rows of a workload that waits for the delay of a check. The rows stay as they are, except
    for edits of the queue: a check that the queue no longer names loses its row, and a new required
    check gets a Pending row."""
    kept = [row for row in rows if row.name in named]
    have = {row.name for row in kept}
    kept += [_new_row(check.name, counts, now=now) for check in required if check.name not in have]
    return _with_counts(tuple(sorted(kept, key=lambda row: row.name)), counts)


def with_rejected(before: Rows, now: RowsAndCounts) -> RowsAndCounts:
    """Returns the check rows ``now`` with the Rejected rows of ``before``: these rows explain the
    deactivation, even if their checks are no longer required."""
    rows = now.rows
    for row in before:
        if row.state == "Rejected":
            rows = with_row(rows, row)
    return now._replace(rows=rows)


def _new_row(name: str, counts: Mapping[str, int], *, now: datetime) -> CheckState:
    return CheckState(name=name, last_transition_time=now, retry_count=counts.get(name, 0))


def _with_counts(rows: Rows, counts: Mapping[str, int]) -> RowsAndCounts:
    have = {row.name for row in rows}
    return RowsAndCounts(rows, {name: count for name, count in counts.items() if name not in have})


def cleared_rows(
    rows: Rows,
    counts: Mapping[str, int],
    required: Iterable[RequiredCheck],
    *,
    now: datetime,
    woken: bool = False,
) -> RowsAndCounts:
    """Pending rows of the required checks, with the previous state of each check in the message.
    Retry counts stay. ``woken``: the workload's wait is over, which counts as one retry of every
    check in Retry."""
    have = {row.name: row for row in rows}
    left = {
        **counts,
        **{row.name: row.retry_count + (woken and row.state == "Retry") for row in rows},
    }
    fresh = []
    for check in required:
        count = left.pop(check.name, 0)
        row = have.get(check.name)
        if row is None:
            fresh.append(CheckState(name=check.name, last_transition_time=now, retry_count=count))
        elif _has_no_verdict(row):
            fresh.append(row)
        else:
            fresh.append(
                CheckState(
                    name=row.name,
                    message=f"Reset to Pending after eviction. Previously: {row.state}",
                    last_transition_time=(
                        row.last_transition_time if row.state == "Pending" else now
                    ),
                    retry_count=count,
                )
            )
    return RowsAndCounts(tuple(fresh), left)


def rows_of_reservation(
    rows: Rows, counts: Mapping[str, int], required: Iterable[RequiredCheck], *, now: datetime
) -> RowsAndCounts:
    """Returns rows for a new reservation. Verdicts on an earlier reservation do not count; retry
    counts stay."""
    have = {row.name: row for row in rows}
    left = {**counts, **{row.name: row.retry_count for row in rows}}
    fresh = []
    for check in required:
        count = left.pop(check.name, 0)
        row = have.get(check.name)
        if row is None or row.message or not _has_no_verdict(row):
            row = CheckState(name=check.name, last_transition_time=now, retry_count=count)
        fresh.append(row)
    return RowsAndCounts(tuple(fresh), left)


def _has_no_verdict(row: CheckState) -> bool:
    """Whether the check has sent no verdict since its row was created or reset."""
    return (
        row.state == "Pending"
        and row.verdict_cycle is None
        and not row.pod_set_updates
        and not row.placement
        and not row.reason
    )


def all_ready(rows: Rows, required: Iterable[RequiredCheck]) -> bool:
    """Whether every required check has a row in state Ready."""
    ready = {row.name for row in rows if row.state == "Ready"}
    return all(check.name in ready for check in required)


def row_of(rows: Rows, name: str) -> CheckState | None:
    """The row of the check with that name; None: there is no such row."""
    return next((row for row in rows if row.name == name), None)


def with_row(rows: Rows, new: CheckState) -> Rows:
    """The check rows with ``new`` in place of the row of the same check; without such a row ``new``
    is inserted in the order of names.
    """
    if row_of(rows, new.name) is None:
        return tuple(sorted([*rows, new], key=lambda row: row.name))
    return tuple(new if row.name == new.name else row for row in rows)


def without_updates(rows: Rows) -> Rows:
    """The check rows with their podSetUpdates and their assigned runners removed."""
    return tuple(
        replace(row, pod_set_updates=(), placement=())
        if row.pod_set_updates or row.placement
        else row
        for row in rows
    )


def placement_of(rows: Rows) -> Placement:
    """The runners that a check has assigned; empty: no check has."""
    for row in rows:
        if row.placement and row.state == "Ready":
            return msgspec.convert(msgspec.to_builtins(row.placement), Placement)
    return ()


def without_counts(rows: Rows) -> Rows:
    """The check rows with every retry count set to 0."""
    return tuple(replace(row, retry_count=0) if row.retry_count else row for row in rows)


_ABSENT: Final = "AdmissionCheck {} doesn't exist"
_NOT_REQUESTED: Final = "AdmissionCheck {} is not asked: "


def request_error(name: str, context: TransitionContext) -> str:
    """Why the check cannot be requested, as a sentence; "": the check can be requested."""
    rules = context.queues.check(name)
    if rules is None:
        return _ABSENT.format(name)
    return _NOT_REQUESTED.format(name) + rules.missing if rules.missing else ""


def with_request_errors(rows: Rows, context: TransitionContext) -> tuple[Rows, set[str]]:
    """The rows with a message for each check that cannot be requested, and the names of the checks
    that can be requested again."""
    updated, requestable = [], set()
    for row in rows:
        why = request_error(row.name, context) if row.state == "Pending" else ""
        message = row.message
        if why and (not message or _has_request_error(row)):
            message = why
        elif not why and _has_request_error(row):
            # The check's timeout starts now, because the check can be requested only from now on.
            row = replace(row, last_transition_time=context.now)  # noqa: PLW2901
            message = ""
            requestable.add(row.name)
        updated.append(replace(row, message=message) if message != row.message else row)
    return tuple(updated), requestable


def _has_request_error(row: CheckState) -> bool:
    return row.message == _ABSENT.format(row.name) or row.message.startswith(
        _NOT_REQUESTED.format(row.name)
    )


def check_requests(names: Iterable[str], context: TransitionContext) -> tuple[OutboxEntry, ...]:
    """Returns the outbox entries that request the named checks, except checks that cannot be
    requested."""
    return tuple(
        OutboxEntry(what="check_requested", detail=name)
        for name in names
        if not request_error(name, context)
    )


# Required checks. -------------------------------------------------------------------------


def required_now(workload: StoredWorkload, context: TransitionContext) -> tuple[RequiredCheck, ...]:
    """The required checks of a workload without an assigned flavor. While the queue of the workload
    is missing, the checks in the workload's rows stay required.
    """
    queue = context.queues.cluster_queue(workload.metadata.namespace, head(workload).queue_name)
    if queue:
        return context.queues.required_checks(queue, None)
    return tuple(RequiredCheck(row.name, "") for row in workload.status.admission_checks)
