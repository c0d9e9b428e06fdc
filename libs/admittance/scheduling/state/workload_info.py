"""What the scheduler keeps in memory about workloads, families, ClusterQueues and domains.

A workload knows its queue, a queue its domain, and queues and domains know their workloads, so that
a decision follows pointers without lookups by name. Operations on the waiting workloads of a queue
are in the module `queue`. There may be very many workloads, so each object about a workload is kept
small.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from admittance.api.workload import PreemptionCount
from admittance.events.shapes import Admission, PendingPreemption, PreemptedBy, Refusal, Shares
from admittance.family import FamilyRules, ParentState, Tag, VariantState
from admittance.quota.catalog import NOT_FOUND, Activity
from admittance.quota.cell import Cell
from admittance.quota.tree import Node
from admittance.scheduling.state import equivalence
from admittance.scheduling.state.assignment import Assignment, Cursor
from admittance.scheduling.state.equivalence import (
    ClassHeap,
    ClassKey,
    EquivalenceClass,
    Key,
    Lanes,
    RefusalQueue,
    ScanRecord,
)
from admittance.scheduling.state.flavor_plan import FlavorPlan
from admittance.scheduling.state.requests import RequestShape
from admittance.scheduling.state.shared_quota import FamilyQuota, PlanQuota


class Inadmissible(NamedTuple):
    """Why one workload is parked alone, without its class. ``reason``: the waiting reason in its
    status.

    ``is_silent``: no refusal of the workload is published. ``ignores_flush``: freed quota does not
    help the workload, so a flush leaves it parked.
    """

    reason: str
    message: str
    is_silent: bool = False
    ignores_flush: bool = False


BACKOFF = Inadmissible("Backoff", "Waits before it competes again", is_silent=True)


class InFlight(IntEnum):
    """The kinds of decisions about a workload that were sent but not yet read back from storage."""

    NOTHING = 0
    ASSIGNED = 1
    REFUSED = 2
    CONFIRMED = 3
    PLANNED = 4
    # A decision of the kind PREEMPTED, or of a kind after it in this list, takes the workload's
    # quota.
    PREEMPTED = 5
    REVOKED = 6
    HANDED_ON = 7
    MIGRATED = 8


class Charge(NamedTuple):
    """Quota that a workload holds: the charged queue, the admission, and the amount per cell."""

    queue: Queue
    admission: Admission
    cells: list[tuple[Cell, int]]


class SavedCursor(NamedTuple):
    """The cursor where the last scan of flavors stopped. The cursor is valid while the
    workload is in the class ``owner``, and only in the next cycle or while the generations of queue
    and domain still add up to ``generation``."""

    at: Cursor
    cycle: int
    generation: int
    owner: EquivalenceClass[WorkloadInfo]


class Victim(NamedTuple):
    """A workload to preempt, the rule that allows its preemption, and the shares if fair sharing
    decided."""

    workload: WorkloadInfo
    reason: str
    shares: Shares | None = None


Nomination: TypeAlias = tuple[Assignment, Sequence[Victim]]
"""The assignment that a head would get, and the victims that must stop first."""


class SavedSearch(NamedTuple):
    """The victims that a preemptor waits for. The saved search for victims is valid only while the
    flavor plan of the ClusterQueue and the shape of the preemptor are unchanged."""

    plan: FlavorPlan
    shape: RequestShape
    assignment: Assignment
    victims: Sequence[Victim]


@dataclass(slots=True, eq=False, repr=False)
class WorkloadInfo:
    """One workload that is not finished.

    Invariant: at most one of ``entry``, ``inadmissible`` and ``charge`` is set.
    """

    key: Key
    uid: str = ""
    revision: int = 0
    priority: int = 0
    local_queue: Key = ("", "")
    shape: RequestShape | None = None
    created_at: datetime | None = None
    queued_at: datetime | None = None  # the time that stands for the workload's age in its queue
    # The state in the workload's stored status; Promised: the variant gets quota when its sibling's
    # job has stopped.
    state: str = "Pending"
    family: FamilyInfo | None = None  # the family of a variant or parent; None: regular
    signature: int = 0  # a changed signature means that the workload must be queued again
    reclaimable: tuple[tuple[str, int], ...] = ()

    # Waiting.
    competes: bool = False  # the workload may be in a queue
    requeue_at: datetime | None = None
    # The workload may not compete before its Requeued condition changes.
    requeue_blocked: bool = False
    problem: Inadmissible | None = None  # why the workload cannot be tried at all
    queue: Queue | None = None  # the queue where the workload waits
    cls: EquivalenceClass[WorkloadInfo] | None = None
    entry: ClassEntry | None = None  # the workload's place in its equivalence class
    inadmissible: Inadmissible | None = None  # why the workload is parked alone
    parked_since: datetime | None = None  # the time since which the workload is parked alone
    status_reason: str = ""  # the waiting reason in the workload's status
    # The group of the workload's class with the waiting reason that the status of this workload
    # has.
    reason_group: dict[WorkloadInfo, datetime] | None = None
    cursor: SavedCursor | None = None
    saved_search: SavedSearch | None = None

    # With quota.
    charge: Charge | None = None  # the quota that the workload holds or is assumed to hold
    reserved_at: datetime | None = None
    admitted_at: datetime | None = None
    # Name and state of each of the workload's admission checks, until the workload is admitted.
    checks: tuple[tuple[str, str], ...] = ()
    # Checks that ask to preempt the planned victims now.
    preemption_required_by: tuple[str, ...] = ()
    # Victims that must stop before the workload starts.
    pending_preemption: PendingPreemption | None = None
    # The workload's place among the candidates for preemption.
    candidate: CandidateEntry | None = None
    shared_quotas: list[PlanQuota[WorkloadInfo] | FamilyQuota[WorkloadInfo]] | None = None
    # Quota that the variant and its siblings hold together.
    family_quota: FamilyQuota[WorkloadInfo] | None = None

    # Preemption.
    preempted_by: PreemptedBy | None = None  # the last preemptor, until the workload has new quota
    preemptor_waits: bool = False  # a preemptor waits until the eviction of this workload is stored
    # Which preemptors took the workload's quota, and how often.
    preemptions: tuple[PreemptionCount, ...] = ()
    closed_gate: str = ""  # name of the workload's closed preemption gate; "": none

    in_flight: InFlight = InFlight.NOTHING
    seen: int = 0  # the bucket revision on which the decision in flight is based

    def is_due(self, now: datetime) -> bool:
        """Returns whether the workload waits neither for a time nor for its Requeued condition."""
        return not self.requeue_blocked and (self.requeue_at is None or now >= self.requeue_at)

    @property
    def is_parent(self) -> bool:
        """Whether the workload is a parent. Parents are never tried; their variants are tried."""
        return self.family is not None and self.family.parent is self

    @property
    def is_variant(self) -> bool:
        """Whether the workload is a variant, which competes for its parent."""
        return self.family is not None and self.family.parent is not self

    @property
    def reported_flavors(self) -> frozenset[str] | None:
        """The flavors that refusals of a variant mention; None: all flavors."""
        return self.shape.allowed if self.family is not None and self.shape is not None else None

    @property
    def loses_quota(self) -> bool:
        """Whether a decision that takes the workload's quota is in flight."""
        return self.in_flight >= InFlight.PREEMPTED

    @property
    def is_leaving(self) -> bool:
        """Whether the workload is being evicted or preempted, and may still hold its quota."""
        return self.state == "Evicting" or self.in_flight >= InFlight.PREEMPTED


ClassEntry: TypeAlias = equivalence.ClassEntry[WorkloadInfo]
CandidateEntry: TypeAlias = equivalence.CandidateEntry[WorkloadInfo]
ParentEntry: TypeAlias = tuple[int, datetime, str, Key, WorkloadInfo]
"""Place of a parent among the waiting parents: negated priority, timestamp, uid, name, and the
parent."""


# Families. ----------------------------------------------------------------------------------


LAST_PLACE: Final = 9_999
"""The place of a variant that the rules of its queue do not define."""


class VariantInfo(NamedTuple):
    """The stored facts of a variant besides its name. Equal values share one object.

    ``is_open``: the preemption gate of the variant is open, so the variant may preempt.
    """

    tag: str
    stopped_by: str = ""
    active: bool = True
    is_open: bool = False


@dataclass(slots=True, eq=False, repr=False)
class FamilyInfo:
    """A parent and its known variants. No variant is tried while the parent is unknown."""

    uid: str
    parent: WorkloadInfo | None = None
    state: ParentState | None = None
    variants: dict[WorkloadInfo, VariantInfo] = field(default_factory=dict)
    # The variant that takes over and the admitted variant, while the decision to migrate is in
    # flight.
    migration: tuple[WorkloadInfo, WorkloadInfo] | None = None
    # The variant that was assigned quota last and is assumed to be admitted, because it needs no
    # check.
    assumed_admitted: WorkloadInfo | None = None
    quota: FamilyQuota[WorkloadInfo] | None = None  # the quota that the variants hold together

    def variant_states(self) -> list[VariantState]:
        """Returns the variants of the family in the form that the family policy reads."""
        return [
            VariantState(one.key[1], info.tag, "", self.uid, info.stopped_by, info.active)
            for one, info in self.variants.items()
        ]

    def tag(self, workload: WorkloadInfo) -> str:
        """Returns the variant's name in the ClusterQueue's rules."""
        return self.variants[workload].tag

    def siblings(self, workload: WorkloadInfo) -> Iterator[WorkloadInfo]:
        """Yields the siblings of the variant: the other variants of its family."""
        return (one for one in self.variants if one is not workload)

    def admitted(self) -> WorkloadInfo | None:
        """Returns the variant that is stored as admitted, even while its job stops; None: no known
        variant is admitted."""
        if self.state is None or not self.state.admitted:
            return None
        name = self.state.admitted
        return next((one for one in self.variants if one.key[1] == name), None)


def family_quota_of(workload: WorkloadInfo) -> FamilyQuota[WorkloadInfo] | None:
    """Returns the quota that the workload's family holds. The workload requests only what exceeds
    the family's quota."""
    return workload.family.quota if workload.family is not None else None


# Queues and domains. ------------------------------------------------------------------------


class CandidateCache(NamedTuple):
    """The candidates that hold quota in any of the ``wanted`` cells, valid while the domain has the
    saved version."""

    domain: Domain
    version: int
    wanted: tuple[Cell, ...]
    found: list[CandidateEntry]

    def same(self, domain: Domain | None, version: int, wanted: tuple[Cell, ...]) -> bool:
        """Returns whether a new search for candidates would find the same candidates as the cache
        holds."""
        return self.version == version and self.wanted == wanted and self.domain is domain


@dataclass(slots=True, eq=False, repr=False)
class BlockedHead:
    """The head of a StrictFIFO queue that got no quota: the workload, since when it has waited, and
    the reason."""

    workload: WorkloadInfo
    assignment: Assignment
    scan: ScanRecord[WorkloadInfo]
    refusal: Refusal
    since: datetime
    is_scheduled: bool = False  # the refusal of the head is in the refusal queue


@dataclass(slots=True, eq=False, repr=False)
class Queue:
    """One ClusterQueue: the workloads that wait in it and those that hold its quota."""

    name: str
    refusal_queue: RefusalQueue[WorkloadInfo]
    node: Node | None = None
    domain: Domain | None = None
    plan: FlavorPlan | None = None
    activity: Activity = NOT_FOUND
    in_cycle: bool = False
    strict: bool = False
    # A number that rises when a workload that holds quota of the queue changes or leaves.
    generation: int = 0

    # Workloads that wait.
    classes: dict[ClassKey, EquivalenceClass[WorkloadInfo]] = field(default_factory=dict)
    class_heap: ClassHeap[WorkloadInfo] = field(default_factory=ClassHeap)
    # The classes of the queue by LocalQueue, instead of in one heap, if LocalQueue usage counts.
    lanes: Lanes[WorkloadInfo] | None = None
    parked_classes: dict[EquivalenceClass[WorkloadInfo], None] = field(default_factory=dict)
    # Workloads that are parked alone.
    parked_workloads: dict[WorkloadInfo, None] = field(default_factory=dict)
    live: int = 0  # number of the queue's waiting workloads that are in classes
    # The workload for which victims were preempted last. The preemptor stays the head while it
    # waits in this queue, because another workload could take the freed quota.
    preemptor: WorkloadInfo | None = None
    blocked_head: BlockedHead | None = None  # the blocked head of a StrictFIFO queue

    # Workloads that hold quota.
    holding: dict[WorkloadInfo, None] = field(default_factory=dict)
    # Candidates for preemption, in order.
    candidates: list[CandidateEntry] = field(default_factory=list)
    candidate_cache: CandidateCache | None = None

    # Families.
    # The queue's rules for families; None: all its workloads are regular.
    rules: FamilyRules | None = None
    # The variants that the rules define, by name.
    tags: dict[str, Tag] = field(default_factory=dict)
    # Waiting parents, which are never tried.
    parents: list[ParentEntry] = field(default_factory=list)
    variants: int = 0  # how many of the queue's waiting workloads are variants

    def head(self) -> WorkloadInfo | None:
        """Returns the workload that the next cycle considers; None: no workload competes."""
        preemptor = self.preemptor
        if preemptor is not None and not self.is_first(preemptor):
            preemptor = None
        if self.lanes is None:
            if preemptor is not None:
                return preemptor
            entry = self.class_heap.first()
        else:
            entry = self.lanes.first(preemptor)
        return entry[3] if entry is not None else None

    def is_first(self, workload: WorkloadInfo) -> bool:
        """Returns whether the workload is the preemptor that stays at the head of this queue, and
        competes."""
        if workload is not self.preemptor or workload.queue is not self or workload.entry is None:
            return False
        return workload.cls is not None and workload.cls.parked is None

    def forget_preemptor(self, workload: WorkloadInfo) -> None:
        """If the workload is the preemptor that stays at the head, removes it from the head. Called
        when the workload has left the queue."""
        if self.preemptor is workload:
            self.preemptor = None

    def add_candidate(self, workload: WorkloadInfo, reserved_at: datetime) -> None:
        """Puts the workload at its place among the candidates for preemption."""
        self.remove_candidate(workload)
        negated = -reserved_at.timestamp()
        entry = (workload.priority, negated, workload.uid, workload.key, workload)
        insort(self.candidates, entry)
        workload.candidate = entry

    def remove_candidate(self, workload: WorkloadInfo) -> None:
        """Removes the workload from the candidates for preemption."""
        if workload.candidate is not None:
            del self.candidates[bisect_left(self.candidates, workload.candidate)]
            workload.candidate = None

    @property
    def pending(self) -> int:
        """How many workloads wait in the queue. A family counts as one workload."""
        return self.live + len(self.parked_workloads) - self.variants + len(self.parents)

    def waiting(self) -> Iterator[WorkloadInfo]:
        """Yields every workload that waits in this queue, in no particular order."""
        for cls in self.classes.values():
            yield from cls.waiting()
        yield from self.parked_workloads
        yield from (one[4] for one in self.parents)


@dataclass(slots=True, eq=False, repr=False)
class Domain:
    """One cohort tree, or a ClusterQueue without a cohort: scheduling cycles and leadership are per
    domain."""

    name: str
    owned: bool = False  # this scheduler leads the domain
    queues: dict[Queue, None] = field(default_factory=dict)
    ready: dict[Queue, None] = field(default_factory=dict)  # queues that have a head
    # Queues of the domain with parked workloads.
    parked_queues: dict[Queue, None] = field(default_factory=dict)
    # Workloads with a decision in flight.
    in_flight: dict[WorkloadInfo, None] = field(default_factory=dict)
    version: int = 0  # a number that rises when the nomination of a head may change
    generation: int = 0  # a number that rises with every edit of a quota or a cohort of the domain
    # A pair of a generation and whether a queue or cohort kept quota for itself at that generation;
    # None: not computed yet.
    lending_limited: tuple[int, bool] | None = None

    # Work for the domain's next scheduling cycle.
    flush: bool = False  # the next cycle wakes parked workloads first
    quota_reduced: bool = True  # the next cycle tests whether all reservations fit
    # Reservations that the next cycle rechecks.
    rechecks: dict[WorkloadInfo, None] = field(default_factory=dict)

    # Planned preemption.
    planners: dict[WorkloadInfo, None] = field(default_factory=dict)
    plan_quotas: list[PlanQuota[WorkloadInfo]] = field(default_factory=list)
    plan_quota_varies: bool = False  # the quota that preemption plans share depends on other usage

    # The last cycle.
    idle_cycles: int = 0  # number of consecutive cycles of the domain without a result
    is_settled: bool = False  # the last cycle changed nothing, so the next one would change nothing
    seen: int = 0  # the bucket revision that the last cycle saw
    # For the log: heads with a scan that began at a later flavor, and heads that were processed
    # after the last decision.
    scan_cursors: dict[WorkloadInfo, Cursor] = field(default_factory=dict)
    unlogged_heads: list[WorkloadInfo] = field(default_factory=list)

    def update_queue(self, queue: Queue) -> None:
        """Keeps ``ready`` and ``parked_queues`` correct after the queue changed."""
        if queue.activity.active and queue.head() is not None:
            self.ready[queue] = None
        else:
            self.ready.pop(queue, None)
        if queue.parked_classes or queue.parked_workloads:
            self.parked_queues[queue] = None
        else:
            self.parked_queues.pop(queue, None)

    def is_waiting(self) -> bool:
        """Returns whether every head of the domain has a decision in flight."""
        return all((head := queue.head()) is None or bool(head.in_flight) for queue in self.ready)
