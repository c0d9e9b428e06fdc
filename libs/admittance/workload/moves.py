"""The legal moves: in which phase which fact is acted on, and by what. LIFECYCLE 1.4.

What is not in the table changes nothing: late, repeated and foreign facts are everyday traffic,
and are answered with why.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from admittance.events import facts
from admittance.events.base import Fact
from admittance.workload import activity, queues, requests, reserve, times
from admittance.workload.arrive import Arrived, arrive
from admittance.workload.change import Change, ignored
from admittance.workload.occasion import Occasion, QueueChanged
from admittance.workload.phase import Phase, is_stopping, phase
from admittance.workload.stored import StoredWorkload
from admittance.workload.verdicts import drop, weigh
from admittance.workload.waits import wake_if_over

Move: TypeAlias = Callable[[StoredWorkload, Any, Occasion], Change]
"""Any: the key of the table has settled the type."""


def _stopped(workload: StoredWorkload, fact: facts.Stopped, at: Occasion) -> Change:
    return wake_if_over(reserve.stopped(workload, fact, at), at)


def _stopped_while_off(workload: StoredWorkload, fact: facts.Stopped, at: Occasion) -> Change:
    if not is_stopping(workload):
        return ignored(workload, "Stale", "nothing of it was running")
    return reserve.stopped(workload, fact, at)


def _lost(workload: StoredWorkload, fact: facts.Stopped, at: Occasion) -> Change:
    if fact.reason != "NodeFailures":
        return ignored(workload, "NotEvicted", "nobody asked to stop it")
    return reserve.lost(workload, fact, at)


_WAITING: Final = (Phase.PENDING, Phase.BACKOFF)
_HOLDING: Final = (Phase.QUOTA_RESERVED, Phase.ADMITTED, Phase.RUNNING, Phase.EVICTING)
_JOB: Final = (Phase.ADMITTED, Phase.RUNNING)
_OFF: Final = (Phase.DEACTIVATED, Phase.REJECTED)
_LIVING: Final = (*_WAITING, *_HOLDING)
_ALL: Final = tuple(Phase)


def _rows(phases: tuple[Phase, ...], fact: type[Fact], move: Move) -> dict[Any, Move]:
    return {(where, fact): move for where in phases}


MOVES: Final[dict[tuple[Phase, type[Fact]], Move]] = {
    # the scheduler decides
    (Phase.PENDING, facts.Assigned): reserve.assign,
    (Phase.PENDING, facts.Refused): reserve.refuse,
    **_rows((Phase.QUOTA_RESERVED, *_JOB), facts.Preempted, reserve.preempt),
    (Phase.QUOTA_RESERVED, facts.Confirmed): reserve.confirm,
    (Phase.QUOTA_RESERVED, facts.Revoked): reserve.revoke_reservation,
    **_rows(_JOB, facts.Revoked, reserve.evict_for_cut),
    # checks judge
    **_rows(_LIVING, facts.CheckReported, weigh),
    **_rows((*_OFF, Phase.FINISHED), facts.CheckReported, drop),
    # runners report
    **_rows((*_JOB, Phase.EVICTING), facts.Started, requests.started),
    **_rows(_JOB, facts.PodsReady, requests.pods_ready),
    **_rows(_JOB, facts.PodsNotReady, requests.pods_not_ready),
    **_rows((*_LIVING, *_OFF), facts.Finished, requests.finish),
    (Phase.EVICTING, facts.Stopped): _stopped,  # until then the quota stays booked
    **_rows(_OFF, facts.Stopped, _stopped_while_off),
    **_rows(_JOB, facts.Stopped, _lost),
    # users ask
    **_rows((*_LIVING, *_OFF), facts.Deactivated, activity.turn_off),
    **_rows((*_LIVING, *_OFF), facts.Activated, activity.turn_on),
    **_rows(_LIVING, facts.Held, requests.hold),
    **_rows(_WAITING, facts.Released, requests.let_go),
    **_rows((*_LIVING, *_OFF), facts.Reprioritized, requests.reprioritize),
    **_rows(_ALL, facts.Deleted, requests.remove),
    # queues and clocks
    **_rows((*_LIVING, *_OFF), QueueChanged, queues.queue_changed),
    **_rows((*_LIVING, *_OFF), facts.TimerDue, times.look),
}


def transition(workload: StoredWorkload | None, fact: Fact, at: Occasion) -> Change:
    """What fact makes of workload, and what is to be said.

    A uid in the fact that is not the workload's is a namesake's: nothing changes.
    """
    if isinstance(fact, Arrived):
        return arrive(workload, fact, at)
    if workload is None:
        return ignored(None, "NoSuchWorkload", f"there is no {fact.namespace}/{fact.name}")
    if fact.uid and fact.uid != workload.metadata.uid:
        return ignored(workload, "OtherUid", f"the workload's uid is {workload.metadata.uid}")
    where = phase(workload, at.now)
    move = MOVES.get((where, type(fact)))
    if move is None:
        said = f"{type(fact).__name__.lower()!r}"
        return ignored(workload, "NoMove", f"it is {where}: {said} changes nothing")
    return move(workload, fact, at)
