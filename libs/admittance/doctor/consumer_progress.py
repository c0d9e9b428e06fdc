"""Whether a consumer makes progress, from its info."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from admittance.runtime.bus.history import time_of

STUCK_SECONDS: Final = 30.0
"""A consumer with unread or unacknowledged facts and without progress for so long is stuck."""


def backlog(consumer: Mapping[str, Any]) -> tuple[int, str]:
    """The number of messages that a consumer has not read, as a number and as text."""
    unread, waiting = consumer.get("num_pending", 0), consumer.get("num_ack_pending", 0)
    return unread, f"{unread:,} not read, {waiting:,} not acknowledged"


def unread_since(consumer: Mapping[str, Any]) -> float:
    """The seconds for which a consumer with unread messages has delivered none, if that is too
    long and no program asks for messages; else 0."""
    idle = idle_seconds(consumer, "delivered")
    asked = consumer.get("num_waiting", 0) or consumer.get("push_bound")
    return idle if consumer.get("num_pending", 0) and not asked and idle > STUCK_SECONDS else 0.0


def idle_seconds(info: Mapping[str, Any], field: str) -> float:
    """The seconds since a consumer was last active; if it was never active, since its creation."""
    now = _time(info.get("ts"))
    since = active_at(info, field) or _time(info.get("created"))
    return (now - since).total_seconds() if now and since else 0.0


def active_at(info: Mapping[str, Any], field: str) -> datetime | None:
    """When a consumer was last active, by the clock of nats-server; None: never. ``field``:
    delivered or ack_floor."""
    return _time((info.get(field) or {}).get("last_active"))


def _time(stamp: str | None) -> datetime | None:
    return time_of(stamp) if stamp else None
