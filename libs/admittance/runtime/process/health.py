"""Health of a service instance: answers on the bus, and what it answers to its own process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import nats.errors

from admittance.events.requests import HealthReply
from admittance.runtime.bus import micro
from admittance.runtime.bus.bus import Bus
from admittance.runtime.process.health_query import trouble
from admittance.runtime.process.settings import Settings

TROUBLE: Final = "trouble"
"""The name of the detail of a health reply that says what prevents progress, such as refused
keys.
"""


def trouble_details(trouble: str) -> dict[str, str]:
    """The details of a health reply about what prevents progress; empty if nothing prevents
    progress."""
    return {TROUBLE: trouble} if trouble else {}


@asynccontextmanager
async def answer_queries(
    bus: Bus, service: str, instance: str, health: Callable[[], HealthReply]
) -> AsyncIterator[None]:
    """Answers ``admit.api.health`` with the result of ``health`` while the context is active."""

    async def answer(_: bytes, __: str) -> HealthReply:
        return health()

    serving = await micro.serve(
        bus, service, instance, {}, every_instance={"admit.api.health": answer}
    )
    try:
        yield
    finally:
        await serving.stop()


ANSWER_SECONDS: Final = 5.0
"""How long a service may take to answer for its own health."""


async def why_not_ready(bus: Bus, settings: Settings) -> str:
    """Why the service of the settings is not ready, as it says over the bus; empty if it is
    ready."""
    if not bus.nc.is_connected:
        return "no connection to the bus"
    try:
        found = await trouble(
            bus.nc, settings.service, lambda name: name == settings.instance, seconds=ANSWER_SECONDS
        )
    except nats.errors.Error as error:
        found = f"the bus is not available: {error}"
    return " ".join(found.split())
