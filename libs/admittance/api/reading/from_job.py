"""Makes workloads from Jobs and commands, as Kueue does. A workload has the name of its job."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from admittance.api.fields.limits import Quantity
from admittance.api.fields.problems import REQUIRED, ManifestError, Problem
from admittance.api.fields.warning_signal import WARNING_SIGNAL, WarningSignal
from admittance.api.manifests import with_defaults
from admittance.api.meta import ObjectMeta
from admittance.api.pods import Container, EnvVar, PodSpec, PodTemplate, ResourceRequirements
from admittance.api.reading.priority import class_ref
from admittance.api.validation.jobs import EQUAL_PARALLELISM
from admittance.api.validation.validate import validate
from admittance.api.validation.workload import MAX_SECONDS_LABEL, MIN_PARALLELISM, pods_of
from admittance.api.workload import (
    COMPLETIONS,
    JOB_POLICY,
    PRIORITY_CLASS_LABEL,
    QUEUE_LABEL,
    TTL_AFTER_FINISHED,
    Job,
    PodSet,
    Workload,
    WorkloadSpec,
    policy_of,
    written_policy,
)
from admittance.folders import SUBMITTED_FROM, SubmittedFrom, written_folder

GPU: Final = "nvidia.com/gpu"

SUFFIX_LENGTH: Final = 5
"""Length of the suffix of a generateName."""

_GENERATED_MAX: Final = 253 - SUFFIX_LENGTH
_OF_A_JOB: Final = frozenset(
    {
        "controller-uid",
        "job-name",
        "batch.kubernetes.io/controller-uid",
        "batch.kubernetes.io/job-name",
    }
)
"""Labels that the Job controller of a Kubernetes cluster adds to pod templates. A workload must not
keep these labels: they would select the pods of the cluster's job.
"""

_EXPANDED: Final = re.compile(r"\$(?=[$(])")
"""A dollar sign that begins ``$(NAME)`` or ``$$``, which Kubernetes expands."""

_NOT_CARRIED: Final = frozenset({"kubectl.kubernetes.io/last-applied-configuration"})


def with_name(metadata: ObjectMeta, suffix: str) -> ObjectMeta:
    """The metadata with a name: the name it has, or its generateName plus the suffix."""
    if metadata.name or not metadata.generate_name:
        return metadata
    return replace(
        metadata, name=metadata.generate_name[:_GENERATED_MAX] + suffix, generate_name=""
    )


def _template(job: Job, count: int) -> PodTemplate:
    template = job.spec.template
    labels = {k: v for k, v in template.metadata.labels.items() if k not in _OF_A_JOB}
    annotations = dict(template.metadata.annotations)
    completions = job.spec.completions
    fewer = MIN_PARALLELISM in job.metadata.annotations
    equal = job.metadata.annotations.get(EQUAL_PARALLELISM) == "true"
    if completions is not None and not equal and (completions != count or fewer):
        # The annotation is set even if completions equals the count: with minCount fewer pods may
        # start, but ``completions`` pods must succeed.
        annotations[COMPLETIONS] = str(completions)
    annotations[JOB_POLICY] = written_policy(policy_of(job))
    return replace(
        template, metadata=replace(template.metadata, labels=labels, annotations=annotations)
    )


def _annotations(job: Job) -> dict[str, str]:
    """The annotations of the job's workload."""
    kept = {k: v for k, v in job.metadata.annotations.items() if k not in _NOT_CARRIED}
    if job.spec.ttl_seconds_after_finished is not None:
        kept[TTL_AFTER_FINISHED] = str(job.spec.ttl_seconds_after_finished)
    return kept


def workload_of(job: Job, *, suffix: str = "") -> Workload:
    """The workload of a job, with one pod set ``main``. Raises ManifestError.

    ``suffix`` completes a generateName. ``suspend`` true or false means the same, since each job
    waits for its admission. `priority.resolve_priority` adds the priority of a class.
    """
    problems = validate(job)
    if problems:
        raise ManifestError(problems, about=f"Job {job.metadata.name}".rstrip())
    metadata = with_name(job.metadata, suffix)
    count = pods_of(job)
    written = metadata.annotations.get(MIN_PARALLELISM)
    seconds = metadata.labels.get(MAX_SECONDS_LABEL)
    template = _template(job, count)
    class_name = metadata.labels.get(PRIORITY_CLASS_LABEL, "")
    states_priority = not class_name and not template.spec.priority_class_name
    workload = Workload(
        metadata=ObjectMeta(
            name=metadata.name,
            generate_name=metadata.generate_name,
            namespace=metadata.namespace,
            labels=metadata.labels,
            annotations=_annotations(job),
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
            priority=template.spec.priority if states_priority else None,
            priority_class_ref=class_ref(class_name) if class_name else None,
            maximum_execution_time_seconds=None if seconds is None else int(seconds),
        ),
    )
    done = with_defaults(workload)
    assert isinstance(done, Workload)
    return done


def literal(text: str) -> str:
    """The text with ``$`` escaped for a manifest, so that Kubernetes' expansion returns the
    original text.
    """
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
    working_dir: str = "",
    folder: SubmittedFrom | None = None,
    warning: WarningSignal | None = None,
) -> Workload:
    """A workload of ``count`` pods that each run the command. Raises ManifestError for wrong
    arguments. ``folder``: the folder that ``working_dir`` must be; None: the path alone counts.

    A resource with the quantity 0 is not requested. ``priority`` and ``priority_class`` may both be
    given. Each word of the command and each value of env reaches the process unchanged: ``$(NAME)``
    and ``$$`` are escaped.
    """
    if not command or not command[0]:
        raise ManifestError(
            [Problem("", "the workload needs a command for its pods to run", REQUIRED)]
        )
    wanted: dict[str, Quantity] = {"cpu": cpu, "memory": memory, GPU: gpu}
    requests = {
        resource: amount for resource, amount in wanted.items() if amount not in (0, "0", "")
    }
    container = Container(
        name="main",
        image=image,
        command=tuple(map(literal, command)),
        env=tuple(EnvVar(name=k, value=literal(v)) for k, v in (env or {}).items()),
        resources=ResourceRequirements(requests=requests),
        working_dir=working_dir,
    )
    noted = {} if folder is None else {SUBMITTED_FROM: written_folder(folder)}
    if warning is not None:
        noted[WARNING_SIGNAL] = str(warning)
    workload = Workload(
        metadata=ObjectMeta(name=name, namespace=namespace),
        spec=WorkloadSpec(
            pod_sets=(
                PodSet(
                    count=count,
                    template=PodTemplate(
                        metadata=ObjectMeta(annotations=noted),
                        spec=PodSpec(containers=(container,), restart_policy="Never"),
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
        # The workload-controller resolves the priority class later.
        if not (priority_class and problem.field == "spec.priority" and priority is None)
    ]
    if problems:
        raise ManifestError(problems, about=f"Workload {name}")
    return workload
