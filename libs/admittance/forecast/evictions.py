"""Victims of preemption in a play, found by the scheduler's own searches."""

from __future__ import annotations

from collections.abc import Container, Mapping
from math import inf
from typing import Final

from admittance.events.shapes import Admission
from admittance.forecast.played import (
    Charges,
    QueueRules,
    Run,
    Start,
    WaitingClass,
    moment,
    total_of,
)
from admittance.forecast.rows import Key
from admittance.quota.catalog import Activity
from admittance.quota.cell import available, borrow_level, is_over, potential
from admittance.scheduling.preemption import classical, fair_sharing
from admittance.scheduling.preemption.room import Need
from admittance.scheduling.state.equivalence import RefusalQueue
from admittance.scheduling.state.flavor_plan import NO_PREEMPTION, FlavorPlan
from admittance.scheduling.state.workload_info import CandidateEntry, Charge, Queue, WorkloadInfo

EVICTIONS_MAX: Final = 3
"""How often a workload is evicted in a play, so that two workloads do not preempt each other
without end. The scheduler has its loop guard for this."""


class Evictions:
    """The workloads that hold quota in a play, as the searches read them. ``strategies``: those of
    fair sharing; None: it is off."""

    def __init__(
        self, queues: Mapping[str, QueueRules], strategies: tuple[str, ...] | None
    ) -> None:
        self._rules = queues
        self._strategies = strategies
        self._queues = {name: _queue(name, rules) for name, rules in queues.items()}
        self._admissions = {name: Admission(cluster_queue=name) for name in queues}
        self._runs: dict[WorkloadInfo, Run] = {}
        self._infos: dict[Run, WorkloadInfo] = {}
        self._evicted: dict[Key, int] = {}
        self._spared = any(rules.spared for rules in queues.values())
        self.next_old = inf
        """When the first of the workloads has run long enough that were too young in a search."""

    # What holds quota. --------------------------------------------------------------------

    def add(self, run: Run) -> None:
        """A workload got quota. One that does not wait again after an eviction is no victim."""
        job, queue = run.job, self._queues[run.queue]
        if job is None or self._evicted.get(run.key, 0) >= EVICTIONS_MAX:
            return
        info = WorkloadInfo(run.key, priority=job.priority, queued_at=moment(job.queued_at))
        info.charge = Charge(queue, self._admissions[run.queue], list(run.charges))
        queue.add_candidate(info, moment(run.since))
        self._runs[info] = run
        self._infos[run] = info

    def remove(self, run: Run) -> None:
        """A workload gave its quota back."""
        info = self._infos.pop(run, None)
        if info is not None:
            del self._runs[info]
            self._queues[run.queue].remove_candidate(info)

    def note(self, victim: Run) -> None:
        """Counts an eviction."""
        self._evicted[victim.key] = self._evicted.get(victim.key, 0) + 1

    # Searches. ----------------------------------------------------------------------------

    def start(self, name: str, head: WaitingClass, fit: Start | None, now: float) -> Start | None:
        """How the first workload of the class may start if it may preempt. ``fit``: how it may
        start without a preemption; None: it cannot."""
        rules = self._rules[name]
        if rules.policy is NO_PREEMPTION or (fit is not None and not rules.preempts_first):
            return fit
        if not self._has_candidates(name, head):
            return fit
        for charges in head.choices():
            if fit is not None and charges == fit.charges:
                return fit
            if all(person.has_room(charges) for person in head.persons):
                found = self._start_with(name, head, charges, now)
                if found is not None:
                    return found
        return fit

    def _has_candidates(self, name: str, head: WaitingClass) -> bool:
        """Whether a workload is a candidate by its priority. This costs far less than a search."""
        policy, priority = self._rules[name].policy, head.first.priority
        return any(
            _may_have(
                queue.candidates, policy.within if other == name else policy.reclaim, priority
            )
            for other, queue in self._queues.items()
        )

    def _start_with(
        self, name: str, head: WaitingClass, charges: Charges, now: float
    ) -> Start | None:
        need, queue, job = total_of(charges), self._queues[name], head.first
        contested = {cell.fr: None for cell, amount in need.items() if available(cell) < amount}
        borrow_preempts = self._rules[name].borrow_preempts
        for cell, amount in need.items():
            if amount > potential(cell):
                return None
            if cell.fr in contested and not (cell.nominal >= amount or borrow_preempts):
                _, is_reclaimable = borrow_level(cell, amount)
                if not is_reclaimable:
                    return None
        info = WorkloadInfo(job.key, priority=job.priority, queued_at=moment(job.queued_at))
        victims = self._search(queue, info, need, contested, now)
        if not victims:
            return None
        for victim in victims:
            for cell, amount in victim.charges:
                cell.charge(-amount)
        borrows = any(is_over(cell, amount) for cell, amount in need.items())
        for victim in victims:
            for cell, amount in victim.charges:
                cell.charge(amount)
        return Start(charges, borrows, victims)

    def _search(
        self,
        queue: Queue,
        preemptor: WorkloadInfo,
        need: Need,
        contested: Mapping[tuple[str, str], None],
        now: float,
    ) -> tuple[Run, ...]:
        gone: Container[WorkloadInfo] = self._young(now) if self._spared else ()
        if self._strategies is None:
            found = classical.search(self._queues, queue, preemptor, need, contested, gone)
        else:
            found = fair_sharing.search(
                self._queues, queue, preemptor, need, contested, self._strategies, gone
            )
        return tuple(self._runs[victim.workload] for victim in found)

    def _young(self, now: float) -> set[WorkloadInfo]:
        young: set[WorkloadInfo] = set()
        for info, run in self._runs.items():
            until = run.since + self._rules[run.queue].spared
            if until > now:
                young.add(info)
                self.next_old = min(self.next_old, until)
        return young


def _may_have(candidates: list[CandidateEntry], policy: str, priority: int) -> bool:
    if policy == "Never" or not candidates:
        return False
    least = candidates[0][0]
    is_equal = least == priority and policy == "LowerOrNewerEqualPriority"
    return policy == "Any" or least < priority or is_equal


def _queue(name: str, rules: QueueRules) -> Queue:
    plan = FlavorPlan(
        queue=name,
        groups={},
        covers_pods=False,
        borrow_next=rules.tries_next,
        preempt_next=not rules.preempts_first,
        preemption_first=False,
        policy=rules.policy,
        borrow_preempts=rules.borrow_preempts,
    )
    activity = Activity(rules.is_active, "", "")
    return Queue(name, RefusalQueue(), node=rules.node, plan=plan, activity=activity)
