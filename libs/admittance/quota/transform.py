"""Resources of a pod as quota counts them, where a deployment counts some in other units.

A transformation turns an input into outputs: so many GPUs of a kind into credits, a slice of a GPU
into its memory. Source: `docs/spec/scheduling.md#1.6`, Kueue's ``resources.transformations``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from admittance.api.units import parse, whole
from admittance.quota.amounts import plus


class Transformation(NamedTuple):
    """``input``: the resource; ``retains``: it counts as itself, too. ``multiply_by``: another
    resource of the same pod whose amount multiplies the outputs; "": none. ``outputs``: resource
    and quantity of it for one whole unit of the input."""

    input: str
    retains: bool
    multiply_by: str
    outputs: tuple[tuple[str, str], ...]


def transformed(
    requests: Mapping[str, int], transformations: Sequence[Transformation]
) -> dict[str, int]:
    """Requests of one pod (accounting units) as they count.

    Outputs are exact sums, rounded up at the end. What is generated of a resource never falls below
    nothing, so that an allowance (a negative output) reaches no request that was made directly.
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
