"""Pairs of a preemptor and a victim that take quota from each other for ever, and how that ends.

Nothing grows less with each preemption: under fair sharing, with ``reclaimWithinCohort: Any``, or
where the victim comes back before its preemptor has the room, the same workload may take the same
other's quota again and again, and nobody's work is ever done. How often it has is in the victim's
status, so a restart forgets nothing. From the third time on, the pair is parted for a while that
doubles with each further time:

- If the victim matters less, it goes on to have to go, but waits until its preemptor has had its
  turn: the room was made for that one.
- Otherwise it may not be taken by that preemptor: of the two, the one that runs goes on.

A change of the configuration of their tree ends it early, since what was tried may come out
differently now. Source: `docs/spec/scheduling.md#10.2`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from heapq import heappush
from typing import Final

from admittance.api.workload import PreemptionCount
from admittance.events.facts import Assigned, Decision, Preempted
from admittance.scheduling.state.config import PreemptionLoops
from admittance.scheduling.state.queue import park_workload
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.workload_info import (
    Domain,
    Inadmissible,
    Queue,
    Victim,
    WorkloadInfo,
)

REASON: Final = "PreemptionLoop"
NO_WORKLOADS: Final[frozenset[WorkloadInfo]] = frozenset()


class LoopGuard:
    """Decides which preemptors and victims are parted, from the counts in `SchedulerState`."""

    __slots__ = ("_rule", "_state", "_taken")

    def __init__(self, state: SchedulerState) -> None:
        self._state = state
        self._rule = None if state.config.as_kueue else state.config.preemption_loops
        self._taken = state.preemption_counts

    def note(self, victim: WorkloadInfo, counts: tuple[PreemptionCount, ...]) -> None:
        """The victim's status says this; (): it is gone."""
        if counts == victim.preemptions:
            return
        for one in victim.preemptions:
            pairs = self._taken.get(one.by_uid)
            if pairs is not None and pairs.pop(victim, None) is not None and not pairs:
                del self._taken[one.by_uid]
        victim.preemptions = counts
        for one in counts:
            self._taken.setdefault(one.by_uid, {})[victim] = one
        if not counts:
            self._state.loop_guarded.pop(victim, None)

    def times(self, preemptor: WorkloadInfo, victim: WorkloadInfo) -> int:
        """How often the victim will have gone for the preemptor, if it goes once more."""
        return 1 + sum(one.count for one in victim.preemptions if one.by_uid == preemptor.uid)

    def told(self, preemptor: WorkloadInfo, victim: Victim, message: str) -> str:
        """The message of a preemption, and that it is one time too many."""
        times = self.times(preemptor, victim.workload)
        if not self.is_one(times):
            return message
        if preemptor.priority > victim.workload.priority:
            after = "it is not to come back before that one has had its turn"
        else:
            after = "that one may not take it again for a while"
        return f"{message}. For the same one for time {times}, so {after}"

    def is_one(self, times: int) -> bool:
        """So many times are a loop."""
        return self._rule is not None and times >= self._rule.times

    # Parting. -------------------------------------------------------------------------------

    def barred(self, preemptor: WorkloadInfo) -> frozenset[WorkloadInfo]:
        """Whom the preemptor may not take any more for a while: they matter as much as it does."""
        pairs = self._taken.get(preemptor.uid)
        if pairs is None or self._rule is None:
            return NO_WORKLOADS
        return frozenset(
            victim
            for victim, count in pairs.items()
            if victim.priority >= preemptor.priority
            and not victim.is_leaving
            and self._is_parted(victim, count)
        )

    def hindrance(self, victim: WorkloadInfo) -> Inadmissible | None:
        """Why the victim waits for one that matters more, which was to have its room; None: it does
        not."""
        for count in victim.preemptions:
            until = self._goes_first_until(victim, count)
            if until is not None:
                return Inadmissible(
                    REASON,
                    f"Lost its quota {count.count} times to workload {count.by}, which matters "
                    f"more and still waits: that one goes first, until "
                    f"{until:%Y-%m-%dT%H:%M:%SZ}",
                )
        return None

    def wait(self, victim: WorkloadInfo) -> None:
        """The victim is set aside for what `hindrance` said: it is looked at again when that one
        has had its turn, and at the latest when the time is over."""
        self._state.loop_guarded[victim] = None
        for count in victim.preemptions:
            until = self._goes_first_until(victim, count)
            if until is not None:
                heappush(self._state.timers, (until, victim.key))

    def park(self, queue: Queue, preemptor: WorkloadInfo, now: datetime) -> bool:
        """Nothing came of the preemptor. Where that is due to whom it may not take any more, it
        waits alone, since its equals may. True: so it does."""
        spared = self.barred(preemptor)
        if not spared:
            return False
        counts = [self._taken[preemptor.uid][one] for one in spared]
        for count in counts:
            heappush(self._state.timers, (self._until(count), preemptor.key))
        names = ", ".join(sorted("/".join(one.key) for one in spared))
        most = max(count.count for count in counts)
        until = min(self._until(count) for count in counts)
        message = (
            f"Took the quota of {names} {most} times, and it came back each time: may not take it "
            f"again until {until:%Y-%m-%dT%H:%M:%SZ}, or until a queue or cohort changes"
        )
        park_workload(queue, preemptor, Inadmissible(REASON, message), now)
        return True

    def let_go(self, now: datetime) -> None:
        """Whoever waited for somebody that has had its turn competes again."""
        for victim in [one for one in self._state.loop_guarded if self.hindrance(one) is None]:
            del self._state.loop_guarded[victim]
            if victim.inadmissible is not None and victim.inadmissible.reason == REASON:
                self._state.requeue(victim, now)

    def _goes_first_until(self, victim: WorkloadInfo, count: PreemptionCount) -> datetime | None:
        """For how long the victim waits for that preemptor; None: it does not."""
        namespace, _, name = count.by.partition("/")
        preemptor = self._state.workloads.get((namespace, name))
        if (
            preemptor is None
            or preemptor.uid != count.by_uid
            or preemptor.priority <= victim.priority
            or preemptor.queue is None
            or preemptor.charge is not None
            or preemptor.closed_gate
            or not preemptor.is_due(self._state.now)
            or _domain_of(preemptor) is not _domain_of(victim)
            or not self._is_parted(victim, count)
        ):
            return None
        until = self._until(count)
        if preemptor.cls is None or preemptor.cls.parked is not None:
            # It cannot have the room now, so nobody keeps it free for longer than a first pause.
            assert self._rule is not None and count.last is not None
            until = min(until, count.last + self._rule.pause)
        return until if self._state.now < until else None

    def _is_parted(self, victim: WorkloadInfo, count: PreemptionCount) -> bool:
        if not self.is_one(count.count) or self._state.now >= self._until(count):
            return False
        domain = _domain_of(victim)
        return domain is None or self._state.catalog.newest(domain.name) <= count.seen

    def _until(self, count: PreemptionCount) -> datetime:
        rule, last = self._rule, count.last
        assert rule is not None and last is not None
        doubled = min(count.count - rule.times, 30)
        return last + min(rule.pause * (1 << doubled), rule.pause_max)


def repeated(decision: Decision, rule: PreemptionLoops | None) -> Iterator[tuple[str, str, int]]:
    """Pairs that the decision finds in a loop: victim, preemptor, and how often by now."""
    if rule is None:
        return
    if isinstance(decision, Preempted) and decision.times >= rule.times:
        yield f"{decision.namespace}/{decision.name}", decision.by, decision.times
    elif isinstance(decision, Assigned):
        for one in decision.preempts:
            if one.times >= rule.times:
                by = f"{decision.namespace}/{decision.name}"
                yield f"{one.namespace}/{one.name}", by, one.times


def _domain_of(workload: WorkloadInfo) -> Domain | None:
    queue = workload.charge.queue if workload.charge is not None else workload.queue
    return queue.domain if queue is not None else None
