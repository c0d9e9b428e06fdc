"""What the scheduler keeps in memory about each workload. It is little, because there may be very
many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from enum import IntEnum
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from admittance.api.workload import PreemptionCount
from admittance.events.shapes import Admission, PendingPreemption, PreemptedBy, Shares
from admittance.family.policy import ParentState, VariantState
from admittance.quota.cell import Cell
from admittance.scheduling.state.assignment import Assignment, Cursor
from admittance.scheduling.state.flavor_plan import FlavorPlan
from admittance.scheduling.state.requests import Shape

if TYPE_CHECKING:
    from admittance.scheduling.state.equivalence import EquivalenceClass
    from admittance.scheduling.state.queue import Queue
    from admittance.scheduling.state.shared_quota import FamilyQuota, PlanQuota

Key = tuple[str, str]
"""Namespace and name."""


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
    """What was decided about a workload and sent to the workload-controller, but is not seen
    yet."""

    NOTHING = 0
    ASSIGNED = 1
    REFUSED = 2
    CONFIRMED = 3
    PLANNED = 4
    # From here on: it is to lose its quota.
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
    owner: EquivalenceClass


class WorkloadInfo:
    """One workload that is not finished.

    ``local_queue``: namespace and name of its LocalQueue. ``queued_at``: its age in the queue.
    ``signature``: changes when the workload must be queued again. ``problem``: why it cannot be
    tried at all. ``competes``: it may be in a queue. ``requeue_blocked``: it may not compete
    before its Requeued condition changes.

    In a queue: ``queue``: the ClusterQueue where it waits; None: it is in no queue. ``cls``: its
    equivalence class, ``entry``: its place in that class. ``inadmissible``: why it is parked by
    itself, since ``parked_since``. ``cursor``: where its last scan stopped. ``saved_search``: the
    search for victims that it waits for. ``status_reason``: the reason for waiting in its status;
    ``reason_group``: the group of its class with that reason.

    With quota: ``charge``: the quota that it holds or is assumed to hold, since ``reserved_at``.
    ``admitted_at``: since when it is admitted. ``checks``: name and state of the admission checks
    of its reservation, until it is admitted; ``preemption_required_by``: those of them that ask
    for the preemption of its victims now. ``pending_preemption``: the victims that must stop
    before it can be admitted. ``candidate``: its place among the candidates for preemption.
    ``shared_quotas``: quota that it shares with other workloads and that counts once.
    ``family_quota``: what it holds together with its siblings.

    Preemption: ``preempted_by``: the preemptor, until the workload has new quota.
    ``preemptor_waits``: a preemptor waits until this workload's eviction is stored.
    ``preemptions``: which preemptors took its quota, and how often. ``closed_gate``: the closed
    preemption gate, or "".

    ``family``: its family; None for a regular workload. ``state``: as in its status; Promised for
    a variant that gets its quota when its sibling's job has stopped. ``in_flight``: the decision
    about it that is not stored yet, made at bucket revision ``seen``.

    Invariant: at most one of entry, inadmissible, charge is set.
    """

    __slots__ = (
        "admitted_at",
        "candidate",
        "charge",
        "checks",
        "closed_gate",
        "cls",
        "competes",
        "created_at",
        "cursor",
        "entry",
        "family",
        "family_quota",
        "in_flight",
        "inadmissible",
        "key",
        "local_queue",
        "parked_since",
        "pending_preemption",
        "preempted_by",
        "preemption_required_by",
        "preemptions",
        "preemptor_waits",
        "priority",
        "problem",
        "queue",
        "queued_at",
        "reason_group",
        "reclaimable",
        "requeue_at",
        "requeue_blocked",
        "reserved_at",
        "revision",
        "saved_search",
        "seen",
        "shape",
        "shared_quotas",
        "signature",
        "state",
        "status_reason",
        "uid",
    )

    def __init__(self, key: Key) -> None:
        self.key = key
        self.uid = ""
        self.revision = 0
        self.local_queue: Key = ("", "")
        self.priority = 0
        self.shape: Shape | None = None
        self.queued_at: datetime | None = None
        self.created_at: datetime | None = None
        self.signature = 0
        self.requeue_at: datetime | None = None
        self.requeue_blocked = False
        self.competes = False
        self.reclaimable: tuple[tuple[str, int], ...] = ()
        self.problem: Inadmissible | None = None
        self.queue: Queue | None = None
        self.cls: EquivalenceClass | None = None
        self.entry: ClassEntry | None = None
        self.inadmissible: Inadmissible | None = None
        self.parked_since: datetime | None = None
        self.cursor: SavedCursor | None = None
        self.charge: Charge | None = None
        self.candidate: CandidateEntry | None = None
        self.preempted_by: PreemptedBy | None = None
        self.preemptions: tuple[PreemptionCount, ...] = ()
        self.checks: tuple[tuple[str, str], ...] = ()
        self.saved_search: SavedSearch | None = None
        self.preemptor_waits = False
        self.reserved_at: datetime | None = None
        self.pending_preemption: PendingPreemption | None = None
        self.preemption_required_by: tuple[str, ...] = ()
        self.shared_quotas: list[PlanQuota[WorkloadInfo] | FamilyQuota[WorkloadInfo]] | None = None
        self.family_quota: FamilyQuota[WorkloadInfo] | None = None
        self.admitted_at: datetime | None = None
        self.closed_gate = ""
        self.family: FamilyInfo | None = None
        self.in_flight = InFlight.NOTHING
        self.seen = 0
        self.status_reason = ""
        self.reason_group: dict[WorkloadInfo, datetime] | None = None
        self.state = "Pending"

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


ClassEntry = tuple[datetime, str, Key, WorkloadInfo]
"""Place in an equivalence class: timestamp, uid, name, and the workload."""

CandidateEntry = tuple[int, float, str, Key, WorkloadInfo]
"""Place among the candidates for preemption: priority, negated reservation time in seconds, uid,
name, and the workload."""


def family_quota_of(workload: WorkloadInfo) -> FamilyQuota[WorkloadInfo] | None:
    """Returns the quota that the workload's family holds. The workload does not ask for it
    again."""
    return workload.family.quota if workload.family is not None else None


class Victim(NamedTuple):
    """A workload to preempt, the rule that allows it, and the shares if fair sharing decided."""

    workload: WorkloadInfo
    reason: str
    shares: Shares | None = None


Nomination = tuple[Assignment, Sequence[Victim]]
"""What would be assigned, and the victims that must stop first."""


class SavedSearch(NamedTuple):
    """The victims that a preemptor waits for. It holds only while plan and shape are unchanged."""

    plan: FlavorPlan
    shape: Shape
    assignment: Assignment
    victims: Sequence[Victim]


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


class FamilyInfo:
    """A parent and its known variants.

    ``parent``, ``state``: None while the parent is unknown; then no variant is tried.
    ``migration``: the variant that takes over and the admitted variant, while that decision is in
    flight. ``assumed_admitted``: the variant that was assigned quota last and needs no check before
    it is admitted. ``quota``: what the variants hold together; None: nothing.
    """

    __slots__ = ("assumed_admitted", "migration", "parent", "quota", "state", "uid", "variants")

    def __init__(self, uid: str) -> None:
        self.uid = uid
        self.parent: WorkloadInfo | None = None
        self.state: ParentState | None = None
        self.variants: dict[WorkloadInfo, VariantInfo] = {}
        self.migration: tuple[WorkloadInfo, WorkloadInfo] | None = None
        self.assumed_admitted: WorkloadInfo | None = None
        self.quota: FamilyQuota[WorkloadInfo] | None = None

    def variant_states(self) -> list[VariantState]:
        """Returns the variants in the form that the family policy reads."""
        return [
            VariantState(one.key[1], told.tag, "", self.uid, told.stopped_by, told.active)
            for one, told in self.variants.items()
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
        variant."""
        if self.state is None or not self.state.admitted:
            return None
        name = self.state.admitted
        return next((one for one in self.variants if one.key[1] == name), None)


def tie_break_key(workload: WorkloadInfo) -> tuple[str, Key]:
    """Returns what orders workloads of equal age.

    The variants of a family are adjacent, best first, at the place of their parent. Only the name
    in the key belongs to one variant, which saves memory.
    """
    family, queue = workload.family, workload.queue
    if family is None or family.parent is workload:
        return workload.uid, workload.key
    tag = queue.tags.get(family.variants[workload].tag) if queue is not None else None
    return family.uid, (_padded(tag.place if tag is not None else LAST_PLACE), workload.key[1])


@cache
def _padded(place: int) -> str:
    return f"{place:04d}"


def shares_flavors(workload: WorkloadInfo) -> bool:
    """Returns whether a sibling holds quota of a flavor that the variant may use.

    Shared quota counts once, so the variant needs less than its class would.
    """
    family = workload.family
    if family is None or workload.shape is None or family.quota is None:
        return False
    allowed = workload.shape.allowed
    for one in family.quota.members:
        if one is workload or one.charge is None:
            continue
        for place in one.charge.admission.pod_set_assignments:
            if allowed is None or any(flavor in allowed for flavor in place.flavors.values()):
                return True
    return False


AgeKey = tuple[datetime, str, Key]


BEFORE_ALL: Final = float("-inf")
"""In place of a negated priority: before all other workloads."""


def age_key(workload: WorkloadInfo) -> AgeKey:
    """Returns the order among workloads of equal priority."""
    assert workload.queued_at is not None
    if workload.family is None:
        return workload.queued_at, workload.uid, workload.key
    return workload.queued_at, *tie_break_key(workload)
