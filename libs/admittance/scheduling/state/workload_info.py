"""The objects in which the scheduler keeps workloads, families, ClusterQueues and domains in
memory.

A workload refers to its queue, a queue to its domain, and queues and domains to their workloads, so
that a decision needs no lookups by name. Operations on the waiting workloads of a queue are in the
module `queue`. There may be very many workloads, so each object about a workload is kept small."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple, TypeAlias

from admittance.events.shapes import Admission, PendingPreemption, Shares
from admittance.family import FamilyRules, ParentState, Tag, VariantState
from admittance.quota.catalog import NOT_FOUND, Activity
from admittance.quota.cell import Cell
from admittance.quota.tree import Node
from admittance.scheduling.state import equivalence
from admittance.scheduling.state.assignment import Assignment, Cursor
from admittance.scheduling.state.equivalence import (
    BlockedHead,
    ClassHeap,
    ClassKey,
    EquivalenceClass,
    Key,
    RefusalQueue,
    SavedCursor,
)
from admittance.scheduling.state.flavor_plan import FlavorPlan
from admittance.scheduling.state.held.person_limits import PersonLimits
from admittance.scheduling.state.held.plan_quota import PlanQuota
from admittance.scheduling.state.held.shared_quota import FamilyQuota, Holder
from admittance.scheduling.state.lanes import Lanes
from admittance.scheduling.state.promise import NoPromise, Promise
from admittance.scheduling.state.requests import RequestShape
from admittance.scheduling.state.stored_fields import InFlight, StoredFields
from admittance.scheduling.state.workload_view import Inadmissible, VariantInfo


class Charge(NamedTuple):
    """Quota that a workload holds: the charged queue, the admission, and the amount per cell."""

    queue: Queue
    admission: Admission
    cells: list[tuple[Cell, int]]


class GivenQuota(NamedTuple):
    """The quota that a workload gives up in a handover, and the former place of that workload among
    the candidates for preemption."""

    charge: Charge
    candidate: CandidateEntry | None


NOTHING_GIVEN: Final[dict[WorkloadInfo, GivenQuota]] = {}
"""Shared by all assumptions without a handover, and never changed: nearly all decisions have
none."""


class Assumption:
    """What is assumed of one decision in flight; all workloads that the decision is about share it.
    The module `assumption` begins, ends and undoes assumptions.

    ``workload``: the workload that the decision names. ``domain``: the domain of the leader that
    made the decision. ``seen``: the bucket revision on which the decision is based. ``given``: the
    victims that hand their quota over to the workload, without those with a new stored state since.
    ``replaced``: the admitted sibling that the workload replaces. ``replaced_plan``: the plan of
    preemption that the workload had before."""

    __slots__ = ("domain", "given", "replaced", "replaced_plan", "seen", "workload")

    def __init__(self, workload: WorkloadInfo, domain: Domain, seen: int) -> None:
        self.workload = workload
        self.domain = domain
        self.seen = seen
        self.given = NOTHING_GIVEN
        self.replaced: WorkloadInfo | None = None
        self.replaced_plan: PendingPreemption | None = None


class Victim(NamedTuple):
    """A workload to preempt, the rule that allows its preemption (``reason``), and the compared
    shares if fair sharing allows it."""

    workload: WorkloadInfo
    reason: str
    shares: Shares | None = None


Nomination: TypeAlias = tuple[Assignment, Sequence[Victim]]
"""The assignment that a head would get if no other head competed, and the victims that must stop
first."""


class SavedSearch(NamedTuple):
    """The nomination of a preemptor that waits for its victims. The saved nomination is valid only
    while the flavor plan of the ClusterQueue and the shape of the preemptor are unchanged."""

    plan: FlavorPlan
    shape: RequestShape
    assignment: Assignment
    victims: Sequence[Victim]


@dataclass(slots=True, eq=False, repr=False)
class AssumedFields(StoredFields["FamilyInfo"]):
    """The decision in flight about the workload.

    Invariant: ``assumption`` is None exactly if ``in_flight`` is NOTHING."""

    in_flight: InFlight = InFlight.NOTHING
    assumption: Assumption | None = None


@dataclass(slots=True, eq=False, repr=False)
class DerivedFields(AssumedFields):
    """The workload's place in a queue and its charged quota, which follow from its stored state and
    the decision in flight.

    Invariant: at most one of ``entry``, ``inadmissible`` and ``charge`` is set."""

    # Waiting.
    queue: Queue | None = None  # the queue where the workload waits
    cls: EquivalenceClass[WorkloadInfo] | None = None
    entry: ClassEntry | None = None  # the workload's place in its equivalence class
    inadmissible: Inadmissible | None = None  # why the workload is parked alone
    parked_since: datetime | None = None  # the time since which the workload is parked alone
    # The workloads of the same class with the same waiting reason in their status as this workload.
    reason_group: dict[WorkloadInfo, datetime] | None = None

    # With quota.
    charge: Charge | None = None  # the quota that the workload holds or is assumed to hold
    # The workload's plan of preemption: the victims that must stop before the workload starts.
    pending_preemption: PendingPreemption | None = None
    # The workload's place among the candidates for preemption.
    candidate: CandidateEntry | None = None
    shared_quotas: list[PlanQuota[WorkloadInfo] | FamilyQuota[WorkloadInfo]] | None = None
    # For a variant with quota: the quota that the variants of its family hold together.
    family_quota: FamilyQuota[WorkloadInfo] | None = None


@dataclass(slots=True, eq=False, repr=False)
class WorkloadInfo(DerivedFields):
    """One workload that is not finished, as the scheduler keeps it in memory. Its own fields are
    what earlier cycles leave for the next."""

    cursor: SavedCursor[WorkloadInfo] | None = None
    saved_search: SavedSearch | None = None
    holder: Holder | None = None  # cached, for the stored state of an admitted workload
    preemptor_waits: bool = False  # a preemptor waits until the eviction of this workload is stored

    def is_due(self, now: datetime) -> bool:
        """Returns whether the workload may compete now: it waits neither for a time nor for its
        condition Requeued."""
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
    def is_migrating_to(self) -> bool:
        """Whether a decision in flight lets the variant replace its admitted sibling."""
        assumption = self.assumption
        return (
            assumption is not None
            and assumption.workload is self
            and assumption.replaced is not None
        )

    @property
    def reported_flavors(self) -> frozenset[str] | None:
        """The flavors that refusals of the workload mention: for a variant those that it may use;
        None: all flavors."""
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
"""Place of a parent among the waiting parents of its queue: negated priority, timestamp, uid, name,
and the parent."""


# Families. ----------------------------------------------------------------------------------


@dataclass(slots=True, eq=False, repr=False)
class FamilyInfo:
    """A parent and its known variants. No variant is tried while the parent is unknown."""

    uid: str
    parent: WorkloadInfo | None = None
    state: ParentState | None = None
    variants: dict[WorkloadInfo, VariantInfo] = field(default_factory=dict)
    # The variant of the family that was assigned quota last and is assumed to be admitted, because
    # it needs no check.
    assumed_admitted: WorkloadInfo | None = None
    quota: FamilyQuota[WorkloadInfo] | None = None  # the quota of the whole family

    def variant_states(self) -> list[VariantState]:
        """Returns the variants of the family in the form that the family policy reads."""
        return [
            VariantState(variant.key[1], info.tag, "", self.uid, info.stopped_by, info.active)
            for variant, info in self.variants.items()
        ]

    def tag(self, workload: WorkloadInfo) -> str:
        """Returns the variant's tag: its name in the ClusterQueue's rules for families."""
        return self.variants[workload].tag

    def admitted(self) -> WorkloadInfo | None:
        """Returns the variant that is stored as admitted, even while its job stops; None: no known
        variant is admitted."""
        if self.state is None or not self.state.admitted:
            return None
        name = self.state.admitted
        return next((variant for variant in self.variants if variant.key[1] == name), None)


def family_quota_of(workload: WorkloadInfo) -> FamilyQuota[WorkloadInfo] | None:
    """Returns the quota that the workload's family of variants holds, beyond which a variant needs
    further quota; None: it has no family, or the family holds no quota."""
    return workload.family.quota if workload.family is not None else None


# Queues and domains. ------------------------------------------------------------------------


class CandidateCache(NamedTuple):
    """The cached candidates for preemption in one queue that hold quota in any of the ``wanted``
    cells. The cache is valid while the domain has the version ``version``."""

    domain: Domain
    version: int
    wanted: tuple[Cell, ...]
    found: list[CandidateEntry]

    def same(self, domain: Domain | None, version: int, wanted: tuple[Cell, ...]) -> bool:
        """Returns whether the cache is valid for this domain, domain version and these wanted
        cells."""
        return self.version == version and self.wanted == wanted and self.domain is domain


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
    backfill: bool = False  # the queue's heads may get a promise
    # A number that rises when a workload that holds quota of the queue changes or leaves.
    generation: int = 0

    # Workloads that wait.
    classes: dict[ClassKey, EquivalenceClass[WorkloadInfo]] = field(default_factory=dict)
    class_heap: ClassHeap[WorkloadInfo] = field(default_factory=ClassHeap)
    # If the usage of LocalQueues or users counts: the classes of the queue by LocalQueue or user,
    # in place of ``class_heap``.
    lanes: Lanes[WorkloadInfo] | None = None
    limits: PersonLimits | None = None  # what one person may hold; None: as much as fits
    parked_classes: dict[EquivalenceClass[WorkloadInfo], None] = field(default_factory=dict)
    # Workloads of the queue that are parked alone, without their class.
    parked_workloads: dict[WorkloadInfo, None] = field(default_factory=dict)
    live: int = 0  # number of the queue's waiting workloads that are in classes
    # The workload of the queue for which victims were preempted last. This preemptor stays the head
    # while it waits in the queue, because another workload could take the freed quota.
    preemptor: WorkloadInfo | None = None
    # The blocked head of a StrictFIFO queue.
    blocked_head: BlockedHead[WorkloadInfo] | None = None

    # The workloads that hold quota of the queue.
    holding: dict[WorkloadInfo, None] = field(default_factory=dict)
    # The workloads with quota of the queue that are candidates for preemption, in order.
    candidates: list[CandidateEntry] = field(default_factory=list)
    candidate_cache: CandidateCache | None = None

    # Families.
    # The queue's rules for families; None: all its workloads are regular.
    rules: FamilyRules | None = None
    # The tags that the queue's rules for families define, by name.
    tags: dict[str, Tag] = field(default_factory=dict)
    # The parents that wait in the queue; parents are never tried.
    parents: list[ParentEntry] = field(default_factory=list)
    variants: int = 0  # how many of the queue's waiting workloads are variants

    def head(self) -> WorkloadInfo | None:
        """Returns the head of the queue: the workload that the next cycle considers; None: no
        workload competes."""
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
        """If the workload is the preemptor that stays the head of the queue, lets other workloads
        become the head. Must be called when the workload has left the queue."""
        if self.preemptor is workload:
            self.preemptor = None

    def add_candidate(self, workload: WorkloadInfo, reserved_at: datetime) -> None:
        """Puts the workload at its place among the queue's candidates for preemption."""
        self.remove_candidate(workload)
        negated = -reserved_at.timestamp()
        entry = (workload.priority, negated, workload.uid, workload.key, workload)
        insort(self.candidates, entry)
        workload.candidate = entry

    def remove_candidate(self, workload: WorkloadInfo) -> None:
        """Removes the workload from the queue's candidates for preemption."""
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
        yield from (entry[4] for entry in self.parents)


@dataclass(slots=True, eq=False, repr=False)
class Domain:
    """A domain: one cohort tree, or a ClusterQueue without a cohort. Each domain has its own
    scheduling cycles and its own leader."""

    name: str
    owned: bool = False  # this scheduler leads the domain
    queues: dict[Queue, None] = field(default_factory=dict)
    ready: dict[Queue, None] = field(default_factory=dict)  # ClusterQueues with a head to decide
    # Queues of the domain with parked workloads.
    parked_queues: dict[Queue, None] = field(default_factory=dict)
    # The workloads of the domain with a decision in flight.
    in_flight: dict[WorkloadInfo, None] = field(default_factory=dict)
    # The decision in flight that hands quota over; until it ends, the domain decides nothing else.
    handover: Assumption | None = None
    version: int = 0  # a number that rises when the nomination of a head may change
    generation: int = 0  # a number that rises with every edit of a quota or a cohort of the domain
    # Cached: a generation, and whether at that generation a queue or cohort of the domain did not
    # lend all of its quota; None: not computed yet.
    lending_limited: tuple[int, bool] | None = None

    # What the domain's next scheduling cycle must do.
    flush: bool = False  # the next cycle wakes parked workloads first
    quota_reduced: bool = True  # the next cycle tests whether all reservations fit
    # The reservations of the domain that the next cycle rechecks.
    rechecks: dict[WorkloadInfo, None] = field(default_factory=dict)
    # When the parked workloads are woken next, because a workload has run long enough then.
    wakes_at: datetime | None = None
    promise: Promise | NoPromise | None = None  # of backfill, as of the last cycle
    promised_at: datetime | None = None  # the time of that cycle
    holds_back: bool = False  # the promise may have parked workloads

    # Planned preemption.
    planners: dict[WorkloadInfo, None] = field(default_factory=dict)
    plan_quotas: list[PlanQuota[WorkloadInfo]] = field(default_factory=list)
    plan_quota_varies: bool = False  # the quota shared by plans depends on other usage

    # The last cycle.
    idle_cycles: int = 0  # number of consecutive cycles of the domain without a result
    is_settled: bool = False  # the last cycle changed nothing: the next would not either
    seen: int = 0  # the bucket revision that the last cycle saw
    # For a replay of the cycle's decisions: the heads with a scan that did not begin at the first
    # flavor, and the heads that were processed after the last decision.
    scan_cursors: dict[WorkloadInfo, Cursor] = field(default_factory=dict)
    unlogged_heads: list[WorkloadInfo] = field(default_factory=list)

    def update_queue(self, queue: Queue) -> None:
        """Updates ``ready`` and ``parked_queues`` of the domain after its queue ``queue``
        changed."""
        if queue.activity.active and queue.head() is not None:
            self.ready[queue] = None
        else:
            self.ready.pop(queue, None)
        if queue.parked_classes or queue.parked_workloads:
            self.parked_queues[queue] = None
        else:
            self.parked_queues.pop(queue, None)

    def is_waiting(self) -> bool:
        """Returns whether every head in the domain has a decision in flight, so that the domain
        must wait."""
        return all((head := queue.head()) is None or bool(head.in_flight) for queue in self.ready)
