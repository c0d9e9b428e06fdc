"""Snapshots of streams, and streams made from them (``$JS.API.STREAM.SNAPSHOT`` and ``RESTORE``).

A snapshot is a sequence of parts that only the server reads. A snapshot keeps the sequences and
times of messages, and nats-server writes it while programs publish to the stream. nats-server 2.15
fixes the last sequence of the snapshot first and then reads message after message. So a snapshot of
a bucket lacks every key that is written meanwhile: the old value is removed before it is read, and
the new value comes after the last sequence. `messages_since` returns these values, and
`publish_at_sequences` puts them back at their sequences.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import msgspec
import nats.errors

from admittance.events import subjects
from admittance.runtime.bus import history
from admittance.runtime.bus.bus import EXPECTED, FENCE, MESSAGE_ID, Bus, Outgoing
from admittance.runtime.bus.durables import list_consumers
from admittance.runtime.bus.history import StoredMessage
from admittance.runtime.errors import BusRefused, BusUnavailable, SetupError, refusal
from admittance.runtime.nats.jetstream import until_something_responds

PART_SECONDS: Final = 15.0
"""Longest wait for a part of a snapshot, and for the confirmation of a part."""
LAST_SECONDS: Final = 60.0
"""Longest wait for the end of a restore: the server may still be storing messages."""
TAIL_PAGE: Final = 5_000
TAIL_BYTES: Final = 8 * 1024 * 1024
"""The bytes after which the server ends a page. Large pages read faster than any program writes, so
the reading reaches the end of the stream soon. The server closes the connection of a client for
which 64 MiB wait.
"""
TAIL_PAUSE_SECONDS: Final = 0.05
_SUCCESS: Final = ("", "204")
_DYNAMIC: Final = "_nats."
"""First characters of metadata that the server adds when it shows a configuration."""
_ADDED: Final = frozenset(
    {
        *("Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp"),
        *("Nats-Last-Sequence", "Nats-Num-Pending", "Nats-UpTo-Sequence"),
    }
)
"""Headers that the server adds to the answer of a direct get."""
_CHECKED: Final = (EXPECTED, FENCE, "Nats-Expected-", "Nats-Batch-", MESSAGE_ID)
"""First characters of headers that the server checked when it stored a message. A message that is
stored again must not be checked again."""

_json = msgspec.json.Encoder()


class SnapshotEnded(BusUnavailable):
    """A snapshot ended before it was complete. Another attempt may succeed."""


class _CreateReply(msgspec.Struct):
    error: Mapping[str, Any] | None = None
    state: Mapping[str, Any] | None = None


def outgoing(message: StoredMessage) -> Outgoing:
    """The stored message as a message that can be stored again."""
    headers = {
        name: value
        for name, value in message.headers.items()
        if name not in _ADDED and not name.startswith(_CHECKED)
    }
    return Outgoing(message.subject, message.data, headers or None)


async def take_snapshot(
    bus: Bus, stream: str, begin: Callable[[Mapping[str, Any]], Callable[[bytes], None]]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Takes a snapshot of the stream, without the consumers of the stream, and returns the stream's
    configuration and its state when the snapshot began.

    ``begin`` is called with that state before the first part, and returns the function that gets
    each part. nats-server numbers the parts and asks for a confirmation of each, apart from the
    last; after 64 parts without a confirmation it waits.

    Raises SnapshotEnded if the server ends the snapshot early, if it stops sending, or if a part is
    missing; BusUnavailable, BusRefused, and what the functions raise."""
    inbox = bus.nc.new_inbox()
    subscription = await bus.nc.subscribe(inbox)
    try:
        # When a snapshot of a stream is requested, nats-server checks at once whether the inbox for
        # the parts of the snapshot has a subscriber.
        await bus.nc.flush()
        request = {"deliver_subject": inbox, "no_consumers": True}
        begun = await bus.api(f"STREAM.SNAPSHOT.{stream}", request, timeout=PART_SECONDS)
        write = begin(begun["state"])
        number, is_last = 0, False
        while True:
            part = await subscription.next_msg(timeout=PART_SECONDS)
            if not part.data:
                headers = part.headers or {}
                if headers.get("Status", "") not in _SUCCESS:
                    why = f"{headers.get('Status')} {headers.get('Description', '')}".strip()
                    raise SnapshotEnded(f"the server ended the snapshot of {stream}: {why}")
                return begun["config"], begun["state"]
            number += 1
            if is_last or (part.reply and _part_of(part.reply) != (len(part.data), number)):
                raise SnapshotEnded(f"a part of the snapshot of {stream} is missing")
            is_last = not part.reply
            if part.reply:
                await bus.nc.publish(part.reply, b"")
            write(part.data)
    except (nats.errors.Error, TimeoutError):
        raise SnapshotEnded(f"the server stopped sending the snapshot of {stream}") from None
    finally:
        with suppress(nats.errors.Error):
            await subscription.unsubscribe()


def _part_of(reply: str) -> tuple[int, int]:
    """The bytes and the number of a part, from the subject on which the server asks for its
    confirmation: ``$JS.SNAPSHOT.ACK.<stream>.<id>.<bytes>.<number>``."""
    size, number = reply.split(".")[-2:]
    return (int(size), int(number)) if size.isdigit() and number.isdigit() else (0, 0)


async def messages_since(bus: Bus, stream: str, after: int) -> AsyncIterator[list[StoredMessage]]:
    """Returns the messages after the sequence, in order, until the stream has no more.

    With the messages up to ``after`` these are all messages that the stream held at one moment: a
    message that was replaced meanwhile comes again with its new sequence. Raises BusUnavailable or
    BusRefused."""
    while True:
        page = await history.read_messages(
            bus, [">"], after=after, limit=TAIL_PAGE, bytes_max=TAIL_BYTES, stream=stream
        )
        if page:
            after = page[-1].sequence
            yield page
        elif await history.next_from_leader(bus, stream, after) is None:
            return
        else:
            # The replica that answered has not stored the newest messages yet.
            await asyncio.sleep(TAIL_PAUSE_SECONDS)


async def state_of(bus: Bus, stream: str) -> dict[str, Any]:
    """The state of the stream: messages, bytes, sequences. Raises BusUnavailable or BusRefused."""
    return dict((await bus.api(f"STREAM.INFO.{stream}"))["state"])


async def last_sequence(bus: Bus, stream: str) -> int:
    """The sequence of the newest message of the stream. Raises BusUnavailable or BusRefused."""
    return int((await state_of(bus, stream))["last_seq"])


async def restore_snapshot(
    bus: Bus,
    config: Mapping[str, Any],
    state: Mapping[str, Any],
    parts: Iterable[bytes],
    *,
    replicas: int = 0,
) -> int:
    """Makes a stream from a snapshot. Returns its last sequence. ``replicas``: how many replicas
    the restored stream gets; 0: as many as its configuration says. Raises BusRefused, SetupError or
    BusUnavailable.
    """
    name = config["name"]
    settings = {key: value for key, value in config.items() if key != "metadata"}
    kept = {k: v for k, v in (config.get("metadata") or {}).items() if not k.startswith(_DYNAMIC)}
    if kept:
        settings["metadata"] = kept
    if replicas:
        settings["num_replicas"] = replicas
    begun = await bus.api(
        f"STREAM.RESTORE.{name}", {"config": settings, "state": state}, timeout=PART_SECONDS
    )

    async def send(part: bytes, timeout: float) -> bytes:
        # The server that restores is the leader of the cluster: the server of this connection may
        # hear some milliseconds later that it subscribes to the parts.
        subject = begun["deliver_subject"]
        return await until_something_responds(partial(bus.request, subject, part, timeout))

    for part in parts:
        if answer := await send(part, PART_SECONDS):
            raise _failure(name, answer)
    answer = await send(b"", LAST_SECONDS)
    made = msgspec.json.decode(answer, type=_CreateReply)
    if made.error is not None or made.state is None:
        raise _failure(name, answer)
    return int(made.state["last_seq"])


def _failure(name: str, answer: bytes) -> Exception:
    error = msgspec.json.decode(answer, type=_CreateReply).error or {}
    why = error.get("description", "no reason given")
    code = int(error.get("err_code") or 0)
    refused = refusal(code, why, status=int(error.get("code") or 400))
    return refused if type(refused) is not BusRefused else SetupError(f"stream {name}: {why}")


FILLED_AT_ONCE: Final = 2_000
"""How many probes are sent for one acknowledgement: the server drops messages of which more than
10,000 wait. So 300,000 take 2 s, and with an acknowledgement for each 6 s."""


async def publish_at_sequences(
    bus: Bus, stream: str, last: int, messages: Sequence[tuple[int, Outgoing]], end: int
) -> int:
    """Stores messages at their sequences, after ``last``, and returns the new last sequence. Probes
    fill the sequences between the messages, and up to ``end``. Raises SetupError if another program
    writes to the stream, and BusUnavailable or BusRefused.
    """
    wanted: list[Outgoing] = []
    filler = Outgoing(subjects.PROBES[stream], b"")
    for sequence, message in messages:
        if max(len(wanted), sequence - last - len(wanted)) > FILLED_AT_ONCE:
            last = await _fill(bus, stream, await _store(bus, stream, last, wanted), sequence - 1)
            wanted = []
        wanted += [filler] * (sequence - last - len(wanted) - 1)
        wanted.append(message)
    return await _fill(bus, stream, await _store(bus, stream, last, wanted), end)


async def _store(bus: Bus, stream: str, last: int, wanted: Sequence[Outgoing]) -> int:
    """Stores the messages after the sequence ``last``; returns the new last sequence."""
    outcomes = await bus.publish_all(wanted, timeout=10.0 + len(wanted) / 1000)
    for place, outcome in enumerate(outcomes, last + 1):
        if isinstance(outcome, BusRefused):
            raise outcome
        if outcome != place:
            raise _written_by_others(stream)
    return last + len(wanted)


async def _fill(bus: Bus, stream: str, last: int, end: int) -> int:
    """Stores probes after the sequence ``last`` up to ``end``; returns the new last sequence."""
    subject = subjects.PROBES[stream]
    while last < end:
        count = min(end - last, FILLED_AT_ONCE)
        await bus.publish_unacknowledged(*[(subject, b"")] * (count - 1))
        newest = await bus.publish(Outgoing(subject, b""))
        if not last < newest <= last + count:
            raise _written_by_others(stream)
        last = newest
    return last


def _written_by_others(stream: str) -> SetupError:
    return SetupError(
        f"another program writes to stream {stream}: stop all services, and restore into an empty "
        "server"
    )


class Position(msgspec.Struct, frozen=True):
    """A durable consumer of the log, and the sequence up to which it has acknowledged all
    messages."""

    name: str
    config: dict[str, Any]
    floor: int


async def log_positions(bus: Bus) -> list[Position]:
    """The durable consumers of the log with their positions. Raises BusUnavailable or
    BusRefused."""
    return [
        Position(str(info["name"]), dict(info["config"]), _floor(info))
        for info in await list_consumers(bus, subjects.STREAM)
        if info["config"].get("durable_name")
    ]


def _floor(info: Mapping[str, Any]) -> int:
    """The sequence up to which a consumer has acknowledged everything that it reads."""
    acknowledged = int(info["ack_floor"]["stream_seq"])
    started = int(info["config"].get("opt_start_seq", 1)) - 1
    if not info.get("num_ack_pending"):
        acknowledged = max(acknowledged, int(info["delivered"]["stream_seq"]))
    return max(acknowledged, started)


async def restore_position(bus: Bus, position: Position, *, replicas: int = 0) -> None:
    """Creates a consumer of the log that continues after the position. Raises BusUnavailable or
    BusRefused."""
    config = {
        key: value
        for key, value in position.config.items()
        if key not in ("metadata", "opt_start_seq", "opt_start_time", "pause_until")
    }
    if replicas and config.get("num_replicas"):
        config["num_replicas"] = replicas
    config |= {"deliver_policy": "by_start_sequence", "opt_start_seq": position.floor + 1}
    await bus.api(
        f"CONSUMER.CREATE.{subjects.STREAM}.{position.name}",
        {"stream_name": subjects.STREAM, "config": config},
    )
