"""What a parent tells of its variants: ``status.variants``. LIFECYCLE 4.10.

One way to make the rows, for whoever writes them and for whoever sees that they are out of date.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from msgspec.structs import replace

from admittance.api.meta import Condition
from admittance.api.workload import VariantRow
from admittance.family.policy import Wish
from admittance.workload.conditions import Type
from admittance.workload.stored import StoredWorkload, head

SHOWN: Final = (Type.QUOTA_RESERVED, Type.ADMITTED, Type.EVICTED, Type.REQUEUED)
"""Conditions of a variant that its parent repeats."""

MESSAGE_MAX: Final = 400
"""Characters of a message that a parent repeats: of dozens of variants it has to hold them all."""


class Seen(NamedTuple):
    """A variant as its parent tells of it, but for why policy wants it so. ``place``: among its
    siblings, as it is stored."""

    place: int
    row: VariantRow


def seen(variant: StoredWorkload) -> Seen:
    """What of a stored variant is told."""
    spec = head(variant)
    constraints = spec.admission_constraints
    conditions = {one.type: one for one in variant.status.conditions}
    row = VariantRow(
        name=variant.metadata.name,
        variant=spec.variant,
        resource_flavors=(constraints and constraints.allowed_resource_flavors) or (),
        active=spec.active,
        conditions=tuple(_short(conditions[kind]) for kind in SHOWN if kind in conditions),
    )
    return Seen(spec.sibling_index or 0, row)


def _short(condition: Condition) -> Condition:
    if len(condition.message) <= MESSAGE_MAX:
        return condition
    return replace(condition, message=f"{condition.message[: MESSAGE_MAX - 3]}...")


def rows_of(variants: Iterable[Seen], wants: Mapping[str, Wish]) -> tuple[VariantRow, ...]:
    """``status.variants``, the best first. ``wants``: what `admittance.family.states.judged` says
    now; of whom it says nothing no reason is told."""
    ordered = sorted(variants, key=lambda one: (one.place, one.row.name))
    return tuple(
        replace(one.row, why=str(wish.why)) if wish is not None else one.row
        for one in ordered
        for wish in (wants.get(one.row.name),)
    )
