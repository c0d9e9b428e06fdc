"""Families of concurrent admission as the picture has them: a parent, and the variants that try
for it. Whichever is heard of first, they find each other by the uid of the parent.

A parent holds no quota and is never tried; its variants are workloads like others, but for what
the modules `siblings` (who may be tried now) and `motion` (how one takes over from another) say.
Source: LIFECYCLE 4.
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
    """The member is of that family from now on; of none, where it is regular."""
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
        # The strings that everybody has are kept once.
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
    """Before it becomes something else: where it waits, it is found as what it was."""
    if member.queue is not None:
        world.take_out(member)
        member.signature = 0


def leave(world: SchedulerState, member: WorkloadInfo) -> Family | None:
    """The member is of no family any more. Returns the one that it was of, if somebody is left."""
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
