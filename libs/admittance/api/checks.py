"""AdmissionCheck, ProvisioningRequestConfig, WorkloadPriorityClass, PriorityClass, Namespace."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from admittance.api.fields.limits import (
    FLAVORS_ALLOWED_MAX,
    RESOURCES_MAX,
    UPDATES_MAX,
    ControllerName,
    Description,
    Detail,
    Duration,
    Factor,
    Int32,
    Jitter,
    KindName,
    LabelKey,
    Merge,
    MinRunPolicy,
    Name,
    Natural,
    Parameters,
    Policy,
    Positive,
    Preempting,
    RequiredDuration,
    RequiredLabel,
    RequiredName,
    Retry,
    list_rule,
)
from admittance.api.meta import Condition, ObjectMeta, Strict


class ParametersReference(Strict, frozen=True, kw_only=True):
    """A reference to a parameters object; the controller gets the object's ``spec`` with every
    request.
    """

    api_group: RequiredName = ""
    kind: KindName = ""
    name: RequiredLabel = ""


class RetryStrategy(Strict, frozen=True, kw_only=True):
    """The delay of a Retry for which the check controller gave no delay (KEP-3258, outlook).

    Durations as Kubernetes writes them: ``60s``, ``1h30m``.
    """

    strategy: Retry = "static"
    base_delay: RequiredDuration = ""
    factor: Factor = 2.0
    jitter: Jitter = 0.0
    max_delay: Duration | None = None
    max_retries: Natural | None = None


MACHINES_CHECK: Final = "machines"
"""The AdmissionCheck that workloads on the flavors in its ``onFlavors`` must pass although no queue
names it."""
MACHINES_CONTROLLER: Final = "admittance.dev/machines"
"""The controller that chooses the machines of a workload."""

PREEMPTS_AFTER_CHECK: Final = "AfterCheckPassedOrOnDemand"
"""The ``preemptionPolicy`` of a check that must pass before workloads are preempted."""


class AdmissionCheckSpec(Strict, frozen=True, kw_only=True):
    """``on_flavors`` (only of `MACHINES_CHECK`; not in Kueue): the flavors with machines of
    Admittance's own runners."""

    controller_name: ControllerName = ""
    parameters: ParametersReference | None = None
    preemption_policy: Policy = "Anytime"
    retry: RetryStrategy | None = None
    check_timeout_seconds: Positive | None = None
    on_flavors: Annotated[tuple[Name, ...], list_rule(FLAVORS_ALLOWED_MAX, "flavors")] = ()


class ObjectStatus(Strict, frozen=True, kw_only=True):
    conditions: tuple[Condition, ...] = ()


class AdmissionCheck(Strict, frozen=True, kw_only=True):
    api_version: str = "kueue.x-k8s.io/v1beta2"
    kind: str = "AdmissionCheck"
    metadata: ObjectMeta = ObjectMeta()
    spec: AdmissionCheckSpec = AdmissionCheckSpec()
    status: ObjectStatus | None = None


def covered_flavors(check: AdmissionCheck | None) -> tuple[str, ...]:
    """The flavors on which workloads must pass the AdmissionCheck although no queue names it; empty
    for every check but `MACHINES_CHECK`."""
    if (
        check is None
        or check.metadata.name != MACHINES_CHECK
        or check.spec.controller_name != MACHINES_CONTROLLER
    ):
        return ()
    return check.spec.on_flavors


class WorkloadPriorityClass(Strict, frozen=True, kw_only=True):
    """A class of workloads with one priority. ``min_run_seconds``, ``min_run_policy`` (not in
    Kueue): as in `admittance.api.queues.Preemption`, for the workloads of this class."""

    api_version: str = "kueue.x-k8s.io/v1beta2"
    kind: str = "WorkloadPriorityClass"
    metadata: ObjectMeta = ObjectMeta()
    value: Int32 = 0
    description: Description = ""
    min_run_seconds: Natural | None = None
    min_run_policy: MinRunPolicy = "Required"


class PriorityClass(Strict, frozen=True, kw_only=True):
    """A PriorityClass of Kubernetes, which pods name. ``global_default``: the class of pods that
    name none."""

    api_version: str = "scheduling.k8s.io/v1"
    kind: str = "PriorityClass"
    metadata: ObjectMeta = ObjectMeta()
    value: Int32
    global_default: bool = False
    description: str = ""
    preemption_policy: Preempting = "PreemptLowerPriority"


class Namespace(Strict, frozen=True, kw_only=True):
    """A Namespace of Kubernetes' ``v1``. Only the labels have an effect, through
    ``namespaceSelector``.
    """

    api_version: str = "v1"
    kind: str = "Namespace"
    metadata: ObjectMeta = ObjectMeta()
    spec: Any = None
    status: Any = None


class ProvisioningRetryStrategy(Strict, frozen=True, kw_only=True):
    backoff_limit_count: Natural = 3
    backoff_base_seconds: Natural = 60
    backoff_max_seconds: Natural = 1800


class NodeSelectorUpdate(Strict, frozen=True, kw_only=True):
    key: LabelKey
    value_from_provisioning_class_detail: Detail


class ProvisioningPodSetUpdates(Strict, frozen=True, kw_only=True):
    node_selector: Annotated[tuple[NodeSelectorUpdate, ...], list_rule(UPDATES_MAX, "entries")] = ()


class ProvisioningRequestConfigSpec(Strict, frozen=True, kw_only=True):
    provisioning_class_name: RequiredName = ""
    parameters: Parameters = msgspec.field(default_factory=dict)
    managed_resources: Annotated[tuple[LabelKey, ...], list_rule(RESOURCES_MAX, "resources")] = ()
    retry_strategy: ProvisioningRetryStrategy = ProvisioningRetryStrategy()
    pod_set_updates: ProvisioningPodSetUpdates | None = None
    pod_set_merge_policy: Merge | None = None


class ProvisioningRequestConfig(Strict, frozen=True, kw_only=True):
    api_version: str = "kueue.x-k8s.io/v1beta2"
    kind: str = "ProvisioningRequestConfig"
    metadata: ObjectMeta = ObjectMeta()
    spec: ProvisioningRequestConfigSpec = ProvisioningRequestConfigSpec()


class Foreign(msgspec.Struct, frozen=True, kw_only=True):
    """An object of a foreign API group. ``object``: the whole manifest as written."""

    api_version: str
    kind: str
    metadata: ObjectMeta
    object: dict[str, Any]

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]

    @property
    def token(self) -> str:
        """The kind as used in keys and subjects: ``<kind in lower case>.<group>``."""
        return f"{self.kind.lower()}.{self.group}"

    @property
    def parameters(self) -> Any:
        """The ``spec`` of the foreign object, which a check controller gets as parameters."""
        return self.object.get("spec")

    @property
    def not_run(self) -> str:
        """Says to users that no runner starts a job of this kind."""
        return (
            f"objects of the kind {self.kind} are not run; submit a batch/v1 Job, or a Workload "
            "with a pod set for each kind of pod"
        )
