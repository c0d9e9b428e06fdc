"""The kinds that commands accept; they are those of the client."""

from __future__ import annotations

from admittance.client.kinds import (
    CHECK,
    CLUSTER_QUEUE,
    COHORT,
    FLAVOR,
    KINDS,
    LOCAL_QUEUE,
    MACHINE_POOL,
    NAMESPACE,
    POD_PRIORITY_CLASS,
    PRIORITY_CLASS,
    PROVISIONING,
    REQUEST,
    TOPOLOGY,
    WORKLOAD,
    Kind,
    is_namespaced,
    kind_named,
    kind_of_manifest,
    target,
    workload_target,
)

__all__ = [
    "CHECK",
    "CLUSTER_QUEUE",
    "COHORT",
    "FLAVOR",
    "KINDS",
    "LOCAL_QUEUE",
    "MACHINE_POOL",
    "NAMESPACE",
    "POD_PRIORITY_CLASS",
    "PRIORITY_CLASS",
    "PROVISIONING",
    "REQUEST",
    "TOPOLOGY",
    "WORKLOAD",
    "Kind",
    "is_namespaced",
    "kind_named",
    "kind_of_manifest",
    "target",
    "workload_target",
]
