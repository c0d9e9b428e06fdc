"""Heads that block a StrictFIFO queue: nothing is parked for them, and still they are told why.

Such a head is looked at again in every cycle. Why it was given nothing is kept at its queue, for
as long as it is so, and said like what is said to those that are parked: late, and when it is new.
Source: SCHEDULING 9, case 9.
"""

from __future__ import annotations

from datetime import datetime

from admittance.events.shapes import Refusal
from admittance.scheduler.assign import Assignment
from admittance.scheduler.classes import Scanned
from admittance.scheduler.picture import Member
from admittance.scheduler.queue import Queue
from admittance.scheduler.reasons import complete, refusal_of


class Standing:
    """A head that was given nothing. ``since``: since when, for that reason. ``listed``: it has an
    item in `Loud`. ``assignment``: what came of the scan, ``scanned``: when that was."""

    __slots__ = ("assignment", "listed", "member", "refusal", "scanned", "since")

    def __init__(
        self, member: Member, assignment: Assignment, scanned: Scanned, refusal: Refusal | None
    ) -> None:
        self.member = member
        self.assignment = assignment
        self.refusal = refusal or refusal_of(assignment)
        self.scanned = scanned
        self.since = scanned.at
        self.listed = False


def stand(
    queue: Queue,
    member: Member,
    assignment: Assignment,
    scanned: Scanned,
    refusal: Refusal | None = None,
) -> None:
    """The head was given nothing, and nobody may pass it. ``refusal``: why, if not for what came
    of the scan."""
    now = queue.standing
    if now is None or now.member is not member or now.assignment is not assignment:
        before, now = now, Standing(member, assignment, scanned, refusal)
        if before is not None and before.member is member:
            now.listed = before.listed
            if before.refusal.reason == now.refusal.reason:
                now.since = before.since
        queue.standing = now
    if not now.listed and member.said != now.refusal.reason:
        now.listed = True
        queue.loud.put(now.since, member)


def standing_of(member: Member) -> Standing | None:
    """How the member stands at the head of its queue; None: it does not, or gets something."""
    queue = member.queue
    if queue is None or queue.standing is None or queue.standing.member is not member:
        return None
    return queue.standing if queue.head() is member else None


def untold(member: Member, latest: datetime) -> tuple[Refusal, Scanned] | None:
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
