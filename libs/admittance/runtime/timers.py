"""Timers: a schedule on the stream of timers becomes a fact on the log when its time has come.

Stored and replicated like any message, so it survives every restart; overdue ones fire when the
server is back. It fires up to 80 ms late (250 ms in a crowd), never early by the server's clock.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from admittance.events import subjects
from admittance.events.names import token
from admittance.runtime.bus import MESSAGE_ID, Bus, Outgoing

SCHEDULE: Final = "Nats-Schedule"
TARGET: Final = "Nats-Schedule-Target"


def timer_subject(kind: str, namespace: str, name: str) -> str:
    """Where the schedule stands; there is one per kind and workload."""
    return f"{subjects.TIMER_AT}{token(kind)}.{token(namespace)}.{token(name)}"


def due_subject(kind: str, namespace: str, name: str) -> str:
    """Where the fact appears."""
    return f"{subjects.TIMER_DUE}{token(kind)}.{token(namespace)}.{token(name)}"


def schedule_message(
    kind: str,
    namespace: str,
    name: str,
    at: datetime,
    payload: bytes,
    message_id: str = "",
    *,
    traceparent: str = "",
) -> Outgoing:
    """Sets the timer to ``at`` (aware); payload appears on `due_subject` then.

    It replaces an earlier one of that kind and workload, if the message id is another one: a
    repeated id within two minutes is dropped, and the earlier time stands.
    """
    headers = {
        SCHEDULE: f"@at {at.astimezone(UTC).isoformat(timespec='microseconds')[:-6]}Z",
        TARGET: due_subject(kind, namespace, name),
    }
    if message_id:
        headers[MESSAGE_ID] = message_id
    if traceparent:
        # Headers of a schedule travel with the fact that it becomes.
        headers["traceparent"] = traceparent
    return Outgoing(timer_subject(kind, namespace, name), payload, headers)


async def cancel(bus: Bus, kind: str, namespace: str, name: str) -> bool:
    """Cancels the timer; whether there was one. By a purge: a plain message in its place would hide
    the schedule only until the next restart of the server, and then it would fire."""
    answer = await bus.api(
        f"STREAM.PURGE.{subjects.TIMERS}", {"filter": timer_subject(kind, namespace, name)}
    )
    return bool(answer.get("purged"))
