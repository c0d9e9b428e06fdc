"""Where we answer differently from Kueue, case by case, and why: one reviewed table."""

from __future__ import annotations

from typing import Final, NamedTuple


class Difference(NamedTuple):
    """``reason``: why. ``answer``: what we say instead, as (code, field)."""

    reason: str
    answer: tuple[tuple[str, str], ...] = ()


_SCHEMA: Final = (
    "the case goes past Kueue's own schema, which wants at least one covered resource in a group; "
    "our rules are those of the schema and those of the webhook in one"
)
_MUTABLE: Final = "the policy may change here, and variants follow it: docs/spec/lifecycle.md#4.9"
_STRICT_GATE: Final = "the gate that turns the rule off is not offered; it holds, as by default"
_BOOST: Final = "the gate PriorityBoost is off, as upstream by default: no effect, no rule"
_CHECK: Final = "spec.admissionChecksStrategy.admissionChecks[0].onFlavors[0]"
_LAST: Final = "spec.concurrentAdmissionPolicy.migration.constraints.lastAcceptableFlavorName"
_METADATA: Final = (
    ("Invalid", "spec.podSets[0].template.metadata.annotations"),
    ("Invalid", "spec.podSets[0].template.metadata.labels"),
)

VALIDATION: Final[dict[tuple[str, str], Difference]] = {
    ("TestValidateClusterQueue", "admissionCheckStrategy defined with a valid flavor"): Difference(
        _SCHEMA, (("Required", "spec.resourceGroups[0].coveredResources"),)
    ),
    ("TestValidateClusterQueue", "flavor with qualified names"): Difference(
        _SCHEMA, (("Required", "spec.resourceGroups[0].coveredResources"),)
    ),
    (
        "TestValidateClusterQueue",
        "ConcurrentAdmissionPolicy constraints with RetainFirstAdmission mode is forbidden",
    ): Difference(
        "the field itself is named instead of the mapping around it", (("Forbidden", _LAST),)
    ),
    ("TestValidateClusterQueue", "ConcurrentAdmissionPolicy with more than 16 flavors"): Difference(
        "32 flavors are allowed, as in Kueue since 0.20"
    ),
    (
        "TestValidateClusterQueue",
        "ConcurrentAdmissionPolicy with invalid LastAcceptableFlavorName",
    ): Difference(
        "a flavor that is not on offer has one code wherever it is named",
        (("NotSupported", _LAST),),
    ),
    (
        "TestValidateClusterQueueUpdate",
        "legacy cluster queue with invalid onFlavors allows unrelated updates when the feature "
        "gate is disabled",
    ): Difference(
        "no stored queue can be like that: the rule has been there from the first version on",
        (("NotSupported", _CHECK),),
    ),
    ("TestValidateClusterQueueUpdate", "ConcurrentAdmissionPolicy cannot be added"): Difference(
        _MUTABLE
    ),
    ("TestValidateClusterQueueUpdate", "ConcurrentAdmissionPolicy cannot be removed"): Difference(
        _MUTABLE
    ),
    (
        "TestValidateWorkload",
        "should accept invalid podSet template metadata when WorkloadValidationForPodSetMetadata "
        "is disabled",
    ): Difference(_STRICT_GATE, _METADATA),
    (
        "TestValidateWorkload",
        "should accept negative container resource request when "
        "WorkloadValidateResourcesAreNonNegative is disabled",
    ): Difference(
        _STRICT_GATE,
        (("Invalid", "spec.podSets[0].template.spec.containers[0].resources.requests[cpu]"),),
    ),
    ("TestValidateWorkload", "invalid priority-boost"): Difference(_BOOST),
    ("TestValidateWorkload", "empty string priority-boost"): Difference(_BOOST),
    (
        "TestValidateWorkloadUpdate",
        "should accept invalid podSet template metadata on update when "
        "WorkloadValidationForPodSetMetadata is disabled",
    ): Difference(_STRICT_GATE, _METADATA),
    ("TestValidateWorkloadUpdate", "workload.podSets[].count is immutable"): Difference(
        "an index is written in brackets everywhere", (("Invalid", "spec.podSets[1]"),)
    ),
}

DEFAULTS: Final[dict[str, str]] = {
    "ClusterQueue.spec.preemption.borrowWithinCohort": (
        "absent stays absent, since some decisions tell it from an explicit policy; both mean Never"
    ),
    "Workload.status.admission.podSetAssignments[].name": (
        "a status is written by the workload-controller, which names every pod set"
    ),
}
"""Fields of which the default is not filled in, and why."""

_NO_BOOST: Final = "the gate PriorityBoost is off, as upstream by default: the boost is not read"
_USAGE_ORDER: Final = (
    "usage counts in queues that say so; the case is played with such a queue in test_usage"
)

ORDERING: Final[dict[str, str]] = {
    "workloads sorted by effective priority with boost": _NO_BOOST,
    "workload missing priority boost defaults to zero": _NO_BOOST,
    "workloads with higher LQ usage first": _USAGE_ORDER,
}
"""Cases in which we try victims in another order, and why."""

POLICIES: Final[dict[str, str]] = {
    "LowerPriority: boost makes low-priority immune to medium-priority preemption": _NO_BOOST,
    "LowerPriority: boost on preemptor enables preemption of higher raw priority": _NO_BOOST,
    "LowerOrNewerEqualPriority: boost equalizes priorities, older preemptor can preempt newer "
    "candidate": _NO_BOOST,
}
"""Cases in which a policy gives up others, and why."""

_OVERLAP: Final = (
    "the gate that turns off looking again when victims overlap is not offered; we do, as by "
    "default"
)

SCHEDULE: Final[dict[tuple[str, str], str]] = {
    (
        "TestSchedule",
        "container does not satisfy limitRange constraints",
    ): "LimitRange is no kind of ours",
    (
        "TestSchedule",
        "container resource requests exceed limits",
    ): "a request above its limit is no valid workload and never gets so far",
    (
        "TestScheduleForFairSharing",
        "multiple preemptions within cq when fair sharing",
    ): "a preemption policy that is not named is Never to us as by the schema; the table goes past "
    "the schema's defaults, and with fair sharing an empty reclaimWithinCohort differs from Never",
    (
        "TestScheduleForFairSharing",
        "multiple preemptions skip overlapping preemption targets",
    ): _OVERLAP,
    (
        "TestScheduleRecomputePreemptionTargets",
        "legacy overlap skip with RecomputePreemptionTargetsUponOverlap disabled",
    ): _OVERLAP,
}
"""Cases of single cycles that come out differently, and why."""

ASSIGN: Final[dict[tuple[str, str], str]] = {
    (
        "TestAssignFlavors",
        "with reclaimable pods; reclaimablePods off",
    ): "the gate that turns reclaimable pods off is not offered; they count, as by default",
    (
        "TestIsNoFitDueToCapacityAndLimits",
        "flavor spanning multiple resource groups",
    ): "a flavor may stand in one resource group only: such a queue passes neither our door nor "
    "Kueue's",
}
"""Cases in which other flavors are assigned, or for another reason none, and why."""

FAMILIES: Final[dict[str, str]] = {
    "ungates the next-preferred variant once the open gate's preemption timeout elapses": (
        "only one variant of a family may preempt at a time: its gate closes when the gate of the "
        "next variant opens (docs/spec/lifecycle.md#4.8)"
    ),
    "admitted variant's flavor removed; variant deleted and parent evicted": (
        "quota stays booked until the job has stopped: the variant is evicted, as its parent says, "
        "and is deleted once it holds no quota (docs/spec/lifecycle.md#4.10)"
    ),
    "admitted variant evicted; parent has quota; evict parent and wait": (
        "policy is applied in the same commit, not a step later: a better variant is tried while "
        "the job of the admitted one stops (docs/spec/lifecycle.md#4.3)"
    ),
    "admitted variant evicted; parent has no quota reservation; clear variant reservation": (
        "a release removes the admission in the same write (docs/spec/lifecycle.md#1.4), and the "
        "parent keeps its condition Evicted"
    ),
}
"""Families that become something else, and why."""

_BY_PRIORITY: Final = (
    "the gate PrioritySortingWithinCohort is not offered; priority counts, as by default"
)

ENTRY_ORDER: Final[dict[str, str]] = {
    "Priority sorting is disabled using pods-ready Eviction timestamp": _BY_PRIORITY,
    "Priority sorting is disabled using pods-ready Creation timestamp": _BY_PRIORITY,
    "Some workloads are preempted; Priority sorting is disabled": _BY_PRIORITY,
    "Some workloads are preemptors; PrioritizePreemptorWorkloads is enabled": (
        "the gate PrioritizePreemptorWorkloads is off, as upstream by default"
    ),
}
"""Cases in which entries are processed in another order, and why."""

_SINCE_THEN: Final = (
    "stored usage decays also while no scheduler runs: whatever time a restart "
    "takes, the sums are those of a leader that never fell"
)
CONSUMED: Final[dict[str, str]] = {
    "local queue decaying usage is not reconciled if not enough time has passed": (
        "all LocalQueues are compared as of the same moments, not each as of its own"
    ),
    "AFS reconcile skips when cache is recent but status lacks AdmissionFairSharingStatus": (
        "the status is answered from memory, so it is never lacking"
    ),
    "local queue with uninitialized cache seeds from persisted status usage": _SINCE_THEN,
    "local queue seed merges persisted status into a settlement-created entry": (
        "there is one account, which starts from what was written down"
    ),
}
"""Cases in which a LocalQueue has consumed another amount, and why."""

_NO_PROGRESS: Final = (
    "the gate that forgets where a search stopped is not offered; it is remembered, as by default"
)

PENDING: Final[dict[str, str]] = {
    "without the gate the progress is dropped": _NO_PROGRESS,
    "without the gate the progress is dropped for an inadmissible workload": _NO_PROGRESS,
    "without the gate the progress is dropped for an inflight workload": _NO_PROGRESS,
    "in queue": (
        "a creation time does not change: what has another one is another workload, of another uid"
    ),
    "cohort cycle": (
        "a tree with a cycle wakes as any other; its heads are set aside again, Suspended, and "
        "no variant of it is admitted"
    ),
    "falls back to PendingEvaluation if no status condition is present": (
        "the reason is remembered as it was found, and not read back from a status"
    ),
}
"""Cases of the queues' tables that come out differently, or cannot happen, and why."""

_FACTS: Final = "a preemption is a fact on the log, and cannot fail halfway: see undo"

ENTRIES: Final[dict[str, str]] = {
    "without the gate the assignment is discarded so every flavor is retried": _NO_PROGRESS,
    "without the gate a changed scheduling shape is ignored": _NO_PROGRESS,
    "without the gate the preceding cycle gets no special treatment": _NO_PROGRESS,
    "an unknown hash is not treated as a shape change": "a shape is never unknown",
    "failed preemption": _FACTS,
    "no outcome": _FACTS,
    "assumed": "an assumed workload has left the queue, and is never handed back",
    "nominated": "a write that fails does so in the workload-controller: see forget",
    "preemption gated": "its reason is left out in the case; as PreemptionGated it is parked",
    "a is preemptor, b not, feature enabled": (
        "the gate PrioritizePreemptorWorkloads is off, as upstream by default"
    ),
    "positive boost": _NO_BOOST,
    "negative boost": _NO_BOOST,
    "workload with priority and positive boost": _NO_BOOST,
    "workload with priority and negative boost": _NO_BOOST,
    "workload with effective priority above int32 max": _NO_BOOST,
}
"""Cases of single entries and priorities that come out differently, or cannot happen, and why."""

_UNHEARD: Final = "here a check without any heartbeat counts as active"

CACHE: Final[dict[str, str]] = {
    "check inactive": _UNHEARD,
    "Active clusterQueue with an AC strategy updated": (
        "two checks of one controller on the same flavors: a queue asks each controller once"
    ),
}
"""Cases of queues' activity that come out differently, and why."""
