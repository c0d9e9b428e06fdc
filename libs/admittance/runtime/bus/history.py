"""Reads stored messages of a stream, by subject, without a consumer.

A direct get names the subject of the message in the subject of the request, so permissions can
limit what a user reads. Any replica of a stream answers, so in a cluster an answer can miss the
last writes for the moment in which its replica lags; services read keys that they write with
`bucket.get` instead, from the stream's leader.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec
import nats.errors

from admittance.backoff import pause_after
from admittance.events import subjects
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import AccessDenied, BusRefused, BusUnavailable, NoResponders
from admittance.runtime.nats.connection import NO_RESPONDERS
from admittance.runtime.nats.jetstream import PAUSE_SECONDS, RELOAD_SECONDS
from admittance.runtime.nats.protocol import Headers, description, parse_headers, status, text_of
from admittance.runtime.tasks import set_within

ANSWER_SECONDS: Final = 5.0
RESEND_SECONDS: Final = 0.5
RESEND_SECONDS_MAX: Final = 1.0
"""Seconds after which a direct get without an answer is sent again: the first time, and later. The
servers of a cluster share these requests, so a third of them goes to a server that is paused, until
the other servers close their routes to it.
"""
NOT_FOUND: Final = "404"
END: Final = "204"
NO_MESSAGE: Final = 10037
"""The server's error code if the stream has no such message."""
PAGE: Final = 500
"""How many messages one request to the server returns."""
_NO_HEADERS: Final[Mapping[str, str]] = {}
_encode = msgspec.json.Encoder().encode


class StoredMessage(NamedTuple):
    """A message of a stream. ``time``: when the server stored the message."""

    sequence: int
    time: datetime
    subject: str
    data: bytes
    headers: Mapping[str, str] = _NO_HEADERS


async def last_by_direct_get(
    bus: Bus, subject: str, *, stream: str = subjects.STREAM
) -> StoredMessage | None:
    """The newest message on the subject, without wildcards, from any replica of the stream; None if
    the subject has no message. Raises BusUnavailable, AccessDenied, and BusRefused if the server
    refuses the request.
    """
    request = f"$JS.API.DIRECT.GET.{stream}.{subject}"
    [(data, headers)] = await _ask(bus, request, b"", several=False)
    code = status(headers)
    if code == NOT_FOUND:
        return None
    if code:
        raise _refused(request, code, headers)
    return _message(data, headers)


async def time_of_last(bus: Bus, subject: str) -> datetime | None:
    """When the newest message on the subject, with wildcards, was stored on the log, from any
    replica; None if there is none. Raises what `last_by_direct_get` raises; only users that may
    read the whole log may ask."""
    request = f"$JS.API.DIRECT.GET.{subjects.STREAM}"
    [(data, headers)] = await _ask(bus, request, _encode({"last_by_subj": subject}), several=False)
    code = status(headers)
    if code == NOT_FOUND:
        return None
    if code:
        raise _refused(request, code, headers)
    return _message(data, headers).time


async def batched_direct_get(
    bus: Bus, stream: str, request: Mapping[str, Any]
) -> list[tuple[bytes, bytes]]:
    """Data and headers of the messages that a batched direct get returns, in order. Raises what
    `last_by_direct_get` raises.
    """
    subject = f"$JS.API.DIRECT.GET.{stream}"
    answers = await _ask(bus, subject, _encode(request), several=True)
    code = status(answers[-1][1])
    if code not in (END, NOT_FOUND):
        raise _refused(subject, code, answers[-1][1])
    return answers[:-1]


async def _ask(bus: Bus, subject: str, data: bytes, *, several: bool) -> list[tuple[bytes, bytes]]:
    """The data and headers of each answer; with ``several`` the last answer is the server's
    status."""
    deadline = clock.monotonic() + ANSWER_SECONDS
    await bus.connected(ANSWER_SECONDS)
    asking = _Asking(several)
    inbox = bus.nc.new_inbox()
    needed = {subject.lower(), f"{inbox}.*".lower()}

    def on_denied(denied: str) -> None:
        if denied in needed:
            asking.denied = AccessDenied(bus.nc.denial_of(subject, f"{inbox}.*"))
            asking.news.set()

    try:
        subscription = await bus.nc.listen(f"{inbox}.*", asking.on_answer)
        bus.nc.on_denied.append(on_denied)
        bus.nc.on_denied_subscription.append(on_denied)
        try:
            return await _answers(bus, subject, data, inbox, asking, deadline)
        finally:
            bus.nc.on_denied.remove(on_denied)
            bus.nc.on_denied_subscription.remove(on_denied)
            await bus.nc.unlisten(subscription)
    except nats.errors.Error as error:
        raise BusUnavailable(f"no answer on {subject}: {error}") from None


class _Asking:
    """The answers to a direct get and its copies. ``answers``: of each copy, by the last token of
    its reply subject. ``complete``: all answers of one copy. ``news``: set at each answer."""

    def __init__(self, several: bool) -> None:
        self._several = several
        self.answers: dict[bytes, list[tuple[bytes, bytes]]] = {}
        self.complete: list[tuple[bytes, bytes]] | None = None
        self.denied: AccessDenied | None = None
        self.news = asyncio.Event()

    def on_answer(self, subject: bytes, _reply: bytes, body: bytes, headers: bytes) -> None:
        answers = self.answers.setdefault(subject[subject.rfind(b".") + 1 :], [])
        answers.append((body, headers))
        if self.complete is None and (not self._several or status(headers)):
            self.complete = answers
        self.news.set()


def _resend_pause(copies: int) -> float:
    return pause_after(copies, RESEND_SECONDS, RESEND_SECONDS_MAX)


async def _answers(
    bus: Bus, subject: str, data: bytes, inbox: str, asking: _Asking, deadline: float
) -> list[tuple[bytes, bytes]]:
    """The answers to the first copy that is answered completely."""
    give_up_at = clock.monotonic() + RELOAD_SECONDS
    copy = 0
    while True:
        await bus.nc.publish(subject, data, reply=f"{inbox}.{copy}")
        copy += 1
        again = min(deadline, clock.monotonic() + _resend_pause(copy))
        while await set_within(asking.news, max(0.0, again - clock.monotonic())):
            asking.news.clear()
            if asking.denied is not None:
                raise asking.denied
            if asking.complete is not None:
                if status(asking.complete[-1][1]) != NO_RESPONDERS:
                    return asking.complete
                if clock.monotonic() >= give_up_at:
                    raise NoResponders(f"no responder on {subject}")
                asking.complete = None
                await asyncio.sleep(PAUSE_SECONDS)
                break
            # The server that answers is not the one that is away: no other copy is needed soon.
            again = min(deadline, clock.monotonic() + _resend_pause(copy + 1))
        if clock.monotonic() >= deadline:
            why = bus.nc.denial_of(subject) or "timeout"
            raise BusUnavailable(f"no answer on {subject}: {why}")
        await bus.connected(max(0.0, deadline - clock.monotonic()))


def _message(data: bytes, raw: bytes) -> StoredMessage:
    sequence, subject = place_of(raw)
    time = time_of(_added(raw, _TIME).decode())
    return StoredMessage(sequence, time, subject, data, Headers(raw))


def place_of(raw: bytes) -> tuple[int, str]:
    """Sequence and subject of a stored message, from the headers of a direct get."""
    return int(_added(raw, _SEQUENCE)), text_of(_added(raw, _SUBJECT))


_SEQUENCE: Final = b"\r\nNats-Sequence: "
_SUBJECT: Final = b"\r\nNats-Subject: "
_TIME: Final = b"\r\nNats-Time-Stamp: "


def _added(raw: bytes, start: bytes) -> bytes:
    """The value of a header that the server added: the last one that begins with ``start``, because
    the publisher may have sent a header of the same name.
    """
    at = raw.rindex(start) + len(start)
    return raw[at : raw.index(b"\r\n", at)]


def _refused(subject: str, code: str, headers: bytes) -> BusRefused:
    return BusRefused(int(code), f"{subject}: {description(headers)}")


async def read_messages(
    bus: Bus,
    filters: Sequence[str],
    *,
    after: int = 0,
    since: datetime | None = None,
    limit: int = PAGE,
    bytes_max: int = 0,
    stream: str = subjects.STREAM,
) -> list[StoredMessage]:
    """The first ``limit`` messages of these subjects after the sequence ``after``, in order.

    ``since`` counts only if ``after`` is 0. ``bytes_max``: the most bytes of all returned messages
    together, only for a call with one filter; 0: no limit. Raises BusUnavailable or BusRefused.
    """
    pages = await asyncio.gather(
        *(_page(bus, stream, subject, after, since, limit, bytes_max) for subject in filters)
    )
    merged = {message.sequence: message for page, _ in pages for message in page}
    return [merged[sequence] for sequence in sorted(merged)[:limit]]


FILTERS_AT_ONCE: Final = 8
"""How many subjects `read_in_order` reads at the same time, so that its memory is bounded."""


async def read_in_order(
    bus: Bus,
    filters: Sequence[str],
    *,
    after: int = 0,
    since: datetime | None = None,
    limit: int,
    bytes_max: int,
) -> tuple[list[StoredMessage], bool]:
    """The first messages of these subjects after the sequence ``after``, as `read_messages` returns
    them, and whether they are all. The result ends at ``limit`` messages or ``bytes_max`` bytes,
    with at least one message if there is one. ``bytes_max`` is at least four times the largest
    message. The writers of messages decide how large these are, so pages without a limit of
    bytes could fill the memory.
    """
    messages: dict[int, StoredMessage] = {}
    whole = True
    horizon = 0  # of a page that is not the last one: later messages of its subject are missing
    for start in range(0, len(filters), FILTERS_AT_ONCE):
        part = filters[start : start + FILTERS_AT_ONCE]
        pages = await asyncio.gather(
            *(
                _page(bus, subjects.STREAM, subject, after, since, limit, bytes_max)
                for subject in part
            )
        )
        for page, size in pages:
            messages |= {message.sequence: message for message in page}
            # The server may have ended the page because the next message was too large for it.
            if len(page) == limit or size >= bytes_max // 2:
                last = page[-1].sequence
                horizon = last if whole else min(horizon, last)
                whole = False
        kept: dict[int, StoredMessage] = {}
        size = 0
        for sequence in sorted(messages):
            size += len(messages[sequence].data)
            if not whole and sequence > horizon:
                break
            if kept and (len(kept) == limit or size > bytes_max):
                whole = False
                break
            kept[sequence] = messages[sequence]
        if not whole:
            horizon = max(kept)
        messages = kept
    return list(messages.values()), whole


async def _page(
    bus: Bus,
    stream: str,
    subject: str,
    after: int,
    since: datetime | None,
    limit: int,
    bytes_max: int,
) -> tuple[list[StoredMessage], int]:
    """A page of messages, and their bytes with headers."""
    request: dict[str, Any] = {"batch": limit, "next_by_subj": subject}
    if bytes_max:
        request["max_bytes"] = bytes_max
    if after or since is None:
        request["seq"] = after + 1
    else:
        request["start_time"] = since.astimezone(UTC).isoformat()
    answer = await batched_direct_get(bus, stream, request)
    size = sum(len(data) + len(headers) for data, headers in answer)
    return [_message(data, headers) for data, headers in answer], size


def time_of(stamp: str) -> datetime:
    """The time of a message, rounded as `clock` rounds it: a workload's uid is derived from this
    time.
    """
    whole, _, fraction = stamp.removesuffix("Z").partition(".")
    seconds = int(datetime.fromisoformat(f"{whole}+00:00").timestamp())
    return clock.from_nanoseconds(seconds * 1_000_000_000 + int(fraction.ljust(9, "0") or 0))


LAST_AT_ONCE: Final = 500
"""The most subjects of which one request reads the newest message; the server takes 1,024."""
LAST_BYTES: Final = 8 << 20
"""The bytes after which the server ends an answer with newest messages. Without this limit it ends
the answer at 64 MiB, and says so nowhere but in a header."""


async def pages_of_last(
    bus: Bus, names: Sequence[str], *, stream: str = subjects.STREAM
) -> AsyncIterator[list[StoredMessage]]:
    """The newest message on each of the given subjects, from any replica of the stream, in pages of
    bounded size; subjects without a message are left out. Raises what `last_by_direct_get` raises.
    """
    for start in range(0, len(names), LAST_AT_ONCE):
        left = dict.fromkeys(names[start : start + LAST_AT_ONCE])
        while left:
            request = {"multi_last": list(left), "batch": len(left), "max_bytes": LAST_BYTES}
            answers = await batched_direct_get(bus, stream, request)
            if not answers:
                break  # The other subjects have no message.
            page = [_message(data, headers) for data, headers in answers]
            for message in page:
                del left[message.subject]
            yield page


async def last_of_each(
    bus: Bus, names: Sequence[str], *, stream: str = subjects.STREAM
) -> list[StoredMessage]:
    """All pages of `pages_of_last` together."""
    return [message async for page in pages_of_last(bus, names, stream=stream) for message in page]


async def last(bus: Bus, subject: str, *, stream: str = subjects.STREAM) -> StoredMessage | None:
    """The newest message on the subject, read from the leader of the stream; None if the subject
    has no message."""
    return await _from_leader(bus, stream, {"last_by_subj": subject})


async def newest_sequence(
    bus: Bus, filters: Sequence[str], *, stream: str = subjects.STREAM
) -> int:
    """The newest sequence of the subjects, with wildcards, read from the leader of the stream; 0 if
    they have no message."""
    newest = await asyncio.gather(*(last(bus, subject, stream=stream) for subject in filters))
    return max((message.sequence for message in newest if message is not None), default=0)


async def message_at(bus: Bus, sequence: int) -> StoredMessage | None:
    """The message of the log with that sequence, read from the leader of the stream; None if the
    log has no such message."""
    return await _from_leader(bus, subjects.STREAM, {"seq": sequence})


async def next_from_leader(
    bus: Bus, stream: str, after: int, subject: str = ">"
) -> StoredMessage | None:
    """The first message of the stream after that sequence, on a subject that matches, read from the
    leader of the stream; None if the stream has no such message."""
    return await _from_leader(bus, stream, {"seq": after + 1, "next_by_subj": subject})


async def message_by_direct_get(bus: Bus, sequence: int) -> StoredMessage | None:
    """The message of the log with that sequence, from any replica; None if the log has no such
    message. Raises BusUnavailable or BusRefused."""
    messages = await read_messages(bus, ["admit.>"], after=sequence - 1, limit=1)
    return messages[0] if messages and messages[0].sequence == sequence else None


async def _from_leader(bus: Bus, stream: str, query: dict[str, Any]) -> StoredMessage | None:
    try:
        answer = await bus.api(f"STREAM.MSG.GET.{stream}", query)
    except BusRefused as error:
        if error.code == NO_MESSAGE:
            return None
        raise
    message: dict[str, Any] = answer["message"]
    return StoredMessage(
        message["seq"],
        time_of(message["time"]),
        message["subject"],
        base64.b64decode(message.get("data", "")),
        parse_headers(base64.b64decode(message.get("hdrs", ""))),
    )
