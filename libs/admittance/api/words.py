"""The words that enumerated fields take. In the schema; checked by the rules, not while decoding,
so that one manifest tells all its mistakes at once.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

from msgspec import Meta

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


def _of(words: tuple[str, ...]) -> Meta:
    extra: dict[str, Any] = {"enum": list(words)}
    return Meta(extra_json_schema=extra)


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
