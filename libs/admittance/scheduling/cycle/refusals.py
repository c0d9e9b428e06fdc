"""What is said to workloads that wait: only when the reason is new, and never in a hurry.

A workload is told after it has been parked, or has been the head that blocks its queue, without a
break for `Config.refusal_delay`, so that in a busy queue, where whatever is parked is woken again
and again, nobody is told anything that is untrue by the time it is written.
"""

from __future__ import annotations

from datetime import datetime
from itertools import islice
from typing import Final

from admittance.events.facts import Refused
from admittance.events.shapes import Refusal, Scan
from admittance.scheduling.cycle.outcomes import told
from admittance.scheduling.cycle.reasons import complete, refusal_of
from admittance.scheduling.state.assignment import Assignment
from admittance.scheduling.state.equivalence import EqClass, Scanned, unfile
from admittance.scheduling.state.queue import Queue, Standing
from admittance.scheduling.state.state import SchedulerState
from admittance.scheduling.state.workload_info import InFlight, WorkloadInfo, held_for

UNDER_WAY_MAX: Final = 256
"""So many may be on their way: they are not urgent, and where they are written down slowly, more of
them would only keep back what is."""


def due(world: SchedulerState, now: datetime) -> list[Refused]:
    """The refusals to be said now, marked as on their way. What is left over is due at once."""
    refused = _urgent(world, now) if world.urgent else []
    loud = world.loud
    latest = now - world.config.refusal_delay
    while loud.items and loud.items[0][0] <= latest:
        room = min(
            world.config.refusals_per_call - len(refused), UNDER_WAY_MAX - len(world.refusing)
        )
        if room <= 0:
            break
        who = loud.pop()
        if isinstance(who, EqClass):
            members = list(islice(who.untold(latest), room))
            refusal = _of_class(who) if members else None
            for member in members:
                assert refusal is not None
                unfile(member)
                refused += _refused(world, member, refusal, now, who.scanned)
            first = who.first()
            queue = first[3].queue if first is not None else None
            # Elsewhere whoever decides there says it; a domain that becomes ours is flushed.
            if queue is not None and queue.domain is not None and queue.domain.owned:
                queue.list_untold(who)
        elif _is_untold(who, latest):
            assert who.aside is not None, "it is set aside"
            refusal = Refusal(reason=who.aside.reason, message=who.aside.message)
            refused += _refused(world, who, refusal, now)
        elif (standing := untold(who, latest)) is not None:
            refused += _refused(world, who, standing[0], now, standing[1])
    return refused


def _urgent(world: SchedulerState, now: datetime) -> list[Refused]:
    """What is said without waiting whether it stays so: others wait to hear it."""
    refused: list[Refused] = []
    while world.urgent:
        member = next(iter(world.urgent))
        del world.urgent[member]
        if _is_untold(member, now):
            assert member.aside is not None, "it is set aside"
            refusal = Refusal(reason=member.aside.reason, message=member.aside.message)
            refused += _refused(world, member, refusal, now)
            continue
        cls = member.cls
        if cls is None or cls.parked is None or member.said == cls.parked.reason:
            continue
        if not member.inflight:
            unfile(member)
            refused += _refused(world, member, _of_class(cls), now, cls.scanned)
    return refused


def _of_class(cls: EqClass) -> Refusal:
    """Why the class is parked, with the numbers of every flavor: also of those that the last scan
    did not come to. They are worked out once for all members, and only when they are said."""
    first = cls.first()
    assert cls.parked is not None and first is not None, "somebody of it is untold"
    member = first[3]
    plan = member.queue.plan if member.queue is not None else None
    if plan is None or member.shape is None:
        return cls.parked
    held = held_for(member)
    return complete(cls.parked, plan, member.shape, own=cls.is_of_variants, held=held)


def _is_untold(member: WorkloadInfo, latest: datetime) -> bool:
    aside = member.aside
    if aside is None or aside.is_silent or member.said == aside.reason:
        return False
    return member.since is not None and member.since <= latest


def _refused(
    world: SchedulerState,
    member: WorkloadInfo,
    refusal: Refusal,
    now: datetime,
    scanned: Scanned | None = None,
) -> tuple[Refused, ...]:
    domain = member.queue.domain if member.queue is not None else None
    if member.inflight or domain is None or not domain.owned:
        return ()
    world.under_way(member, domain, InFlight.REFUSED)
    world.refusing[member] = None
    said = Refused(
        **world.about(member, domain, now),
        refusal=refusal,
        scan=_scan(member, scanned) if scanned is not None else None,
    )
    return (said,)


def _scan(member: WorkloadInfo, scanned: Scanned) -> Scan:
    """How the member's class came to be parked, for the log."""
    seen, at, first, cursor = scanned
    name = "" if first is member else f"{first.key[0]}/{first.key[1]}"
    return Scan(cursor=told(cursor), seen=seen, at=at, head=name)


def earliest(world: SchedulerState) -> datetime | None:
    """When a refusal may be due next; None: there is none to say, or none before some of those on
    their way have been heard of."""
    items = world.loud.items
    if world.urgent:
        return world.now - world.config.refusal_delay
    if len(world.refusing) >= UNDER_WAY_MAX:
        return None
    return items[0][0] + world.config.refusal_delay if items else None


def stand(
    queue: Queue,
    member: WorkloadInfo,
    assignment: Assignment,
    scanned: Scanned,
    refusal: Refusal | None = None,
) -> None:
    """The head was given nothing, and nobody may pass it. ``refusal``: why, if not for what came
    of the scan."""
    now = queue.standing
    if now is None or now.member is not member or now.assignment is not assignment:
        before, now = now, Standing(member, assignment, scanned, refusal or refusal_of(assignment))
        if before is not None and before.member is member:
            now.listed = before.listed
            if before.refusal.reason == now.refusal.reason:
                now.since = before.since
        queue.standing = now
    if not now.listed and member.said != now.refusal.reason:
        now.listed = True
        queue.loud.put(now.since, member)


def standing_of(member: WorkloadInfo) -> Standing | None:
    """How the member stands at the head of its queue; None: it does not, or gets something."""
    queue = member.queue
    if queue is None or queue.standing is None or queue.standing.member is not member:
        return None
    return queue.standing if queue.head() is member else None


def untold(member: WorkloadInfo, latest: datetime) -> tuple[Refusal, Scanned] | None:
    """What the head is to be told, with the numbers of every flavor, and how that came about; None:
    it stands there no longer or not for long enough, or its status says so."""
    queue = member.queue
    if queue is not None and queue.standing is not None and queue.standing.member is member:
        queue.standing.listed = False
    found = standing_of(member)
    if found is None or found.since > latest or member.said == found.refusal.reason:
        return None
    plan = queue.plan if queue is not None else None
    if plan is None or member.shape is None:
        return found.refusal, found.scanned
    return complete(found.refusal, plan, member.shape), found.scanned
