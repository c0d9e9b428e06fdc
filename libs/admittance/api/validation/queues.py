"""Rules of ClusterQueue, Cohort and LocalQueue.

Source: docs/spec/scheduling.md#1.3, #1.4, #1.5, docs/spec/lifecycle.md#2.2. Problems that depend on
other objects (a missing flavor, a cyclic cohort, two checks of one controller) are not errors of
the manifest: they make a queue inactive.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from admittance.api.limits import VARIANTS_MAX
from admittance.api.meta import ObjectMeta
from admittance.api.problems import Problem
from admittance.api.queues import (
    ClusterQueue,
    Cohort,
    FairSharing,
    FlavorFungibility,
    LocalQueue,
    Preemption,
)
from admittance.api.validation.check_lists import check_lists
from admittance.api.validation.concurrent_admission import check_concurrent
from admittance.api.validation.meta import check_metadata, check_selector, object_name, unchanged
from admittance.api.validation.resource_groups import Owner, check_groups, quantity_of


def check_cluster_queue(queue: ClusterQueue, flavors_max: int = VARIANTS_MAX) -> list[Problem]:
    """Everything that is wrong with a ClusterQueue by itself. ``flavors_max``: see
    `check_concurrent`."""
    found = _metadata(queue.metadata, "ClusterQueue")
    spec = queue.spec
    if spec.cohort_name:
        found += object_name(spec.cohort_name, "spec.cohortName")
    owner = Owner(bool(spec.cohort_name), "cohortName", True)
    found += check_groups(spec.resource_groups, owner)
    found += check_selector(spec.namespace_selector, "spec.namespaceSelector")
    found += _preemption(spec.preemption)
    found += _fungibility(spec.flavor_fungibility)
    found += _fair_sharing(spec.fair_sharing)
    found += check_lists(spec)
    found += check_concurrent(spec, flavors_max)
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
    found += check_groups(cohort.spec.resource_groups, Owner(bool(parent), "parentName", False))
    return found + _fair_sharing(cohort.spec.fair_sharing)


def check_local_queue(queue: LocalQueue) -> list[Problem]:
    """Everything that is wrong with a LocalQueue by itself."""
    found = check_metadata(queue.metadata, namespaced=True, kind="LocalQueue")
    if queue.spec.cluster_queue:
        found += object_name(queue.spec.cluster_queue, "spec.clusterQueue")
    return found + _fair_sharing(queue.spec.fair_sharing)


def check_local_queue_update(old: LocalQueue, new: LocalQueue) -> list[Problem]:
    return unchanged(old.spec.cluster_queue, new.spec.cluster_queue, "spec.clusterQueue")


def _metadata(metadata: ObjectMeta, kind: str) -> list[Problem]:
    return check_metadata(metadata, namespaced=False, kind=kind)


def _preemption(preemption: Preemption) -> list[Problem]:
    field = "spec.preemption"
    found: list[Problem] = []
    borrow = preemption.borrow_within_cohort
    borrows = borrow is not None and borrow.policy != "Never"
    if borrows and preemption.reclaim_within_cohort == "Never":
        message = "borrowWithinCohort.policy must be Never while reclaimWithinCohort is Never"
        found.append(Problem(field, message))
    return found


def _fungibility(fungibility: FlavorFungibility) -> list[Problem]:
    field = "spec.flavorFungibility"
    found: list[Problem] = []
    if fungibility.preference is not None:
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
    weight = quantity_of(sharing.weight, field, found)
    if weight is not None and 0 < weight <= _WEIGHT_MIN:
        found.append(Problem(field, "must be 0 or more than a billionth"))
    return found
