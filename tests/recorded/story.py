"""The manifests of the recorded story: one queue for each way in which a workload can stand."""

from __future__ import annotations

from typing import Any

API = "kueue.x-k8s.io/v1beta2"
NAMESPACE = "team"
JUDGE = "recorded.example.com/judge"
PLAYED_CHECKS = ("judge", "judge-late")
"""The checks that the story's own controller answers."""

Manifest = dict[str, Any]


def manifest(kind: str, name: str, spec: Manifest, *, namespaced: bool = False) -> Manifest:
    """A manifest of Kueue's API group."""
    metadata = {"name": name} | ({"namespace": NAMESPACE} if namespaced else {})
    return {"apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec}


def queue(name: str, quota: dict[str, dict[str, int]], **spec: Any) -> list[Manifest]:
    """A ClusterQueue and its LocalQueue; ``quota``: amounts by resource, by flavor."""
    flavors = [
        {
            "name": flavor,
            "resources": [{"name": r, "nominalQuota": amount} for r, amount in amounts.items()],
        }
        for flavor, amounts in quota.items()
    ]
    covered = sorted({resource for amounts in quota.values() for resource in amounts})
    groups = [{"coveredResources": covered, "flavors": flavors}]
    cluster = {"namespaceSelector": {}, "resourceGroups": groups, **spec}
    return [
        manifest("ClusterQueue", name, cluster),
        manifest("LocalQueue", name, {"clusterQueue": name}, namespaced=True),
    ]


def workload(name: str, queue_name: str, priority: int = 0, **requests: int) -> Manifest:
    """A workload of one pod; ``requests``: amounts by resource."""
    amounts = {resource: str(amount) for resource, amount in requests.items()}
    container = {
        "name": "main",
        "image": "busybox",
        "command": ["true"],
        "resources": {"requests": amounts},
    }
    pods = {"restartPolicy": "Never", "containers": [container]}
    pod_set = {"name": "main", "count": 1, "template": {"spec": pods}}
    spec = {"queueName": queue_name, "priority": priority, "podSets": [pod_set]}
    return manifest("Workload", name, spec, namespaced=True)


CONFIGURATION: Manifest = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "admissionFairSharing": {"usageHalfLifeTime": "24h", "usageSamplingInterval": "5m"},
    # A finished workload must still be there when the recording is played years later.
    "objectRetentionPolicies": {"workloads": {"afterFinished": "876000h"}},
}

_LOWER = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "LowerPriority"}
_USAGE = {"admissionMode": "UsageBasedAdmissionFairSharing"}
_MIGRATION = {"migrationConstraints": {"mode": "UpgradeOnly"}}


def _check(name: str, controller: str, **spec: Any) -> Manifest:
    return manifest("AdmissionCheck", name, {"controllerName": controller, **spec})


OBJECTS: list[Manifest] = [
    *(manifest("ResourceFlavor", name, {}) for name in ("reservation", "on-demand", "spot")),
    manifest("Cohort", "lab", {}),
    {
        "apiVersion": API,
        "kind": "WorkloadPriorityClass",
        "metadata": {"name": "high"},
        "value": 100,
    },
    *queue("plain", {"on-demand": {"cpu": 5}}, cohortName="lab"),
    *queue("urgent", {"on-demand": {"cpu": 4}}, cohortName="lab", preemption=_LOWER),
    _check(PLAYED_CHECKS[0], JUDGE),
    *queue("checked", {"on-demand": {"cpu": 10}}, admissionChecks=["judge"]),
    _check(PLAYED_CHECKS[1], JUDGE, preemptionPolicy="AfterCheckPassedOrOnDemand"),
    *queue(
        "planning", {"on-demand": {"cpu": 4}}, admissionChecks=["judge-late"], preemption=_LOWER
    ),
    *queue(
        "family",
        {"reservation": {"gpu": 4}, "on-demand": {"gpu": 4}, "spot": {"gpu": 8}},
        concurrentAdmission=_MIGRATION,
    ),
    _check(
        "machines",
        "kueue.x-k8s.io/provisioning-request",
        parameters={
            "apiGroup": "kueue.x-k8s.io",
            "kind": "ProvisioningRequestConfig",
            "name": "machines",
        },
    ),
    manifest(
        "ProvisioningRequestConfig",
        "machines",
        {
            "provisioningClassName": "rack.example.com",
            "managedResources": ["gpu"],
            "retryStrategy": {
                "backoffLimitCount": 100,
                "backoffBaseSeconds": 60,
                "backoffMaxSeconds": 1800,
            },
        },
    ),
    *queue("bursting", {"spot": {"gpu": 8}}, admissionChecks=["machines"]),
    {
        "apiVersion": "admittance.dev/v1",
        "kind": "MachinePool",
        "metadata": {"name": "rack"},
        "spec": {
            "provisioningClassName": "rack.example.com",
            "machines": [{"name": "four", "count": 1, "resources": {"gpu": 4}}],
        },
    },
    *queue("shared", {"on-demand": {"cpu": 4}}, admissionScope=_USAGE),
    manifest(
        "LocalQueue",
        "shared-too",
        {"clusterQueue": "shared", "fairSharing": {"weight": "2"}},
        namespaced=True,
    ),
]

STEPS: list[list[Manifest]] = [
    [
        workload("finished", "plain", cpu=1),
        workload("failed", "plain", cpu=1),
        workload("running", "plain", cpu=2),
        workload("admitted", "plain", cpu=1),
        workload("victim", "urgent", cpu=4),
        workload("asked", "checked", cpu=1),
        workload("judged", "checked", cpu=1),
        workload("retried", "checked", cpu=1),
        workload("rejected", "checked", cpu=1),
        workload("low", "planning", cpu=3),
        workload("first-of-family", "family", gpu=4),
        workload("booked", "bursting", gpu=4),
        workload("uses-much", "shared", cpu=3),
    ],
    [
        workload("waiting", "plain", cpu=7),
        workload("held", "urgent", cpu=3),
        workload("stopped", "urgent", cpu=3),
        workload("wanting", "urgent", 10, cpu=4),
        workload("planner", "planning", 5, cpu=3),
        workload("upgrading", "family", gpu=4),
        workload("burst", "bursting", gpu=4),
        workload("uses-again", "shared", cpu=3),
        workload("uses-less", "shared-too", cpu=3),
    ],
    [
        workload("upgrading-later", "family", gpu=8),
        workload("family-waits", "family", gpu=8),
    ],
]
"""Workloads in the order in which they come; a step begins when the one before is settled."""
