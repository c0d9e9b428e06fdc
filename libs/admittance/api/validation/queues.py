"""Rules of ClusterQueue, Cohort and LocalQueue, and of their resource groups:
docs/spec/scheduling.md#1.3, #1.4, #1.5, docs/spec/lifecycle.md#2.2, #4.1.

Problems that depend on other objects (a missing flavor, a cyclic cohort, two checks of one
controller) are not errors of the manifest: they make a queue inactive.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final, NamedTuple

from admittance.api.checks import WorkloadPriorityClass
from admittance.api.fields.limits import CHECKS_MAX, FLAVOR_VARIANTS_DEFAULT, Quantity
from admittance.api.fields.names import check_unique
from admittance.api.fields.problems import (
    DUPLICATE,
    FORBIDDEN,
    NOT_SUPPORTED,
    REQUIRED,
    TOO_MANY,
    Problem,
    shown,
)
from admittance.api.fields.units import BadQuantity, parse
from admittance.api.queues import (
    EASY,
    USAGE_BASED,
    ClusterQueue,
    ClusterQueueSpec,
    Cohort,
    ExplicitVariant,
    FairSharing,
    FlavorFungibility,
    FlavorQuotas,
    LocalQueue,
    MigrationConstraints,
    Preemption,
    ResourceGroup,
    ResourceQuota,
    of_flavor,
    queue_wide,
)
from admittance.api.validation.meta import check_selector, unchanged

LISTED_MAX: Final = 8
"""The most admission checks in one list of a queue. A workload may have one more, which no list
names: `admittance.api.checks.MACHINES_CHECK`."""
_WEIGHT_MIN: Final = Fraction(1, 10**9)


def check_cluster_queue(
    queue: ClusterQueue, flavors_max: int = FLAVOR_VARIANTS_DEFAULT
) -> list[Problem]:
    """The problems of several fields of a ClusterQueue. ``flavors_max``: how many flavors a queue
    may have if each flavor becomes a variant."""
    spec = queue.spec
    owner = Owner(bool(spec.cohort_name), "cohortName", True)
    return [
        *check_groups(spec.resource_groups, owner),
        *check_selector(spec.namespace_selector, "spec.namespaceSelector"),
        *_preemption(spec.preemption),
        *_fungibility(spec.flavor_fungibility),
        *_fair_sharing(spec.fair_sharing),
        *_check_lists(spec),
        *check_concurrent_admission(spec, flavors_max),
        *_backfill(spec),
        *_uncovered(spec),
        *_usage_of(spec),
    ]


def _backfill(spec: ClusterQueueSpec) -> list[Problem]:
    if spec.backfill != EASY or spec.queueing_strategy != "StrictFIFO":
        return []
    message = "must be left out while queueingStrategy is StrictFIFO: nothing starts past its head"
    return [Problem("spec.backfill", message)]


def _usage_of(spec: ClusterQueueSpec) -> list[Problem]:
    scope = spec.admission_scope
    if scope is None or scope.usage_of == "LocalQueue" or scope.admission_mode == USAGE_BASED:
        return []
    return [Problem("spec.admissionScope.usageOf", f"needs admissionMode {USAGE_BASED}")]


def _uncovered(spec: ClusterQueueSpec) -> list[Problem]:
    """A problem for each resource that a person may hold and of which the queue has no quota."""
    covered = [name for group in spec.resource_groups for name in group.covered_resources]
    limits = {"spec.perUser": spec.per_user}
    limits |= {f"spec.perLabel[{key}]": amounts for key, amounts in spec.per_label.items()}
    has = f"has quota of {', '.join(covered[:8])} only" if covered else "has no quota"
    return [
        Problem(f"{field}[{resource}]", f"the queue {has}", NOT_SUPPORTED)
        for field, amounts in limits.items()
        for resource in amounts
        if resource not in covered
    ]


def check_cluster_queue_update(old: ClusterQueue, new: ClusterQueue) -> list[Problem]:
    """Returns no problems: every field of a ClusterQueue may change, within the rules for a new
    queue.
    """
    return unchanged(old.metadata.name, new.metadata.name, "metadata.name")


def check_cohort(cohort: Cohort) -> list[Problem]:
    # A cohort's lending limit caps what its whole subtree lends, so the limit may exceed the
    # cohort's own quota.
    owner = Owner(bool(cohort.spec.parent_name), "parentName", False)
    problems = check_groups(cohort.spec.resource_groups, owner)
    return problems + _fair_sharing(cohort.spec.fair_sharing)


def check_local_queue(queue: LocalQueue) -> list[Problem]:
    return _fair_sharing(queue.spec.fair_sharing)


def check_local_queue_update(old: LocalQueue, new: LocalQueue) -> list[Problem]:
    return unchanged(old.spec.cluster_queue, new.spec.cluster_queue, "spec.clusterQueue")


def check_min_run(of: Preemption | WorkloadPriorityClass, field: str) -> list[Problem]:
    """The problem of a minRunPolicy without the minRunSeconds that it is about. ``field``: the path
    of minRunPolicy."""
    if of.min_run_policy == "Required" or of.min_run_seconds is not None:
        return []
    return [Problem(field, "needs minRunSeconds")]


def _preemption(preemption: Preemption) -> list[Problem]:
    problems = check_min_run(preemption, "spec.preemption.minRunPolicy")
    borrow = preemption.borrow_within_cohort
    borrows = borrow is not None and borrow.policy != "Never"
    if borrows and preemption.reclaim_within_cohort == "Never":
        message = "borrowWithinCohort.policy must be Never while reclaimWithinCohort is Never"
        problems.append(Problem("spec.preemption", message))
    return problems


def _fungibility(fungibility: FlavorFungibility) -> list[Problem]:
    both = (fungibility.when_can_borrow, fungibility.when_can_preempt)
    if fungibility.preference is None or both == ("TryNextFlavor", "TryNextFlavor"):
        return []
    message = "needs whenCanBorrow and whenCanPreempt to be TryNextFlavor"
    return [Problem("spec.flavorFungibility.preference", message)]


def _fair_sharing(sharing: FairSharing | None) -> list[Problem]:
    weight = quantity(sharing.weight) if sharing is not None else None
    if weight is None or not 0 < weight <= _WEIGHT_MIN:
        return []
    return [Problem("spec.fairSharing.weight", "must be 0 or more than a billionth")]


# Lists of checks. -----------------------------------------------------------------------------


def flavors_of(spec: ClusterQueueSpec) -> list[str]:
    """All flavors of the queue, in order of preference."""
    return [flavor.name for group in spec.resource_groups for flavor in group.flavors]


def _check_lists(spec: ClusterQueueSpec) -> list[Problem]:
    """The problems of the lists of checks: a duplicate check, both forms of lists at once, a flavor
    that the queue does not offer.
    """
    problems = check_unique(spec.admission_checks, "spec.admissionChecks")
    listed = bool(spec.admission_checks)
    for i, group in enumerate(spec.resource_groups):
        for j, flavor in enumerate(group.flavors):
            path = f"spec.resourceGroups[{i}].flavors[{j}].admissionChecks"
            problems += check_unique(flavor.admission_checks, path)
            listed = listed or bool(flavor.admission_checks)
    strategy = spec.admission_checks_strategy
    if strategy is None:
        return problems + _check_counts(spec)
    field = "spec.admissionChecksStrategy"
    if listed:
        message = "says the same as the lists admissionChecks: only one of the two forms"
        problems.append(Problem(field, message, FORBIDDEN))
    field += ".admissionChecks"
    problems += check_unique([rule.name for rule in strategy.admission_checks], field, ".name")
    for i, rule in enumerate(strategy.admission_checks):
        path = f"{field}[{i}].onFlavors"
        problems += check_unique(rule.on_flavors, path)
        problems += _offered(rule.on_flavors, path, flavors_of(spec))
    return problems + _check_counts(spec)


def _check_counts(spec: ClusterQueueSpec) -> list[Problem]:
    """The problem of too many checks for one workload: all checks of the queue, or those of one
    flavor."""
    by_strategy = spec.admission_checks_strategy is not None
    field = "spec.admissionChecksStrategy" if by_strategy else "spec.admissionChecks"
    problems = _check_count(queue_wide(spec), field, "checks of the whole queue")
    for i, group in enumerate(spec.resource_groups):
        for j, flavor in enumerate(group.flavors):
            path = f"spec.resourceGroups[{i}].flavors[{j}].admissionChecks"
            where = field if by_strategy else path
            names = of_flavor(spec, flavor.name)
            problems += _check_count(names, where, f"checks of flavor {flavor.name}")
    return problems


def _check_count(names: tuple[str, ...], field: str, what: str) -> list[Problem]:
    if not LISTED_MAX < len(names) <= CHECKS_MAX:
        return []  # The rule at the field's type already reports a list longer than `CHECKS_MAX`.
    message = f"has {len(names)} {what}, a workload may have {LISTED_MAX}"
    return [Problem(field, message, TOO_MANY)]


def _offered(names: tuple[str, ...], field: str, offered: list[str]) -> list[Problem]:
    """A problem for each name that is not a flavor of the queue."""
    flavors = f": {', '.join(offered[:8])}" if offered else ", which has no flavors"
    return [
        Problem(
            f"{field}[{i}]", f"{shown(name)} is not a flavor of this queue{flavors}", NOT_SUPPORTED
        )
        for i, name in enumerate(names)
        if name not in offered
    ]


# Concurrent admission. ------------------------------------------------------------------------


_CONCURRENT: Final = "spec.concurrentAdmission"


def check_concurrent_admission(
    spec: ClusterQueueSpec, flavors_max: int = FLAVOR_VARIANTS_DEFAULT
) -> list[Problem]:
    """The problems of ``concurrentAdmission``, alone and together with other fields of the queue.
    ``flavors_max``: how many flavors a queue may have if each flavor becomes a variant."""
    given = spec.concurrent_admission
    if given is None:
        return []
    offered = flavors_of(spec)
    explicit = given.explicit_variants
    problems: list[Problem] = []
    if not explicit:
        groups = len(spec.resource_groups)
        if groups != 1:
            # A variant with a flavor of one group could never hold resources of another group.
            message = f"must be one group, not {groups}, for concurrentAdmission without "
            problems.append(Problem("spec.resourceGroups", f"{message}explicitVariants"))
        else:
            problems += check_variant_count(spec, flavors_max)
    problems += _migration(given.migration_constraints, explicit, offered)
    problems += _variants(explicit, offered)
    if spec.queueing_strategy == "StrictFIFO":
        message = "must not be StrictFIFO together with concurrentAdmission: a running job that "
        message += "waits for a better variant would block all workloads behind it"
        problems.append(Problem("spec.queueingStrategy", message))
    return problems


def check_variant_count(spec: ClusterQueueSpec, flavors_max: int) -> list[Problem]:
    """The problem of too many flavors for a queue without explicit variants."""
    given = spec.concurrent_admission
    if given is None or given.explicit_variants or not spec.resource_groups:
        return []
    offered = len(spec.resource_groups[0].flavors)
    if offered <= flavors_max:
        return []
    message = f"has {offered} flavors, at most {flavors_max} are allowed for concurrentAdmission "
    return [Problem("spec.resourceGroups[0].flavors", message + "without explicitVariants")]


def _migration(
    constraints: MigrationConstraints,
    explicit: tuple[ExplicitVariant, ...],
    offered: list[str],
) -> list[Problem]:
    path = f"{_CONCURRENT}.migrationConstraints"
    mode = constraints.mode
    problems: list[Problem] = []
    flavor, variant = constraints.min_flavor, constraints.min_variant
    if flavor is not None:
        field = f"{path}.minFlavor"
        if mode == "NoMigration":
            problems.append(Problem(field, "must be left out while mode is NoMigration", FORBIDDEN))
        elif explicit:
            message = "must be left out while explicitVariants are given; minVariant is for those"
            problems.append(Problem(field, message, FORBIDDEN))
        elif flavor not in offered:
            message = f"{shown(flavor)} is not a flavor of this queue"
            problems.append(Problem(field, message, NOT_SUPPORTED))
    if variant is not None:
        field = f"{path}.minVariant"
        if mode == "NoMigration":
            problems.append(Problem(field, "must be left out while mode is NoMigration", FORBIDDEN))
        elif not explicit:
            message = "must be left out without explicitVariants; minFlavor is for flavors"
            problems.append(Problem(field, message, FORBIDDEN))
        elif variant not in [named.name for named in explicit]:
            message = f"{shown(variant)} is not one of the explicitVariants"
            problems.append(Problem(field, message, NOT_SUPPORTED))
    return problems


def _variants(explicit: tuple[ExplicitVariant, ...], offered: list[str]) -> list[Problem]:
    path = f"{_CONCURRENT}.explicitVariants"
    problems = check_unique([each.name for each in explicit], path, ".name")
    for i, variant in enumerate(explicit):
        field = f"{path}[{i}].allowedResourceFlavors"
        if not variant.allowed_resource_flavors:
            problems.append(Problem(field, "must name at least one flavor", REQUIRED))
        problems += check_unique(variant.allowed_resource_flavors, field)
        problems += _offered(variant.allowed_resource_flavors, field, offered)
    return problems


TOTAL_MAX: Final = 256
COMBINATIONS_MAX: Final = 512


class Owner(NamedTuple):
    """The ClusterQueue or Cohort with the resource groups to validate. ``parent_field``: the field
    that names the owner's cohort. ``lends_own_only``: the owner may not lend more than its nominal
    quota.
    """

    has_parent: bool
    parent_field: str
    lends_own_only: bool


def check_groups(groups: tuple[ResourceGroup, ...], owner: Owner) -> list[Problem]:
    field = "spec.resourceGroups"
    problems: list[Problem] = []
    resources: set[str] = set()
    flavors: set[str] = set()
    for i, group in enumerate(groups):
        path = f"{field}[{i}]"
        problems += _covered(group, path, resources)
        for j, flavor in enumerate(group.flavors):
            problems += _flavor(flavor, group, f"{path}.flavors[{j}]", owner)
            if flavor.name in flavors:
                message = f"{shown(flavor.name)} is listed twice"
                problems.append(Problem(f"{path}.flavors[{j}].name", message, DUPLICATE))
            flavors.add(flavor.name)
    total = sum(len(group.flavors) for group in groups)
    problems += _at_most(total, TOTAL_MAX, field, "flavors in all groups together")
    total = sum(len(group.covered_resources) for group in groups)
    problems += _at_most(total, TOTAL_MAX, field, "covered resources in all groups together")
    for i, group in enumerate(groups):
        total = sum(len(flavor.resources) for flavor in group.flavors)
        problems += _at_most(total, COMBINATIONS_MAX, f"{field}[{i}]", "quotas")
    return problems


def _at_most(count: int, limit: int, field: str, what: str) -> list[Problem]:
    if count <= limit:
        return []
    return [Problem(field, f"has {count} {what}, at most {limit} are allowed", TOO_MANY)]


def _covered(group: ResourceGroup, path: str, seen: set[str]) -> list[Problem]:
    problems: list[Problem] = []
    for j, name in enumerate(group.covered_resources):
        if name in seen:
            message = f"{shown(name)} is listed twice"
            problems.append(Problem(f"{path}.coveredResources[{j}]", message, DUPLICATE))
        seen.add(name)
    return problems


def _flavor(flavor: FlavorQuotas, group: ResourceGroup, path: str, owner: Owner) -> list[Problem]:
    problems: list[Problem] = []
    covered = group.covered_resources
    if len(flavor.resources) != len(covered):
        message = f"has {len(flavor.resources)} quotas for {len(covered)} covered resources"
        problems.append(Problem(f"{path}.resources", message))
    for i, (quota, name) in enumerate(zip(flavor.resources, covered, strict=False)):
        field = f"{path}.resources[{i}]"
        if quota.name != name:
            message = f"must be {shown(name)}, in the order of coveredResources"
            problems.append(Problem(f"{field}.name", f"{message}, not {shown(quota.name)}"))
        problems += _quota(quota, field, owner)
    return problems


def quantity(written: Quantity | None) -> Fraction | None:
    """The value of a quantity; None: the quantity is absent or invalid."""
    try:
        return parse(written) if written is not None else None
    except BadQuantity:
        return None


def _quota(quota: ResourceQuota, path: str, owner: Owner) -> list[Problem]:
    problems: list[Problem] = []
    limits = {"borrowingLimit": quota.borrowing_limit, "lendingLimit": quota.lending_limit}
    for name, limit in limits.items():
        if limit is not None and not owner.has_parent:
            message = f"must be left out while {owner.parent_field} is empty"
            problems.append(Problem(f"{path}.{name}", message))
    nominal, lent = quantity(quota.nominal_quota), quantity(quota.lending_limit)
    if owner.lends_own_only and nominal is not None and lent is not None and lent > nominal:
        message = f"must not exceed nominalQuota {quota.nominal_quota}"
        problems.append(Problem(f"{path}.lendingLimit", message))
    return problems
