"""The words that enumerated fields take. In the schema; checked by the rules, not while decoding,
so that one manifest tells all its mistakes at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final, TypeAlias

from msgspec import Meta

from admittance.api.limits import says

STRATEGIES: Final = ("StrictFIFO", "BestEffortFIFO")
STOP_POLICIES: Final = ("None", "Hold", "HoldAndDrain")
FUNGIBILITY: Final = ("MayStopSearch", "TryNextFlavor")
PREFERENCES: Final = ("BorrowingOverPreemption", "PreemptionOverBorrowing")
RECLAIM: Final = ("Never", "LowerPriority", "Any")
WITHIN: Final = ("Never", "LowerPriority", "LowerOrNewerEqualPriority")
BORROW: Final = ("Never", "LowerPriority")
SCOPES: Final = ("UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing")
QUOTA_CUTS: Final = ("", "evict")
MODES: Final = ("NoMigration", "UpgradeOnly")
POLICIES: Final = ("Anytime", "AfterCheckPassedOrOnDemand")
RETRIES: Final = ("static", "backoff")
MERGES: Final = ("IdenticalPodTemplates", "IdenticalWorkloadSchedulingRequirements")
ROLES: Final = ("regular", "parent", "variant")
EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")


OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")
NODE_OPERATORS: Final = (*OPERATORS, "Gt", "Lt")
FIELD_OPERATORS: Final = ("In", "NotIn")
TOLERATION_OPERATORS: Final = ("", "Equal", "Exists")
CLASSES: Final = {
    "kueue.x-k8s.io": "WorkloadPriorityClass",
    "scheduling.k8s.io": "PriorityClass",
}
"""Groups of priority classes, and the kind in each."""


def _of(words: Iterable[str], *, required: bool = False) -> Meta:
    return says(required=required, enum=list(words))


Strategy: TypeAlias = Annotated[str, _of(STRATEGIES)]
StopPolicy: TypeAlias = Annotated[str, _of(STOP_POLICIES)]
Fungibility: TypeAlias = Annotated[str, _of(FUNGIBILITY)]
Preference: TypeAlias = Annotated[str, _of(PREFERENCES)]
Reclaim: TypeAlias = Annotated[str, _of(RECLAIM)]
Within: TypeAlias = Annotated[str, _of(WITHIN)]
Borrow: TypeAlias = Annotated[str, _of(BORROW)]
Scope: TypeAlias = Annotated[str, _of(SCOPES)]
QuotaCut: TypeAlias = Annotated[str, _of(QUOTA_CUTS)]
Mode: TypeAlias = Annotated[str, _of(MODES)]
Policy: TypeAlias = Annotated[str, _of(POLICIES)]
Retry: TypeAlias = Annotated[str, _of(RETRIES)]
Merge: TypeAlias = Annotated[str, _of(MERGES)]
Role: TypeAlias = Annotated[str, _of(ROLES)]
Operator: TypeAlias = Annotated[str, _of(OPERATORS)]
NodeOperator: TypeAlias = Annotated[str, _of(NODE_OPERATORS)]
FieldOperator: TypeAlias = Annotated[str, _of(FIELD_OPERATORS)]
TolerationOperator: TypeAlias = Annotated[str, _of(TOLERATION_OPERATORS)]
Effect: TypeAlias = Annotated[str, _of(EFFECTS, required=True)]
EffectOrNone: TypeAlias = Annotated[str, _of(("", *EFFECTS))]
ClassGroup: TypeAlias = Annotated[str, _of(CLASSES)]
ClassKind: TypeAlias = Annotated[str, says(own=True, enum=list(CLASSES.values()))]
