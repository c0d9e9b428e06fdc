"""Why a workload waits, which the scheduler answers: available quota, its holders, victims, and
workloads ahead in the queue.

Amounts are in accounting units: cpu in thousandths, everything else in whole units.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec
from msgspec.structs import replace

from admittance.events.base import Shape
from admittance.events.requests.base import Reply, Request
from admittance.events.requests.forecast import StartForecast
from admittance.events.requests.remedies import Remedy
from admittance.events.shapes import PreemptedBy, Shares, Shortfall


class Room(Shape, frozen=True, kw_only=True):
    """One resource of one pod set in one flavor, at present.

    ``available``: free to use now; ``usage``: what the ClusterQueue uses of its ``nominal`` quota
    and of the ``borrowing_limit`` above that quota (None: no limit); ``potential``: what the
    ClusterQueue could use in an empty tree. ``taken``: the amount that earlier pod sets of the same
    workload take. ``short``: the amount that is missing for the pod set. ``level``: how high in the
    cohort tree the ClusterQueue would borrow.
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
    """A workload that holds a scarce resource. ``borrowed``: the holder's ClusterQueue uses more
    than its nominal quota. ``leaving``: the holder is being evicted. ``spared_by``: why the holder
    cannot be preempted; empty: it is a candidate. ``leased``: a program holds the quota until its
    lease ends.
    """

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
    leased: bool = False


class Protection(Shape, frozen=True, kw_only=True):
    """Why ``workloads`` that hold a scarce resource in ``flavor`` cannot be preempted.
    ``cluster_queue``: the ClusterQueue of the workloads, empty if they are in several;
    ``of``: the ClusterQueue of the waiting workload, whose preemption ``policy`` forbids the
    preemption. ``rule`` has one of these stable words: PolicyNever, PriorityNotLower,
    AboveThreshold, WhileBorrowing, AboveNominal, WithinNominal, CohortWithinQuota, Inactive,
    PreemptionLoop, MinimumRunTime, SharesForbid, NotEnough, NotLookedAt. ``lowest_priority``: the
    lowest priority of the workloads, for rules about priority. ``until``: when the rule ends for
    the first of the workloads; None: at no known time.

    ``frees``: how much preemption would free where the workload lacks it, and ``needed``: how much
    is missing there; None if the rule forbids the preemption. ``used`` and ``nominal``: the usage
    and the nominal quota of ``cluster_queue``; None if it is empty.
    """

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
    until: datetime | None = None
    frees: int | None = None
    needed: int | None = None
    used: int | None = None
    nominal: int | None = None


class PreemptionVictim(Shape, frozen=True, kw_only=True):
    """A workload that would be preempted, or that is being preempted since ``since``, with the
    rule.
    """

    namespace: str
    name: str
    cluster_queue: str
    priority: int = 0
    rule: str = ""
    since: datetime | None = None
    shares: Shares | None = None


class Ahead(Shape, frozen=True, kw_only=True):
    """A workload ahead in the same ClusterQueue; ``position`` 0: its place was not counted.
    ``holds_place``: other workloads are being preempted for the workload, so it goes first
    regardless of priority. ``reason``: why it waits; "" for a workload of another namespace.
    """

    namespace: str
    name: str
    position: int
    priority: int = 0
    holds_place: bool = False
    reason: str = ""


class Outlook(Shape, frozen=True, kw_only=True):
    """The decision of the next cycle if the workload were considered first in that cycle.

    ``outcome``: Fits; Preempts: after the ``victims`` have stopped; NoCandidates: too few workloads
    may be preempted for the workload; NoFit: no flavor can hold the workload; Hindered: the
    workload would not be considered, for ``reason``. ``flavors``: per pod set, resource to flavor.
    ``counts``: pods per pod set, if fewer than requested. ``level``: how high in the cohort tree
    the ClusterQueue would borrow.
    """

    outcome: str
    reason: str = ""
    message: str = ""
    flavors: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)
    counts: dict[str, int] = msgspec.field(default_factory=dict)
    level: int = 0
    victims: tuple[PreemptionVictim, ...] = ()
    victims_left_out: int = 0


class OpenCheck(Shape, frozen=True, kw_only=True):
    """An admission check with a row in the workload. ``inactive``: why its controller gives no
    verdict now; "": it is active."""

    name: str
    state: str = "Pending"
    inactive: str = ""


class ExpectedStart(Shape, frozen=True, kw_only=True):
    """The start that backfill promises to ``head`` (``namespace/name``), ``at`` a time and when the
    workloads in ``after`` have ended. ``certain``: no workload of another ClusterQueue can delay
    that start; otherwise it is expected, not promised. ``at`` None: no start is known, because the
    workloads in ``without_end`` hold the quota and have no known end.
    """

    head: str
    at: datetime | None = None
    certain: bool = False
    after: tuple[str, ...] = ()
    without_end: tuple[str, ...] = ()


class HeldLease(Shape, frozen=True, kw_only=True):
    """The lease by which a program holds the quota of a workload, or waits for it. ``until``: when
    it ends unless the program renews it for ``duration_seconds``; ``renewed_at`` None: it has not
    been renewed since the submission."""

    duration_seconds: int
    until: datetime
    renewed_at: datetime | None = None


class Explain(Request, frozen=True, kw_only=True):
    """``admit.api.explain.<ns>``: why a workload waits."""

    name: str


class FlavorVerdict(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How one flavor suits one pod set; ``flavor`` is empty for a resource without any flavor.

    ``fits``: the pod set fits in the flavor; if not, ``reason`` says why. ``outcome``: Fits,
    Preempts, NoCandidates, NoFit, Ineligible. ``rooms``: the available and missing amounts of each
    resource of the pod set in the flavor. ``victims``: workloads that would be preempted in this
    flavor alone; ``barriers``: policies that protect workloads, once per flavor and resource."""

    pod_set: str
    flavor: str
    resources: tuple[str, ...] = ()
    fits: bool = False
    outcome: str = ""
    level: int = 0
    reason: str = ""
    message: str = ""
    shortfalls: tuple[Shortfall, ...] = ()
    rooms: tuple[Room, ...] = ()
    victims: tuple[PreemptionVictim, ...] = ()
    victims_left_out: int = 0
    barriers: tuple[Protection, ...] = ()


class VariantVerdict(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One variant of a parent. ``variant``: the variant's flavor, or its name if it is explicit.

    ``active`` and ``why`` (an `ActivityReason`): whether the policy requires the variant to be
    active now, and why. ``admitted``: the parent uses the variant's admission. ``gate``: Open or
    Closed; the variant may preempt only if Open. ``set_aside``: a sentence that says why an active
    variant is not tried: a better sibling goes first, or the family's job still stops.
    ``explained``: the explanation of the variant as of any workload."""

    name: str
    variant: str
    active: bool = True
    why: str = ""
    admitted: bool = False
    gate: str = ""
    set_aside: str = ""
    explained: ExplainReply


class ExplainReply(Reply, frozen=True, kw_only=True):
    """``position``: the workload's place in its ClusterQueue, from 1; 0: it is not queued.

    ``ahead``: the first workloads of the queue before this workload; ``waiting_since``: the time
    that orders the workload in the queue. ``outlook``: what the next cycle would decide about the
    workload. ``holders``: the workloads named in ``held_by``. ``waits_for``: workloads being
    preempted for this workload. ``preempted_by``: the workload that took this workload's quota.
    ``checks``: checks that the workload's reservation waits for. ``remedies``: the changes that
    would unblock the workload; ``unblocked_by``: their sentences. ``variants``: the variants of a
    parent, the best first; a parent has no flavors. ``parent``: the parent of a variant.
    ``promise``: the promise of a start that the workload has, or that holds the workload back. The
    client adds what the forecast says: ``start``: when the workload is expected to start;
    ``start_unknown``: why that is not known. It also adds ``lease``: of a workload for a program.
    """

    phase: str = ""
    reason: str = ""
    message: str = ""
    cluster_queue: str = ""
    local_queue: str = ""
    cohort: str = ""
    strategy: str = ""
    position: int = 0
    pending: int = 0
    parked: bool = False
    priority: int = 0
    waiting_since: datetime | None = None
    requeue_at: datetime | None = None
    outlook: Outlook | None = None
    ahead: tuple[Ahead, ...] = ()
    flavors: tuple[FlavorVerdict, ...] = ()
    holders: tuple[str, ...] = ()
    held_by: tuple[Holder, ...] = ()
    waits_for: tuple[PreemptionVictim, ...] = ()
    preempted_by: PreemptedBy | None = None
    checks: tuple[OpenCheck, ...] = ()
    unblocked_by: tuple[str, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    variants: tuple[VariantVerdict, ...] = ()
    parent: str = ""
    promise: ExpectedStart | None = None
    seen: int = 0
    start: StartForecast | None = None
    start_unknown: str = ""
    lease: HeldLease | None = None


def with_remedies(reply: ExplainReply, remedies: Iterable[Remedy]) -> ExplainReply:
    """Returns the reply with these remedies and their sentences, each sentence once."""
    kept = tuple(remedies)
    texts = dict.fromkeys(remedy.text for remedy in kept)
    return replace(reply, remedies=kept, unblocked_by=tuple(texts))


def remedies_of(reply: ExplainReply) -> tuple[Remedy, ...]:
    """Returns the remedies of the reply; of an older scheduler, which answers sentences only,
    remedies without a kind."""
    return reply.remedies or tuple(Remedy(text=text) for text in reply.unblocked_by)
