"""All that the scheduler knows, and the few moves that everything else is made of."""

from __future__ import annotations

from datetime import datetime
from heapq import heappush
from typing import Any

from admittance.events.shapes import Admission, ConsumedUsage, PendingPreemption
from admittance.quota.catalog import Catalog
from admittance.quota.cell import Cell
from admittance.scheduling.config import Config
from admittance.scheduling.cycle.gates import Starting
from admittance.scheduling.fairsharing.accounts import Accounts
from admittance.scheduling.families import family_usage, migration, siblings
from admittance.scheduling.families.families import Family, Sibling
from admittance.scheduling.preemption import pending_preemptors, planned, quota_handover
from admittance.scheduling.preemption.loop_guard import Loops
from admittance.scheduling.state.domain import Domain
from admittance.scheduling.state.equivalence import Loud
from admittance.scheduling.state.queue import Queue
from admittance.scheduling.state.requests import Shapes
from admittance.scheduling.state.workload_info import BACKOFF, Charge, Key, Member, Say
from admittance.scheduling.state.workload_view import LONG_AGO

_MOVES_NOTHING = frozenset({Say.REFUSED, Say.CONFIRMED, Say.PLANNED})
"""What a head would get is the same whether these are on their way or not."""


class World:
    """Queues, domains and workloads, always up to date.

    ``locals``: the workloads of each LocalQueue, whether they compete or not. ``busy``: the
    domains in which a cycle could bring something. ``timers``: when workloads may come back.
    ``loud``: whom to tell why they wait, and when; ``refusing``: to whom that is on its way.
    ``promises``: who had to go, by the uid of whom they went for. ``joints``: the domains where
    quota is being handed on, and the decision. ``planned``: who plans to preempt them, by the name
    of the victims; ``planning``: the domains of those; ``replanned``: the plans that they had,
    while other ones are on their way.
    ``accounts``: what LocalQueues have consumed; None: nobody counts it. ``now``: the newest time
    that was heard of. ``loops``: who took quota from whom how often. ``starting``: who keeps
    others from quota until its pods are ready. ``families``: by the uid of the parent;
    ``told``: what their variants tell, each once. ``urgent``: who is to be told at once why it is
    parked.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.catalog = Catalog()
        self.shapes = Shapes(config.exclude_resource_prefixes, config.transformations)
        self.queues: dict[str, Queue] = {}
        self.domains: dict[str, Domain] = {}
        self.members: dict[Key, Member] = {}
        self.locals: dict[Key, dict[Member, None]] = {}
        self.families: dict[str, Family] = {}
        self.told: dict[Sibling, Sibling] = {}
        self.owned: set[str] = set()
        self.busy: dict[Domain, None] = {}
        self.timers: list[tuple[datetime, Key]] = []
        self.loud = Loud()
        self.refusing: dict[Member, None] = {}
        self.urgent: dict[Member, None] = {}
        self.promises: dict[str, dict[Member, None]] = {}
        self.joints: dict[Domain, quota_handover.Joint] = {}
        self.planned: dict[Key, dict[Member, None]] = {}
        self.planning: dict[Domain, None] = {}
        self.replanned: dict[Member, PendingPreemption] = {}
        self.seen = 0
        self.now = LONG_AGO
        self.loops = Loops(self, None if config.as_kueue else config.preemption_loops)
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

    def look_again(self, member: Member) -> None:
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

    def admit_to_queue(self, member: Member, now: datetime) -> None:
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
            pending_preemptors.restore(self, member)
        self.changed(queue)

    def take_out(self, member: Member) -> None:
        """The member competes nowhere."""
        queue = member.queue
        if queue is not None:
            queue.remove(member)
            self.changed(queue)

    def requeue(self, member: Member, now: datetime) -> None:
        """The member goes where it belongs as it is now."""
        self.take_out(member)
        if member.competes and member.charge is None:
            self.admit_to_queue(member, now)

    def moved(self, domain: Domain | None) -> None:
        """What heads there would get may be different from now on."""
        if domain is not None:
            domain.version += 1

    # Quota. ---------------------------------------------------------------------------------

    def charge(
        self, member: Member, queue: Queue, admission: Admission, cells: list[tuple[Cell, int]]
    ) -> None:
        """The member holds these amounts from now on."""
        for cell, amount in cells:
            cell.charge(amount)
        member.charge = Charge(queue, admission, cells)
        if member.family is not None:
            family_usage.enter(self, member)
        queue.holding[member] = None
        domain = queue.domain
        if domain is not None:
            if member.pending is not None:
                planned.enlist(self, domain, member)
            if domain.bent or (self.planning and self._concerns_a_plan(member)):
                planned.settle(self, domain)
        self.moved(domain)
        if self.accounts is not None:
            self.accounts.heard(member, self.now, anew=True)

    def rank(self, member: Member, reserved_at: datetime) -> None:
        """The member may be a victim from now on, in the order of its priority and reservation."""
        if (self.config.preemption or not self.config.as_kueue) and member.charge is not None:
            member.charge.queue.rank(member, reserved_at)
            self.moved(member.charge.queue.domain)

    def release(self, member: Member) -> Queue | None:
        """The member holds nothing any more; exactly what was charged is given back. Returns the
        queue that it held quota of."""
        held = member.charge
        if held is None:
            return None
        domain = held.queue.domain
        tied = domain is not None and (domain.bent or member.ties is not None)
        if domain is not None and tied:
            planned.dissolve(domain)
        for cell, amount in held.cells:
            cell.charge(-amount)
        family = family_usage.withdraw(member) if member.overlap is not None else None
        member.charge = None
        if family is not None:
            family_usage.changed(self, family)
        held.queue.holding.pop(member, None)
        if domain is not None:
            planned.strike(self, domain, member)
            if tied:
                planned.settle(self, domain)
        if member.ranked is not None:
            held.queue.unrank(member)
        self.moved(held.queue.domain)
        if self.accounts is not None:
            self.accounts.heard(member, self.now)
        return held.queue

    def _concerns_a_plan(self, member: Member) -> bool:
        """Somebody plans with what it holds. What one of a family has of its own depends on what
        the others hold."""
        return (
            member.pending is not None or member.key in self.planned or member.overlap is not None
        )

    def begins(self, member: Member, queue: Queue, admission: Admission) -> None:
        """The member is assigned quota: without a check to pass it will be admitted with it."""
        if member.pending is None and not self.catalog.checks_to_pass(queue.name, admission):
            self.starting.begins(member, queue.domain)

    def starts(self, member: Member, starting: bool) -> None:
        """Whether the member's pods are awaited now; after the last one everybody may go on."""
        if self.starting.heard(member, starting):
            for domain in self.domains.values():
                self.flush(domain)

    def look_at_plans(self, victim: Member) -> None:
        """What is planned with the victim may have changed: look, before the next cycle."""
        for planner in self.planned.get(victim.key, ()):
            self.look_again(planner)

    # What is on its way. --------------------------------------------------------------------

    def under_way(self, member: Member, domain: Domain, what: Say) -> None:
        """Something was decided about the member; `landed` when the picture hears of it."""
        member.inflight = what
        member.seen = self.seen
        domain.inflight[member] = None

    def about(self, member: Member, domain: Domain, now: datetime) -> dict[str, Any]:
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

    def landed(self, member: Member, domain: Domain | None) -> None:
        """Nothing about the member is on its way any more."""
        if member.inflight is Say.REVOKED:
            self.look_for_cuts(domain)
        if member.inflight not in _MOVES_NOTHING:
            self.moved(domain)
        if self.planned:
            self.look_at_plans(member)
        self.replanned.pop(member, None)
        member.inflight = Say.NOTHING
        self.refusing.pop(member, None)
        if domain is not None:
            domain.inflight.pop(member, None)

    def undo(self, member: Member, domain: Domain, now: datetime) -> None:
        """What was decided about the member does not hold: as if it never had been. A decision
        about several ends for all of them."""
        if member.joint is not None:
            member = member.joint.member
        member = migration.taker(member)
        was = member.inflight
        if not was:
            return
        before = self.replanned.get(member)
        self.landed(member, domain)
        if was is Say.ASSIGNED:
            self.starts(member, False)
            self.release(member)
            planned.keep(self, member, None)
            if member.joint is not None:
                quota_handover.end(self, member.joint)
            migration.end(self, member, taken=False)
            self.flush(domain)
            self.requeue(member, now)
        elif was in (Say.CONFIRMED, Say.PLANNED):
            self.starts(member, False)
            if before is not None:
                planned.keep(self, member, before)
            self.look_again(member)
        elif was in (Say.PREEMPTED, Say.REVOKED):
            # Whoever preempted it looks for room anew.
            self.stir(domain)
            if member.state == "QuotaReserved":
                self.look_again(member)
        elif member.queue is not None:
            member.queue.note_untold(member, now)
            self.changed(member.queue)
        if member.family is not None:
            siblings.touched(self, member.family, now)
