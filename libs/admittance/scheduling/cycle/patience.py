"""A preemptor whose victims still stop is not searched victims for in every cycle.

Those that were told to go are the first that any search would take. So as long as some of them
still stop, the preemptor has no room without that and would have it afterwards, a search would only
come to the same end. Where there is a choice, of flavors or of counts, it is looked at in full: a
better one may have come free.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from admittance.scheduling.preemption.room import fits
from admittance.scheduling.state.assignment import Assignment
from admittance.scheduling.state.shared_quota import put_back, take_out
from admittance.scheduling.state.workload_info import Member, Patience, Victim

if TYPE_CHECKING:
    from admittance.scheduling.state.queue import Queue
    from admittance.scheduling.state.workload_info import Nomination


def remember(
    queue: Queue, member: Member, assignment: Assignment, victims: Sequence[Victim]
) -> None:
    """The preemptor waits for these from now on."""
    plan, shape = queue.plan, member.shape
    member.patience = None
    if not victims or plan is None or shape is None or shape.is_flexible:
        return
    if assignment.overlap is not None:
        return  # What it asks for depends on who of its family goes first.
    if all(len(group.options) == 1 for group in plan.groups.values()):
        member.patience = Patience(plan, shape, assignment, victims)


def still_waits(queue: Queue, member: Member) -> Nomination | None:
    """What a search would find for a preemptor that waits; None: it has to be made."""
    saved = member.patience
    if saved is None or saved.plan is not queue.plan or saved.shape is not member.shape:
        return None
    going = [
        one for one in saved.victims if one.member.charge is not None and one.member.is_leaving
    ]
    usage = saved.assignment.usage
    if not going or fits(usage, borrowing=True):
        return None
    for one in going:
        take_out(one.member)
    enough = fits(usage, borrowing=True)
    for one in going:
        put_back(one.member)
    return (saved.assignment, going) if enough else None
