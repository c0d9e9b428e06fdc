"""What a class of equal workloads would get, remembered for as long as nothing moves.

Heads are looked at again whenever anything happens in their tree; mostly it is nothing that could
make a difference to them, such as a workload that arrives elsewhere. Nominations do not see each
other within a cycle, and equal workloads get the same. Source: SCHEDULING 8.1 point 4.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from admittance.scheduler.assign import FIT, Cursor
from admittance.scheduler.picture import Member
from admittance.scheduler.plan import Plan

if TYPE_CHECKING:
    from admittance.scheduler.nominate import Nomination, Nominator
    from admittance.scheduler.queue import Queue


class Memo(NamedTuple):
    """A nomination, and what must not have changed for it to be the same again. ``version``: of
    the domain; ``stamp``: the age of the workload where it decides whom it may preempt."""

    version: int
    plan: Plan
    cursor: Cursor | None
    stamp: datetime | None
    nomination: Nomination


def nominated(
    nominator: Nominator, queue: Queue, member: Member, cursor: Cursor | None
) -> Nomination:
    """What the head would get now, looked at anew only if something moved since its class was."""
    cls, domain, plan = member.cls, queue.domain, queue.plan
    if cls is None or domain is None or plan is None or not nominator.may_remember(member):
        return nominator.nominate(queue, member, cursor)
    stamp = member.stamp if plan.policy.within == "LowerOrNewerEqualPriority" else None
    known = cls.memo
    if (
        known is not None
        and known.version == domain.version
        and known.plan is plan
        and known.cursor == cursor
        and known.stamp == stamp
    ):
        return known.nomination
    found = nominator.nominate(queue, member, cursor)
    # What fits is mostly taken at once, and moves the domain.
    if found[0].mode != FIT:
        cls.memo = Memo(domain.version, plan, cursor, stamp, found)
    return found
