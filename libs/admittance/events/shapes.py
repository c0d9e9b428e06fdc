"""Parts of facts, replies and of the stored workload: admissions, updates, refusals, findings.

The parts have Kueue's shapes where Kueue has them (``status.admission``), and are the same on the
log, in the bucket and in the command.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import Meta

from admittance.events.base import Shape, check_length, null
from admittance.events.placement import PlacementPart

CHECK_STATES: Final = ("Pending", "Ready", "Retry", "Rejected")
DELAY_MAX: Final = 2**31 - 1
"""The longest delay, in seconds, that one verdict of a check may request."""

CheckStateWord: TypeAlias = Annotated[str, Meta(extra_json_schema={"enum": list(CHECK_STATES)})]
_SPAN: Final = r"(?:(?:[0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})(?:ns|us|µs|ms|s|m|h))+"
_DELAY: Final[dict[str, Any]] = {
    "minimum": 0,
    "maximum": DELAY_MAX,
    "pattern": rf"^\+?(?:0|{_SPAN})$",
}
Delay: TypeAlias = Annotated[int | float | str, Meta(extra_json_schema=_DELAY)]
"""A number of seconds, or a duration like 8m0s. Not checked while decoding: a fact with any other
value is refused later, with a reason.
"""


class PodSetAssignment(Shape, frozen=True, kw_only=True):
    """The quota assigned to one pod set. ``flavors``: resource to flavor. ``resourceUsage``:
    resource to the total quantity over all ``count`` pods, as Kubernetes writes it (``"1500m"``,
    ``"2Gi"``).
    """

    name: str
    flavors: dict[str, str] = msgspec.field(default_factory=dict)
    resource_usage: dict[str, str] = msgspec.field(default_factory=dict)
    count: int = 0


class Admission(Shape, frozen=True, kw_only=True):
    """Where the workload's quota is booked: queue, flavors and amounts. An admission is set and
    cleared as a whole, never edited.
    """

    cluster_queue: str
    pod_set_assignments: tuple[PodSetAssignment, ...] = ()


class PodSetUpdate(Shape, frozen=True, kw_only=True):
    """What a check adds to the pods of one pod set before the pods start. An update cannot replace
    or remove a value.
    """

    name: str
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    tolerations: tuple[dict[str, Any], ...] = ()


class PodSetToRun(Shape, frozen=True, kw_only=True):
    """One pod set of an admitted workload, ready for a runner.

    ``template`` is the pod template as submitted; labels, annotations, nodeSelector and tolerations
    are what flavors and checks add to the template. ``completions``: how many pods must succeed to
    end the pod set; 0 means ``count``. ``parts``: which pods which runners start; empty: any runner
    may start the workload.
    """

    name: str
    count: int
    completions: int = 0
    flavors: dict[str, str] = msgspec.field(default_factory=dict)
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    tolerations: tuple[dict[str, Any], ...] = ()
    template: msgspec.Raw = msgspec.field(default_factory=null)
    parts: tuple[PlacementPart, ...] = ()


class PodSetToProvision(Shape, frozen=True, kw_only=True):
    """Pods that need capacity. ``names``: the pod sets that are requested together; ``name`` is the
    first of them. ``template``: the pod template with the additions of its flavors.
    """

    name: str
    count: int
    names: tuple[str, ...] = ()
    template: msgspec.Raw = msgspec.field(default_factory=null)


class Shortfall(Shape, frozen=True, kw_only=True):
    """How much of one resource is missing in one flavor, in accounting units: cpu in thousandths,
    everything else in whole units. ``limit`` names the limit that the workload would exceed.
    """

    pod_set: str
    flavor: str
    resource: str
    requested: int
    available: int
    reason: str
    message: str = ""


class Refusal(Shape, frozen=True, kw_only=True):
    """Why a workload cannot have quota now: a stable reason, a sentence, and the numbers."""

    reason: str
    message: str
    shortfalls: tuple[Shortfall, ...] = ()


class Taken(Shape, frozen=True, kw_only=True):
    """The amount taken or requested of one flavor and resource, in accounting units. ``available``:
    the amount that was available just before, with what victims give back. ``borrowed``: how much
    the ClusterQueue uses above its nominal quota once the amount is taken; 0 without a cohort.
    """

    flavor: str
    resource: str
    amount: int
    available: int = 0
    borrowed: int = 0


class Shares(Shape, frozen=True, kw_only=True):
    """Weighted shares that were compared, in thousandths of the lendable quota; a queue without a
    weight has the largest 64-bit number. ``after``: the share of the victim's queue without the
    victim, if the ``strategy`` compares that share.
    """

    strategy: str
    preemptor: float = 0.0
    victim: float = 0.0
    after: float | None = None


class Grounds(Shape, frozen=True, kw_only=True):
    """The numbers of a preemption: ClusterQueue and priority of the victim and (``by_``) of the
    preemptor, the policy of the preemptor's ClusterQueue that allows it, as ``withinClusterQueue:
    LowerPriority``, with the policy's ``threshold``, if any; and the amounts that the preemptor
    requests and that are ``short``.
    """

    cluster_queue: str = ""
    priority: int = 0
    by_cluster_queue: str = ""
    by_priority: int = 0
    policy: str = ""
    threshold: int | None = None
    shares: Shares | None = None
    short: tuple[Taken, ...] = ()


class HandedOn(Shape, frozen=True, kw_only=True):
    """A workload at ``revision`` that has only a reservation; the reserved quota passes to the
    preemptor in the same commit. ``reason``: the rule of the preemption. ``times``: how often the
    workload has lost quota to the same preemptor, including this time.
    """

    namespace: str
    name: str
    uid: str
    revision: int
    reason: str
    message: str = ""
    grounds: Grounds | None = None
    times: int = 0


class PlannedVictim(Shape, frozen=True, kw_only=True):
    """A workload to be preempted under the rule ``reason``. ``since``: when the workload got its
    quota. A workload that lost that quota and got quota again later is not a victim any more.
    """

    namespace: str
    name: str
    uid: str
    since: datetime | None = None
    reason: str = ""


class PendingPreemption(Shape, frozen=True, kw_only=True):
    """The workloads to be preempted before a reservation can be admitted. ``issued``: preemption
    has begun; else it begins when the checks with a deferring ``preemptionPolicy`` have passed.
    """

    victims: tuple[PlannedVictim, ...] = ()
    issued: bool = False


class Head(Shape, frozen=True, kw_only=True):
    """A workload (``namespace/name``) that a cycle considered. ``cursor``: where the scan of
    flavors began: per pod set, for each resource group the flavor before the first one scanned;
    empty: the scan began at the first flavor.
    """

    name: str
    cursor: tuple[dict[int, int], ...] = ()


class PromisedStart(Shape, frozen=True, kw_only=True):
    """The start that backfill promises to ``head`` (``namespace/name``), a workload that waits in
    ``clusterQueue``: at which time, and with which amounts. ``certain``: no workload of another
    ClusterQueue can delay the start.
    """

    head: str
    cluster_queue: str
    at: datetime
    amounts: tuple[Taken, ...] = ()
    certain: bool = False


class Scan(Shape, frozen=True, kw_only=True):
    """Inputs of a decision besides the scheduler's state, which a replay of the decision needs.

    ``cursor``: cursor of the considered head. ``heads``: the heads that earlier in the same cycle
    changed the scheduler's state without a published fact. ``lost``: there were too many such heads
    to list. ``seen``, ``at``, ``head``: for a refusal, the newest revision and the time when the
    workload was considered, and the equal workload considered in its place; otherwise these are the
    values of the fact. ``usages``: if preemption compared usages of LocalQueues, the compared
    usages, without LocalQueues that have no usage or no weight. ``promise``: the promise of a start
    that the cycle kept; None: it kept none. In a refusal because of the promise, ``heads`` are the
    heads that were decided earlier in the same cycle.
    """

    cursor: tuple[dict[int, int], ...] = ()
    heads: tuple[Head, ...] = ()
    lost: bool = False
    seen: int = 0
    at: datetime | None = None
    head: str = ""
    usages: dict[str, float] = msgspec.field(default_factory=dict)
    promise: PromisedStart | None = None


class PreemptedBy(Shape, frozen=True, kw_only=True):
    """The preemptor (``namespace/name``) that last took a workload's quota, with the rule and the
    numbers. The workload's next reservation of quota clears this record. ``submitted_by``: the user
    that submitted the preemptor; "": unknown.
    """

    by: str = ""
    by_uid: str = ""
    rule: str = ""
    at: datetime | None = None
    grounds: Grounds | None = None
    submitted_by: str = ""


class EvictedJob(Shape, frozen=True, kw_only=True):
    """The job that an eviction stops: the revision of its admission, and the ids of the runners
    that it was assigned to, one for each part; empty: any runner may have started it. The revision
    0: no runner has a job to stop.
    """

    revision: int = 0
    runners: tuple[str, ...] = ()


class ConsumedUsage(Shape, frozen=True, kw_only=True):
    """What a LocalQueue has consumed, decayed by age, at ``last_update``: quantities by resource.
    The form is Kueue's ``status.fairSharing.admissionFairSharingStatus``; the bucket has such a
    value for each LocalQueue, under a key that begins with ``_usage``.
    """

    consumed_resources: dict[str, str] = msgspec.field(default_factory=dict)
    last_update: datetime


def updates_of(given: Sequence[PodSetUpdate | Mapping[str, Any]]) -> tuple[PodSetUpdate, ...]:
    """Returns ``pod_set_updates`` all as `PodSetUpdate`. Raises ValueError for an update that is
    not valid.
    """
    what = "pod_set_updates"
    try:
        updates = tuple(
            update if isinstance(update, PodSetUpdate) else msgspec.convert(update, PodSetUpdate)
            for update in given
        )
    except (TypeError, msgspec.ValidationError) as error:
        raise ValueError(f"an update in {what} is not valid: {error}") from None
    check_length(what, updates)
    return updates


class Finding(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One line of `admit doctor`. ``state``: the result of the check: ok, note or wrong. ``what``:
    the thing that was checked; ``found``: what was seen; ``todo``: what to do about it, empty if
    nothing. ``since``: since when, where that is known. ``last_answer_at``: of a check controller,
    when it last reported a verdict.
    """

    state: str
    what: str
    found: str
    todo: str = ""
    since: datetime | None = None
    last_answer_at: datetime | None = None


class PodRetry(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A pod that failed and runs again ``at`` that time. ``left``: how often it may fail again
    without ending its index or its job; None: any number of times."""

    pod: str
    at: datetime
    left: int | None = None


class PodRetries(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The failed pods of a run. ``failed``: how many pods, or containers that start again in their
    pods, have failed. ``given_up``: how many indexes have failed for good. ``waiting``: how many
    pods wait for their next start; ``pods``: the first of them. ``message``: the last failure."""

    failed: int
    given_up: int = 0
    waiting: int = 0
    pods: tuple[PodRetry, ...] = ()
    message: str = ""


class PodLog(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Output of one pod. ``pod`` is ``<pod set>-<index>``; ``offset`` is the position in the output
    at which ``text`` ends, in bytes. ``cut``: bytes before ``text`` that were asked for, but that
    the runner's limit of output has removed. ``short``: ``text`` begins after the wanted last
    lines, because they are too long to look for."""

    pod: str
    text: str = ""
    offset: int = 0
    running: bool = False
    cut: int = 0
    short: bool = False
