"""Reads from the log which decisions the scheduler made, and which heads and reservations a cycle
processed to make them. The module is pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from admittance.control.commit import LogMessage
from admittance.events import reasons
from admittance.events.codec import Undecodable, decode
from admittance.events.facts import (
    Assigned,
    Confirmed,
    Decision,
    Planned,
    Preempted,
    Refused,
    Revoked,
)
from admittance.scheduling.state.assignment import Cursor
from admittance.scheduling.state.equivalence import Key


class CannotRepeat(Exception):
    """A decision cannot be repeated, because a part of the state from which it was made is not
    known. The error text names what is missing. ``about``: the workload that it names; None: none.
    """

    def __init__(self, text: str, about: Key | None = None) -> None:
        super().__init__(text)
        self.about = about


class Turn(NamedTuple):
    """A head that the scheduler processed in a cycle. ``key``: the head's workload. ``cursor``: the
    flavors behind which the head's scan began; (): the scan began at the first flavor."""

    key: Key
    cursor: Cursor = ()


class LoggedDecision(NamedTuple):
    """A scheduler's decision on the log. ``sequence``: its position on the log; ``epoch``: the
    epoch of the leader that made the decision."""

    sequence: int
    epoch: int
    decision: Decision


def logged_decision(message: LogMessage) -> LoggedDecision | None:
    """Returns the decision in a message; None: the message is not a decision by a leader of the
    decision's domain."""
    try:
        fact = decode(message.subject, message.data)
    except Undecodable:
        return None
    fence = message.fence
    if not isinstance(fact, Decision) or fence is None or fence.domain != fact.domain:
        return None
    return LoggedDecision(message.sequence, fence.epoch, fact)


def is_turn(decision: Decision) -> bool:
    """Whether the decision was made and published while a cycle processed a head. True for a
    refusal only if its reason is that victims must stop: other refusals are published later."""
    if isinstance(decision, Refused):
        return decision.refusal.reason == reasons.WAITING_FOR_PREEMPTED_WORKLOADS
    return isinstance(decision, Assigned | Preempted) and not is_recheck(decision)


def is_recheck(decision: Decision) -> bool:
    """Whether the decision is about a workload that already has reserved quota; a cycle makes such
    decisions before it processes its heads."""
    if isinstance(decision, Preempted):
        return decision.planned
    return isinstance(decision, Planned | Confirmed | Revoked)


def is_of_cycle(decision: Decision, time: datetime | None, seen: int) -> bool:
    return decision.time == time and decision.seen == seen and is_turn(decision)


def is_same_recheck(first: Decision, other: Decision) -> bool:
    return is_recheck(first) and (first.time, first.seen) == (other.time, other.seen)


def rechecked_reservations(decisions: Iterable[Decision]) -> list[Key]:
    """Returns the workloads with the reservations that the decisions are about, in order."""
    return list(dict.fromkeys(_decided_for(decision) for decision in decisions))


def turns_of(decisions: Iterable[Decision]) -> list[Turn]:
    """Returns the heads that one cycle processed to make these decisions, in order."""
    turns: dict[Key, Cursor] = {}
    for decision in decisions:
        scan = decision.scan
        if scan is not None:
            if scan.lost:
                raise CannotRepeat(
                    "the decision does not list the heads that its cycle processed earlier: they "
                    "were too many"
                )
            for head in scan.heads:
                turns.setdefault(key_of(head.name), head.cursor)
        turns.setdefault(_decided_for(decision), scan.cursor if scan is not None else ())
    return [Turn(key, cursor) for key, cursor in turns.items()]


def _decided_for(decision: Decision) -> Key:
    """Returns the workload that the scheduler processed or rechecked when it made the decision: the
    preemptor for `Preempted`, else the decision's own workload."""
    if isinstance(decision, Preempted):
        return key_of(decision.by)
    return decision.namespace, decision.name


def usages_of(decisions: Iterable[Decision]) -> dict[str, float]:
    """Returns the usages of LocalQueues that a cycle compared to make the given decisions."""
    usages: dict[str, float] = {}
    for decision in decisions:
        if decision.scan is not None:
            usages |= decision.scan.usages
    return usages


def key_of(name: str) -> Key:
    """Returns the key of the workload ``namespace/name``."""
    namespace, _, plain = name.partition("/")
    return namespace, plain
