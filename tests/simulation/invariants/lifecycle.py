"""The invariants (i) to (vi) of docs/spec/lifecycle.md#1.4, and those of #1.1, #2.3, #3.3 for every
write: over values, so that simulations and tests look at the same ones.

Drawn from the text, not from the table of moves. A folded batch may write several facts at once;
the rules of this module hold for such a write, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime

from admittance.workload.conditions import Type, find, is_false, is_true
from admittance.workload.phase import Phase, holds_quota, phase
from admittance.workload.stored import StoredWorkload, head

Stopped = Callable[[str, str], bool]
"""Whether the queue of that namespace and name is missing or stopped now."""

BY_TIME = frozenset({"AdmissionCheck", "PodsReadyTimeout"})
BY_QUEUE = frozenset({"ClusterQueueStopped", "LocalQueueStopped"})


def broken(
    old: StoredWorkload | None,
    new: StoredWorkload | None,
    now: datetime,
    stopped: Stopped | None = None,
) -> list[str]:
    """The invariants that the write of ``new`` over ``old`` breaks, a sentence each; None: no
    workload.

    ``stopped`` None: it is not known which queues run, so a workload that says it waits for one
    is believed.
    """
    broken_rules: list[str] = []
    if new is not None:
        broken_rules += _state(new, now)
        broken_rules += _exit(new, stopped)
    if old is not None and new is not None and old.metadata.uid == new.metadata.uid:
        broken_rules += _step(old, new, now)
    return broken_rules


def _state(workload: StoredWorkload, now: datetime) -> Iterator[str]:
    status = workload.status
    reserved = is_true(workload, Type.QUOTA_RESERVED)
    if is_true(workload, Type.ADMITTED) and not reserved:
        yield "it is admitted without a reservation (i)"
    if reserved != (status.admission is not None):
        yield f"reserved {reserved}, and its admission is {status.admission} (i)"
    if phase(workload, now) is Phase.PENDING:
        for row in status.admission_checks:
            if row.state in ("Retry", "Rejected"):
                yield f"it is pending with {row.name} in {row.state} (iv)"
    for row in status.admission_checks:
        if status.admission is None and row.pod_set_updates:
            yield f"{row.name} has updates without a reservation (v)"
        if row.requeue_after_seconds is not None and row.state != "Retry":
            yield f"{row.name} is {row.state} and asks for a delay (3.1)"
        if row.pod_set_updates and row.state != "Ready":
            yield f"{row.name} is {row.state} and has updates (3.1)"
        if row.retry_count and is_true(workload, Type.ADMITTED) and row.state == "Ready":
            yield f"{row.name} is Ready and counts {row.retry_count} retries (3.3)"
    if not head(workload).active and status.requeue_state is not None:
        yield "it is turned off and waits for a time (3.3)"
    names = [row.name for row in status.admission_checks]
    if len(set(names)) < len(names):
        yield f"a check has two rows: {names}"


def _exit(workload: StoredWorkload, stopped: Stopped | None) -> Iterator[str]:
    """(iii): something can set Requeued=True again."""
    requeued = find(workload, Type.REQUEUED)
    if requeued is None or requeued.status != "False" or is_true(workload, Type.FINISHED):
        return
    if holds_quota(workload) or not head(workload).active:
        return  # Decided by the release, or by the next activation.
    state = workload.status.requeue_state
    at = state.requeue_at if state is not None else None
    if requeued.reason in BY_TIME:
        if at is None:
            yield f"it waits with {requeued.reason} and for no time (iii)"
    elif requeued.reason in BY_QUEUE:
        queue = head(workload).queue_name
        if stopped is not None and not stopped(workload.metadata.namespace, queue):
            yield f"it waits with {requeued.reason}, and its queue runs (iii)"
    else:
        yield f"nothing ends a wait with {requeued.reason} (iii)"


def _step(old: StoredWorkload, new: StoredWorkload, now: datetime) -> Iterator[str]:
    before, after = old.status, new.status
    if after.admission_cycle < before.admission_cycle:
        yield f"the cycle went back from {before.admission_cycle} to {after.admission_cycle}"
    if after.rounds_since > after.admission_cycle:
        yield f"rounds since {after.rounds_since}, cycle {after.admission_cycle}"
    had, has = before.admission, after.admission
    if had is not None and has is not None and had != has and not _swapped(old):
        yield "its admission was edited (1.1)"
    counts_on = before.array is not None  # An array that a user has ended (arrays.md#3).
    if is_true(old, Type.FINISHED) and not counts_on and (before, old.spec) != (after, new.spec):
        yield "it is finished and moved on"
    if is_true(old, Type.ADMITTED) and is_false(new, Type.ADMITTED) and has is not None:
        yield "it was un-admitted without a release (1.4)"
    if (
        had is not None
        and has is None
        and is_true(old, Type.ADMITTED)
        and not is_true(new, Type.EVICTED)
    ):
        yield "what was admitted lost its quota without an eviction"
    was, became = find(old, Type.REQUEUED), find(new, Type.REQUEUED)
    woke = (
        became is not None
        and became.reason == "BackoffFinished"
        and became.status == "True"
        and (was is None or was.status != "True" or was.reason != "BackoffFinished")
    )
    if woke and after.admission_cycle == before.admission_cycle:
        yield "it woke and its cycle stayed (3.4, step 7)"
    until = before.requeue_state.requeue_at if before.requeue_state is not None else None
    # A check may take its delay back, or shorten it, and the same write ends the wait: what is left
    # to see here is a wait that no check has a part in.
    checks = any(
        row.state == "Retry" and row.requeue_after_seconds for row in before.admission_checks
    )
    early = until is not None and now < until and not checks
    if woke and was is not None and was.status == "False" and early:
        yield f"it woke at {now.isoformat()}, before {until} (3.2)"
    rows = {row.name: row for row in before.admission_checks}
    for row in after.admission_checks:
        same = rows.get(row.name)
        if same is None:
            continue
        if row.state != same.state and row.last_transition_time is None:
            yield f"{row.name} changed its state at no time (2.5)"
        # From Retry to Retry it may have gone round, or been taken back, within one write.
        began = after.admission_cycle > before.admission_cycle or same.state == "Retry"
        if row.state == "Retry" and row.retry_count > same.retry_count and not began:
            yield f"{row.name} counts a retry that has not begun (3.1)"


def _swapped(old: StoredWorkload) -> bool:
    """After its job stopped, a parent is admitted anew in the same write, as a better variant."""
    return is_true(old, Type.EVICTED) and head(old).role == "parent"


class AdmittedSeconds:
    """(vi): seconds of admissions that have ended, counted apart from the workload."""

    def __init__(self) -> None:
        self._ended = 0
        self._since: datetime | None = None

    def saw(self, workload: StoredWorkload) -> list[str]:
        """The next revision of the workload: what is wrong with what it says."""
        admitted = find(workload, Type.ADMITTED)
        requeued = find(workload, Type.REQUEUED)
        if (
            requeued is not None
            and requeued.reason == "Reactivated"
            and is_true(workload, Type.EVICTED)
        ):
            # Turned off and on while its job stops: it starts over, and what runs out counts no
            # more.
            self._ended, self._since = 0, None
        elif admitted is not None and admitted.status == "True":
            if self._since is not None and admitted.last_transition_time is not None:
                # Where that has moved, one admission has ended and another begun in one write.
                self._ended += _seconds(self._since, admitted.last_transition_time)
            self._since = admitted.last_transition_time
        elif admitted is not None and self._since is not None:
            assert admitted.last_transition_time is not None
            self._ended += _seconds(self._since, admitted.last_transition_time)
            self._since = None
        counted = workload.status.accumulated_past_execution_time_seconds or 0
        if not head(workload).active:
            self._ended = 0  # Turned off, it starts over (6).
        if counted != self._ended:
            return [f"it was admitted for {self._ended} s and says {counted} (vi)"]
        return []


def _seconds(since: datetime, until: datetime) -> int:
    """Whole seconds of an admission; 0 if the clock of the service that ended it was behind."""
    return max(0, int((until - since).total_seconds()))
