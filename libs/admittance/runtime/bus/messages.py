"""Message ids, and how services handle a message of the log that fails.

| failure                                  | handling                                              |
|------------------------------------------|-------------------------------------------------------|
| bytes, type or subject cannot be read    | a dead letter with the reason, then acknowledged      |
| `StaleRevision`                          | handled again from a fresh load (`with_retries`)      |
| `BusUnavailable`, `Busy`                 | handled again after pauses, a bounded number of times |
| `Fenced`, `Superseded`                   | raised: the new leader reads the message              |
| any other exception is a bug             | raised: the service restarts and reads the message    |
|                                          | again; `supervise` limits the restarts                |

Services never send a nak: a redelivered message would come behind newer facts.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, TypeVar

import msgspec
import structlog

from admittance.backoff import Backoff
from admittance.events import subjects
from admittance.events.names import token
from admittance.events.system import DeadLetter
from admittance.runtime import chance, clock
from admittance.runtime.bus.bucket import delete_message, get, put_message
from admittance.runtime.bus.bus import MESSAGE_ID, Bus, Outgoing
from admittance.runtime.bus.puller import Delivery
from admittance.runtime.errors import BusUnavailable, Busy, StaleRevision

SECRET_KEY: Final = "_admittance.secret"


async def deployment_secret(bus: Bus) -> bytes:
    """The secret of this deployment, created at first use. The secret is kept in the bucket of
    claims, from which users read nothing. A deployment of an earlier version keeps its secret: see
    `forget_earlier_secret`. Only the workload-controller may create the secret. Raises
    BusUnavailable.
    """
    while True:
        entry = await get(bus, SECRET_KEY, bucket=subjects.CLAIMS)
        if entry is not None and entry.value:
            return entry.value
        earlier = await get(bus, SECRET_KEY)
        made = earlier.value if earlier is not None else None
        message = put_message(
            SECRET_KEY,
            made or chance.token_hex(32).encode(),
            expected=entry.revision if entry else 0,
            bucket=subjects.CLAIMS,
        )
        try:
            await bus.publish(message)
        except StaleRevision:
            continue
        return message.data


async def known_secret(bus: Bus) -> bytes:
    """The secret of this deployment. Raises BusUnavailable if the workload-controller has not
    created the secret yet.
    """
    for place in (subjects.CLAIMS, subjects.BUCKET):
        entry = await get(bus, SECRET_KEY, bucket=place)
        if entry is not None and entry.value:
            return entry.value
    raise BusUnavailable("the workload-controller has not made the secret yet")


async def forget_earlier_secret(bus: Bus) -> None:
    """Deletes the secret where earlier versions kept it: in the bucket of objects, which users may
    read. Call `forget_earlier_secret` after `deployment_secret`.
    """
    earlier = await get(bus, SECRET_KEY)
    if earlier is not None and earlier.value:
        with suppress(StaleRevision):
            await bus.publish(delete_message(SECRET_KEY, expected=earlier.revision))


def message_id(secret: bytes, *parts: str | int) -> str:
    """The message id for these parts: equal parts have equal ids. Without the secret an id cannot
    be guessed: a foreign message with the same id would suppress a message of Admittance.
    """
    text = "\x00".join(map(str, parts)).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, key=secret[:64], digest_size=16).hexdigest()


PAYLOAD_MAX: Final = 256 * 1024
"""How many bytes of a payload a dead letter keeps. One byte takes up to six bytes in JSON and 1.33
in base64, and the whole message must fit into the server's 1 MiB.
"""
HEADERS_MAX: Final = 8 * 1024
ATTEMPTS: Final = 8

T = TypeVar("T")
log = structlog.get_logger()
_encode = msgspec.json.Encoder().encode


class UnusableDelivery(NamedTuple):
    """A delivery that no instance of the service can handle, and the reason."""

    delivery: Delivery
    reason: str


async def publish_dead_letters(bus: Bus, service: str, bad: Sequence[UnusableDelivery]) -> None:
    """Publishes a dead letter on ``admit.deadletter.<service>`` for each delivery.

    Publishing the same dead letter again within the dedupe window has no effect; after the window a
    second dead letter is published. A server that does not answer in time is asked again, so that
    it does not end the service.
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
    for outcome in await with_retries(lambda: bus.publish_all(messages)):
        if isinstance(outcome, Exception):
            raise outcome


def dead_letter(service: str, delivery: Delivery, reason: str) -> Outgoing:
    """The dead letter of one delivery. ``truncated`` in the dead letter: payload or headers were
    too long.
    """
    data = delivery.data[:PAYLOAD_MAX]
    text: str | None
    try:
        text = data.decode()
        # JSON writes a control character as six bytes, so for bytes with many control characters
        # base64 is shorter.
        if len(_encode(text)) > 2 * PAYLOAD_MAX:
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
    return Outgoing(
        f"{subjects.DEADLETTER}{token(service)}",
        _encoded(letter),
        {MESSAGE_ID: f"deadletter-{service}-{delivery.sequence}"},
    )


def _encoded(letter: DeadLetter) -> bytes:
    try:
        return _encode(letter)
    except UnicodeEncodeError:
        # The reason may quote an escaped name with a lone surrogate, which JSON cannot contain.
        reason = letter.reason.encode("utf-8", "backslashreplace").decode()
        return _encode(msgspec.structs.replace(letter, reason=reason))


async def with_retries(handle: Callable[[], Awaitable[T]]) -> T:
    """Calls the function ``handle`` until it succeeds. ``handle`` must load, decide and commit anew
    at each call.

    Repeats the call after StaleRevision, BusUnavailable and Busy, and raises the error after
    `ATTEMPTS` calls; raises any other exception at once.
    """
    backoff = Backoff(0.01, 1.0)
    for left in range(ATTEMPTS - 1, -1, -1):
        try:
            return await handle()
        except StaleRevision:
            # After StaleRevision another writer has changed the object, so the object is read and
            # changed anew without a pause.
            if not left:
                raise
        except (BusUnavailable, Busy):
            if not left:
                raise
            await asyncio.sleep(backoff.next())
    raise AssertionError("the loop over the attempts ended without a result")
