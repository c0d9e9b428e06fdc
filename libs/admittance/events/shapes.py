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
"""Seconds that a check may put a workload off at once."""

CheckStateWord: TypeAlias = Annotated[str, Meta(extra_json_schema={"enum": list(CHECK_STATES)})]
_SPAN: Final = r"(?:(?:[0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})(?:ns|us|µs|ms|s|m|h))+"
_DELAY: Final[dict[str, Any]] = {
    "minimum": 0,
    "maximum": DELAY_MAX,
    "pattern": rf"^\+?(?:0|{_SPAN})$",
}
Delay: TypeAlias = Annotated[int | str, Meta(extra_json_schema=_DELAY)]
"""Seconds, or a duration like 8m0s. Neither binds while decoding: a fact that breaks it is refused
with a reason."""


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
    """Pods that capacity is asked for. ``names``: the pod sets that are asked for together, the
    first of them is ``name``. ``template``: the pod template with what its flavors add."""

    name: str
    count: int
    names: tuple[str, ...] = ()
    template: msgspec.Raw = msgspec.field(default_factory=null)


class Shortfall(Shape, frozen=True, kw_only=True):
    """What is lacking of one resource in one flavor, in accounting units: cpu in thousandths,
    everything else in whole units. ``limit`` names what stands in the way."""

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
    """What is taken, or asked for, of one flavor and resource, in accounting units. ``available``:
    what could be used just before. ``borrowed``: by how much the ClusterQueue then uses more than
    its nominal quota."""

    flavor: str
    resource: str
    amount: int
    available: int = 0
    borrowed: int = 0


class Shares(Shape, frozen=True, kw_only=True):
    """Weighted shares that were compared, in thousandths of what could be borrowed; without a
    weight the largest 64-bit number. ``after``: the victim's side's without the victim, where the
    ``strategy`` looks at that."""

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
    """A workload, as of ``revision``, that merely holds a reservation, and whose quota is handed on
    in the same commit: under which rule (``reason``), and with which numbers. ``times``: how often
    it has lost quota to the same one, this time counted."""

    namespace: str
    name: str
    uid: str
    revision: int
    reason: str
    message: str = ""
    grounds: Grounds | None = None
    times: int = 0


class PlannedVictim(Shape, frozen=True, kw_only=True):
    """A workload that is to give up the quota which it has held ``since`` then, and under which
    rule (``reason``). With quota that it got later it is not meant any more."""

    namespace: str
    name: str
    uid: str
    since: datetime | None = None
    reason: str = ""


class PendingPreemption(Shape, frozen=True, kw_only=True):
    """Who has to go before a reservation can be an admission. ``issued``: they are told to; else
    nobody is touched before the checks that ask for that have passed."""

    victims: tuple[PlannedVictim, ...] = ()
    issued: bool = False


class Head(Shape, frozen=True, kw_only=True):
    """A workload that was considered: ``namespace/name``. ``cursor``: where the scan of its flavors
    began, per pod set from a resource group to the flavor before; empty: at the first one."""

    name: str
    cursor: tuple[dict[int, int], ...] = ()


class Scan(Shape, frozen=True, kw_only=True):
    """What a decision was made from beside the picture, so that it can be made again.

    ``cursor``: of the head whose turn it was. ``heads``: who had its turn before in the same cycle,
    if nothing was stated of that and it left a mark. ``lost``: those were too many to be named.
    ``seen``, ``at``, ``head``: of a refusal, what the picture had seen when the workload was
    considered, when that was, and its equal that was considered in its place; else as stated.
    ``usages``: where somebody has to go and the usage of LocalQueues counts, what those were
    compared by that used anything; without a weight they are left out.
    """

    cursor: tuple[dict[int, int], ...] = ()
    heads: tuple[Head, ...] = ()
    lost: bool = False
    seen: int = 0
    at: datetime | None = None
    head: str = ""
    usages: dict[str, float] = msgspec.field(default_factory=dict)


class PreemptedBy(Shape, frozen=True, kw_only=True):
    """By whom (``namespace/name``) a workload lost its quota last, under which rule, and with
    which numbers. Gone with the next reservation."""

    by: str = ""
    by_uid: str = ""
    rule: str = ""
    at: datetime | None = None
    grounds: Grounds | None = None


class ConsumedUsage(Shape, frozen=True, kw_only=True):
    """What a LocalQueue has consumed, faded by age, as of ``last_update``: quantities by resource.
    Kueue's ``status.fairSharing.admissionFairSharingStatus``, and the value of its key in the
    bucket."""

    consumed_resources: dict[str, str] = msgspec.field(default_factory=dict)
    last_update: datetime
