"""The pool after changes that were made while no leader was active."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import pytest
import structlog

from admittance.events.names import token
from admittance.events.subjects import PROVIDERS
from admittance.provider_pool.service import PoolReconciler
from admittance.runtime.bus.bucket import delete_message, put_message, read_all
from admittance.runtime.bus.bus import Bus
from admittance.runtime.process.settings import Settings
from integration.provisioning.capacity_requester import CLASS, CapacityRequester, pods
from integration.provisioning.test_capacity_is_shown import admit
from support.servers import TestServer, until

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]


def machines(count: int, boot: float = 0.0) -> list[dict[str, Any]]:
    return [{"name": "m", "count": count, "bootSeconds": boot, "resources": {"cpu": "500m"}}]


def key(name: str) -> str:
    return f"{token('machinepool.admittance.dev')}.{token(name)}"


async def a_pool(bus: Bus, count: int = 1, name: str = "rack", **more: Any) -> None:
    """Writes a MachinePool to the bucket, as the workload-controller does after an `apply`."""
    boot = more.pop("boot", 0.0)
    manifest = {
        "apiVersion": "admittance.dev/v1",
        "kind": "MachinePool",
        "metadata": {"name": name},
        "spec": {"provisioningClassName": CLASS, "machines": machines(count, boot), **more},
    }
    await bus.publish(put_message(key(name), msgspec.json.encode(manifest), expected=None))


async def no_pool(bus: Bus, name: str = "rack") -> None:
    await bus.publish(delete_message(key(name), expected=None))


@asynccontextmanager
async def kept(bus: Bus) -> AsyncIterator[PoolReconciler]:
    """Runs a leading provider until it is killed."""
    reconciler = PoolReconciler(bus, Settings(service="provider-pool", instance="a", url=""))
    task = asyncio.create_task(reconciler.run())
    await until(lambda: reconciler.ready or task.done())
    try:
        yield reconciler
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await reconciler.close()


async def booked(bus: Bus) -> set[str]:
    entries = await read_all(bus, "_pool.>", bucket=PROVIDERS)
    return {msgspec.json.decode(entry.value or b"")["id"] for entry in entries}


def said(requester: CapacityRequester, word: str) -> set[str]:
    return {status.id for status in requester.said if type(status).__name__ == word}


async def booking(bus: Bus, requester: CapacityRequester, *ids: str) -> None:
    """Books a machine for each request, in this order, and ends the leader."""
    async with kept(bus):
        for request_id in ids:
            count = len(requester.said)
            await requester.asks(request_id, **pods(1))
            await until(lambda before=count: len(requester.said) > before)  # type: ignore[misc]


async def until_booked(bus: Bus, wanted: set[str]) -> None:
    async with asyncio.timeout(10):
        while await booked(bus) != wanted:  # noqa: ASYNC110  (the bucket tells of it by no event)
            await asyncio.sleep(0.02)


async def deleted(bus: Bus) -> None:
    """Also if no other pool has the class of the deleted pool."""
    await no_pool(bus)


async def of_another_class(bus: Bus) -> None:
    await a_pool(bus, provisioningClassName="other")


@pytest.mark.parametrize("changed", [deleted, of_another_class])
async def test_bookings_of_a_pool_that_lost_its_class_are_revoked(
    bus: Bus, requester: CapacityRequester, changed: Callable[[Bus], Awaitable[None]]
) -> None:
    await a_pool(bus)
    await booking(bus, requester, "u/c/1/1")
    await changed(bus)

    async with kept(bus):
        await until(lambda: said(requester, "CapacityRevoked") == {"u/c/1/1"})
        await until_booked(bus, set())


async def test_bookings_on_removed_machines_are_revoked(
    bus: Bus, requester: CapacityRequester
) -> None:
    await a_pool(bus, 2)
    await booking(bus, requester, "u/c/1/1", "v/c/1/1")
    await a_pool(bus, 1)

    async with kept(bus):
        await until(lambda: bool(said(requester, "CapacityRevoked")))
        await until_booked(bus, {"u/c/1/1"})

    assert said(requester, "CapacityRevoked") == {"v/c/1/1"}


async def test_a_waiting_request_of_a_deleted_pool_is_booked_in_another_pool(
    bus: Bus, requester: CapacityRequester
) -> None:
    await a_pool(bus, boot=60)
    async with kept(bus):
        await requester.asks("u/c/1/1", **pods(1))
        await until(lambda: said(requester, "Accepted") == {"u/c/1/1"})
    await no_pool(bus)
    await a_pool(bus, name="other")

    async with kept(bus):
        await requester.asks("u/c/1/1", **pods(1))
        await until(lambda: said(requester, "Provisioned") == {"u/c/1/1"})
        await until_booked(bus, {"u/c/1/1"})

    assert not said(requester, "CapacityRevoked")


async def test_a_request_waiting_for_removed_machines_fails(
    bus: Bus, requester: CapacityRequester
) -> None:
    """A failure is retried, but a revocation would reject the workload."""
    await a_pool(bus, boot=60)
    async with kept(bus):
        await requester.asks("u/c/1/1", **pods(1))
        await until(lambda: said(requester, "Accepted") == {"u/c/1/1"})
        await no_pool(bus)
        await until(lambda: said(requester, "ProvisioningFailed") == {"u/c/1/1"})
        await until_booked(bus, set())

    assert not said(requester, "CapacityRevoked")


async def test_bookings_of_an_unreadable_pool_stay(bus: Bus, requester: CapacityRequester) -> None:
    await a_pool(bus)
    await a_pool(bus, name="other")
    await booking(bus, requester, "u/c/1/1")
    (entry,) = await read_all(bus, "_pool.>", bucket=PROVIDERS)
    slip = entry.key.split(".")[1]
    await a_pool(bus, -1, name=slip)

    async with kept(bus) as reconciler:
        await requester.asks("u/c/1/1", **pods(1))
        await requester.asks("v/c/1/1", **pods(1))
        await until(lambda: said(requester, "Provisioned") == {"u/c/1/1", "v/c/1/1"})
        assert await booked(bus) == {"u/c/1/1", "v/c/1/1"}
        assert len(reconciler.pools) == 1
        await requester.takes_back("u/c/1/1")
        await until_booked(bus, {"v/c/1/1"})

    assert not said(requester, "CapacityRevoked")


async def test_a_pool_at_an_invalid_key_is_ignored(bus: Bus, requester: CapacityRequester) -> None:
    """With a namespace, or without a name, it would replace the pool of that name."""
    kind = token("machinepool.admittance.dev")
    stray = [f"{kind}.team.rack", f"{kind}.=GG"]
    manifest = {
        "apiVersion": "admittance.dev/v1",
        "kind": "MachinePool",
        "metadata": {"name": "rack", "namespace": "team"},
        "spec": {"provisioningClassName": CLASS, "machines": machines(9)},
    }
    data = msgspec.json.encode(manifest)
    await a_pool(bus)
    for stray_booking in stray:
        await bus.publish(put_message(stray_booking, data, expected=None))
    await bus.publish(put_message("_pool.=GG.x", b"{}", expected=None, bucket=PROVIDERS))

    with structlog.testing.capture_logs() as logs:
        async with kept(bus) as reconciler:
            await requester.asks("u/c/1/1", **pods(1))
            await until(lambda: said(requester, "Provisioned") == {"u/c/1/1"})
            await bus.publish(delete_message(stray[0], expected=None))
            await requester.asks("v/c/1/1", **pods(1))
            await until(lambda: said(requester, "ProvisioningFailed") == {"v/c/1/1"})
            assert {
                name: kept.pool.machines[0].count for name, kept in reconciler.pools.items()
            } == {"rack": 1}

    assert [entry["key"] for entry in logs if entry["event"] == "bad_pool"] == stray
    assert not said(requester, "CapacityRevoked")


@pytest.mark.servers("real")
async def test_bookings_are_shown_while_the_provider_is_down(
    bus: Bus, requester: CapacityRequester, nats_server: TestServer
) -> None:
    await a_pool(bus, 3)
    await booking(bus, requester, "u/c/1/1")

    shown = [line.split() for line in (await admit(nats_server, "get", "mp")).splitlines()]
    output = await admit(nats_server, "describe", "mp", "rack")

    assert shown[0] == ["NAME", "CLASS", "MACHINES", "BOOKED", "FREE", "BOOTING", "KINDS", "KEPT"]
    assert shown[1][:6] == ["rack", CLASS, "3", "1", "2", "0"]
    assert " ".join(output.split()).find("ns w 1 m-0 cpu=500m yes - u/c/1/1") > 0


@pytest.mark.servers("real")
async def test_an_invalid_pool_shows_the_reason(bus: Bus, nats_server: TestServer) -> None:
    await a_pool(bus, -1)

    shown = (await admit(nats_server, "get", "mp")).splitlines()
    output = await admit(nats_server, "describe", "mp", "rack")

    why = "spec.machines[0].count must be 0 to 100000, not -1"
    assert why in shown[1]
    assert any(line.split(maxsplit=1) == ["Wrong:", why] for line in output.splitlines())
