"""How long a check that says Retry puts a workload off. LIFECYCLE 3.2, 3.6, 3.7.

Its controller names the delay, or the AdmissionCheck has a strategy for those that name none. The
outcome is written into the row, so whatever follows does not know the difference.
"""

from __future__ import annotations

import math
from fractions import Fraction
from hashlib import blake2b
from typing import NamedTuple

from admittance.api.checks import RetryStrategy
from admittance.api.durations import seconds
from admittance.events.shapes import DELAY_MAX
from admittance.workload.limits import Limits
from admittance.workload.stored import Say
from admittance.workload.surroundings import CheckRules


class Asked(NamedTuple):
    """What a Retry comes to. ``delay``: whole seconds, None: at once. ``spent``: the check may not
    be retried again, so that this counts as Rejected. ``remark``: what people should know, as a
    clause for the message; ``notes`` say it to everybody."""

    delay: int | None = None
    spent: bool = False
    remark: str = ""
    notes: tuple[Say, ...] = ()


def asked(wanted: int | None, rules: CheckRules, *, count: int, uid: str, limits: Limits) -> Asked:
    """The delay of a Retry. ``wanted``: as its controller named it, 0 like None: at once, but None
    leaves it to the strategy. ``count``: how often the check was retried before."""
    strategy = rules.retry
    if not limits.requeue_after:
        if not wanted and strategy is None:
            return Asked()
        what = f"the delay of {wanted} s" if wanted else "the retry strategy"
        remark = f"{what} counts nothing while the gate ACRequeueAfter is off"
        return Asked(remark=remark, notes=(_note("RequeueAfterDisabled", rules.name, remark),))
    most = strategy.max_retries if strategy is not None else None
    if most is not None and count >= most:
        return Asked(spent=True, remark=f"retried {count} times, {most} are allowed")
    delay = wanted
    if delay is None and strategy is not None:
        delay = computed(strategy, count, chance(uid, rules.name, count))
    if not delay:
        return Asked()
    longest = int(limits.check_delay.total_seconds())
    if delay <= longest:
        return Asked(delay)
    remark = f"the delay of {delay} s is cut to {longest} s"
    return Asked(longest, remark=remark, notes=(_note("RetryDelayClamped", rules.name, remark),))


def computed(strategy: RetryStrategy, count: int, chance: float) -> int:
    """Whole seconds by a strategy. ``chance``: from 0 up to 1, how much of the jitter to add."""
    delay = seconds(strategy.base_delay)
    if strategy.strategy == "backoff":
        delay *= _power(strategy.factor, count)
    if strategy.max_delay is not None:
        delay = min(delay, seconds(strategy.max_delay))
    delay = min(delay, Fraction(DELAY_MAX))
    return min(math.ceil(delay * (1 + Fraction(strategy.jitter) * Fraction(chance))), DELAY_MAX)


def _power(factor: float, count: int) -> Fraction:
    try:
        return Fraction(factor**count)
    except OverflowError:
        return Fraction(DELAY_MAX + 1)


def chance(uid: str, check: str, count: int) -> float:
    """A number from 0 up to 1 that is the same for everybody who asks again."""
    digest = blake2b(f"{uid}/{check}/{count}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) / 2**64


def _note(reason: str, check: str, remark: str) -> Say:
    return Say(
        what="noted", reason=reason, message=f'AdmissionCheck "{check}": {remark}', detail=check
    )
