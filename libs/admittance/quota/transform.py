"""Transformations: a deployment counts some resources of pods as other resources.

A transformation turns an input into outputs, for example GPUs into credits. Source:
`docs/spec/scheduling.md#1.6`, Kueue's ``resources.transformations``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from admittance.api.units import parse, whole
from admittance.quota.cell import plus


class Transformation(NamedTuple):
    """Counts one resource as other resources.

    ``retains``: the input resource counts as itself too. ``multiply_by``: a resource of the same
    pod that multiplies the outputs, or "". ``outputs``: resource and quantity for one whole unit of
    the input.
    """

    input: str
    retains: bool
    multiply_by: str
    outputs: tuple[tuple[str, str], ...]


def transformed(
    requests: Mapping[str, int], transformations: Sequence[Transformation]
) -> dict[str, int]:
    """Returns the requests of one pod after transformations, in accounting units.

    Outputs are exact sums, rounded up at the end. A generated amount is never negative, so a
    negative output cannot reduce a direct request.
    """
    by_input = {one.input: one for one in transformations}
    counted: dict[str, int] = {}
    generated: dict[str, Fraction] = {}
    for resource, amount in requests.items():
        found = by_input.get(resource)
        if found is None or found.retains:
            counted[resource] = amount
        if found is None:
            continue
        factor = _value(resource, amount)
        if found.multiply_by:
            by = found.multiply_by
            if by not in requests:
                continue
            factor *= _value(by, requests[by])
        for output, each in found.outputs:
            generated[output] = generated.get(output, Fraction(0)) + factor * parse(each)
    for resource, exact in generated.items():
        unit = 1000 if resource == "cpu" else 1
        counted[resource] = plus(counted.get(resource, 0), max(0, whole(exact * unit)))
    return counted


def _value(resource: str, amount: int) -> Fraction:
    return Fraction(amount, 1000) if resource == "cpu" else Fraction(amount)
