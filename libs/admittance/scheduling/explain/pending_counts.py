"""Counts of pending workloads by state and reason.

Workloads of one class wait for one reason, so the count of a whole queue costs one step for each
class, and not for each workload."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from admittance.events import reasons
from admittance.scheduling.cycle.refusals import blocked_head_of
from admittance.scheduling.explain import pending_rows as rows
from admittance.scheduling.explain.pending_rows import HELD, PENDING, RESERVED
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.workload_info import Queue, WorkloadInfo


def reason_of(state: SchedulerState, queue: Queue, workload: WorkloadInfo) -> str:
    """Returns the reason for which the workload waits in the queue."""
    return rows.why(state, queue, workload, rows.refusal(state, workload)).reason


def count_reasons(state: SchedulerState, queue: Queue) -> dict[str, int]:
    """Returns how many workloads wait in the queue for each reason. A family counts once."""
    if not queue.activity.active:
        return {queue.activity.reason: queue.pending}
    counts: dict[str, int] = {}
    for cls in queue.classes.values():
        if not cls.is_of_variants:
            refused = cls.parked
            reason = refused.reason if refused is not None else reasons.PENDING_EVALUATION
            counts[reason] = counts.get(reason, 0) + cls.live
    blocked = queue.blocked_head
    if blocked is not None and blocked.workload.family is None:
        head = blocked.workload
        if blocked_head_of(head) is not None and head.cls is not None and head.cls.parked is None:
            counts[reasons.PENDING_EVALUATION] -= 1
            counts[blocked.refusal.reason] = counts.get(blocked.refusal.reason, 0) + 1
    if queue.parked_workloads or queue.parents:
        alone = (workload for workload in queue.parked_workloads if workload.family is None)
        parents = (entry[4] for entry in queue.parents)
        for workload in (*alone, *parents):
            reason = reason_of(state, queue, workload)
            counts[reason] = counts.get(reason, 0) + 1
    return {reason: count for reason, count in counts.items() if count > 0}


def count_states(
    state: SchedulerState,
    queue: Queue,
    selected: Mapping[WorkloadInfo, None] | None,
    further: Iterable[WorkloadInfo],
    counts: Counter[tuple[str, str]],
) -> None:
    """Adds to ``counts`` how many workloads are in each state for each reason. ``selected``: the
    pending ones; None: all of the queue. ``further``: the others."""
    if selected is None:
        for reason, count in count_reasons(state, queue).items():
            counts[PENDING, reason] += count
    else:
        for workload in selected:
            counts[PENDING, reason_of(state, queue, workload)] += 1
    for workload in further:
        which = HELD if workload.charge is None else RESERVED
        counts[which, rows.further_why(workload).reason] += 1
