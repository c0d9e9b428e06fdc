"""The workloads that hold what is short, each with the rule that lets it keep it; and checks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from admittance.api.workload import CheckState
from admittance.events.requests.explanation import Holder
from admittance.web.paths import workload_path
from admittance.web.views.words import Link, Word, clock_time, number, took, unit

HOLDERS_MAX: Final = 10
"""The most rows of one flavor."""
SHARE_PIXELS: Final = 71

RULES: Final = {
    "PolicyNever": "The policy of the queue forbids preemption.",
    "PriorityNotLower": "Priority {priority} is not below {mine}.",
    "AboveThreshold": "Priority {priority} is above the threshold of the policy.",
    "WithinNominal": "Its queue {queue} uses no more than its nominal quota.",
    "WhileBorrowing": "A workload that borrows may not preempt it.",
    "AboveNominal": "A workload that needs more than the nominal quota may not preempt it.",
    "CohortWithinQuota": "Its cohort uses no more than its quota.",
    "Inactive": "Its queue is not active.",
    "PreemptionLoop": "The two would preempt each other again and again.",
    "MinimumRunTime": "It has not run for its minimum time.",
    "SharesForbid": "The fair shares of the queues forbid it.",
    "NotEnough": "It may be preempted, but that frees too little.",
    "NotLookedAt": "Whether it may be preempted was not looked at.",
    "": "It may be preempted.",
}
"""What the rule of a holder says, by its stable word."""


class HolderRow(msgspec.Struct, frozen=True, kw_only=True):
    """A holder. ``share``: the width of its bar, in pixels; ``rule``: the stable word."""

    id: str
    name: Link
    queue: str
    amount: str
    share: float
    borrowed: bool
    priority: str
    why: str
    rule: str


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """The holders of one flavor, those with most first. ``more``: how many are left out."""

    flavor: str
    unit: str
    rows: tuple[HolderRow, ...]
    more: int


class CheckRow(msgspec.Struct, frozen=True, kw_only=True):
    """An admission check. ``asked``: how often it said not now, as text."""

    name: str
    word: Word
    asked: str
    since: str
    waits: str
    words: str


def held_by(holders: Sequence[Holder], priority: int) -> tuple[Held, ...]:
    """The holders by flavor and resource. ``priority``: of the waiting workload."""
    groups: dict[tuple[str, str], list[Holder]] = {}
    for holder in holders:
        groups.setdefault((holder.flavor, holder.resource), []).append(holder)
    return tuple(
        _group(flavor, resource, of, priority) for (flavor, resource), of in groups.items()
    )


def _group(flavor: str, resource: str, holders: list[Holder], priority: int) -> Held:
    ordered = sorted(holders, key=lambda holder: (-holder.amount, holder.namespace, holder.name))
    most = max(1, ordered[0].amount)
    rows = tuple(
        HolderRow(
            id=f"{flavor}-{resource}-{holder.namespace}-{holder.name}",
            name=Link(holder.name, workload_path(holder.namespace, holder.name)),
            queue=holder.cluster_queue,
            amount=number(resource, holder.amount),
            share=round(SHARE_PIXELS * holder.amount / most, 1),
            borrowed=holder.borrowed,
            priority=str(holder.priority),
            why=_why(holder, priority),
            rule=holder.spared_by or "candidate",
        )
        for holder in ordered[:HOLDERS_MAX]
    )
    return Held(flavor=flavor, unit=unit(resource), rows=rows, more=len(ordered) - len(rows))


def _why(holder: Holder, priority: int) -> str:
    if holder.leaving:
        return "It is being evicted."
    said = RULES.get(holder.spared_by, holder.spared_by)
    return said.format(priority=holder.priority, mine=priority, queue=holder.cluster_queue)


CHECK_STATES: Final = {
    "Ready": "finished",
    "Pending": "pending",
    "Retry": "backoff",
    "Rejected": "rejected",
}


def check_rows(rows: Sequence[CheckState], now: datetime) -> tuple[CheckRow, ...]:
    """The admission checks of a workload, as they are stored."""
    return tuple(_check(row, now) for row in rows)


def _check(row: CheckState, now: datetime) -> CheckRow:
    times = row.retry_count or 0
    since, waits = row.last_transition_time, ""
    if since is not None and row.requeue_after_seconds:
        left = row.requeue_after_seconds - (now - since).total_seconds()
        waits = took(left) if left > 0 else ""
    return CheckRow(
        name=row.name,
        word=Word(row.state, CHECK_STATES.get(row.state, "pending")),
        asked="" if not times else "once" if times == 1 else f"{times} times",
        since=clock_time(since, now) if since is not None else "",
        waits=waits,
        words=row.message,
    )
