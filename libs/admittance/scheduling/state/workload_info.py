"""What the scheduler keeps in memory of each workload: little, since there may be very many."""

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
from admittance.scheduling.state.flavor_plan import Plan
from admittance.scheduling.state.requests import Shape

if TYPE_CHECKING:
    from admittance.scheduling.state.equivalence import EqClass
    from admittance.scheduling.state.queue import Queue
    from admittance.scheduling.state.shared_quota import Overlap, Tie

Key = tuple[str, str]
"""Namespace and name."""


class Inadmissible(NamedTuple):
    """Why one workload is out of the running order by itself; `reason` as in status. ``is_silent``:
    nobody is told so. ``stays``: room that comes free makes no difference."""

    reason: str
    message: str
    is_silent: bool = False
    stays: bool = False


BACKOFF = Inadmissible("Backoff", "Waits before it competes again", is_silent=True)


class InFlight(IntEnum):
    """What is on its way to the workload-controller about a workload."""

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
    """Quota that a workload holds: in which queue, as what admission, and how much per cell."""

    queue: Queue
    admission: Admission
    cells: list[tuple[Cell, int]]


class SavedCursor(NamedTuple):
    """Where the last scan stopped, and what must not have changed for it to count."""

    at: Cursor
    cycle: int
    generation: int
    owner: EqClass


class WorkloadInfo:
    """One workload that is not finished.

    ``queue``: the ClusterQueue where it competes; None: it does not. ``cls``: its class there.
    ``entry``: its place in the class; None: it has none. ``aside``: why it is parked by itself.
    ``charge``: the quota that it holds or is assumed to hold. ``inflight``: what was decided and
    not yet seen applied, from ``seen``. ``competes``: it may be in a queue. ``said``:
    the reason that its status gives for waiting. ``ranked``: its place among the possible victims
    of the queue that it holds quota of; None: it has none. ``preempted_by``: who told it to go, as
    long as it has no new quota. ``checks``: the admission checks of its reservation, name and
    state, until it is admitted. ``awaited``: another workload preempts it, and waits to hear what
    became of that. ``admitted_at``: since when it is admitted; None: it is not.
    ``patience``: the search for victims that it waits for.
    ``preemptions``: who took its quota how often.
    ``closed_gate``: the gate on preemption that is closed; "": none is.
    ``reserved_at``: since when it holds quota, as it is written. ``pending``: who has to go before
    it can be admitted. ``asking``: its checks that want them to go now. ``ties``: what is counted
    once though both hold it, it and somebody whom it plans to preempt, or who plans to preempt it.
    ``overlap``: what it holds together with the others of its family; None: it holds nothing, or is
    of none. ``family``: of a parent or a variant; None: it is a regular workload. ``state``: as in
    its status; Promised: of a variant for which quota is kept until its sibling's job has stopped.
    Invariant: at most one of entry, aside, charge is set.
    """

    __slots__ = (
        "admitted_at",
        "aside",
        "asking",
        "awaited",
        "charge",
        "checks",
        "closed_gate",
        "cls",
        "competes",
        "created",
        "cursor",
        "entry",
        "family",
        "filed",
        "inflight",
        "key",
        "local",
        "overlap",
        "patience",
        "pending",
        "preempted_by",
        "preemptions",
        "priority",
        "problem",
        "queue",
        "ranked",
        "reclaimable",
        "requeue_at",
        "reserved_at",
        "revision",
        "said",
        "seen",
        "shape",
        "signature",
        "since",
        "stamp",
        "state",
        "ties",
        "uid",
        "waits",
    )

    def __init__(self, key: Key) -> None:
        self.key = key
        self.uid = ""
        self.revision = 0
        self.local: Key = ("", "")
        self.priority = 0
        self.shape: Shape | None = None
        self.stamp: datetime | None = None
        self.created: datetime | None = None
        self.signature = 0
        self.requeue_at: datetime | None = None
        self.waits = False
        self.competes = False
        self.reclaimable: tuple[tuple[str, int], ...] = ()
        self.problem: Inadmissible | None = None
        self.queue: Queue | None = None
        self.cls: EqClass | None = None
        self.entry: Entry | None = None
        self.aside: Inadmissible | None = None
        self.since: datetime | None = None
        self.cursor: SavedCursor | None = None
        self.charge: Charge | None = None
        self.ranked: Ranked | None = None
        self.preempted_by: PreemptedBy | None = None
        self.preemptions: tuple[PreemptionCount, ...] = ()
        self.checks: tuple[tuple[str, str], ...] = ()
        self.patience: Patience | None = None
        self.awaited = False
        self.reserved_at: datetime | None = None
        self.pending: PendingPreemption | None = None
        self.asking: tuple[str, ...] = ()
        self.ties: list[Tie[WorkloadInfo] | Overlap[WorkloadInfo]] | None = None
        self.overlap: Overlap[WorkloadInfo] | None = None
        self.admitted_at: datetime | None = None
        self.closed_gate = ""
        self.family: Family | None = None
        self.inflight = InFlight.NOTHING
        self.seen = 0
        self.said = ""
        self.filed: dict[WorkloadInfo, datetime] | None = None
        self.state = "Pending"

    def is_due(self, now: datetime) -> bool:
        """It waits for no time and no event of its own."""
        return not self.waits and (self.requeue_at is None or now >= self.requeue_at)

    @property
    def is_parent(self) -> bool:
        """It is never tried itself: its variants are."""
        return self.family is not None and self.family.parent is self

    @property
    def is_variant(self) -> bool:
        """It tries for its parent."""
        return self.family is not None and self.family.parent is not self

    @property
    def told_of(self) -> frozenset[str] | None:
        """The flavors that a variant tries, of which alone it is told; None: of any."""
        return self.shape.allowed if self.family is not None and self.shape is not None else None

    @property
    def is_told_to_go(self) -> bool:
        """A decision that takes its quota is on its way."""
        return self.inflight >= InFlight.PREEMPTED

    @property
    def is_leaving(self) -> bool:
        """It holds quota, and has been told to go."""
        return self.state == "Evicting" or self.inflight >= InFlight.PREEMPTED


Entry = tuple[datetime, str, Key, WorkloadInfo]
"""Order within a class: timestamp, uid, name; then whose it is."""

Ranked = tuple[int, float, str, Key, WorkloadInfo]
"""Order among possible victims: priority, the newest reservation (seconds, negated), uid, name;
then whose it is."""


def held_for(member: WorkloadInfo) -> Overlap[WorkloadInfo] | None:
    """What the member's family holds, so that the member need not ask for it; None: nothing, or the
    member has no family."""
    return member.family.held if member.family is not None else None


class Victim(NamedTuple):
    """Who has to go, and under which rule; where shares decided, which."""

    member: WorkloadInfo
    reason: str
    shares: Shares | None = None


Nomination = tuple[Assignment, Sequence[Victim]]
"""What would be assigned, and who has to go before it has room."""


class Patience(NamedTuple):
    """What a preemptor waits for, and what must not have changed for that to be so still."""

    plan: Plan
    shape: Shape
    assignment: Assignment
    victims: Sequence[Victim]


LAST: Final = 9_999
"""The place of a variant that the queue has none for."""


class Sibling(NamedTuple):
    """What a stored variant tells of itself, beside its name. ``is_open``: its family's gate lets
    it preempt. Few of them differ, so that each is kept once."""

    tag: str
    stopped_by: str = ""
    active: bool = True
    is_open: bool = False


class Family:
    """A parent and its variants, as far as they are known.

    ``parent``, ``state``: None as long as nobody has heard of it: then no variant is tried.
    ``moving``: the variant that is to take over and the admitted one, as long as that decision is
    on its way. ``begins``: the variant that was last assigned quota with which it will be admitted.
    ``held``: what the variants hold together; None: nothing.
    """

    __slots__ = ("begins", "held", "moving", "parent", "state", "uid", "variants")

    def __init__(self, uid: str) -> None:
        self.uid = uid
        self.parent: WorkloadInfo | None = None
        self.state: ParentState | None = None
        self.variants: dict[WorkloadInfo, Sibling] = {}
        self.moving: tuple[WorkloadInfo, WorkloadInfo] | None = None
        self.begins: WorkloadInfo | None = None
        self.held: Overlap[WorkloadInfo] | None = None

    def states(self) -> list[VariantState]:
        """Its variants, as policy wants to know them."""
        return [
            VariantState(one.key[1], told.tag, "", self.uid, told.stopped_by, told.active)
            for one, told in self.variants.items()
        ]

    def tag(self, member: WorkloadInfo) -> str:
        """Which variant it is."""
        return self.variants[member].tag

    def siblings(self, member: WorkloadInfo) -> Iterator[WorkloadInfo]:
        """The other variants."""
        return (one for one in self.variants if one is not member)

    def charged(self) -> Iterator[WorkloadInfo]:
        """The variants that hold quota, or are promised some."""
        return (one for one in self.variants if one.charge is not None)

    def admitted(self) -> WorkloadInfo | None:
        """The variant that is admitted as it is written, also while its job still stops; None:
        there is none, or it is gone."""
        if self.state is None or not self.state.admitted:
            return None
        name = self.state.admitted
        return next((one for one in self.variants if one.key[1] == name), None)


def order_key(member: WorkloadInfo) -> tuple[str, Key]:
    """What decides between equal age: siblings stand one after the other, the best first, where
    their parent would, and nobody comes between them. Nothing in it is a variant's alone but its
    name, since there are many."""
    family, queue = member.family, member.queue
    if family is None or family.parent is member:
        return member.uid, member.key
    tag = queue.tags.get(family.variants[member].tag) if queue is not None else None
    return family.uid, (_padded(tag.place if tag is not None else LAST), member.key[1])


@cache
def _padded(place: int) -> str:
    return f"{place:04d}"


def shares_flavors(member: WorkloadInfo) -> bool:
    """A sibling holds quota of a flavor that the variant may have, too: what counts for both counts
    once, so that it needs less than others who ask for the same."""
    family = member.family
    if family is None or member.shape is None or family.held is None:
        return False
    allowed = member.shape.allowed
    for one in family.held.members:
        if one is member or one.charge is None:
            continue
        for place in one.charge.admission.pod_set_assignments:
            if allowed is None or any(flavor in allowed for flavor in place.flavors.values()):
                return True
    return False


Place = tuple[datetime, str, Key]


FIRST: Final = float("-inf")
"""As a priority, negated: before all others."""


def place(member: WorkloadInfo) -> Place:
    """Its order among those of equal priority."""
    assert member.stamp is not None
    if member.family is None:
        return member.stamp, member.uid, member.key
    return member.stamp, *order_key(member)
