"""The one place that decides what becomes of a message that fails.

| what happened                        | what becomes of the message                               |
|--------------------------------------|-----------------------------------------------------------|
| its bytes, type or subject are wrong | a dead letter with the reason (`sort`), acknowledged, past|
| `StaleRevision`                      | handled again from a fresh load, here (`persist`)         |
| `Unavailable`, `Busy`                | handled again, with pauses, a bounded number of times     |
| `Fenced`, `Superseded`               | ours no longer: goes up; the successor reads it           |
| anything else is a bug               | goes up: logged, the service ends and starts again, and   |
|                                      | the message is read again (`supervise` bounds the repeats)|

A nak appears nowhere: it would lose the order of the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec
import structlog

from admittance.events import subjects
from admittance.events.names import token
from admittance.events.system import DeadLetter
from admittance.runtime import clock
from admittance.runtime.bus.bus import MESSAGE_ID, Bus, Outgoing
from admittance.runtime.bus.puller import Delivery
from admittance.runtime.errors import Busy, StaleRevision, Unavailable

KEPT_MAX: Final = 256 * 1024
"""Bytes of a payload that a dead letter keeps. As text in JSON a byte may become six, as base64 one
and a third, and the whole must fit into the server's message of 1 MiB."""
HEADERS_MAX: Final = 8 * 1024
ATTEMPTS: Final = 8

T = TypeVar("T")
log = structlog.get_logger()
_encode = msgspec.json.Encoder().encode


class Bad(NamedTuple):
    """A delivery that no instance can handle, and why."""

    delivery: Delivery
    reason: str


async def bury(bus: Bus, service: str, bad: Sequence[Bad]) -> None:
    """Publishes unusable deliveries on ``admit.deadletter.<service>``, with bytes and reason.

    A repeat within the dedupe window has no effect; a later one publishes a second dead letter.
    """
    if not bad:
        return
    for delivery, reason in bad:
        log.warning(
            "message_dead_lettered",
            service=service,
            subject=delivery.subject,
            sequence=delivery.sequence,
            reason=reason,
        )
    messages = [dead_letter(service, delivery, reason) for delivery, reason in bad]
    for outcome in await bus.publish_all(messages):
        if isinstance(outcome, Exception):
            raise outcome


def dead_letter(service: str, delivery: Delivery, reason: str) -> Outgoing:
    """The letter for one delivery; long payloads and headers are cut, and it says so."""
    data = delivery.data[:KEPT_MAX]
    text: str | None
    try:
        text = data.decode()
        # JSON writes control characters as six bytes: rather base64 than a letter that bursts.
        if len(_encode(text)) > 2 * KEPT_MAX:
            text = None
    except UnicodeDecodeError:
        text = None
    headers = dict(delivery.headers)
    cut = sum(len(name) + len(value) for name, value in headers.items()) > HEADERS_MAX
    letter = DeadLetter(
        service=service,
        subject=delivery.subject,
        reason=reason[:4096],
        sequence=delivery.sequence,
        data=text,
        data64=data if text is None else None,
        truncated=cut or len(data) < len(delivery.data),
        headers={} if cut else headers,
        time=clock.now(),
    )
    # Without escapes: the reason may quote what no JSON can hold.
    return Outgoing(
        f"{subjects.DEADLETTER}{token(service)}",
        _safe(letter),
        {MESSAGE_ID: f"deadletter-{service}-{delivery.sequence}"},
    )


def _safe(letter: DeadLetter) -> bytes:
    try:
        return _encode(letter)
    except UnicodeEncodeError:
        # A lone surrogate out of an escaped name.
        reason = letter.reason.encode("utf-8", "backslashreplace").decode()
        return _encode(msgspec.structs.replace(letter, reason=reason))


async def persist(handle: Callable[[], Awaitable[T]], *, attempts: int = ATTEMPTS) -> T:
    """Handles until it succeeds: ``handle`` loads, decides and commits, every time from the start.

    Raises what the last attempt raised, after attempts; at once for everything that trying again
    does not mend.
    """
    pause = 0.01
    for left in range(attempts - 1, -1, -1):
        try:
            return await handle()
        except StaleRevision:
            # Another writer moved the workload first: load and decide anew, without a pause.
            if not left:
                raise
        except (Unavailable, Busy):
            if not left:
                raise
            await asyncio.sleep(pause)
            pause = min(pause * 2, 1.0)
    raise AssertionError("not reached")
