"""Kueue's rules for changes of a Workload's spec. Here only facts change a stored workload, so no
service needs these rules; Kueue's tables have cases of them.
"""

from __future__ import annotations

from admittance.api.fields.problems import FORBIDDEN, Problem
from admittance.api.validation.meta import unchanged
from admittance.api.workload import GATED_BY, Workload, WorkloadSpec


def check_gated_by_update(old: Workload, new: Workload) -> list[Problem]:
    """The problem of an added gate: gates may be removed from a workload, but not added."""

    def gates(workload: Workload) -> set[str]:
        value = workload.metadata.annotations.get(GATED_BY, "")
        return {gate.strip() for gate in value.split(",") if gate.strip()}

    if gates(new) <= gates(old):
        return []
    message = "a gate may be removed, not added"
    return [Problem(f"metadata.annotations[{GATED_BY}]", message, FORBIDDEN)]


def check_workload_update(
    old: Workload, new: Workload, *, reserved: bool, admitted: bool
) -> list[Problem]:
    """The problems of changed fields that may not change. ``reserved``: quota is reserved for the
    workload; ``admitted``: the workload is Admitted.
    """
    problems = check_gated_by_update(old, new)
    problems += unchanged(old.spec.role, new.spec.role, "spec.role")
    if reserved:
        problems += _frozen(old.spec, new.spec)
    if admitted:
        problems += unchanged(
            old.spec.maximum_execution_time_seconds,
            new.spec.maximum_execution_time_seconds,
            "spec.maximumExecutionTimeSeconds",
            " while the workload is admitted",
        )
    return problems


def _frozen(old: WorkloadSpec, new: WorkloadSpec) -> list[Problem]:
    when = " while quota is reserved"
    if len(old.pod_sets) != len(new.pod_sets):
        problems = [Problem("spec.podSets", f"may not be changed{when}")]
    else:
        problems = [
            problem
            for i, (before, after) in enumerate(zip(old.pod_sets, new.pod_sets, strict=True))
            for problem in unchanged(before, after, f"spec.podSets[{i}]", when)
        ]
    problems += unchanged(old.queue_name, new.queue_name, "spec.queueName", when)
    before_ref, after_ref = old.priority_class_ref, new.priority_class_ref
    field = "spec.priorityClassRef"
    if before_ref is None or after_ref is None:
        return problems + unchanged(before_ref, after_ref, field, when)
    problems += unchanged(before_ref.group, after_ref.group, f"{field}.group", when)
    problems += unchanged(before_ref.kind, after_ref.kind, f"{field}.kind", when)
    if after_ref.kind != "WorkloadPriorityClass":
        problems += unchanged(before_ref.name, after_ref.name, f"{field}.name", when)
    return problems
