"""What the fields of Workload and Job do."""

from __future__ import annotations

from typing import Final

from admittance.api.dependencies import Dependency
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
    JOB_CONTROLLER,
    TTL_MIN,
    AdmissionConstraints,
    ArraySpec,
    ExitCodes,
    Job,
    JobSpec,
    NamedGate,
    PodConditionPattern,
    PodFailurePolicy,
    PodFailureRule,
    PodSet,
    PriorityClassRef,
    SuccessPolicy,
    SuccessRule,
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
        "leaseDurationSeconds",
        "preemptionGates",
        "admissionConstraints",
        "role",
        "variant",
        "siblingIndex",
        "array",
        "after",
        "afterUnmet",
    ),
    Dependency: all_work("workload", "condition", "index", "elementwise"),
    ArraySpec: all_work("indexes", "parallelism", "failFast"),
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
            "counted from each start of the Job, as in Kubernetes; then it fails with "
            "`DeadlineExceeded`"
        ),
        "backoffLimit": works("6 if absent, counted anew after an eviction"),
        "backoffLimitPerIndex": works("as in Kubernetes"),
        "maxFailedIndexes": works("as in Kubernetes"),
        "completionMode": works("every pod has an index, also of a `NonIndexed` Job"),
        "managedBy": works(f"any other value than `{JOB_CONTROLLER}` is refused"),
        "manualSelector": no_effect("pods are not found by labels"),
        "selector": no_effect("pods are not found by labels"),
        "podFailurePolicy": works("the first container of a pod that fails decides"),
        "podReplacementPolicy": works("a pod is replaced when its processes have ended"),
        "successPolicy": works("as in Kubernetes"),
        "ttlSecondsAfterFinished": in_part(
            f"from {TTL_MIN} s to the time for which the configuration keeps finished workloads",
            usual=lambda seconds: seconds >= TTL_MIN,
        ),
    },
    PodFailurePolicy: all_work("rules"),
    PodFailureRule: {
        **all_work("action", "onExitCodes"),
        "onPodConditions": no_effect("pods of processes and containers have no conditions"),
    },
    ExitCodes: all_work("containerName", "operator", "values"),
    PodConditionPattern: {
        "type": in_part("see `onPodConditions`"),
        "status": in_part("see `onPodConditions`"),
    },
    SuccessPolicy: all_work("rules"),
    SuccessRule: all_work("succeededIndexes", "succeededCount"),
}
