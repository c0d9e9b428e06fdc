"""What the scheduler answers about queues: pending workloads in order, counters and usage."""

from __future__ import annotations

from datetime import datetime

import msgspec

from admittance.events.requests.base import Reply, Request
from admittance.events.shapes import ConsumedUsage


class PendingQuery(Request, frozen=True, kw_only=True):
    """``admit.api.pending[.<ns>]``: pending workloads in order; at most ``limit``, after the first
    ``skip``. ``others``: the reply about a LocalQueue of the namespace, or about a ClusterQueue
    with such a LocalQueue, has all pending workloads of the ClusterQueue; the rows of other
    namespaces have a name, requests, a priority and a position only. ``user``: only workloads that
    this user submitted; "": of all. ``holding``: the reply also has the first so many of the
    selected workloads that hold quota, those that hold it longest first. ``first_elements``: of the
    elements of an array the reply has only the first that is pending, and the first that holds
    quota; goes with ``skip`` 0 only. ``states``: the reply has rows of workloads in these states:
    ``Pending``, ``QuotaReserved`` and ``Held``; empty: Pending. ``reasons``: only rows with one of
    these reasons; empty: all. With ``states`` or ``reasons`` the reply has no rows of other
    namespaces. ``counts``: the reply also has `PendingCount`s."""

    local_queue: str = ""
    cluster_queue: str = ""
    limit: int = 1000
    skip: int = 0
    others: bool = False
    user: str = ""
    holding: int = 0
    first_elements: bool = False
    states: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    counts: bool = False


class RowShortfall(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How much of a resource a pending workload requested in a flavor, and how much of it was
    available, in accounting units."""

    flavor: str
    resource: str
    requested: int
    available: int


class PendingRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A pending workload.

    ``position``: place in the ClusterQueue, from 1; 0: the workload has no place, because its
    LocalQueue has no ClusterQueue, or because of its ``state``: QuotaReserved or Held; "" is
    Pending. ``waiting_since``: the time that orders the workload in the queue, and the time of the
    reservation for QuotaReserved. ``requeue_at``: the end of its backoff. ``flavors``: the flavors
    tried for the workload; ``shortfalls``: what it lacked there. ``requests``: what all pods
    request, in accounting units by resource. ``user``: the user that submitted the workload;
    ``array``: the array of which it is an element.
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
    requests: dict[str, int] = msgspec.field(default_factory=dict)
    user: str = ""
    array: str = ""
    state: str = ""
    shortfalls: tuple[RowShortfall, ...] = ()
    requeue_at: datetime | None = None


class PendingCount(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How many workloads are in a state for a reason, of those that the query selects without its
    ``states`` and ``reasons``."""

    state: str
    reason: str
    count: int


class HoldingRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A workload that holds quota of ``cluster_queue`` since ``reserved_at``, in the state
    QuotaReserved, Admitted or Evicting. ``flavors``: of its admission. The other fields are as
    those of `PendingRow`."""

    namespace: str
    name: str
    cluster_queue: str
    local_queue: str
    state: str
    priority: int = 0
    reserved_at: datetime | None = None
    flavors: tuple[str, ...] = ()
    requests: dict[str, int] = msgspec.field(default_factory=dict)
    user: str = ""
    array: str = ""


class PendingReply(Reply, frozen=True, kw_only=True):
    """``total``: how many workloads the query selects; ``holding_total``: how many hold quota, if
    the query asks for them; ``counts``: if the query asks for them, the largest first."""

    rows: tuple[PendingRow, ...] = ()
    total: int = 0
    holding: tuple[HoldingRow, ...] = ()
    holding_total: int = 0
    counts: tuple[PendingCount, ...] = ()


class LastDayQuery(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Asks for the last 24 hours of ClusterQueues and cohorts, together at most 500. ``resource``:
    the one of which the reply has the amounts in use."""

    resource: str
    cluster_queues: tuple[str, ...] = ()
    cohorts: tuple[str, ...] = ()


class Queues(Request, frozen=True, kw_only=True):
    """``admit.api.queues[.<ns>]``: counters, usage and activity of the queues; with ``cohort``, of
    every queue in its tree. ``local_queues`` false: the reply has only ClusterQueues. With
    ``last_day`` the reply has only the last 24 hours."""

    cluster_queue: str = ""
    cohort: str = ""
    local_queues: bool = True
    last_day: LastDayQuery | None = None


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


class PersonUsage(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How much quota of a queue a user holds, and the most that the user may hold. ``label``: the
    key of a label; ``person`` is a value of it then, in place of a user. A ``person`` of "" without
    a label: all workloads without a user. Amounts are in accounting units."""

    person: str
    resource: str
    label: str = ""
    held: int = 0
    most: int = 0


class UserUsage(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Usage of a user in a ClusterQueue that orders by the usage of users. A ``user`` of "": all
    workloads without a user."""

    user: str
    used: LocalUsage


class QueueStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """``namespace`` is empty for a ClusterQueue. ``by_usage``: the ClusterQueue serves the
    LocalQueue with the least usage first; ``used``: the usage of a LocalQueue in such a
    ClusterQueue. ``weighted_share``: with fair sharing, the ClusterQueue's share of borrowed quota,
    in thousandths. ``persons``: the users and values of labels that hold quota of the queue, if it
    limits what each of them may hold. ``by_user``: the ClusterQueue serves the user with the least
    usage first; ``users``: these usages. Of a ClusterQueue ``persons`` and ``users`` are only in
    answers about all namespaces."""

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
    persons: tuple[PersonUsage, ...] = ()
    by_user: bool = False
    users: tuple[UserUsage, ...] = ()


class NodeUsage(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Quota and usage of one flavor and resource at one node of a cohort tree. ``nominal``: the
    node's own quota; ``subtree``: that quota plus what all nodes below lend; ``usage``: for a
    cohort, usage that its children do not cover with the quota that they do not lend; ``borrowed``:
    usage beyond ``subtree``; ``lendable``: the part of ``subtree`` that the parent may use.

    Sums over the node and all nodes below: ``total``: the nominal quota; ``used``: what workloads
    hold; ``admitted``: the part of admitted workloads; ``reserved``: the other part; ``lent``: the
    part of the nominal quota of queues that others use."""

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
    total: int = 0
    used: int = 0
    reserved: int = 0
    admitted: int = 0
    lent: int = 0


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A cohort or ClusterQueue in its tree, the root first and children after their parent.

    ``depth``: the node's depth in the tree, with 0 for the root. ``share``: the node's weighted
    share of borrowed quota, in thousandths. ``pending``, ``reserving``, ``running``: how many
    workloads wait, hold quota and are admitted, in the node and all nodes below."""

    name: str
    kind: str
    depth: int = 0
    parent: str = ""
    weight: float = 1.0
    share: int = 0
    in_cycle: bool = False
    pending: int = 0
    reserving: int = 0
    running: int = 0
    usage: tuple[NodeUsage, ...] = ()


class DayOfNode(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A ClusterQueue or cohort in 48 half hours, the oldest first; the last one is the present one
    up to now. ``waiting``: the mean number of workloads that waited, rounded up to a tenth;
    ``used``: the mean amount of the resource that workloads held, rounded up to an accounting unit;
    of a cohort the sum of all ClusterQueues that are below it now. None: it was not counted."""

    name: str
    waiting: tuple[float | None, ...] = ()
    used: tuple[int | None, ...] = ()


class LastDay(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The last 24 hours as the scheduler that answers has counted them since its start. ``begin``:
    when the first half hour began; None: nothing is counted yet. What does not exist is left
    out."""

    begin: datetime | None = None
    cluster_queues: tuple[DayOfNode, ...] = ()
    cohorts: tuple[DayOfNode, ...] = ()


class QueuesReply(Reply, frozen=True, kw_only=True):
    cluster_queues: tuple[QueueStatus, ...] = ()
    local_queues: tuple[QueueStatus, ...] = ()
    tree: tuple[NodeStatus, ...] = ()
    last_day: LastDay | None = None
