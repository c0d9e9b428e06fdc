"""The submission of an element: what the array-controller submits, as the workload that is stored.
docs/spec/arrays.md#2."""

from __future__ import annotations

from typing import Final

from admittance.api.arrays import element_name
from admittance.api.workload import NO_RESULT, PARENT_VARIANT
from admittance.events import facts, reasons
from admittance.workload.arrays.dependencies import rows_of_element, with_rows
from admittance.workload.arrays.elements import (
    ElementOf,
    ElementSpecs,
    element_metadata,
    element_of,
    with_role_of_queue,
)
from admittance.workload.change import Change, ignored, refused
from admittance.workload.conditions import Type, is_true
from admittance.workload.families.roles import is_partial
from admittance.workload.moves.requests import Arrived
from admittance.workload.stored import ARRAY, PARENT, StoredWorkload, head

KEPT_MAX: Final = 64
"""Number of arrays with cached specs: the elements of an array are submitted together."""


class ElementIntake:
    """Makes elements of arrays, and caches what the elements of recent arrays share."""

    def __init__(self) -> None:
        self._specs: dict[str, ElementSpecs] = {}

    def enter(
        self,
        fact: facts.Submitted,
        claim: ElementOf,
        present: StoredWorkload | None,
        array: StoredWorkload | None,
        user: str,
        *,
        has_variants: bool,
    ) -> Arrived | Change:
        """Returns the submitted element as an `Arrived` fact, or why it is refused. ``present``:
        the stored workload with the element's name. ``array``: the stored workload with the array's
        name. ``has_variants``: whether the queue has concurrent admission."""
        if user:
            return refused(
                present,
                reasons.NOT_AN_ELEMENT,
                f"the array-controller creates the elements of arrays: leave out the "
                f"ownerReference to {claim.array}",
            )
        if present is not None:
            if element_of(present) == claim:
                return ignored(present, reasons.UNCHANGED, "the element exists")
            return refused(
                present, reasons.ALREADY_EXISTS, f"a workload {fact.namespace}/{fact.name} exists"
            )
        if array is None or array.metadata.uid != claim.uid or not takes_elements(array):
            return refused(
                None,
                reasons.NO_ARRAY,
                f"no array {claim.array!r} with the uid {claim.uid!r} exists",
            )
        specs = self._specs_of(array)
        place = specs.places.get(claim.number)
        names = (
            element_name(claim.array, claim.uid, claim.number, taken=taken)
            for taken in (False, True)
        )
        if place is None or fact.name not in names:
            return refused(
                None,
                reasons.NOT_AN_ELEMENT,
                f"{fact.name} is not the element {claim.number} of the array {claim.array}",
            )
        counts = array.status.array
        if counts is not None and counts.results[place : place + 1] not in ("", NO_RESULT):
            return ignored(None, reasons.UNCHANGED, f"the index {claim.number} has a result")
        metadata = element_metadata(array, fact.name, claim.number, place)
        spec = specs.spec_of(claim.number)
        if has_variants and not is_partial(spec):
            metadata, spec = with_role_of_queue(metadata, spec, PARENT, PARENT_VARIANT)
        arrived = Arrived(
            namespace=fact.namespace,
            name=fact.name,
            uid=fact.uid,
            api_version=array.api_version,
            metadata=metadata,
            spec=spec,
            submitted_by=array.status.submitted_by,
            created_at=metadata.creation_timestamp,
        )
        rows = rows_of_element(array, claim.number)
        return with_rows(arrived, rows) if rows else arrived

    def _specs_of(self, array: StoredWorkload) -> ElementSpecs:
        uid = array.metadata.uid
        kept = self._specs.get(uid)
        if kept is None or kept.spec is not array.spec:
            if len(self._specs) >= KEPT_MAX:
                self._specs.clear()
            kept = self._specs[uid] = ElementSpecs(array)
        return kept


def takes_elements(array: StoredWorkload) -> bool:
    """Whether the array may get further elements."""
    spec = head(array)
    return (
        spec.role == ARRAY
        and spec.active
        and not is_true(array, Type.FINISHED)
        and array.metadata.deletion_timestamp is None
    )
