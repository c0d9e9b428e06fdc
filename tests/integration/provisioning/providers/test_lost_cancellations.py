"""A cancellation stops the work on a request, even if the message is lost."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from admittance.events.subjects import PROVIDERS
from admittance.providers import Accepted, Cancellation, Provider, Provisioned, Request
from admittance.runtime.bus.bucket import put_message, read_all
from admittance.runtime.bus.bus import Bus
from integration.provisioning.capacity_requester import CLASS, CapacityRequester, running
from support.servers import TestServer, until, within

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]


async def test_a_lost_cancellation_is_found_with_the_next_status(
    bus: Bus, nats_server: TestServer
) -> None:
    requester = await CapacityRequester(bus).start()
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
        await requester.asks()
        await within(begun.wait())
        await requester.takes_back()
        await within(freed.wait())


async def test_requests_are_handed_back_when_a_replica_ends(
    bus: Bus, nats_server: TestServer
) -> None:
    requester = await CapacityRequester(bus).start()
    provider = Provider(CLASS, grace_seconds=0.1)
    begun = asyncio.Event()

    @provider.requested
    async def book(request: Request) -> Provisioned:
        begun.set()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        raise RuntimeError("try again")

    async with running(provider, nats_server) as stop:
        await requester.asks()
        await within(begun.wait())
        stop.set()
        ended = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - ended < 30


async def test_an_unreadable_status_does_not_prevent_a_release(
    bus: Bus, nats_server: TestServer
) -> None:
    requester = await CapacityRequester(bus).start()
    provider = Provider(CLASS)
    freed = asyncio.Event()

    @provider.requested
    async def book(request: Request) -> Provisioned:
        return Provisioned()

    @provider.cancelled
    async def free(cancellation: Cancellation) -> None:
        freed.set()

    async with running(provider, nats_server):
        await requester.asks()
        await until(lambda: bool(requester.said))
        (entry,) = await read_all(bus, bucket=PROVIDERS, pattern=">")
        await bus.publish(put_message(entry.key, b"{}", expected=None, bucket=PROVIDERS))
        await requester.takes_back()
        await within(freed.wait())
