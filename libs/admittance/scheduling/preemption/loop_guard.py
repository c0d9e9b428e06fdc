"""The loop guard: stops a workload from preempting the same other workload again and again.

A preemption does not always end with a running preemptor: under fair sharing, with
``reclaimWithinCohort: Any``, or when the victim gets its quota back first, the same preemptor and
victim may meet again and again, and neither job finishes. The stored status of the victim counts
preemptions per preemptor, so the counts survive a restart. From the configured number of
preemptions of one victim by one preemptor on (three by default), the guard separates the two, for a
time that doubles with each further preemption:

- A victim with a lower priority stays preemptible, but must wait until the preemptor has had its
  turn, since the quota was freed for the preemptor.
- A victim with the same or a higher priority may not be preempted by that preemptor, so the victim
  keeps running.

A change in the configuration of the cohort tree ends the separation, because preemption may then
end differently. Source: `docs/spec/scheduling.md#10.2`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from heapq import heappush
from typing import Final

from admittance.api.workload import PreemptionCount
from admittance.backoff import pause_after
from admittance.events import reasons
from admittance.events.facts import Assigned, Decision, Preempted
from admittance.scheduling.state.config import PreemptionLoops
from admittance.scheduling.state.queue import park_workload
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.workload_info import Domain, Queue, Victim, WorkloadInfo
from admittance.scheduling.state.workload_view import Inadmissible

NO_WORKLOADS: Final[frozenset[WorkloadInfo]] = frozenset()


class LoopGuard:
    """Decides which preemptors and victims must be kept apart, from the counts of preemptions in
    `SchedulerState`."""

    __slots__ = ("_rule", "_state", "_taken")

    def __init__(self, state: SchedulerState) -> None:
        self._state = state
        self._rule = None if state.config.as_kueue else state.config.preemption_loops
        self._taken = state.preemption_counts

    def note(self, victim: WorkloadInfo, counts: tuple[PreemptionCount, ...]) -> None:
        """Records how often each preemptor has preempted the victim, as the victim's status says;
        (): the victim was deleted."""
        if counts == victim.preemptions:
            return
        for count in victim.preemptions:
            pairs = self._taken.get(count.by_uid)
            if pairs is not None and pairs.pop(victim, None) is not None and not pairs:
                del self._taken[count.by_uid]
        victim.preemptions = counts
        for count in counts:
            self._taken.setdefault(count.by_uid, {})[victim] = count
        if not counts:
            self._state.loop_guarded.pop(victim, None)

    def times(self, preemptor: WorkloadInfo, victim: WorkloadInfo) -> int:
        """Returns how often the preemptor has preempted the victim, including the preemption that
        is considered now."""
        return 1 + sum(count.count for count in victim.preemptions if count.by_uid == preemptor.uid)

    def with_consequence(self, preemptor: WorkloadInfo, victim: Victim, message: str) -> str:
        """Returns the message of a preemption. If preemptor and victim are in a loop, the message
        of the preemption says how the loop guard keeps them apart."""
        times = self.times(preemptor, victim.workload)
        if not self.is_loop(times):
            return message
        if preemptor.priority > victim.workload.priority:
            after = "the victim is requeued only after the preemptor was tried"
        else:
            after = "the preemptor may not preempt the victim again for a while"
        return f"{message}. This is preemption {times} of this pair, so {after}"

    def is_loop(self, times: int) -> bool:
        """Whether ``times`` preemptions of one victim by one preemptor are a loop."""
        return self._rule is not None and times >= self._rule.times

    # Separating. ----------------------------------------------------------------------------

    def forbidden_victims(self, preemptor: WorkloadInfo) -> frozenset[WorkloadInfo]:
        """Returns the workloads that the loop guard forbids the preemptor to preempt now. Each
        forbidden victim has the same or a higher priority than the preemptor."""
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

    def why_waiting(self, victim: WorkloadInfo) -> Inadmissible | None:
        """Why the victim waits for a preemptor with a higher priority; None: the victim need not
        wait."""
        for count in victim.preemptions:
            until = self._goes_first_until(victim, count)
            if until is not None:
                return Inadmissible(
                    reasons.PREEMPTION_LOOP,
                    f"Lost its quota {count.count} times to workload {count.by}, which matters "
                    f"more and still waits: that one goes first, until "
                    f"{until:%Y-%m-%dT%H:%M:%SZ}",
                )
        return None

    def wait(self, victim: WorkloadInfo) -> None:
        """Records that the victim is inadmissible for ``reason``, which `why_waiting` returned. The
        victim competes again when the preemptor has had its turn, or when the time for which the
        loop guard keeps them apart is over."""
        self._state.loop_guarded[victim] = None
        for count in victim.preemptions:
            until = self._goes_first_until(victim, count)
            if until is not None:
                heappush(self._state.timers, (until, victim.key))

    def park(self, queue: Queue, preemptor: WorkloadInfo, now: datetime) -> bool:
        """Parks a preemptor that found no victims because of `forbidden_victims`; returns whether
        the preemptor was parked. The preemptor is parked alone, because the loop guard does not
        forbid other workloads of its class to preempt."""
        spared = self.forbidden_victims(preemptor)
        if not spared:
            return False
        counts = [self._taken[preemptor.uid][victim] for victim in spared]
        for count in counts:
            heappush(self._state.timers, (self._until(count), preemptor.key))
        names = ", ".join(sorted("/".join(victim.key) for victim in spared))
        most = max(count.count for count in counts)
        until = min(self._until(count) for count in counts)
        message = (
            f"Took the quota of {names} {most} times, and it came back each time: may not take it "
            f"again until {until:%Y-%m-%dT%H:%M:%SZ}, or until a queue or cohort changes"
        )
        park_workload(queue, preemptor, Inadmissible(reasons.PREEMPTION_LOOP, message), now)
        return True

    def requeue_waiting(self, now: datetime) -> None:
        """Requeues the victims that waited until the preemptor was tried. Must be called after the
        preemptor was tried."""
        for victim in [
            victim for victim in self._state.loop_guarded if self.why_waiting(victim) is None
        ]:
            del self._state.loop_guarded[victim]
            if (
                victim.inadmissible is not None
                and victim.inadmissible.reason == reasons.PREEMPTION_LOOP
            ):
                self._state.requeue(victim, now)

    def _goes_first_until(self, victim: WorkloadInfo, count: PreemptionCount) -> datetime | None:
        """Returns until when the victim must wait for the preemptor that ``count`` names; None: the
        victim need not wait."""
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
            # The preemptor was tried and does not fit: the victim waits for it one pause of the
            # loop guard at most.
            assert self._rule is not None and count.last is not None
            until = min(until, count.last + self._rule.pause)
        return until if self._state.now < until else None

    def _is_parted(self, victim: WorkloadInfo, count: PreemptionCount) -> bool:
        if not self.is_loop(count.count) or self._state.now >= self._until(count):
            return False
        domain = _domain_of(victim)
        return domain is None or self._state.catalog.newest(domain.name) <= count.seen

    def _until(self, count: PreemptionCount) -> datetime:
        rule, last = self._rule, count.last
        assert rule is not None and last is not None
        return last + pause_after(count.count - rule.times + 1, rule.pause, rule.pause_max)


def repeated_preemptions(
    decision: Decision, rule: PreemptionLoops | None
) -> Iterator[tuple[str, str, int]]:
    """Yields the preemptions in a decision that belong to a preemption loop: victim, preemptor, and
    how often that preemptor has preempted that victim."""
    if rule is None:
        return
    if isinstance(decision, Preempted) and decision.times >= rule.times:
        yield f"{decision.namespace}/{decision.name}", decision.by, decision.times
    elif isinstance(decision, Assigned):
        for giver in decision.preempts:
            if giver.times >= rule.times:
                by = f"{decision.namespace}/{decision.name}"
                yield f"{giver.namespace}/{giver.name}", by, giver.times


def _domain_of(workload: WorkloadInfo) -> Domain | None:
    queue = workload.charge.queue if workload.charge is not None else workload.queue
    return queue.domain if queue is not None else None
