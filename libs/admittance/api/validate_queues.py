"""Rules of ClusterQueue, Cohort and LocalQueue: SCHEDULING 1.3 to 1.5, LIFECYCLE 2.2.

What needs other objects (a missing flavor, a cyclic cohort, two checks of one controller) is no
matter of the manifest: it makes a queue inactive.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final, NamedTuple

from admittance.api.meta import ObjectMeta
from admittance.api.names import qualified, repeated
from admittance.api.problems import DUPLICATE, FORBIDDEN, NOT_SUPPORTED, REQUIRED, Problem, shown
from admittance.api.quantity import BadQuantity, parse
from admittance.api.queues import (
    ClusterQueue,
    ClusterQueueSpec,
    Cohort,
    FairSharing,
    FlavorFungibility,
    FlavorQuotas,
    LocalQueue,
    Preemption,
    Quantity,
    ResourceGroup,
    ResourceQuota,
)
from admittance.api.validate_concurrent import check_concurrent
from admittance.api.validate_meta import (
    at_most,
    check_metadata,
    check_selector,
    in_range,
    object_name,
    one_of,
    unchanged,
)
from admittance.api.words import (
    BORROW,
    FUNGIBILITY,
    PREFERENCES,
    QUOTA_CUTS,
    RECLAIM,
    SCOPES,
    STOP_POLICIES,
    STRATEGIES,
    WITHIN,
)

GROUPS_MAX: Final = 16
PER_GROUP_MAX: Final = 64
TOTAL_MAX: Final = 256
COMBINATIONS_MAX: Final = 512
CHECKS_MAX: Final = 64
CHECK_NAME_MAX: Final = 316


class _Owner(NamedTuple):
    """Whose resource groups: ``above`` is the field that names who lends and borrows."""

    has_parent: bool
    above: str
    lends_own_only: bool


def check_cluster_queue(queue: ClusterQueue) -> list[Problem]:
    """Everything that is wrong with a ClusterQueue by itself."""
    found = _metadata(queue.metadata, "ClusterQueue")
    spec = queue.spec
    if spec.cohort_name:
        found += object_name(spec.cohort_name, "spec.cohortName")
    owner = _Owner(bool(spec.cohort_name), "cohortName", True)
    found += _groups(spec.resource_groups, owner)
    found += check_selector(spec.namespace_selector, "spec.namespaceSelector")
    found += one_of(spec.queueing_strategy, STRATEGIES, "spec.queueingStrategy")
    found += one_of(spec.stop_policy, STOP_POLICIES, "spec.stopPolicy")
    found += _preemption(spec.preemption)
    found += _fungibility(spec.flavor_fungibility)
    found += _fair_sharing(spec.fair_sharing)
    if spec.admission_scope is not None:
        found += one_of(
            spec.admission_scope.admission_mode, SCOPES, "spec.admissionScope.admissionMode"
        )
    found += check_lists(spec)
    found += check_concurrent(spec)
    found += one_of(spec.on_quota_cut, QUOTA_CUTS, "spec.onQuotaCut")
    return found


def check_cluster_queue_update(old: ClusterQueue, new: ClusterQueue) -> list[Problem]:
    """A ClusterQueue may change in every field, within the rules for a new one."""
    return unchanged(old.metadata.name, new.metadata.name, "metadata.name")


def check_cohort(cohort: Cohort) -> list[Problem]:
    """Everything that is wrong with a Cohort by itself."""
    found = _metadata(cohort.metadata, "Cohort")
    parent = cohort.spec.parent_name
    if parent:
        found += object_name(parent, "spec.parentName")
    # A cohort's lending limit caps what its whole subtree gives, so it may exceed its own quota.
    found += _groups(cohort.spec.resource_groups, _Owner(bool(parent), "parentName", False))
    return found + _fair_sharing(cohort.spec.fair_sharing)


def check_local_queue(queue: LocalQueue) -> list[Problem]:
    """Everything that is wrong with a LocalQueue by itself."""
    found = check_metadata(queue.metadata, namespaced=True, kind="LocalQueue")
    if not queue.spec.cluster_queue:
        found.append(Problem("spec.clusterQueue", "must be set", REQUIRED))
    else:
        found += object_name(queue.spec.cluster_queue, "spec.clusterQueue")
    found += one_of(queue.spec.stop_policy, STOP_POLICIES, "spec.stopPolicy")
    return found + _fair_sharing(queue.spec.fair_sharing)


def check_local_queue_update(old: LocalQueue, new: LocalQueue) -> list[Problem]:
    return unchanged(old.spec.cluster_queue, new.spec.cluster_queue, "spec.clusterQueue")


def flavors_of(spec: ClusterQueueSpec) -> list[str]:
    """All flavors on offer, in order of preference."""
    return [flavor.name for group in spec.resource_groups for flavor in group.flavors]


def check_lists(spec: ClusterQueueSpec) -> list[Problem]:
    """The lists of checks: each a set, in one of the two forms, with flavors of this queue."""
    field = "spec.admissionChecks"
    found = _check_names(spec.admission_checks, field)
    listed = bool(spec.admission_checks)
    for i, group in enumerate(spec.resource_groups):
        for j, flavor in enumerate(group.flavors):
            path = f"spec.resourceGroups[{i}].flavors[{j}].admissionChecks"
            found += _check_names(flavor.admission_checks, path)
            listed = listed or bool(flavor.admission_checks)
    strategy = spec.admission_checks_strategy
    if strategy is None:
        return found
    field = "spec.admissionChecksStrategy"
    rules = strategy.admission_checks
    if listed:
        message = "says the same as the lists admissionChecks: only one of the two forms"
        found.append(Problem(field, message, FORBIDDEN))
    if not rules:
        found.append(Problem(f"{field}.admissionChecks", "must not be empty", REQUIRED))
    found += at_most(len(rules), CHECKS_MAX, f"{field}.admissionChecks", "checks")
    for i in repeated(rule.name for rule in rules):
        path = f"{field}.admissionChecks[{i}].name"
        found.append(Problem(path, f"{shown(rules[i].name)} is there twice", DUPLICATE))
    offered = flavors_of(spec)
    for i, rule in enumerate(rules):
        path = f"{field}.admissionChecks[{i}]"
        found += _check_name(rule.name, f"{path}.name")
        found += at_most(len(rule.on_flavors), PER_GROUP_MAX, f"{path}.onFlavors", "flavors")
        for j in repeated(rule.on_flavors):
            message = f"{shown(rule.on_flavors[j])} is there twice"
            found.append(Problem(f"{path}.onFlavors[{j}]", message, DUPLICATE))
        for j, flavor_name in enumerate(rule.on_flavors):
            if flavor_name not in offered:
                message = f"{shown(flavor_name)} is no flavor of this queue{_offer(offered)}"
                found.append(Problem(f"{path}.onFlavors[{j}]", message, NOT_SUPPORTED))
    return found


def _offer(offered: list[str]) -> str:
    return f": {', '.join(offered[:8])}" if offered else ", which has none"


def _check_name(name: str, field: str) -> list[Problem]:
    if not name:
        return [Problem(field, "must be set", REQUIRED)]
    if len(name) > CHECK_NAME_MAX:
        return [Problem(field, f"has more than {CHECK_NAME_MAX} characters", "TooLong")]
    return object_name(name, field)


def _check_names(names: tuple[str, ...], field: str) -> list[Problem]:
    found = at_most(len(names), CHECKS_MAX, field, "checks")
    for i in repeated(names):
        found.append(Problem(f"{field}[{i}]", f"{shown(names[i])} is there twice", DUPLICATE))
    for i, name in enumerate(names):
        found += _check_name(name, f"{field}[{i}]")
    return found


def _metadata(metadata: ObjectMeta, kind: str) -> list[Problem]:
    return check_metadata(metadata, namespaced=False, kind=kind)


def _groups(groups: tuple[ResourceGroup, ...], owner: _Owner) -> list[Problem]:
    field = "spec.resourceGroups"
    found = at_most(len(groups), GROUPS_MAX, field, "groups")
    resources: set[str] = set()
    flavors: set[str] = set()
    for i, group in enumerate(groups):
        path = f"{field}[{i}]"
        found += _covered(group, path, resources)
        for what, count in (("flavors", len(group.flavors)),):
            if not count:
                found.append(Problem(f"{path}.{what}", "must not be empty", REQUIRED))
            found += at_most(count, PER_GROUP_MAX, f"{path}.{what}", what)
        for j, flavor in enumerate(group.flavors):
            found += _flavor(flavor, group, f"{path}.flavors[{j}]", owner)
            if flavor.name in flavors:
                message = f"{shown(flavor.name)} is there twice"
                found.append(Problem(f"{path}.flavors[{j}].name", message, DUPLICATE))
            flavors.add(flavor.name)
    total = sum(len(group.flavors) for group in groups)
    found += at_most(total, TOTAL_MAX, field, "flavors in all groups together")
    total = sum(len(group.covered_resources) for group in groups)
    found += at_most(total, TOTAL_MAX, field, "covered resources in all groups together")
    for i, group in enumerate(groups):
        total = sum(len(flavor.resources) for flavor in group.flavors)
        found += at_most(total, COMBINATIONS_MAX, f"{field}[{i}]", "quotas")
    return found


def _covered(group: ResourceGroup, path: str, seen: set[str]) -> list[Problem]:
    field = f"{path}.coveredResources"
    found: list[Problem] = []
    if not group.covered_resources:
        found.append(Problem(field, "must not be empty", REQUIRED))
    found += at_most(len(group.covered_resources), PER_GROUP_MAX, field, "resources")
    for j, name in enumerate(group.covered_resources):
        if complaint := qualified(name):
            found.append(Problem(f"{field}[{j}]", complaint))
        if name in seen:
            message = f"{shown(name)} is there twice"
            found.append(Problem(f"{field}[{j}]", message, DUPLICATE))
        seen.add(name)
    return found


def _flavor(flavor: FlavorQuotas, group: ResourceGroup, path: str, owner: _Owner) -> list[Problem]:
    found = object_name(flavor.name, f"{path}.name")
    covered = group.covered_resources
    if len(flavor.resources) != len(covered):
        message = f"has {len(flavor.resources)} quotas for {len(covered)} covered resources"
        found.append(Problem(f"{path}.resources", message))
    for i, (quota, name) in enumerate(zip(flavor.resources, covered, strict=False)):
        field = f"{path}.resources[{i}]"
        if quota.name != name:
            message = f"must be {shown(name)}, in the order of coveredResources"
            found.append(Problem(f"{field}.name", f"{message}, not {shown(quota.name)}"))
        found += _quota(quota, field, owner)
    return found


def _amount(quantity: Quantity, field: str, found: list[Problem]) -> Fraction | None:
    try:
        number = parse(quantity)
    except BadQuantity as error:
        found.append(Problem(field, str(error)))
        return None
    if number < 0:
        found.append(Problem(field, f"must not be negative, not {quantity}"))
    return number


def _quota(quota: ResourceQuota, path: str, owner: _Owner) -> list[Problem]:
    found: list[Problem] = []
    nominal = _amount(quota.nominal_quota, f"{path}.nominalQuota", found)
    for name, limit in (
        ("borrowingLimit", quota.borrowing_limit),
        ("lendingLimit", quota.lending_limit),
    ):
        if limit is None:
            continue
        field = f"{path}.{name}"
        number = _amount(limit, field, found)
        if not owner.has_parent:
            found.append(Problem(field, f"must be left out while {owner.above} is empty"))
        if (
            name == "lendingLimit"
            and owner.lends_own_only
            and number is not None
            and nominal is not None
            and number > nominal
        ):
            found.append(Problem(field, f"must not exceed nominalQuota {quota.nominal_quota}"))
    return found


def _preemption(preemption: Preemption) -> list[Problem]:
    field = "spec.preemption"
    found = one_of(preemption.reclaim_within_cohort, RECLAIM, f"{field}.reclaimWithinCohort")
    found += one_of(preemption.within_cluster_queue, WITHIN, f"{field}.withinClusterQueue")
    borrow = preemption.borrow_within_cohort
    if borrow is not None:
        found += one_of(borrow.policy, BORROW, f"{field}.borrowWithinCohort.policy")
        threshold = f"{field}.borrowWithinCohort.maxPriorityThreshold"
        found += in_range(borrow.max_priority_threshold, threshold)
        if borrow.policy != "Never" and preemption.reclaim_within_cohort == "Never":
            message = "borrowWithinCohort.policy must be Never while reclaimWithinCohort is Never"
            found.append(Problem(field, message))
    return found


def _fungibility(fungibility: FlavorFungibility) -> list[Problem]:
    field = "spec.flavorFungibility"
    found = one_of(fungibility.when_can_borrow, FUNGIBILITY, f"{field}.whenCanBorrow")
    found += one_of(fungibility.when_can_preempt, FUNGIBILITY, f"{field}.whenCanPreempt")
    if fungibility.preference is not None:
        found += one_of(fungibility.preference, PREFERENCES, f"{field}.preference")
        both = (fungibility.when_can_borrow, fungibility.when_can_preempt)
        if both != ("TryNextFlavor", "TryNextFlavor"):
            message = "needs whenCanBorrow and whenCanPreempt to be TryNextFlavor"
            found.append(Problem(f"{field}.preference", message))
    return found


_WEIGHT_MIN: Final = Fraction(1, 10**9)


def _fair_sharing(sharing: FairSharing | None) -> list[Problem]:
    if sharing is None or sharing.weight is None:
        return []
    field = "spec.fairSharing.weight"
    found: list[Problem] = []
    weight = _amount(sharing.weight, field, found)
    if weight is not None and 0 < weight <= _WEIGHT_MIN:
        found.append(Problem(field, "must be 0 or more than a billionth"))
    return found
