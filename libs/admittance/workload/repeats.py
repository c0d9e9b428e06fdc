"""By whom a workload was preempted, and how often: what a loop is known by.

It stays in the status over reservations and restarts, unlike ``preemptedBy``, which goes with the
next reservation. Old and rare ones are dropped, so that it stays small.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from admittance.api.workload import PreemptionCount
from admittance.events import facts

KEPT_MAX: Final = 8
"""So many preemptors are remembered, those of the newest preemptions."""

KEPT_FOR: Final = timedelta(days=2)
"""A pair that has been at peace for so long starts over."""


def counted(
    before: tuple[PreemptionCount, ...], fact: facts.Preempted, now: datetime
) -> tuple[PreemptionCount, ...]:
    """The counts with this preemption; the newest last."""
    if not fact.by_uid:
        return before
    kept = [one for one in before if one.last is not None and now - one.last < KEPT_FOR]
    times = sum(one.count for one in kept if one.by_uid == fact.by_uid)
    others = [one for one in kept if one.by_uid != fact.by_uid]
    new = PreemptionCount(by=fact.by, by_uid=fact.by_uid, count=times + 1, last=now, seen=fact.seen)
    return (*others[1 - KEPT_MAX :], new)
