"""Reads stored messages by direct get, which needs no consumer.

For one message the subject of the message is part of the subject of the request, so permissions can
limit what a user reads. Any replica of a stream answers, so in a cluster an answer can miss the
last writes for the moment in which its replica lags; services read keys that they write with
`bucket.get` instead, from the stream's leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec
import nats.errors

from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.connection import Headers, description, status, text_of
from admittance.runtime.errors import AccessDenied, Refused, Unavailable

ANSWER_SECONDS: Final = 5.0
RESEND_SECONDS: Final = 2.0
"""Seconds after which a request without an answer is sent again, because the connection may have
been lost."""
NOT_FOUND: Final = "404"
END: Final = "204"

_encode = msgspec.json.Encoder().encode


class DirectMessage(NamedTuple):
    """A stored message. ``stamp``: when the server stored it. ``headers``: those of the message,
    and the server's own.
    """

    subject: str
    sequence: int
    stamp: str
    data: bytes
    headers: Mapping[str, str]


async def last_message(bus: Bus, stream: str, subject: str) -> DirectMessage | None:
    """The newest message on the subject, without wildcards; None if there is none. Raises
    Unavailable, AccessDenied, and Refused if the server refuses the request.
    """
    request = f"$JS.API.DIRECT.GET.{stream}.{subject}"
    [(data, headers)] = await _ask(bus, request, b"", several=False)
    code = status(headers)
    if code == NOT_FOUND:
        return None
    if code:
        raise _refused(request, code, headers)
    return _message(data, headers)


async def messages(bus: Bus, stream: str, request: Mapping[str, Any]) -> list[DirectMessage]:
    """The messages that a batched direct get returns, in order. Raises what `last_message`
    raises.
    """
    subject = f"$JS.API.DIRECT.GET.{stream}"
    answers = await _ask(bus, subject, _encode(request), several=True)
    code = status(answers[-1][1])
    if code not in (END, NOT_FOUND):
        raise _refused(subject, code, answers[-1][1])
    return [_message(data, headers) for data, headers in answers[:-1]]


async def _ask(bus: Bus, subject: str, data: bytes, *, several: bool) -> list[tuple[bytes, bytes]]:
    """The data and headers of each answer; with ``several`` the last answer is the server's
    status."""
    deadline = clock.monotonic() + ANSWER_SECONDS
    while True:
        await bus.connected(max(0.0, deadline - clock.monotonic()))
        try:
            answers = await _attempt(
                bus, subject, data, min(deadline, clock.monotonic() + RESEND_SECONDS), several
            )
        except TimeoutError:
            if clock.monotonic() < deadline:
                continue
            raise Unavailable(f"no answer on {subject}: {bus.nc.denied or 'timeout'}") from None
        except nats.errors.Error as error:
            raise Unavailable(f"no answer on {subject}: {error}") from None
        if status(answers[-1][1]) == "503":
            raise Unavailable(f"no responder on {subject}")
        return answers


async def _attempt(
    bus: Bus, subject: str, data: bytes, until: float, several: bool
) -> list[tuple[bytes, bytes]]:
    answers: list[tuple[bytes, bytes]] = []
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_answer(_subject: bytes, _reply: bytes, body: bytes, headers: bytes) -> None:
        if not done.done():
            answers.append((body, headers))
            if not several or status(headers):
                done.set_result(None)

    inbox = bus.nc.new_inbox()
    needed = {subject.lower(), inbox.lower()}

    def on_denied(denied: str) -> None:
        if denied in needed and not done.done():
            done.set_exception(AccessDenied(bus.nc.denied))

    subscription = await bus.nc.listen(inbox, on_answer)
    bus.nc.on_denied.append(on_denied)
    bus.nc.on_denied_subscription.append(on_denied)
    try:
        await bus.nc.publish(subject, data, reply=inbox)
        async with asyncio.timeout(max(0.0, until - clock.monotonic())):
            await done
    finally:
        bus.nc.on_denied.remove(on_denied)
        bus.nc.on_denied_subscription.remove(on_denied)
        await bus.nc.unlisten(subscription)
    return answers


def _message(data: bytes, raw: bytes) -> DirectMessage:
    return DirectMessage(
        text_of(_added(raw, b"Nats-Subject")),
        int(_added(raw, b"Nats-Sequence")),
        _added(raw, b"Nats-Time-Stamp").decode(),
        data,
        Headers(raw),
    )


def _added(raw: bytes, name: bytes) -> bytes:
    """The value of a header that the server added: the last header of that name, because the
    publisher may have sent a header of the same name.
    """
    at = raw.rindex(b"\r\n" + name + b": ") + len(name) + 4
    return raw[at : raw.index(b"\r\n", at)]


def _refused(subject: str, code: str, headers: bytes) -> Refused:
    return Refused(int(code), f"{subject}: {description(headers)}")
