"""Requests that want an answer at once: the micro endpoints under ``admit.api.>``.

What concerns one namespace is ``admit.api.<what>.<ns>``; without the last token the request
spans namespaces. Every answer is JSON; a failure is an answer with ``error`` set, and the micro
error headers beside it.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from admittance.events.shapes import ConsumedUsage, PodSetUpdate, PreemptedBy, Shortfall
from admittance.events.why import Ahead, Going, Holder, OpenCheck, Outlook, Protection, Room


class Request(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A question. Unknown fields are tolerated."""


class Reply(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An answer. ``error`` is one sentence for people; empty when all went well."""

    error: str = ""


# The workload-controller answers these, and what `applying` has. --------------------------


class Events(Request, frozen=True, kw_only=True):
    """``admit.api.events[.<ns>]``: history from the log, oldest first.

    ``workload`` narrows to one name (with the namespace of the subject), ``also`` to further ones
    beside it: a parent's variants. ``after`` is a sequence to go on from, ``since`` a time. At most
    ``limit`` entries come back.
    """

    workload: str = ""
    also: tuple[str, ...] = ()
    after: int = 0
    since: datetime | None = None
    limit: int = 500


class LogEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    sequence: int
    time: datetime
    subject: str
    data: msgspec.Raw


class EventsReply(Reply, frozen=True, kw_only=True):
    """``complete`` is false when there is more after the last entry."""

    entries: tuple[LogEntry, ...] = ()
    complete: bool = True


# The scheduler answers. -----------------------------------------------------------------


class Explain(Request, frozen=True, kw_only=True):
    """``admit.api.explain.<ns>``: why a workload waits."""

    name: str


class FlavorVerdict(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What one flavor says to one pod set; ``flavor`` is empty where a resource has none at all.

    ``fits``, or the reason it does not. ``outcome``: Fits, Preempts, NoCandidates, NoFit,
    Ineligible. ``rooms``: resource by resource. ``victims``: who would have to go for this flavor
    alone; ``barriers``: whose policies leave whom in place, told of each flavor and resource once.
    """

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
    victims: tuple[Going, ...] = ()
    victims_left_out: int = 0
    barriers: tuple[Protection, ...] = ()


class VariantVerdict(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One variant of a parent. ``variant``: a flavor, or the name of an explicit variant.

    ``active`` and ``why`` (`admittance.family.policy.Why`): what policy wants of it now.
    ``admitted``: the parent's admission is its. ``gate``: Open or Closed; only behind an open one
    may it preempt. ``set_aside``: why it is not tried although it is active, a sentence: a better
    sibling goes first, the family's job still stops. ``explained``: as of any workload.
    """

    name: str
    variant: str
    active: bool = True
    why: str = ""
    admitted: bool = False
    gate: str = ""
    set_aside: str = ""
    explained: ExplainReply


class ExplainReply(Reply, frozen=True, kw_only=True):
    """``position`` counts from 1 within the ClusterQueue; 0: it is not queued.

    ``ahead``: the first of those in front; ``waiting_since``: the time that its place goes by.
    ``outlook``: what the next cycle would say of it. ``holders`` are the names in ``held_by``.
    ``waits_for``: who was told to go for it. ``preempted_by``: who took its quota. ``checks``:
    what its reservation waits for. ``unblocked_by`` are sentences: what would let it go on.
    ``variants``: of a parent, the best first; it has no flavors of its own then. ``parent``: of a
    variant, whose it is.
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
    waits_for: tuple[Going, ...] = ()
    preempted_by: PreemptedBy | None = None
    checks: tuple[OpenCheck, ...] = ()
    unblocked_by: tuple[str, ...] = ()
    variants: tuple[VariantVerdict, ...] = ()
    parent: str = ""
    seen: int = 0


class Fit(Request, frozen=True, kw_only=True):
    """``admit.api.fit.<ns>``: whether a workload that is not submitted could ever start, as its
    queue is now. ``workload``: its manifest."""

    workload: msgspec.Raw


class FitReply(Reply, frozen=True, kw_only=True):
    """``fits`` false: its ClusterQueue could not hold it even if nothing else ran, for ``reason``
    (ExceedsMaxQuota, NoMatchingFlavor, NoSuchQueue); ``message`` has the numbers: nominal quota and
    what may be borrowed. ``seen``: newest revision of the bucket that the answer knows."""

    fits: bool = True
    reason: str = ""
    message: str = ""
    local_queue: str = ""
    cluster_queue: str = ""
    seen: int = 0


class PendingQuery(Request, frozen=True, kw_only=True):
    """``admit.api.pending[.<ns>]``: who waits, in order; ``limit`` of them behind the first
    ``skip``."""

    local_queue: str = ""
    cluster_queue: str = ""
    limit: int = 1000
    skip: int = 0


class PendingRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """``position`` is that in the ClusterQueue, from 1; 0: its LocalQueue leads to none.

    ``waiting_since``: the time that its place goes by. ``flavors``: those that were tried for it.
    """

    namespace: str
    name: str
    cluster_queue: str
    local_queue: str
    position: int
    priority: int = 0
    parked: bool = False
    reason: str = ""
    message: str = ""
    created: datetime | None = None
    waiting_since: datetime | None = None
    flavors: tuple[str, ...] = ()


class PendingReply(Reply, frozen=True, kw_only=True):
    rows: tuple[PendingRow, ...] = ()
    total: int = 0


class Queues(Request, frozen=True, kw_only=True):
    """``admit.api.queues[.<ns>]``: counters, usage and activity of the queues; with ``cohort``, of
    everything in its tree. ``local_queues`` false: of ClusterQueues only."""

    cluster_queue: str = ""
    cohort: str = ""
    local_queues: bool = True


class FlavorUsage(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Amounts in accounting units: cpu in thousandths, everything else whole."""

    flavor: str
    resource: str
    nominal: int = 0
    reserved: int = 0
    admitted: int = 0
    borrowed: int = 0


class LocalUsage(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Of a LocalQueue whose ClusterQueue serves first who used least. ``value``: what it is
    compared by: what it had consumed at the last sampling and the penalties since, weighed, over
    its ``weight``; None: without a weight it goes last."""

    consumed: ConsumedUsage
    weight: float
    value: float | None = None


class QueueStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """``namespace`` is empty for a ClusterQueue. ``by_usage``: it serves first the LocalQueue that
    used least; ``used``: of a LocalQueue of such a one. ``weighted_share``: of a ClusterQueue where
    shares count, of what it borrows, in thousandths."""

    name: str
    namespace: str = ""
    cluster_queue: str = ""
    cohort: str = ""
    domain: str = ""
    active: bool = True
    reason: str = ""
    message: str = ""
    pending: int = 0
    parked: int = 0
    reserving: int = 0
    admitted: int = 0
    usage: tuple[FlavorUsage, ...] = ()
    by_usage: bool = False
    used: LocalUsage | None = None
    weighted_share: int | None = None


class NodeUsage(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One flavor and resource at one place of a tree. ``nominal``: its own quota; ``subtree``: that
    with what is lent by all below; ``usage``: of a cohort, what is not covered by what those below
    keep to themselves; ``borrowed``: used beyond ``subtree``; ``lendable``: what
    the parent may use of ``subtree``."""

    flavor: str
    resource: str
    nominal: int = 0
    subtree: int = 0
    usage: int = 0
    available: int = 0
    borrowed: int = 0
    lendable: int = 0
    borrowing_limit: int | None = None
    lending_limit: int | None = None


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A cohort or ClusterQueue in its tree, the root first and children behind their parent.

    ``depth``: 0 is the root. ``share``: weighted share of what it borrows, in thousandths.
    """

    name: str
    kind: str
    depth: int = 0
    parent: str = ""
    weight: float = 1.0
    share: int = 0
    in_cycle: bool = False
    pending: int = 0
    reserving: int = 0
    usage: tuple[NodeUsage, ...] = ()


class QueuesReply(Reply, frozen=True, kw_only=True):
    cluster_queues: tuple[QueueStatus, ...] = ()
    local_queues: tuple[QueueStatus, ...] = ()
    tree: tuple[NodeStatus, ...] = ()


# Runners answer. ------------------------------------------------------------------------


class Logs(Request, frozen=True, kw_only=True):
    """``admit.api.logs.<ns>``: output of the pods of a workload, from ``offsets`` on.

    Every runner hears it; only one that has the workload answers. ``pod`` None: all. ``tail``: of a
    pod without an offset only so many of its last lines; None: all.
    """

    name: str
    pod: int | None = None
    offsets: dict[str, int] = msgspec.field(default_factory=dict)
    tail: int | None = None


class PodLog(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """``pod`` is ``<pod set>-<index>``; ``offset`` is where ``text`` ends, in bytes."""

    pod: str
    text: str = ""
    offset: int = 0
    running: bool = False


class LogsReply(Reply, frozen=True, kw_only=True):
    pods: tuple[PodLog, ...] = ()
    complete: bool = True


# The retry-timer answers. ---------------------------------------------------------------


class Timers(Request, frozen=True, kw_only=True):
    """``admit.api.timers``: how the schedules stand."""


class TimersReply(Reply, frozen=True, kw_only=True):
    """``wanted``: times that workloads wait for. ``pending``: schedules that are not yet as they
    should be. ``mended``: how many were lost, wrong or nobody's, since this instance leads, and
    ``again``: how many came due without an effect and were set anew. ``compared``: when the stream
    was last read."""

    wanted: int = 0
    pending: int = 0
    mended: int = 0
    again: int = 0
    compared: datetime | None = None


# The variant-controller answers. ---------------------------------------------------------


class Families(Request, frozen=True, kw_only=True):
    """``admit.api.families``: how families stand."""


class FamiliesReply(Reply, frozen=True, kw_only=True):
    """``families``: parents that there are. ``pending``: families to be looked at, and facts whose
    effect is not seen yet; ``stuck``: those of them that were stated three times or more.
    ``stated``: how many facts, since this instance leads. ``gates_open``: in how many families a
    variant may preempt, by ClusterQueue."""

    families: int = 0
    pending: int = 0
    stuck: int = 0
    stated: int = 0
    gates_open: dict[str, int] = msgspec.field(default_factory=dict)


# Providers of capacity answer this. --------------------------------------------------------


class ProviderQuery(Request, frozen=True, kw_only=True):
    """``admit.api.provider.<class>``: what became of a request. Asked after a restart, and when
    heartbeats stopped."""

    id: str


class ProviderReply(Reply, frozen=True, kw_only=True):
    """The last status. ``status``: accepted, provisioned, failed, booking_expired or
    capacity_revoked, the words of the subjects; "": none was said yet; cancelled: it was taken
    back. ``known`` False: nobody here has heard of it. The rest as the status said it."""

    id: str = ""
    known: bool = True
    status: str = ""
    message: str = ""
    details: dict[str, str] = msgspec.field(default_factory=dict)
    pod_set_updates: tuple[PodSetUpdate, ...] = ()
    seq: int | None = None
    retryable: bool = True
    retry_after: int | None = None


# Every service answers. -----------------------------------------------------------------


class Health(Request, frozen=True, kw_only=True):
    """``admit.api.health``: every instance answers for itself."""


class HealthReply(Reply, frozen=True, kw_only=True):
    """``leads``: the domains this instance leads. ``lag``: facts not yet read."""

    service: str = ""
    instance: str = ""
    ready: bool = False
    leads: tuple[str, ...] = ()
    lag: int = 0
    details: dict[str, str] = msgspec.field(default_factory=dict)
