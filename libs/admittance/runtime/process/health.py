"""Health of a service instance: answers on the bus, and what it answers to its own process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

import msgspec
import nats.errors
from nats.aio.client import Client

from admittance.backoff import Backoff
from admittance.events.reader import BROKEN
from admittance.events.requests.services import Health, HealthReply
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.nats import micro
from admittance.runtime.process.settings import Settings
from admittance.runtime.tasks import raise_if_cancelled

SUBJECT: Final = "admit.api.health"

TROUBLE: Final = "trouble"
"""The name of the detail of a health reply that says what prevents progress, such as refused
keys.
"""

ASK_AGAIN_SECONDS: Final = 0.2
"""How long a health query waits for the instance before it is repeated; then 0.4, 0.8, … s."""

_reply = msgspec.json.Decoder(HealthReply)


def trouble_details(trouble: str) -> dict[str, str]:
    """The details of a health reply about what prevents progress; empty if nothing prevents
    progress."""
    return {TROUBLE: trouble} if trouble else {}


async def trouble(
    nc: Client, service: str, is_ours: Callable[[str], bool], *, seconds: float
) -> str:
    """Why an instance of the service is not ready; empty if it is ready. ``is_ours`` picks the
    instance by name, since every instance of every service answers; ``seconds``: the time limit for
    the answer. The query is repeated, because an instance that starts may have missed it while
    other instances answered.
    """
    inbox = nc.new_inbox()
    answers = await nc.subscribe(inbox)
    try:
        deadline = clock.monotonic() + seconds
        ask_at, backoff = 0.0, Backoff(ASK_AGAIN_SECONDS)
        while (now := clock.monotonic()) < deadline:
            if now >= ask_at:
                await nc.publish(SUBJECT, msgspec.json.encode(Health()), reply=inbox)
                ask_at = now + backoff.next()
            try:
                message = await answers.next_msg(timeout=min(deadline, ask_at) - now)
            except (nats.errors.TimeoutError, TimeoutError):
                continue
            finally:
                # In Python 3.11 ``next_msg`` drops a cancellation that comes with a message.
                raise_if_cancelled()
            if not message.data:
                return "no service answers"
            try:
                reply = _reply.decode(message.data)
            except BROKEN:
                continue
            if reply.service == service and is_ours(reply.instance):
                reason = reply.details.get(TROUBLE) or reply.error
                if reply.ready and not reason:
                    return ""
                return f"{service} is not ready: {reason or 'starting'}"
    except nats.errors.Error:
        pass
    finally:
        with suppress(nats.errors.Error):
            await answers.unsubscribe()
    return f"{service} does not answer"


@asynccontextmanager
async def answer_queries(
    bus: Bus, service: str, instance: str, health: Callable[[], HealthReply]
) -> AsyncIterator[None]:
    """Answers ``admit.api.health`` with the result of ``health`` while the context is active."""

    async def answer(_: bytes, __: str) -> HealthReply:
        return health()

    serving = await micro.serve(bus.nc, service, instance, {}, every_instance={SUBJECT: answer})
    try:
        yield
    finally:
        await serving.stop()


ANSWER_SECONDS: Final = 5.0
"""Seconds within which a service must answer a health query of its own process."""


async def why_not_ready(bus: Bus, settings: Settings) -> str:
    """Why the service of the settings is not ready, as the service says over the bus; empty if it
    is ready.
    """
    if not bus.nc.is_connected:
        return "no connection to the bus"
    try:
        why = await trouble(
            bus.nc, settings.service, lambda name: name == settings.instance, seconds=ANSWER_SECONDS
        )
    except nats.errors.Error as error:
        why = f"the bus is not available: {error}"
    return " ".join(why.split())
