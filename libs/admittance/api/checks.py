"""AdmissionCheck, ProvisioningRequestConfig, WorkloadPriorityClass, Namespace."""

from __future__ import annotations

from typing import Any

import msgspec

from admittance.api.meta import Condition, ObjectMeta, Strict
from admittance.api.words import Merge, Policy, Retry


class ParametersReference(Strict, frozen=True, kw_only=True):
    """An object of the controller's own kind, handed to it with every request."""

    api_group: str = ""
    kind: str = ""
    name: str = ""


class RetryStrategy(Strict, frozen=True, kw_only=True):
    """KEP-3258's outlook: the delay where a controller says Retry without one.

    Durations as Kubernetes writes them (``60s``, ``1h30m``).
    """

    strategy: Retry = "static"
    base_delay: str = ""
    factor: float = 2.0
    jitter: float = 0.0
    max_delay: str | None = None
    max_retries: int | None = None


class AdmissionCheckSpec(Strict, frozen=True, kw_only=True):
    controller_name: str = ""
    parameters: ParametersReference | None = None
    preemption_policy: Policy = "Anytime"
    retry: RetryStrategy | None = None
    check_timeout_seconds: int | None = None


class ObjectStatus(Strict, frozen=True, kw_only=True):
    conditions: tuple[Condition, ...] = ()


class AdmissionCheck(Strict, frozen=True, kw_only=True):
    api_version: str = "kueue.x-k8s.io/v1beta2"
    kind: str = "AdmissionCheck"
    metadata: ObjectMeta = ObjectMeta()
    spec: AdmissionCheckSpec = AdmissionCheckSpec()
    status: ObjectStatus | None = None


class WorkloadPriorityClass(Strict, frozen=True, kw_only=True):
    api_version: str = "kueue.x-k8s.io/v1beta2"
    kind: str = "WorkloadPriorityClass"
    metadata: ObjectMeta = ObjectMeta()
    value: int = 0
    description: str = ""


class Namespace(Strict, frozen=True, kw_only=True):
    """Core ``v1``: only its labels matter here, for ``namespaceSelector``."""

    api_version: str = "v1"
    kind: str = "Namespace"
    metadata: ObjectMeta = ObjectMeta()
    spec: Any = None
    status: Any = None


class ProvisioningRetryStrategy(Strict, frozen=True, kw_only=True):
    backoff_limit_count: int = 3
    backoff_base_seconds: int = 60
    backoff_max_seconds: int = 1800


class NodeSelectorUpdate(Strict, frozen=True, kw_only=True):
    key: str
    value_from_provisioning_class_detail: str


class ProvisioningPodSetUpdates(Strict, frozen=True, kw_only=True):
    node_selector: tuple[NodeSelectorUpdate, ...] = ()


class ProvisioningRequestConfigSpec(Strict, frozen=True, kw_only=True):
    provisioning_class_name: str = ""
    parameters: dict[str, str] = msgspec.field(default_factory=dict)
    managed_resources: tuple[str, ...] = ()
    retry_strategy: ProvisioningRetryStrategy = ProvisioningRetryStrategy()
    pod_set_updates: ProvisioningPodSetUpdates | None = None
    pod_set_merge_policy: Merge | None = None


class ProvisioningRequestConfig(Strict, frozen=True, kw_only=True):
    api_version: str = "kueue.x-k8s.io/v1beta2"
    kind: str = "ProvisioningRequestConfig"
    metadata: ObjectMeta = ObjectMeta()
    spec: ProvisioningRequestConfigSpec = ProvisioningRequestConfigSpec()
