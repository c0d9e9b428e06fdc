"""The table of moves: for each fact and each phase the function that applies the fact.
docs/spec/lifecycle.md#1.4.

A fact that is not in the table changes nothing. Late and repeated facts are common; the outcome of
such a fact says why it has no effect.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

from admittance.events import facts, reasons
from admittance.events.base import Fact
from admittance.workload.arrays import dependencies
from admittance.workload.arrays import moves as array_moves
from admittance.workload.change import Change, FactOutcome, applied, ignored, with_status
from admittance.workload.moves import parts, queue_changes, requests, reservation, timeouts
from admittance.workload.moves import requests as activation
from admittance.workload.moves.backoff import wake_if_over
from admittance.workload.moves.check_verdicts import apply_verdict
from admittance.workload.moves.counted_verdicts import ignore_verdict
from admittance.workload.moves.eviction import evict
from admittance.workload.moves.requests import Arrived, arrive
from admittance.workload.phase import Phase, is_stopping, phase
from admittance.workload.stored import ARRAY, StoredWorkload, head
from admittance.workload.transition_context import QueueChanged, TransitionContext


class Way(NamedTuple):
    """One possible result of a move. ``to`` None: the move deletes the workload."""

    id: str
    to: Phase | None


def ways(id: str, *to: Phase | None) -> tuple[Way, ...]:
    """Returns the possible results of the transition with that id."""
    return tuple(Way(id, phase) for phase in to)


class Transition(NamedTuple):
    """The description of a transition in docs/states.md, and its effect on three fields of the
    status.
    """

    what: str
    admission: str
    checks: str
    requeue_state: str


_KEPT: Final = "kept"
_CLEARED: Final = "cleared, next cycle"
_FORGOTTEN: Final = "cleared, next cycle, retry counts 0"
_FREED: Final = "kept until the job has stopped"

TRANSITIONS: Final[dict[str, Transition]] = {
    "T01": Transition("submitted", "none", "queue-wide ones, Pending", "none"),
    "T02": Transition("its queue is missing or stopped, which is its reason", _KEPT, _KEPT, _KEPT),
    "T03": Transition(
        "the scheduler books quota",
        "set",
        "those of the assigned flavors, Pending",
        "time cleared, count kept",
    ),
    "T04": Transition("the same, and no check is required: admitted in the same write", "set",
                      "none", "time cleared, count kept"),
    "T05": Transition("the same while victims still hold its quota: pendingPreemption names them",
                      "set", "as T03", "as T03"),
    "T06": Transition("the scheduler considered it and gives the reason why it waits", "none",
                      _KEPT, _KEPT),
    "T07": Transition("a check asks for the planned preemptions", _KEPT, _KEPT, _KEPT),
    "T08": Transition("all required checks are Ready and the recheck passed", _KEPT,
                      "kept, retry counts 0", _KEPT),
    "T09": Transition("the recheck failed, or its quota was reduced; a job is evicted only with "
                      "onQuotaCut: evict, and stops first", "cleared", _CLEARED, _KEPT),
    "T10": Transition("a check says Retry, or took too long", _FREED,
                      "frozen as they are until T20", "the time of 3.2"),
    "T11": Transition("a check says Rejected, was retried too often, or its additions conflict "
                      "with others: deactivated", _FREED,
                      f"{_FORGOTTEN}; the row of the check stays Rejected", "cleared"),
    "T12": Transition("the scheduler gives its quota to another workload", _FREED, _CLEARED, _KEPT),
    "T13": Transition("its pods took too long to be ready, or ready again", _FREED, _CLEARED,
                      "count + 1, time by backoff"),
    "T14": Transition("the same, above the requeue limit: deactivated", _FREED, _FORGOTTEN,
                      "cleared"),
    "T15": Transition("its maximum execution time is over: deactivated, accumulated seconds "
                      "cleared", _FREED, _FORGOTTEN, "cleared"),
    "T16": Transition("a user deactivates it", _FREED, _FORGOTTEN, "cleared"),
    "T17": Transition("its queue is drained", _FREED, _CLEARED, _KEPT),
    "T17b": Transition("its runner or node was lost, or an assigned runner ended", "cleared",
                       _CLEARED, _KEPT),
    "T17c": Transition("a part of its job on one of several machines failed or was lost: the other "
                       "parts stop first", _FREED, _CLEARED, _KEPT),
    "T18": Transition("its queue is stopped or missing before it was admitted", "cleared", _CLEARED,
                      _KEPT),
    "T19": Transition("the job has stopped, or no runner reported that in time: its quota is free",
                      "cleared", "their additions to pods are dropped", _KEPT),
    "T20": Transition("the wait is over", "none",
                      "all Pending, next cycle; retry count + 1 where Retry",
                      "time cleared, count kept"),
    "T21": Transition("a check sends another verdict during the wait", _KEPT, "that row",
                      "recomputed"),
    "T21b": Transition("a Retry with a delay arrives late, or without a reservation", _KEPT,
                       "that row", "recomputed"),
    "T22": Transition("a user activates it again", _KEPT, _FORGOTTEN, "cleared"),
    "T23": Transition("its queue runs again", "none", _KEPT, _KEPT),
    "T25": Transition("the runner reports on its pods", _KEPT, _KEPT,
                      "cleared when they are ready"),
    "T26": Transition("its job ended, or a user finished it", "kept, not counted", _KEPT, _KEPT),
    "T27": Transition("a user deletes it; a job stops first", _FREED, _KEPT, _KEPT),
    "T28": Transition("the checks of its queue changed", _KEPT,
                      "new ones Pending, and requested if it has quota; removed ones gone, others "
                      "unchanged", _KEPT),
    "T29": Transition("its priority changed", _KEPT, _KEPT, _KEPT),
    "T30": Transition("a user holds it or releases it", _KEPT, _KEPT, _KEPT),
    "T31": Transition("what it waits for has happened, or cannot happen any more", "none", _KEPT,
                      _KEPT),
    "T32": Transition("the program that holds its quota renews its lease, or has ended, or its "
                      "lease is over", "kept, not counted", _KEPT, _KEPT),
    "2.6": Transition("a verdict is stored", _KEPT, "that row", _KEPT),
}  # fmt: skip
"""The transitions, by their ids in docs/spec/lifecycle.md#1.4; ``2.6``: a verdict that changes only
the row of its check. The transition that only families have (T24) is in `tools.pages.states.STEPS`.
"""


Move: TypeAlias = Callable[[StoredWorkload, Any, TransitionContext], Change]
"""A function that applies a fact to a workload. The fact has the type that the key of the move in
the table names.
"""


def _stopped(workload: StoredWorkload, fact: facts.Stopped, context: TransitionContext) -> Change:
    if _is_given_back(workload, fact):
        return _given_back(workload, fact)
    return wake_if_over(reservation.stopped(workload, fact, context), context)


def _stopped_while_off(
    workload: StoredWorkload, fact: facts.Stopped, context: TransitionContext
) -> Change:
    if _is_given_back(workload, fact):
        return _given_back(workload, fact)
    if not is_stopping(workload):
        return ignored(workload, reasons.STALE, "no job of it was running")
    return reservation.stopped(workload, fact, context)


def _is_given_back(workload: StoredWorkload, fact: facts.Stopped) -> bool:
    """Whether the runner gives the job to any other runner. A job with assigned runners
    may not start on others, so its admission ends."""
    return fact.gives_back and not workload.status.placement


def _given_back(workload: StoredWorkload, fact: facts.Stopped) -> Change:
    return ignored(workload, fact.reason, "its job runs again under the same admission")


def _lost(workload: StoredWorkload, fact: facts.Stopped, context: TransitionContext) -> Change:
    if _is_given_back(workload, fact):
        return _given_back(workload, fact)
    if fact.reason != reasons.NODE_FAILURES and not fact.gives_back:
        return ignored(workload, reasons.NOT_EVICTED, "it was not asked to stop")
    return reservation.lost(workload, fact, context)


_WAITING: Final = (Phase.PENDING, Phase.BACKOFF)
_HOLDING: Final = (Phase.QUOTA_RESERVED, Phase.ADMITTED, Phase.RUNNING, Phase.EVICTING)
_JOB: Final = (Phase.ADMITTED, Phase.RUNNING)
_OFF: Final = (Phase.DEACTIVATED, Phase.REJECTED)
_LIVING: Final = (*_WAITING, *_HOLDING)


class Legal(NamedTuple):
    """The move for a fact in a phase, with all possible results that change the workload."""

    move: Move
    ways: tuple[Way, ...] = ()


_STAYS: Final = ()
"""The target phases of a transition in which the workload stays in its phase: none."""


def _rows(
    phases: tuple[Phase, ...],
    fact: type[Fact],
    move: Move,
    *moves: tuple[str, tuple[Phase | None, ...]],
) -> dict[Any, Legal]:
    """Returns rows of the table, one for each phase. ``moves``: transition ids with their target
    phases; without target phases the workload stays in its phase."""
    return {
        (where, fact): Legal(
            move, tuple(way for id, to in moves for way in ways(id, *(to or (where,))))
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
    # Rows for facts that the scheduler publishes: its decisions.
    **_rows(_P, facts.Assigned, reservation.assign, ("T03", _QR), ("T04", _A), ("T05", _QR)),
    **_rows(_P, facts.Refused, reservation.refuse, ("T06", _STAYS)),
    **_rows(_QR, facts.Preempted, reservation.preempt, ("T12", _P)),
    **_rows(_JOB, facts.Preempted, reservation.preempt, ("T12", _E)),
    **_rows(_QR, facts.Planned, reservation.replan, ("T07", _STAYS)),
    **_rows(_QR, facts.Confirmed, reservation.confirm, ("T08", _A), ("T09", _P), ("T11", _X)),
    **_rows(_QR, facts.Revoked, reservation.revoke_reservation, ("T09", _P)),
    **_rows(_JOB, facts.Revoked, reservation.evict_for_cut, ("T09", _E)),
    # Rows for facts that check controllers publish: their verdicts.
    **_rows(
        _P,
        facts.CheckReported,
        apply_verdict,
        ("2.6", _STAYS),
        ("T11", _X),
        ("T21b", _B),
    ),
    **_rows(
        _B,
        facts.CheckReported,
        apply_verdict,
        ("T11", _X),
        ("T20", _P),
        ("T21", _STAYS),
        ("T21b", _STAYS),
    ),
    **_rows(
        _QR,
        facts.CheckReported,
        apply_verdict,
        ("2.6", _STAYS),
        ("T07", _STAYS),
        ("T10", (*_B, *_P)),
        ("T11", _X),
    ),
    **_rows(_JOB, facts.CheckReported, apply_verdict, ("2.6", _STAYS), ("T10", _E), ("T11", _X)),
    **_rows(_E, facts.CheckReported, apply_verdict, ("T11", _X), ("T21", _STAYS), ("T21b", _STAYS)),
    **_rows((*_OFF, *_F), facts.CheckReported, ignore_verdict),
    # Rows for facts that runners publish: their reports about jobs.
    **_rows((*_JOB, *_E), facts.Started, requests.started),
    **_rows((*_JOB, *_E), facts.PodsFailed, requests.pods_failed),
    # The report about one of several parts of a job is only noted, until it is the last one.
    **_rows(_A, facts.PodsReady, requests.pods_ready, ("T25", _R), ("T25", _STAYS)),
    **_rows(_R, facts.PodsReady, requests.pods_ready, ("T25", _STAYS)),
    **_rows(_R, facts.PodsNotReady, requests.pods_not_ready, ("T25", _A)),
    **_rows(_A, facts.PodsNotReady, requests.pods_not_ready, ("T25", _STAYS)),
    **_rows((*_WAITING, *_QR), facts.Finished, requests.finish, ("T26", _F)),
    **_rows(
        _JOB,
        facts.Finished,
        requests.finish,
        ("T26", _F),
        ("T17c", _E),
        ("T25", _R),
        ("T25", _STAYS),
    ),
    **_rows(
        _E,
        facts.Finished,
        requests.finish,
        ("T26", _F),
        ("T27", _GONE),
        ("T19", (*_P, *_B)),
        ("T25", _STAYS),
    ),
    **_rows(
        _OFF,
        facts.Finished,
        requests.finish,
        ("T26", _F),
        ("T27", _GONE),
        ("T19", _STAYS),
        ("T25", _STAYS),
    ),
    # The quota of an evicted workload stays booked until the job has stopped.
    **_rows(
        _E,
        facts.Stopped,
        _stopped,
        ("T19", (*_P, *_B)),
        ("T27", _GONE),
        ("T26", _F),
        ("T25", _STAYS),
    ),
    **_rows(
        _OFF,
        facts.Stopped,
        _stopped_while_off,
        ("T19", _STAYS),
        ("T27", _GONE),
        ("T26", _F),
        ("T25", _STAYS),
    ),
    **_rows(_JOB, facts.Stopped, _lost, ("T17b", _P), ("T17c", _E)),
    # Rows for facts that users publish to change a workload.
    **_rows(_LIVING, facts.Deactivated, activation.turn_off, ("T16", _D)),
    **_rows(_OFF, facts.Deactivated, activation.turn_off),
    **_rows(_LIVING, facts.Activated, activation.turn_on),
    **_rows(_OFF, facts.Activated, activation.turn_on, ("T22", (*_P, *_E))),
    **_rows(_WAITING, facts.Held, requests.hold, ("T30", _STAYS)),
    **_rows(_HOLDING, facts.Held, requests.hold),  # A hold is refused for a workload with quota.
    **_rows(_WAITING, facts.Released, requests.release, ("T30", _STAYS)),
    **_rows(_WAITING, facts.DependenciesJudged, dependencies.judged, ("T31", _STAYS), ("T31", _D)),
    **_rows(_OFF, facts.DependenciesJudged, dependencies.judged, ("T31", _STAYS)),
    **_rows((*_LIVING, *_OFF), facts.Reprioritized, requests.reprioritize, ("T29", _STAYS)),
    **_rows((*_WAITING, *_QR, *_JOB), facts.Renewed, requests.renew, ("T32", _STAYS), ("T32", _F)),
    **_rows(
        (*_E, *_OFF), facts.Renewed, requests.renew, ("T32", _STAYS), ("T32", _F), ("T32", _GONE)
    ),
    **_rows((*_WAITING, *_QR, *_F), facts.Deleted, requests.remove, ("T27", _GONE)),
    **_rows((*_JOB, *_E), facts.Deleted, requests.remove, ("T27", _E)),
    **_rows(_OFF, facts.Deleted, requests.remove, ("T27", _GONE), ("T27", _STAYS)),
    # Rows for facts about changes of queues and about due timers.
    **_rows(
        _P,
        QueueChanged,
        queue_changes.queue_changed,
        ("T02", _STAYS),
        ("T23", _STAYS),
        ("T28", _STAYS),
    ),
    **_rows(
        _B,
        QueueChanged,
        queue_changes.queue_changed,
        ("T02", _STAYS),
        ("T20", _P),
        ("T23", _P),
        ("T28", _STAYS),
    ),
    **_rows(
        _QR,
        QueueChanged,
        queue_changes.queue_changed,
        ("T09", _P),
        ("T11", _X),
        ("T18", _P),
        ("T28", _STAYS),
    ),
    **_rows(_JOB, QueueChanged, queue_changes.queue_changed, ("T17", _E), ("T28", _STAYS)),
    **_rows((*_E, *_OFF), QueueChanged, queue_changes.queue_changed),
    **_rows(_P, facts.TimerDue, timeouts.timer_due, ("T32", _F)),
    **_rows(_B, facts.TimerDue, timeouts.timer_due, ("T20", _P), ("T32", _F)),
    **_rows(_QR, facts.TimerDue, timeouts.timer_due, ("T10", (*_B, *_P)), ("T11", _X), ("T32", _F)),
    **_rows(
        _A,
        facts.TimerDue,
        timeouts.timer_due,
        ("T13", _E),
        ("T14", _D),
        ("T15", _D),
        ("T32", _F),
    ),
    **_rows(_R, facts.TimerDue, timeouts.timer_due, ("T15", _D), ("T32", _F)),
    **_rows(
        _E,
        facts.TimerDue,
        timeouts.timer_due,
        ("T19", (*_P, *_B)),
        ("T26", _F),
        ("T27", _GONE),
    ),
    **_rows(_OFF, facts.TimerDue, timeouts.timer_due, ("T19", _STAYS), ("T26", _F), ("T27", _GONE)),
}


def transition(workload: StoredWorkload | None, fact: Fact, context: TransitionContext) -> Change:
    """The change that the fact makes to the workload.

    A fact with another uid is about another workload of the same name, so it changes nothing.
    """
    if isinstance(fact, Arrived):
        return arrive(workload, fact, context)
    if workload is None:
        return ignored(None, reasons.NO_SUCH_WORKLOAD, f"there is no {fact.namespace}/{fact.name}")
    if fact.uid and fact.uid != workload.metadata.uid:
        return ignored(
            workload, reasons.OTHER_UID, f"the workload's uid is {workload.metadata.uid}"
        )
    if head(workload).role == ARRAY:
        if isinstance(fact, facts.DependenciesJudged):
            return dependencies.judged(workload, fact, context)
        return array_moves.apply(workload, fact, context)
    where = phase(workload, context.now)
    legal = MOVES.get((where, type(fact)))
    if legal is None:
        name = type(fact).__name__.lower()
        return ignored(workload, reasons.NO_MOVE, f"it is {where}: {name!r} changes nothing")
    if parts.part_of(fact) and not isinstance(fact, facts.Started | facts.PodsFailed):
        return _apply_part(workload, fact, where, context)
    return legal.move(workload, fact, context)


def _apply_part(
    workload: StoredWorkload, fact: Any, where: Phase, context: TransitionContext
) -> Change:
    """Applies the report about one part of a job on several machines, and the report about the
    whole job that may follow from it."""
    collected = parts.collect(workload, fact)
    if isinstance(collected, Change):
        return collected
    noted, then = collected
    if then is None:
        return applied(noted)
    if isinstance(then, parts.OthersMustStop):
        change = evict(noted, then.reason, then.message, context)
        if then.counts or change.workload is None:
            return change
        stats = workload.status.scheduling_stats
        kept = with_status(change.workload, scheduling_stats=stats)
        return change._replace(workload=kept)
    legal = MOVES.get((where, type(then)))
    change = legal.move(noted, then, context) if legal is not None else applied(noted)
    # The report of the part is kept also where the report of the whole job changes nothing.
    return change if change.outcome is FactOutcome.APPLIED else applied(noted)
