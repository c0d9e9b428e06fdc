"""Answers from memory: why a workload waits, who waits in which order, how full the queues are."""

from __future__ import annotations

from datetime import datetime

from admittance.events.requests import (
    ExplainReply,
    PendingQuery,
    PendingReply,
    Queues,
    QueuesReply,
)
from admittance.scheduler.picture import Key
from admittance.scheduler.world import World


def explain(world: World, key: Key, *, now: datetime) -> ExplainReply:
    """Why the workload waits."""
    raise NotImplementedError


def pending(world: World, query: PendingQuery, namespace: str) -> PendingReply:
    raise NotImplementedError


def queues(world: World, query: Queues, namespace: str) -> QueuesReply:
    raise NotImplementedError
