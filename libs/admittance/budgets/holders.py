"""What a stored workload holds, as budgets count it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from admittance.api.workload import CheckState
from admittance.usage.runs import Run, amounts_of, whole_seconds
from admittance.workload.conditions import Type, is_true
from admittance.workload.due_times import execution_end
from admittance.workload.phase import holds_quota, is_stopping
from admittance.workload.quota_release import reserved_at
from admittance.workload.stored import PARENT, StoredWorkload, head


class Holder(NamedTuple):
    """A workload with quota, which it got at ``reserved_at``. ``run``: since when, and how much; it
    has no end. ``remaining``: the seconds that its job may run, once it starts; None: it has no
    time limit. ``ends``: when an admitted job reaches its time limit, in seconds since 1970.
    ``rows``: those of its checks. ``waits``: whether verdicts are awaited: it is not admitted and
    not being evicted."""

    namespace: str
    name: str
    reserved_at: datetime
    run: Run
    cycle: int
    remaining: int | None
    ends: int | None
    rows: Mapping[str, CheckState]
    waits: bool

    @property
    def key(self) -> tuple[str, int]:
        """What the report of its end has, too."""
        return self.run.key

    def seconds_ahead(self, now: int) -> int:
        """How long it may still run after ``now``, by its time limit; 0 without one."""
        if self.ends is not None:
            return max(0, self.ends - now)
        return self.remaining or 0


def holder_of(workload: StoredWorkload) -> Holder | None:
    """What the workload holds; None: no quota, or its variants hold it. Raises ValueError for an
    amount that is no quantity."""
    admission = workload.status.admission
    if admission is None or not holds_quota(workload) or head(workload).role == PARENT:
        return None
    reserved = reserved_at(workload)
    if reserved is None:
        return None
    meta, status = workload.metadata, workload.status
    since = whole_seconds(reserved)
    run = Run(
        uid=meta.uid,
        since=since,
        until=since,
        cluster_queue=admission.cluster_queue,
        namespace=meta.namespace,
        queue=head(workload).queue_name,
        user=status.submitted_by,
        amounts=amounts_of(admission),
        admitted=is_true(workload, Type.ADMITTED),
    )
    stopping = is_stopping(workload)
    return Holder(
        meta.namespace,
        meta.name,
        reserved,
        run,
        status.admission_cycle,
        *_limit(workload, admitted=run.admitted, stopping=stopping),
        {row.name: row for row in status.admission_checks},
        waits=not run.admitted and not stopping,
    )


def delays_of(workload: StoredWorkload) -> tuple[frozenset[str], datetime | None]:
    """The checks that have answered Retry to a workload without quota, and until when it waits."""
    state = workload.status.requeue_state
    if holds_quota(workload) or is_true(workload, Type.FINISHED) or not head(workload).active:
        return frozenset(), None
    rows = workload.status.admission_checks
    delays = frozenset(row.name for row in rows if row.state == "Retry")
    return delays, state.requeue_at if state is not None else None


def _limit(
    workload: StoredWorkload, *, admitted: bool, stopping: bool
) -> tuple[int | None, int | None]:
    """The fields ``remaining`` and ``ends``."""
    longest = head(workload).maximum_execution_time_seconds
    if longest is None:
        return None, None
    spent = workload.status.accumulated_past_execution_time_seconds or 0
    remaining = max(0, longest - spent)
    if stopping:
        return remaining, 0
    end = execution_end(workload) if admitted else None
    return remaining, None if end is None else math.ceil(end.timestamp())
