"""What is taken back ends what is under way, also where a cancellation gets lost on the way."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from admittance.events.subjects import PROVIDERS
from admittance.providers import Accepted, Cancellation, Provider, Provisioned, Request
from admittance.runtime.bus.bucket import put_message, read_all
from admittance.runtime.bus.bus import Bus
from integration.provisioning.test_providers_obtain import CLASS, Asker, running

from servers import TestServer, until, within

pytestmark = pytest.mark.bus


async def test_who_loses_a_cancellation_hears_of_it_with_the_next_word(
    bus: Bus, nats_server: TestServer
) -> None:
    asker = await Asker(bus).start()
    provider = Provider(CLASS)
    begun, freed = asyncio.Event(), asyncio.Event()

    @provider.requested
    async def book(request: Request) -> Provisioned:
        begun.set()
        with suppress(asyncio.CancelledError):
            # As a library may, that has its answer in the same moment.
            await asyncio.sleep(60)
        await request.say(Accepted("soon"))
        await asyncio.sleep(60)
        return Provisioned()

    @provider.cancelled
    async def free(cancellation: Cancellation) -> None:
        freed.set()

    async with running(provider, nats_server):
        await asker.asks()
        await within(begun.wait())
        await asker.takes_back()
        await within(freed.wait(), 5)


async def test_a_replica_that_ends_leaves_nobody_behind_who_lost_that(
    bus: Bus, nats_server: TestServer
) -> None:
    asker = await Asker(bus).start()
    provider = Provider(CLASS, grace_seconds=0.1)
    begun = asyncio.Event()

    @provider.requested
    async def book(request: Request) -> Provisioned:
        begun.set()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        raise RuntimeError("try again")

    async with running(provider, nats_server) as stop:
        await asker.asks()
        await within(begun.wait())
        stop.set()
        ended = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - ended < 5


async def test_what_nobody_can_read_in_the_store_keeps_nothing_from_being_freed(
    bus: Bus, nats_server: TestServer
) -> None:
    asker = await Asker(bus).start()
    provider = Provider(CLASS)
    freed = asyncio.Event()

    @provider.requested
    async def book(request: Request) -> Provisioned:
        return Provisioned()

    @provider.cancelled
    async def free(cancellation: Cancellation) -> None:
        freed.set()

    async with running(provider, nats_server):
        await asker.asks()
        await until(lambda: bool(asker.said))
        (entry,) = await read_all(bus, bucket=PROVIDERS, pattern=">")
        await bus.publish(put_message(entry.key, b"{}", expected=None, bucket=PROVIDERS))
        await asker.takes_back()
        await within(freed.wait(), 5)
