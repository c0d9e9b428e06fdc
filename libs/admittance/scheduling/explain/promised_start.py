"""Explains the promise of a start (backfill): when the promised head starts and which workloads end
first, and which workloads make a promise impossible."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from admittance.events.requests.explanation import ExpectedStart
from admittance.events.requests.remedies import Remedy, RemedyKind
from admittance.events.shapes import Refusal
from admittance.scheduling.cycle.backfill import needed_ends
from admittance.scheduling.cycle.cycle import Cycle
from admittance.scheduling.cycle.promises import KeptPromise, holders_of, job_of
from admittance.scheduling.explain.remedies import first_names, of_start
from admittance.scheduling.state.equivalence import Key
from admittance.scheduling.state.promise import NoPromise, Promise
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.workload_info import Nomination, Queue, WorkloadInfo

LISTED_MAX: Final = 64
"""How many of the workloads that must end, or that have no known end, an explanation lists."""
NAMED_MAX: Final = 5


def promise_of(
    state: SchedulerState, cycle: Cycle, queue: Queue, now: datetime
) -> Promise | NoPromise | None:
    """Returns the promise that the next cycle of the queue's domain keeps."""
    if queue.domain is None or not state.backfill_queues:
        return None
    return cycle.promises.current(queue.domain, now)


def why_held_back(
    state: SchedulerState,
    promise: Promise | NoPromise | None,
    queue: Queue,
    workload: WorkloadInfo,
    nomination: Nomination,
) -> Refusal | None:
    """Returns why the promise would hold the workload back in the next cycle; None: it would not,
    or the workload does not fit."""
    assignment, victims = nomination
    if not isinstance(promise, Promise) or queue.domain is None or not assignment.places:
        return None
    kept = KeptPromise(state, queue.domain, promise, state.now)
    if kept.allows(queue, workload, assignment, [victim.workload for victim in victims]):
        return None
    return kept.refusal(queue, workload, assignment)


def expected_start(
    state: SchedulerState,
    promise: Promise | NoPromise | None,
    queue: Queue,
    workload: WorkloadInfo,
    now: datetime,
    *,
    is_held_back: bool,
) -> ExpectedStart | None:
    """Returns the promise if it concerns the workload: the workload has it, would have it but for
    workloads without a known end, or is held back by it."""
    if promise is None or queue.domain is None:
        return None
    if promise.head != workload.key and not is_held_back:
        return None
    name = "/".join(promise.head)
    if isinstance(promise, NoPromise):
        return ExpectedStart(head=name, without_end=_names(promise.unbounded))
    after = needed_ends(promise, holders_of(state, queue.domain, now))
    return ExpectedStart(head=name, at=promise.at, certain=promise.is_certain, after=_names(after))


def sentence(state: SchedulerState, start: ExpectedStart | None, workload: WorkloadInfo) -> str:
    """Returns when the workload is expected to start, or why no start is known, as a part of a
    message; "": it has no promise."""
    if start is None or start.head != "/".join(workload.key):
        return ""
    if start.at is None:
        return f"; no start can be promised: {'; '.join(_without_end(state, start.without_end))}"
    word = "promised a start" if start.certain else "expected to start"
    text = f"; it is {word} at {start.at:%Y-%m-%dT%H:%M:%SZ}"
    if start.after:
        ends = "ends" if len(start.after) == 1 else "end"
        text += f", when {_listed(start.after)} {ends}"
    return text


def remedies_of(start: ExpectedStart, workload: WorkloadInfo) -> Iterator[Remedy]:
    """Yields each change after which the promise does not hold the workload back."""
    yield of_start(start.head, "which the workload would delay")
    if start.at is not None and job_of(workload).seconds_left is None:
        text = f"a time limit (--time) that ends before {start.at:%Y-%m-%dT%H:%M:%SZ}"
        yield Remedy(text=text, kind=RemedyKind.REQUEST, at=start.at)


def _without_end(state: SchedulerState, names: Sequence[str]) -> Iterator[str]:
    unlimited: list[str] = []
    others: list[str] = []
    for name in names:
        namespace, _, plain = name.partition("/")
        known = state.workloads.get((namespace, plain))
        is_limited = known is not None and job_of(known).seconds_left is not None
        (others if is_limited else unlimited).append(name)
    if unlimited:
        has = "has" if len(unlimited) == 1 else "have"
        yield f"{_listed(unlimited)} {has} no time limit (--time)"
    if others:
        has = "has" if len(others) == 1 else "have"
        yield f"{_listed(others)} {has} not begun to run"


def _names(keys: Sequence[Key]) -> tuple[str, ...]:
    return tuple("/".join(key) for key in keys[:LISTED_MAX])


def _listed(names: Sequence[str]) -> str:
    """Returns the names as a list in a sentence; of many names the first, and how many more."""
    if len(names) == 1 or len(names) > NAMED_MAX:
        return first_names(names, NAMED_MAX)
    return f"{', '.join(names[:-1])} and {names[-1]}"
