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
from typing import TYPE_CHECKING, Final

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
from admittance.scheduling.state.workload_info import LAST, Family, Inadmissible, WorkloadInfo
from admittance.scheduling.state.workload_view import GATED

if TYPE_CHECKING:
    from admittance.scheduling.state.queue import Queue
    from admittance.scheduling.state.state import SchedulerState

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


def hindrance(world: SchedulerState, queue: Queue, member: WorkloadInfo) -> Inadmissible | None:
    """Why the variant may not be tried now; None: it may, or is a regular workload."""
    family = member.family
    if family is None:
        return None
    state = family.state
    if state is None:
        return _stays("Its parent is not known")
    busy = migration.busy(family)
    if busy:
        return _stays(busy)
    wanted = wishes(world, queue, family)
    wish = wanted.get(member.key[1])
    if wish is None:
        return _stays(f"ClusterQueue {queue.name} has no variant {family.tag(member)}")
    if not wish.active:
        return _stays(SENTENCES.get(wish.why, str(wish.why)))
    if migration.admitted_name(family):
        return None
    first = _first(world, queue, family, wanted)
    if first is not None and queue.tags[family.tag(member)].place > first.place:
        message = f"The better variant {first.name} needs others to go, and goes first"
        return Inadmissible(WAITS, message, is_silent=True)
    return None


def may_be_admitted(world: SchedulerState, member: WorkloadInfo) -> bool:
    """The variant holds a reservation that has passed all its checks: it may become an admission,
    or take over from the one that is admitted."""
    family = member.family
    assert family is not None and member.charge is not None
    if family.state is None or migration.busy(family):
        return False
    wish = wish_of(world, member.charge.queue, member)
    return wish is not None and wish.active


def place(member: WorkloadInfo) -> int:
    """Of a variant its place among the family's, 0 the best; where nobody knows it, the last."""
    family = member.family
    if family is None or member not in family.variants:
        return 0
    queue = member.charge.queue if member.charge is not None else member.queue
    tag = queue.tags.get(family.tag(member)) if queue is not None else None
    return tag.place if tag is not None else LAST


def wish_of(world: SchedulerState, queue: Queue, member: WorkloadInfo) -> DesiredState | None:
    """What policy wants of the variant now; None: it is no variant that the queue has."""
    family = member.family
    assert family is not None
    return wishes(world, queue, family).get(member.key[1])


def wishes(world: SchedulerState, queue: Queue, family: Family) -> dict[str, DesiredState]:
    """What policy wants of each of its variants now, the best first."""
    assert family.state is not None
    state = family.state
    admitted = migration.admitted_name(family)
    if admitted != state.admitted:
        state = state._replace(admitted=admitted, first_admitted=state.first_admitted or world.now)
    return desired_variants(state, family.states(), queue.rules, world.now)


def wait(world: SchedulerState, queue: Queue, member: WorkloadInfo) -> None:
    """The variant was set aside: it is looked at again when time alone changes what policy wants,
    if nothing of its family has changed before."""
    family = member.family
    if family is None or family.state is None:
        return
    if not any(one.create_delay or one.delete_delay is not None for one in queue.tags.values()):
        return
    at = changes_next(family.state, family.states(), queue.rules, world.now)
    if at is not None:
        heappush(world.timers, (at, member.key))


def touched(world: SchedulerState, family: Family, now: datetime) -> None:
    """Something of the family changed: whoever was set aside for it comes back, everybody stands
    where its parent does, and whoever has passed its checks is looked at again."""
    stamp = family.parent.stamp if family.parent is not None else None
    for one in list(family.variants):
        if stamp is not None:
            one.stamp = stamp
        queue = one.queue
        if one.charge is not None:
            passed = all(state == "Ready" for _, state in one.checks)
            if one.state == "QuotaReserved" and passed and not world.config.as_kueue:
                world.look_again(one)
        elif queue is not None and (is_set_aside(one) or not queue.stands_right(one)):
            world.requeue(one, now)


def is_set_aside(member: WorkloadInfo) -> bool:
    """It waits for its family."""
    return member.aside is not None and member.aside.reason == WAITS


def hurry(world: SchedulerState, family: Family) -> None:
    """One of the family would preempt behind a closed gate: what its siblings wait for is said at
    once, since the gate only opens when it is known."""
    for one in family.variants:
        if one.queue is not None:
            world.urgent[one] = None


def _stays(message: str) -> Inadmissible:
    return Inadmissible(WAITS, message, is_silent=True, stays=True)


def _first(
    world: SchedulerState, queue: Queue, family: Family, wanted: Mapping[str, DesiredState]
) -> Tag | None:
    """The variant behind which nobody is tried; None: everybody is."""
    if not any(is_blocked(one) or _is_waited_for(world, one) for one in family.variants):
        return None
    known: list[Sibling] = []
    stopping: list[str] = []
    for one, told in family.variants.items():
        name, tag = one.key[1], queue.tags.get(told.tag)
        wish = wanted.get(name)
        if tag is None or wish is None or not wish.active or not told.active:
            continue
        known.append(Sibling(name, tag.place, True, is_blocked(one), told.is_open))
        if _is_waited_for(world, one):
            stopping.append(name)
    place = first_choice(known, stopping)
    return next((one for one in queue.tags.values() if one.place == place), None)


def is_blocked(member: WorkloadInfo) -> bool:
    """It would preempt, and a gate of its own is closed: as it was found, or as it is written
    where nobody has looked since."""
    if not member.closed_gate or member.queue is None:
        return False
    if member.aside is not None:
        return member.aside.reason == GATED
    return member.said == GATED and (member.cls is None or member.cls.parked is None)


def _is_waited_for(world: SchedulerState, member: WorkloadInfo) -> bool:
    """Others are on their way out for it."""
    givers = world.promises.get(member.uid)
    if givers and any(one.charge is not None and one.is_leaving for one in givers):
        return True
    if member.pending is None or not member.pending.issued:
        return False
    return any(True for _ in planned.outstanding(world, member))
