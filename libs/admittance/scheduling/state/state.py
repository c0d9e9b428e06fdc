"""The scheduler's state: all that it knows, and the basic changes that all others consist of."""

from __future__ import annotations

from datetime import datetime
from heapq import heappush
from typing import Any

from admittance.api.workload import PreemptionCount
from admittance.events.shapes import Admission, ConsumedUsage, PendingPreemption
from admittance.quota.catalog import Catalog
from admittance.scheduling.config import Config
from admittance.scheduling.state import pending_preemptors
from admittance.scheduling.state.accounts import Accounts
from admittance.scheduling.state.equivalence import Loud
from admittance.scheduling.state.in_flight import Joint, Starting
from admittance.scheduling.state.queue import Domain, Queue
from admittance.scheduling.state.requests import Shapes
from admittance.scheduling.state.workload_info import (
    BACKOFF,
    Family,
    InFlight,
    Key,
    Sibling,
    WorkloadInfo,
)
from admittance.scheduling.state.workload_view import LONG_AGO

_MOVES_NOTHING = frozenset({InFlight.REFUSED, InFlight.CONFIRMED, InFlight.PLANNED})
"""What a head would get is the same whether these are on their way or not."""


class SchedulerState:
    """Queues, domains and workloads, always up to date.

    ``locals``: the workloads of each LocalQueue, whether they compete or not. ``busy``: the
    domains in which a cycle could change something. ``timers``: when workloads may come back.
    ``loud``: which workloads are to be told why they wait, and when; ``refusing``: those that are
    being told. ``promises``: preempted workloads, by the uid of the preemptor. ``joints``:
    handovers
    of quota on their way, by domain; ``joint_of``: the same, by each of their workloads.
    ``planned``: reservations that plan to preempt, by the name of the victim; ``planning``: their
    domains; ``replanned``: their plans before the ones that are on their way. ``accounts``: what
    LocalQueues have consumed; None: usage does not count. ``now``: the newest time seen.
    ``preemption_counts``: how often a workload was preempted, by the uid of
    the preemptor; ``parted``: workloads that the loop guard set aside. ``starting``:
    workloads that block others until their pods are ready. ``families``: by the uid of the parent;
    ``told``: what variants say of themselves, each value once. ``urgent``: workloads that are to be
    told at once why they are parked.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.catalog = Catalog()
        self.shapes = Shapes(config.exclude_resource_prefixes, config.transformations)
        self.queues: dict[str, Queue] = {}
        self.domains: dict[str, Domain] = {}
        self.members: dict[Key, WorkloadInfo] = {}
        self.locals: dict[Key, dict[WorkloadInfo, None]] = {}
        self.families: dict[str, Family] = {}
        self.told: dict[Sibling, Sibling] = {}
        self.owned: set[str] = set()
        self.busy: dict[Domain, None] = {}
        self.timers: list[tuple[datetime, Key]] = []
        self.loud = Loud()
        self.refusing: dict[WorkloadInfo, None] = {}
        self.urgent: dict[WorkloadInfo, None] = {}
        self.promises: dict[str, dict[WorkloadInfo, None]] = {}
        self.preemption_counts: dict[str, dict[WorkloadInfo, PreemptionCount]] = {}
        self.parted: dict[WorkloadInfo, None] = {}
        self.joint_of: dict[WorkloadInfo, Joint] = {}
        self.joints: dict[Domain, Joint] = {}
        self.planned: dict[Key, dict[WorkloadInfo, None]] = {}
        self.planning: dict[Domain, None] = {}
        self.replanned: dict[WorkloadInfo, PendingPreemption] = {}
        self.seen = 0
        self.now = LONG_AGO
        self.starting = Starting(config.block_admission)
        self.accounts: Accounts | None = None
        if config.admission_fair_sharing is not None:
            self.accounts = Accounts(
                config.admission_fair_sharing, self.catalog, self.queues, self.locals, self.owned
            )

    def queue(self, name: str) -> Queue:
        """The queue of that name, also before its ClusterQueue is known."""
        found = self.queues.get(name)
        if found is None:
            found = self.queues[name] = Queue(name, self.loud)
        return found

    # Waking. --------------------------------------------------------------------------------

    def stir(self, domain: Domain | None) -> None:
        """Something changed there: a cycle is worth while."""
        if domain is not None:
            domain.idle = 0
            if domain.owned and (
                domain.ready or domain.cut or domain.rechecks or (domain.flush and domain.resting)
            ):
                self.busy[domain] = None

    def flush(self, domain: Domain | None) -> None:
        """Room may have come free there: wake what is parked, before the next cycle."""
        if domain is not None:
            domain.flush = True
            self.stir(domain)

    def look_for_cuts(self, domain: Domain | None) -> None:
        """What is reserved there may fit no longer: look, before the next cycle."""
        if domain is not None:
            domain.cut = True
            self.stir(domain)

    def look_again(self, member: WorkloadInfo) -> None:
        """The reservation may have passed its checks: look, before the next cycle."""
        domain = member.charge.queue.domain if member.charge is not None else None
        if domain is not None:
            domain.rechecks[member] = None
            self.stir(domain)

    def changed(self, queue: Queue) -> None:
        """Who waits in the queue changed."""
        if queue.domain is not None:
            queue.domain.note(queue)
            self.stir(queue.domain)

    def compare_usages(self, now: datetime) -> None:
        """Usages of LocalQueues are compared anew, once in every sampling interval: somebody else
        may be first in a queue then."""
        if self.accounts is None or not self.accounts.is_due(now):
            return
        heads = [(one, one.head()) for one in self.queues.values() if one.lanes is not None]
        self.accounts.sample(now)
        for queue, head in heads:
            self.moved(queue.domain)
            if queue.head() is not head:
                self.changed(queue)

    def remember_usage(self, key: Key, record: ConsumedUsage | None) -> None:
        """This is written down of what a LocalQueue consumed; None: nothing any more."""
        if self.accounts is None or not self.accounts.remembered(key, record):
            return
        queue = self.queues.get(self.catalog.local_queues[key].spec.cluster_queue)
        if queue is not None:
            self.moved(queue.domain)
            self.changed(queue)

    # Competing. -----------------------------------------------------------------------------

    def admit_to_queue(self, member: WorkloadInfo, now: datetime) -> None:
        """The member competes in the queue that its LocalQueue leads to, if it may."""
        local = self.catalog.local_queues.get(member.local)
        if local is None or local.spec.stop_policy not in ("", "None"):
            return
        queue = self.queues.get(local.spec.cluster_queue)
        if queue is None or queue.node is None:
            return
        if member.family is not None and member.family.parent is member:
            queue.add_parent(member)
            return
        if member.is_due(now):
            queue.add(member, now)
        else:
            queue.set_aside(member, BACKOFF, now)
            if member.requeue_at is not None and not member.waits:
                heappush(self.timers, (member.requeue_at, member.key))
        if member.uid in self.promises:
            pending_preemptors.restore(self.promises, member)
        self.changed(queue)

    def take_out(self, member: WorkloadInfo) -> None:
        """The member competes nowhere."""
        queue = member.queue
        if queue is not None:
            queue.remove(member)
            self.changed(queue)

    def requeue(self, member: WorkloadInfo, now: datetime) -> None:
        """The member goes where it belongs as it is now."""
        self.take_out(member)
        if member.competes and member.charge is None:
            self.admit_to_queue(member, now)

    def moved(self, domain: Domain | None) -> None:
        """What heads there would get may be different from now on."""
        if domain is not None:
            domain.version += 1

    # Quota. ---------------------------------------------------------------------------------

    def rank(self, member: WorkloadInfo, reserved_at: datetime) -> None:
        """The member may be a victim from now on, in the order of its priority and reservation."""
        if (self.config.preemption or not self.config.as_kueue) and member.charge is not None:
            member.charge.queue.rank(member, reserved_at)
            self.moved(member.charge.queue.domain)

    def begins(self, member: WorkloadInfo, queue: Queue, admission: Admission) -> None:
        """The member is assigned quota: without a check to pass it will be admitted with it."""
        if member.pending is None and not self.catalog.checks_to_pass(queue.name, admission):
            self.starting.begins(member, queue.domain)

    def starts(self, member: WorkloadInfo, starting: bool) -> None:
        """Whether the member's pods are awaited now; after the last one everybody may go on."""
        if self.starting.heard(member, starting):
            for domain in self.domains.values():
                self.flush(domain)

    def look_at_plans(self, victim: WorkloadInfo) -> None:
        """What is planned with the victim may have changed: look, before the next cycle."""
        for planner in self.planned.get(victim.key, ()):
            self.look_again(planner)

    # What is on its way. --------------------------------------------------------------------

    def under_way(self, member: WorkloadInfo, domain: Domain, what: InFlight) -> None:
        """Something was decided about the member; `landed` when the picture hears of it."""
        member.inflight = what
        member.seen = self.seen
        domain.inflight[member] = None

    def about(self, member: WorkloadInfo, domain: Domain, now: datetime) -> dict[str, Any]:
        """What every decision about the member says."""
        return {
            "namespace": member.key[0],
            "name": member.key[1],
            "uid": member.uid,
            "time": now,
            "revision": member.revision,
            "seen": self.seen,
            "domain": domain.name,
        }

    def landed(self, member: WorkloadInfo, domain: Domain | None) -> None:
        """Nothing about the member is on its way any more."""
        if member.inflight is InFlight.REVOKED:
            self.look_for_cuts(domain)
        if member.inflight not in _MOVES_NOTHING:
            self.moved(domain)
        if self.planned:
            self.look_at_plans(member)
        self.replanned.pop(member, None)
        member.inflight = InFlight.NOTHING
        self.refusing.pop(member, None)
        if domain is not None:
            domain.inflight.pop(member, None)
