"""Requests and replies of the micro endpoints under ``admit.api.>``.

A request about one namespace goes to ``admit.api.<what>.<ns>``, a request about all namespaces to
``admit.api.<what>``. Every reply is JSON; a failure is a reply with ``error`` set and the micro
error headers."""

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
from admittance.events.shapes import (
    ConsumedUsage,
    Finding,
    PodLog,
    PodRetries,
    PodSetUpdate,
    PreemptedBy,
    Shortfall,
)


class Request(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A request to a service; a field that the service does not know is ignored."""


class Reply(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A reply of a service. ``error``: one sentence about the failure; empty on success."""

    error: str = ""


# Answered by the workload-controller. --------------------------------------------------


class Events(Request, frozen=True, kw_only=True):
    """``admit.api.events[.<ns>]``: history from the log, oldest first.

    ``workload`` selects one name in the namespace of the subject, ``also`` further names, such as a
    parent's variants; ``family``: also the parent and the variants of the workload that exist now.
    ``after``: the reply has only log entries after this sequence; ``since``: only log entries from
    this time on. The reply has at most ``limit`` log entries."""

    workload: str = ""
    also: tuple[str, ...] = ()
    family: bool = False
    after: int = 0
    since: datetime | None = None
    limit: int = 500


class LogEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A message of the log. ``trace``: the message's W3C traceparent. ``outcome``, ``reason``,
    ``message``: as in `SettledReply`; all "" if the fact was applied, or if the workload-controller
    does not remember its outcome."""

    sequence: int
    time: datetime
    subject: str
    data: msgspec.Raw
    trace: str = ""
    outcome: str = ""
    reason: str = ""
    message: str = ""


class EventsReply(Reply, frozen=True, kw_only=True):
    """``complete``: false if the log may have more entries after the sequence ``after``, up to
    which this reply covers the log; the reply may have no entries. ``compacted_until``: facts about
    workloads from before this time were removed from the log to keep it small; None: none were."""

    entries: tuple[LogEntry, ...] = ()
    complete: bool = True
    after: int = 0
    compacted_until: datetime | None = None

    def covered(self) -> int:
        """The sequence after which the next request continues."""
        return max(self.after, self.entries[-1].sequence if self.entries else 0)


# Answered by the scheduler. -------------------------------------------------------------


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
    ``checks``: checks that the workload's reservation waits for. ``unblocked_by``: sentences that
    say what would unblock the workload. ``variants``: the variants of a parent, the best first; a
    parent has no flavors. ``parent``: the parent of a variant."""

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


class PendingQuery(Request, frozen=True, kw_only=True):
    """``admit.api.pending[.<ns>]``: pending workloads in order; at most ``limit``, after the first
    ``skip``. ``others``: the reply about a LocalQueue of the namespace, or about a ClusterQueue
    with such a LocalQueue, has all pending workloads of the ClusterQueue; the rows of other
    namespaces have a name, requests, a priority and a position only."""

    local_queue: str = ""
    cluster_queue: str = ""
    limit: int = 1000
    skip: int = 0
    others: bool = False


class PendingRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A pending workload.

    ``position``: place in the ClusterQueue, from 1; 0: the LocalQueue has no ClusterQueue.
    ``waiting_since``: the time that orders the workload in the queue. ``flavors``: the flavors
    tried for the workload. ``requests``: what all pods request, in accounting units by resource."""

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
    requests: dict[str, int] = msgspec.field(default_factory=dict)


class PendingReply(Reply, frozen=True, kw_only=True):
    rows: tuple[PendingRow, ...] = ()
    total: int = 0


class Queues(Request, frozen=True, kw_only=True):
    """``admit.api.queues[.<ns>]``: counters, usage and activity of the queues; with ``cohort``, of
    every queue in its tree. ``local_queues`` false: the reply has only ClusterQueues."""

    cluster_queue: str = ""
    cohort: str = ""
    local_queues: bool = True


class FlavorUsage(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Usage of one flavor and resource. Amounts are in accounting units: cpu in thousandths,
    everything else in whole units."""

    flavor: str
    resource: str
    nominal: int = 0
    reserved: int = 0
    admitted: int = 0
    borrowed: int = 0


class LocalUsage(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Usage of a LocalQueue in a ClusterQueue that orders by usage, the least first. ``value``: the
    weighted consumption at the last sampling plus the penalties since then, divided by ``weight``;
    None: the LocalQueue has no weight and goes last."""

    consumed: ConsumedUsage
    weight: float
    value: float | None = None


class QueueStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """``namespace`` is empty for a ClusterQueue. ``by_usage``: the ClusterQueue serves the
    LocalQueue with the least usage first; ``used``: the usage of a LocalQueue in such a
    ClusterQueue. ``weighted_share``: with fair sharing, the ClusterQueue's share of borrowed quota,
    in thousandths."""

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
    """Quota and usage of one flavor and resource at one node of a cohort tree. ``nominal``: the
    node's own quota; ``subtree``: that quota plus what all nodes below lend; ``usage``: for a
    cohort, usage that its children do not cover with the quota that they do not lend; ``borrowed``:
    usage beyond ``subtree``; ``lendable``: the part of ``subtree`` that the parent may use."""

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

    ``depth``: the node's depth in the tree, with 0 for the root. ``share``: the node's weighted
    share of borrowed quota, in thousandths."""

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


# Answered by runners. -------------------------------------------------------------------


class Logs(Request, frozen=True, kw_only=True):
    """``admit.api.logs.<ns>``: output of the pods of a workload, from ``offsets`` on.

    Every runner receives this request; only a runner that has the workload answers. ``pod`` None:
    all pods. ``tail``: number of last lines for a pod without an offset; None: all lines.
    ``before``: selects the newest run with an admission below this revision; 0: the newest run.
    ``revision``, ``part``: selects a part of the job of the admission at this revision; 0: any."""

    name: str
    pod: int | None = None
    offsets: dict[str, int] = msgspec.field(default_factory=dict)
    tail: int | None = None
    before: int = 0
    revision: int = 0
    part: int = 0


class LogsReply(Reply, frozen=True, kw_only=True):
    """``revision``: revision of the admission with which the run began. ``waiting``: why the runner
    has not started the run yet. ``retries``: the failed pods of a run that goes on; None: none.
    ``part``: which part of a job on several machines the pods are; ``parts``: how many it has, each
    of which its runner answers for; 0: the run is the whole job. ``missing``: which parts have no
    answer, set by the program that asks for all parts."""

    pods: tuple[PodLog, ...] = ()
    complete: bool = True
    revision: int = 0
    waiting: str = ""
    retries: PodRetries | None = None
    part: int = 0
    parts: int = 0
    missing: str = ""


# Answered by the retry-timer. -----------------------------------------------------------


class Timers(Request, frozen=True, kw_only=True):
    """``admit.api.timers``: the state of the schedules."""


class TimersReply(Reply, frozen=True, kw_only=True):
    """``wanted``: times that workloads wait for. ``pending``: schedules that are not up to date.
    Counted since this instance leads: ``mended`` schedules that were lost, wrong or without a
    workload, and ``again``, schedules that came due without an effect and were set again.
    ``compared``: when the schedules were last compared with the stream."""

    wanted: int = 0
    pending: int = 0
    mended: int = 0
    again: int = 0
    compared: datetime | None = None


# Answered by the variant-controller. -----------------------------------------------------


class Families(Request, frozen=True, kw_only=True):
    """``admit.api.families``: the state of the families."""


class FamiliesReply(Reply, frozen=True, kw_only=True):
    """``families``: number of parents. ``pending``: number of families to be reconciled, and of
    published facts without an effect so far; ``stuck``: number of facts published three times or
    more without an effect. ``stated``: number of facts published since this instance leads.
    ``gates_open``: families in which a variant may preempt, by ClusterQueue."""

    families: int = 0
    pending: int = 0
    stuck: int = 0
    stated: int = 0
    gates_open: dict[str, int] = msgspec.field(default_factory=dict)


# Answered by providers of capacity. --------------------------------------------------------


class ProviderQuery(Request, frozen=True, kw_only=True):
    """``admit.api.provider.<class>``: requests the status of a request for capacity. Sent after a
    restart, and when the provider's heartbeats stop."""

    id: str


class ProviderReply(Reply, frozen=True, kw_only=True):
    """The last status of a request for capacity. ``status``: accepted, provisioned, failed,
    booking_expired or capacity_revoked, as in the subjects; "": no status yet; cancelled: the
    request was withdrawn. ``known`` False: the provider does not know the request. All other fields
    are those of the status fact."""

    id: str = ""
    known: bool = True
    status: str = ""
    message: str = ""
    details: dict[str, str] = msgspec.field(default_factory=dict)
    pod_set_updates: tuple[PodSetUpdate, ...] = ()
    seq: int | None = None
    retryable: bool = True
    retry_after: int | None = None


# Answered by every service. -------------------------------------------------------------


class Health(Request, frozen=True, kw_only=True):
    """``admit.api.health``: the state of each instance; every instance answers."""


class HealthReply(Reply, frozen=True, kw_only=True):
    """``leads``: the domains that this instance leads. ``lag``: number of facts that this instance
    has not read yet. ``denied``: ``publish SUBJECT`` and ``subscribe SUBJECT`` that the server
    refused lately, in lower case. ``user``: the user in the service's credentials file; "": none.
    ``time``: by the clock of the machine. ``replicas``: how many replicas the service asks for in
    each stream; 0: it makes no streams. ``findings``: what the process found out about itself."""

    service: str = ""
    instance: str = ""
    ready: bool = False
    leads: tuple[str, ...] = ()
    lag: int = 0
    details: dict[str, str] = msgspec.field(default_factory=dict)
    denied: tuple[str, ...] = ()
    user: str = ""
    time: datetime | None = None
    replicas: int = 0
    findings: tuple[Finding, ...] = ()


class Apply(Request, frozen=True, kw_only=True):
    """``admit.api.apply[.<ns>]``: applies all of these manifests, or none. The manifests are JSON
    objects, as bytes."""

    objects: tuple[msgspec.Raw, ...]


class Applied(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The result for one manifest, of which ``outcome`` is created, changed or unchanged."""

    kind: str
    namespace: str = ""
    name: str
    outcome: str
    revision: int = 0
    warnings: tuple[str, ...] = ()


class ApplyReply(Reply, frozen=True, kw_only=True):
    """On an error nothing was applied; ``problems`` has a line for each mistake."""

    results: tuple[Applied, ...] = ()
    problems: tuple[str, ...] = ()


class Delete(Request, frozen=True, kw_only=True):
    """``admit.api.delete[.<ns>]``: deletes an object other than a workload. ``stored``: the key of
    the bucket whose value is deleted, instead of the object that the other fields name; only
    without a namespace in the subject. ``kind`` ``runner``: the consumer and the announcement of a
    runner that is gone, named by either; also only without a namespace."""

    kind: str
    namespace: str = ""
    name: str
    stored: str = ""


class DeleteReply(Reply, frozen=True, kw_only=True):
    """``outcome``: what the deletion did: deleted, absent or deferred. Deferred: the object is in
    use by the objects that ``error`` names; it is marked, and deleted once no object uses it."""

    outcome: str = ""


class Settled(Request, frozen=True, kw_only=True):
    """``admit.api.settled[.<ns>]``: answered once every fact up to ``sequence`` has had its effect.
    With a namespace, the reply has no outcome if the fact is about another namespace."""

    sequence: int


class SettledReply(Reply, frozen=True, kw_only=True):
    """The outcome of the fact at ``sequence``: applied, ignored (it changed nothing), refused or
    dead-lettered, with ``reason`` and ``message``; "" if the fact is too old."""

    outcome: str = ""
    reason: str = ""
    message: str = ""
