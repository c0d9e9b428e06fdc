"""Parts of an explanation: what a flavor has, who holds it, who would have to go, and who is ahead.

Amounts are in accounting units: cpu in thousandths, everything else in whole units.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from admittance.events.shapes import Shape, Shares


class Room(Shape, frozen=True, kw_only=True):
    """One resource of one pod set in one flavor, as it is now.

    ``available``: what may be used now; ``usage``: what the ClusterQueue uses, of its ``nominal``
    quota and the ``borrowing_limit`` above it (None: none); ``potential``: what it could use in an
    empty tree. ``taken``: what pod sets before this one would take of the same. ``short``: by how
    much too little is available. ``level``: how high in the tree of cohorts it would borrow.
    """

    resource: str
    requested: int
    taken: int = 0
    available: int = 0
    short: int = 0
    usage: int = 0
    nominal: int = 0
    borrowing_limit: int | None = None
    potential: int = 0
    level: int = 0
    reason: str = ""


class Holder(Shape, frozen=True, kw_only=True):
    """Who holds some of what is short. ``borrowed``: its ClusterQueue uses more of it than its
    nominal quota. ``leaving``: told to go already. ``spared_by``: why it cannot be preempted;
    empty: it is a candidate."""

    namespace: str
    name: str
    cluster_queue: str
    flavor: str
    resource: str
    amount: int
    priority: int = 0
    borrowed: bool = False
    leaving: bool = False
    spared_by: str = ""


class Protection(Shape, frozen=True, kw_only=True):
    """Why ``workloads`` of one ClusterQueue that hold what is short in ``flavor`` cannot be
    preempted. ``cluster_queue``: theirs, empty for several; ``of``: whose ``policy`` it is.
    ``rule`` is stable: PolicyNever, PriorityNotLower, AboveThreshold, WhileBorrowing,
    AboveNominal, WithinNominal, CohortWithinQuota, Inactive, PreemptionLoop, SharesForbid,
    NotEnough, NotLookedAt.
    ``lowest_priority``: of those workloads, where priority is what counts."""

    cluster_queue: str
    flavor: str
    resource: str
    rule: str
    policy: str = ""
    of: str = ""
    workloads: int = 0
    amount: int = 0
    lowest_priority: int | None = None
    message: str = ""


class Going(Shape, frozen=True, kw_only=True):
    """Who would have to go, or has been told to (``since``), and under which rule."""

    namespace: str
    name: str
    cluster_queue: str
    priority: int = 0
    rule: str = ""
    since: datetime | None = None
    shares: Shares | None = None


class Ahead(Shape, frozen=True, kw_only=True):
    """Who is in front in the same ClusterQueue; ``position`` 0: not counted. ``holds_place``:
    others make room for it, so that it comes first whatever its priority."""

    namespace: str
    name: str
    position: int
    priority: int = 0
    holds_place: bool = False
    reason: str = ""


class Outlook(Shape, frozen=True, kw_only=True):
    """What the next cycle would say if the workload were considered in it, with nobody before it.

    ``outcome``: Fits; Preempts: once ``victims`` have gone; NoCandidates: nobody may be preempted
    for it, or not enough; NoFit: no flavor can hold it; Hindered: it would not be considered, for
    ``reason``. ``flavors``: per pod set, resource to flavor. ``counts``: pods per pod set, where
    they are fewer than asked. ``level``: how high in the tree of cohorts it would borrow.
    """

    outcome: str
    reason: str = ""
    message: str = ""
    flavors: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)
    counts: dict[str, int] = msgspec.field(default_factory=dict)
    level: int = 0
    victims: tuple[Going, ...] = ()
    victims_left_out: int = 0


class OpenCheck(Shape, frozen=True, kw_only=True):
    """An admission check that a reservation waits for."""

    name: str
    state: str = "Pending"
