"""Asks over the bus whether services are ready."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

import msgspec
import nats.errors

from admittance.backoff import Backoff
from admittance.client.health import health, is_of
from admittance.events.requests.history import Settled
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import PASSING, is_temporary
from admittance.runtime.process.service import Service
from admittance.runtime.tasks import set_within
from admittance.runtime.telemetry.logger import logger

log = logger()

READY_SECONDS: Final = 120.0
SAY_EVERY: Final = 5.0
"""Seconds between two log lines about a start that takes long."""
WAIT_SECONDS: Final = 1.0
"""Pause after an attempt that failed."""


async def until_ready(bus: Bus, service: Service, instance: str = "") -> None:
    """Waits until an instance of the service (``instance``, if given) reports ready, and a leader
    answers the service's probe.
    """
    # A service that does not listen yet gives no answer, and most listen after some milliseconds.
    backoff = Backoff(0.02, 0.25, factor=1.5)
    while True:
        pause = backoff.next()
        for reply in await health(bus, seconds=pause, enough=(service.name, instance)):
            mine = is_of(reply, service.name, instance)
            if mine and reply.ready and (not service.probe or await _answers(bus, service.probe)):
                return
        await asyncio.sleep(pause)


async def until_serving(bus: Bus, service: Service, instance: str) -> None:
    """Returns once the service is ready and a leader answers. Says in the log that this takes long,
    every `SAY_EVERY` seconds, and warns after `READY_SECONDS`."""
    serves = asyncio.Event()
    saying = asyncio.create_task(_say_what_starts(bus, service.name, instance, serves))
    try:
        await _until_serving(bus, service, instance)
    finally:
        # nats-py may lose the cancellation.
        serves.set()
        saying.cancel()


async def _until_serving(bus: Bus, service: Service, instance: str) -> None:
    while True:
        try:
            async with asyncio.timeout(READY_SECONDS):
                await until_ready(bus, service, instance)
                return
        except Exception as error:
            if not (isinstance(error, TimeoutError) or is_temporary(error)):
                raise
            log.warning("service_not_ready_yet", service=service.name, reason=str(error))
            await asyncio.sleep(WAIT_SECONDS)


async def _say_what_starts(bus: Bus, service: str, instance: str, serves: asyncio.Event) -> None:
    began = clock.monotonic()
    while not await set_within(serves, SAY_EVERY):
        lag = 0
        with suppress(*PASSING):
            answers = await health(bus, enough=(service, instance))
            lag = max((answer.lag for answer in answers if answer.service == service), default=0)
        if serves.is_set():
            return
        seconds = round(clock.monotonic() - began)
        log.info("service_starts", service=service, seconds=seconds, facts_to_read=lag)


async def _answers(bus: Bus, probe: str) -> bool:
    data = msgspec.json.encode(Settled(sequence=0)) if probe == "settled" else b"{}"
    try:
        await bus.nc.request(f"admit.api.{probe}", data, timeout=1.0)
    except (nats.errors.Error, TimeoutError):
        return False
    return True
