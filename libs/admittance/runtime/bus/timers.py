"""Timers: a schedule on the stream of timers becomes a fact on the log when its time has come.

Stored and replicated like any message, so it survives every restart; overdue ones fire when the
server is back. It fires up to 80 ms late (250 ms in a crowd), never early by the server's clock.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, NamedTuple

from admittance.events import subjects
from admittance.events.names import BadToken, plain, token
from admittance.events.reading import number
from admittance.runtime.bus.bus import MESSAGE_ID, Bus, Outgoing
from admittance.runtime.bus.headers import headers_of
from admittance.runtime.bus.history import last

SCHEDULE: Final = "Nats-Schedule"
TARGET: Final = "Nats-Schedule-Target"
SOURCE: Final = "Nats-Stream-Source"
UID: Final = "Admit-Uid"
"""Of the workload that waits, so that whoever lists schedules need not read them."""


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
    uid: str = "",
    traceparent: str = "",
) -> Outgoing:
    """Sets the timer to ``at`` (aware); payload appears on `due_subject` then. A time that is over
    fires at once. The header takes microseconds, as times have them: nothing is rounded.

    It replaces an earlier one of that kind and workload, if the message id is another one: a
    repeated id within two minutes is dropped, and the earlier time stands.
    """
    headers = {
        SCHEDULE: f"@at {at.astimezone(UTC).isoformat(timespec='microseconds')[:-6]}Z",
        TARGET: due_subject(kind, namespace, name),
    }
    if message_id:
        headers[MESSAGE_ID] = message_id
    if uid:
        headers[UID] = uid
    if traceparent:
        # Headers of a schedule travel with the fact that it becomes.
        headers["traceparent"] = traceparent
    return Outgoing(timer_subject(kind, namespace, name), payload, headers)


class Schedule(NamedTuple):
    """A schedule that stands. ``at`` None: it says no time that can be read, or becomes something
    else than it should."""

    kind: str
    namespace: str
    name: str
    at: datetime | None
    uid: str


async def schedules(bus: Bus) -> tuple[list[Schedule], list[str]]:
    """What stands on the stream of timers, and subjects there that name nobody.

    Read from one end to the other: what moves meanwhile is found or not. Raises Unavailable."""
    found: list[Schedule] = []
    strange: list[str] = []
    async for subject, headers in headers_of(bus, subjects.TIMERS, f"{subjects.TIMER_AT}>"):
        try:
            kind, namespace, name = map(plain, subject.removeprefix(subjects.TIMER_AT).split("."))
        except (BadToken, ValueError):
            strange.append(subject)
            continue
        at = _time(headers.get(SCHEDULE, ""))
        if headers.get(TARGET) != due_subject(kind, namespace, name):
            at = None
        found.append(Schedule(kind, namespace, name, at, headers.get(UID, "")))
    return found, strange


def _time(schedule: str) -> datetime | None:
    word, _, text = schedule.partition(" ")
    try:
        at = datetime.fromisoformat(text) if word == "@at" else None
    except ValueError:
        return None
    return at if at is not None and at.tzinfo is not None else None


async def cancel(bus: Bus, kind: str, namespace: str, name: str) -> bool:
    """Cancels the timer; whether there was one. By a purge: a plain message in its place would hide
    the schedule only until the next restart of the server, and then it would fire."""
    return await purge(bus, timer_subject(kind, namespace, name))


async def purge(bus: Bus, subject: str) -> bool:
    """Takes away what the stream of timers has there; whether there was anything."""
    answer = await bus.api(f"STREAM.PURGE.{subjects.TIMERS}", {"filter": subject})
    return bool(answer.get("purged"))


async def sweep(bus: Bus) -> int:
    """Takes away the facts that the log has already copied: on the stream of timers they would stay
    for ever, one of each kind and workload that ever was. How many."""
    newest = await last(bus, f"{subjects.TIMER_DUE}>")
    source = newest.headers.get(SOURCE, "").split() if newest is not None else []
    copied = number(source[1]) if len(source) > 1 else None
    if copied is None or source[0].split(":")[0] != subjects.TIMERS:
        return 0
    # The log copies in order: with its newest it has all before.
    answer = await bus.api(
        f"STREAM.PURGE.{subjects.TIMERS}",
        {"filter": f"{subjects.TIMER_DUE}>", "seq": copied + 1},
    )
    return int(answer.get("purged", 0))
