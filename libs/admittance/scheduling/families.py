"""The scheduler's rules for families of variants: which workloads belong to a family, which
variants may be tried now, and migration. Source: `docs/spec/lifecycle.md#4.3, #4.4, #4.5, #4.6,
#4.7, #4.8, #T03`.

A parent holds no quota and is never tried. A variant is a workload like any other, except for the
rules in this module. These rules apply the family policy as if the decisions in flight were stored,
so that a variant gets no reservation if a decision in flight rules it out. A variant that may not
be tried is inadmissible, without a refusal, until its family changes or the family policy lets
it be tried.

Migration: one decision gives quota to a better variant without checks, which replaces the admitted
variant. Until the job of the admitted variant has stopped, the quota of both variants is charged.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from heapq import heappush
from sys import intern
from typing import Final

from admittance.events import reasons
from admittance.events.shapes import Admission
from admittance.family import (
    ActivityReason,
    DesiredState,
    Sibling,
    Tag,
    changes_next,
    desired_variants,
    first_choice,
)
from admittance.scheduling.state.held import charging
from admittance.scheduling.state.queue import is_in_place
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.stored_fields import InFlight
from admittance.scheduling.state.workload_info import FamilyInfo, Queue, WorkloadInfo
from admittance.scheduling.state.workload_view import (
    LAST_PLACE,
    Inadmissible,
    VariantInfo,
    WorkloadView,
)


def why_busy(family: FamilyInfo) -> str:
    """Returns why no variant of the family may be tried or admitted now; "": variants may
    be tried."""
    state = family.state
    assert state is not None
    if state.waits:
        return "The family waits until its backoff ends"
    if state.stopping or state.migrating_to:
        return "The family's job is being stopped"
    admitted = family.admitted()
    if state.admitted and (admitted is None or admitted.state != "Admitted" or admitted.is_leaving):
        return "The family's job is being stopped"
    if state.admitted and any(
        variant is not admitted and _is_admitted(variant) for variant in family.variants
    ):
        return "A sibling is about to take over"
    return ""


def admitted_name(family: FamilyInfo) -> str:
    """Returns the name of the family's variant that is admitted, or that a decision in flight
    admits; "": no variant. Must not be called while `why_busy` returns a reason."""
    assert family.state is not None
    if family.state.admitted:
        return family.state.admitted
    return next((variant.key[1] for variant in family.variants if _is_admitted(variant)), "")


def _is_admitted(workload: WorkloadInfo) -> bool:
    """Whether the variant is admitted, or a decision in flight admits it."""
    if workload.charge is None:
        return False
    if workload.state == "Admitted" or workload.in_flight is InFlight.CONFIRMED:
        return True
    family = workload.family
    return (
        workload.in_flight is InFlight.ASSIGNED
        and family is not None
        and family.assumed_admitted is workload
    )


def sibling_to_replace(
    state: SchedulerState, workload: WorkloadInfo, queue: str, admission: Admission
) -> WorkloadInfo | None:
    """Returns the admitted sibling that must stop before the variant starts with ``admission``;
    None: no sibling is admitted, or the variant must pass checks first."""
    family = workload.family
    if family is None:
        return None
    family.assumed_admitted = None
    if state.catalog.checks_to_pass(queue, admission):
        return None
    admitted = family.admitted()
    if admitted is None:
        family.assumed_admitted = workload
    return admitted


def may_reserve(workload: WorkloadInfo) -> bool:
    """Whether the variant may get quota now: no decision of this cycle makes its family busy
    (`why_busy`). True for every regular workload, which has no family."""
    family = workload.family
    return family is None or (family.state is not None and not why_busy(family))


SENTENCES: Final = {
    ActivityReason.PARENT: "Its parent is deactivated or has finished",
    ActivityReason.REJECTED: "One of its checks rejected it",
    ActivityReason.USER: "A user stopped it",
    ActivityReason.REQUEUING_LIMIT: "Its pods failed to get ready in time too often",
    ActivityReason.CREATE_DELAY: "Its createDelaySeconds have not passed",
    ActivityReason.NO_MIGRATION: "A sibling is admitted, and the ClusterQueue has NoMigration",
    ActivityReason.LOWER_THAN_ADMITTED: "A better sibling is admitted",
    ActivityReason.BELOW_MIN: "A sibling is admitted, and this variant is worse than the minimum",
    ActivityReason.DELETE_DELAY: "Its deleteDelaySeconds have passed",
}


def why_not_tried(
    state: SchedulerState, queue: Queue, workload: WorkloadInfo
) -> Inadmissible | None:
    """Returns why the workload, a variant, may not be tried now; None: the variant may be tried, or
    the workload is regular."""
    family = workload.family
    if family is None:
        return None
    parent_state = family.state
    if parent_state is None:
        return _inadmissible("Its parent is not known")
    busy = why_busy(family)
    if busy:
        return _inadmissible(busy)
    desired_by_name = desired_states(state, queue, family)
    desired = desired_by_name.get(workload.key[1])
    if desired is None:
        return _inadmissible(f"ClusterQueue {queue.name} has no variant {family.tag(workload)}")
    if not desired.active:
        return _inadmissible(SENTENCES.get(desired.why, str(desired.why)))
    if admitted_name(family):
        return None
    first = _last_to_try(state, queue, family, desired_by_name)
    if first is not None and queue.tags[family.tag(workload)].place > first.place:
        message = f"The better variant {first.name} needs preemption and is tried first"
        return Inadmissible(reasons.WAITING_FOR_FAMILY, message, is_silent=True)
    return None


def may_be_admitted(state: SchedulerState, workload: WorkloadInfo) -> bool:
    """Whether a variant with a reservation and Ready checks may be admitted, or replace the
    admitted variant."""
    family = workload.family
    assert family is not None and workload.charge is not None
    if family.state is None or why_busy(family):
        return False
    desired = desired_state(state, workload.charge.queue, workload)
    return desired is not None and desired.active


def variant_place(workload: WorkloadInfo) -> int:
    """Returns the place of the variant in its family's order of preference, 0 is the best;
    LAST_PLACE: the queue's rules do not define the variant."""
    family = workload.family
    if family is None or workload not in family.variants:
        return 0
    queue = workload.charge.queue if workload.charge is not None else workload.queue
    tag = queue.tags.get(family.tag(workload)) if queue is not None else None
    return tag.place if tag is not None else LAST_PLACE


def desired_state(
    state: SchedulerState, queue: Queue, workload: WorkloadInfo
) -> DesiredState | None:
    """Returns the state that the family policy sets for the variant now; None: the queue's rules
    do not define the variant."""
    family = workload.family
    assert family is not None
    return desired_states(state, queue, family).get(workload.key[1])


def desired_states(
    state: SchedulerState, queue: Queue, family: FamilyInfo
) -> dict[str, DesiredState]:
    """Returns the state that the family policy sets now for each variant of the family, by name,
    the best variant first."""
    assert family.state is not None
    parent_state = family.state
    admitted = admitted_name(family)
    if admitted != parent_state.admitted:
        parent_state = parent_state._replace(
            admitted=admitted, first_admitted=parent_state.first_admitted or state.now
        )
    return desired_variants(parent_state, family.variant_states(), queue.rules, state.now)


def wake_on_policy_change(state: SchedulerState, queue: Queue, workload: WorkloadInfo) -> None:
    """Sets a timer for the workload at the next time at which the family policy sets another state
    of a variant because of a delay."""
    family = workload.family
    if family is None or family.state is None:
        return
    if not any(tag.create_delay or tag.delete_delay is not None for tag in queue.tags.values()):
        return
    at = changes_next(family.state, family.variant_states(), queue.rules, state.now)
    if at is not None:
        heappush(state.timers, (at, workload.key))


def family_changed(state: SchedulerState, family: FamilyInfo, now: datetime) -> None:
    """Must be called after a change in the family. Requeues the variants that waited for the
    family, gives all variants the parent's place in the order of the queue, and schedules a recheck
    of variants with a reservation and Ready checks."""
    stamp = family.parent.queued_at if family.parent is not None else None
    for variant in list(family.variants):
        if stamp is not None:
            variant.queued_at = stamp
        queue = variant.queue
        if variant.charge is not None:
            passed = all(check_state == "Ready" for _, check_state in variant.checks)
            if variant.state == "QuotaReserved" and passed and not state.config.as_kueue:
                state.schedule_recheck(variant)
        elif queue is not None and (is_set_aside(variant) or not is_in_place(queue, variant)):
            state.requeue(variant, now)


def is_set_aside(workload: WorkloadInfo) -> bool:
    """Whether the variant is inadmissible because it waits for its family."""
    return (
        workload.inadmissible is not None
        and workload.inadmissible.reason == reasons.WAITING_FOR_FAMILY
    )


def refuse_siblings_at_once(state: SchedulerState, family: FamilyInfo) -> None:
    """Makes the refusals of the family's variants due at once, because a variant of the family
    waits for its preemption gate, which opens only after the scheduler has evaluated all better
    siblings."""
    for variant in family.variants:
        if variant.queue is not None:
            state.urgent_refusals[variant] = None


def _inadmissible(message: str) -> Inadmissible:
    return Inadmissible(reasons.WAITING_FOR_FAMILY, message, is_silent=True, ignores_flush=True)


def _last_to_try(
    state: SchedulerState,
    queue: Queue,
    family: FamilyInfo,
    desired_by_name: Mapping[str, DesiredState],
) -> Tag | None:
    """Returns the worst variant of the family that may be tried now; None: all variants may be
    tried."""
    if not any(
        is_blocked(variant) or _is_waited_for(state, variant) for variant in family.variants
    ):
        return None
    known: list[Sibling] = []
    stopping: list[str] = []
    for variant, info in family.variants.items():
        name, tag = variant.key[1], queue.tags.get(info.tag)
        desired = desired_by_name.get(name)
        if tag is None or desired is None or not desired.active or not info.active:
            continue
        known.append(Sibling(name, tag.place, True, is_blocked(variant), info.is_open))
        if _is_waited_for(state, variant):
            stopping.append(name)
    place = first_choice(known, stopping)
    return next((tag for tag in queue.tags.values() if tag.place == place), None)


def is_blocked(workload: WorkloadInfo) -> bool:
    """Whether the variant needs preemption and its preemption gate is closed. Until this scheduler
    has tried the variant, the answer comes from the variant's stored status."""
    if not workload.closed_gate or workload.queue is None:
        return False
    if workload.inadmissible is not None:
        return workload.inadmissible.reason == reasons.ADMISSION_GATED
    return workload.status_reason == reasons.ADMISSION_GATED and (
        workload.cls is None or workload.cls.parked is None
    )


def _is_waited_for(state: SchedulerState, workload: WorkloadInfo) -> bool:
    """Whether victims of the variant have not stopped yet."""
    givers = state.victims_by_preemptor.get(workload.uid)
    if givers and any(victim.charge is not None and victim.is_leaving for victim in givers):
        return True
    if workload.pending_preemption is None or not workload.pending_preemption.issued:
        return False
    return any(True for _ in charging.outstanding_victims(state, workload))


def join_family(state: SchedulerState, workload: WorkloadInfo, facts: WorkloadView) -> None:
    """Puts a parent or variant into its family, which has the uid of the parent. Parent and
    variants may arrive in any order. Takes a workload that has become regular out of its family."""
    uid = ""
    if facts.parent is not None:
        uid = workload.uid
    elif facts.variant is not None:
        uid = facts.variant.parent_uid
    family = workload.family
    if family is not None and (
        family.uid != uid or (family.parent is workload) != bool(facts.parent)
    ):
        _leave_queue(state, workload)
        leave_family(state, workload)
        family = None
    if not uid:
        return
    if family is None:
        _leave_queue(state, workload)
        family = state.families.get(uid)
        if family is None:
            family = state.families[uid] = FamilyInfo(uid)
        workload.family = family
    if facts.parent is not None:
        # Strings that the parent and all its variants have in common are interned, to save memory.
        family.parent = workload
        family.state = facts.parent._replace(
            namespace=workload.key[0],
            name=workload.key[1],
            uid=workload.uid,
            queue=intern(facts.parent.queue),
        )
    elif facts.variant is not None:
        tag, stopped_by = intern(facts.variant.tag), intern(facts.variant.stopped_by)
        info = VariantInfo(tag, stopped_by, facts.variant.active, facts.gate_open)
        family.variants[workload] = state.variant_infos.setdefault(info, info)


def _leave_queue(state: SchedulerState, workload: WorkloadInfo) -> None:
    """Takes the workload out of its queue. Must be called before the workload's family changes,
    because the place in the queue depends on the family."""
    if workload.queue is not None:
        state.dequeue(workload)
        workload.signature = 0


def leave_family(state: SchedulerState, workload: WorkloadInfo) -> FamilyInfo | None:
    """Takes the workload out of its family. Returns the family, or None if the family is empty
    now."""
    family = workload.family
    if family is None:
        return None
    if workload.family_quota is not None:
        charging.family_quota_changed(state, charging.leave_family_quota(workload))
        charging.count_person(workload)
    workload.family = None
    charging.count_person(workload)
    if family.parent is workload:
        family.parent = family.state = None
    else:
        family.variants.pop(workload, None)
    if family.parent is None and not family.variants:
        state.families.pop(family.uid, None)
        return None
    return family
