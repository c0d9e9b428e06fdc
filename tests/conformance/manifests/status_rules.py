"""Kueue's rules of a workload's status, for the validation tables.

Only the workload-controller writes a status, and its transitions follow these rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from admittance.api.fields.limits import Quantity
from admittance.api.fields.problems import NOT_FOUND, NOT_SUPPORTED, REQUIRED, Problem, shown
from admittance.api.fields.units import BadQuantity, amount
from admittance.api.meta import Condition
from admittance.api.validation.workload import TypedPodSetUpdate, check_updates
from admittance.api.workload import Kept, PodSet, ReclaimablePod, Workload


class CheckRow(Kept, frozen=True, kw_only=True):
    name: str = ""
    state: str = ""
    pod_set_updates: tuple[TypedPodSetUpdate, ...] = ()


class Assignment(Kept, frozen=True, kw_only=True):
    name: str = "main"
    flavors: dict[str, str] = msgspec.field(default_factory=dict)
    resource_usage: dict[str, Quantity] = msgspec.field(default_factory=dict)
    count: int = 0


class AdmissionRow(Kept, frozen=True, kw_only=True):
    cluster_queue: str = ""
    pod_set_assignments: tuple[Assignment, ...] = ()


class Status(Kept, frozen=True, kw_only=True):
    """The part of a status that has rules."""

    conditions: tuple[Condition, ...] = ()
    admission: AdmissionRow | None = None
    reclaimable_pods: tuple[ReclaimablePod, ...] = ()
    admission_checks: tuple[CheckRow, ...] = ()

    def is_true(self, condition: str) -> bool:
        return any(kept.type == condition and kept.status == "True" for kept in self.conditions)


def status_of(workload: Workload) -> Status:
    """The status as a manifest has it. Raises msgspec.ValidationError."""
    return msgspec.convert(workload.status or {}, Status)


def check_reclaimable(
    pods: Sequence[ReclaimablePod], pod_sets: Sequence[PodSet], field: str
) -> list[Problem]:
    """Reclaimable pods belong to a pod set and are no more than it has."""
    sizes = {pod_set.name: pod_set.count for pod_set in pod_sets}
    problems: list[Problem] = []
    for pod in pods:
        path = f"{field}[{pod.name}]"
        if pod.name not in sizes:
            message = f"{shown(pod.name)} is not one of the pod sets {', '.join(sizes)}"
            problems.append(Problem(f"{path}.name", message, NOT_SUPPORTED))
        elif pod.count > sizes[pod.name]:
            message = f"must not exceed the {sizes[pod.name]} pods of the set"
            problems.append(Problem(f"{path}.count", message))
    return problems


def check_reclaimable_update(
    old: Sequence[ReclaimablePod], new: Sequence[ReclaimablePod], field: str
) -> list[Problem]:
    """While quota is reserved, reclaimable pods only become more."""
    counts: Mapping[str, int] = {pods.name: pods.count for pods in new}
    problems: list[Problem] = []
    for pod in old:
        path = f"{field}[{pod.name}]"
        if pod.name not in counts:
            problems.append(Problem(path, "may not be removed", REQUIRED))
        elif counts[pod.name] < pod.count:
            problems.append(Problem(f"{path}.count", f"may not become less than {pod.count}"))
    return problems


def check_status(workload: Workload, old: Workload | None = None) -> list[Problem]:
    """The problems of a status; ``old``: the workload before the change."""
    status = status_of(workload)
    was = status_of(old) if old is not None else Status()
    problems: list[Problem] = []
    reserved = status.is_true("QuotaReserved")
    if reserved and status.admission is None:
        # One that was like this already may pass, or it could never be repaired or removed.
        if not (was.is_true("QuotaReserved") and was.admission is None):
            message = "must be set while quota is reserved"
            problems.append(Problem("status.admission", message, REQUIRED))
    elif reserved and status.admission is not None:
        problems += _admission(status.admission, workload)
    pod_sets = workload.spec.pod_sets
    field = "status.reclaimablePods"
    problems += check_reclaimable(status.reclaimable_pods, pod_sets, field)
    names = [pod_set.name for pod_set in pod_sets]
    for i, row in enumerate(status.admission_checks):
        path = f"status.admissionChecks[{i}].podSetUpdates"
        problems += check_updates(row.pod_set_updates, names, path)
    if old is None:
        return problems
    if reserved and was.is_true("QuotaReserved"):
        problems += check_reclaimable_update(was.reclaimable_pods, status.reclaimable_pods, field)
    if None not in (was.admission, status.admission) and was.admission != status.admission:
        message = "is set and cleared as a whole, never changed"
        problems.append(Problem("status.admission", message))
    return problems + _updates_kept(was, status)


def _updates_kept(was: Status, status: Status) -> list[Problem]:
    rows: dict[str, Any] = {row.name: row for row in status.admission_checks}
    problems = []
    for i, row in enumerate(was.admission_checks):
        now = rows.get(row.name)
        if now is None or row.state != "Ready" or now.state != "Ready":
            continue
        if row.pod_set_updates != now.pod_set_updates:
            path = f"status.admissionChecks[{i}].podSetUpdates"
            problems.append(Problem(path, "may not be changed while the check is Ready"))
    return problems


def _admission(admission: AdmissionRow, workload: Workload) -> list[Problem]:
    names = {pod_set.name for pod_set in workload.spec.pod_sets}
    problems: list[Problem] = []
    for i, assignment in enumerate(admission.pod_set_assignments):
        path = f"status.admission.podSetAssignments[{i}]"
        if assignment.name not in names:
            message = f"{shown(assignment.name)} is not one of the pod sets"
            problems.append(Problem(f"{path}.name", message, NOT_FOUND))
        if assignment.count <= 0:
            continue
        for resource, usage in assignment.resource_usage.items():
            try:
                rest = amount(resource, usage) % assignment.count
            except BadQuantity as error:
                problems.append(Problem(f"{path}.resourceUsage[{resource}]", str(error)))
                continue
            if rest:
                message = f"{usage} is not a multiple of the count {assignment.count}"
                problems.append(Problem(f"{path}.resourceUsage[{resource}]", message))
    return problems
