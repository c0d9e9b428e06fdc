"""Why a parent waits, or what it holds: told variant by variant, since it is never tried itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime

from msgspec.structs import replace

from admittance.events.requests import ExplainReply, VariantVerdict
from admittance.family.policy import STOPPED, Why
from admittance.family.states import begins, changes_next
from admittance.scheduler import households, motion, siblings
from admittance.scheduler.counters import is_parked
from admittance.scheduler.picture import Key, Member
from admittance.scheduler.queue import Queue
from admittance.scheduler.remedies import REMEDIES_MAX
from admittance.scheduler.world import World

Explain = Callable[[Key], ExplainReply]
"""As of any workload."""


def explain(
    world: World, parent: Member, queue: Queue | None, now: datetime, of_variant: Explain
) -> ExplainReply:
    """One line for each of its variants, the best first."""
    family = parent.family
    assert family is not None and family.state is not None
    state = family.state
    found = households.variants(world, queue, family)
    verdicts = tuple(
        _verdict(world, queue, one, of_variant(one.member.key))
        for one in found
        if queue is not None
    )
    phase, reason, message = _standing(world, parent, now)
    waits = parent.competes
    name = queue.name if queue is not None else ""
    position = queue.position(parent) if queue is not None and waits else 0
    cohort = queue.node.parent if queue is not None and queue.node is not None else None
    return ExplainReply(
        phase=phase,
        reason=reason,
        message=message,
        cluster_queue=name,
        local_queue=parent.local[1],
        cohort=cohort.name if cohort is not None else "",
        strategy="BestEffortFIFO" if queue is not None else "",
        position=position,
        pending=queue.pending if queue is not None else 0,
        parked=waits and is_parked(parent),
        priority=parent.priority,
        waiting_since=parent.stamp if waits else None,
        requeue_at=parent.requeue_at if not parent.is_due(now) else None,
        preempted_by=next(
            (one.member.preempted_by for one in found if one.member.preempted_by is not None), None
        ),
        unblocked_by=tuple(dict.fromkeys(_remedies(queue, parent, state.name, verdicts)))[
            :REMEDIES_MAX
        ],
        variants=verdicts,
        seen=world.seen,
    )


def _standing(world: World, parent: Member, now: datetime) -> tuple[str, str, str]:
    """Phase, reason and a sentence."""
    family = parent.family
    assert family is not None and family.state is not None
    state = family.state
    if parent.state != "Pending":
        variant = family.admitted()
        tag = family.tag(variant) if variant is not None else ""
        message = f"Admitted as its variant {tag}" if tag else "Admitted"
        if parent.state == "Evicting":
            heir = next((one for one in family.variants if one.key[1] == state.migrating_to), None)
            message = "Its job is being stopped"
            if heir is not None:
                message += f", to go on as its variant {family.tag(heir)}"
        return parent.state, parent.state, message
    phase = "Pending" if parent.is_due(now) else "Backoff"
    if not parent.competes:
        return phase, parent.said or "Suspended", "It does not compete for quota"
    activity = world.catalog.local_queue_activity(*parent.local)
    if not activity.active:
        return phase, activity.reason, activity.message
    refusal = households.told(world, parent)
    if refusal is None:
        return phase, households.EVALUATED_NEXT, "One of its variants is tried next"
    return phase, refusal.reason, refusal.message


def _verdict(
    world: World, queue: Queue | None, one: households.One, explained: ExplainReply
) -> VariantVerdict:
    assert queue is not None
    member = one.member
    family = member.family
    assert family is not None and family.state is not None
    aside = siblings.hindrance(world, queue, member) if member.charge is None else None
    if member.charge is None and not member.competes and not one.wish.active:
        phase = "Rejected" if one.wish.why is Why.REJECTED else "Deactivated"
        explained = replace(explained, phase=phase)
    return VariantVerdict(
        name=member.key[1],
        variant=one.tag,
        active=one.wish.active,
        why=str(one.wish.why),
        admitted=family.state.admitted == member.key[1],
        gate="Open" if family.variants[member].is_open else "Closed",
        set_aside=aside.message if aside is not None and one.wish.active else "",
        explained=explained,
    )


def _remedies(
    queue: Queue | None,
    parent: Member,
    name: str,
    verdicts: tuple[VariantVerdict, ...],
) -> Iterator[str]:
    """What would let any of its variants go on."""
    family = parent.family
    assert family is not None
    if queue is not None and not verdicts:
        rules, allowed = queue.rules, family.state.allowed if family.state is not None else None
        if rules is not None and allowed and not rules.tags_within(allowed):
            named = ", ".join(sorted(allowed))
            yield f"ClusterQueue {queue.name} offering {named}, or {name} allowing what it offers"
        else:
            yield f"variants of {name} being made, for flavors that it may have"
    stays = queue is not None and queue.rules is not None and queue.rules.mode == "NoMigration"
    if stays and any(one.admitted for one in verdicts):
        return
    for one in verdicts:
        if one.admitted:
            # Nobody moves to what is worse.
            return
        if one.active:
            for way in one.explained.unblocked_by:
                yield f"{one.variant}: {way}"
        elif one.why in STOPPED:
            yield f"{one.variant}: `admit activate workload {one.name}`"
        elif one.why == Why.CREATE_DELAY and (
            at := begins(family.state, queue.rules, one.variant) if family.state and queue else None
        ):
            yield f"{one.variant}: its createDelaySeconds being over at {at:%Y-%m-%dT%H:%M:%SZ}"


def of_variant(world: World, queue: Queue | None, member: Member) -> Iterator[str]:
    """What lets a variant go on that its family keeps back."""
    family = member.family
    if family is None or queue is None or member.charge is not None:
        return
    if family.state is None:
        yield "its parent being known"
        return
    aside = siblings.hindrance(world, queue, member)
    if aside is None:
        return
    wish = siblings.wish_of(world, queue, member)
    if wish is None:
        yield f"ClusterQueue {queue.name} having a variant {family.tag(member)}"
    elif motion.busy(family):
        yield f"its family having settled: {aside.message}"
    elif not wish.active:
        at = changes_next(family.state, family.states(), queue.rules, world.now)
        until = f" (by the clock at {at:%Y-%m-%dT%H:%M:%SZ})" if at is not None else ""
        yield f"its family's policy wanting it{until}: {aside.message}"
    else:
        yield f"its better sibling having had its turn: {aside.message}"
