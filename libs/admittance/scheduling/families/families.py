"""Puts workloads into their families: a parent and its variants, found by the uid of the parent,
in any order of arrival.

A parent holds no quota and is never tried. A variant is a workload like any other, except for the
rules in `siblings` (which variant may be tried now) and `migration` (how a variant takes over).
Source: `docs/spec/lifecycle.md#4`.
"""

from __future__ import annotations

from sys import intern
from typing import TYPE_CHECKING

from admittance.scheduling.state import charging
from admittance.scheduling.state.workload_info import Family, Sibling, WorkloadInfo

if TYPE_CHECKING:
    from admittance.scheduling.state.state import SchedulerState
    from admittance.scheduling.state.workload_view import Facts


def keep(world: SchedulerState, member: WorkloadInfo, facts: Facts) -> None:
    """Puts the workload into the family that its facts name; a regular workload has none."""
    uid = ""
    if facts.parent is not None:
        uid = member.uid
    elif facts.variant is not None:
        uid = facts.variant.parent_uid
    family = member.family
    if family is not None and (
        family.uid != uid or (family.parent is member) != bool(facts.parent)
    ):
        _move_out(world, member)
        leave(world, member)
        family = None
    if not uid:
        return
    if family is None:
        _move_out(world, member)
        family = world.families.get(uid)
        if family is None:
            family = world.families[uid] = Family(uid)
        member.family = family
    if facts.parent is not None:
        # Strings that all variants share are stored once.
        family.parent = member
        family.state = facts.parent._replace(
            namespace=member.key[0],
            name=member.key[1],
            uid=member.uid,
            queue=intern(facts.parent.queue),
        )
    elif facts.variant is not None:
        told = facts.variant
        found = Sibling(intern(told.tag), intern(told.stopped_by), told.active, facts.gate_open)
        family.variants[member] = world.told.setdefault(found, found)


def _move_out(world: SchedulerState, member: WorkloadInfo) -> None:
    """Takes the workload out of its queue before its family changes: the queue finds it by its
    family."""
    if member.queue is not None:
        world.take_out(member)
        member.signature = 0


def leave(world: SchedulerState, member: WorkloadInfo) -> Family | None:
    """Takes the workload out of its family. Returns the family if any member is left."""
    family = member.family
    if family is None:
        return None
    if member.overlap is not None:
        charging.changed(world, charging.withdraw(member))
    member.family = None
    if family.parent is member:
        family.parent = family.state = None
    else:
        family.variants.pop(member, None)
    if family.parent is None and not family.variants:
        world.families.pop(family.uid, None)
        return None
    return family
