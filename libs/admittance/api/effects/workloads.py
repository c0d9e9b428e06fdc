"""What the fields of Workload and Job do."""

from __future__ import annotations

from typing import Final

from admittance.api.effects.field_effect import (
    BY_SYSTEM,
    HEAD,
    Table,
    all_work,
    in_part,
    no_effect,
    works,
)
from admittance.api.workload import (
    AdmissionConstraints,
    Job,
    JobSpec,
    NamedGate,
    PodSet,
    PriorityClassRef,
    Workload,
    WorkloadSpec,
)

WORKLOADS: Final[Table] = {
    Workload: {**HEAD, **all_work("spec"), "status": BY_SYSTEM},
    WorkloadSpec: all_work(
        "podSets",
        "queueName",
        "priority",
        "priorityClassRef",
        "active",
        "maximumExecutionTimeSeconds",
        "preemptionGates",
        "admissionConstraints",
        "role",
        "variant",
        "siblingIndex",
    ),
    PodSet: {
        **all_work("name", "count", "minCount", "template"),
        "topologyRequest": no_effect("pods are not placed by topology"),
    },
    PriorityClassRef: all_work("group", "kind", "name"),
    NamedGate: all_work("name"),
    AdmissionConstraints: all_work("allowedResourceFlavors"),
    Job: {**HEAD, **all_work("spec"), "status": BY_SYSTEM},
    JobSpec: {
        **all_work("parallelism", "completions", "template"),
        "suspend": works("a Job waits for its admission, whatever its value"),
        "activeDeadlineSeconds": works(
            "the most seconds that the Job is admitted, in all its runs"
        ),
        "backoffLimit": no_effect("the first pod that fails ends the job", usual=(0,)),
        "backoffLimitPerIndex": no_effect("the first pod that fails ends the job", usual=(0,)),
        "maxFailedIndexes": no_effect("the first pod that fails ends the job", usual=(0,)),
        "completionMode": in_part(
            "every pod has an index, also of a `NonIndexed` Job", usual=("Indexed", "NonIndexed")
        ),
        "managedBy": no_effect(
            "the runner of this deployment runs the job", usual=("kubernetes.io/job-controller",)
        ),
        "manualSelector": no_effect("pods are not found by labels"),
        "selector": no_effect("pods are not found by labels"),
        "podFailurePolicy": no_effect("the first pod that fails ends the job"),
        "podReplacementPolicy": no_effect(
            "failed pods are not replaced", usual=("TerminatingOrFailed", "Failed")
        ),
        "successPolicy": no_effect("a job succeeds when all its pods have succeeded"),
        "ttlSecondsAfterFinished": no_effect(
            "finished workloads are kept as long as the configuration says"
        ),
    },
}
