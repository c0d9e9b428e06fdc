"""What the fields of the configuration file do."""

from __future__ import annotations

from typing import Final

from admittance.api.configuration import (
    AdmissionCheckRetries,
    AdmissionFairSharing,
    ConcurrentAdmissionSettings,
    Configuration,
    FairSharingSettings,
    RequeuingStrategy,
    Resources,
    Retention,
    Retentions,
    Transformation,
    UserLimits,
    WaitForPodsReady,
)
from admittance.api.effects.field_effect import (
    Table,
    all_work,
    in_part,
    no_effect,
)

_CLUSTER: Final = no_effect("it is for a controller in a Kubernetes cluster", usual=())

CONFIGURATION: Final[Table] = {
    Configuration: {
        **all_work(
            "apiVersion",
            "kind",
            "fairSharing",
            "admissionFairSharing",
            "waitForPodsReady",
            "concurrentAdmission",
            "admissionCheckRetries",
            "userLimits",
            "resources",
            "objectRetentionPolicies",
            "machines",
        ),
        "featureGates": in_part("gates of other subsystems cause a warning"),
        "namespace": _CLUSTER,
        "manageJobsWithoutQueueName": _CLUSTER,
        "managedJobsNamespaceSelector": _CLUSTER,
        "internalCertManagement": _CLUSTER,
        "queueVisibility": _CLUSTER,
        "clientConnection": _CLUSTER,
        "integrations": _CLUSTER,
        "multiKueue": _CLUSTER,
        "webhook": _CLUSTER,
        "metrics": _CLUSTER,
        "health": _CLUSTER,
        "pprofBindAddress": _CLUSTER,
        "leaderElection": _CLUSTER,
        "controller": _CLUSTER,
        "cache": _CLUSTER,
        "tls": _CLUSTER,
        "visibilityServer": _CLUSTER,
    },
    FairSharingSettings: all_work("enable", "preemptionStrategies"),
    AdmissionFairSharing: all_work("usageHalfLifeTime", "usageSamplingInterval", "resourceWeights"),
    WaitForPodsReady: all_work(
        "enable",
        "timeout",
        "recoveryTimeout",
        "maxTimeoutOnWorkload",
        "blockAdmission",
        "requeuingStrategy",
    ),
    RequeuingStrategy: all_work(
        "timestamp", "backoffLimitCount", "backoffBaseSeconds", "backoffMaxSeconds"
    ),
    ConcurrentAdmissionSettings: all_work("maxFlavors"),
    AdmissionCheckRetries: all_work("backoffMaxSeconds"),
    UserLimits: all_work(
        "maxManifestBytes",
        "maxPendingPerNamespace",
        "maxPendingPerLocalQueue",
        "maxPerSecondPerNamespace",
    ),
    Resources: {
        **all_work("excludeResourcePrefixes", "transformations", "quotaCheckStrategy"),
        "deviceClassMappings": _CLUSTER,
    },
    Transformation: all_work("input", "strategy", "multiplyBy", "outputs"),
    Retentions: all_work("workloads"),
    Retention: {
        **all_work("afterFinished"),
        "afterDeactivatedByKueue": no_effect("a deactivated workload is kept until it is deleted"),
    },
}
