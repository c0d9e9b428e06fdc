"""`Assignment`, the result of a scan of flavors for a workload, and its conversion to and from a
stored admission."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import IntEnum, unique
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from admittance.api.fields.units import BadQuantity, amount, quantities_of
from admittance.events.shapes import Admission, PodSetAssignment
from admittance.quota.cell import Cell, FlavorResource
from admittance.quota.tree import Node
from admittance.scheduling.state.held.shared_quota import FamilyQuota
from admittance.scheduling.state.requests import RequestShape


@unique
class FlavorAssignmentMode(IntEnum):
    """How well a flavor serves a request; a better mode has a higher number. The modes between
    NO_FIT and FIT need preemption."""

    NO_FIT = 0
    NO_CANDIDATES = 1
    PREEMPT = 2
    RECLAIM = 3
    FIT = 4


NO_FIT: Final[int] = FlavorAssignmentMode.NO_FIT
FIT: Final[int] = FlavorAssignmentMode.FIT
NO_CANDIDATES: Final[int] = FlavorAssignmentMode.NO_CANDIDATES
PREEMPT: Final[int] = FlavorAssignmentMode.PREEMPT
RECLAIM: Final[int] = FlavorAssignmentMode.RECLAIM


class Obstacle(NamedTuple):
    """Why the request of one pod set for one resource does not fit into one flavor. Amounts are in
    accounting units.

    ``resource`` is "" if the flavor itself does not match; the amounts are 0 then. ``taken``: the
    amount that earlier pod sets of the same workload take."""

    pod_set: str
    flavor: str
    resource: str
    reason: str
    message: str = ""
    requested: int = 0
    available: int = 0
    taken: int = 0


Choice: TypeAlias = str | tuple[str, str]
"""A choice that a scan of flavors can avoid: an admission check, or a pod set with a flavor."""


class PodSetPlace(msgspec.Struct, frozen=True):
    """The flavors and amounts that an assignment gives to one pod set: ``flavors``, the flavor of
    each resource; ``amounts``, the amount of each resource for all pods."""

    name: str
    count: int
    flavors: dict[str, str]
    amounts: list[tuple[str, int]]


NOTHING_CHOSEN: Final[Mapping[str, str]] = MappingProxyType({})


class Assignment:
    """The result of a scan of flavors for a workload.

    ``usage``: the amounts that the assignment would charge per cell, in the order of assigning.
    ``contested``: the assigned flavors and resources that have room only after preemption.
    ``cursor``: where the scan stopped; None: the scan reached the last flavor. ``checks``: for each
    controller the check that the assigned flavors need. ``chosen``: the flavors of the pod set that
    is scanned, by resource. ``avoided``: what the scan skipped: flavors with one of these admission
    checks, and these flavors of pod sets. ``clashes``: checks and flavors chosen early in the scan
    that excluded later flavors. ``failed_from``: the index of the first obstacle of the scan
    that found no flavor.

    ``fewest``: what the workload would get with the fewest pods with which it may start; None: no
    fewer pods were tried.

    ``spared_until``: when the first of the workloads that were too young to be victims
    (`admittance.scheduling.preemption.min_run`) has run long enough; None: none was too young.

    ``family_quota``: the quota that the family of a variant holds. A variant needs only the amounts
    beyond ``family_quota``, and would be charged the amounts in ``whole``."""

    __slots__ = (
        "avoided",
        "checks",
        "chosen",
        "clashes",
        "contested",
        "cursor",
        "failed_from",
        "family_quota",
        "fewest",
        "level",
        "mode",
        "obstacles",
        "places",
        "spared_until",
        "usage",
        "whole",
    )

    def __init__(
        self, avoided: frozenset[Choice] = frozenset(), overlap: FamilyQuota[Any] | None = None
    ) -> None:
        self.avoided = avoided
        self.family_quota = overlap
        self.fewest: Assignment | None = None
        self.spared_until: datetime | None = None
        self.clashes: list[Choice] = []
        self.mode = int(FIT)
        self.level = 0
        self.places: list[PodSetPlace] = []
        self.usage: dict[Cell, int] = {}
        self.whole = self.usage
        self.checks: dict[str, str] = {}
        self.chosen = NOTHING_CHOSEN
        self.obstacles: list[Obstacle] = []
        self.failed_from = 0
        self.cursor: Cursor | None = None
        self.contested: dict[FlavorResource, None] = {}

    def added_usage(self) -> dict[Cell, int]:
        """Returns the usage that the assignment would add now. For a variant the added usage
        depends on the quota of its siblings."""
        return (
            self.usage if self.family_quota is None else self.family_quota.missing_for(self.whole)
        )


Cursor = tuple[Mapping[int, int], ...]
"""The place where a scan of flavors stopped: for each pod set a map from the number of a resource
group to the index of the flavor where the scan of that group stopped; -1: the last flavor."""


def admission_of(queue: str, assignment: Assignment) -> Admission:
    """Returns the assignment in the form of a stored admission."""
    return Admission(
        cluster_queue=queue,
        pod_set_assignments=tuple(
            [
                PodSetAssignment(
                    name=place.name,
                    flavors=place.flavors,
                    resource_usage={
                        resource: quantities_of(resource)[much] for resource, much in place.amounts
                    },
                    count=place.count,
                )
                for place in assignment.places
            ]
        ),
    )


def charges_of(
    node: Node,
    admission: Admission,
    shape: RequestShape,
    reclaimable: Iterable[tuple[str, int]] = (),
) -> list[tuple[Cell, int]]:
    """Returns the usage of a stored admission as `amounts_of` does, per cell."""
    amounts = amounts_of(admission, shape, reclaimable)
    return [(node.cell(fr), much) for fr, much in amounts.items()]


def amounts_of(
    admission: Admission, shape: RequestShape, reclaimable: Iterable[tuple[str, int]] = ()
) -> dict[FlavorResource, int]:
    """Returns the usage of a stored admission, per flavor and resource.

    Reclaimable pods do not count: the usage of a pod set is scaled down to its remaining pods. A
    quantity that cannot be read counts as zero."""
    gone = dict(reclaimable)
    full = {ps.name: ps.count for ps in shape.pod_sets} if gone else {}
    total: dict[FlavorResource, int] = {}
    for place in admission.pod_set_assignments:
        count = place.count
        left = count
        if place.name in gone:
            left = max(0, min(count, full.get(place.name, count) - gone[place.name]))
        for resource, flavor in place.flavors.items():
            try:
                much = amount(resource, place.resource_usage.get(resource, "0"))
            except BadQuantity:
                continue
            if left != count:
                much = much // count * left
            total[flavor, resource] = total.get((flavor, resource), 0) + much
    return total
