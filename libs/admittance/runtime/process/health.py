"""What every instance says of itself when somebody asks all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from admittance.events.requests import HealthReply
from admittance.runtime.bus import micro
from admittance.runtime.bus.bus import Bus

TROUBLE: Final = "trouble"
"""The detail that says what keeps a service from its work: refused keys, an engine that is away."""


def told(trouble: str) -> dict[str, str]:
    """The details of an answer."""
    return {TROUBLE: trouble} if trouble else {}


@asynccontextmanager
async def answered(
    bus: Bus, service: str, instance: str, health: Callable[[], HealthReply]
) -> AsyncIterator[None]:
    """For so long ``admit.api.health`` is answered with what ``health`` finds."""

    async def answer(_: bytes, __: str) -> HealthReply:
        return health()

    serving = await micro.serve(bus, service, instance, {}, everyone={"admit.api.health": answer})
    try:
        yield
    finally:
        await serving.stop()
