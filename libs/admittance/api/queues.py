"""ClusterQueue, Cohort, LocalQueue, ResourceFlavor, Topology: queues and their quota."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any, Final

import msgspec

from admittance.api.budgets import BUDGET_CONTROLLER
from admittance.api.fields.limits import (
    CHECKS_MAX,
    GROUPS_MAX,
    LEVELS_MAX,
    NODE_LABELS_MAX,
    PER_GROUP_MAX,
    VARIANTS_MAX,
    Backfill,
    Borrow,
    Fungibility,
    HeldAmounts,
    HeldByLabel,
    Int32,
    Label,
    LabelKey,
    MinRunPolicy,
    Mode,
    Name,
    NameOrNone,
    Natural,
    NodeLabels,
    Positive,
    Preference,
    Quantity,
    QuotaCut,
    Reclaim,
    RequiredLabelKey,
    RequiredName,
    Scope,
    StopPolicy,
    Strategy,
    Switch,
    UsageOf,
    Within,
    field_rule,
    list_rule,
)
from admittance.api.fields.problems import FORBIDDEN, Problem
from admittance.api.meta import (
    LabelSelector,
    ObjectMeta,
    Strict,
    Taint,
    Toleration,
)

USAGE_BASED: Final = "UsageBasedAdmissionFairSharing"
"""The admissionMode with which workloads of the LocalQueue or user that used less go first."""
EASY: Final = "Easy"
"""The value of ``backfill`` with which one head in a cohort tree gets a promise of a start."""

CheckNames = Annotated[tuple[Name, ...], list_rule(CHECKS_MAX, "checks")]


class ResourceQuota(Strict, frozen=True, kw_only=True):
    """Quota of one resource in one flavor. A limit of None: the queue may borrow or lend without
    limit.
    """

    name: str
    nominal_quota: Quantity
    borrowing_limit: Quantity | None = None
    lending_limit: Quantity | None = None


class FlavorQuotas(Strict, frozen=True, kw_only=True):
    """The quotas of one flavor in a queue. ``admission_checks``: checks for workloads on this
    flavor (KEP-1432).
    """

    name: Name
    resources: tuple[ResourceQuota, ...] = ()
    admission_checks: CheckNames = ()


class ResourceGroup(Strict, frozen=True, kw_only=True):
    """Resources that are assigned the same flavor. The flavors are in order of preference."""

    covered_resources: Annotated[
        tuple[LabelKey, ...], list_rule(PER_GROUP_MAX, "resources", required=True)
    ] = ()
    flavors: Annotated[
        tuple[FlavorQuotas, ...], list_rule(PER_GROUP_MAX, "flavors", required=True)
    ] = ()


class BorrowWithinCohort(Strict, frozen=True, kw_only=True):
    policy: Borrow = "Never"
    max_priority_threshold: Int32 | None = None


class Preemption(Strict, frozen=True, kw_only=True):
    """What the workloads of a queue may preempt, and how long they are not preempted themselves.

    ``min_run_seconds`` (not in Kueue): how long an admitted workload of the queue runs before it
    may be preempted; a WorkloadPriorityClass that sets its own counts in place of it.
    ``min_run_policy``: with ``Preferred``, a younger workload is preempted if no other workloads
    make enough room.
    """

    reclaim_within_cohort: Reclaim = "Never"
    borrow_within_cohort: BorrowWithinCohort | None = None
    within_cluster_queue: Within = "Never"
    min_run_seconds: Natural | None = None
    min_run_policy: MinRunPolicy = "Required"


class FlavorFungibility(Strict, frozen=True, kw_only=True):
    when_can_borrow: Fungibility = "MayStopSearch"
    when_can_preempt: Fungibility = "TryNextFlavor"
    preference: Preference | None = None


class FairSharing(Strict, frozen=True, kw_only=True):
    weight: Quantity | None = None


class AdmissionCheckStrategyRule(Strict, frozen=True, kw_only=True):
    """A check and its flavors; no flavors: the check applies to all flavors of the queue."""

    name: RequiredName
    on_flavors: Annotated[tuple[str, ...], list_rule(PER_GROUP_MAX, "flavors")] = ()


class AdmissionChecksStrategy(Strict, frozen=True, kw_only=True):
    admission_checks: Annotated[
        tuple[AdmissionCheckStrategyRule, ...], list_rule(CHECKS_MAX, "checks", required=True)
    ] = ()


class AdmissionScope(Strict, frozen=True, kw_only=True):
    """``usage_of`` (not in Kueue): whether the usage of LocalQueues or of users orders the
    workloads of the queue."""

    admission_mode: Annotated[Scope, field_rule(required=True)] = ""
    usage_of: UsageOf = "LocalQueue"


class MigrationConstraints(Strict, frozen=True, kw_only=True):
    """Limits of migration between variants (KEP-8691)."""

    mode: Annotated[Mode, field_rule(required=True)] = ""
    min_flavor: str | None = None
    min_variant: str | None = None


class ExplicitVariant(Strict, frozen=True, kw_only=True):
    """A named variant with its flavors (KEP-8691). The delays are the waits before the creation and
    before the deletion of the variant.
    """

    name: Label
    allowed_resource_flavors: Annotated[
        tuple[str, ...], field_rule(own=True, required=True, minItems=1)
    ] = ()
    create_delay_seconds: Natural | None = None
    delete_delay_seconds: Natural | None = None


class ConcurrentAdmission(Strict, frozen=True, kw_only=True):
    """Settings of concurrent admission, which tries several flavors at once (KEP-8691)."""

    migration_constraints: MigrationConstraints
    explicit_variants: Annotated[
        tuple[ExplicitVariant, ...], list_rule(VARIANTS_MAX, "variants")
    ] = ()


ResourceGroups = Annotated[tuple[ResourceGroup, ...], list_rule(GROUPS_MAX, "groups")]


class ClusterQueueSpec(Strict, frozen=True, kw_only=True):
    """The spec of a ClusterQueue in the present spelling; `reading/upgrade.py` rewrites older
    spellings.

    ``namespace_selector`` None selects no namespace. ``admission_checks``: the checks of all
    flavors. ``on_quota_cut`` (not in Kueue): with ``evict``, an edit that reduces the quota evicts
    as few admitted workloads as necessary; otherwise admitted workloads keep running. ``machines``
    (not in Kueue): with ``Off``, the AdmissionCheck `MACHINES_CHECK` applies only if the queue
    names it. ``default_maximum_execution_time_seconds`` (not in Kueue): the time limit of workloads
    that are submitted to the queue without one. ``backfill`` (not in Kueue): with `EASY`, the
    oldest head that does not fit gets a promise of a start, which later workloads do not delay.
    ``per_user`` (not in Kueue): how much quota of the queue the workloads of one user may hold, of
    each resource in all flavors together. ``per_label`` (not in Kueue): the same for the workloads
    with one value of a label, by the key of the label.
    """

    resource_groups: ResourceGroups = ()
    cohort_name: NameOrNone = ""
    queueing_strategy: Strategy = "BestEffortFIFO"
    namespace_selector: LabelSelector | None = None
    flavor_fungibility: FlavorFungibility = FlavorFungibility()
    preemption: Preemption = Preemption()
    admission_checks: CheckNames = ()
    admission_checks_strategy: AdmissionChecksStrategy | None = None
    stop_policy: StopPolicy = "None"
    fair_sharing: FairSharing | None = None
    admission_scope: AdmissionScope | None = None
    concurrent_admission: ConcurrentAdmission | None = None
    on_quota_cut: QuotaCut = ""
    machines: Switch = "On"
    default_maximum_execution_time_seconds: Positive | None = None
    backfill: Backfill = ""
    per_user: HeldAmounts = msgspec.field(default_factory=dict)
    per_label: HeldByLabel = msgspec.field(default_factory=dict)


class ClusterQueue(Strict, frozen=True, kw_only=True):
    api_version: str = "kueue.x-k8s.io/v1beta2"
    kind: str = "ClusterQueue"
    metadata: ObjectMeta = ObjectMeta()
    spec: ClusterQueueSpec = ClusterQueueSpec()
    status: Any = None


class CohortSpec(Strict, frozen=True, kw_only=True):
    parent_name: NameOrNone = ""
    resource_groups: ResourceGroups = ()
    fair_sharing: FairSharing | None = None


class Cohort(Strict, frozen=True, kw_only=True):
    api_version: str = "kueue.x-k8s.io/v1beta2"
    kind: str = "Cohort"
    metadata: ObjectMeta = ObjectMeta()
    spec: CohortSpec = CohortSpec()
    status: Any = None


class LocalQueueSpec(Strict, frozen=True, kw_only=True):
    """``per_user``, ``per_label`` (not in Kueue): as in a ClusterQueue, of the workloads that were
    submitted to the LocalQueue."""

    cluster_queue: RequiredName = ""
    stop_policy: StopPolicy = "None"
    fair_sharing: FairSharing | None = None
    per_user: HeldAmounts = msgspec.field(default_factory=dict)
    per_label: HeldByLabel = msgspec.field(default_factory=dict)


class LocalQueue(Strict, frozen=True, kw_only=True):
    api_version: str = "kueue.x-k8s.io/v1beta2"
    kind: str = "LocalQueue"
    metadata: ObjectMeta = ObjectMeta()
    spec: LocalQueueSpec = LocalQueueSpec()
    status: Any = None


class TopologyLevel(Strict, frozen=True, kw_only=True):
    node_label: RequiredLabelKey = ""


class TopologySpec(Strict, frozen=True, kw_only=True):
    levels: Annotated[
        tuple[TopologyLevel, ...], list_rule(LEVELS_MAX, "levels", required=True)
    ] = ()


class Topology(Strict, frozen=True, kw_only=True):
    """The levels of a topology of nodes, the coarsest first. A flavor that names a Topology makes
    its queues inactive while the Topology does not exist."""

    api_version: str = "kueue.x-k8s.io/v1beta2"
    kind: str = "Topology"
    metadata: ObjectMeta = ObjectMeta()
    spec: TopologySpec = TopologySpec()


class ResourceFlavorSpec(Strict, frozen=True, kw_only=True):
    node_labels: NodeLabels = msgspec.field(default_factory=dict)
    node_taints: Annotated[tuple[Taint, ...], list_rule(NODE_LABELS_MAX, "taints")] = ()
    tolerations: Annotated[tuple[Toleration, ...], list_rule(NODE_LABELS_MAX, "tolerations")] = ()
    topology_name: Name | None = None


class ResourceFlavor(Strict, frozen=True, kw_only=True):
    api_version: str = "kueue.x-k8s.io/v1beta2"
    kind: str = "ResourceFlavor"
    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceFlavorSpec = ResourceFlavorSpec()
    status: Any = None


def queue_wide(spec: ClusterQueueSpec) -> tuple[str, ...]:
    """The checks for all flavors of the queue: the names in ``admissionChecks``, or in the entries
    of ``admissionChecksStrategy`` that name no flavor.
    """
    strategy = spec.admission_checks_strategy
    if strategy is None:
        return spec.admission_checks
    return tuple(rule.name for rule in strategy.admission_checks if not rule.on_flavors)


def of_flavor(spec: ClusterQueueSpec, flavor: str) -> tuple[str, ...]:
    """The checks for this flavor only; the checks for all flavors of the queue are left out."""
    strategy = spec.admission_checks_strategy
    if strategy is not None:
        return tuple(rule.name for rule in strategy.admission_checks if flavor in rule.on_flavors)
    for group in spec.resource_groups:
        for offered in group.flavors:
            if offered.name == flavor:
                return offered.admission_checks
    return ()


def named_checks(spec: ClusterQueueSpec) -> tuple[str, ...]:
    """Every check that the queue names, in order and without duplicates."""
    names = list(queue_wide(spec))
    for group in spec.resource_groups:
        for flavor in group.flavors:
            names += of_flavor(spec, flavor.name)
    return tuple(dict.fromkeys(names))


def conflicts(spec: ClusterQueueSpec, controller_of: Callable[[str], str | None]) -> list[Problem]:
    """The problem of two checks in one list with the same controller. Only that of budgets may
    judge a workload by several checks.

    ``controller_of`` returns None for an unknown check: if that check conflicts once it is created,
    the queue becomes inactive. A flavor's check with the controller of a queue-wide check is not a
    conflict: the flavor's check replaces the queue-wide check.
    """
    lists = [("spec.admissionChecks", queue_wide(spec))]
    for i, group in enumerate(spec.resource_groups):
        for j, flavor in enumerate(group.flavors):
            path = f"spec.resourceGroups[{i}].flavors[{j}].admissionChecks"
            lists.append((path, of_flavor(spec, flavor.name)))
    return [
        problem
        for field, names in lists
        for problem in _same_controller(field, names, controller_of)
    ]


def _same_controller(
    field: str, names: Iterable[str], controller_of: Callable[[str], str | None]
) -> list[Problem]:
    first: dict[str, str] = {}
    problems = []
    for name in names:
        controller = controller_of(name)
        if controller is None or controller == BUDGET_CONTROLLER:
            continue
        other = first.setdefault(controller, name)
        if other != name:
            message = f"{other!r} and {name!r} have the same controller {controller!r}"
            problems.append(Problem(field, message, FORBIDDEN))
    return problems
