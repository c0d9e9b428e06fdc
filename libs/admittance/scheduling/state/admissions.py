"""Admissions in both directions: from an assignment to what is written, and from what is written
to what is charged."""

from __future__ import annotations

from collections.abc import Iterable

from admittance.api.units import BadQuantity, amount, render
from admittance.events.shapes import Admission, PodSetAssignment
from admittance.quota.cell import Cell
from admittance.quota.tree import Node
from admittance.scheduling.cycle.flavor_assigner import Assignment
from admittance.scheduling.state.requests import Shape


def admission_of(queue: str, assignment: Assignment) -> Admission:
    """The assignment as it is stored."""
    return Admission(
        cluster_queue=queue,
        pod_set_assignments=tuple(
            [
                PodSetAssignment(
                    name=place.name,
                    flavors=place.flavors,
                    resource_usage={one: render(one, much) for one, much in place.amounts},
                    count=place.count,
                )
                for place in assignment.places
            ]
        ),
    )


def charges_of(
    node: Node, admission: Admission, shape: Shape, reclaimable: Iterable[tuple[str, int]] = ()
) -> list[tuple[Cell, int]]:
    """What an admission counts as usage, per cell.

    Pods that are not needed any more count no longer: usage is scaled to the pods that are left of
    the pod set, where those are fewer than the admitted ones. A quantity that cannot be read counts
    nothing.
    """
    gone = dict(reclaimable)
    full = {ps.name: ps.count for ps in shape.pod_sets} if gone else {}
    total: dict[Cell, int] = {}
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
            if left != count and count:
                much = much // count * left
            cell = node.cell((flavor, resource))
            total[cell] = total.get(cell, 0) + much
    return list(total.items())
