"""What the scheduler keeps in memory about workloads, families, ClusterQueues and domains.

A workload knows its queue, a queue its domain, and both know their workloads, so that a decision
follows pointers and looks nothing up. Operations on the waiting workloads of a queue are in
`queue`. There may be very many workloads, so each one is kept small.
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
from admittance.family.policy import FamilyRules, ParentState, Tag, VariantState
from admittance.quota.activity import NOT_FOUND, Activity
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
from admittance.scheduling.state.requests import Shape
from admittance.scheduling.state.shared_quota import FamilyQuota, PlanQuota


class Inadmissible(NamedTuple):
    """Why one workload is parked by itself. ``reason`` is the reason in its status.

    ``is_silent``: no refusal is published for it. ``ignores_flush``: freed quota does not help it,
    so a flush leaves it parked.
    """

    reason: str
    message: str
    is_silent: bool = False
    ignores_flush: bool = False


BACKOFF = Inadmissible("Backoff", "Waits before it competes again", is_silent=True)


class InFlight(IntEnum):
    """What was decided about a workload and sent, but not yet read back from the bucket."""

    NOTHING = 0
    ASSIGNED = 1
    REFUSED = 2
    CONFIRMED = 3
    PLANNED = 4
    # From here on the workload loses its quota.
    PREEMPTED = 5
    REVOKED = 6
    HANDED_ON = 7
    MIGRATED = 8


class Charge(NamedTuple):
    """Quota that a workload holds: the queue, the admission, and the amount per cell."""

    queue: Queue
    admission: Admission
    cells: list[tuple[Cell, int]]


class SavedCursor(NamedTuple):
    """Where the last scan of flavors stopped. It holds only while the other fields are
    unchanged."""

    at: Cursor
    cycle: int
    generation: int
    owner: EquivalenceClass[WorkloadInfo]


class Victim(NamedTuple):
    """A workload to preempt, the rule that allows it, and the shares if fair sharing decided."""

    workload: WorkloadInfo
    reason: str
    shares: Shares | None = None


Nomination: TypeAlias = tuple[Assignment, Sequence[Victim]]
"""What would be assigned, and the victims that must stop first."""


class SavedSearch(NamedTuple):
    """The victims that a preemptor waits for. It holds only while plan and shape are unchanged."""

    plan: FlavorPlan
    shape: Shape
    assignment: Assignment
    victims: Sequence[Victim]


@dataclass(slots=True, eq=False, repr=False)
class WorkloadInfo:
    """One workload that is not finished.

    Invariant: at most one of entry, inadmissible, charge is set.
    """

    key: Key
    uid: str = ""
    revision: int = 0
    priority: int = 0
    local_queue: Key = ("", "")
    shape: Shape | None = None
    created_at: datetime | None = None
    queued_at: datetime | None = None  # its age in the queue
    state: str = "Pending"  # as in its status; Promised: it gets quota when its sibling has stopped
    family: FamilyInfo | None = None  # None: a regular workload
    signature: int = 0  # changes when the workload must be queued again
    reclaimable: tuple[tuple[str, int], ...] = ()

    # Waiting.
    competes: bool = False  # it may be in a queue
    requeue_at: datetime | None = None
    requeue_blocked: bool = False  # it may not compete before its Requeued condition changes
    problem: Inadmissible | None = None  # why it cannot be tried at all
    queue: Queue | None = None  # where it waits
    cls: EquivalenceClass[WorkloadInfo] | None = None
    entry: ClassEntry | None = None  # its place in its class
    inadmissible: Inadmissible | None = None  # why it is parked by itself
    parked_since: datetime | None = None  # of a workload that is parked by itself
    status_reason: str = ""  # the reason for waiting in its status
    reason_group: dict[WorkloadInfo, datetime] | None = None  # the group of its class with it
    cursor: SavedCursor | None = None
    saved_search: SavedSearch | None = None

    # With quota.
    charge: Charge | None = None  # the quota that it holds or is assumed to hold
    reserved_at: datetime | None = None
    admitted_at: datetime | None = None
    checks: tuple[tuple[str, str], ...] = ()  # name and state of its checks, until it is admitted
    preemption_required_by: tuple[str, ...] = ()  # checks that ask for its victims' preemption now
    pending_preemption: PendingPreemption | None = None  # victims that must stop before it starts
    candidate: CandidateEntry | None = None  # its place among the candidates for preemption
    shared_quotas: list[PlanQuota[WorkloadInfo] | FamilyQuota[WorkloadInfo]] | None = None
    family_quota: FamilyQuota[WorkloadInfo] | None = None  # what it holds together with siblings

    # Preemption.
    preempted_by: PreemptedBy | None = None  # until it has new quota
    preemptor_waits: bool = False  # a preemptor waits until this workload's eviction is stored
    preemptions: tuple[PreemptionCount, ...] = ()  # which preemptors took its quota, how often
    closed_gate: str = ""  # its closed preemption gate

    in_flight: InFlight = InFlight.NOTHING
    seen: int = 0  # the bucket revision that the decision in flight was made from

    def is_due(self, now: datetime) -> bool:
        """Returns whether it waits neither for a time nor for its Requeued condition."""
        return not self.requeue_blocked and (self.requeue_at is None or now >= self.requeue_at)

    @property
    def is_parent(self) -> bool:
        """Parents are never tried. Their variants are."""
        return self.family is not None and self.family.parent is self

    @property
    def is_variant(self) -> bool:
        """It competes for its parent."""
        return self.family is not None and self.family.parent is not self

    @property
    def reported_flavors(self) -> frozenset[str] | None:
        """The flavors that refusals of a variant mention; None: all flavors."""
        return self.shape.allowed if self.family is not None and self.shape is not None else None

    @property
    def loses_quota(self) -> bool:
        """A decision that takes its quota is in flight."""
        return self.in_flight >= InFlight.PREEMPTED

    @property
    def is_leaving(self) -> bool:
        """It was told to give up its quota, and may still hold it."""
        return self.state == "Evicting" or self.in_flight >= InFlight.PREEMPTED


ClassEntry: TypeAlias = equivalence.ClassEntry[WorkloadInfo]
CandidateEntry: TypeAlias = equivalence.CandidateEntry[WorkloadInfo]
ParentEntry: TypeAlias = tuple[int, datetime, str, Key, WorkloadInfo]
"""Place among parents: negated priority, timestamp, uid, name, and the parent."""


# Families. ----------------------------------------------------------------------------------


LAST_PLACE: Final = 9_999
"""The place of a variant that the queue does not define."""


class VariantInfo(NamedTuple):
    """What a stored variant says about itself besides its name. Equal values are kept once.

    ``is_open``: the gate of its family lets it preempt.
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
    # The variant that takes over and the admitted variant, while that decision is in flight.
    migration: tuple[WorkloadInfo, WorkloadInfo] | None = None
    # The variant that was assigned quota last and needs no check before it is admitted.
    assumed_admitted: WorkloadInfo | None = None
    quota: FamilyQuota[WorkloadInfo] | None = None  # what the variants hold together

    def variant_states(self) -> list[VariantState]:
        """Returns the variants in the form that the family policy reads."""
        return [
            VariantState(one.key[1], info.tag, "", self.uid, info.stopped_by, info.active)
            for one, info in self.variants.items()
        ]

    def tag(self, workload: WorkloadInfo) -> str:
        """Returns the variant's name in the ClusterQueue's rules."""
        return self.variants[workload].tag

    def siblings(self, workload: WorkloadInfo) -> Iterator[WorkloadInfo]:
        """Yields the other variants."""
        return (one for one in self.variants if one is not workload)

    def charged(self) -> Iterator[WorkloadInfo]:
        """Yields the variants that hold quota or are promised some."""
        return (one for one in self.variants if one.charge is not None)

    def admitted(self) -> WorkloadInfo | None:
        """Returns the variant that is stored as admitted, even while its job stops; None: no known
        variant is."""
        if self.state is None or not self.state.admitted:
            return None
        name = self.state.admitted
        return next((one for one in self.variants if one.key[1] == name), None)


def family_quota_of(workload: WorkloadInfo) -> FamilyQuota[WorkloadInfo] | None:
    """Returns the quota that the workload's family holds. The workload does not ask for it
    again."""
    return workload.family.quota if workload.family is not None else None


# Queues and domains. ------------------------------------------------------------------------


class CandidateCache(NamedTuple):
    """The candidates that hold any of the ``wanted`` cells, at that version of the domain."""

    domain: Domain
    version: int
    wanted: tuple[Cell, ...]
    found: list[CandidateEntry]

    def same(self, domain: Domain | None, version: int, wanted: tuple[Cell, ...]) -> bool:
        """Returns whether a new search would find the same candidates."""
        return self.version == version and self.wanted == wanted and self.domain is domain


@dataclass(slots=True, eq=False, repr=False)
class BlockedHead:
    """The head of a StrictFIFO queue that got nothing, since then and for that reason."""

    workload: WorkloadInfo
    assignment: Assignment
    scan: ScanRecord[WorkloadInfo]
    refusal: Refusal
    since: datetime
    is_scheduled: bool = False  # its refusal is in the refusal queue


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
    generation: int = 0  # rises when a workload that holds quota here changes or goes

    # Workloads that wait.
    classes: dict[ClassKey, EquivalenceClass[WorkloadInfo]] = field(default_factory=dict)
    class_heap: ClassHeap[WorkloadInfo] = field(default_factory=ClassHeap)
    lanes: Lanes[WorkloadInfo] | None = None  # replaces the heap where LocalQueue usage counts
    parked_classes: dict[EquivalenceClass[WorkloadInfo], None] = field(default_factory=dict)
    parked_workloads: dict[WorkloadInfo, None] = field(default_factory=dict)  # by themselves
    live: int = 0  # workloads in classes
    # The workload for which victims were preempted last. It stays the head while it waits here,
    # because another workload could take the freed quota.
    preemptor: WorkloadInfo | None = None
    blocked_head: BlockedHead | None = None  # of a StrictFIFO queue

    # Workloads that hold quota.
    holding: dict[WorkloadInfo, None] = field(default_factory=dict)
    candidates: list[CandidateEntry] = field(default_factory=list)  # for preemption, in order
    candidate_cache: CandidateCache | None = None

    # Families.
    rules: FamilyRules | None = None  # None: all workloads are regular
    tags: dict[str, Tag] = field(default_factory=dict)  # the variants of the rules, by name
    parents: list[ParentEntry] = field(default_factory=list)  # they wait, but are never tried
    variants: int = 0  # how many of the waiting workloads are variants

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
        """Returns whether the workload is the preemptor that keeps its place, and competes."""
        if workload is not self.preemptor or workload.queue is not self or workload.entry is None:
            return False
        return workload.cls is not None and workload.cls.parked is None

    def forget_preemptor(self, workload: WorkloadInfo) -> None:
        """Ends the kept place of a workload that left the queue."""
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
        """How many wait here. A family counts once."""
        return self.live + len(self.parked_workloads) - self.variants + len(self.parents)

    def waiting(self) -> Iterator[WorkloadInfo]:
        """Yields every workload that waits here, in no order."""
        for cls in self.classes.values():
            yield from cls.waiting()
        yield from self.parked_workloads
        yield from (one[4] for one in self.parents)


@dataclass(slots=True, eq=False, repr=False)
class Domain:
    """One cohort tree, or a ClusterQueue without a cohort: the unit of cycles and leadership."""

    name: str
    owned: bool = False  # this scheduler leads the domain
    queues: dict[Queue, None] = field(default_factory=dict)
    ready: dict[Queue, None] = field(default_factory=dict)  # queues with a head
    parked_queues: dict[Queue, None] = field(default_factory=dict)  # with parked workloads
    in_flight: dict[WorkloadInfo, None] = field(default_factory=dict)  # with a decision in flight
    version: int = 0  # rises with everything that may change what a head would get
    generation: int = 0  # rises with every edit of a quota or a cohort
    # None, or a generation and whether a queue or cohort kept quota for itself then.
    lending_limited: tuple[int, bool] | None = None

    # To do in the next cycle.
    flush: bool = False  # wake parked workloads
    quota_reduced: bool = True  # check whether all reservations still fit
    rechecks: dict[WorkloadInfo, None] = field(default_factory=dict)  # reservations to look at

    # Planned preemption.
    planners: dict[WorkloadInfo, None] = field(default_factory=dict)
    plan_quotas: list[PlanQuota[WorkloadInfo]] = field(default_factory=list)
    plan_quota_varies: bool = False  # how much plans share depends on other usage

    # The last cycle.
    idle_cycles: int = 0  # in a row, without a result
    is_settled: bool = False  # it changed nothing, so the next cycle would do the same
    seen: int = 0  # the bucket revision that it saw
    # For the log: heads with a scan that began at a later flavor, and heads that were processed
    # since the last decision.
    scan_cursors: dict[WorkloadInfo, Cursor] = field(default_factory=dict)
    unlogged_heads: list[WorkloadInfo] = field(default_factory=list)

    def update_queue(self, queue: Queue) -> None:
        """Keeps ``ready`` and ``parked_queues`` true after a change in the queue."""
        if queue.activity.active and queue.head() is not None:
            self.ready[queue] = None
        else:
            self.ready.pop(queue, None)
        if queue.parked_classes or queue.parked_workloads:
            self.parked_queues[queue] = None
        else:
            self.parked_queues.pop(queue, None)

    def is_waiting(self) -> bool:
        """Returns whether every head has a decision in flight."""
        return all((head := queue.head()) is None or bool(head.in_flight) for queue in self.ready)
