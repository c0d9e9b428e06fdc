"""What the scheduler keeps in memory of each workload: little, since there may be very many."""

from __future__ import annotations

from datetime import datetime
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from admittance.api.workload import PreemptionCount
from admittance.events.shapes import Admission, PendingPreemption, PreemptedBy
from admittance.quota.cell import Cell
from admittance.scheduling.state.assignment import Cursor
from admittance.scheduling.state.requests import Shape

if TYPE_CHECKING:
    from admittance.scheduling.state.assignment import Patience
    from admittance.scheduling.state.equivalence import EqClass
    from admittance.scheduling.state.family import Family
    from admittance.scheduling.state.in_flight import Joint
    from admittance.scheduling.state.queue import Queue
    from admittance.scheduling.state.shared_quota import Overlap, Tie

Key = tuple[str, str]
"""Namespace and name."""


class Aside(NamedTuple):
    """Why one workload is out of the running order by itself; `reason` as in status. ``is_silent``:
    nobody is told so. ``stays``: room that comes free makes no difference."""

    reason: str
    message: str
    is_silent: bool = False
    stays: bool = False


BACKOFF = Aside("Backoff", "Waits before it competes again", is_silent=True)


class Say(IntEnum):
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


class Member:
    """One workload that is not finished.

    ``queue``: the ClusterQueue where it competes; None: it does not. ``cls``: its class there.
    ``entry``: its place in the class; None: it has none. ``aside``: why it is parked by itself.
    ``charge``: the quota that it holds or is assumed to hold. ``inflight``: what was decided and
    not yet seen applied, from ``seen``. ``competes``: it may be in a queue. ``said``:
    the reason that its status gives for waiting. ``ranked``: its place among the possible victims
    of the queue that it holds quota of; None: it has none. ``preempted_by``: who told it to go, as
    long as it has no new quota. ``checks``: the admission checks of its reservation, name and
    state, until it is admitted. ``joint``: the decision that hands quota on to it, or from it.
    ``awaited``: somebody preempts it, and waits to hear what became of that. ``admitted_at``: since
    when it is admitted; None: it is not. ``patience``: for whom it waits, that were told to go.
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
        "joint",
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
        self.problem: Aside | None = None
        self.queue: Queue | None = None
        self.cls: EqClass | None = None
        self.entry: Entry | None = None
        self.aside: Aside | None = None
        self.since: datetime | None = None
        self.cursor: SavedCursor | None = None
        self.charge: Charge | None = None
        self.ranked: Ranked | None = None
        self.preempted_by: PreemptedBy | None = None
        self.preemptions: tuple[PreemptionCount, ...] = ()
        self.checks: tuple[tuple[str, str], ...] = ()
        self.joint: Joint | None = None
        self.patience: Patience | None = None
        self.awaited = False
        self.reserved_at: datetime | None = None
        self.pending: PendingPreemption | None = None
        self.asking: tuple[str, ...] = ()
        self.ties: list[Tie | Overlap] | None = None
        self.overlap: Overlap | None = None
        self.admitted_at: datetime | None = None
        self.closed_gate = ""
        self.family: Family | None = None
        self.inflight = Say.NOTHING
        self.seen = 0
        self.said = ""
        self.filed: dict[Member, datetime] | None = None
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
    def is_leaving(self) -> bool:
        """It holds quota, and has been told to go."""
        return self.state == "Evicting" or self.inflight >= Say.PREEMPTED


Entry = tuple[datetime, str, Key, Member]
"""Order within a class: timestamp, uid, name; then whose it is."""

Ranked = tuple[int, float, str, Key, Member]
"""Order among possible victims: priority, the newest reservation (seconds, negated), uid, name;
then whose it is."""
