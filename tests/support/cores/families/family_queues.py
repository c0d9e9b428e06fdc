"""Specs of ClusterQueues for families of variants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from support.builders import resource_groups


def both(flavors: Mapping[str, str], cpu: str, *, shared: str = "cpu-only") -> list[dict[str, Any]]:
    """Two resource groups: gpu in these flavors, in order, and cpu in one that all share."""
    return resource_groups(flavors, "gpu") + resource_groups({shared: cpu})


def family_policy(
    mode: str = "UpgradeOnly", floor: str = "", explicit: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """The concurrentAdmission of a ClusterQueue. ``floor``: minFlavor, or minVariant."""
    constraints = {"mode": mode}
    if floor:
        constraints["minVariant" if explicit else "minFlavor"] = floor
    variants = {"explicitVariants": list(explicit)} if explicit else {}
    return {"migrationConstraints": constraints, **variants}


def explicit(*tags: str, shared: str = "cpu-only") -> dict[str, Any]:
    """One explicit variant per gpu flavor, each with the flavor of the cpu."""
    return family_policy(
        explicit=[{"name": tag, "allowedResourceFlavors": [tag, shared]} for tag in tags]
    )
