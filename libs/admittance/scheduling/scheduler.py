"""`Scheduler`, the scheduler's core: takes manifests and stored workloads, makes decisions. The
core is pure; time is an argument.

The core keeps one `SchedulerState`, which every change updates. The scheduler assumes its own
decisions at once: it charges quota before the decision is stored, and gives the quota back if the
log or the workload-controller refuses the decision."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from heapq import heappop
from sys import intern
from typing import Any

from admittance.events.facts import Decision, Refused
from admittance.events.requests.explanation import ExplainReply
from admittance.events.requests.queues import (
    PendingQuery,
    PendingReply,
    PendingRow,
    Queues,
    QueuesReply,
)
from admittance.events.requests.whatif import Fit, FitReply
from admittance.events.shapes import ConsumedUsage, Refusal
from admittance.object_errors import ObjectError
from admittance.quota.catalog import Catalog
from admittance.scheduling import configuration_updates, workload_updates
from admittance.scheduling.changed_domains import ChangedDomains, numbers_of
from admittance.scheduling.cycle import recheck
from admittance.scheduling.cycle.cycle import Cycle, flush
from admittance.scheduling.cycle.decisions import Decided
from admittance.scheduling.cycle.refusals import due_refusals, next_refusal_at
from admittance.scheduling.explain import cohort_tree, pending, queue_status
from admittance.scheduling.explain.explain import explain
from admittance.scheduling.explain.fit import fit
from admittance.scheduling.last_day import DaySamples
from admittance.scheduling.preemption import quota_reduction
from admittance.scheduling.preemption.loop_guard import LoopGuard, repeated_preemptions
from admittance.scheduling.queue_gauges import pending_count, queue_gauges
from admittance.scheduling.state.config import Config
from admittance.scheduling.state.equivalence import Key
from admittance.scheduling.state.held import charging
from admittance.scheduling.state.object_errors import Suspect
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.workload_info import Domain
from admittance.scheduling.state.workload_view import Inadmissible
from admittance.workload.stored import StoredWorkload

__all__ = ["Config", "Scheduler"]


class Scheduler:
    """The scheduler's core: decides for the domains that it owns."""

    def __init__(
        self,
        config: Config | None = None,
        errors: list[ObjectError] | None = None,
        suspects: Mapping[str, Inadmissible] | None = None,
    ) -> None:
        """``errors``: gets the exceptions by bugs that concern one workload, which is set aside;
        None: such an exception is raised. ``suspects``: why a workload is set aside from the
        beginning, by its uid."""
        self._config = config or Config()
        self._state = SchedulerState(self._config, errors, suspects)
        self._cycle = Cycle(self._state)
        self._counted = 0
        self._changed_domains = ChangedDomains()
        self._day = DaySamples()

    @property
    def catalog(self) -> Catalog:
        """The configuration that the scheduler has applied. Callers must not change the catalog."""
        return self._state.catalog

    # Changes. -------------------------------------------------------------------------------

    def apply_object(self, kind: str, namespace: str, name: str, obj: Any, revision: int) -> None:
        """Applies an object of the configuration as of a revision; None: the object was deleted.

        Undoes decisions in flight that were made from an older configuration of the domain. The
        workload-controller refuses decisions from an older configuration by the same rule."""
        self.seen(revision)
        state = self._state
        touched = configuration_updates.apply_object(
            state, kind, namespace, name, obj, revision, now=state.now
        )
        self._changed_domains.note_all(touched)

    def apply_workload(
        self,
        namespace: str,
        name: str,
        stored: StoredWorkload | None,
        revision: int,
        *,
        now: datetime,
    ) -> None:
        """Applies a stored workload as of a revision; None: the workload was deleted."""
        self.seen(revision)
        self._state.now = max(self._state.now, now)
        key = intern(namespace), name
        workloads = self._state.workloads
        before = numbers_of(workloads.get(key))
        workload_updates.apply_workload(self._state, key, stored, revision, now=now)
        self._changed_domains.note(before, numbers_of(workloads.get(key)))

    def apply_usage(self, namespace: str, name: str, record: ConsumedUsage | None) -> None:
        """Applies the stored record of what a LocalQueue has consumed; None: the record was
        deleted."""
        self._state.remember_usage((namespace, name), record)

    def seen(self, revision: int) -> None:
        """Records that all changes of the bucket up to this revision have been applied."""
        self._state.seen = max(self._state.seen, revision)

    def flush(self, cluster_queue: str) -> None:
        """Lets parked workloads in the ClusterQueue's tree compete again, as if quota had become
        free."""
        queue = self._state.queues.get(cluster_queue)
        if queue is not None:
            self._state.flush(queue.domain)

    @property
    def has_changed_domains(self) -> bool:
        """Whether `changed_domains` may return a domain."""
        return bool(self._changed_domains)

    def changed_domains(self) -> list[str]:
        """Returns the owned domains in which quota or queues changed since the last call, as far as
        the changes are stored."""
        return self._changed_domains.take(self._state.owned)

    # Leadership. ----------------------------------------------------------------------------

    def own(self, name: str) -> None:
        """Makes the scheduler decide for the domain from now on. Does nothing if the scheduler owns
        the domain already."""
        if name in self._state.owned:
            return
        self._state.owned.add(name)
        domain = self._state.domains.get(name)
        if domain is not None:
            domain.owned = True
            self._state.flush(domain)

    def disown(self, name: str) -> None:
        """Stops deciding for the domain, and undoes its assumed decisions."""
        state = self._state
        state.owned.discard(name)
        domain = state.domains.get(name)
        if domain is not None:
            for workload in list(domain.in_flight):
                workload_updates.undo(state, workload, domain, self._state.now)
            domain.owned = False
            state.busy.pop(domain, None)
            if not domain.queues and not domain.in_flight:
                del state.domains[name]

    def domains(self) -> set[str]:
        """Returns the names of all domains that have a ClusterQueue."""
        return {name for name, domain in self._state.domains.items() if domain.queues}

    def owned(self) -> frozenset[str]:
        """Returns the domains that the scheduler decides for, including domains without a
        ClusterQueue."""
        return frozenset(self._state.owned)

    # Decisions. -----------------------------------------------------------------------------

    def cycle(self, *, now: datetime) -> list[Decided]:
        """Runs one cycle over the owned domains in which something happened, at most one head per
        ClusterQueue.

        The returned decisions are assumed in the state already. Quota of victims that are reserved
        but not admitted is handed over in the same decision; other victims keep their quota until
        their eviction is stored."""
        return [decision for decided in self.by_domain(now=now) for decision in decided]

    def by_domain(self, *, now: datetime) -> Iterator[list[Decided]]:
        """Yields the decisions of a cycle, domain by domain. The caller may change the scheduler's
        state between two domains."""
        state = self._state
        # Only scheduling cycles with heads are counted, because saved cursors of flavor scans age
        # by counted cycles, and calls without work must not age them.
        self._cycle.number += self.wake_due(now=now)
        for domain in list(state.busy):
            if domain in state.busy and domain.owned:
                yield self.decide(domain, now=now)
        if state.loop_guarded:
            LoopGuard(state).requeue_waiting(now)
        if not state.busy:
            self._cycle.number = max(self._cycle.number, self._counted)

    def wake_due(self, *, now: datetime) -> bool:
        """Wakes parked workloads that may compete again after a flush or because their time has
        come. Returns whether any workload competes."""
        state = self._state
        self.wake(now=now)
        for domain in list(state.busy):
            if domain.flush:
                domain.seen = state.seen
                flush(domain, state.catalog, now)
            if domain.holds_back:
                self._cycle.promises.update(domain, now)
            if not domain.ready and not domain.quota_reduced and not domain.rechecks:
                state.busy.pop(domain)
        return any(domain.ready for domain in state.busy)

    def decide(self, domain: Domain, *, now: datetime) -> list[Decided]:
        """Runs one cycle of the domain and returns its decisions, which are assumed in the state
        already.

        Reservations that need a recheck come first, for example after reduced quota or passed
        checks, then the heads of the ready queues. A replay of decisions calls `decide` too. Raises
        Suspect."""
        self._state.at_work = None
        try:
            return self._decide(domain, now=now)
        except Exception as error:
            self._raise_suspect(error)
            raise

    def _decide(self, domain: Domain, *, now: datetime) -> list[Decided]:
        state = self._state
        decisions: list[Decided] = []
        quota_reduced = domain.quota_reduced
        if quota_reduced:
            decisions += quota_reduction.due_revocations(state, domain, now)
        if domain.rechecks:
            decisions += recheck.due_decisions(state, domain, self._cycle, now)
        if domain.handover is not None or not (quota_reduced or domain.ready):
            state.busy.pop(domain, None)
            return decisions
        result = self._cycle.run(domain, now=now)
        if domain.plan_quota_varies:
            # At the end of the cycle, usage that was held back for its entries is given back.
            charging.share_quota(state, domain)
        self._count_idle_cycles(domain, result.has_progress)
        return decisions + result.decisions

    def _count_idle_cycles(self, domain: Domain, has_progress: bool) -> None:
        """Ends the cycles of a domain until something changes in it, if enough cycles made no
        progress or no head can be tried."""
        if has_progress:
            domain.idle_cycles = 0
        else:
            domain.idle_cycles += 1
            if domain.is_settled:
                # This cycle changed nothing, so the domain's remaining idle cycles would change
                # nothing either. Idle cycles are counted without being run, because saved cursors
                # age by the number of the cycle.
                left = max(0, self._config.idle_cycles - domain.idle_cycles)
                self._counted = max(self._counted, self._cycle.number + left)
                domain.idle_cycles += left
        if (
            (not domain.ready and not (has_progress and domain.holds_back))
            or domain.idle_cycles >= self._config.idle_cycles
            or domain.is_waiting()
        ):
            self._state.busy.pop(domain, None)

    def wake(self, *, now: datetime) -> None:
        """Lets workloads compete again that wait for a time which has come, and compares the usages
        of LocalQueues if a sampling interval is over.

        The caller must call `wake` whenever the time of `next_wake` has come."""
        state = self._state
        state.now = max(state.now, now)
        while state.timers and state.timers[0][0] <= now:
            _, key = heappop(state.timers)
            workload = state.workloads.get(key)
            if workload is not None and workload.inadmissible is not None and workload.is_due(now):
                state.requeue(workload, now)
        if state.domain_timers:
            state.flush_due(now)
        state.compare_usages(now)

    def has_work(self) -> bool:
        """Returns whether a cycle now could make a decision."""
        return bool(self._state.busy)

    def refusals(self, *, now: datetime) -> list[Refused]:
        """Returns the refusals that are due, and marks them as in flight.

        A workload is refused if it has been parked for a while and its status has another waiting
        reason than the one for which it is parked. No decision about the workload is made before
        its refusal is stored."""
        self._state.now = max(self._state.now, now)
        self._state.at_work = None
        try:
            return due_refusals(self._state, now)
        except Exception as error:
            self._raise_suspect(error)
            raise

    def _raise_suspect(self, error: Exception) -> None:
        """Raises Suspect for an exception that a step raised for one workload."""
        state = self._state
        if state.at_work is not None and state.errors is not None and type(error) is not Suspect:
            step, workload = state.at_work
            raise Suspect(workload, step, error) from error

    def forget(self, namespace: str, name: str, revision: int) -> None:
        """Undoes the decision that was made about the workload at ``revision``, because the log did
        not accept the decision."""
        workload = self._state.workloads.get((namespace, name))
        if workload is None or workload.revision != revision or not workload.in_flight:
            return
        queue = workload.charge.queue if workload.charge is not None else workload.queue
        if queue is not None and queue.domain is not None:
            workload_updates.undo(self._state, workload, queue.domain, self._state.now)

    def repeated(self, decision: Decision) -> Iterator[tuple[str, str, int]]:
        """Yields each preemption in the decision that belongs to a preemption loop: the victim, the
        preemptor, and how often that preemptor has preempted that victim."""
        return repeated_preemptions(decision, self._config.preemption_loops)

    def next_wake(self) -> datetime | None:
        """Returns when the scheduler next has something to do even if no event happens; None:
        never."""
        times = [self._state.timers[0][0]] if self._state.timers else []
        if self._state.domain_timers:
            times.append(self._state.domain_timers[0][0])
        refusal = next_refusal_at(self._state)
        if refusal is not None:
            times.append(refusal)
        usage = self._state.accounts.next_wake() if self._state.accounts is not None else None
        if usage is not None:
            times.append(usage)
        return min(times, default=None)

    def usages_to_write(
        self, *, now: datetime, at_once: bool = False
    ) -> list[tuple[Key, ConsumedUsage | None]]:
        """Returns the changed records of what LocalQueues have consumed, in the domains that the
        scheduler owns, to be stored for the next leader.

        The record of a deleted LocalQueue is None. ``at_once``: return also consumption that
        changed less than a second ago."""
        accounts = self._state.accounts
        return [] if accounts is None else list(accounts.to_write(now, at_once=at_once))

    # Answers. -------------------------------------------------------------------------------

    def explain(self, namespace: str, name: str, *, now: datetime) -> ExplainReply:
        """Returns why the workload waits, as the next cycle would see it.

        An explanation costs a nomination, and a look at each flavor of the workload, at some
        holders of scarce quota, and at each class of its queue."""
        self._state.now = max(self._state.now, now)
        return explain(self._state, self._cycle, (namespace, name), now=now)

    def fit(self, request: Fit, namespace: str) -> FitReply:
        """Returns whether the workload in a manifest, which is not submitted, could start if no
        other workload ran."""
        return fit(self._state, namespace, request.workload)

    def pending(self, query: PendingQuery, namespace: str = "") -> PendingReply:
        """Returns the waiting workloads of one namespace ("": all), in the order of their
        queues."""
        return pending.pending(self._state, query, namespace)

    def waiting(self) -> Iterator[tuple[PendingRow, Refusal | None]]:
        """Yields every waiting workload, in the order of the queues, with its refusal."""
        return pending.all_pending(self._state)

    def parked_by_key(self) -> dict[Key, bool]:
        """Returns the pending workloads that have a ClusterQueue, each with whether it is parked:
        much cheaper than `pending`."""
        return queue_status.parked_by_key(self._state)

    def gauges(self) -> dict[str, dict[tuple[str, ...], float]]:
        """Returns the gauges of the queues and cohorts in the domains that the scheduler owns, by
        name and labels. Of the scheduler's methods only `gauges` may be called by another thread
        while the scheduler works."""
        return queue_gauges(self._state)

    def pending_count(self) -> int:
        """Returns how many workloads wait in the domains that the scheduler owns."""
        return pending_count(self._state)

    def count(self, *, now: datetime) -> None:
        """Counts what waits and what is held, for the last 24 hours in the answers of `queues`. The
        caller must call it every `SAMPLE_SECONDS`."""
        self._day.count(queue_status.samples(self._state), now=now)

    def queues(self, query: Queues, namespace: str = "") -> QueuesReply:
        """Returns counters, usage and activity of the queues and cohorts that the query selects."""
        if query.last_day is not None:
            cohorts = self._state.catalog.tree.cohorts
            below = {
                name: [node.name for node in cohorts[name].queues()]
                for name in query.last_day.cohorts
                if name in cohorts
            }
            return self._day.answer(query.last_day, below)
        if query.cohort:
            return cohort_tree.of_cohort(self._state, query.cohort)
        return queue_status.queues(self._state, query, namespace)
