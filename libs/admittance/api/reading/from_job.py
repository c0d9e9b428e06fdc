"""Jobs and commands to workloads, as Kueue makes them; a workload is named like its job."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from admittance.api.limits import Quantity
from admittance.api.manifests import defaulted
from admittance.api.meta import ObjectMeta
from admittance.api.pods import Container, EnvVar, PodSpec, PodTemplate, ResourceRequirements
from admittance.api.problems import REQUIRED, ManifestError, Problem
from admittance.api.validation.validate import validate
from admittance.api.validation.workload import MAX_SECONDS_LABEL, MIN_PARALLELISM, pods_of
from admittance.api.workload import (
    COMPLETIONS,
    PRIORITY_CLASS_LABEL,
    QUEUE_LABEL,
    Job,
    PodSet,
    PriorityClassRef,
    Workload,
    WorkloadSpec,
)

BACKOFF_LIMIT: Final = "admittance.dev/backoff-limit"
"""Annotation of a pod template: how many pods may fail before the job does."""

GPU: Final = "nvidia.com/gpu"

SUFFIX_LENGTH: Final = 5
"""Characters that follow a generateName; the caller chooses them."""

_GENERATED_MAX: Final = 253 - SUFFIX_LENGTH
_OF_A_JOB: Final = frozenset(
    {
        "controller-uid",
        "job-name",
        "batch.kubernetes.io/controller-uid",
        "batch.kubernetes.io/job-name",
    }
)
"""Labels that the Job controller of a cluster puts on templates: they name another job's pods."""

_EXPANDED: Final = re.compile(r"\$(?=[$(])")
"""A dollar sign that the expansion of ``$(NAME)`` and ``$$`` would look at."""

_NOT_CARRIED: Final = frozenset({"kubectl.kubernetes.io/last-applied-configuration"})


def named(metadata: ObjectMeta, suffix: str) -> ObjectMeta:
    """metadata with a name: its own, else its generateName followed by suffix."""
    if metadata.name or not metadata.generate_name:
        return metadata
    return replace(
        metadata, name=metadata.generate_name[:_GENERATED_MAX] + suffix, generate_name=""
    )


def _seconds(job: Job) -> int | None:
    """The shorter of the label and activeDeadlineSeconds: for either, time is up when it is up."""
    limits = []
    if MAX_SECONDS_LABEL in job.metadata.labels:
        limits.append(int(job.metadata.labels[MAX_SECONDS_LABEL]))
    if job.spec.active_deadline_seconds is not None:
        limits.append(job.spec.active_deadline_seconds)
    return min(limits) if limits else None


def _template(job: Job, count: int) -> PodTemplate:
    template = job.spec.template
    labels = {k: v for k, v in template.metadata.labels.items() if k not in _OF_A_JOB}
    annotations = dict(template.metadata.annotations)
    completions = job.spec.completions
    fewer = MIN_PARALLELISM in job.metadata.annotations
    if completions is not None and (completions != count or fewer):
        # Also where it is the count, if fewer pods may start: what is wanted stays the same.
        annotations[COMPLETIONS] = str(completions)
    if job.spec.backoff_limit is not None:
        annotations[BACKOFF_LIMIT] = str(job.spec.backoff_limit)
    return replace(
        template, metadata=replace(template.metadata, labels=labels, annotations=annotations)
    )


def workload_of(job: Job, *, suffix: str = "", queue: str = "", namespace: str = "") -> Workload:
    """The workload of job: one pod set ``main``. Raises ManifestError.

    ``suffix`` completes a generateName; ``queue`` goes before the job's own label; ``namespace`` is
    for a job that names none. ``suspend`` is ignored: a job here waits until it is admitted. The
    priority of a class is not known here: see `resolve_priority`.
    """
    if queue:
        labels = {**job.metadata.labels, QUEUE_LABEL: queue}
        job = replace(job, metadata=replace(job.metadata, labels=labels))
    problems = validate(job)
    if problems:
        raise ManifestError(problems, about=f"Job {job.metadata.name}".rstrip())
    metadata = named(job.metadata, suffix)
    count = pods_of(job)
    written = metadata.annotations.get(MIN_PARALLELISM)
    template = _template(job, count)
    class_name = metadata.labels.get(PRIORITY_CLASS_LABEL, "")
    workload = Workload(
        metadata=ObjectMeta(
            name=metadata.name,
            generate_name=metadata.generate_name,
            namespace=metadata.namespace,
            labels=metadata.labels,
            annotations={k: v for k, v in metadata.annotations.items() if k not in _NOT_CARRIED},
        ),
        spec=WorkloadSpec(
            pod_sets=(
                PodSet(
                    count=count,
                    min_count=None if written is None else int(written),
                    template=template,
                ),
            ),
            queue_name=metadata.labels[QUEUE_LABEL],
            priority=None if class_name else template.spec.priority,
            priority_class_ref=class_ref(class_name) if class_name else None,
            maximum_execution_time_seconds=_seconds(job),
        ),
    )
    done = defaulted(workload, namespace)
    assert isinstance(done, Workload)
    return done


def class_ref(name: str) -> PriorityClassRef:
    """A reference to the WorkloadPriorityClass name."""
    return PriorityClassRef(group="kueue.x-k8s.io", kind="WorkloadPriorityClass", name=name)


def resolve_priority(workload: Workload, value_of: Callable[[str], int | None]) -> Workload:
    """workload with the priority of its WorkloadPriorityClass, where it states none of its own.

    ``value_of`` answers None for a class that does not exist; then the priority stays unset, and
    `validate` says so.
    """
    ref = workload.spec.priority_class_ref
    if ref is None or workload.spec.priority is not None or ref.kind != "WorkloadPriorityClass":
        return workload
    value = value_of(ref.name)
    return replace(workload, spec=replace(workload.spec, priority=value))


def literal(text: str) -> str:
    """text as a manifest has to spell it so that Kubernetes' expansion gives it back unchanged."""
    return _EXPANDED.sub("$$", text)


def from_command(
    command: Sequence[str],
    *,
    name: str,
    namespace: str,
    queue: str,
    cpu: Quantity = 1,
    memory: Quantity = "1Gi",
    gpu: Quantity = 0,
    count: int = 1,
    priority: int | None = None,
    priority_class: str = "",
    env: Mapping[str, str] | None = None,
    image: str = "",
) -> Workload:
    """A workload of count pods, each of which runs command. Raises ManifestError.

    What is asked zero of is not asked for. ``priority`` and ``priority_class`` may both be given.
    Each word of command and each value of env reaches the process as it is: ``$(NAME)`` and ``$$``
    mean something in manifests only, and are escaped here.
    """
    if not command or not command[0]:
        raise ManifestError([Problem("", "there must be a command to run", REQUIRED)])
    asked: dict[str, Quantity] = {"cpu": cpu, "memory": memory, GPU: gpu}
    requests = {resource: one for resource, one in asked.items() if one not in (0, "0", "")}
    container = Container(
        name="main",
        image=image,
        command=tuple(map(literal, command)),
        env=tuple(EnvVar(name=k, value=literal(v)) for k, v in (env or {}).items()),
        resources=ResourceRequirements(requests=requests),
    )
    workload = Workload(
        metadata=ObjectMeta(name=name, namespace=namespace),
        spec=WorkloadSpec(
            pod_sets=(
                PodSet(
                    count=count,
                    template=PodTemplate(
                        spec=PodSpec(containers=(container,), restart_policy="Never")
                    ),
                ),
            ),
            queue_name=queue,
            priority=priority,
            priority_class_ref=class_ref(priority_class) if priority_class else None,
        ),
    )
    problems = [
        problem
        for problem in validate(workload)
        # The class is looked up at the door.
        if not (priority_class and problem.field == "spec.priority" and priority is None)
    ]
    if problems:
        raise ManifestError(problems, about=f"Workload {name}")
    return workload
