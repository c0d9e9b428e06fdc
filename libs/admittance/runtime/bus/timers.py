"""Timers: schedules on the timers stream, each of which the server turns into a fact on the log
when due.

A schedule is stored and replicated like any message, so it survives restarts; an overdue schedule
fires when the server is back. A schedule fires up to 80 ms late (250 ms if many fire at once), and
never early by the server's clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec
import nats.errors

from admittance.events import subjects
from admittance.events.names import BadToken, plain, token
from admittance.events.reader import number
from admittance.runtime.bus.bus import MESSAGE_ID, Bus, Outgoing
from admittance.runtime.bus.history import last
from admittance.runtime.errors import BusRefused, BusUnavailable
from admittance.runtime.nats.protocol import Headers, description, status, text_of
from admittance.runtime.tasks import set_within

PAGE: Final = 2000
"""How many messages one request to the server returns."""
SILENCE_SECONDS: Final = 5.0
NOTHING_LEFT: Final = ("404", "408")

_encode = msgspec.json.Encoder().encode


async def headers_of(
    bus: Bus, stream: str, pattern: str
) -> AsyncIterator[tuple[str, Mapping[str, str]]]:
    """Returns subject and headers of each message of the stream under the pattern. Raises
    BusUnavailable if the stream cannot be read completely.
    """
    made = await bus.api(
        f"CONSUMER.CREATE.{stream}",
        {
            "stream_name": stream,
            "config": {
                "ack_policy": "none",
                "deliver_policy": "all",
                "filter_subject": pattern,
                "headers_only": True,
                "inactive_threshold": 30_000_000_000,
                "mem_storage": True,
                "num_replicas": 1,
            },
        },
    )
    name = made["name"]
    try:
        more = bool(made.get("num_pending"))
        while more:
            page = await _page(bus, stream, name)
            for subject, raw in page:
                yield subject, Headers(raw)
            more = len(page) == PAGE
    finally:
        # If deleting the temporary consumer fails, the server removes it a little later.
        with suppress(BusRefused, BusUnavailable):
            await bus.api(f"CONSUMER.DELETE.{stream}.{name}")


async def _page(bus: Bus, stream: str, consumer: str) -> list[tuple[str, bytes]]:
    """The next messages of the stream; fewer than `PAGE` if no messages follow."""
    messages: list[tuple[str, bytes]] = []
    moved, over = asyncio.Event(), asyncio.Event()
    errors: list[str] = []

    def take(subject: bytes, reply: bytes, _data: bytes, headers: bytes) -> None:
        if reply.startswith(b"$JS.ACK."):
            messages.append((text_of(subject), headers))
        else:
            word = status(headers)
            if word not in NOTHING_LEFT:
                errors.append(f"{word} {description(headers)}")
            over.set()
        if len(messages) == PAGE:
            over.set()
        moved.set()

    inbox = bus.nc.new_inbox()
    listening = await bus.nc.listen(inbox, take)
    request: dict[str, Any] = {"batch": PAGE, "no_wait": True}
    try:
        await bus.nc.publish(
            f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", _encode(request), reply=inbox
        )
        while not over.is_set():
            moved.clear()
            if not await set_within(moved, SILENCE_SECONDS):
                raise BusUnavailable(f"the server stopped sending messages of {stream}")
    except nats.errors.Error as error:
        raise BusUnavailable(f"the messages of {stream} cannot be read: {error}") from None
    finally:
        with suppress(nats.errors.Error):
            await bus.nc.unlisten(listening)
    if errors:
        # For example, the server was restarted and lost the consumer: then messages are missing.
        raise BusUnavailable(f"{stream} was not read to its end: {errors[0]}")
    return messages


SCHEDULE: Final = "Nats-Schedule"
TARGET: Final = "Nats-Schedule-Target"
SOURCE: Final = "Nats-Stream-Source"
UID: Final = "Admit-Uid"
"""Header with the uid of the waiting workload, so that a list of schedules need not read the
messages' bodies.
"""


def timer_subject(kind: str, namespace: str, name: str) -> str:
    """The subject of a schedule: one for each kind and workload."""
    return f"{subjects.TIMER_AT}{token(kind)}.{token(namespace)}.{token(name)}"


def due_subject(kind: str, namespace: str, name: str) -> str:
    """The subject of the fact that the server publishes when the schedule is due."""
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
    """The message of a schedule: at the time ``at`` (aware) the payload appears on `due_subject`. A
    schedule for a time in the past fires at once.

    The message replaces an earlier schedule of the same kind and workload, unless it has the same
    message id as a message of the last two minutes: then the server drops it and keeps the earlier
    time.
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
        # The server copies a schedule's headers to the fact, so the trace context goes with them.
        headers["traceparent"] = traceparent
    return Outgoing(timer_subject(kind, namespace, name), payload, headers)


class Schedule(NamedTuple):
    """A schedule on the timers stream. ``at`` None: the schedule's time or target is not valid."""

    kind: str
    namespace: str
    name: str
    at: datetime | None
    uid: str


async def schedules(bus: Bus) -> tuple[list[Schedule], list[str]]:
    """Returns the schedules on the timers stream, and the stream's subjects that name no workload.

    A schedule that changes during the read may be returned or left out. Raises BusUnavailable."""
    standing: list[Schedule] = []
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
        standing.append(Schedule(kind, namespace, name, at, headers.get(UID, "")))
    return standing, strange


def _time(schedule: str) -> datetime | None:
    word, _, text = schedule.partition(" ")
    try:
        at = datetime.fromisoformat(text) if word == "@at" else None
    except ValueError:
        return None
    return at if at is not None and at.tzinfo is not None else None


async def cancel(bus: Bus, kind: str, namespace: str, name: str) -> bool:
    """Cancels the timer of this kind and workload. Returns whether the timer existed.

    The schedule must be purged: a plain message on its subject would hide it only until the next
    restart of the server, and then it would fire.
    """
    return await purge(bus, timer_subject(kind, namespace, name))


async def purge(bus: Bus, subject: str) -> bool:
    """Purges a subject of the timers stream. Returns whether the subject had messages."""
    answer = await bus.api(f"STREAM.PURGE.{subjects.TIMERS}", {"filter": subject})
    return bool(answer.get("purged"))


async def purge_copied(bus: Bus) -> int:
    """Purges from the timers stream the facts that the log has already copied. Returns their
    number. Without this purge, the timers stream would keep one fact per kind and workload without
    limit.
    """
    newest = await last(bus, f"{subjects.TIMER_DUE}>")
    source = newest.headers.get(SOURCE, "").split() if newest is not None else []
    copied = number(source[1]) if len(source) > 1 else None
    if copied is None or source[0].split(":")[0] != subjects.TIMERS:
        return 0
    # The log copies facts in order, so it has all facts before the newest one that it has copied.
    answer = await bus.api(
        f"STREAM.PURGE.{subjects.TIMERS}",
        {"filter": f"{subjects.TIMER_DUE}>", "seq": copied + 1},
    )
    return int(answer.get("purged", 0))
