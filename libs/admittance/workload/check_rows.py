"""Rows of ``status.admissionChecks``: kept in step with the checks that are required.

LIFECYCLE 2.3. Admission reads the required set from the queue and the rows from the workload, and
both must match by name: a row that nobody requires is not consulted.

Retry counts outlive their rows: of a check that is not listed at the moment, because no flavor of
it is assigned, ``status.checkRetryCounts`` remembers the count, also where it is 0. So that map
also tells which flavors' checks were asked before, and may still have something to say.
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
    """The rows, and the retry counts of the checks that have none."""

    rows: Rows
    counts: dict[str, int]


def synced(
    rows: Rows, counts: Mapping[str, int], required: Iterable[RequiredCheck], *, now: datetime
) -> RowsAndCounts:
    """Rows for exactly the required checks: missing ones come as Pending, kept ones unchanged."""
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
    """The rows of a workload that waits for the end of a check's delay: nothing was assigned since
    they were made, so they stay as they are. Only an administrator's changes count: a check that
    the queue does not name any more goes, and a required one that has no row comes, Pending."""
    kept = [row for row in rows if row.name in named]
    have = {row.name for row in kept}
    kept += [_made(one.name, counts, now=now) for one in required if one.name not in have]
    return _listed(tuple(sorted(kept, key=lambda row: row.name)), counts)


def with_rejected(before: Rows, now: RowsAndCounts) -> RowsAndCounts:
    """``now`` with the rows of ``before`` that say Rejected: these tell why the workload is turned
    off, also where nothing requires their checks any more."""
    rows = now.rows
    for row in before:
        if row.state == "Rejected":
            rows = placed(rows, row)
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
    """Rows of the required checks, all Pending, saying what they were. Retry counts stay.

    woken: the wait is over, which is the next attempt of every check that said Retry.
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
    """Rows for a new reservation. What a check said of an earlier one proves nothing of this: of
    such a row only the count goes on."""
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
    """Pending since it was made or reset, and nobody has said anything of it."""
    return (
        row.state == "Pending"
        and row.verdict_cycle is None
        and not row.pod_set_updates
        and not row.reason
    )


def all_ready(rows: Rows, required: Iterable[RequiredCheck]) -> bool:
    """Every required check has a row, and it says Ready."""
    ready = {row.name for row in rows if row.state == "Ready"}
    return all(check.name in ready for check in required)


def row_of(rows: Rows, name: str) -> CheckState | None:
    """The row of that check."""
    return next((row for row in rows if row.name == name), None)


def placed(rows: Rows, new: CheckState) -> Rows:
    """The rows with the one of that name replaced, or added in its place by name."""
    if row_of(rows, new.name) is None:
        return tuple(sorted([*rows, new], key=lambda row: row.name))
    return tuple(new if row.name == new.name else row for row in rows)


def without_updates(rows: Rows) -> Rows:
    """The rows without anything that a runner could apply."""
    return tuple(replace(row, pod_set_updates=()) if row.pod_set_updates else row for row in rows)


def without_counts(rows: Rows) -> Rows:
    """The rows with every retry count at 0."""
    return tuple(replace(row, retry_count=0) if row.retry_count else row for row in rows)


_ABSENT: Final = "AdmissionCheck {} doesn't exist"
_UNASKED: Final = "AdmissionCheck {} is not asked: "


def why_not_asked(name: str, context: TransitionContext) -> str:
    """Why a check of that name cannot be asked, a sentence; "": it can."""
    rules = context.queues.check(name)
    if rules is None:
        return _ABSENT.format(name)
    return _UNASKED.format(name) + rules.missing if rules.missing else ""


def explained(rows: Rows, context: TransitionContext) -> tuple[Rows, set[str]]:
    """The rows, of which those that cannot be asked say so; and the names of those that said so and
    can be asked by now."""
    found, come = [], set()
    for row in rows:
        why = why_not_asked(row.name, context) if row.state == "Pending" else ""
        message = row.message
        if why and (not message or _tells_why(row)):
            message = why
        elif not why and _tells_why(row):
            # From now on it may judge, for as long as its timeout says.
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
    """What asks those checks; nothing is said to one that cannot be asked."""
    return tuple(
        OutboxEntry(what="check_requested", detail=name)
        for name in names
        if not why_not_asked(name, context)
    )
