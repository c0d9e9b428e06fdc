"""Rules of ``concurrentAdmission``: docs/spec/lifecycle.md#4.1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admittance.api.limits import VARIANTS_MAX
from admittance.api.names import repeated
from admittance.api.problems import DUPLICATE, FORBIDDEN, NOT_SUPPORTED, REQUIRED, Problem, shown
from admittance.api.validation.meta import dns_label

if TYPE_CHECKING:
    from admittance.api.queues import ClusterQueueSpec, ExplicitVariant, MigrationConstraints

FLAVORS_MAX: Final = 64
"""Flavors of a group. Each of them is a variant where none are explicit: a deployment may raise
`VARIANTS_MAX` up to this for those."""
_FIELD: Final = "spec.concurrentAdmission"


def check_concurrent(spec: ClusterQueueSpec, flavors_max: int = VARIANTS_MAX) -> list[Problem]:
    """The field alone and with the rest of its queue; each broken "only" names both fields.
    ``flavors_max``: so many may each be a variant."""
    given = spec.concurrent_admission
    if given is None:
        return []
    offered = [flavor.name for group in spec.resource_groups for flavor in group.flavors]
    explicit = given.explicit_variants
    found: list[Problem] = []
    if not explicit:
        groups = len(spec.resource_groups)
        if groups != 1:
            # A variant of one group's flavor could never hold what the other group counts.
            message = f"must be one group, not {groups}, for concurrentAdmission without "
            found.append(Problem("spec.resourceGroups", f"{message}explicitVariants"))
        else:
            found += check_flavors(spec, flavors_max)
    found += _migration(given.migration_constraints, explicit, offered)
    found += _variants(explicit, offered)
    if spec.queueing_strategy == "StrictFIFO":
        message = "must not be StrictFIFO together with concurrentAdmission: a job that runs and "
        message += "waits for something better would hold up all workloads behind it"
        found.append(Problem("spec.queueingStrategy", message))
    return found


def check_flavors(spec: ClusterQueueSpec, flavors_max: int) -> list[Problem]:
    """So many flavors may each be a variant, where none are explicit."""
    given = spec.concurrent_admission
    if given is None or given.explicit_variants or not spec.resource_groups:
        return []
    offered = len(spec.resource_groups[0].flavors)
    if offered <= flavors_max:
        return []
    message = f"has {offered} flavors, at most {flavors_max} are allowed for concurrentAdmission "
    return [Problem("spec.resourceGroups[0].flavors", message + "without explicitVariants")]


def _migration(
    constraints: MigrationConstraints,
    explicit: tuple[ExplicitVariant, ...],
    offered: list[str],
) -> list[Problem]:
    path = f"{_FIELD}.migrationConstraints"
    mode = constraints.mode
    found: list[Problem] = []
    flavor, variant = constraints.min_flavor, constraints.min_variant
    if flavor is not None:
        field = f"{path}.minFlavor"
        if mode == "NoMigration":
            found.append(Problem(field, "must be left out while mode is NoMigration", FORBIDDEN))
        elif explicit:
            message = "must be left out while explicitVariants are given; minVariant is for those"
            found.append(Problem(field, message, FORBIDDEN))
        elif flavor not in offered:
            message = f"{shown(flavor)} is no flavor of this queue"
            found.append(Problem(field, message, NOT_SUPPORTED))
    if variant is not None:
        field = f"{path}.minVariant"
        if mode == "NoMigration":
            found.append(Problem(field, "must be left out while mode is NoMigration", FORBIDDEN))
        elif not explicit:
            message = "must be left out without explicitVariants; minFlavor is for flavors"
            found.append(Problem(field, message, FORBIDDEN))
        elif variant not in [one.name for one in explicit]:
            message = f"{shown(variant)} is not one of the explicitVariants"
            found.append(Problem(field, message, NOT_SUPPORTED))
    return found


def _variants(explicit: tuple[ExplicitVariant, ...], offered: list[str]) -> list[Problem]:
    path = f"{_FIELD}.explicitVariants"
    found: list[Problem] = []
    for i in repeated(one.name for one in explicit):
        message = f"{shown(explicit[i].name)} is there twice"
        found.append(Problem(f"{path}[{i}].name", message, DUPLICATE))
    for i, one in enumerate(explicit):
        found += dns_label(one.name, f"{path}[{i}].name")
        field = f"{path}[{i}].allowedResourceFlavors"
        if not one.allowed_resource_flavors:
            found.append(Problem(field, "must name at least one flavor", REQUIRED))
        for j in repeated(one.allowed_resource_flavors):
            message = f"{shown(one.allowed_resource_flavors[j])} is there twice"
            found.append(Problem(f"{field}[{j}]", message, DUPLICATE))
        for j, flavor in enumerate(one.allowed_resource_flavors):
            if flavor not in offered:
                message = f"{shown(flavor)} is no flavor of this queue"
                found.append(Problem(f"{field}[{j}]", message, NOT_SUPPORTED))
    return found
