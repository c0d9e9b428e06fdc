"""The legal moves: in which phase which fact is acted on, and by what. LIFECYCLE 1.4.

What is not in the table changes nothing: late, repeated and foreign facts are everyday traffic,
and are answered with why.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

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
from admittance.workload.ways import Way, ways

Move: TypeAlias = Callable[[StoredWorkload, Any, Occasion], Change]
"""Any: the key of the table has settled the type."""


RUNNER_ENDED: Final = "RunnerEnded"
"""Reason of a stop that ends no admission: by the time it is heard, another runner may have it."""


def _stopped(workload: StoredWorkload, fact: facts.Stopped, at: Occasion) -> Change:
    if fact.reason == RUNNER_ENDED:
        return _given_back(workload)
    return wake_if_over(reserve.stopped(workload, fact, at), at)


def _stopped_while_off(workload: StoredWorkload, fact: facts.Stopped, at: Occasion) -> Change:
    if fact.reason == RUNNER_ENDED:
        return _given_back(workload)
    if not is_stopping(workload):
        return ignored(workload, "Stale", "nothing of it was running")
    return reserve.stopped(workload, fact, at)


def _given_back(workload: StoredWorkload) -> Change:
    return ignored(workload, RUNNER_ENDED, "its job runs again under the same admission")


def _lost(workload: StoredWorkload, fact: facts.Stopped, at: Occasion) -> Change:
    if fact.reason == RUNNER_ENDED:
        return _given_back(workload)
    if fact.reason != "NodeFailures":
        return ignored(workload, "NotEvicted", "nobody asked to stop it")
    return reserve.lost(workload, fact, at)


_WAITING: Final = (Phase.PENDING, Phase.BACKOFF)
_HOLDING: Final = (Phase.QUOTA_RESERVED, Phase.ADMITTED, Phase.RUNNING, Phase.EVICTING)
_JOB: Final = (Phase.ADMITTED, Phase.RUNNING)
_OFF: Final = (Phase.DEACTIVATED, Phase.REJECTED)
_LIVING: Final = (*_WAITING, *_HOLDING)


class Legal(NamedTuple):
    """What is done where a fact comes in a phase, and what may come of it: nothing else does.
    Whatever is answered without a change is no way."""

    move: Move
    ways: tuple[Way, ...] = ()


_STAYS: Final = ()
"""Among the phases of a transition: that in which the fact was heard."""


def _rows(
    phases: tuple[Phase, ...],
    fact: type[Fact],
    move: Move,
    *found: tuple[str, tuple[Phase | None, ...]],
) -> dict[Any, Legal]:
    """Rows of the table, one for each phase. found: id and targets; none: it stays."""
    return {
        (where, fact): Legal(
            move, tuple(way for id, to in found for way in ways(id, *(to or (where,))))
        )
        for where in phases
    }


_GONE: Final = (None,)
_P, _B, _QR, _A, _R, _E, _D, _X, _F = (
    (Phase.PENDING,),
    (Phase.BACKOFF,),
    (Phase.QUOTA_RESERVED,),
    (Phase.ADMITTED,),
    (Phase.RUNNING,),
    (Phase.EVICTING,),
    (Phase.DEACTIVATED,),
    (Phase.REJECTED,),
    (Phase.FINISHED,),
)

MOVES: Final[dict[tuple[Phase, type[Fact]], Legal]] = {
    # the scheduler decides
    **_rows(_P, facts.Assigned, reserve.assign, ("T03", _QR), ("T04", _A), ("T05", _QR)),
    **_rows(_P, facts.Refused, reserve.refuse, ("T06", _STAYS)),
    **_rows(_QR, facts.Preempted, reserve.preempt, ("T12", _P)),
    **_rows(_JOB, facts.Preempted, reserve.preempt, ("T12", _E)),
    **_rows(_QR, facts.Planned, reserve.plan_anew, ("T07", _STAYS)),
    **_rows(_QR, facts.Confirmed, reserve.confirm, ("T08", _A), ("T09", _P), ("T11", _X)),
    **_rows(_QR, facts.Revoked, reserve.revoke_reservation, ("T09", _P)),
    **_rows(_JOB, facts.Revoked, reserve.evict_for_cut, ("T09", _E)),
    # checks judge
    **_rows(
        _P,
        facts.CheckReported,
        weigh,
        ("2.6", _STAYS),
        ("T11", _X),
        ("T21b", _B),
    ),
    **_rows(
        _B,
        facts.CheckReported,
        weigh,
        ("T11", _X),
        ("T20", _P),
        ("T21", _STAYS),
        ("T21b", _STAYS),
    ),
    **_rows(
        _QR,
        facts.CheckReported,
        weigh,
        ("2.6", _STAYS),
        ("T07", _STAYS),
        ("T10", (*_B, *_P)),
        ("T11", _X),
    ),
    **_rows(_JOB, facts.CheckReported, weigh, ("2.6", _STAYS), ("T10", _E), ("T11", _X)),
    **_rows(_E, facts.CheckReported, weigh, ("T11", _X), ("T21", _STAYS), ("T21b", _STAYS)),
    **_rows((*_OFF, *_F), facts.CheckReported, drop),
    # runners report
    **_rows((*_JOB, *_E), facts.Started, requests.started),
    **_rows(_A, facts.PodsReady, requests.pods_ready, ("T25", _R)),
    **_rows(_R, facts.PodsReady, requests.pods_ready),
    **_rows(_R, facts.PodsNotReady, requests.pods_not_ready, ("T25", _A)),
    **_rows(_A, facts.PodsNotReady, requests.pods_not_ready),
    **_rows((*_WAITING, *_QR, *_JOB), facts.Finished, requests.finish, ("T26", _F)),
    **_rows((*_E, *_OFF), facts.Finished, requests.finish, ("T26", _F), ("T27", _GONE)),
    # until then the quota stays booked
    **_rows(_E, facts.Stopped, _stopped, ("T19", (*_P, *_B)), ("T27", _GONE)),
    **_rows(_OFF, facts.Stopped, _stopped_while_off, ("T19", _STAYS), ("T27", _GONE)),
    **_rows(_JOB, facts.Stopped, _lost, ("T17b", _P)),
    # users ask
    **_rows(_LIVING, facts.Deactivated, activity.turn_off, ("T16", _D)),
    **_rows(_OFF, facts.Deactivated, activity.turn_off),
    **_rows(_LIVING, facts.Activated, activity.turn_on),
    **_rows(_OFF, facts.Activated, activity.turn_on, ("T22", (*_P, *_E))),
    **_rows(_WAITING, facts.Held, requests.hold, ("T30", _STAYS)),
    **_rows(_HOLDING, facts.Held, requests.hold),  # refused
    **_rows(_WAITING, facts.Released, requests.let_go, ("T30", _STAYS)),
    **_rows((*_LIVING, *_OFF), facts.Reprioritized, requests.reprioritize, ("T29", _STAYS)),
    **_rows((*_WAITING, *_QR, *_F), facts.Deleted, requests.remove, ("T27", _GONE)),
    **_rows((*_JOB, *_E), facts.Deleted, requests.remove, ("T27", _E)),
    **_rows(_OFF, facts.Deleted, requests.remove, ("T27", _GONE), ("T27", _STAYS)),
    # queues and clocks
    **_rows(
        _P, QueueChanged, queues.queue_changed, ("T02", _STAYS), ("T23", _STAYS), ("T28", _STAYS)
    ),
    **_rows(
        _B,
        QueueChanged,
        queues.queue_changed,
        ("T02", _STAYS),
        ("T20", _P),
        ("T23", _P),
        ("T28", _STAYS),
    ),
    **_rows(
        _QR,
        QueueChanged,
        queues.queue_changed,
        ("T09", _P),
        ("T11", _X),
        ("T18", _P),
        ("T28", _STAYS),
    ),
    **_rows(_JOB, QueueChanged, queues.queue_changed, ("T17", _E), ("T28", _STAYS)),
    **_rows((*_E, *_OFF), QueueChanged, queues.queue_changed),
    **_rows(_P, facts.TimerDue, times.look),
    **_rows(_B, facts.TimerDue, times.look, ("T20", _P)),
    **_rows(_QR, facts.TimerDue, times.look, ("T10", (*_B, *_P)), ("T11", _X)),
    **_rows(_A, facts.TimerDue, times.look, ("T13", _E), ("T14", _D), ("T15", _D)),
    **_rows(_R, facts.TimerDue, times.look, ("T15", _D)),
    **_rows(_E, facts.TimerDue, times.look, ("T19", (*_P, *_B)), ("T27", _GONE)),
    **_rows(_OFF, facts.TimerDue, times.look, ("T19", _STAYS), ("T27", _GONE)),
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
    legal = MOVES.get((where, type(fact)))
    if legal is None:
        said = f"{type(fact).__name__.lower()!r}"
        return ignored(workload, "NoMove", f"it is {where}: {said} changes nothing")
    return legal.move(workload, fact, at)
