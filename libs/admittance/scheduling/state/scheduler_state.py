"""`SchedulerState`: everything that the scheduler keeps in memory, with basic changes, which other
modules combine."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from heapq import heappop, heappush
from typing import Any, Final

from admittance.api.workload import PreemptionCount
from admittance.events import reasons
from admittance.events.shapes import ConsumedUsage, PreemptedBy, Refusal
from admittance.object_errors import ObjectError
from admittance.placement.search.empty_machines import EmptyMachines
from admittance.quota.catalog import Catalog
from admittance.scheduling.state.config import Config
from admittance.scheduling.state.equivalence import Key, RefusalQueue
from admittance.scheduling.state.flavor_plan import MinRuns
from admittance.scheduling.state.held.accounts import Accounts
from admittance.scheduling.state.lanes import names_in
from admittance.scheduling.state.queue import (
    enqueue,
    enqueue_parent,
    park_workload,
    remove_from_queue,
)
from admittance.scheduling.state.requests import Shapes
from admittance.scheduling.state.stored_fields import InFlight
from admittance.scheduling.state.workload_info import (
    Assumption,
    Domain,
    FamilyInfo,
    Queue,
    WorkloadInfo,
)
from admittance.scheduling.state.workload_view import BACKOFF, LONG_AGO, Inadmissible, VariantInfo

_MOVES_NOTHING = frozenset({InFlight.REFUSED, InFlight.CONFIRMED, InFlight.PLANNED})
"""The kinds of decisions that cannot change the nomination of any head while they are in flight."""


WAITS_FOR_PODS_READY: Final = Refusal(
    reason=reasons.WAITING_FOR_PODS_READY,
    message="Waits until the pods of all admitted workloads are ready",
)


class PodsReadyTracker:
    """Tracks the admitted workloads with pods that are not ready. Stays empty unless
    ``Config.block_admission`` is set."""

    def __init__(self, block_admission: bool) -> None:
        self._block_admission = block_admission
        self._known: dict[WorkloadInfo, None] = {}
        self._assumed: dict[WorkloadInfo, Domain | None] = {}

    def blocks(self, domain: Domain) -> bool:
        """Returns whether no workload of the domain may get new quota now, because of pods that are
        not ready."""
        if self._known:
            return True
        return bool(self._assumed) and domain in self._assumed.values()

    def assume_admitted(self, workload: WorkloadInfo, domain: Domain | None) -> None:
        """Records that the workload is assumed to be admitted, with pods that are not ready yet."""
        if self._block_admission:
            self._assumed[workload] = domain

    def update(self, workload: WorkloadInfo, awaits_pods: bool) -> bool:
        """Records whether the workload is stored as admitted with pods that are not ready. Returns
        whether no workload with such pods is left, so that other workloads may get quota again."""
        if not self._block_admission:
            return False
        was = workload in self._assumed or workload in self._known
        self._assumed.pop(workload, None)
        self._known.pop(workload, None)
        if awaits_pods:
            self._known[workload] = None
        return was and not self._known


class SchedulerState:
    """The scheduler's state: queues, domains, workloads and families, kept current by every change
    in the bucket.

    ``errors``: gets the exceptions by bugs that concern one workload; None: such an exception is
    raised. ``suspects``: the problems of workloads that made an earlier state wrong, by uid."""

    def __init__(
        self,
        config: Config,
        errors: list[ObjectError] | None = None,
        suspects: Mapping[str, Inadmissible] | None = None,
    ) -> None:
        self.config = config
        self.errors = errors
        self.suspects = suspects or {}

        # Read from the bucket.
        self.catalog = Catalog(machines=config.machines)
        self.machines = EmptyMachines()  # for answers only: no decision is made from them
        self.shapes = Shapes(config.exclude_resource_prefixes, config.transformations)
        self.workloads: dict[Key, WorkloadInfo] = {}
        # The workloads of each LocalQueue, whether they compete or not.
        self.by_local_queue: dict[Key, dict[WorkloadInfo, None]] = {}
        # The families of variants, by the uid of the parent.
        self.families: dict[str, FamilyInfo] = {}
        # The values in use, so that equal values share one object.
        self.variant_infos: dict[VariantInfo, VariantInfo] = {}
        # Preempted workloads, by the uid of the preemptor.
        self.victims_by_preemptor: dict[str, dict[WorkloadInfo, None]] = {}
        # For each preemptor, by its uid, how often it has preempted each workload.
        self.preemption_counts: dict[str, dict[WorkloadInfo, PreemptionCount]] = {}
        # How long workloads run before they may be preempted.
        self.min_runs = MinRuns()
        self.backfill_queues: dict[Queue, None] = {}  # the queues with backfill
        self.limited_queues: dict[Queue, None] = {}  # the queues that limit what a person may hold
        self.seen = 0  # the newest bucket revision that was applied

        # Assumed; see also `Domain.in_flight`.
        # Workloads with a refusal that was sent and is not stored yet.
        self.refusals_in_flight: dict[WorkloadInfo, None] = {}
        # The admitted workloads that keep others from new quota until their pods are ready.
        self.pods_ready = PodsReadyTracker(config.block_admission)

        # Derived.
        self.queues: dict[str, Queue] = {}
        self.domains: dict[str, Domain] = {}
        # Reservations with a pending preemption, by the name of the victim, and their domains.
        self.planners_by_victim: dict[Key, dict[WorkloadInfo, None]] = {}
        self.planning_domains: dict[Domain, None] = {}
        self.owned: set[str] = set()  # names of the domains that this scheduler leads
        # What LocalQueues have consumed; None: no usage of LocalQueues counts.
        self.accounts: Accounts | None = None
        if config.admission_fair_sharing is not None:
            self.accounts = Accounts(
                config.admission_fair_sharing,
                self.catalog,
                self.queues,
                self.by_local_queue,
                self.owned,
            )

        # What the next cycles must do.
        self.now = LONG_AGO  # the newest time that the scheduler was given
        self.busy: dict[Domain, None] = {}  # domains in which a cycle could change something
        # A heap of the times at which waiting workloads may compete again.
        self.timers: list[tuple[datetime, Key]] = []
        # A heap of the times at which all parked workloads of a domain, by its name, are woken.
        self.domain_timers: list[tuple[datetime, str]] = []
        # When the refusals of parked workloads are due.
        self.refusal_queue: RefusalQueue[WorkloadInfo] = RefusalQueue()
        self.urgent_refusals: dict[WorkloadInfo, None] = {}  # these are refused without delay
        self.loop_guarded: dict[WorkloadInfo, None] = {}  # the loop guard has parked these
        # The step that the scheduler does now, and the workload that the step is about.
        self.at_work: tuple[str, WorkloadInfo] | None = None

    def queue(self, name: str) -> Queue:
        """Returns the queue with the name ``name``; creates the queue if its ClusterQueue is not
        known yet."""
        queue = self.queues.get(name)
        if queue is None:
            queue = self.queues[name] = Queue(name, self.refusal_queue)
        return queue

    # Waking. --------------------------------------------------------------------------------

    def schedule_cycle(self, domain: Domain | None) -> None:
        """Includes the domain in the next cycle, if a cycle of the domain could change
        something."""
        if domain is not None:
            domain.idle_cycles = 0
            if domain.owned and (
                domain.ready
                or domain.quota_reduced
                or domain.rechecks
                or (domain.flush and domain.parked_queues)
                or domain.holds_back
            ):
                self.busy[domain] = None

    def flush(self, domain: Domain | None) -> None:
        """Wakes parked workloads of the domain before the next cycle, because quota may be free."""
        if domain is not None:
            domain.flush = True
            self.schedule_cycle(domain)

    def flush_at(self, domain: Domain, at: datetime) -> None:
        """Wakes parked workloads of the domain at that time, because a workload may be preempted
        from then on."""
        if domain.wakes_at is None or at < domain.wakes_at:
            domain.wakes_at = at
            heappush(self.domain_timers, (at, domain.name))

    def flush_due(self, now: datetime) -> None:
        """Wakes the parked workloads of the domains for which the time of `flush_at` has come."""
        while self.domain_timers and self.domain_timers[0][0] <= now:
            at, name = heappop(self.domain_timers)
            domain = self.domains.get(name)
            # A time that an earlier one has replaced has no effect.
            if domain is not None and domain.wakes_at == at:
                domain.wakes_at = None
                self.flush(domain)

    def schedule_quota_check(self, domain: Domain | None) -> None:
        """Lets the next cycle check whether the reservations of the domain still fit."""
        if domain is not None:
            domain.quota_reduced = True
            self.schedule_cycle(domain)

    def schedule_recheck(self, workload: WorkloadInfo) -> None:
        """Lets the next cycle check whether the reservation of the workload has passed its
        checks."""
        domain = workload.charge.queue.domain if workload.charge is not None else None
        if domain is not None:
            domain.rechecks[workload] = None
            self.schedule_cycle(domain)

    def queue_changed(self, queue: Queue) -> None:
        """Updates the domain of the queue after the queue's waiting workloads changed."""
        if queue.domain is not None:
            queue.domain.update_queue(queue)
            self.schedule_cycle(queue.domain)

    def compare_usages(self, now: datetime) -> None:
        """Compares the usages of LocalQueues if a new sampling interval has begun, which may change
        the heads of queues."""
        if self.accounts is None or not self.accounts.is_due(now):
            return
        heads = [(queue, queue.head()) for queue in self.queues.values() if queue.lanes is not None]
        self.accounts.sample(now)
        for queue, head in heads:
            self.bump_version(queue.domain)
            if queue.head() is not head:
                self.queue_changed(queue)

    def remember_usage(self, key: Key, record: ConsumedUsage | None) -> None:
        """Applies the stored record of what a LocalQueue or user has consumed; None: the record was
        deleted."""
        if self.accounts is None or not self.accounts.remembered(key, record):
            return
        names = names_in(key)
        name = names[0] if names else self.catalog.local_queues[key].spec.cluster_queue
        queue = self.queues.get(name)
        if queue is not None:
            self.bump_version(queue.domain)
            self.queue_changed(queue)

    # Competing. -----------------------------------------------------------------------------

    def admit_to_queue(self, workload: WorkloadInfo, now: datetime) -> None:
        """Lets the workload wait in the queue of its LocalQueue, if the workload may compete."""
        local = self.catalog.local_queues.get(workload.local_queue)
        if local is None or local.spec.stop_policy not in ("", "None"):
            return
        queue = self.queues.get(local.spec.cluster_queue)
        if queue is None or queue.node is None:
            return
        if workload.family is not None and workload.family.parent is workload:
            enqueue_parent(queue, workload)
            return
        if workload.is_due(now):
            enqueue(queue, workload, now)
        else:
            park_workload(queue, workload, BACKOFF, now)
            if workload.requeue_at is not None and not workload.requeue_blocked:
                heappush(self.timers, (workload.requeue_at, workload.key))
        if workload.uid in self.victims_by_preemptor:
            self._restore_preemptor(workload)
        self.queue_changed(queue)

    def dequeue(self, workload: WorkloadInfo) -> None:
        """Takes the workload out of its queue."""
        queue = workload.queue
        if queue is not None:
            remove_from_queue(queue, workload)
            self.queue_changed(queue)

    def requeue(self, workload: WorkloadInfo, now: datetime) -> None:
        """Takes the workload out of its queue and puts it into the queue and place where it belongs
        now."""
        self.dequeue(workload)
        if workload.competes and workload.charge is None:
            self.admit_to_queue(workload, now)

    def bump_version(self, domain: Domain | None) -> None:
        """Marks that nominations of heads in the domain may have changed."""
        if domain is not None:
            domain.version += 1

    # Preemptors that wait for their victims. -------------------------------------------------
    # Only in memory the leader knows which preemptor stays the head of its queue while its victims
    # stop; another instance of the scheduler, or the next leader, finds the preemptor in the status
    # of its victims. Source: `docs/spec/scheduling.md#3.8`.

    def note_preemptor(self, victim: WorkloadInfo, by: PreemptedBy | None) -> None:
        """Records the preemptor that the status of a victim names; None: the status names no
        preemptor."""
        before = victim.preempted_by
        victim.preempted_by = by
        if before is not None and (by is None or by.by_uid != before.by_uid):
            victims = self.victims_by_preemptor[before.by_uid]
            del victims[victim]
            if not victims:
                del self.victims_by_preemptor[before.by_uid]
        if by is None:
            return
        self.victims_by_preemptor.setdefault(by.by_uid, {})[victim] = None
        namespace, _, name = by.by.partition("/")
        preemptor = self.workloads.get((namespace, name))
        if preemptor is not None:
            self._restore_preemptor(preemptor)

    def _restore_preemptor(self, preemptor: WorkloadInfo) -> None:
        """Keeps the preemptor at the head of its queue while its victims stop.

        Does nothing if this process leads the domain: the leader puts the preemptor at the head
        when it preempts."""
        queue = preemptor.queue
        if queue is None or queue.strict or queue.domain is None or queue.domain.owned:
            return
        since = self._waits_since(preemptor)
        if since is None:
            return
        other = queue.preemptor
        if other is not None and other is not preemptor and other.queue is queue:
            later = self._waits_since(other)
            if later is not None and later > since:
                return
        queue.preemptor = preemptor

    def _waits_since(self, preemptor: WorkloadInfo) -> datetime | None:
        """Returns when the last victim for which the preemptor still waits was preempted; None: it
        waits for none."""
        goes_on = preemptor.status_reason == reasons.WAITING_FOR_PREEMPTED_WORKLOADS
        return max(
            (
                victim.preempted_by.at
                for victim in self.victims_by_preemptor.get(preemptor.uid, ())
                if victim.preempted_by is not None
                and victim.preempted_by.at is not None
                and (goes_on or victim.is_leaving)
            ),
            default=None,
        )

    # Quota. ---------------------------------------------------------------------------------

    def add_candidate(self, workload: WorkloadInfo, reserved_at: datetime) -> None:
        """Makes the workload a candidate for preemption in the queue of its quota. ``reserved_at``:
        when the workload got the quota."""
        if (self.config.preemption or not self.config.as_kueue) and workload.charge is not None:
            workload.charge.queue.add_candidate(workload, reserved_at)
            self.bump_version(workload.charge.queue.domain)

    def note_pods_ready(self, workload: WorkloadInfo, starting: bool) -> None:
        """Records whether the workload is admitted with pods that are not ready. Flushes all
        domains when no admitted workload with pods that are not ready is left."""
        if self.pods_ready.update(workload, starting):
            for domain in self.domains.values():
                self.flush(domain)

    def recheck_planners(self, victim: WorkloadInfo) -> None:
        """Lets the next cycle check the reservations that plan to preempt ``victim``."""
        for planner in self.planners_by_victim.get(victim.key, ()):
            self.schedule_recheck(planner)

    # Decisions in flight. -------------------------------------------------------------------

    def set_in_flight(
        self,
        workload: WorkloadInfo,
        domain: Domain,
        what: InFlight,
        assumption: Assumption | None = None,
    ) -> None:
        """Marks a decision about the workload as sent, until `clear_in_flight`. ``assumption``:
        what is assumed of the decision; None: nothing else than that it is in flight."""
        workload.in_flight = what
        workload.assumption = assumption or Assumption(workload, domain, self.seen)
        domain.in_flight[workload] = None

    def decision_fields(
        self, workload: WorkloadInfo, domain: Domain, now: datetime
    ) -> dict[str, Any]:
        """Returns the fields that every decision about the workload has."""
        return {
            "namespace": workload.key[0],
            "name": workload.key[1],
            "uid": workload.uid,
            "time": now,
            "revision": workload.revision,
            "seen": self.seen,
            "domain": domain.name,
        }

    def clear_in_flight(self, workload: WorkloadInfo, domain: Domain | None) -> None:
        """Records that the decision in flight about the workload was stored, refused or lost."""
        if workload.in_flight is InFlight.REVOKED:
            self.schedule_quota_check(domain)
        if workload.in_flight not in _MOVES_NOTHING:
            self.bump_version(domain)
        if self.planners_by_victim:
            self.recheck_planners(workload)
        workload.in_flight = InFlight.NOTHING
        workload.assumption = None
        self.refusals_in_flight.pop(workload, None)
        if domain is not None:
            domain.in_flight.pop(workload, None)
