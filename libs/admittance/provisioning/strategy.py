"""How often capacity is asked for, and how long after a failure. LIFECYCLE 5.2."""

from __future__ import annotations

from typing import Final

from admittance.api.checks import ProvisioningRetryStrategy

DELAYS: Final = range(2**31)
"""Seconds that a check can be told to wait."""


def delay_seconds(attempt: int, strategy: ProvisioningRetryStrategy) -> int:
    """The wait after the failure of that attempt; attempts count from 1."""
    base, most = strategy.backoff_base_seconds, strategy.backoff_max_seconds
    # More doublings than this are beyond any limit.
    return int(min(base << min(attempt - 1, 40), most))


def is_last(attempt: int, strategy: ProvisioningRetryStrategy) -> bool:
    """Its failure is the end: no attempt follows."""
    return attempt > strategy.backoff_limit_count
