"""What the fields of queues, flavors, checks, priority classes, namespaces and runners do."""

from __future__ import annotations

from typing import Final

from admittance.api.budgets import Budget, BudgetPrice, BudgetSpec
from admittance.api.checks import (
    AdmissionCheck,
    AdmissionCheckSpec,
    Namespace,
    NodeSelectorUpdate,
    ObjectStatus,
    ParametersReference,
    PriorityClass,
    ProvisioningPodSetUpdates,
    ProvisioningRequestConfig,
    ProvisioningRequestConfigSpec,
    ProvisioningRetryStrategy,
    RetryStrategy,
    WorkloadPriorityClass,
)
from admittance.api.effects.field_effect import (
    BY_SYSTEM,
    HEAD,
    Table,
    all_work,
    in_part,
    no_effect,
    works,
)
from admittance.api.queues import (
    AdmissionChecksStrategy,
    AdmissionCheckStrategyRule,
    AdmissionScope,
    BorrowWithinCohort,
    ClusterQueue,
    ClusterQueueSpec,
    Cohort,
    CohortSpec,
    ConcurrentAdmission,
    ExplicitVariant,
    FairSharing,
    FlavorFungibility,
    FlavorQuotas,
    LocalQueue,
    LocalQueueSpec,
    MigrationConstraints,
    Preemption,
    ResourceFlavor,
    ResourceFlavorSpec,
    ResourceGroup,
    ResourceQuota,
    Topology,
    TopologyLevel,
    TopologySpec,
)
from admittance.api.runners import (
    Runner,
    RunnerDevice,
    RunnerDrain,
    RunnerSpec,
    RunnerStatus,
    RunnerUsers,
)

_OBJECT: Final = {**HEAD, **all_work("spec"), "status": BY_SYSTEM}

MIN_RUN: Final = {
    "minRunSeconds": works("not in Kueue: how long a workload runs before it may be preempted"),
    "minRunPolicy": works("not in Kueue"),
}
PER_PERSON: Final = {
    "perUser": works("not in Kueue: how much quota the workloads of one user may hold"),
    "perLabel": works("not in Kueue: the same for the workloads with one value of a label"),
}
RUNNER_STATUS: Final = (
    "id", "version", "host", "bootId", "mountNamespace", "folders", "capacity", "inUse",
    "devices", "executors", "users", "messages", "conditions",
)  # fmt: skip
RUNNER_USERS: Final = (
    "namespaces", "submitters", "refused", "allOf", "unknown", "every", "images", "lacks", "pods",
)  # fmt: skip
QUEUES: Final[Table] = {
    ClusterQueue: _OBJECT,
    ClusterQueueSpec: {
        **all_work("resourceGroups", "cohortName", "queueingStrategy"),
        "namespaceSelector": works(
            "a queue without it admits nothing; `{}` selects every namespace"
        ),
        **all_work("flavorFungibility", "preemption", "admissionChecks", "admissionChecksStrategy"),
        **all_work("stopPolicy"),
        "fairSharing": works("with `fairSharing` in the configuration"),
        "admissionScope": works("with `admissionFairSharing` in the configuration"),
        "concurrentAdmission": works("while the gate `ConcurrentAdmission` is on"),
        "onQuotaCut": works("not in Kueue"),
        "machines": works("not in Kueue"),
        "defaultMaximumExecutionTimeSeconds": works(
            "not in Kueue: the time limit of workloads that are submitted without one"
        ),
        "backfill": works("not in Kueue: `Easy` promises the oldest head a start"),
        **PER_PERSON,
    },
    ResourceGroup: all_work("coveredResources", "flavors"),
    FlavorQuotas: all_work("name", "resources", "admissionChecks"),
    ResourceQuota: all_work("name", "nominalQuota", "borrowingLimit", "lendingLimit"),
    Preemption: {
        **all_work("reclaimWithinCohort", "borrowWithinCohort", "withinClusterQueue"),
        **MIN_RUN,
    },
    BorrowWithinCohort: all_work("policy", "maxPriorityThreshold"),
    FlavorFungibility: all_work("whenCanBorrow", "whenCanPreempt", "preference"),
    FairSharing: all_work("weight"),
    AdmissionChecksStrategy: all_work("admissionChecks"),
    AdmissionCheckStrategyRule: all_work("name", "onFlavors"),
    AdmissionScope: {
        **all_work("admissionMode"),
        "usageOf": works("not in Kueue: `User` orders by the usage of users, not of LocalQueues"),
    },
    ConcurrentAdmission: all_work("migrationConstraints", "explicitVariants"),
    MigrationConstraints: all_work("mode", "minFlavor", "minVariant"),
    ExplicitVariant: all_work(
        "name", "allowedResourceFlavors", "createDelaySeconds", "deleteDelaySeconds"
    ),
    Cohort: _OBJECT,
    CohortSpec: {
        **all_work("parentName", "resourceGroups"),
        "fairSharing": works("with `fairSharing` in the configuration"),
    },
    LocalQueue: _OBJECT,
    LocalQueueSpec: {
        **all_work("clusterQueue", "stopPolicy"),
        "fairSharing": works("with `admissionFairSharing` in the configuration"),
        **PER_PERSON,
    },
    ResourceFlavor: _OBJECT,
    ResourceFlavorSpec: {
        **all_work("nodeLabels", "nodeTaints", "tolerations"),
        "topologyName": in_part(
            "the Topology must exist; pods are not placed by it, and quota alone counts", usual=()
        ),
    },
    Topology: {**HEAD, **all_work("spec")},
    TopologySpec: {
        "levels": no_effect("pods are not placed by topology; a flavor needs that it exists"),
    },
    TopologyLevel: {"nodeLabel": no_effect("pods are not placed by topology")},
    AdmissionCheck: _OBJECT,
    AdmissionCheckSpec: {
        **all_work("controllerName", "parameters", "preemptionPolicy", "retry"),
        **all_work("checkTimeoutSeconds"),
        "onFlavors": works("only of the AdmissionCheck `machines`; not in Kueue"),
    },
    ParametersReference: all_work("apiGroup", "kind", "name"),
    RetryStrategy: all_work("strategy", "baseDelay", "factor", "jitter", "maxDelay", "maxRetries"),
    ObjectStatus: {"conditions": BY_SYSTEM},
    WorkloadPriorityClass: {**HEAD, **all_work("value", "description"), **MIN_RUN},
    PriorityClass: {
        **HEAD,
        "value": works(
            "the priority of workloads with pods that name the class, at their submission"
        ),
        "globalDefault": works("the class of workloads that name none, with pods that name none"),
        **all_work("description"),
        "preemptionPolicy": no_effect(
            "the ClusterQueue decides what a workload may preempt",
            usual=("PreemptLowerPriority",),
        ),
    },
    Namespace: {
        **HEAD,
        "spec": no_effect(
            "only the labels of a Namespace count", usual=({"finalizers": ["kubernetes"]},)
        ),
        "status": BY_SYSTEM,
    },
    Budget: _OBJECT,
    BudgetSpec: {
        "per": works("what each limit is of; a LocalQueue is named `namespace/queue`"),
        "window": works("the windows begin at midnight in UTC; a week begins on Monday"),
        "unit": works("as `admit usage --unit` has it, such as `gpu-hours`, or `cost`"),
        "limit": works("of each that `limits` does not name; without it these have no limit"),
        **all_work("limits"),
        **dict.fromkeys(("prices", "currency"), works("of a budget with the unit `cost`")),
        "maxDelaySeconds": works(
            "a workload over its budget asks again after so long at the latest"
        ),
    },
    BudgetPrice: {
        "resource": works("a resource, or `gpu` for all GPUs"),
        "flavor": works("without it: of each flavor without a price of its own"),
        "perHour": works("what an hour of `per` of the resource costs"),
        "per": works("such as `1Gi`; by default 1"),
    },
    Runner: {
        **HEAD,
        "spec": works(
            "a runner announces its machine; a manifest changes `unschedulable` and `drain` only"
        ),
        "status": BY_SYSTEM,
    },
    RunnerSpec: {
        "unschedulable": works("the machine gets no new jobs; see `admit cordon`"),
        "drain": works("the machine gets no new jobs, and is empty at a time; see `admit drain`"),
        "taints": works("as the runner announces them with `--taint`; a change is refused"),
    },
    RunnerDrain: all_work("deadline", "reason"),
    RunnerStatus: dict.fromkeys(RUNNER_STATUS, BY_SYSTEM),
    RunnerDevice: dict.fromkeys(("resource", "index", "id", "slices", "model"), BY_SYSTEM),
    RunnerUsers: dict.fromkeys(RUNNER_USERS, BY_SYSTEM),
    ProvisioningRequestConfig: {**HEAD, **all_work("spec")},
    ProvisioningRequestConfigSpec: all_work(
        "provisioningClassName",
        "parameters",
        "managedResources",
        "retryStrategy",
        "podSetUpdates",
        "podSetMergePolicy",
    ),
    ProvisioningRetryStrategy: all_work(
        "backoffLimitCount", "backoffBaseSeconds", "backoffMaxSeconds"
    ),
    ProvisioningPodSetUpdates: all_work("nodeSelector"),
    NodeSelectorUpdate: all_work("key", "valueFromProvisioningClassDetail"),
}
