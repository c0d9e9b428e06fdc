"""The transitions of LIFECYCLE 1.4 by their ids, and where a move may lead: what docs/states.md is
made of, and what tests hold every observed change against.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from admittance.workload.phase import Phase


class Way(NamedTuple):
    """One outcome of a move. ``to`` None: the workload is gone."""

    id: str
    to: Phase | None


def ways(id: str, *to: Phase | None) -> tuple[Way, ...]:
    """The ways of one transition."""
    return tuple(Way(id, phase) for phase in to)


class Transition(NamedTuple):
    """What happens, by whom, and what becomes of three fields of the status."""

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
    "T02": Transition("its queue is missing or stopped, and it says so", _KEPT, _KEPT, _KEPT),
    "T03": Transition(
        "the scheduler books quota",
        "set",
        "those of the assigned flavors, Pending",
        "time cleared, count kept",
    ),
    "T04": Transition("the same, and no check is required: admitted in the same write", "set",
                      "none", "time cleared, count kept"),
    "T05": Transition("the same while victims still hold what it needs: they are named in "
                      "pendingPreemption", "set", "as T03", "as T03"),
    "T06": Transition("the scheduler looked at it and says why it waits", "none", _KEPT, _KEPT),
    "T07": Transition("a check asks for the planned preemptions", _KEPT, _KEPT, _KEPT),
    "T08": Transition("all required checks are Ready and the recheck passed", _KEPT,
                      "kept, retry counts 0", _KEPT),
    "T09": Transition("the recheck failed, or quota was cut; of a job only with onQuotaCut: evict, "
                      "which stops first", "cleared", _CLEARED, _KEPT),
    "T10": Transition("a check says Retry, or took too long", _FREED,
                      "frozen as they are until T20", "the time of 3.2"),
    "T11": Transition("a check says Rejected, was retried too often, or adds what contradicts "
                      "others: turned off", _FREED,
                      f"{_FORGOTTEN}; that row stays Rejected", "cleared"),
    "T12": Transition("the scheduler gives its quota to another workload", _FREED, _CLEARED, _KEPT),
    "T13": Transition("its pods took too long to be ready, or ready again", _FREED, _CLEARED,
                      "count + 1, time by backoff"),
    "T14": Transition("the same once too often: turned off", _FREED, _FORGOTTEN, "cleared"),
    "T15": Transition("it ran for as long as it may: turned off, accumulated seconds cleared",
                      _FREED, _FORGOTTEN, "cleared"),
    "T16": Transition("a user turns it off", _FREED, _FORGOTTEN, "cleared"),
    "T17": Transition("its queue is drained", _FREED, _CLEARED, _KEPT),
    "T17b": Transition("its runner or node was lost", "cleared", _CLEARED, _KEPT),
    "T18": Transition("its queue is stopped or missing before it was admitted", "cleared", _CLEARED,
                      _KEPT),
    "T19": Transition("the job has stopped, or nobody said so in time: its quota is free",
                      "cleared", "what they add to pods is dropped", _KEPT),
    "T20": Transition("the wait is over", "none",
                      "all Pending, next cycle; retry count + 1 where Retry",
                      "time cleared, count kept"),
    "T21": Transition("a check says something new meanwhile", _KEPT, "that row", "recomputed"),
    "T21b": Transition("a Retry with a delay comes late, or without a reservation", _KEPT,
                       "that row", "recomputed"),
    "T22": Transition("a user turns it on again", _KEPT, _FORGOTTEN, "cleared"),
    "T23": Transition("its queue runs again", "none", _KEPT, _KEPT),
    "T25": Transition("the runner tells of its pods", _KEPT, _KEPT,
                      "cleared once they are ready"),
    "T26": Transition("it ended", "kept, counts no more", _KEPT, _KEPT),
    "T27": Transition("a user deletes it; a job stops first", _FREED, _KEPT, _KEPT),
    "T28": Transition("the checks of its queue changed", _KEPT,
                      "new ones Pending, and asked where it has quota; removed ones gone, others "
                      "untouched", _KEPT),
    "T29": Transition("its priority changed", _KEPT, _KEPT, _KEPT),
    "T30": Transition("a user holds it or lets it go", _KEPT, _KEPT, _KEPT),
    "2.6": Transition("a verdict is written down", _KEPT, "that row", _KEPT),
}  # fmt: skip
"""Ids of LIFECYCLE 1.4; ``2.6``: a verdict that moves nothing else. What only a parent and its
variants do (T24): `admittance.workload.families.ways`."""
