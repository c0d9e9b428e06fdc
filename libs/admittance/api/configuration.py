"""The configuration of a deployment, in the shape of Kueue's own file.

``apiVersion: config.kueue.x-k8s.io/v1beta2`` (or v1beta1), ``kind: Configuration``. Fields for
controllers in a Kubernetes cluster are read, with a warning that they have no effect here.
Source: docs/spec/scheduling.md#1.8.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from admittance.api.limits import VARIANTS_MAX
from admittance.api.meta import Strict

API_VERSIONS: Final = ("config.kueue.x-k8s.io/v1beta2", "config.kueue.x-k8s.io/v1beta1")
FINAL_SHARE: Final = "LessThanOrEqualToFinalShare"
INITIAL_SHARE: Final = "LessThanInitialShare"


class FairSharing(Strict, frozen=True, kw_only=True):
    """Fair sharing within cohorts. ``enable`` (v1beta1): false equals leaving out the section.
    ``preemptionStrategies``: one of them, or both in the order above."""

    enable: bool = True
    preemption_strategies: tuple[str, ...] = ()


class AdmissionFairSharing(Strict, frozen=True, kw_only=True):
    """LocalQueues with less usage go first. Durations like ``10m``."""

    usage_half_life_time: str = "0s"
    usage_sampling_interval: str = "5m"
    resource_weights: dict[str, float] = msgspec.field(default_factory=dict)


class RequeuingStrategy(Strict, frozen=True, kw_only=True):
    """How a workload is requeued when its pods were not ready in time. ``timestamp``: Eviction or
    Creation."""

    timestamp: str = "Eviction"
    backoff_limit_count: int | None = None
    backoff_base_seconds: int = 60
    backoff_max_seconds: int = 3600


class WaitForPodsReady(Strict, frozen=True, kw_only=True):
    """How long pods may take to be ready. ``enable`` (v1beta1): as for `FairSharing`."""

    enable: bool = True
    timeout: str = "30m"
    recovery_timeout: str | None = None
    block_admission: bool = False
    requeuing_strategy: RequeuingStrategy = RequeuingStrategy()


class ConcurrentAdmission(Strict, frozen=True, kw_only=True):
    """Ours. ``maxFlavors``: the most flavors of a ClusterQueue without explicit variants, in which
    each flavor is a variant of every workload; 1 to 64."""

    max_flavors: int = VARIANTS_MAX


class AdmissionCheckRetries(Strict, frozen=True, kw_only=True):
    """Ours. ``backoffMaxSeconds``: from the third Retry in a row without a delay, a check delays
    the workload by 1 s, 2 s, 4 s, … up to this limit; 0: no delay."""

    backoff_max_seconds: int = 60


class Transformation(Strict, frozen=True, kw_only=True):
    """``strategy``: Retain (default) or Replace. ``outputs``: for one unit of the input."""

    input: str = ""
    strategy: str = "Retain"
    multiply_by: str = ""
    outputs: dict[str, Any] = msgspec.field(default_factory=dict)


class Resources(Strict, frozen=True, kw_only=True):
    """How requests become quota. ``quotaCheckStrategy``: BlockUndeclared or IgnoreUndeclared."""

    exclude_resource_prefixes: tuple[str, ...] = ()
    transformations: tuple[Transformation, ...] = ()
    quota_check_strategy: str = "BlockUndeclared"
    device_class_mappings: Any = None


class Retention(Strict, frozen=True, kw_only=True):
    """How long ended objects are kept; null: the default."""

    after_finished: str | None = None
    after_deactivated_by_kueue: str | None = None


class Retentions(Strict, frozen=True, kw_only=True):
    """Retention by kind of object."""

    workloads: Retention = Retention()


class Configuration(Strict, frozen=True, kw_only=True):
    """Everything that a deployment may set about how workloads are admitted."""

    api_version: str = API_VERSIONS[0]
    kind: str = "Configuration"
    fair_sharing: FairSharing | None = None
    admission_fair_sharing: AdmissionFairSharing | None = None
    wait_for_pods_ready: WaitForPodsReady | None = None
    concurrent_admission: ConcurrentAdmission = ConcurrentAdmission()
    admission_check_retries: AdmissionCheckRetries = AdmissionCheckRetries()
    resources: Resources = Resources()
    object_retention_policies: Retentions = Retentions()
    feature_gates: dict[str, bool] = msgspec.field(default_factory=dict)
    # Only for a controller in a Kubernetes cluster.
    namespace: Any = None
    manage_jobs_without_queue_name: Any = None
    managed_jobs_namespace_selector: Any = None
    internal_cert_management: Any = None
    queue_visibility: Any = None
    client_connection: Any = None
    integrations: Any = None
    multi_kueue: Any = None
    webhook: Any = None
    metrics: Any = None
    health: Any = None
    pprof_bind_address: Any = None
    leader_election: Any = None
    controller: Any = None
    cache: Any = None
    tls: Any = None
    visibility_server: Any = None


WITHOUT_EFFECT: Final = (
    "namespace",
    "manageJobsWithoutQueueName",
    "managedJobsNamespaceSelector",
    "internalCertManagement",
    "queueVisibility",
    "clientConnection",
    "integrations",
    "multiKueue",
    "webhook",
    "metrics",
    "health",
    "pprofBindAddress",
    "leaderElection",
    "controller",
    "cache",
    "tls",
    "visibilityServer",
)
"""Fields that have no effect outside a Kubernetes cluster, as spelled in a manifest."""

GATES: Final = {
    "ACRequeueAfter": True,
    "AdmissionFairSharing": True,
    "ConcurrentAdmission": True,
    "PartialAdmission": True,
}
"""The feature gates that can be set here, with their defaults."""
