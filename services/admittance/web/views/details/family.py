"""How the variants of a family stand, in one sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from admittance.events.requests.explanation import VariantVerdict
from admittance.workload.phase import Phase

NAMED_MAX: Final = 3
"""The most variants of a state that the sentence names."""
SHORT: Final = "short"
STATES: Final[Mapping[str, tuple[str, str]]] = {
    SHORT: ("is short of quota", "are short of quota"),
    Phase.PENDING: ("waits", "wait"),
    Phase.BACKOFF: ("waits for its next attempt", "wait for their next attempt"),
    Phase.QUOTA_RESERVED: (
        "has its quota and waits for its checks",
        "have their quota and wait for their checks",
    ),
    Phase.EVICTING: ("is evicted", "are evicted"),
    Phase.DEACTIVATED: ("is not tried", "are not tried"),
    Phase.REJECTED: ("was rejected by a check", "were rejected by a check"),
}
"""How one and how several variants stand, by phase."""


def say_family(variants: Sequence[VariantVerdict]) -> str:
    """The sentence about a family that waits: its variants by state, in their order."""
    groups: dict[str, list[str]] = {}
    for variant in variants:
        groups.setdefault(_standing(variant), []).append(variant.variant)
    return f"It waits: {'; '.join(_clause(at, names) for at, names in groups.items())}."


def _standing(variant: VariantVerdict) -> str:
    explained = variant.explained
    if not variant.active:
        return Phase.DEACTIVATED
    rooms = [room for verdict in explained.flavors for room in verdict.rooms]
    fits = any(verdict.fits for verdict in explained.flavors)
    if explained.phase == Phase.PENDING and not fits and any(room.short for room in rooms):
        return SHORT
    return explained.phase


def _clause(at: str, names: Sequence[str]) -> str:
    one, several = STATES.get(at, (f"is {at}", f"are {at}"))
    if len(names) == 1:
        return f"{names[0]} {one}"
    more = len(names) - NAMED_MAX
    named = list(names) if more <= 0 else [*names[:NAMED_MAX], f"{more} more"]
    return f"{', '.join(named[:-1])} and {named[-1]} {several}"
