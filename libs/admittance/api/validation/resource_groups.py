"""Rules of resource groups of ClusterQueue and Cohort: docs/spec/scheduling.md#1.3, #1.4."""

from __future__ import annotations

from fractions import Fraction
from typing import Final, NamedTuple

from admittance.api.limits import Quantity
from admittance.api.problems import DUPLICATE, TOO_MANY, Problem, shown
from admittance.api.queues import FlavorQuotas, ResourceGroup, ResourceQuota
from admittance.api.units import BadQuantity, parse

TOTAL_MAX: Final = 256
COMBINATIONS_MAX: Final = 512


class Owner(NamedTuple):
    """The queue or cohort that has the resource groups. ``parent_field``: the field that names the
    owner's cohort. ``lends_own_only``: the owner may not lend more than its nominal quota.
    """

    has_parent: bool
    parent_field: str
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
                message = f"{shown(flavor.name)} is listed twice"
                found.append(Problem(f"{path}.flavors[{j}].name", message, DUPLICATE))
            flavors.add(flavor.name)
    total = sum(len(group.flavors) for group in groups)
    found += _at_most(total, TOTAL_MAX, field, "flavors in all groups together")
    total = sum(len(group.covered_resources) for group in groups)
    found += _at_most(total, TOTAL_MAX, field, "covered resources in all groups together")
    for i, group in enumerate(groups):
        total = sum(len(flavor.resources) for flavor in group.flavors)
        found += _at_most(total, COMBINATIONS_MAX, f"{field}[{i}]", "quotas")
    return found


def _at_most(count: int, limit: int, field: str, what: str) -> list[Problem]:
    if count <= limit:
        return []
    return [Problem(field, f"has {count} {what}, at most {limit} are allowed", TOO_MANY)]


def _covered(group: ResourceGroup, path: str, seen: set[str]) -> list[Problem]:
    found: list[Problem] = []
    for j, name in enumerate(group.covered_resources):
        if name in seen:
            message = f"{shown(name)} is listed twice"
            found.append(Problem(f"{path}.coveredResources[{j}]", message, DUPLICATE))
        seen.add(name)
    return found


def _flavor(flavor: FlavorQuotas, group: ResourceGroup, path: str, owner: Owner) -> list[Problem]:
    found: list[Problem] = []
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


def quantity(written: Quantity | None) -> Fraction | None:
    """The value of a quantity; None: the quantity is absent or invalid."""
    try:
        return parse(written) if written is not None else None
    except BadQuantity:
        return None


def _quota(quota: ResourceQuota, path: str, owner: Owner) -> list[Problem]:
    found: list[Problem] = []
    limits = {"borrowingLimit": quota.borrowing_limit, "lendingLimit": quota.lending_limit}
    for name, limit in limits.items():
        if limit is not None and not owner.has_parent:
            message = f"must be left out while {owner.parent_field} is empty"
            found.append(Problem(f"{path}.{name}", message))
    nominal, lent = quantity(quota.nominal_quota), quantity(quota.lending_limit)
    if owner.lends_own_only and nominal is not None and lent is not None and lent > nominal:
        message = f"must not exceed nominalQuota {quota.nominal_quota}"
        found.append(Problem(f"{path}.lendingLimit", message))
    return found
