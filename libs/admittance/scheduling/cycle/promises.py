"""Promises of a start in the scheduler's state: which head has the promise of its domain, which
entries of a cycle may start beside that promise, and when workloads that it holds back compete
again. The rule itself is in `backfill`. Source: `docs/spec/scheduling.md#4.8`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from heapq import heapify, heappop
from itertools import islice, product
from typing import Final

from admittance.api.checks import MACHINES_CONTROLLER
from admittance.events import reasons
from admittance.events.shapes import Admission, PromisedStart, Refusal, Taken
from admittance.quota.catalog import Catalog
from admittance.quota.cell import Cell, potential
from admittance.scheduling import families
from admittance.scheduling.cycle.backfill import (
    Candidate,
    Head,
    ended_by,
    may_start,
    promise_of,
)
from admittance.scheduling.cycle.flavor_assigner import FlavorOffer, examine
from admittance.scheduling.cycle.nominate import Nominator, nomination_of
from admittance.scheduling.cycle.user_limits import limit_refusal
from admittance.scheduling.preemption.room import Need
from admittance.scheduling.state.assignment import FIT, Assignment, admission_of
from admittance.scheduling.state.held.plan_quota import PlanQuota
from admittance.scheduling.state.held.shared_quota import Holder, WithoutUsage
from admittance.scheduling.state.promise import NoPromise, Promise
from admittance.scheduling.state.queue import age_key, enqueue, sort_key
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.workload_info import Domain, Queue, WorkloadInfo, family_quota_of

CHOICES_MAX: Final = 64
"""For how many choices of flavors a head's start is computed: as many flavors as a resource group
may have. Further choices of a head with several resource groups or pod sets are left out."""

_NO_STATES: Final[Mapping[str, str]] = {}


class Promises:
    """Computes the promise of each domain. ``is_recorded``: a replay has set the promise of the
    domain, so cycles keep that one."""

    def __init__(self, state: SchedulerState, nominator: Nominator) -> None:
        self.is_recorded = False
        self._holders: list[Holder] | None = None
        self._state = state
        self._nominator = nominator

    def update(self, domain: Domain, now: datetime) -> None:
        """Computes the promise of the domain. If it is another one than before, the workloads that
        were held back compete again.

        A promise that only moves with the time, because a workload of which the end is not known
        yet is about to start, or should have ended, is not another one."""
        if self.is_recorded:
            return
        self._nominator.now = now
        self._holders, promise = None, None
        if heads := self._heads(domain):
            self._holders = holders_of(self._state, domain, now)
            promise = promise_of(heads, self._holders, now, names=False)
        if domain.holds_back and not _is_same(domain.promise, domain.promised_at, promise, now):
            _wake(domain, now)
        domain.promise, domain.promised_at = promise, now

    def current(self, domain: Domain, now: datetime) -> Promise | NoPromise | None:
        """Returns the promise that the next cycle of the domain keeps. Changes nothing."""
        self._nominator.now = now
        heads = self._heads(domain)
        return promise_of(heads, holders_of(self._state, domain, now), now) if heads else None

    def kept(self, domain: Domain, now: datetime) -> KeptPromise | None:
        """Returns the promise that the present cycle of the domain keeps; None: there is none. Must
        be called before the cycle changes usage."""
        promise, holders, self._holders = domain.promise, self._holders, None
        if not isinstance(promise, Promise):
            return None
        return KeptPromise(self._state, domain, promise, now, holders)

    def _heads(self, domain: Domain) -> list[Head]:
        return [
            head
            for queue in domain.queues
            if queue.backfill and (head := self._head(domain, queue)) is not None
        ]

    def _head(self, domain: Domain, queue: Queue) -> Head | None:
        """Returns the head of the queue if no flavor has room for it and no workload can be
        preempted for it. A head with a promise keeps it while another one starts ahead of it."""
        if not queue.activity.active or queue.in_cycle or queue.plan is None:
            return None
        for first in firsts(queue):
            if not self._may_be_tried(queue, first):
                continue
            if not self._needs_promise(queue, first):
                break
            if (head := self._as_head(queue, first)) is not None:
                return head
        known = self._state.workloads.get(domain.promise.head) if domain.promise else None
        # The usage of LocalQueues, which changes with time, decides about the head of such a queue.
        if known is None or known.queue is not queue or queue.lanes is not None:
            return None
        if self._may_be_tried(queue, known) and self._needs_promise(queue, known):
            return self._as_head(queue, known)
        return None

    def _may_be_tried(self, queue: Queue, workload: WorkloadInfo) -> bool:
        alone = workload.inadmissible
        return (
            (alone is None or alone.reason == reasons.WAITING_FOR_PROMISED_START)
            and workload.problem is None
            and not self._is_over_limit(queue, workload)
            and self._state.catalog.selects_namespace(queue.name, workload.key[0])
            and families.why_not_tried(self._state, queue, workload) is None
        )

    def _is_over_limit(self, queue: Queue, workload: WorkloadInfo) -> bool:
        """Returns whether the person of the workload holds too much: no end of another person's
        workload lets it start."""
        return queue.limits is not None and limit_refusal(queue.limits, workload) is not None

    def _needs_promise(self, queue: Queue, workload: WorkloadInfo) -> bool:
        assignment, victims = nomination_of(self._nominator, queue, workload, None)
        return assignment.mode != FIT and not victims

    def _as_head(self, queue: Queue, workload: WorkloadInfo) -> Head | None:
        """Returns the workload with its needs; None: it can never fit."""
        assert queue.plan is not None and workload.shape is not None
        assert workload.queued_at is not None
        if self._state.config.quota_check_strategy != "IgnoreUndeclared" and any(
            amount and resource not in queue.plan.groups
            for amounts in workload.shape.totals
            for resource, amount in amounts
        ):
            return None
        needs = [
            need
            for need in needs_of(queue, workload)
            if all(amount <= potential(cell) for cell, amount in need.items())
        ]
        return Head(workload.key, workload.queued_at, needs) if needs else None


def firsts(queue: Queue) -> Iterator[WorkloadInfo]:
    """Yields the first workload of each class of the queue, and the workloads that are parked
    alone, in the order of the queue."""
    waiting = [entry[3] for cls in queue.classes.values() if (entry := cls.first()) is not None]
    waiting += queue.parked_workloads
    heap = [(sort_key(queue, one), at, one) for at, one in enumerate(waiting)]
    heapify(heap)
    while heap:
        yield heappop(heap)[2]


def _is_same(
    old: Promise | NoPromise | None,
    then: datetime | None,
    new: Promise | NoPromise | None,
    now: datetime,
) -> bool:
    if not isinstance(old, Promise) or not isinstance(new, Promise) or then is None:
        return old == new
    if (old.head, old.need) != (new.head, new.need):
        return False
    return old.at == new.at or old.at - then == new.at - now


def _wake(domain: Domain, now: datetime) -> None:
    """Lets the workloads that a promise held back compete again."""
    domain.holds_back = False
    for queue in list(domain.parked_queues):
        for workload in list(queue.parked_workloads):
            alone = workload.inadmissible
            if alone is not None and alone.reason == reasons.WAITING_FOR_PROMISED_START:
                enqueue(queue, workload, now)
        domain.update_queue(queue)


# Needs of a head. ---------------------------------------------------------------------------


def needs_of(queue: Queue, workload: WorkloadInfo) -> Iterator[Need]:
    """Yields the amounts that the head needs, for each choice of flavors, the preferred one first:
    with the fewest pods with which it may start, and without what its family holds."""
    assert queue.plan is not None and workload.shape is not None
    held = family_quota_of(workload)
    offers: dict[tuple[str, int], list[FlavorOffer]] = {}
    for offer in examine(queue.plan, workload.shape.fewest(), overlap=held):
        of = offers.setdefault((offer.pod_set, queue.plan.groups[offer.amounts[0][0]].at), [])
        if offer.rooms:
            of.append(offer)
    for choice in islice(product(*offers.values()), CHOICES_MAX):
        if not _is_possible(choice):
            continue
        need: dict[Cell, int] = {}
        for offer in choice:
            for resource, amount in offer.amounts:
                cell = offer.option.cells[resource]
                need[cell] = need.get(cell, 0) + amount
        yield need if held is None else held.missing_for(need)


def _is_possible(choice: Sequence[FlavorOffer]) -> bool:
    """Whether the flavors have one check of each controller, and the flavors of each pod set one
    value of each node label."""
    checks: dict[str, str] = {}
    for at, offer in enumerate(choice):
        for controller, name in offer.option.checks:
            if checks.setdefault(controller, name) != name:
                return False
        for other in choice[:at]:
            if other.pod_set == offer.pod_set and other.option.flavor in offer.option.rivals:
                return False
    return True


# Holders. -----------------------------------------------------------------------------------


def holders_of(
    state: SchedulerState,
    domain: Domain,
    now: datetime,
    without: Collection[WorkloadInfo] = (),
) -> list[Holder]:
    """Returns the workloads that hold quota in the domain, except ``without``."""
    holders: list[Holder] = []
    for queue in domain.queues:
        for workload in queue.holding:
            known = workload.holder
            if (
                known is not None
                and not without
                and workload.charge is not None
                and known.cells is workload.charge.cells
                and not workload.in_flight
                and not workload.shared_quotas
            ):
                holders.append(known)
                continue
            if workload.charge is None or workload in without:
                continue
            cells = workload.charge.cells
            family = workload.family_quota
            if family is not None:
                members = [one for one in family.members if one not in without]
                if members[0] is not workload:
                    continue  # The first variant stands for its family.
                cells = _largest(members)
            end = _ends_by(state, queue, workload, now)
            holder = Holder(workload.key, cells, end)
            holders.append(holder)
            if family is None and workload.state == "Admitted" and not workload.in_flight:
                workload.holder = holder
    return holders


def _largest(variants: Sequence[WorkloadInfo]) -> list[tuple[Cell, int]]:
    largest: dict[Cell, int] = {}
    for variant in variants:
        for cell, amount in variant.charge.cells if variant.charge is not None else ():
            largest[cell] = max(largest.get(cell, 0), amount)
    return list(largest.items())


def _ends_by(
    state: SchedulerState, queue: Queue, workload: WorkloadInfo, now: datetime
) -> datetime | None:
    """Returns when the workload has given its quota back at the latest; None: at no known time.

    A workload that is being evicted counts as ending now. Quota that a reservation shares with its
    planned victims is free only after both, so neither has a known end."""
    if workload.shared_quotas and any(
        isinstance(shared, PlanQuota) for shared in workload.shared_quotas
    ):
        return None
    job = job_of(workload)
    if job is workload and workload.is_leaving:
        return now
    if job.seconds_left is None:
        return None
    begins = job.admitted_at
    if begins is None:
        assert workload.charge is not None
        states = dict(workload.checks)
        if not begins_at_once(state.catalog, queue, workload.charge.admission, states):
            return None
        begins = now
    return begins + timedelta(seconds=job.seconds_left)


def job_of(workload: WorkloadInfo) -> WorkloadInfo:
    """Returns the workload that has the time limit: for a variant its parent."""
    family = workload.family
    return family.parent if family is not None and family.parent is not None else workload


def begins_at_once(
    catalog: Catalog,
    queue: Queue,
    admission: Admission,
    states: Mapping[str, str] = _NO_STATES,
) -> bool:
    """Returns whether a workload with the reservation begins to run at once. ``states``: the states
    of its checks. The check for machines does not count: it is Ready at once if a machine has
    room."""
    return all(
        check.spec.controller_name == MACHINES_CONTROLLER or states.get(name) == "Ready"
        for name, check in catalog.checks_to_pass(queue.name, admission).items()
    )


# Entries of a cycle. ------------------------------------------------------------------------


class KeptPromise:
    """The promise that one cycle of a domain keeps: which entries may start beside it.

    ``held``: quota that the cycle holds back for the promised head, which the entries may use if
    they start beside the promise."""

    def __init__(
        self,
        state: SchedulerState,
        domain: Domain,
        promise: Promise,
        now: datetime,
        holders: list[Holder] | None = None,
    ) -> None:
        """``holders``: the workloads that hold quota now; None: they are read when needed."""
        self._holders = holders
        self.held: Sequence[tuple[Cell, int]] = ()
        self.head = state.workloads.get(promise.head)
        self._state = state
        self._domain = domain
        self._promise = promise
        self._now = now
        self._ended: dict[Cell, int] | None = None

    def allows(
        self,
        queue: Queue,
        workload: WorkloadInfo,
        assignment: Assignment,
        victims: Sequence[WorkloadInfo],
    ) -> bool:
        """Returns whether the entry may start beside the promise. ``victims``: the workloads that
        stop before it starts."""
        head = self.head
        if head is None or workload is head:
            return True
        if workload.family is not None and workload.family is head.family:
            return True
        with WithoutUsage(victims):
            need = assignment.added_usage()
            is_later = queue is head.queue and _is_behind(queue, workload, head)
            borrows = queue is not head.queue and any(
                cell.usage + amount > cell.nominal for cell, amount in need.items()
            )
            if not (is_later or borrows):
                return True
            candidate = Candidate(
                need, self._end_of(queue, workload, assignment), is_later, borrows
            )
            for cell, amount in self.held:
                cell.charge(-amount)
            allowed = may_start(self._promise, candidate, self._ended_without(victims))
            for cell, amount in self.held:
                cell.charge(amount)
        return allowed

    def note_start(
        self,
        queue: Queue,
        workload: WorkloadInfo,
        assignment: Assignment,
        victims: Sequence[WorkloadInfo],
    ) -> None:
        """Records that the entry starts. Must be called before it is charged."""
        if victims:
            self._ended = self._holders = None
            return
        end = self._end_of(queue, workload, assignment)
        if end is not None and end <= self._promise.at:
            ended = self._ended_without(())
            for cell, amount in assignment.added_usage().items():
                ended[cell] = ended.get(cell, 0) + amount

    def refusal(self, queue: Queue, workload: WorkloadInfo, assignment: Assignment) -> Refusal:
        """Returns the refusal of an entry that the promise holds back."""
        end = self._end_of(queue, workload, assignment)
        until = f"may run until {end:%Y-%m-%dT%H:%M:%SZ}" if end is not None else "has no known end"
        return Refusal(
            reason=reasons.WAITING_FOR_PROMISED_START,
            message=f"It would delay workload {'/'.join(self._promise.head)}, "
            f"{promised_text(self._promise)}: it {until}",
        )

    def recorded(self) -> PromisedStart:
        """Returns the promise in the form in which decisions on the log have it."""
        promise, head = self._promise, self.head
        queue = head.queue if head is not None else None
        return PromisedStart(
            head="/".join(promise.head),
            cluster_queue=queue.name if queue is not None else "",
            at=promise.at,
            amounts=tuple(
                [
                    Taken(flavor=cell.fr[0], resource=cell.fr[1], amount=amount)
                    for cell, amount in sorted(
                        ((cell, amount) for cell, amount in promise.need.items()),
                        key=lambda one: one[0].fr,
                    )
                ]
            ),
            certain=promise.is_certain,
        )

    def _end_of(
        self, queue: Queue, workload: WorkloadInfo, assignment: Assignment
    ) -> datetime | None:
        seconds = job_of(workload).seconds_left
        if seconds is None:
            return None
        admission = admission_of(queue.name, assignment)
        if not begins_at_once(self._state.catalog, queue, admission):
            return None
        return self._now + timedelta(seconds=seconds)

    def _ended_without(self, victims: Sequence[WorkloadInfo]) -> dict[Cell, int]:
        if victims:
            holders = holders_of(self._state, self._domain, self._now, frozenset(victims))
            return ended_by(self._promise, holders)
        if self._ended is None:
            known = self._holders or holders_of(self._state, self._domain, self._now)
            self._ended = ended_by(self._promise, known)
        return self._ended


def promised_text(promise: Promise) -> str:
    """Returns when the head starts, in words."""
    word = "promised a start" if promise.is_certain else "expected to start"
    return f"which is {word} at {promise.at:%Y-%m-%dT%H:%M:%SZ}"


def promise_from(state: SchedulerState, recorded: PromisedStart) -> Promise | None:
    """Returns the promise that a decision on the log recorded; None: its ClusterQueue does not
    exist."""
    node = state.queue(recorded.cluster_queue).node
    if node is None:
        return None
    namespace, _, name = recorded.head.partition("/")
    need = {
        node.cell((amount.flavor, amount.resource)): amount.amount for amount in recorded.amounts
    }
    return Promise((namespace, name), need, recorded.at, recorded.certain)


def _is_behind(queue: Queue, workload: WorkloadInfo, head: WorkloadInfo) -> bool:
    """Whether the workload is behind the head in their queue. That it preempted others does not
    count, so that a replay, which has no preemptors, has the same result."""
    if queue.lanes is not None:
        return True
    return (-workload.priority, age_key(workload)) > (-head.priority, age_key(head))
