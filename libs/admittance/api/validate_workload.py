"""Rules of Workload and of the pod templates in it: SCHEDULING 1.6."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from admittance.api.defaults import flavors_of_annotation
from admittance.api.job import Job
from admittance.api.names import check_annotations, check_labels, qualified, repeated
from admittance.api.pods import Affinity, Container, PodSpec, PodTemplate, ResourceRequirements
from admittance.api.problems import DUPLICATE, FORBIDDEN, REQUIRED, TOO_LONG, Problem, shown
from admittance.api.quantity import BadQuantity, parse
from admittance.api.queues import Quantity
from admittance.api.validate_meta import (
    at_most,
    check_metadata,
    check_tolerations,
    check_values,
    dns_label,
    in_range,
    object_name,
    one_of,
    unchanged,
)
from admittance.api.words import ROLES
from admittance.api.workload import (
    GATED_BY,
    QUEUE_LABEL,
    PodSet,
    PriorityClassRef,
    Workload,
    WorkloadSpec,
)

POD_SETS_MAX: Final = 18
GATES_MAX: Final = 8
GATE_NAME_MAX: Final = 63
CLASSES: Final = {
    "kueue.x-k8s.io": "WorkloadPriorityClass",
    "scheduling.k8s.io": "PriorityClass",
}
MIN_PARALLELISM: Final = "kueue.x-k8s.io/job-min-parallelism"
"""Annotation of a Job: it may start with as few pods as this."""

MAX_SECONDS_LABEL: Final = "kueue.x-k8s.io/max-exec-time-seconds"
"""Label of a Job: how long it may be admitted in all."""

_NODE_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")


def check_workload(workload: Workload) -> list[Problem]:
    """Everything that is wrong with a Workload by itself; its status apart."""
    found = check_metadata(workload.metadata, namespaced=True, kind="Workload", generated=True)
    spec = workload.spec
    if not spec.pod_sets:
        found.append(Problem("spec.podSets", "must not be empty", REQUIRED))
    elif len(spec.pod_sets) > 1:
        found += _several(spec.pod_sets)
    for i, pod_set in enumerate(spec.pod_sets):
        found += _pod_set(pod_set, f"spec.podSets[{i}]")
    if spec.queue_name:
        found += object_name(spec.queue_name, "spec.queueName")
    found += in_range(spec.priority, "spec.priority")
    if spec.priority_class_ref is not None:
        found += _class_ref(spec.priority_class_ref, spec.priority)
    found += in_range(spec.maximum_execution_time_seconds, "spec.maximumExecutionTimeSeconds", 1)
    if spec.preemption_gates:
        found += _gates(spec)
    found += one_of(spec.role, ROLES, "spec.role")
    if spec.admission_constraints is not None:
        found += _constraints(workload)
    if GATED_BY in workload.metadata.annotations:
        found += check_gated_by(workload.metadata.annotations[GATED_BY])
    return found


def _several(pod_sets: tuple[PodSet, ...]) -> list[Problem]:
    found = at_most(len(pod_sets), POD_SETS_MAX, "spec.podSets", "pod sets")
    for i in repeated(one.name for one in pod_sets):
        message = f"{shown(pod_sets[i].name)} is there twice"
        found.append(Problem(f"spec.podSets[{i}].name", message, DUPLICATE))
    if sum(1 for one in pod_sets if one.min_count is not None) > 1:
        message = "more than one pod set has a minCount"
        found.append(Problem("spec.podSets", message))
    return found


def _pod_set(pod_set: PodSet, path: str) -> list[Problem]:
    found = dns_label(pod_set.name, f"{path}.name")
    found += in_range(pod_set.count, f"{path}.count", 0)
    if pod_set.min_count is not None:
        found += in_range(pod_set.min_count, f"{path}.minCount", 1)
        if pod_set.min_count > pod_set.count:
            message = f"must not exceed count {pod_set.count}, not {pod_set.min_count}"
            found.append(Problem(f"{path}.minCount", message))
    return found + check_template(pod_set.template, f"{path}.template")


def check_template(template: PodTemplate, path: str) -> list[Problem]:
    """Labels, requests, limits, selectors and tolerations of a pod template."""
    found: list[Problem] = []
    if template.metadata.labels:
        found += check_labels(template.metadata.labels, f"{path}.metadata.labels")
    if template.metadata.annotations:
        found += check_annotations(template.metadata.annotations, f"{path}.metadata.annotations")
    return found + _pod(template.spec, f"{path}.spec")


def _pod(pod: PodSpec, path: str) -> list[Problem]:
    found: list[Problem] = []
    for i, container in enumerate(pod.init_containers):
        found += _container(container, f"{path}.initContainers[{i}]")
    for i, container in enumerate(pod.containers):
        found += _container(container, f"{path}.containers[{i}]")
    if pod.resources is not None:
        found += _resources(pod.resources, f"{path}.resources")
    if pod.overhead:
        found += _quantities(pod.overhead, f"{path}.overhead")
    if pod.node_selector:
        found += check_labels(pod.node_selector, f"{path}.nodeSelector")
    if pod.tolerations:
        found += check_tolerations(pod.tolerations, f"{path}.tolerations")
    if pod.affinity is not None:
        found += _affinity(pod.affinity, f"{path}.affinity")
    return found


def _container(container: Container, path: str) -> list[Problem]:
    if container.resources.requests or container.resources.limits:
        return _resources(container.resources, f"{path}.resources")
    return []


def _resources(resources: ResourceRequirements, path: str) -> list[Problem]:
    # Whether requests exceed limits is no matter of the manifest: such a workload may exist, but
    # is inadmissible, as `exceeding` says.
    found = _quantities(resources.requests, f"{path}.requests")
    if resources.limits:
        found += _quantities(resources.limits, f"{path}.limits")
    return found


def _quantities(quantities: Mapping[str, Quantity], path: str) -> list[Problem]:
    found: list[Problem] = []
    for resource, written in quantities.items():
        if resource == "pods":
            found.append(Problem(f"{path}[pods]", "is reserved: pods are counted, not asked for"))
        elif complaint := qualified(resource):
            found.append(Problem(f"{path}[{resource}]", complaint))
        try:
            if parse(written) < 0:
                message = f"must not be negative, not {written}"
                found.append(Problem(f"{path}[{resource}]", message))
        except BadQuantity as error:
            found.append(Problem(f"{path}[{resource}]", str(error)))
    return found


def exceeding(workload: WorkloadSpec) -> list[Problem]:
    """Where a request exceeds its limit: such a workload is inadmissible."""
    found: list[Problem] = []
    for i, pod_set in enumerate(workload.pod_sets):
        pod, path = pod_set.template.spec, f"spec.podSets[{i}].template.spec"
        places = [
            (one.resources, f"{path}.initContainers[{j}]")
            for j, one in enumerate(pod.init_containers)
        ]
        places += [
            (one.resources, f"{path}.containers[{j}]") for j, one in enumerate(pod.containers)
        ]
        if pod.resources is not None:
            places.append((pod.resources, f"{path}.resources"))
        for resources, field in places:
            over = [
                name
                for name, limit in resources.limits.items()
                if name in resources.requests and parse(resources.requests[name]) > parse(limit)
            ]
            if over:
                found.append(Problem(field, f"requests exceed limits: {', '.join(over)}"))
    return found


def _affinity(affinity: Affinity, path: str) -> list[Problem]:
    if affinity.node_affinity is None:
        return []
    required = affinity.node_affinity.required_during_scheduling_ignored_during_execution
    if required is None:
        return []
    path += ".nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
    if not required.node_selector_terms:
        return [Problem(path, "must not be empty", REQUIRED)]
    found: list[Problem] = []
    for i, term in enumerate(required.node_selector_terms):
        for j, one in enumerate(term.match_expressions):
            field = f"{path}[{i}].matchExpressions[{j}]"
            if complaint := qualified(one.key):
                found.append(Problem(f"{field}.key", complaint))
            found += check_values(one.operator, one.values, field, _NODE_OPERATORS)
        for j, one in enumerate(term.match_fields):
            field = f"{path}[{i}].matchFields[{j}]"
            if one.key != "metadata.name":
                found.append(Problem(f"{field}.key", "must be metadata.name"))
            found += one_of(one.operator, ("In", "NotIn"), f"{field}.operator")
    return found


def _class_ref(ref: PriorityClassRef, priority: int | None) -> list[Problem]:
    field = "spec.priorityClassRef"
    found = one_of(ref.group, CLASSES, f"{field}.group")
    if not found and ref.kind != CLASSES[ref.group]:
        message = f"must be {CLASSES[ref.group]} in the group {ref.group}"
        found.append(Problem(f"{field}.kind", message))
    if not ref.name:
        found.append(Problem(f"{field}.name", "must be set", REQUIRED))
    else:
        found += object_name(ref.name, f"{field}.name")
    if priority is None:
        message = "must be set while priorityClassRef is set"
        found.append(Problem("spec.priority", message, REQUIRED))
    return found


def _gates(spec: WorkloadSpec) -> list[Problem]:
    field = "spec.preemptionGates"
    gates = spec.preemption_gates
    found = at_most(len(gates), GATES_MAX, field, "gates")
    for i in repeated(one.name for one in gates):
        message = f"{shown(gates[i].name)} is there twice"
        found.append(Problem(f"{field}[{i}].name", message, DUPLICATE))
    for i, one in enumerate(gates):
        if not one.name:
            found.append(Problem(f"{field}[{i}].name", "must be set", REQUIRED))
        elif len(one.name) > GATE_NAME_MAX:
            message = f"has more than {GATE_NAME_MAX} characters"
            found.append(Problem(f"{field}[{i}].name", message, TOO_LONG))
    return found


def _constraints(workload: Workload) -> list[Problem]:
    field = "spec.admissionConstraints.allowedResourceFlavors"
    constraints = workload.spec.admission_constraints
    allowed = constraints.allowed_resource_flavors if constraints is not None else None
    if allowed is None:
        return []
    found: list[Problem] = []
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
    spec = job.spec
    for name, value, least in (
        ("parallelism", spec.parallelism, 0),
        ("completions", spec.completions, 0),
        ("backoffLimit", spec.backoff_limit, 0),
        ("activeDeadlineSeconds", spec.active_deadline_seconds, 1),
    ):
        found += in_range(value, f"spec.{name}", least)
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
    return found + check_template(spec.template, "spec.template")
