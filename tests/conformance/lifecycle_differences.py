"""Cases about checks and the workload controller that come out differently here, or cannot be
played, and why. docs/spec/lifecycle.md#1.5 says which differences are wanted."""

from __future__ import annotations

from typing import Final

_QUEUES: Final = (
    "whether a queue is active is the scheduler's business, which says so when it refuses"
)
_OWNER: Final = "objects of Kubernetes that own a workload are no kind of ours"
_KEPT: Final = "how long finished workloads are kept is set for the bucket, see its own tests"
_GATE: Final = "the gate that turns off granular reasons is not offered; they are told"

_ONE_LINE: Final = "one line over a condition, read where it is needed"
_ONLY_FALSE: Final = (
    "a check that is Pending again after admission evicts no workload: only False suspends"
)

RECONCILE: Final[dict[str, str]] = {
    "workload with retry checks should be evicted and checks should be pending, with message": (
        "there both verdicts are noticed together; here the first, without a delay, has ended the "
        "round, and the second is one of the round before"
    ),
    "should set the Evicted condition with Deactivated reason when the .spec.active=False": (
        "what holds no quota loses none: it is turned off, and no eviction is counted"
    ),
    "workload with granular PendingEvaluation reason should transition to Inadmissible when queue "
    "is missing (observability disabled)": _GATE,
    "workload with AdmissionGatedBy should not be admitted even with quota reserved": (
        "the annotation stands from the beginning, so that nothing is reserved while it does"
    ),
    "workload without AdmissionGatedBy annotation and no gated condition should not be affected": (
        _QUEUES
    ),
    "workload with existing controller owner should not be finished": _OWNER,
    "inadmissible workload due to broken ClusterQueue namespace selector (observability enabled)": (
        "such a selector does not pass our door"
    ),
    "reconcile bypassed workload when SchedulingEquivalenceHashing is enabled (stale status -> "
    "bypassed status)": "equals of a refused workload are refused by the scheduler itself",
}
"""Single reconcile calls."""

UNPLAYED: Final[dict[str, str]] = {
    "scale-to-zero released workload should not be requeued while transitioning back to pending": (
        "only the queue is compared, and a held workload here holds no quota"
    ),
    "remove finalizer for finished workload": _OWNER,
    "remove finalizer for deleted orphaned workload with FinishOrphanedWorkloads enabled": _OWNER,
    "remove finalizer for deleted orphaned workload with FinishOrphanedWorkloads disabled": _OWNER,
    "remove finalizer for orphaned workload with JobUID label and FinishOrphanedWorkloads "
    "enabled": _OWNER,
    "remove finalizer for orphaned workload with JobUID label and FinishOrphanedWorkloads "
    "disabled": _OWNER,
    "shouldn't try to delete the workload (no event emitted) because it is already being deleted "
    "by kubernetes, object retention configured": _KEPT,
    "should delete the workload because the retention period has elapsed, object retention "
    "configured": _KEPT,
}
"""Calls that compare nothing of what a workload is here."""

SYNC_ADMITTED: Final[dict[str, str]] = {
    "check lost": _ONLY_FALSE,
    "check lost with observability": _ONLY_FALSE,
}
"""Of the Admitted condition."""

TABLES_UNPLAYED: Final[dict[str, str]] = {
    "workload/TestSetCheckState": (
        "rows are made from the queue's lists and moved by verdicts, never written by a controller"
    ),
    "workload/TestIsEvictedByDeactivation": _ONE_LINE,
    "workload/TestIsEvictedByPodsReadyTimeout": _ONE_LINE,
    "workload/TestFromQuotaReservedOrAdmittedToPending": (
        "names of phases; the ways between ours stand in the table of moves"
    ),
    "controllers/TestUpdateCqStatusIfChanged": "counters are answered, not stored",
}
"""Tables that are not played."""

TABLES: Final = (
    "admissionchecks/TestFilterCheckStates",
    "controllers/TestAdmittedNotReadyWorkload",
    "controllers/TestReconcile",
    "controllers/TestReconcileEviction",
    "controllers/TestReconcileInadmissible",
    "controllers/TestReconcileRequeue",
    "controllers/TestReconcileSyncAdmissionChecks",
    "controllers/TestSyncCheckStates",
    "workload/TestAdmissionChecksForWorkload",
    "workload/TestFilterChecksForAdmission",
    "workload/TestGetMaxRetryTime",
    "workload/TestIsOnHold",
    "workload/TestSetConditionAndUpdate",
    "workload/TestSetQuotaReservation",
    "workload/TestSetRequeueState",
    "workload/TestSyncAdmittedCondition",
    "workload/TestTotalExecutionTime",
)
"""Tables that are played."""
