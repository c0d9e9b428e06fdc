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


def count_reasons(state: SchedulerState, queue: Queue) -> Counter[str]:
    """Returns how many workloads wait in the queue for each reason. A family counts once."""
    counts: Counter[str] = Counter()
    if not queue.activity.active:
        counts[queue.activity.reason] = queue.pending
        return counts
    for cls in queue.classes.values():
        if not cls.is_of_variants:
            refused = cls.parked
            counts[refused.reason if refused is not None else reasons.PENDING_EVALUATION] += (
                cls.live
            )
    blocked = queue.blocked_head
    if blocked is not None and blocked.workload.family is None:
        head = blocked.workload
        if blocked_head_of(head) is not None and head.cls is not None and head.cls.parked is None:
            counts[reasons.PENDING_EVALUATION] -= 1
            counts[blocked.refusal.reason] += 1
    alone = (workload for workload in queue.parked_workloads if workload.family is None)
    parents = (entry[4] for entry in queue.parents)
    for workload in (*alone, *parents):
        counts[reason_of(state, queue, workload)] += 1
    return +counts


def count_states(
    state: SchedulerState,
    queue: Queue,
    selected: Mapping[WorkloadInfo, None] | None,
    further: Iterable[WorkloadInfo],
) -> Counter[tuple[str, str]]:
    """Returns how many workloads are in each state for each reason. ``selected``: the pending ones;
    None: all of the queue. ``further``: the others."""
    waiting = (
        count_reasons(state, queue)
        if selected is None
        else Counter(reason_of(state, queue, workload) for workload in selected)
    )
    counts = Counter({(PENDING, reason): count for reason, count in waiting.items()})
    for workload in further:
        which = HELD if workload.charge is None else RESERVED
        counts[which, rows.further_why(workload).reason] += 1
    return counts
