"""Which variants of a family may be tried, or confirmed, now.
Source: `docs/spec/lifecycle.md#4.3, #4.4, #4.5, #4.6, #4.7, #4.8, #T03`.

Policy is asked at the moment of acting, with what is on its way counted as if it were written: who
was ruled out is not reserved in the moment before that has been written. Whoever may not be tried
is set aside without a word, and comes back when anything of its family changes, or by the clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from heapq import heappush
from typing import Final

from admittance.family.gates import Sibling, first_choice
from admittance.family.policy import (
    ActivityReason,
    DesiredState,
    Tag,
    changes_next,
    desired_variants,
)
from admittance.scheduling.families import migration
from admittance.scheduling.state import planned
from admittance.scheduling.state.queue import is_in_place
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.workload_info import (
    LAST_PLACE,
    FamilyInfo,
    Inadmissible,
    Queue,
    WorkloadInfo,
)
from admittance.scheduling.state.workload_view import GATED

WAITS: Final = "WaitingForFamily"
"""Reason of a variant that is not tried although it waits for nothing of its own."""

SENTENCES: Final = {
    ActivityReason.PARENT: "Its parent is not to run",
    ActivityReason.REJECTED: "One of its checks rejected it",
    ActivityReason.USER: "A user stopped it",
    ActivityReason.REQUEUING_LIMIT: "Its pods were not ready in time too often",
    ActivityReason.CREATE_DELAY: "Its createDelaySeconds are not over",
    ActivityReason.NO_MIGRATION: "A sibling is admitted, and the ClusterQueue says NoMigration",
    ActivityReason.LOWER_THAN_ADMITTED: "A better sibling is admitted",
    ActivityReason.BELOW_MIN: "A sibling is admitted, and nobody moves up to so little",
    ActivityReason.DELETE_DELAY: "Its deleteDelaySeconds are over",
}


def hindrance(state: SchedulerState, queue: Queue, workload: WorkloadInfo) -> Inadmissible | None:
    """Why the variant may not be tried now; None: it may, or is a regular workload."""
    family = workload.family
    if family is None:
        return None
    parent_state = family.state
    if parent_state is None:
        return _stays("Its parent is not known")
    busy = migration.busy(family)
    if busy:
        return _stays(busy)
    wanted = wishes(state, queue, family)
    wish = wanted.get(workload.key[1])
    if wish is None:
        return _stays(f"ClusterQueue {queue.name} has no variant {family.tag(workload)}")
    if not wish.active:
        return _stays(SENTENCES.get(wish.why, str(wish.why)))
    if migration.admitted_name(family):
        return None
    first = _first(state, queue, family, wanted)
    if first is not None and queue.tags[family.tag(workload)].place > first.place:
        message = f"The better variant {first.name} needs others to go, and goes first"
        return Inadmissible(WAITS, message, is_silent=True)
    return None


def may_be_admitted(state: SchedulerState, workload: WorkloadInfo) -> bool:
    """The variant holds a reservation that has passed all its checks: it may become an admission,
    or take over from the one that is admitted."""
    family = workload.family
    assert family is not None and workload.charge is not None
    if family.state is None or migration.busy(family):
        return False
    wish = wish_of(state, workload.charge.queue, workload)
    return wish is not None and wish.active


def place(workload: WorkloadInfo) -> int:
    """Of a variant its place among the family's, 0 the best; where nobody knows it, the last."""
    family = workload.family
    if family is None or workload not in family.variants:
        return 0
    queue = workload.charge.queue if workload.charge is not None else workload.queue
    tag = queue.tags.get(family.tag(workload)) if queue is not None else None
    return tag.place if tag is not None else LAST_PLACE


def wish_of(state: SchedulerState, queue: Queue, workload: WorkloadInfo) -> DesiredState | None:
    """What policy wants of the variant now; None: it is no variant that the queue has."""
    family = workload.family
    assert family is not None
    return wishes(state, queue, family).get(workload.key[1])


def wishes(state: SchedulerState, queue: Queue, family: FamilyInfo) -> dict[str, DesiredState]:
    """What policy wants of each of its variants now, the best first."""
    assert family.state is not None
    parent_state = family.state
    admitted = migration.admitted_name(family)
    if admitted != parent_state.admitted:
        parent_state = parent_state._replace(
            admitted=admitted, first_admitted=parent_state.first_admitted or state.now
        )
    return desired_variants(parent_state, family.variant_states(), queue.rules, state.now)


def wait(state: SchedulerState, queue: Queue, workload: WorkloadInfo) -> None:
    """The variant was set aside: it is looked at again when time alone changes what policy wants,
    if nothing of its family has changed before."""
    family = workload.family
    if family is None or family.state is None:
        return
    if not any(one.create_delay or one.delete_delay is not None for one in queue.tags.values()):
        return
    at = changes_next(family.state, family.variant_states(), queue.rules, state.now)
    if at is not None:
        heappush(state.timers, (at, workload.key))


def touched(state: SchedulerState, family: FamilyInfo, now: datetime) -> None:
    """Something of the family changed: whoever was set aside for it comes back, everybody stands
    where its parent does, and whoever has passed its checks is looked at again."""
    stamp = family.parent.queued_at if family.parent is not None else None
    for one in list(family.variants):
        if stamp is not None:
            one.queued_at = stamp
        queue = one.queue
        if one.charge is not None:
            passed = all(check_state == "Ready" for _, check_state in one.checks)
            if one.state == "QuotaReserved" and passed and not state.config.as_kueue:
                state.schedule_recheck(one)
        elif queue is not None and (is_set_aside(one) or not is_in_place(one)):
            state.requeue(one, now)


def is_set_aside(workload: WorkloadInfo) -> bool:
    """It waits for its family."""
    return workload.inadmissible is not None and workload.inadmissible.reason == WAITS


def hurry(state: SchedulerState, family: FamilyInfo) -> None:
    """One of the family would preempt behind a closed gate: what its siblings wait for is said at
    once, since the gate only opens when it is known."""
    for one in family.variants:
        if one.queue is not None:
            state.urgent_refusals[one] = None


def _stays(message: str) -> Inadmissible:
    return Inadmissible(WAITS, message, is_silent=True, ignores_flush=True)


def _first(
    state: SchedulerState, queue: Queue, family: FamilyInfo, wanted: Mapping[str, DesiredState]
) -> Tag | None:
    """The variant behind which nobody is tried; None: everybody is."""
    if not any(is_blocked(one) or _is_waited_for(state, one) for one in family.variants):
        return None
    known: list[Sibling] = []
    stopping: list[str] = []
    for one, told in family.variants.items():
        name, tag = one.key[1], queue.tags.get(told.tag)
        wish = wanted.get(name)
        if tag is None or wish is None or not wish.active or not told.active:
            continue
        known.append(Sibling(name, tag.place, True, is_blocked(one), told.is_open))
        if _is_waited_for(state, one):
            stopping.append(name)
    place = first_choice(known, stopping)
    return next((one for one in queue.tags.values() if one.place == place), None)


def is_blocked(workload: WorkloadInfo) -> bool:
    """It would preempt, and a gate of its own is closed: as it was found, or as it is written
    where nobody has looked since."""
    if not workload.closed_gate or workload.queue is None:
        return False
    if workload.inadmissible is not None:
        return workload.inadmissible.reason == GATED
    return workload.status_reason == GATED and (workload.cls is None or workload.cls.parked is None)


def _is_waited_for(state: SchedulerState, workload: WorkloadInfo) -> bool:
    """Others are on their way out for it."""
    givers = state.victims_by_preemptor.get(workload.uid)
    if givers and any(one.charge is not None and one.is_leaving for one in givers):
        return True
    if workload.pending_preemption is None or not workload.pending_preemption.issued:
        return False
    return any(True for _ in planned.outstanding_victims(state, workload))
