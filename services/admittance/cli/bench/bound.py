"""What quota and creation times alone allow: no scheduler can be faster than this."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from admittance.cli.bench.generator import Plan, PlannedWorkload


def lower_bound_seconds(plan: Plan) -> float:
    """Seconds that a perfect scheduler without any delay would need, at the least.

    The greatest of: a workload's creation and its runtime; and per cohort and per ClusterQueue,
    for any moment, that moment and the time in which the full quota does all work created from
    then on. A queue may use its own quota and what it may borrow, never more than its cohort has.
    """
    bound = max((w.at + w.runtime for w in plan.workloads), default=0.0)
    by_queue: dict[int, list[PlannedWorkload]] = defaultdict(list)
    by_cohort: dict[str, list[PlannedWorkload]] = defaultdict(list)
    quota: dict[str, int] = defaultdict(int)
    for queue in plan.queues:
        quota[queue.cohort] += queue.nominal
    for workload in plan.workloads:
        by_queue[workload.queue].append(workload)
        by_cohort[plan.queues[workload.queue].cohort].append(workload)
    for cohort, workloads in by_cohort.items():
        bound = max(bound, _drained(workloads, quota[cohort]))
    for index, workloads in by_queue.items():
        queue = plan.queues[index]
        most = quota[queue.cohort]
        if queue.borrowing is not None:
            most = min(most, queue.nominal + queue.borrowing)
        bound = max(bound, _drained(workloads, most))
    return bound


def _drained(workloads: Iterable[PlannedWorkload], quota: int) -> float:
    """When the work is done at the earliest; workloads come in the order of their creation."""
    if quota <= 0:
        return float("inf")
    bound = 0.0
    left = 0.0
    for workload in sorted(workloads, reverse=True):
        left += workload.runtime * workload.request
        bound = max(bound, workload.at + left / quota)
    return bound


def useful_usage_percent(plan: Plan, finished: Iterable[int], wall_seconds: float) -> float:
    """How much of the quota did work that counted: runtime times request of the finished
    workloads (indices into the plan), of quota times wall time."""
    work = sum(plan.workloads[i].runtime * plan.workloads[i].request for i in finished)
    quota = sum(queue.nominal for queue in plan.queues)
    return 100 * work / (quota * wall_seconds) if quota and wall_seconds else 0.0
