"""What was used in one unit, such as ``gpu-hours``: the share of each sum, and what its queues are
entitled to by their own quota."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Final, NamedTuple

from msgspec.structs import replace

from admittance.api.fields.units import INT64_MAX
from admittance.api.fields.usage_units import Unit
from admittance.events.requests.queues import QueueStatus
from admittance.events.requests.reading import UsageSum
from admittance.usage.report import Group

SHORT: Final = ("cpu-hours", "gpu-hours", "gib-hours")
"""Units that shells complete."""


def with_shares(sums: Sequence[UsageSum], used: Sequence[Decimal]) -> list[UsageSum]:
    """The sums with what each used, in one unit, and its part of all."""
    total = sum(used, Decimal(0))
    return [
        replace(each, used=plain(amount), share=float(amount / total) if total else None)
        for each, amount in zip(sums, used, strict=True)
    ]


def plain(number: Decimal) -> str:
    """The number without an exponent and without zeros at its end; at most six decimals."""
    text = f"{number:.6f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


# Entitlement. -----------------------------------------------------------------------------------


class QuotaPart(NamedTuple):
    """The quota of one ClusterQueue and flavor. ``groups``: the LocalQueues that lead to the
    ClusterQueue, as namespace and name."""

    cluster_queue: str
    flavor: str
    nominal: int
    local_queues: frozenset[tuple[str, str]]


def quota_parts(
    unit: Unit, queues: Iterable[QueueStatus], local: Iterable[QueueStatus]
) -> list[QuotaPart]:
    """The quota of all ClusterQueues that the unit counts."""
    led: dict[str, set[tuple[str, str]]] = {}
    for each in local:
        led.setdefault(each.cluster_queue, set()).add((each.namespace, each.name))
    return [
        QuotaPart(queue.name, each.flavor, each.nominal, frozenset(led.get(queue.name, ())))
        for queue in queues
        for each in queue.usage
        if unit.counts(each.resource)
    ]


def entitlements(by: Sequence[str], parts: Sequence[QuotaPart]) -> dict[Group, float] | None:
    """By group the part of all quota that it has of its own; None: users and labels have no quota,
    or some quota is unlimited. The quota of a ClusterQueue that several LocalQueues or namespaces
    share belongs to none of them."""
    total = sum(part.nominal for part in parts)
    owned = {"cluster-queue", "namespace", "queue", "flavor"}
    if not by or not owned.issuperset(by) or not total:
        return None
    if any(part.nominal >= INT64_MAX for part in parts):
        return None
    shares: dict[Group, Fraction] = {}
    for part in parts:
        group = _owner(by, part)
        if group is not None:
            shares[group] = shares.get(group, Fraction(0)) + Fraction(part.nominal, total)
    return {group: float(share) for group, share in shares.items()}


def _owner(by: Sequence[str], part: QuotaPart) -> Group | None:
    values: list[str] = []
    for word in by:
        match word:
            case "cluster-queue":
                owners = {part.cluster_queue}
            case "flavor":
                owners = {part.flavor}
            case "namespace":
                owners = {namespace for namespace, _ in part.local_queues}
            case _:
                owners = {f"{namespace}/{name}" for namespace, name in part.local_queues}
        if len(owners) != 1:
            return None
        values += owners
    return tuple(values)
