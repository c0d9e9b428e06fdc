"""Promises of a start, plainly: a workload that starts past the head of a queue without a cohort
ends before the promised time or leaves room at that time; and where nothing fails, a head starts at
the first promised time at the latest. Nothing is shared with the module `backfill` of the cycle.
docs/spec/scheduling.md#4.8."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from admittance.events.facts import Assigned, Refused
from admittance.events.shapes import PromisedStart
from admittance.events.subjects import workload_key
from admittance.workload.conditions import Type, find
from admittance.workload.stored import StoredWorkload, head
from simulation.invariants import reference_quota
from simulation.transcript import Broken

if TYPE_CHECKING:
    from simulation.invariants.seen import Seen

PROMPT: Final = timedelta(seconds=12)
"""How long it takes at most, without faults, until quota that is free is assigned: a job at its
limit is evicted and stops, and several facts and decisions are on their way."""

OVERDUE: Final = timedelta(seconds=4)
"""How long after its limit a job has stopped at the latest, if its limit counts as true."""


class Promises:
    """``spread``: by how much two clocks may differ. ``is_calm``: nothing fails in the story."""

    def __init__(self, spread: timedelta, *, is_calm: bool) -> None:
        self._spread = spread
        self._is_calm = is_calm
        self._decided: dict[int, Assigned] = {}
        self._begun: dict[str, datetime] = {}
        self._first: dict[str, datetime] = {}
        self.kept = 0
        """How many workloads started beside a promise."""

    def logged(self, decision: Any, sequence: int) -> None:
        """Records a decision."""
        if not isinstance(decision, Assigned | Refused):
            return
        if isinstance(decision, Assigned):
            self._decided[sequence] = decision
        promise = decision.scan.promise if decision.scan is not None else None
        if promise is not None and promise.certain:
            key = workload_key(*promise.head.split("/"))
            self._first.setdefault(key, promise.at)

    def stored(
        self,
        key: str,
        before: Seen,
        after: Seen,
        holding: Mapping[str, Seen],
        seen: Mapping[str, Seen],
        queues: Mapping[str, Any],
        now: datetime,
    ) -> None:
        """Checks a write that reserves quota. ``holding``: the workloads that held quota."""
        new, old = after.workload, before.workload
        if before.usage and not after.usage and old is not None and key in self._begun:
            end = self._end_of(key, old)
            if end is not None and now > end + OVERDUE:
                self._first.clear()  # Its limit was not true, so promises may break.
        if new is None or before.usage or not after.usage:
            return
        reserved = find(new, Type.QUOTA_RESERVED)
        since = reserved.last_transition_time if reserved is not None else None
        assert since is not None and new.status.admission is not None
        decision = self._decided.pop(new.status.log.fact, None)
        at = decision.time if decision is not None and decision.time is not None else since
        self._begun[key] = at
        first = self._first.pop(key, None)
        if self._is_calm and first is not None and since > first + PROMPT:
            raise Broken(f"{key} was promised a start at {first} and started at {since}")
        for other in list(self._first):
            passed = seen.get(other)
            if passed is None or passed.workload is None or _is_urgent(new, passed.workload):
                del self._first[other]
        scan = decision.scan if decision is not None else None
        queue = new.status.admission.cluster_queue
        if scan is None or scan.promise is None or queues[queue].spec.cohort_name:
            return
        promised = seen.get(workload_key(*scan.promise.head.split("/")))
        if promised is None or promised.workload is None or promised.workload is new:
            return
        if _is_behind(new, promised.workload):
            self.kept += 1
            self._keeps(key, after, holding, queue, scan.promise, queues)

    def _keeps(
        self,
        key: str,
        after: Seen,
        holding: Mapping[str, Seen],
        queue: str,
        promise: PromisedStart,
        queues: Mapping[str, Any],
    ) -> None:
        usage: reference_quota.Usage = {}
        for name, one in {**holding, key: after}.items():
            held = one.workload
            assert held is not None and held.status.admission is not None
            if held.status.admission.cluster_queue == queue and not self._ends(
                name, held, promise.at
            ):
                for fr, much in one.usage.items():
                    usage[fr] = usage.get(fr, 0) + much
        for need in promise.amounts:
            fr = need.flavor, need.resource
            left = reference_quota.available(queue, fr, queues, {}, {queue: usage})
            mine = usage.get(fr, 0) and after.usage.get(fr, 0)
            if mine and need.amount > left:
                raise Broken(
                    f"{key} starts and delays the promised start of {promise.head} at {promise.at}"
                )

    def _ends(self, key: str, workload: StoredWorkload, at: datetime) -> bool:
        evicted = find(workload, Type.EVICTED)
        if evicted is not None and evicted.status == "True":
            return True
        end = self._end_of(key, workload)
        return end is not None and end <= at + self._spread

    def _end_of(self, key: str, workload: StoredWorkload) -> datetime | None:
        seconds = head(workload).maximum_execution_time_seconds
        if seconds is None or key not in self._begun:
            return None
        spent = workload.status.accumulated_past_execution_time_seconds or 0
        return self._begun[key] + timedelta(seconds=max(0, seconds - spent))


def _is_urgent(workload: StoredWorkload, promised: StoredWorkload) -> bool:
    """Whether the workload has a higher priority, so that no promise binds it."""
    return (head(workload).priority or 0) > (head(promised).priority or 0)


def _is_behind(workload: StoredWorkload, promised: StoredWorkload) -> bool:
    """Whether the workload is certainly behind the promised one: with lower priority, or younger,
    if the place of neither was changed."""
    mine, theirs = head(workload).priority or 0, head(promised).priority or 0
    if mine != theirs:
        return mine < theirs
    created = workload.metadata.creation_timestamp, promised.metadata.creation_timestamp
    assert created[0] is not None and created[1] is not None
    return find(promised, Type.EVICTED) is None and created[0] > created[1]
