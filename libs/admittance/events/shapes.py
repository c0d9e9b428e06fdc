"""Parts of facts and of the stored workload: admissions, updates, refusals.

They are Kueue's shapes where Kueue has them (``status.admission``), and travel unchanged
between the log, the bucket and the command.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import Meta

from admittance.events.base import null

CHECK_STATES: Final = ("Pending", "Ready", "Retry", "Rejected")
DELAY_MAX: Final = 2**31 - 1
"""Longest delay, in seconds, that a check may ask for at once."""

CheckStateWord: TypeAlias = Annotated[str, Meta(extra_json_schema={"enum": list(CHECK_STATES)})]
_SPAN: Final = r"(?:(?:[0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})(?:ns|us|µs|ms|s|m|h))+"
_DELAY: Final[dict[str, Any]] = {
    "minimum": 0,
    "maximum": DELAY_MAX,
    "pattern": rf"^\+?(?:0|{_SPAN})$",
}
Delay: TypeAlias = Annotated[int | str, Meta(extra_json_schema=_DELAY)]
"""Seconds, or a duration like 8m0s. Not checked while decoding: a fact with another value is
refused with a reason."""


class Shape(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A part of a message; unknown fields of newer versions are tolerated."""


class PodSetAssignment(Shape, frozen=True, kw_only=True):
    """What one pod set got. ``flavors``: resource to flavor. ``resourceUsage``: resource to the
    total quantity over all ``count`` pods, as Kubernetes writes it (``"1500m"``, ``"2Gi"``)."""

    name: str
    flavors: dict[str, str] = msgspec.field(default_factory=dict)
    resource_usage: dict[str, str] = msgspec.field(default_factory=dict)
    count: int = 0


class Admission(Shape, frozen=True, kw_only=True):
    """Where quota is booked; set and cleared as a whole, never edited."""

    cluster_queue: str
    pod_set_assignments: tuple[PodSetAssignment, ...] = ()


class PodSetUpdate(Shape, frozen=True, kw_only=True):
    """What a check adds to the pods of one pod set before they start. Additive only."""

    name: str
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    tolerations: tuple[dict[str, Any], ...] = ()


class PodSetToRun(Shape, frozen=True, kw_only=True):
    """One pod set of an admitted workload, ready for a runner.

    ``template`` is the pod template as submitted; labels, annotations, nodeSelector and
    tolerations are what flavors and checks add to it. ``completions``: how many successes end the
    pod set; 0 means ``count``.
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


class PodSetToProvision(Shape, frozen=True, kw_only=True):
    """Pods that need capacity. ``names``: the pod sets requested together; the first one is
    ``name``. ``template``: the pod template with the additions of its flavors."""

    name: str
    count: int
    names: tuple[str, ...] = ()
    template: msgspec.Raw = msgspec.field(default_factory=null)


class Shortfall(Shape, frozen=True, kw_only=True):
    """How much of one resource is missing in one flavor, in accounting units: cpu in thousandths,
    everything else in whole units. ``limit`` names the limit that is hit."""

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
    the amount available just before. ``borrowed``: the usage of the ClusterQueue above its nominal
    quota afterwards."""

    flavor: str
    resource: str
    amount: int
    available: int = 0
    borrowed: int = 0


class Shares(Shape, frozen=True, kw_only=True):
    """Weighted shares that were compared, in thousandths of the lendable quota; the largest 64-bit
    number without a weight. ``after``: the share of the victim's queue without the victim, if the
    ``strategy`` uses it."""

    strategy: str
    preemptor: float = 0.0
    victim: float = 0.0
    after: float | None = None


class Grounds(Shape, frozen=True, kw_only=True):
    """The numbers of a preemption: ClusterQueue and priority of the victim and (``by_``) of the
    preemptor, the policy of the preemptor's ClusterQueue that allows it, as
    ``withinClusterQueue: LowerPriority``, with ``threshold`` where it has one; and what the
    preemptor asks for that is ``short``."""

    cluster_queue: str = ""
    priority: int = 0
    by_cluster_queue: str = ""
    by_priority: int = 0
    policy: str = ""
    threshold: int | None = None
    shares: Shares | None = None
    short: tuple[Taken, ...] = ()


class HandedOn(Shape, frozen=True, kw_only=True):
    """A workload at ``revision`` with only a reservation; its quota passes to the preemptor in the
    same commit, under the rule ``reason`` and with these numbers. ``times``: how often it has lost
    quota to the same preemptor, including this time."""

    namespace: str
    name: str
    uid: str
    revision: int
    reason: str
    message: str = ""
    grounds: Grounds | None = None
    times: int = 0


class PlannedVictim(Shape, frozen=True, kw_only=True):
    """A workload to be preempted under the rule ``reason``, with the quota that it has held
    ``since`` then. If it lost that quota and got quota again later, it is not a victim any more."""

    namespace: str
    name: str
    uid: str
    since: datetime | None = None
    reason: str = ""


class PendingPreemption(Shape, frozen=True, kw_only=True):
    """The workloads to be preempted before a reservation can be admitted. ``issued``: preemption
    has begun; else it waits until the checks that require this have passed."""

    victims: tuple[PlannedVictim, ...] = ()
    issued: bool = False


class Head(Shape, frozen=True, kw_only=True):
    """A workload that was considered: ``namespace/name``. ``cursor``: where the scan of flavors
    began: per pod set, from a resource group to the previous flavor; empty: at the first one."""

    name: str
    cursor: tuple[dict[int, int], ...] = ()


class Scan(Shape, frozen=True, kw_only=True):
    """Inputs of a decision besides the scheduler's state, needed to replay it.

    ``cursor``: of the head considered. ``heads``: heads considered before it in the same cycle
    that had an effect but no fact. ``lost``: there were too many of these to name.
    ``seen``, ``at``, ``head``: for a refusal, the newest revision and the time when the workload
    was considered, and the equal workload considered in its place; else as in the fact.
    ``usages``: for preemption with usage of LocalQueues: the usages that were compared, without
    LocalQueues that have no usage or no weight.
    """

    cursor: tuple[dict[int, int], ...] = ()
    heads: tuple[Head, ...] = ()
    lost: bool = False
    seen: int = 0
    at: datetime | None = None
    head: str = ""
    usages: dict[str, float] = msgspec.field(default_factory=dict)


class PreemptedBy(Shape, frozen=True, kw_only=True):
    """The preemptor (``namespace/name``) that last took a workload's quota, with the rule and the
    numbers. Cleared by the next reservation."""

    by: str = ""
    by_uid: str = ""
    rule: str = ""
    at: datetime | None = None
    grounds: Grounds | None = None


class ConsumedUsage(Shape, frozen=True, kw_only=True):
    """What a LocalQueue has consumed, decayed by age, at ``last_update``: quantities by resource.
    Kueue's ``status.fairSharing.admissionFairSharingStatus``, and the value of its key in the
    bucket."""

    consumed_resources: dict[str, str] = msgspec.field(default_factory=dict)
    last_update: datetime
