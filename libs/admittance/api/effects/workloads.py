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
    refused,
    works,
)
from admittance.api.workload import (
    AdmissionConstraints,
    Job,
    JobSpec,
    NamedGate,
    PodSet,
    PriorityClassRef,
    TopologyRequest,
    Workload,
    WorkloadSpec,
)

_TOPOLOGY: Final = "pods are not placed by topology"

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
        "topologyRequest": in_part("what is required is refused, what is preferred has no effect"),
    },
    TopologyRequest: {
        "required": refused(_TOPOLOGY),
        "preferred": no_effect(_TOPOLOGY),
        "unconstrained": in_part("no topology constrains the pods"),
        "podIndexLabel": in_part("only of a placement by topology"),
        "subGroupIndexLabel": in_part("only of a placement by topology"),
        "subGroupCount": in_part("only of a placement by topology"),
        "podSetGroupName": refused("each pod set is assigned flavors of its own"),
        "podSetSliceRequiredTopology": refused(_TOPOLOGY),
        "podSetSliceSize": in_part("only of a slice, which is refused"),
        "podsetSliceRequiredTopologyConstraints": refused(_TOPOLOGY),
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
