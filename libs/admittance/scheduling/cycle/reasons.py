"""Obstacles of a scan as one refusal: a stable reason, a sentence with numbers, the shortfalls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from admittance.api.units import render
from admittance.events.shapes import Refusal, Shortfall
from admittance.quota.amounts import plus
from admittance.scheduling.cycle.flavor_assigner import examine
from admittance.scheduling.state.assignment import NO_FIT, Assignment, Obstacle
from admittance.scheduling.state.flavor_plan import FlavorPlan
from admittance.scheduling.state.requests import Shape
from admittance.scheduling.state.shared_quota import FamilyQuota
from admittance.scheduling.state.workload_info import WorkloadInfo

SEVERITY: Final = {
    "TopologyPlacementFailed": 0,
    "WaitingForQuota": 1,
    "ExceedsMaxQuota": 2,
    "ConflictingAdmissionChecks": 3,
    "NoMatchingFlavor": 4,
}
"""Reasons of a NoFit, the graver the higher. Source: `docs/spec/scheduling.md#5.5`."""


MISCONFIGURED: Final = "Misconfigured"
LEADS_NOWHERE: Final = frozenset({"NotFound", "ClusterQueueDoesNotExist"})
"""Why a LocalQueue is inactive that leads to no ClusterQueue. Its workloads are Misconfigured, as
the workload-controller writes into their status."""

CLAUSES_MAX: Final = 8
"""What a message tells of one pod set."""


def of_workloads(activity_reason: str) -> str:
    """The reason for which workloads wait whose LocalQueue is inactive for activity_reason."""
    return MISCONFIGURED if activity_reason in LEADS_NOWHERE else activity_reason


def refusal_of(assignment: Assignment, among: frozenset[str] | None = None) -> Refusal:
    """Why nothing was assigned. ``among``: nothing is told of other flavors than these; None: of
    any.

    Among the flavors of the scan that failed the mildest reason counts, since that one is nearest
    to serving; within a flavor the gravest.
    """
    obstacles = _among(assignment.obstacles, among) or assignment.obstacles
    if assignment.mode != NO_FIT:
        return Refusal(
            reason="WaitingForQuota",
            message=told(obstacles),
            shortfalls=tuple(shortfall(one) for one in obstacles),
        )
    every = assignment.obstacles[assignment.failed_from :]
    failed = _among(every, among) or every
    by_flavor: dict[str, str] = {}
    for one in failed:
        other = by_flavor.get(one.flavor)
        if other is None or SEVERITY[one.reason] > SEVERITY[other]:
            by_flavor[one.flavor] = one.reason
    reason = min(by_flavor.values(), key=SEVERITY.__getitem__, default="NoMatchingFlavor")
    return Refusal(
        reason=reason,
        message=told(failed),
        shortfalls=tuple(shortfall(one) for one in failed),
    )


def _among(obstacles: Sequence[Obstacle], flavors: frozenset[str] | None) -> Sequence[Obstacle]:
    """Those of these flavors."""
    if flavors is None:
        return obstacles
    return [one for one in obstacles if not one.flavor or one.flavor in flavors]


def complete(
    refusal: Refusal,
    plan: FlavorPlan,
    shape: Shape,
    *,
    own: bool = False,
    held: FamilyQuota[WorkloadInfo] | None = None,
) -> Refusal:
    """The refusal with the numbers of all flavors, those first that it was decided from. ``own``:
    of those only that the shape allows. ``held``: what the family of a variant has already."""
    known = {(one.pod_set, one.flavor, one.resource) for one in refusal.shortfalls}
    more = [
        shortfall(obstacle)
        for one in examine(plan, shape, overlap=held)
        for obstacle in _among(one.obstacles, shape.allowed if own else None)
        if (obstacle.pod_set, obstacle.flavor, obstacle.resource) not in known
    ]
    if not more:
        return refusal
    return replace(refusal, shortfalls=(*refusal.shortfalls, *more))


def told(obstacles: Sequence[Obstacle]) -> str:
    """The obstacles as a sentence: ``couldn't assign flavors to pod set main: cpu: 500m short in
    flavor spot (1 asked, 500m free)``."""
    by_pod_set: dict[str, list[str]] = {}
    for one in obstacles:
        by_pod_set.setdefault(one.pod_set, []).append(sentence(one))
    return "; ".join(
        f"couldn't assign flavors to pod set {name}: {_listed(list(dict.fromkeys(clauses)))}"
        for name, clauses in by_pod_set.items()
    )


def _listed(clauses: Sequence[str]) -> str:
    """The first clauses; of many more only the number, since the shortfalls have them all."""
    if len(clauses) <= CLAUSES_MAX:
        return ", ".join(clauses)
    return f"{', '.join(clauses[:CLAUSES_MAX])}, and {len(clauses) - CLAUSES_MAX} more"


def sentence(one: Obstacle) -> str:
    """One obstacle in words, with its numbers."""
    if not one.resource or one.message:
        return one.message
    wanted = plus(one.taken, one.requested)
    if one.reason == "ExceedsMaxQuota":
        asked = (
            f"previously considered {render(one.resource, one.taken)} + "
            f"{render(one.resource, one.requested)}"
            if one.taken
            else render(one.resource, one.requested)
        )
        most = render(one.resource, one.available)
        return f"{one.resource}: {asked} > {most}, the most that flavor {one.flavor} can give"
    lacking, asked, there = (
        render(one.resource, much) for much in (wanted - one.available, wanted, one.available)
    )
    return f"{one.resource}: {lacking} short in flavor {one.flavor} ({asked} asked, {there} free)"


def shortfall(one: Obstacle) -> Shortfall:
    """One obstacle as numbers."""
    return Shortfall(
        pod_set=one.pod_set,
        flavor=one.flavor,
        resource=one.resource,
        requested=plus(one.taken, one.requested),
        available=one.available,
        reason=one.reason,
        message=sentence(one),
    )
