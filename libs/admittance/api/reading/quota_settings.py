"""The settings under ``resources`` of a configuration that leave requests without quota, each valid
alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from admittance.api.configuration import Resources, Transformation
from admittance.api.fields.problems import REQUIRED, Problem
from admittance.api.fields.units import parse

_EXCLUDE: Final = "resources.excludeResourcePrefixes"
_COMMON: Final = ("cpu", "memory", "ephemeral-storage", "nvidia.com/gpu")


def empty_prefixes(resources: Resources) -> list[Problem]:
    """An empty prefix would exclude every resource."""
    return [
        Problem(f"{_EXCLUDE}[{index}]", "must be set: an empty prefix excludes all", REQUIRED)
        for index, prefix in enumerate(resources.exclude_resource_prefixes)
        if not prefix
    ]


def quota_warnings(resources: Resources) -> list[str]:
    """A sentence for each setting because of which requests need no quota, or that another setting
    makes ineffective."""
    warnings = []
    for index, prefix in enumerate(resources.exclude_resource_prefixes):
        common = [name for name in _COMMON if name.startswith(prefix)]
        if common:
            warnings.append(
                f"{_EXCLUDE}[{index}] excludes {', '.join(common)}: no quota is charged"
            )
    for index, transformation in enumerate(resources.transformations):
        place = f"resources.transformations[{index}]"
        warnings += _of_transformation(transformation, place, resources.exclude_resource_prefixes)
    return warnings


def _of_transformation(
    transformation: Transformation, place: str, prefixes: tuple[str, ...]
) -> Iterator[str]:
    if transformation.input.startswith(prefixes):
        yield f"{place} has no effect: {_EXCLUDE} excludes its input {transformation.input}"
        return
    if transformation.multiply_by and transformation.multiply_by.startswith(prefixes):
        by = transformation.multiply_by
        yield f"{place}.multiplyBy has no effect: {_EXCLUDE} excludes {by}"
    replaces = transformation.strategy == "Replace"
    if not any(_is_positive(each) for each in transformation.outputs.values()):
        effect = (
            f"no quota is charged for {transformation.input}" if replaces else "it has no effect"
        )
        yield f"{place} has no output of more than 0: {effect}"
    for name in transformation.outputs:
        if name.startswith(prefixes):
            yield (
                f"{place}.outputs[{name}] is charged: {_EXCLUDE} excludes what pods request, "
                "not outputs"
            )


def _is_positive(quantity: Any) -> bool:
    return parse(str(quantity)) > 0
