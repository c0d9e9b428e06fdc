"""What facts make of a workload, plainly: which of them count, and which are dropped.

The reference of `admittance.workload.transitions`, from docs/spec/lifecycle.md#2.5, #2.6: shares no
code but the reading of conditions. It only says whether a fact counts: what it does is seen by the
invariants.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple

from admittance.api.workload import CheckState
from admittance.events import facts
from admittance.events.base import Fact
from admittance.workload.conditions import Type, find, is_false, is_true
from admittance.workload.stored import StoredWorkload, head


class Counts(Enum):
    """Whether a fact changes the workload."""

    YES = "counts"
    NO = "is dropped"
    OPEN = "may do either"
    """The result depends on a clock, or the specification leaves it open."""


_POLICY = (
    facts.Activated,
    facts.Deactivated,
    facts.Deleted,
    facts.Finished,
    facts.Reprioritized,
)


class Around(NamedTuple):
    """The AdmissionChecks by name, and whether a Retry may ask for a delay (ACRequeueAfter)."""

    checks: Mapping[str, Any]
    delays: bool = True


def counts(workload: StoredWorkload | None, fact: Fact, around: Around) -> Counts:
    """Whether the fact changes this workload."""
    if workload is None:
        return Counts.OPEN if isinstance(fact, facts.Submitted) else Counts.NO
    if fact.uid and fact.uid != workload.metadata.uid:
        return Counts.NO
    over = is_true(workload, Type.FINISHED)
    active = head(workload).active
    if head(workload).role == "variant" and isinstance(fact, _POLICY):
        return Counts.OPEN  # Policy decides, and has its own invariants.
    if workload.status.array is not None and workload.metadata.deletion_timestamp is not None:
        return Counts.OPEN  # Its elements are deleted, and then it is.
    if isinstance(fact, facts.Activated) and fact.reason:
        return Counts.OPEN  # What a user has stopped stays so.
    match fact:
        case facts.CheckReported():
            return _verdict(workload, fact, around)
        case facts.Deleted():
            return _yes(workload.metadata.deletion_timestamp is None or over)
        case facts.Activated():
            return _yes(not over and not active)
        case facts.Deactivated():
            return _yes(not over and active)
        case facts.Reprioritized():
            return _yes(not over and (head(workload).priority or 0) != fact.priority)
        case facts.Finished(revision=0):
            return _yes(not over)
        case facts.TimerDue(kind="requeue"):
            return _due(workload, fact)
    return Counts.OPEN


def _yes(claim: bool) -> Counts:
    return Counts.YES if claim else Counts.NO


def reserved(workload: StoredWorkload) -> bool:
    """Whether it holds a reservation that is not being evicted."""
    return _holds(workload) and not is_true(workload, Type.EVICTED)


def _holds(workload: StoredWorkload) -> bool:
    return is_true(workload, Type.QUOTA_RESERVED) and not is_true(workload, Type.FINISHED)


def row_of(workload: StoredWorkload, check: str) -> CheckState | None:
    """The row of that check."""
    return next((row for row in workload.status.admission_checks if row.name == check), None)


def _verdict(workload: StoredWorkload, said: facts.CheckReported, around: Around) -> Counts:
    if said.state not in ("Pending", "Ready", "Retry", "Rejected"):
        return Counts.NO
    delay = _asks(said)
    if delay is not None and delay < 0:
        return Counts.NO
    if is_true(workload, Type.FINISHED) or not head(workload).active:
        return Counts.NO
    check = around.checks.get(said.check)
    if check is None:
        return Counts.OPEN if row_of(workload, said.check) is not None else Counts.NO
    if check.spec.controller_name != said.controller:
        return Counts.NO
    row = row_of(workload, said.check)
    delays = around.delays and _delays(said, check)
    if said.cycle == workload.status.admission_cycle:
        return Counts.NO if row is None else _of_this_cycle(workload, row, said, delays)
    return _of_an_older_cycle(workload, row, said, check, delays)


def _delays(said: facts.CheckReported, check: Any) -> bool:
    """A Retry that has a delay, of its own or by the strategy of its check. 3.7."""
    if said.state != "Retry":
        return False
    delay = _asks(said)
    return check.spec.retry is not None if delay is None else delay > 0


def _asks(said: facts.CheckReported) -> float | None:
    """The delay that a verdict names, in seconds. Reads only the kinds of durations that the
    simulated check controllers send."""
    delay = said.requeue_after_seconds
    return int(delay.removesuffix("s")) if isinstance(delay, str) else delay


def _of_this_cycle(
    workload: StoredWorkload, row: CheckState, said: facts.CheckReported, delays: bool
) -> Counts:
    match said.state:
        case "Rejected":
            return Counts.YES
        case "Retry":
            if row.state == "Retry":
                return Counts.OPEN  # A repetition, or another delay.
            if reserved(workload) or delays or (_holds(workload) and _by_check(workload)):
                return Counts.YES
            return Counts.OPEN  # Its message, at most.
        case "Ready":
            if said.placement and row.state == "Pending":
                return Counts.OPEN  # Other workloads may hold what it assigns (2.9).
            if reserved(workload):
                return _unless_repeated(row, said)
            if _by_check(workload):
                return Counts.OPEN if row.state == "Ready" else Counts.YES
            # Of what is stopping or waits for another reason no honest Ready names this cycle.
            return Counts.OPEN if _holds(workload) else Counts.NO
    return _unless_repeated(row, said)


def _unless_repeated(row: CheckState, said: facts.CheckReported) -> Counts:
    if row.state != said.state:
        return Counts.YES
    return Counts.OPEN  # The same, or with another message.


def _by_check(workload: StoredWorkload) -> bool:
    """Whether a check caused its eviction or its wait."""
    evicted = find(workload, Type.EVICTED)
    if evicted is None or evicted.status != "True" or evicted.reason != "AdmissionCheck":
        requeued = find(workload, Type.REQUEUED)
        held = requeued is not None and requeued.status == "False"
        return held and requeued is not None and requeued.reason == "AdmissionCheck"
    return _holds(workload) or is_false(workload, Type.REQUEUED)


def _of_an_older_cycle(
    workload: StoredWorkload,
    row: CheckState | None,
    said: facts.CheckReported,
    check: Any,
    delays: bool,
) -> Counts:
    cycle = workload.status.admission_cycle
    if not 0 <= said.cycle < cycle:
        return Counts.NO
    just_ended = said.cycle == cycle - 1 and not reserved(workload)
    if said.state == "Rejected":
        if not just_ended:
            return Counts.NO
        return Counts.YES if row is not None else Counts.OPEN
    strategy = check.spec.retry
    if said.state == "Retry" and strategy is not None and strategy.max_retries is not None:
        return Counts.OPEN  # It may be a rejection.
    if not delays:
        return Counts.NO
    if not just_ended and said.cycle < workload.status.rounds_since:
        return Counts.NO
    if row is not None and row.state == "Pending" and (row.message or row.reason):
        return Counts.OPEN  # Perhaps a verdict of this cycle; perhaps what the reset left behind.
    if row is not None and row.state == "Retry":
        return Counts.OPEN  # Perhaps of an older cycle itself.
    if row is not None and row.state != "Pending":
        return Counts.NO
    return Counts.YES if row is not None else Counts.OPEN


def _due(workload: StoredWorkload, fact: facts.TimerDue) -> Counts:
    requeued = find(workload, Type.REQUEUED)
    state = workload.status.requeue_state
    if (
        requeued is None
        or requeued.status != "False"
        or requeued.reason not in ("AdmissionCheck", "PodsReadyTimeout")
        or _holds(workload)
        or not head(workload).active
        or is_true(workload, Type.FINISHED)
    ):
        return Counts.NO
    until = state.requeue_at if state is not None else None
    if until is None or fact.at is None:
        return Counts.OPEN
    return Counts.YES if until <= fact.at else Counts.OPEN
