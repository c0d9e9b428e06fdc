"""A booking is stored before it is reported, and a stale leader changes nothing."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from admittance.events.shapes import PodSetToProvision
from admittance.events.subjects import PROVIDERS
from admittance.provider_pool.service import PoolReconciler
from admittance.providers import Cancellation, Provisioned, Request
from admittance.providers.status_store import StatusStore
from admittance.runtime.bus.bucket import put_message
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import BusRefused, Fenced, Superseded
from integration.provisioning.backends.test_pool_reconciler import a_pool, booked, kept
from integration.provisioning.capacity_requester import CLASS, pods, requested
from support.servers import until, within

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]


def a_request(request_id: str, count: int = 1) -> Request:
    pod_sets = msgspec.convert(pods(count)["pod_sets"], tuple[PodSetToProvision, ...])
    return Request(requested(request_id, pod_sets=pod_sets))


async def free(reconciler: PoolReconciler, request_id: str) -> None:
    await reconciler.free(Cancellation(id=request_id, namespace="ns", name="w"))


@pytest.mark.servers("real")
async def test_a_booking_is_stored_before_it_is_reported(bus: Bus) -> None:
    await a_pool(bus)
    async with kept(bus) as reconciler:
        info = await bus.api(f"STREAM.INFO.KV_{PROVIDERS}")
        full = {**info["config"], "max_msgs": info["state"]["messages"]}
        await bus.api(f"STREAM.UPDATE.KV_{PROVIDERS}", full)
        with pytest.raises(BusRefused):
            await reconciler.obtain(a_request("u/c/1/1"))
        await bus.api(f"STREAM.UPDATE.KV_{PROVIDERS}", info["config"])
        answer = await reconciler.obtain(a_request("u/c/1/1"))

    assert isinstance(answer, Provisioned)
    assert await booked(bus) == {"u/c/1/1"}


async def test_a_stale_leader_writes_nothing_and_ends(
    bus: Bus,
) -> None:
    await a_pool(bus, 2)
    with pytest.raises(Superseded):
        async with kept(bus) as old:
            await old.obtain(a_request("u/c/1/1"))
            async with kept(bus) as new:
                await new.obtain(a_request("x/c/1/1"))
                # A fact that it had read before it was paused.
                for request_id in ("v/c/1/1", "w/c/1/1"):
                    with pytest.raises((Fenced, Superseded)):
                        await old.obtain(a_request(request_id, 3 if request_id[0] == "v" else 1))
                for request_id in ("u/c/1/1", "x/c/1/1"):
                    with pytest.raises((Fenced, Superseded)):
                        await free(old, request_id)
                assert await booked(bus) == {"u/c/1/1", "x/c/1/1"}
                await free(new, "x/c/1/1")
                await free(new, "u/c/1/1")
                assert await booked(bus) == set()
                assert isinstance(await new.obtain(a_request("w/c/1/1")), Provisioned)
            await until(lambda: not old.ready or old._ledger.superseded.is_set())
            await asyncio.sleep(0.1)


async def test_an_unreadable_booking_takes_no_machine(bus: Bus) -> None:
    await a_pool(bus)
    await bus.publish(put_message("_pool.rack.x", b"{}", expected=None, bucket=PROVIDERS))
    async with kept(bus) as reconciler:
        answer = await within(reconciler.obtain(a_request("u/c/1/1")))

    assert isinstance(answer, Provisioned)


async def test_a_new_leader_frees_bookings_of_cancelled_requests(
    bus: Bus,
) -> None:
    """No further message will cancel the request."""
    await a_pool(bus)
    async with kept(bus) as reconciler:
        await reconciler.obtain(a_request("u/c/1/1"))
    about = {"id": "u/c/1/1", "namespace": "ns", "name": "w", "uid": "u"}
    await StatusStore(bus, CLASS).cancel(about)

    async with kept(bus) as reconciler:
        assert isinstance(await reconciler.obtain(a_request("v/c/1/1")), Provisioned)
    assert await booked(bus) == {"v/c/1/1"}
