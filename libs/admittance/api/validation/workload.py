"""Rules of Workload and of the pod templates in it: docs/spec/scheduling.md#1.6."""

from __future__ import annotations

from typing import Final

from admittance.api.defaults import flavors_of_annotation
from admittance.api.limits import CLASSES
from admittance.api.names import qualified, repeated
from admittance.api.problems import DUPLICATE, FORBIDDEN, REQUIRED, Problem, shown
from admittance.api.validation.meta import check_metadata, dns_label, object_name, unchanged
from admittance.api.validation.pods import check_template
from admittance.api.workload import (
    GATED_BY,
    QUEUE_LABEL,
    Job,
    PodSet,
    PriorityClassRef,
    Workload,
    WorkloadSpec,
)


def check_workload(workload: Workload) -> list[Problem]:
    """Everything that is wrong with a Workload by itself; its status apart."""
    found = check_metadata(workload.metadata, namespaced=True, kind="Workload", generated=True)
    spec = workload.spec
    if len(spec.pod_sets) > 1:
        found += _several(spec.pod_sets)
    for i, pod_set in enumerate(spec.pod_sets):
        found += _pod_set(pod_set, f"spec.podSets[{i}]")
    if spec.queue_name:
        found += object_name(spec.queue_name, "spec.queueName")
    if spec.priority_class_ref is not None:
        found += _class_ref(spec.priority_class_ref, spec.priority)
    if spec.preemption_gates:
        found += _gates(spec)
    found += _family(workload)
    if spec.admission_constraints is not None:
        found += _constraints(workload)
    if GATED_BY in workload.metadata.annotations:
        found += check_gated_by(workload.metadata.annotations[GATED_BY])
    return found


def _family(workload: Workload) -> list[Problem]:
    """What says of which family it is, and as what: only variants have that, and they all do."""
    spec = workload.spec
    owners = workload.metadata.owner_references
    if spec.role == "variant":
        found: list[Problem] = []
        if not spec.variant:
            message = "must name a flavor or an explicit variant of the queue while role is variant"
            found.append(Problem("spec.variant", message, REQUIRED))
        else:
            found += object_name(spec.variant, "spec.variant")
        if not any(one.kind == "Workload" and one.uid for one in owners):
            message = "must name the parent, a Workload with its uid, while spec.role is variant"
            found.append(Problem("metadata.ownerReferences", message, REQUIRED))
        return found
    given = {"spec.variant": spec.variant or None, "spec.siblingIndex": spec.sibling_index}
    message = f"must be left out while spec.role is {spec.role}: only variants have it"
    return [Problem(f, message, FORBIDDEN) for f, value in given.items() if value is not None]


def _several(pod_sets: tuple[PodSet, ...]) -> list[Problem]:
    found: list[Problem] = []
    for i in repeated(one.name for one in pod_sets):
        message = f"{shown(pod_sets[i].name)} is there twice"
        found.append(Problem(f"spec.podSets[{i}].name", message, DUPLICATE))
    if sum(1 for one in pod_sets if one.min_count is not None) > 1:
        message = "more than one pod set has a minCount"
        found.append(Problem("spec.podSets", message))
    return found


def _pod_set(pod_set: PodSet, path: str) -> list[Problem]:
    found = dns_label(pod_set.name, f"{path}.name")
    if pod_set.min_count is not None and pod_set.min_count > pod_set.count:
        message = f"must not exceed count {pod_set.count}, not {pod_set.min_count}"
        found.append(Problem(f"{path}.minCount", message))
    return found + check_template(pod_set.template, f"{path}.template")


def _class_ref(ref: PriorityClassRef, priority: int | None) -> list[Problem]:
    field = "spec.priorityClassRef"
    found: list[Problem] = []
    if ref.group in CLASSES and ref.kind != CLASSES[ref.group]:
        message = f"must be {CLASSES[ref.group]} in the group {ref.group}"
        found.append(Problem(f"{field}.kind", message))
    if ref.name:
        found += object_name(ref.name, f"{field}.name")
    if priority is None:
        message = "must be set while priorityClassRef is set"
        found.append(Problem("spec.priority", message, REQUIRED))
    return found


def _gates(spec: WorkloadSpec) -> list[Problem]:
    field = "spec.preemptionGates"
    gates = spec.preemption_gates
    found: list[Problem] = []
    for i in repeated(one.name for one in gates):
        message = f"{shown(gates[i].name)} is there twice"
        found.append(Problem(f"{field}[{i}].name", message, DUPLICATE))
    return found


def _constraints(workload: Workload) -> list[Problem]:
    field = "spec.admissionConstraints.allowedResourceFlavors"
    constraints = workload.spec.admission_constraints
    allowed = constraints.allowed_resource_flavors if constraints is not None else None
    if allowed is None:
        return []
    found: list[Problem] = []
    for i in repeated(allowed):
        found.append(Problem(f"{field}[{i}]", f"{shown(allowed[i])} is there twice", DUPLICATE))
    for i, name in enumerate(allowed):
        found += object_name(name, f"{field}[{i}]")
    annotated = flavors_of_annotation(workload.metadata)
    if annotated is not None and set(annotated) != set(allowed):
        message = "contradicts the annotation workload-allowed-resource-flavors"
        found.append(Problem(field, message, FORBIDDEN))
    return found


def check_gated_by(value: str) -> list[Problem]:
    """The annotation `GATED_BY`: names like ``example.com/gate``, by commas, each once."""
    field = f"metadata.annotations[{GATED_BY}]"
    gates = [gate.strip() for gate in value.split(",")] if value else []
    for gate in gates:
        if "/" not in gate or qualified(gate):
            return [Problem(field, f"{shown(gate)} is no name like example.com/gate")]
    if repeated(gates):
        return [Problem(field, "names a gate twice")]
    return []


def check_gated_by_update(old: Workload, new: Workload) -> list[Problem]:
    """Gates may be taken away from a workload, never added."""

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
    """What may not change. ``reserved``: quota is reserved; ``admitted``: it is Admitted."""
    found = check_gated_by_update(old, new)
    found += unchanged(old.spec.role, new.spec.role, "spec.role")
    if reserved:
        found += _frozen(old.spec, new.spec)
    if admitted:
        found += unchanged(
            old.spec.maximum_execution_time_seconds,
            new.spec.maximum_execution_time_seconds,
            "spec.maximumExecutionTimeSeconds",
            " while the workload is admitted",
        )
    return found


def _frozen(old: WorkloadSpec, new: WorkloadSpec) -> list[Problem]:
    when = " while quota is reserved"
    if len(old.pod_sets) != len(new.pod_sets):
        found = [Problem("spec.podSets", f"may not be changed{when}")]
    else:
        found = [
            problem
            for i, (before, after) in enumerate(zip(old.pod_sets, new.pod_sets, strict=True))
            for problem in unchanged(before, after, f"spec.podSets[{i}]", when)
        ]
    found += unchanged(old.queue_name, new.queue_name, "spec.queueName", when)
    before_ref, after_ref = old.priority_class_ref, new.priority_class_ref
    field = "spec.priorityClassRef"
    if before_ref is None or after_ref is None:
        return found + unchanged(before_ref, after_ref, field, when)
    found += unchanged(before_ref.group, after_ref.group, f"{field}.group", when)
    found += unchanged(before_ref.kind, after_ref.kind, f"{field}.kind", when)
    if after_ref.kind != "WorkloadPriorityClass":
        found += unchanged(before_ref.name, after_ref.name, f"{field}.name", when)
    return found


MIN_PARALLELISM: Final = "kueue.x-k8s.io/job-min-parallelism"
"""Annotation of a Job: it may start with as few pods as this."""


MAX_SECONDS_LABEL: Final = "kueue.x-k8s.io/max-exec-time-seconds"
"""Label of a Job: how long it may be admitted in all."""


def pods_of(job: Job) -> int:
    """How many pods of a job run at once."""
    parallelism = 1 if job.spec.parallelism is None else job.spec.parallelism
    completions = job.spec.completions
    return parallelism if completions is None else min(parallelism, completions)


def check_job(job: Job) -> list[Problem]:
    """Everything that is wrong with a Job that is to become a workload."""
    found = check_metadata(job.metadata, namespaced=True, kind="Job", generated=True)
    queue = job.metadata.labels.get(QUEUE_LABEL, "")
    if not queue:
        message = "must be set: it names the LocalQueue that the job goes to"
        found.append(Problem(f"metadata.labels[{QUEUE_LABEL}]", message, REQUIRED))
    else:
        found += object_name(queue, f"metadata.labels[{QUEUE_LABEL}]")
    written = job.metadata.annotations.get(MIN_PARALLELISM)
    if written is not None:
        count = pods_of(job)
        if not written.isascii() or not written.isdecimal() or not 0 < int(written[:12]) < count:
            message = f"must be a number from 1 to {count - 1}, not {shown(written)}"
            found.append(Problem(f"metadata.annotations[{MIN_PARALLELISM}]", message))
    limit = job.metadata.labels.get(MAX_SECONDS_LABEL)
    if limit is not None and not (limit.isascii() and limit.isdecimal() and int(limit[:12]) > 0):
        message = f"must be a number of seconds, not {shown(limit)}"
        found.append(Problem(f"metadata.labels[{MAX_SECONDS_LABEL}]", message))
    return found + check_template(job.spec.template, "spec.template")
