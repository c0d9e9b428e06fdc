"""Puts workloads into their families: a parent and its variants, found by the uid of the parent,
in any order of arrival.

A parent holds no quota and is never tried. A variant is a workload like any other, except for the
rules in `siblings` (which variant may be tried now) and `migration` (how a variant takes over).
Source: `docs/spec/lifecycle.md#4`.
"""

from __future__ import annotations

from sys import intern

from admittance.scheduling.state import charging
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.workload_info import FamilyInfo, VariantInfo, WorkloadInfo
from admittance.scheduling.state.workload_view import WorkloadView


def keep(state: SchedulerState, workload: WorkloadInfo, facts: WorkloadView) -> None:
    """Puts the workload into the family that its facts name; a regular workload has none."""
    uid = ""
    if facts.parent is not None:
        uid = workload.uid
    elif facts.variant is not None:
        uid = facts.variant.parent_uid
    family = workload.family
    if family is not None and (
        family.uid != uid or (family.parent is workload) != bool(facts.parent)
    ):
        _move_out(state, workload)
        leave(state, workload)
        family = None
    if not uid:
        return
    if family is None:
        _move_out(state, workload)
        family = state.families.get(uid)
        if family is None:
            family = state.families[uid] = FamilyInfo(uid)
        workload.family = family
    if facts.parent is not None:
        # Strings that all variants share are stored once.
        family.parent = workload
        family.state = facts.parent._replace(
            namespace=workload.key[0],
            name=workload.key[1],
            uid=workload.uid,
            queue=intern(facts.parent.queue),
        )
    elif facts.variant is not None:
        told = facts.variant
        found = VariantInfo(intern(told.tag), intern(told.stopped_by), told.active, facts.gate_open)
        family.variants[workload] = state.variant_infos.setdefault(found, found)


def _move_out(state: SchedulerState, workload: WorkloadInfo) -> None:
    """Takes the workload out of its queue before its family changes: the queue finds it by its
    family."""
    if workload.queue is not None:
        state.dequeue(workload)
        workload.signature = 0


def leave(state: SchedulerState, workload: WorkloadInfo) -> FamilyInfo | None:
    """Takes the workload out of its family. Returns the family if any member is left."""
    family = workload.family
    if family is None:
        return None
    if workload.family_quota is not None:
        charging.family_quota_changed(state, charging.leave_family_quota(workload))
    workload.family = None
    if family.parent is workload:
        family.parent = family.state = None
    else:
        family.variants.pop(workload, None)
    if family.parent is None and not family.variants:
        state.families.pop(family.uid, None)
        return None
    return family
