"""What a deployment may set about scheduling."""

from __future__ import annotations

from datetime import timedelta

import msgspec

FINAL_SHARE = "LessThanOrEqualToFinalShare"
INITIAL_SHARE = "LessThanInitialShare"


class FairSharing(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of the cohort decide who goes first and who has to go. ``strategies``: in which
    order they are tried to find victims; one of them, or both in this order."""

    strategies: tuple[str, ...] = (FINAL_SHARE, INITIAL_SHARE)


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """``requeuing_timestamp``: where a workload queues after its pods were not ready in time,
    Eviction or Creation. ``quota_check_strategy``: IgnoreUndeclared lets resources that a queue
    does not cover go free. ``refusal_delay``: how long a workload is parked before it is said why.
    ``idle_cycles``: how often heads that nothing came of are looked at again without an event.
    ``preemption``: queues' preemption policies count; off, all of them mean Never.
    ``fair_sharing``: None: off.
    ``partial_admission``: where there is not room for all pods, fewer are tried, down to minCount.
    """

    refusal_delay: timedelta = timedelta(seconds=1)
    requeuing_timestamp: str = "Eviction"
    quota_check_strategy: str = "BlockUndeclared"
    exclude_resource_prefixes: tuple[str, ...] = ()
    refusals_per_call: int = 256
    idle_cycles: int = 10
    preemption: bool = False
    fair_sharing: FairSharing | None = None
    partial_admission: bool = False
