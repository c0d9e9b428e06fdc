"""What a ClusterQueue with ``concurrentAdmission`` says about families. LIFECYCLE 4.1."""

from __future__ import annotations

from typing import NamedTuple

from admittance.api.queues import ClusterQueueSpec
from admittance.family.policy import Mode


class Tag(NamedTuple):
    """One variant that every family of the queue has: a flavor, or an explicit variant.

    ``place``: in the order of preference, 0 the best. Delays in seconds; ``delete_delay`` None:
    never."""

    name: str
    place: int
    flavors: tuple[str, ...]
    create_delay: int = 0
    delete_delay: int | None = None

    def within(self, allowed: frozenset[str] | None) -> tuple[str, ...]:
        """Its flavors that a workload may have at all; ``allowed`` None: any."""
        if allowed is None:
            return self.flavors
        return tuple(one for one in self.flavors if one in allowed)


class FamilyRules(NamedTuple):
    """``floor``: the tag below which nobody moves up to; "": none. ``tags``: the best first."""

    mode: Mode
    floor: str
    tags: tuple[Tag, ...]

    def tag(self, name: str) -> Tag | None:
        """The tag of that name; None: the queue has none."""
        return next((one for one in self.tags if one.name == name), None)

    def tags_within(self, allowed: frozenset[str] | None) -> tuple[Tag, ...]:
        """Those of which something is left to a workload that may have these flavors."""
        return tuple(one for one in self.tags if one.within(allowed))


def rules_of(spec: ClusterQueueSpec) -> FamilyRules | None:
    """What the queue says; None: workloads are regular there."""
    given = spec.concurrent_admission
    if given is None:
        return None
    constraints = given.migration_constraints
    mode: Mode = "NoMigration" if constraints.mode == "NoMigration" else "UpgradeOnly"
    if given.explicit_variants:
        tags = tuple(
            Tag(
                one.name,
                place,
                one.allowed_resource_flavors,
                one.create_delay_seconds or 0,
                one.delete_delay_seconds,
            )
            for place, one in enumerate(given.explicit_variants)
        )
        return FamilyRules(mode, constraints.min_variant or "", tags)
    offered = [flavor.name for group in spec.resource_groups[:1] for flavor in group.flavors]
    tags = tuple(Tag(name, place, (name,)) for place, name in enumerate(offered))
    return FamilyRules(mode, constraints.min_flavor or "", tags)
