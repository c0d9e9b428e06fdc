"""The gauges of queues and cohorts, with the names and labels of Kueue's metrics.

Another thread reads the gauges while the scheduler works, so this module changes nothing in the
scheduler's state, and copies dicts before it iterates over them. The gauges of two queues may be
read a few decisions apart, so they need not add up. Quota that is held for a variant until its
sibling's job has stopped counts as reserved. Source: `docs/spec/lifecycle.md#8`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from math import inf
from typing import Final

from admittance.events import reasons
from admittance.events.requests.queues import QueueStatus
from admittance.quota.cell import UNLIMITED, FlavorResource
from admittance.quota.tree import Node
from admittance.scheduling.explain.queue_status import RUNS, local_status_of, status_of
from admittance.scheduling.fairsharing.shares import share_of
from admittance.scheduling.state.requests import RequestShape
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.workload_info import Queue, WorkloadInfo

MILLI: Final = 1_000
"""One core of cpu is this many accounting units."""

_QUEUE: Final = ("cluster_queue",)
_CELL: Final = ("cohort", "cluster_queue", "flavor", "resource")
_LOCAL: Final = ("name", "namespace")
_LOCAL_CELL: Final = (*_LOCAL, "flavor", "resource")
_COHORT_CELL: Final = ("cohort", "flavor", "resource")

GAUGES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "pending_workloads": (
        "Workloads that wait for quota. active: they compete; inadmissible: they were tried, and "
        "wait until something changes",
        (*_QUEUE, "status"),
    ),
    "reserving_active_workloads": ("Workloads that hold quota", _QUEUE),
    "admitted_active_workloads": ("Admitted workloads that have not finished", _QUEUE),
    "unadmitted_workloads": (
        "Workloads that are not admitted. reason: NoReservation (they have no quota, and "
        "underlying_cause says why) or UnsatisfiedChecks",
        (*_QUEUE, "reason", "underlying_cause"),
    ),
    "cluster_queue_status": (
        "1 for the status that the ClusterQueue has: pending (it admits no new workload), active "
        "or terminating",
        (*_QUEUE, "status"),
    ),
    "cluster_queue_info": (
        "1; the labels say where the ClusterQueue is in the tree of cohorts",
        (*_QUEUE, "parent_cohort", "root_cohort"),
    ),
    "cluster_queue_nominal_quota": ("Nominal quota; amounts of cpu are in cores", _CELL),
    "cluster_queue_borrowing_limit": ("Borrowing limit; Inf: none", _CELL),
    "cluster_queue_lending_limit": ("Lending limit; Inf: none", _CELL),
    "cluster_queue_resource_reservation": ("Quota that workloads hold", _CELL),
    "cluster_queue_resource_usage": ("Quota that admitted workloads hold", _CELL),
    "cluster_queue_resource_pending": (
        "What the pending workloads request, of all flavors together",
        (*_QUEUE, "resource"),
    ),
    "cluster_queue_weighted_share": (
        "The share in fair sharing, in thousandths; only with fair sharing",
        (*_QUEUE, "cohort"),
    ),
    "cohort_info": (
        "1; the labels say where the cohort is in its tree",
        ("cohort", "parent_cohort", "root_cohort"),
    ),
    "cohort_weighted_share": (
        "The share in fair sharing, in thousandths; only with fair sharing",
        ("cohort",),
    ),
    "cohort_subtree_quota": ("Quota of the cohort and everything below it", _COHORT_CELL),
    "cohort_subtree_resource_reservations": (
        "Quota that workloads hold in all ClusterQueues below the cohort",
        _COHORT_CELL,
    ),
    "cohort_subtree_admitted_active_workloads": (
        "Admitted workloads that have not finished, in all ClusterQueues below the cohort",
        ("cohort",),
    ),
    "local_queue_pending_workloads": (
        "Workloads that wait for quota, as in pending_workloads",
        (*_LOCAL, "status"),
    ),
    "local_queue_reserving_active_workloads": ("Workloads that hold quota", _LOCAL),
    "local_queue_admitted_active_workloads": ("Admitted workloads that have not finished", _LOCAL),
    "local_queue_unadmitted_workloads": (
        "Workloads that are not admitted, as in unadmitted_workloads",
        (*_LOCAL, "cluster_queue", "reason", "underlying_cause"),
    ),
    "local_queue_status": (
        "1 for the value that the LocalQueue has: True (it admits new workloads) or False",
        (*_LOCAL, "active"),
    ),
    "local_queue_resource_reservation": ("Quota that workloads hold", _LOCAL_CELL),
    "local_queue_resource_usage": ("Quota that admitted workloads hold", _LOCAL_CELL),
    "local_queue_admission_fair_sharing_usage": (
        "The usage by which the ClusterQueue orders its LocalQueues, the least first: the weighted "
        "consumption with the penalties of admissions, divided by the weight; Inf: the weight is "
        "0. The gauge exists only with admission fair sharing",
        (*_LOCAL, "cluster_queue"),
    ),
}
"""Help text and labels of each gauge, by the gauge's name without prefix."""

Labels = tuple[str, ...]
Found = dict[str, dict[Labels, float]]


def queue_gauges(state: SchedulerState) -> Found:
    """Returns the gauges of all queues and cohorts in the domains that this scheduler owns, by name
    and labels."""
    gauges: Found = {name: {} for name in GAUGES}
    roots: dict[str, Node] = {}
    owned: dict[str, Queue] = {}
    for domain in tuple(state.domains.values()):
        if not domain.owned:
            continue
        for queue in tuple(domain.queues):
            node = queue.node
            if node is not None:
                owned[queue.name] = queue
                root = node.root()
                roots[root.name] = root
    admitted = {name: _add_queue(gauges, state, queue) for name, queue in owned.items()}
    for root in roots.values():
        if root.is_cohort:
            _add_cohort(gauges, state, root, root.name, admitted)
    for key, local in tuple(state.catalog.local_queues.items()):
        if local.spec.cluster_queue in owned:
            _add_local_queue(gauges, local_status_of(state, key))
            place = (key[1], key[0], local.spec.cluster_queue)
            for why, count in _unadmitted_of_local(state.by_local_queue.get(key, ())).items():
                gauges["local_queue_unadmitted_workloads"][*place, *why] = count
    return gauges


def pending_count(state: SchedulerState) -> int:
    """Returns how many workloads wait in the domains that this scheduler owns."""
    owned = [domain for domain in state.domains.values() if domain.owned]
    return sum(queue.pending for domain in owned for queue in domain.queues)


def _add_queue(gauges: Found, state: SchedulerState, queue: Queue) -> int:
    """Adds the gauges of the ClusterQueue to ``gauges``; returns how many workloads are admitted in
    the ClusterQueue."""
    status = status_of(state, queue)
    name = queue.name
    active, inadmissible = _split(status)
    gauges["pending_workloads"][name, "active"] = active
    gauges["pending_workloads"][name, "inadmissible"] = inadmissible
    gauges["reserving_active_workloads"][(name,)] = status.reserving
    gauges["admitted_active_workloads"][(name,)] = status.admitted
    for (reason, cause), count in _unadmitted(queue).items():
        gauges["unadmitted_workloads"][name, reason, cause] = count
    is_now = (
        "active"
        if status.active
        else "terminating"
        if status.reason == reasons.TERMINATING
        else "pending"
    )
    for known in ("pending", "active", "terminating"):
        gauges["cluster_queue_status"][name, known] = int(known == is_now)
    node = queue.node
    if node is None:
        return status.admitted
    cohort = status.cohort
    root = node.root()
    gauges["cluster_queue_info"][name, cohort, root.name if root.is_cohort else ""] = 1
    if status.weighted_share is not None:
        gauges["cluster_queue_weighted_share"][name, cohort] = status.weighted_share
    for usage in status.usage:
        flavor, resource = usage.flavor, usage.resource
        labels = (cohort, name, flavor, resource)
        gauges["cluster_queue_nominal_quota"][labels] = _amount(resource, usage.nominal)
        gauges["cluster_queue_resource_reservation"][labels] = _amount(resource, usage.reserved)
        gauges["cluster_queue_resource_usage"][labels] = _amount(resource, usage.admitted)
        cell = node.cells.get((flavor, resource))
        if cell is not None:
            gauges["cluster_queue_borrowing_limit"][labels] = _amount(resource, cell.borrow)
            gauges["cluster_queue_lending_limit"][labels] = _amount(resource, cell.lend)
    for resource, amount in _requested(queue).items():
        gauges["cluster_queue_resource_pending"][name, resource] = _amount(resource, amount)
    return status.admitted


def _add_local_queue(gauges: Found, status: QueueStatus) -> None:
    key = (status.name, status.namespace)
    active, inadmissible = _split(status)
    gauges["local_queue_pending_workloads"][*key, "active"] = active
    gauges["local_queue_pending_workloads"][*key, "inadmissible"] = inadmissible
    gauges["local_queue_reserving_active_workloads"][key] = status.reserving
    gauges["local_queue_admitted_active_workloads"][key] = status.admitted
    for value in (True, False):
        gauges["local_queue_status"][*key, str(value)] = int(status.active is value)
    for usage in status.usage:
        labels = (*key, usage.flavor, usage.resource)
        reserved, admitted = usage.reserved, usage.admitted
        gauges["local_queue_resource_reservation"][labels] = _amount(usage.resource, reserved)
        gauges["local_queue_resource_usage"][labels] = _amount(usage.resource, admitted)
    if status.used is not None:
        usage_now = inf if status.used.value is None else status.used.value
        gauges["local_queue_admission_fair_sharing_usage"][*key, status.cluster_queue] = usage_now


def _add_cohort(
    gauges: Found, state: SchedulerState, node: Node, root: str, admitted: Mapping[str, int]
) -> tuple[int, dict[FlavorResource, int]]:
    """Adds the gauges of the cohort and of all cohorts below it to ``gauges``; returns the number
    of admitted workloads and the reserved quota in the cohort's subtree."""
    name = node.name
    running = 0
    reserved: dict[FlavorResource, int] = {}
    for member in tuple(node.members.values()):
        running += admitted.get(member.name, 0)
        for fr, cell in tuple(member.cells.items()):
            reserved[fr] = reserved.get(fr, 0) + cell.usage
    for below in tuple(node.cohorts.values()):
        count, amounts = _add_cohort(gauges, state, below, root, admitted)
        running += count
        for fr, amount in amounts.items():
            reserved[fr] = reserved.get(fr, 0) + amount
    parent = node.parent
    gauges["cohort_info"][name, parent.name if parent is not None else "", root] = 1
    gauges["cohort_subtree_admitted_active_workloads"][(name,)] = running
    if state.config.fair_sharing is not None:
        gauges["cohort_weighted_share"][(name,)] = share_of(node).shown
    for fr, cell in tuple(node.cells.items()):
        if cell.is_listed or reserved.get(fr):
            labels = (name, *fr)
            gauges["cohort_subtree_quota"][labels] = _amount(fr[1], cell.subtree)
            gauges["cohort_subtree_resource_reservations"][labels] = _amount(
                fr[1], reserved.get(fr, 0)
            )
    return running, reserved


def _split(status: QueueStatus) -> tuple[int, int]:
    """Returns how many pending workloads of a queue compete, and how many are parked."""
    parked = min(status.parked, status.pending)
    return status.pending - parked, parked


def _unadmitted(queue: Queue) -> dict[tuple[str, str], int]:
    """Counts the workloads of the ClusterQueue that are not admitted, by the reason and the
    underlying cause in the labels of Kueue's metrics. A family counts as one workload."""
    counts: Counter[tuple[str, str]] = Counter()
    for cls in tuple(queue.classes.values()):
        if cls.is_of_variants:
            continue
        left = cls.live
        for cause, group in tuple(cls.by_reason.items()):
            counts[reasons.NO_RESERVATION, cause] += len(group)
            left -= len(group)
        # The workloads of the class that are in no group have a refusal in flight, so their status
        # does not have the refusal's reason yet.
        counts[reasons.NO_RESERVATION, ""] += max(0, left)
    for workload in tuple(queue.parked_workloads):
        if workload.family is None:
            counts[reasons.NO_RESERVATION, workload.status_reason] += 1
    for entry in tuple(queue.parents):
        counts[reasons.NO_RESERVATION, entry[4].status_reason] += 1
    for workload in tuple(queue.holding):
        if workload.family is None and workload.state not in RUNS:
            counts[reasons.UNSATISFIED_CHECKS, ""] += 1
    return +counts


def _unadmitted_of_local(workloads: Iterable[WorkloadInfo]) -> dict[tuple[str, str], int]:
    """Counts the workloads of a LocalQueue that are not admitted, as `_unadmitted` counts the
    workloads of a ClusterQueue."""
    counts: Counter[tuple[str, str]] = Counter()
    for workload in tuple(workloads):
        if workload.charge is not None:
            if workload.family is not None or workload.state in RUNS:
                continue
            why = (reasons.UNSATISFIED_CHECKS, "")
        elif workload.queue is None or workload.is_variant:
            continue
        else:
            in_flight = workload.cls is not None and workload.reason_group is None
            why = (reasons.NO_RESERVATION, "" if in_flight else workload.status_reason)
        counts[why] += 1
    return counts


def _requested(queue: Queue) -> dict[str, int]:
    """Returns what the pending workloads of the queue request in all, by resource. A family of
    variants counts once, with the requests of its parent."""
    amounts: Counter[str] = Counter()

    def add(shape: RequestShape | None, count: int) -> None:
        for totals in shape.totals if shape is not None else ():
            for resource, amount in totals:
                amounts[resource] += amount * count

    for cls in tuple(queue.classes.values()):
        first = cls.first()
        if first is not None and not cls.is_of_variants:
            add(first[3].shape, cls.live)
    for workload in tuple(queue.parked_workloads):
        if workload.family is None:
            add(workload.shape, 1)
    for entry in tuple(queue.parents):
        add(entry[4].shape, 1)
    return amounts


def _amount(resource: str, amount: int | None) -> float:
    """Converts an amount to the units of Kueue's metrics: cores, bytes or pieces. An ``amount`` of
    None, no limit, gives infinity."""
    if amount is None or amount >= UNLIMITED:
        return inf
    return amount / MILLI if resource == "cpu" else amount
