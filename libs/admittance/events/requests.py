"""Requests and replies of the micro endpoints under ``admit.api.>``.

A request within one namespace goes to ``admit.api.<what>.<ns>``; without the last token it spans
all namespaces. Every reply is JSON; a failure is a reply with ``error`` set and the micro error
headers.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from admittance.events.explanation import (
    Ahead,
    Holder,
    OpenCheck,
    Outlook,
    PreemptionVictim,
    Protection,
    Room,
)
from admittance.events.shapes import ConsumedUsage, PodSetUpdate, PreemptedBy, Shortfall


class Request(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A request. Unknown fields are tolerated."""


class Reply(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A reply. ``error`` is one sentence for people; empty on success."""

    error: str = ""


# Answered by the workload-controller. --------------------------------------------------


class Events(Request, frozen=True, kw_only=True):
    """``admit.api.events[.<ns>]``: history from the log, oldest first.

    ``workload`` selects one name in the namespace of the subject, ``also`` further names, such as a
    parent's variants. ``after``: only entries after this sequence; ``since``: only from this time.
    At most ``limit`` entries come back.
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
    """How one flavor suits one pod set; ``flavor`` is empty for a resource without any flavor.

    ``fits``, or the reason against it. ``outcome``: Fits, Preempts, NoCandidates, NoFit,
    Ineligible. ``rooms``: per resource. ``victims``: workloads that this flavor alone would
    preempt; ``barriers``: policies that protect workloads, once per flavor and resource.
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
    victims: tuple[PreemptionVictim, ...] = ()
    victims_left_out: int = 0
    barriers: tuple[Protection, ...] = ()


class VariantVerdict(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One variant of a parent. ``variant``: a flavor, or the name of an explicit variant.

    ``active`` and ``why`` (an `ActivityReason`): what the policy wants of it now.
    ``admitted``: the parent uses its admission. ``gate``: Open or Closed; it may preempt only when
    Open. ``set_aside``: a sentence why an active variant is not tried: a better sibling goes first,
    or the family's job still stops. ``explained``: as for any workload.
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

    ``ahead``: the first workloads before it; ``waiting_since``: the time that orders it in the
    queue. ``outlook``: what the next cycle would decide. ``holders``: the workloads named in
    ``held_by``. ``waits_for``: workloads being preempted for it. ``preempted_by``: the workload
    that took its quota. ``checks``: checks that its reservation waits for. ``unblocked_by``:
    sentences that say what would unblock it. ``variants``: of a parent, the best first; a parent
    has no flavors of its own. ``parent``: the parent of a variant.
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
    variants: tuple[VariantVerdict, ...] = ()
    parent: str = ""
    seen: int = 0


class Fit(Request, frozen=True, kw_only=True):
    """``admit.api.fit.<ns>``: whether a workload that is not submitted could ever start in its
    present queue. ``workload``: its manifest."""

    workload: msgspec.Raw


class FitReply(Reply, frozen=True, kw_only=True):
    """``fits`` false: its ClusterQueue could not hold it even if empty, for ``reason``
    (ExceedsMaxQuota, NoMatchingFlavor, NoSuchQueue); ``message`` has the nominal quota and the
    borrowing limit. ``seen``: the newest revision of the bucket known to the scheduler."""

    fits: bool = True
    reason: str = ""
    message: str = ""
    local_queue: str = ""
    cluster_queue: str = ""
    seen: int = 0


class PendingQuery(Request, frozen=True, kw_only=True):
    """``admit.api.pending[.<ns>]``: pending workloads in order; at most ``limit``, after the first
    ``skip``."""

    local_queue: str = ""
    cluster_queue: str = ""
    limit: int = 1000
    skip: int = 0


class PendingRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """``position``: in the ClusterQueue, from 1; 0: its LocalQueue has no ClusterQueue.

    ``waiting_since``: the time that orders it in the queue. ``flavors``: the flavors tried for it.
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
    """``admit.api.queues[.<ns>]``: counters, usage and activity of the queues; with ``cohort``,
    of every queue in its tree. ``local_queues`` false: only ClusterQueues."""

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
    """Usage of a LocalQueue in a ClusterQueue that orders by usage, the least first. ``value``: the
    weighed consumption at the last sampling plus the penalties since, over ``weight``; None: no
    weight, so it goes last."""

    consumed: ConsumedUsage
    weight: float
    value: float | None = None


class QueueStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """``namespace`` is empty for a ClusterQueue. ``by_usage``: it serves the LocalQueue with the
    least usage first; ``used``: the usage of such a LocalQueue. ``weighted_share``: with fair
    sharing, the ClusterQueue's share of borrowed quota, in thousandths."""

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
    """One flavor and resource at one node of a tree. ``nominal``: its own quota; ``subtree``: its
    quota plus what all nodes below lend; ``usage``: for a cohort, usage that its children do not
    cover with the quota that they do not lend; ``borrowed``: usage beyond ``subtree``;
    ``lendable``: the part of ``subtree`` that the parent may use."""

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
    """A cohort or ClusterQueue in its tree, the root first and children after their parent.

    ``depth``: 0 is the root. ``share``: its weighted share of borrowed quota, in thousandths.
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

    Every runner receives it; only a runner that has the workload answers. ``pod`` None: all.
    ``tail``: for a pod without an offset, only its last lines; None: all. ``before``: of the newest
    run with a smaller revision of its admission; 0: of the newest run.
    """

    name: str
    pod: int | None = None
    offsets: dict[str, int] = msgspec.field(default_factory=dict)
    tail: int | None = None
    before: int = 0


class PodLog(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """``pod`` is ``<pod set>-<index>``; ``offset`` is where ``text`` ends, in bytes."""

    pod: str
    text: str = ""
    offset: int = 0
    running: bool = False


class LogsReply(Reply, frozen=True, kw_only=True):
    """``revision``: of the admission of the run."""

    pods: tuple[PodLog, ...] = ()
    complete: bool = True
    revision: int = 0


# The retry-timer answers. ---------------------------------------------------------------


class Timers(Request, frozen=True, kw_only=True):
    """``admit.api.timers``: how the schedules stand."""


class TimersReply(Reply, frozen=True, kw_only=True):
    """``wanted``: times that workloads wait for. ``pending``: schedules that are not up to date.
    Since this instance leads: ``mended`` schedules were lost, wrong or without a workload, and
    ``again`` came due without an effect and were set again. ``compared``: when the stream was last
    read."""

    wanted: int = 0
    pending: int = 0
    mended: int = 0
    again: int = 0
    compared: datetime | None = None


# The variant-controller answers. ---------------------------------------------------------


class Families(Request, frozen=True, kw_only=True):
    """``admit.api.families``: how families stand."""


class FamiliesReply(Reply, frozen=True, kw_only=True):
    """``families``: number of parents. ``pending``: families to be reconciled, and facts without
    an effect so far; ``stuck``: facts published three times or more without an effect.
    ``stated``: facts published since this instance leads. ``gates_open``: families in which a
    variant may preempt, by ClusterQueue."""

    families: int = 0
    pending: int = 0
    stuck: int = 0
    stated: int = 0
    gates_open: dict[str, int] = msgspec.field(default_factory=dict)


# Providers of capacity answer this. --------------------------------------------------------


class ProviderQuery(Request, frozen=True, kw_only=True):
    """``admit.api.provider.<class>``: the status of a request. Sent after a restart, and when
    heartbeats stop."""

    id: str


class ProviderReply(Reply, frozen=True, kw_only=True):
    """The last status. ``status``: accepted, provisioned, failed, booking_expired or
    capacity_revoked, as in the subjects; "": no status yet; cancelled: the request was withdrawn.
    ``known`` False: the request is unknown. The other fields are those of the status."""

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


class Apply(Request, frozen=True, kw_only=True):
    """``admit.api.apply[.<ns>]``: all of these manifests, or none. JSON objects, as bytes."""

    objects: tuple[msgspec.Raw, ...]


class Applied(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """``outcome``: created, changed or unchanged."""

    kind: str
    namespace: str = ""
    name: str
    outcome: str
    revision: int = 0
    warnings: tuple[str, ...] = ()


class ApplyReply(Reply, frozen=True, kw_only=True):
    """On an error nothing was applied; ``problems`` lists everything wrong, a line each."""

    results: tuple[Applied, ...] = ()
    problems: tuple[str, ...] = ()


class Delete(Request, frozen=True, kw_only=True):
    """``admit.api.delete[.<ns>]``: delete an object other than a workload."""

    kind: str
    namespace: str = ""
    name: str


class DeleteReply(Reply, frozen=True, kw_only=True):
    """``outcome``: deleted, absent, or deferred: the object is still in use (``error`` names the
    users), is marked, and is deleted once nothing uses it."""

    outcome: str = ""


class Settled(Request, frozen=True, kw_only=True):
    """``admit.api.settled``: answered once every fact up to ``sequence`` has had its effect."""

    sequence: int


class SettledReply(Reply, frozen=True, kw_only=True):
    """The outcome of the fact at ``sequence``: applied, ignored (it changed nothing), refused or
    dead-lettered, with ``reason`` and ``message``; "" when the fact is too old."""

    outcome: str = ""
    reason: str = ""
    message: str = ""
