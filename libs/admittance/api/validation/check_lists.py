"""Rules of a ClusterQueue's lists of checks: docs/spec/lifecycle.md#2.2."""

from __future__ import annotations

from typing import Final

from admittance.api.limits import CHECKS_MAX
from admittance.api.names import repeated
from admittance.api.problems import (
    DUPLICATE,
    FORBIDDEN,
    NOT_SUPPORTED,
    REQUIRED,
    TOO_MANY,
    Problem,
    shown,
)
from admittance.api.queues import ClusterQueueSpec, of_flavor, queue_wide
from admittance.api.validation.meta import object_name

"""Rules of a strategy, and names of a list."""
ROWS_MAX: Final = 8
"""Checks that one workload may have: it has each of a list, or one of the same controller."""

CHECK_NAME_MAX: Final = 316


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
        return found + _rows(spec)
    field = "spec.admissionChecksStrategy"
    rules = strategy.admission_checks
    if listed:
        message = "says the same as the lists admissionChecks: only one of the two forms"
        found.append(Problem(field, message, FORBIDDEN))
    for i in repeated(rule.name for rule in rules):
        path = f"{field}.admissionChecks[{i}].name"
        found.append(Problem(path, f"{shown(rules[i].name)} is there twice", DUPLICATE))
    offered = flavors_of(spec)
    for i, rule in enumerate(rules):
        path = f"{field}.admissionChecks[{i}]"
        if rule.name:
            found += _check_name(rule.name, f"{path}.name")
        for j in repeated(rule.on_flavors):
            message = f"{shown(rule.on_flavors[j])} is there twice"
            found.append(Problem(f"{path}.onFlavors[{j}]", message, DUPLICATE))
        for j, flavor_name in enumerate(rule.on_flavors):
            if flavor_name not in offered:
                message = f"{shown(flavor_name)} is no flavor of this queue{_offer(offered)}"
                found.append(Problem(f"{path}.onFlavors[{j}]", message, NOT_SUPPORTED))
    return found + _rows(spec)


def _rows(spec: ClusterQueueSpec) -> list[Problem]:
    """Problems when a workload would have too many checks, with any flavor or with one of them."""
    by_strategy = spec.admission_checks_strategy is not None
    field = "spec.admissionChecksStrategy" if by_strategy else "spec.admissionChecks"
    found = _few(queue_wide(spec), field, "checks of the whole queue")
    for i, group in enumerate(spec.resource_groups):
        for j, flavor in enumerate(group.flavors):
            path = f"spec.resourceGroups[{i}].flavors[{j}].admissionChecks"
            where = field if by_strategy else path
            found += _few(of_flavor(spec, flavor.name), where, f"checks of flavor {flavor.name}")
    return found


def _few(names: tuple[str, ...], field: str, what: str) -> list[Problem]:
    if not ROWS_MAX < len(names) <= CHECKS_MAX:
        return []  # Even longer lists are reported by another rule.
    message = f"has {len(names)} {what}, a workload may have {ROWS_MAX}"
    return [Problem(field, message, TOO_MANY)]


def _offer(offered: list[str]) -> str:
    return f": {', '.join(offered[:8])}" if offered else ", which has none"


def _check_name(name: str, field: str) -> list[Problem]:
    if not name:
        return [Problem(field, "must be set", REQUIRED)]
    if len(name) > CHECK_NAME_MAX:
        return [Problem(field, f"has more than {CHECK_NAME_MAX} characters", "TooLong")]
    return object_name(name, field)


def _check_names(names: tuple[str, ...], field: str) -> list[Problem]:
    found: list[Problem] = []
    for i in repeated(names):
        found.append(Problem(f"{field}[{i}]", f"{shown(names[i])} is there twice", DUPLICATE))
    for i, name in enumerate(names):
        found += _check_name(name, f"{field}[{i}]")
    return found
