"""The configuration of a deployment, in the shape of Kueue's own file.

``apiVersion: config.kueue.x-k8s.io/v1beta2`` (or v1beta1), ``kind: Configuration``. Fields for
controllers in a Kubernetes cluster are accepted, with a warning that they have no effect here.
Source: docs/spec/scheduling.md#1.8.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Final, TypeAlias

import msgspec

from admittance.api.fields.limits import (
    FLAVOR_VARIANTS_DEFAULT,
    FLAVOR_VARIANTS_MAX,
    MANIFEST_BYTES_MAX,
    Natural,
    Switch,
    field_rule,
    one_of,
)
from admittance.api.fields.problems import Problem
from admittance.api.fields.units import duration_error, quantity_error
from admittance.api.meta import Strict

API_VERSIONS: Final = ("config.kueue.x-k8s.io/v1beta2", "config.kueue.x-k8s.io/v1beta1")
FINAL_SHARE: Final = "LessThanOrEqualToFinalShare"
INITIAL_SHARE: Final = "LessThanInitialShare"

Duration: TypeAlias = Annotated[str, field_rule(syntax=duration_error)]
"""A duration like ``10m``; 0 or more."""


def _check_weights(weights: Mapping[str, float]) -> list[Problem]:
    return [
        Problem(f"[{name}]", f"must be at least 0, not {weight:g}")
        for name, weight in weights.items()
        if not weight >= 0
    ]


def _check_outputs(outputs: Mapping[str, Any]) -> list[Problem]:
    return [
        Problem(f"[{name}]", error)
        for name, written in outputs.items()
        if (error := quantity_error(written))
    ]


class FairSharingSettings(Strict, frozen=True, kw_only=True):
    """Fair sharing within cohorts. ``enable`` (v1beta1): false is the same as a configuration
    without this section. ``preemptionStrategies``: one strategy, or both in the order of the
    default.
    """

    enable: bool = True
    preemption_strategies: tuple[str, ...] = ()


class AdmissionFairSharing(Strict, frozen=True, kw_only=True):
    """Usage-based fair sharing: LocalQueues with less usage go first. ``usageSamplingInterval``: 1
    s or more.
    """

    usage_half_life_time: Duration = "0s"
    usage_sampling_interval: Annotated[str, field_rule(syntax=partial(duration_error, least=1))] = (
        "5m"
    )
    resource_weights: Annotated[dict[str, float], field_rule(entries=_check_weights)] = (
        msgspec.field(default_factory=dict)
    )


class RequeuingStrategy(Strict, frozen=True, kw_only=True):
    """How a workload is requeued when its pods were not ready in time."""

    timestamp: Annotated[str, one_of(("Eviction", "Creation"))] = "Eviction"
    backoff_limit_count: Natural | None = None
    backoff_base_seconds: Natural = 60
    backoff_max_seconds: Natural = 3600


class WaitForPodsReady(Strict, frozen=True, kw_only=True):
    """How long pods may take to be ready. ``enable`` (v1beta1): false is the same as a
    configuration without this section. ``maxTimeoutOnWorkload``: the longest timeouts that the
    annotation ``kueue.x-k8s.io/wait-for-pods-ready`` of a workload may set.
    """

    enable: bool = True
    timeout: Duration = "30m"
    recovery_timeout: Duration | None = None
    max_timeout_on_workload: Duration | None = None
    block_admission: bool = False
    requeuing_strategy: RequeuingStrategy = RequeuingStrategy()


class ConcurrentAdmissionSettings(Strict, frozen=True, kw_only=True):
    """Settings of concurrent admission; not in Kueue. ``maxFlavors``: the most flavors of a
    ClusterQueue without explicit variants, where each flavor is a variant of every workload.
    """

    max_flavors: Annotated[int, field_rule(minimum=1, maximum=FLAVOR_VARIANTS_MAX)] = (
        FLAVOR_VARIANTS_DEFAULT
    )


class AdmissionCheckRetries(Strict, frozen=True, kw_only=True):
    """Pacing of Retries; not in Kueue. ``backoffMaxSeconds``: from the third Retry without a delay
    in a row, a check delays the workload by 1 s, 2 s, 4 s, … up to this limit; 0: no delay.
    """

    backoff_max_seconds: Annotated[int, field_rule(minimum=0, maximum=86_400)] = 60


class UserLimits(Strict, frozen=True, kw_only=True):
    """Limits of what people may submit on a server with users; not in Kueue. 0: no limit.

    ``maxManifestBytes``: the most bytes of one manifest. ``maxPendingPerNamespace``,
    ``maxPendingPerLocalQueue``: the most pending workloads; more submissions are refused.
    ``maxPerSecondPerNamespace``: the most facts that people publish about workloads of one
    namespace in a second.
    """

    max_manifest_bytes: Annotated[int, field_rule(minimum=1024, maximum=MANIFEST_BYTES_MAX)] = (
        MANIFEST_BYTES_MAX
    )
    max_pending_per_namespace: Natural = 0
    max_pending_per_local_queue: Natural = 0
    max_per_second_per_namespace: Natural = 0


class Transformation(Strict, frozen=True, kw_only=True):
    """How the request for one resource is counted as requests for other resources. ``outputs``:
    quantities for one unit of ``input``."""

    input: Annotated[str, field_rule(required=True)] = ""
    strategy: Annotated[str, one_of(("", "Retain", "Replace"))] = "Retain"
    multiply_by: str = ""
    outputs: Annotated[dict[str, Any], field_rule(entries=_check_outputs)] = msgspec.field(
        default_factory=dict
    )


class Resources(Strict, frozen=True, kw_only=True):
    """How the requests of pods become amounts of quota."""

    exclude_resource_prefixes: tuple[str, ...] = ()
    transformations: tuple[Transformation, ...] = ()
    quota_check_strategy: Annotated[str, one_of(("BlockUndeclared", "IgnoreUndeclared"))] = (
        "BlockUndeclared"
    )
    device_class_mappings: Any = None


class Retention(Strict, frozen=True, kw_only=True):
    """How long ended workloads are kept; null: the default."""

    after_finished: Duration | None = None
    after_deactivated_by_kueue: Duration | None = None


class Retentions(Strict, frozen=True, kw_only=True):
    """How long ended objects are kept, by kind of object."""

    workloads: Retention = Retention()


class Configuration(Strict, frozen=True, kw_only=True):
    """The settings of a deployment about the admission of workloads. ``machines`` (not in Kueue):
    with ``Off``, no ClusterQueue has the AdmissionCheck `MACHINES_CHECK` unless it names it."""

    api_version: str = API_VERSIONS[0]
    kind: str = "Configuration"
    fair_sharing: FairSharingSettings | None = None
    admission_fair_sharing: AdmissionFairSharing | None = None
    wait_for_pods_ready: WaitForPodsReady | None = None
    concurrent_admission: ConcurrentAdmissionSettings = ConcurrentAdmissionSettings()
    admission_check_retries: AdmissionCheckRetries = AdmissionCheckRetries()
    user_limits: UserLimits = UserLimits()
    resources: Resources = Resources()
    object_retention_policies: Retentions = Retentions()
    machines: Switch = "On"
    feature_gates: dict[str, bool] = msgspec.field(default_factory=dict)
    # The fields from ``namespace`` on are only for a controller in a Kubernetes cluster.
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


GATES: Final = {
    "ACRequeueAfter": True,
    "AdmissionFairSharing": True,
    "AdmissionFairSharingAnchorAtQuotaReservation": True,
    "ConcurrentAdmission": True,
    "PartialAdmission": True,
    "WorkloadPriorityClassDefaulting": True,
}
"""The feature gates that a configuration can set, with their defaults."""
