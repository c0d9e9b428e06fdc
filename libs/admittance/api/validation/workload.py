"""Rules of Workload and Job, and of the pod templates in them: docs/spec/scheduling.md#1.6."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from admittance.api.arrays import ARRAY_NAME_MAX, BadIndexes, parse_indexes
from admittance.api.fields.limits import CLASSES
from admittance.api.fields.names import (
    check_annotations,
    check_labels,
    check_unique,
    label_key_error,
    label_value_error,
)
from admittance.api.fields.problems import FORBIDDEN, NOT_SUPPORTED, REQUIRED, Problem, shown
from admittance.api.fields.units import parse
from admittance.api.manifests import flavors_of_annotation
from admittance.api.meta import Toleration
from admittance.api.pods import Affinity, NodeSelectorTerm, PodTemplate
from admittance.api.validation.containers import check_containers
from admittance.api.validation.files import check_noted_files
from admittance.api.validation.jobs import (
    check_job_spec,
    check_noted_folder,
    check_noted_policy,
    check_noted_warning,
    check_ttl,
)
from admittance.api.validation.meta import check_tolerations, check_values, object_name
from admittance.api.validation.pod_resources import check_pod_resources
from admittance.api.validation.pods_ready import check_wait_for_pods_ready
from admittance.api.workload import (
    GATED_BY,
    QUEUE_LABEL,
    Job,
    Kept,
    PodSet,
    PriorityClassRef,
    Workload,
    WorkloadSpec,
)


def check_workload(workload: Workload) -> list[Problem]:
    """The problems of a Workload. A rule is about the pod sets or about the other fields, not about
    both: pod sets that were submitted before are not validated again (`reading.workload_reader`).
    """
    spec = workload.spec
    problems = check_unique([each.name for each in spec.pod_sets], "spec.podSets", ".name")
    if sum(1 for each in spec.pod_sets if each.min_count is not None) > 1:
        problems.append(Problem("spec.podSets", "more than one pod set has a minCount"))
    for i, pod_set in enumerate(spec.pod_sets):
        problems += _pod_set(pod_set, f"spec.podSets[{i}]")
    if spec.priority_class_ref is not None:
        problems += _class_ref(spec.priority_class_ref, spec.priority)
    if spec.preemption_gates:
        problems += check_unique(
            [gate.name for gate in spec.preemption_gates], "spec.preemptionGates", ".name"
        )
    problems += _family(workload)
    if spec.lease_duration_seconds is not None and spec.array is not None:
        message = "does not go with spec.array: no program holds the quota of elements"
        problems.append(Problem("spec.leaseDurationSeconds", message, FORBIDDEN))
    problems += _array(workload)
    if spec.after:
        problems += _after(workload)
    if spec.admission_constraints is not None:
        problems += _allowed_flavors(workload, spec.admission_constraints.allowed_resource_flavors)
    annotations = workload.metadata.annotations
    if not annotations:
        return problems
    problems += check_ttl(annotations)
    if GATED_BY in annotations:
        problems += check_gated_by(annotations[GATED_BY])
    return problems + check_wait_for_pods_ready(annotations)


def _family(workload: Workload) -> list[Problem]:
    """The problems of the fields of variants: a variant has all of these fields, any other workload
    has none.
    """
    spec = workload.spec
    if spec.role != "variant":
        if not spec.variant and spec.sibling_index is None:
            return []
        given = {"spec.variant": spec.variant or None, "spec.siblingIndex": spec.sibling_index}
        message = f"must be left out while spec.role is {spec.role}: only variants have it"
        return [Problem(f, message, FORBIDDEN) for f, value in given.items() if value is not None]
    problems: list[Problem] = []
    if not spec.variant:
        message = "must name a flavor or an explicit variant of the queue while role is variant"
        problems.append(Problem("spec.variant", message, REQUIRED))
    else:
        problems += object_name(spec.variant, "spec.variant")
    owners = workload.metadata.owner_references
    if not any(owner.kind == "Workload" and owner.uid for owner in owners):
        message = "must name the parent, a Workload with its uid, while spec.role is variant"
        problems.append(Problem("metadata.ownerReferences", message, REQUIRED))
    return problems


def _array(workload: Workload) -> list[Problem]:
    """The problems of an array: a workload with the role array has the elements, no other has."""
    spec = workload.spec
    if spec.array is None:
        if spec.role != "array":
            return []
        return [Problem("spec.array", "must be set while spec.role is array", REQUIRED)]
    if spec.role == "variant":
        message = "must be left out while spec.role is variant"
        return [Problem("spec.array", message, FORBIDDEN)]
    problems: list[Problem] = []
    try:
        parse_indexes(spec.array.indexes)
    except BadIndexes as error:
        problems.append(Problem("spec.array.indexes", str(error)))
    if wrong := array_name_error(workload.metadata.name):
        problems.append(Problem("metadata.name", wrong))
    return problems


def _after(workload: Workload) -> list[Problem]:
    spec = workload.spec
    problems: list[Problem] = []
    for i, dependency in enumerate(spec.after):
        path = f"spec.after[{i}]"
        if spec.role == "variant":
            problems.append(Problem(path, "must be left out: its parent waits", FORBIDDEN))
        if dependency.elementwise and spec.array is None:
            message = "goes with spec.array only: each element waits for one element"
            problems.append(Problem(f"{path}.elementwise", message, FORBIDDEN))
        if dependency.elementwise and dependency.index is not None:
            message = "must be left out with elementwise"
            problems.append(Problem(f"{path}.index", message, FORBIDDEN))
        if dependency.condition == "started" and (
            dependency.elementwise or dependency.index is not None
        ):
            message = "cannot be started for one element of an array: only results are known"
            problems.append(Problem(f"{path}.condition", message, FORBIDDEN))
        if dependency.workload == workload.metadata.name:
            problems.append(Problem(f"{path}.workload", "is the workload itself"))
    return problems


def array_name_error(name: str) -> str:
    """Why an array cannot have the name; "": it can. The name is the value of a label."""
    if len(name) > ARRAY_NAME_MAX:
        return f"the name of an array has at most {ARRAY_NAME_MAX} characters, not {len(name)}"
    return label_value_error(name)


def _pod_set(pod_set: PodSet, path: str) -> list[Problem]:
    problems = check_template(pod_set.template, f"{path}.template")
    problems += check_noted_policy(pod_set.template, f"{path}.template")
    problems += check_noted_folder(pod_set.template, f"{path}.template")
    problems += check_noted_warning(pod_set.template, f"{path}.template")
    problems += check_noted_files(pod_set.template, f"{path}.template", pod_set.count)
    if pod_set.min_count is not None and pod_set.min_count > pod_set.count:
        message = f"must not exceed count {pod_set.count}, not {pod_set.min_count}"
        problems.append(Problem(f"{path}.minCount", message))
    return problems


def _class_ref(ref: PriorityClassRef, priority: int | None) -> list[Problem]:
    problems: list[Problem] = []
    if ref.group in CLASSES and ref.kind != CLASSES[ref.group]:
        message = f"must be {CLASSES[ref.group]} in the group {ref.group}"
        problems.append(Problem("spec.priorityClassRef.kind", message))
    if priority is None:
        message = "must be set while priorityClassRef is set"
        problems.append(Problem("spec.priority", message, REQUIRED))
    return problems


def _allowed_flavors(workload: Workload, allowed: tuple[str, ...] | None) -> list[Problem]:
    if allowed is None:
        return []
    field = "spec.admissionConstraints.allowedResourceFlavors"
    problems = check_unique(allowed, field)
    annotated = flavors_of_annotation(workload.metadata)
    if annotated is not None and set(annotated) != set(allowed):
        message = "contradicts the annotation workload-allowed-resource-flavors"
        problems.append(Problem(field, message, FORBIDDEN))
    return problems


# Pod templates. -------------------------------------------------------------------------------


def check_template(template: PodTemplate, path: str) -> list[Problem]:
    """The problems of the containers, the tolerations and the node affinity of a pod template."""
    pod = template.spec
    problems = check_containers(pod, f"{path}.spec")
    problems += check_pod_resources(pod, f"{path}.spec.resources")
    if pod.tolerations:
        problems += check_tolerations(pod.tolerations, f"{path}.spec.tolerations")
    if pod.affinity is not None:
        problems += _affinity(pod.affinity, f"{path}.spec.affinity")
    return problems


def _affinity(affinity: Affinity, path: str) -> list[Problem]:
    if affinity.node_affinity is None:
        return []
    path += ".nodeAffinity."
    required = affinity.node_affinity.required_during_scheduling_ignored_during_execution
    preferred = affinity.node_affinity.preferred_during_scheduling_ignored_during_execution
    terms: dict[str, NodeSelectorTerm] = {}
    for i, term in enumerate(required.node_selector_terms if required is not None else ()):
        terms[f"{path}requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[{i}]"] = term
    for i, choice in enumerate(preferred):
        place = f"{path}preferredDuringSchedulingIgnoredDuringExecution[{i}].preference"
        terms[place] = choice.preference
    problems: list[Problem] = []
    for place, term in terms.items():
        for j, expression in enumerate(term.match_expressions):
            field = f"{place}.matchExpressions[{j}].values"
            problems += check_values(expression.operator, expression.values, field)
            if expression.operator in ("In", "NotIn"):
                errors = map(label_value_error, expression.values)
                problems += [Problem(field, error) for error in errors if error]
    return problems


def requests_over_limits(workload: WorkloadSpec) -> list[Problem]:
    """The problems of requests above their limits: a workload with such a request may exist, but is
    inadmissible.
    """
    problems: list[Problem] = []
    for i, pod_set in enumerate(workload.pod_sets):
        pod = pod_set.template.spec
        places = [
            *(
                (container.resources, "initContainers", j)
                for j, container in enumerate(pod.init_containers)
            ),
            *((container.resources, "containers", j) for j, container in enumerate(pod.containers)),
        ]
        if pod.resources is not None:
            places.append((pod.resources, "resources", -1))
        for resources, field, j in places:
            if not resources.limits or not resources.requests:
                continue
            over = [
                name
                for name, limit in resources.limits.items()
                if name in resources.requests and parse(resources.requests[name]) > parse(limit)
            ]
            if over:
                place = f"{field}[{j}]" if j >= 0 else field
                path = f"spec.podSets[{i}].template.spec.{place}"
                problems.append(Problem(path, f"requests exceed limits: {', '.join(over)}"))
    return problems


# Gates and updates of a workload. -------------------------------------------------------------


def check_gated_by(value: str) -> list[Problem]:
    """The problems of the annotation `GATED_BY`, which has different names like
    ``example.com/gate``, with commas between.
    """
    field = f"metadata.annotations[{GATED_BY}]"
    gates = [gate.strip() for gate in value.split(",")] if value else []
    for gate in gates:
        if "/" not in gate or label_key_error(gate):
            return [Problem(field, f"{shown(gate)} is not a name like example.com/gate")]
    return [Problem(field, "names a gate twice")] if len(set(gates)) < len(gates) else []


MIN_PARALLELISM: Final = "kueue.x-k8s.io/job-min-parallelism"
"""Annotation of a Job: the fewest pods with which the Job may start."""

MAX_SECONDS_LABEL: Final = "kueue.x-k8s.io/max-exec-time-seconds"
"""Label of a Job: the most seconds that the Job may be admitted, in all runs together."""


def pods_of(job: Job) -> int:
    """The number of a job's pods that run at once."""
    parallelism = 1 if job.spec.parallelism is None else job.spec.parallelism
    completions = job.spec.completions
    return parallelism if completions is None else min(parallelism, completions)


def check_job(job: Job) -> list[Problem]:
    """The problems of a Job that becomes a workload."""
    problems: list[Problem] = []
    queue = job.metadata.labels.get(QUEUE_LABEL, "")
    if not queue:
        message = "must be set to the name of a LocalQueue"
        problems.append(Problem(f"metadata.labels[{QUEUE_LABEL}]", message, REQUIRED))
    else:
        problems += object_name(queue, f"metadata.labels[{QUEUE_LABEL}]")
    written = job.metadata.annotations.get(MIN_PARALLELISM)
    if written is not None:
        count = pods_of(job)
        if not written.isascii() or not written.isdecimal() or not 0 < int(written[:12]) < count:
            message = _not_fewer(count, written)
            problems.append(Problem(f"metadata.annotations[{MIN_PARALLELISM}]", message))
    limit = job.metadata.labels.get(MAX_SECONDS_LABEL)
    if limit is not None and not (limit.isascii() and limit.isdecimal() and int(limit[:12]) > 0):
        message = f"must be a number of seconds, not {shown(limit)}"
        problems.append(Problem(f"metadata.labels[{MAX_SECONDS_LABEL}]", message))
    problems += check_wait_for_pods_ready(job.metadata.annotations)
    problems += check_job_spec(job)
    return problems + check_template(job.spec.template, "spec.template")


def _not_fewer(count: int, written: str) -> str:
    """Why the text is not a number of pods that is smaller than ``count``."""
    if count < 2:
        pods = "1 pod" if count else "no pod"
        return f"must be left out: the Job runs {pods} at once, so it cannot start with fewer"
    allowed = "1" if count == 2 else f"a number from 1 to {count - 1}"
    return f"must be {allowed}, not {shown(written)}"


# Verdicts. ------------------------------------------------------------------------------------


class TypedPodSetUpdate(Kept, frozen=True, kw_only=True):
    """One entry of the podSetUpdates in a verdict, with typed tolerations."""

    name: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()


def check_updates(
    updates: Sequence[TypedPodSetUpdate], pod_sets: Sequence[str], field: str
) -> list[Problem]:
    """The problems of podSetUpdates: unknown pod sets, and invalid keys and values."""
    problems: list[Problem] = []
    for i, update in enumerate(updates):
        path = f"{field}[{i}]"
        if update.name not in pod_sets:
            message = f"{shown(update.name)} is not one of the pod sets {', '.join(pod_sets)}"
            problems.append(Problem(f"{path}.name", message, NOT_SUPPORTED))
        for j, toleration in enumerate(update.tolerations):
            if toleration.key and (error := label_key_error(toleration.key)):
                problems.append(Problem(f"{path}.tolerations[{j}].key", error))
        problems += check_annotations(update.annotations, f"{path}.annotations")
        problems += check_labels(update.node_selector, f"{path}.nodeSelector")
        problems += check_labels(update.labels, f"{path}.labels")
    return problems
