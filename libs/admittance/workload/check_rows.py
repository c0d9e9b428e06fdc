"""Rows of ``status.admissionChecks``: kept equal to the required checks.
docs/spec/lifecycle.md#2.3.

Admission reads the required checks from the queue and the rows from the workload, matched by name:
a row of a check that is not required is ignored.

Retry counts outlive their rows: while no flavor of a check is assigned, ``status.checkRetryCounts``
keeps its count, even 0. So that map also tells which checks were requested before and may still
send a verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final, NamedTuple

from msgspec.structs import replace

from admittance.api.workload import CheckState
from admittance.workload.stored import OutboxEntry
from admittance.workload.transition_context import RequiredCheck, TransitionContext

Rows = tuple[CheckState, ...]


class RowsAndCounts(NamedTuple):
    """The rows, and the retry counts of the checks without a row."""

    rows: Rows
    counts: dict[str, int]


def synced(
    rows: Rows, counts: Mapping[str, int], required: Iterable[RequiredCheck], *, now: datetime
) -> RowsAndCounts:
    """Rows for exactly the required checks: new rows are Pending, existing rows are unchanged."""
    have = {row.name: row for row in rows}
    wanted = tuple(have.get(check.name) or _made(check.name, counts, now=now) for check in required)
    return _listed(wanted, counts)


def frozen(
    rows: Rows,
    counts: Mapping[str, int],
    named: frozenset[str],
    required: Iterable[RequiredCheck],
    *,
    now: datetime,
) -> RowsAndCounts:
    """The rows of a workload that waits for a check's delay. They stay as they are, except for
    changes by an administrator: the row of a check that the queue no longer names is removed, and a
    required check without a row gets a Pending one."""
    kept = [row for row in rows if row.name in named]
    have = {row.name for row in kept}
    kept += [_made(one.name, counts, now=now) for one in required if one.name not in have]
    return _listed(tuple(sorted(kept, key=lambda row: row.name)), counts)


def with_rejected(before: Rows, now: RowsAndCounts) -> RowsAndCounts:
    """``now`` with the Rejected rows of ``before``: they tell why the workload is deactivated, even
    if their checks are no longer required."""
    rows = now.rows
    for row in before:
        if row.state == "Rejected":
            rows = with_row(rows, row)
    return now._replace(rows=rows)


def _made(name: str, counts: Mapping[str, int], *, now: datetime) -> CheckState:
    return CheckState(name=name, last_transition_time=now, retry_count=counts.get(name, 0))


def _listed(rows: Rows, counts: Mapping[str, int]) -> RowsAndCounts:
    have = {row.name for row in rows}
    return RowsAndCounts(rows, {name: count for name, count in counts.items() if name not in have})


def cleared(
    rows: Rows,
    counts: Mapping[str, int],
    required: Iterable[RequiredCheck],
    *,
    now: datetime,
    woken: bool = False,
) -> RowsAndCounts:
    """Pending rows of the required checks, with the previous state in the message. Retry counts
    stay.

    ``woken``: the wait is over; this counts as one retry of every check in Retry.
    """
    have = {row.name: row for row in rows}
    left = {**counts, **{row.name: row.retry_count + _more(row, woken) for row in rows}}
    fresh = []
    for check in required:
        count = left.pop(check.name, 0)
        row = have.get(check.name)
        if row is None:
            fresh.append(CheckState(name=check.name, last_transition_time=now, retry_count=count))
        elif _is_unspoken(row):
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


def listed(
    rows: Rows, counts: Mapping[str, int], required: Iterable[RequiredCheck], *, now: datetime
) -> RowsAndCounts:
    """Rows for a new reservation. A verdict on an earlier reservation does not count for this one:
    only the retry count stays."""
    have = {row.name: row for row in rows}
    left = {**counts, **{row.name: row.retry_count for row in rows}}
    fresh = []
    for check in required:
        count = left.pop(check.name, 0)
        row = have.get(check.name)
        if row is None or row.message or not _is_unspoken(row):
            row = CheckState(name=check.name, last_transition_time=now, retry_count=count)
        fresh.append(row)
    return RowsAndCounts(tuple(fresh), left)


def _more(row: CheckState, woken: bool) -> int:
    return 1 if woken and row.state == "Retry" else 0


def _is_unspoken(row: CheckState) -> bool:
    """Whether it is Pending without any verdict since it was created or reset."""
    return (
        row.state == "Pending"
        and row.verdict_cycle is None
        and not row.pod_set_updates
        and not row.reason
    )


def all_ready(rows: Rows, required: Iterable[RequiredCheck]) -> bool:
    """Whether every required check has a Ready row."""
    ready = {row.name for row in rows if row.state == "Ready"}
    return all(check.name in ready for check in required)


def row_of(rows: Rows, name: str) -> CheckState | None:
    """The row of that check."""
    return next((row for row in rows if row.name == name), None)


def with_row(rows: Rows, new: CheckState) -> Rows:
    """The rows with the row of that name replaced, or added in the order of names."""
    if row_of(rows, new.name) is None:
        return tuple(sorted([*rows, new], key=lambda row: row.name))
    return tuple(new if row.name == new.name else row for row in rows)


def without_updates(rows: Rows) -> Rows:
    """The rows without podSetUpdates."""
    return tuple(replace(row, pod_set_updates=()) if row.pod_set_updates else row for row in rows)


def without_counts(rows: Rows) -> Rows:
    """The rows with every retry count at 0."""
    return tuple(replace(row, retry_count=0) if row.retry_count else row for row in rows)


_ABSENT: Final = "AdmissionCheck {} doesn't exist"
_UNASKED: Final = "AdmissionCheck {} is not asked: "


def why_not_asked(name: str, context: TransitionContext) -> str:
    """Why the check cannot be requested, as a sentence; "": it can."""
    rules = context.queues.check(name)
    if rules is None:
        return _ABSENT.format(name)
    return _UNASKED.format(name) + rules.missing if rules.missing else ""


def with_request_errors(rows: Rows, context: TransitionContext) -> tuple[Rows, set[str]]:
    """The rows with a message where the check cannot be requested, and the names of the checks that
    can be requested again."""
    found, come = [], set()
    for row in rows:
        why = why_not_asked(row.name, context) if row.state == "Pending" else ""
        message = row.message
        if why and (not message or _tells_why(row)):
            message = why
        elif not why and _tells_why(row):
            # Its timeout starts now.
            row = replace(row, last_transition_time=context.now)  # noqa: PLW2901
            message = ""
            come.add(row.name)
        found.append(replace(row, message=message) if message != row.message else row)
    return tuple(found), come


def _tells_why(row: CheckState) -> bool:
    return row.message == _ABSENT.format(row.name) or row.message.startswith(
        _UNASKED.format(row.name)
    )


def check_requests(names: Iterable[str], context: TransitionContext) -> tuple[OutboxEntry, ...]:
    """The outbox entries that request these checks, except checks that cannot be requested."""
    return tuple(
        OutboxEntry(what="check_requested", detail=name)
        for name in names
        if not why_not_asked(name, context)
    )
