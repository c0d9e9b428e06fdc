"""What a commit says: messages go to the log, echoes of barriers to the bucket."""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from admittance.events.base import HEADER_MSG_ID, HEADER_SCHEMA, HEADER_TRACE, SCHEMA_VERSION
from admittance.runtime import bucket
from admittance.runtime.bus import Bus, Outgoing
from admittance.runtime.errors import Refused, TooBig
from admittance.runtime.tracing import follow
from admittance.workload_controller.commit import Echo, Message
from admittance.workload_controller.decide import echo_put

log = structlog.get_logger()


async def state(bus: Bus, messages: Iterable[Message]) -> None:
    """States messages until the log has them, pipelined."""
    outgoing = [outgoing_of(message) for message in messages]
    outcomes = await bus.publish_all(outgoing)
    for one, outcome in zip(outgoing, outcomes, strict=True):
        if isinstance(outcome, TooBig):
            # It is so at every try; and everybody else's facts are behind it.
            log.error("too_long_to_say", subject=one.subject, bytes=len(one.data))
        elif isinstance(outcome, Refused):
            raise outcome


def outgoing_of(message: Message) -> Outgoing:
    """The message with the headers that every fact of ours carries."""
    headers = {HEADER_MSG_ID: message.id, HEADER_SCHEMA: SCHEMA_VERSION}
    if message.trace:
        headers[HEADER_TRACE] = follow(message.trace)
    return Outgoing(message.subject, message.data, headers)


async def echo(bus: Bus, echoes: Iterable[Echo]) -> None:
    """Puts the echoes of barriers; one is the same whoever repeats it."""
    puts = []
    for one in echoes:
        key, value = echo_put(one)
        puts.append(bucket.put_message(key, value, expected=None))
    for outcome in await bus.publish_all(puts):
        if isinstance(outcome, Refused):
            raise outcome
