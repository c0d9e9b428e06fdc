"""Asks all instances of the services about themselves."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from admittance.events.reader import BROKEN
from admittance.events.requests.services import Health, HealthReply
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.tasks import set_within


class HealthAnswer(NamedTuple):
    """A health reply; ``asked`` and ``answered``: when, by the clock of this machine."""

    reply: HealthReply
    asked: datetime
    answered: datetime


async def health(
    bus: Bus, *, seconds: float = 1.0, enough: tuple[str, str] | None = None
) -> list[HealthReply]:
    """The health replies of all instances that answer within ``seconds``. ``enough``: a service and
    an instance ("": any instance); the reply of this instance ends the wait.
    """
    return [answer.reply for answer in await health_answers(bus, seconds=seconds, enough=enough)]


async def health_answers(
    bus: Bus, *, seconds: float = 1.0, enough: tuple[str, str] | None = None
) -> list[HealthAnswer]:
    """The health replies that `health` returns, each with the times of request and reply."""
    answers: list[HealthAnswer] = []
    full = asyncio.Event()
    asked = clock.now()

    async def on_answer(message: Any) -> None:
        with suppress(*BROKEN):
            reply = msgspec.json.decode(message.data, type=HealthReply)
            if reply.service:
                answers.append(HealthAnswer(reply, asked, clock.now()))
            if enough is not None and is_of(reply, *enough):
                full.set()

    inbox = bus.nc.new_inbox()
    subscription = await bus.nc.subscribe(inbox, cb=on_answer)
    try:
        await bus.nc.publish("admit.api.health", msgspec.json.encode(Health()), reply=inbox)
        await set_within(full, seconds)
    finally:
        await subscription.unsubscribe()
    return answers


def is_of(reply: HealthReply, service: str, instance: str) -> bool:
    """Whether the reply is from ``instance`` of the service; "" matches any instance."""
    return reply.service == service and instance in ("", reply.instance)
