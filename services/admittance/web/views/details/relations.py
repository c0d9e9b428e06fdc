"""What a workload has to do with others: what it waits for, what waits for it, what it preempts,
and on which machines its pods run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

import msgspec

from admittance.events.placement import PlacementPart
from admittance.web.paths import machine_path, workload_path
from admittance.web.views.words import Link, Word, clock_time
from admittance.workload.stored import StoredWorkload

SEES_MACHINES: Final = frozenset({"", "viewer", "admin"})
"""The roles that may see machines; "": the server has no users."""
ROWS_MAX: Final = 100
CONDITIONS: Final = {
    "ok": "to succeed",
    "any": "to end",
    "failed": "to fail",
    "started": "to start",
}
"""What a dependency waits for, by its condition."""


class Relation(msgspec.Struct, frozen=True, kw_only=True):
    """Another workload, in a list. ``word``: how it stands, None: not known; ``text``: what it has
    to do with the workload of the page."""

    name: Link
    text: str
    word: Word | None = None


class PlacedRow(msgspec.Struct, frozen=True, kw_only=True):
    """Pods on a machine. ``link``: None for a role that may not see machines."""

    machine: str
    link: Link | None
    pods: str
    devices: str


class Relations(msgspec.Struct, frozen=True, kw_only=True):
    """``waits_for``: dependencies; ``waited_for``: workloads that depend on it, None: they were not
    looked for, and ``look``: the page that does so. ``victims``: planned ones, with the sentence
    ``plan``. ``placed``, ``placed_more``: its pods on machines."""

    waits_for: tuple[Relation, ...]
    waited_for: tuple[Relation, ...] | None
    look: Link
    plan: str
    victims: tuple[Relation, ...]
    victims_more: int
    placed: tuple[PlacedRow, ...]
    placed_more: int


def build(
    stored: StoredWorkload,
    role: str,
    now: datetime,
    dependents: Sequence[StoredWorkload] | None = None,
) -> Relations:
    """The relations of a stored workload. ``dependents``: the workloads that wait for it, None:
    they were not looked for."""
    meta, status = stored.metadata, stored.status
    plan = status.pending_preemption
    victims = plan.victims if plan is not None else ()
    return Relations(
        waits_for=tuple(_waits_for(stored, now)),
        waited_for=None
        if dependents is None
        else tuple(_dependent(stored, other) for other in dependents[:ROWS_MAX]),
        look=Link(
            "Look for workloads that wait for it",
            f"{workload_path(meta.namespace, meta.name)}?dependents=1#dependents",
        ),
        plan="Their preemption has begun."
        if plan is not None and plan.issued
        else "They are preempted when its checks have passed.",
        victims=tuple(
            Relation(
                name=Link(victim.name, workload_path(victim.namespace, victim.name)),
                text=victim.reason,
            )
            for victim in victims[:ROWS_MAX]
        ),
        victims_more=max(0, len(victims) - ROWS_MAX),
        placed=tuple(_placed(part, role) for part in status.placement[:ROWS_MAX]),
        placed_more=max(0, len(status.placement) - ROWS_MAX),
    )


def depends_on(other: StoredWorkload, uid: str) -> bool:
    """Whether another workload has a dependency on the workload of this uid."""
    return any(row.uid == uid for row in other.status.dependencies)


def _waits_for(stored: StoredWorkload, now: datetime) -> Iterable[Relation]:
    for row in stored.status.dependencies:
        what = CONDITIONS.get(row.condition, row.condition)
        of = f", element {row.index}" if row.index is not None else ""
        each = ", element by element" if row.elementwise else ""
        yield Relation(
            name=Link(row.workload, workload_path(stored.metadata.namespace, row.workload)),
            text=f"{what}{of}{each}",
            word=Word(f"Met at {clock_time(row.since, now)}", "finished")
            if row.since is not None
            else Word("Not yet", "pending"),
        )


def _dependent(stored: StoredWorkload, other: StoredWorkload) -> Relation:
    meta = other.metadata
    rows = [row for row in other.status.dependencies if row.uid == stored.metadata.uid]
    met = all(row.since is not None for row in rows)
    what = CONDITIONS.get(rows[0].condition, rows[0].condition)
    return Relation(
        name=Link(meta.name, workload_path(meta.namespace, meta.name)),
        text=f"waits for it {what}",
        word=Word("Met", "finished") if met else Word("Not yet", "pending"),
    )


def _placed(part: PlacementPart, role: str) -> PlacedRow:
    last = part.first + part.count - 1
    pods = f"{part.pod_set}-{part.first}"
    if last > part.first:
        pods += f" to {part.pod_set}-{last}"
    return PlacedRow(
        machine=part.runner,
        link=Link(part.runner, machine_path(part.runner)) if role in SEES_MACHINES else None,
        pods=pods if part.count else "no pods",
        devices="; ".join(
            f"{resource} {', '.join(units)}" for resource, units in part.devices.items()
        ),
    )
