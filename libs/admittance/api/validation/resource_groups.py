"""Rules of resource groups of ClusterQueue and Cohort: docs/spec/scheduling.md#1.3, #1.4."""

from __future__ import annotations

from fractions import Fraction
from typing import Final, NamedTuple

from admittance.api.limits import Quantity
from admittance.api.names import qualified
from admittance.api.problems import DUPLICATE, Problem, shown
from admittance.api.queues import FlavorQuotas, ResourceGroup, ResourceQuota
from admittance.api.units import BadQuantity, parse
from admittance.api.validation.meta import at_most, object_name

TOTAL_MAX: Final = 256


COMBINATIONS_MAX: Final = 512


class Owner(NamedTuple):
    """The owner of resource groups. ``above``: the field that names its cohort."""

    has_parent: bool
    above: str
    lends_own_only: bool


def check_groups(groups: tuple[ResourceGroup, ...], owner: Owner) -> list[Problem]:
    field = "spec.resourceGroups"
    found: list[Problem] = []
    resources: set[str] = set()
    flavors: set[str] = set()
    for i, group in enumerate(groups):
        path = f"{field}[{i}]"
        found += _covered(group, path, resources)
        for j, flavor in enumerate(group.flavors):
            found += _flavor(flavor, group, f"{path}.flavors[{j}]", owner)
            if flavor.name in flavors:
                message = f"{shown(flavor.name)} is there twice"
                found.append(Problem(f"{path}.flavors[{j}].name", message, DUPLICATE))
            flavors.add(flavor.name)
    total = sum(len(group.flavors) for group in groups)
    found += at_most(total, TOTAL_MAX, field, "flavors in all groups together")
    total = sum(len(group.covered_resources) for group in groups)
    found += at_most(total, TOTAL_MAX, field, "covered resources in all groups together")
    for i, group in enumerate(groups):
        total = sum(len(flavor.resources) for flavor in group.flavors)
        found += at_most(total, COMBINATIONS_MAX, f"{field}[{i}]", "quotas")
    return found


def _covered(group: ResourceGroup, path: str, seen: set[str]) -> list[Problem]:
    field = f"{path}.coveredResources"
    found: list[Problem] = []
    for j, name in enumerate(group.covered_resources):
        if complaint := qualified(name):
            found.append(Problem(f"{field}[{j}]", complaint))
        if name in seen:
            message = f"{shown(name)} is there twice"
            found.append(Problem(f"{field}[{j}]", message, DUPLICATE))
        seen.add(name)
    return found


def _flavor(flavor: FlavorQuotas, group: ResourceGroup, path: str, owner: Owner) -> list[Problem]:
    found = object_name(flavor.name, f"{path}.name")
    covered = group.covered_resources
    if len(flavor.resources) != len(covered):
        message = f"has {len(flavor.resources)} quotas for {len(covered)} covered resources"
        found.append(Problem(f"{path}.resources", message))
    for i, (quota, name) in enumerate(zip(flavor.resources, covered, strict=False)):
        field = f"{path}.resources[{i}]"
        if quota.name != name:
            message = f"must be {shown(name)}, in the order of coveredResources"
            found.append(Problem(f"{field}.name", f"{message}, not {shown(quota.name)}"))
        found += _quota(quota, field, owner)
    return found


def quantity_of(quantity: Quantity, field: str, found: list[Problem]) -> Fraction | None:
    try:
        number = parse(quantity)
    except BadQuantity as error:
        found.append(Problem(field, str(error)))
        return None
    if number < 0:
        found.append(Problem(field, f"must not be negative, not {quantity}"))
    return number


def _quota(quota: ResourceQuota, path: str, owner: Owner) -> list[Problem]:
    found: list[Problem] = []
    nominal = quantity_of(quota.nominal_quota, f"{path}.nominalQuota", found)
    for name, limit in (
        ("borrowingLimit", quota.borrowing_limit),
        ("lendingLimit", quota.lending_limit),
    ):
        if limit is None:
            continue
        field = f"{path}.{name}"
        number = quantity_of(limit, field, found)
        if not owner.has_parent:
            found.append(Problem(field, f"must be left out while {owner.above} is empty"))
        if (
            name == "lendingLimit"
            and owner.lends_own_only
            and number is not None
            and nominal is not None
            and number > nominal
        ):
            found.append(Problem(field, f"must not exceed nominalQuota {quota.nominal_quota}"))
    return found
