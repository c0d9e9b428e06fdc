"""For whom others were told to go: read from what is written, so that a new leader knows it, too.

Who decides keeps the preemptor at the head of its queue; that is memory only. Its successor, or
whoever stands by, finds it in the status of those who had to go. Source: SCHEDULING 3.8, 8 (e).
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

from admittance.events.shapes import PreemptedBy
from admittance.scheduling.state.workload_info import Member

if TYPE_CHECKING:
    from admittance.scheduling.state.state import World

WAITING: Final = "WaitingForPreemptedWorkloads"
"""The reason that the status of a preemptor gives meanwhile."""


def note(world: World, giver: Member, by: PreemptedBy | None) -> None:
    """The giver's status says now by whom it was preempted; None: by nobody since it had quota."""
    before = giver.preempted_by
    giver.preempted_by = by
    if before is not None and (by is None or by.by_uid != before.by_uid):
        givers = world.promises[before.by_uid]
        del givers[giver]
        if not givers:
            del world.promises[before.by_uid]
    if by is None:
        return
    world.promises.setdefault(by.by_uid, {})[giver] = None
    namespace, _, name = by.by.partition("/")
    preemptor = world.members.get((namespace, name))
    if preemptor is not None:
        restore(world, preemptor)


def restore(world: World, preemptor: Member) -> None:
    """Keeps the preemptor's place at the head of its queue, where others are going for it and
    nobody here decides: who decides knows better."""
    queue = preemptor.queue
    if queue is None or queue.strict or queue.domain is None or queue.domain.owned:
        return
    since = _since(world, preemptor)
    if since is None:
        return
    other = queue.preemptor
    if other is not None and other is not preemptor and other.queue is queue:
        later = _since(world, other)
        if later is not None and later > since:
            return
    queue.preemptor = preemptor


def _since(world: World, preemptor: Member) -> datetime | None:
    """When the last one was told to go for it; None: nobody who counts."""
    return max(
        (
            giver.preempted_by.at
            for giver in world.promises.get(preemptor.uid, ())
            if giver.preempted_by is not None
            and giver.preempted_by.at is not None
            and (giver.is_leaving or preemptor.said == WAITING)
        ),
        default=None,
    )
