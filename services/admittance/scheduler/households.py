"""What a family comes to for people: one row, one sentence, variant by variant the best first."""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple

from admittance.events.shapes import Refusal
from admittance.family.policy import Why, Wish
from admittance.family.states import begins
from admittance.scheduler import siblings
from admittance.scheduler.cycle import refusal_for
from admittance.scheduler.facts import PROMISED
from admittance.scheduler.families import Family
from admittance.scheduler.picture import BACKOFF, Member
from admittance.scheduler.queue import Queue
from admittance.scheduler.reasons import SEVERITY
from admittance.scheduler.standing import standing_of
from admittance.scheduler.world import World
from admittance.workload.families.telling import until

EVALUATED_NEXT: Final = "PendingEvaluation"
NO_FLAVOR: Final = "NoMatchingFlavor"
WAITS_FOR_CHECKS: Final = "UnsatisfiedAdmissionChecks"
_MILD: Final = -1


class One(NamedTuple):
    """A variant that the queue has, and what policy wants of it."""

    member: Member
    tag: str
    wish: Wish


def variants(world: World, queue: Queue | None, family: Family) -> list[One]:
    """The variants that the queue has, the best first."""
    if family.state is None or queue is None:
        return []
    by_name = {one.key[1]: one for one in family.variants}
    wanted = siblings.wishes(world, queue, family)
    return [One(by_name[name], family.tag(by_name[name]), wish) for name, wish in wanted.items()]


def told(world: World, parent: Member) -> Refusal | None:
    """Why the family waits; None: some variant is tried next, and nobody knows more."""
    family = parent.family
    assert family is not None
    if family.state is not None and family.state.waits:
        waits = f"The family waits{until(parent.requeue_at)} before it competes again"
        return Refusal(reason=BACKOFF.reason, message=waits)
    found = variants(world, parent.queue, family)
    if not found:
        if any(True for _ in family.variants):
            return None
        rules = parent.queue.rules if parent.queue is not None else None
        allowed = family.state.allowed if family.state is not None else None
        if rules is not None and not rules.tags_within(allowed):
            named = ", ".join(sorted(allowed or ())) or "none"
            message = f"The queue offers none of the flavors: {named}"
            return Refusal(reason=NO_FLAVOR, message=message)
        message = "Its variants are not made yet, or the ClusterQueue has none for it"
        return Refusal(reason=EVALUATED_NEXT, message=message)
    rules = parent.queue.rules if parent.queue is not None else None
    assert family.state is not None, "it has variants that policy knows"
    lines = [_line(one, begins(family.state, rules, one.tag), world.now) for one in found]
    if any(line.reason == "" for line in lines):
        return None
    # That of the best one that waits: what the family would like to be changed.
    reason = next((line.reason for line in lines if line.waits), min(lines, key=_weight).reason)
    if not parent.is_due(world.now):
        reason = BACKOFF.reason  # All of them wait for a time.
    shortfalls = tuple(one for line in lines for one in line.refusal.shortfalls)
    return Refusal(
        reason=reason,
        message="; ".join(f"{line.tag}: {line.refusal.message}" for line in lines),
        shortfalls=shortfalls,
    )


class _Line(NamedTuple):
    """What is told of one variant. ``reason``: "" where it is tried next. ``waits``: it tries, and
    holds nothing."""

    tag: str
    reason: str
    refusal: Refusal
    weight: int
    waits: bool = False


def _weight(line: _Line) -> int:
    return line.weight


def _line(one: One, begins_at: datetime | None, now: datetime) -> _Line:
    """``begins_at``: when the variant may be tried for the first time."""
    member = one.member
    if member.charge is not None:
        waits = [name for name, state in member.checks if state != "Ready"]
        message = f"reserved, waits for {', '.join(waits) or 'its admission'}"
        if member.state == PROMISED:
            message = "takes over when the job has stopped"
        return _Line(one.tag, WAITS_FOR_CHECKS, Refusal(reason="", message=message), _MILD)
    if not one.wish.active:
        message = f"inactive ({one.wish.why})"
        if one.wish.why is Why.CREATE_DELAY:
            message += until(begins_at)
        elif one.wish.why is Why.REJECTED and member.problem is not None:
            message += f": {member.problem.message}"
        return _Line(
            one.tag, siblings.WAITS, Refusal(reason="", message=message), len(SEVERITY) + 1
        )
    if not member.is_due(now):
        because = f": {member.problem.message}" if member.problem is not None else ""
        backoff = Refusal(reason="", message=f"waits{until(member.requeue_at)}{because}")
        return _Line(one.tag, BACKOFF.reason, backoff, len(SEVERITY), waits=True)
    refusal = refusal_for(member)
    if refusal is None and (standing := standing_of(member)) is not None:
        refusal = standing.refusal
    if refusal is None:
        if member.queue is None:
            reason = member.said or "Suspended"
            refusal = Refusal(reason="", message="does not compete")
            return _Line(one.tag, reason, refusal, len(SEVERITY), waits=True)
        return _Line(one.tag, "", Refusal(reason="", message="is tried next"), _MILD)
    weight = SEVERITY.get(refusal.reason, len(SEVERITY))
    return _Line(one.tag, refusal.reason, refusal, weight, waits=True)
