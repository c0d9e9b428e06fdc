"""Providers with the helper obtain each request once and free cancelled ones."""

from __future__ import annotations

import asyncio
import threading

import msgspec
import pytest
import structlog
from structlog.testing import LogCapture

from admittance.events.system import ProviderAlive
from admittance.providers import (
    Accepted,
    CapacityRevoked,
    Provider,
    Provisioned,
    Request,
)
from admittance.providers.status_store import StatusStore
from admittance.runtime.bus.bus import Bus
from integration.provisioning.capacity_requester import (
    CLASS,
    CapacityRequester,
    Pool,
    running,
    until_cancelled,
)
from support.servers import TestServer, until

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]


async def test_requests_sent_before_the_provider_starts_are_obtained(
    requester: CapacityRequester, nats_server: TestServer
) -> None:
    await requester.asks()
    pool = Pool()

    async with running(pool.provider(), nats_server):
        await until(lambda: bool(requester.said))

    assert requester.words() == ["Provisioned"]
    assert (requester.said[0].seq, requester.said[0].details) == (1, {"pool": "a"})


async def test_a_failure_is_published_with_all_its_fields(
    requester: CapacityRequester, nats_server: TestServer
) -> None:
    pool = Pool(size=-1)

    async with running(pool.provider(), nats_server):
        await requester.asks()
        await until(lambda: bool(requester.said))

    request = msgspec.to_builtins(requester.said[0])
    assert (request["message"], request["retryAfter"]) == ("0 pods, and no room", 30)


async def test_a_redelivered_request_gets_the_same_status(
    requester: CapacityRequester, nats_server: TestServer
) -> None:
    pool = Pool()
    async with running(pool.provider(), nats_server):
        await requester.asks()
        await until(lambda: bool(requester.said))
        await requester.asks()
        await until(lambda: len(requester.said) >= 1)
        assert (await requester.query("u/c/1/1")).status == "provisioned"

    assert pool.calls == ["u/c/1/1"]
    assert {status.seq for status in requester.said} == {1}


async def test_cancelled_and_unknown_requests_are_freed(
    requester: CapacityRequester, nats_server: TestServer
) -> None:
    pool = Pool()
    pool.booked["unknown"] = 3
    async with running(pool.provider(), nats_server):
        await requester.asks()
        await until(lambda: "u/c/1/1" in pool.booked)
        await requester.takes_back()
        await requester.takes_back("unknown")

        await until(lambda: not pool.booked)
        assert (await requester.query("u/c/1/1")).status == "cancelled"


async def test_a_cancellation_cancels_the_function(
    requester: CapacityRequester, nats_server: TestServer
) -> None:
    pool = Pool()
    ended: list[str] = []

    async def for_ever(request: Request) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(request.id)

    pool.before = for_ever
    async with running(pool.provider(), nats_server):
        await requester.asks()
        await until(lambda: bool(pool.calls))
        await requester.takes_back()
        await until(lambda: bool(ended))

    assert not pool.booked
    assert not requester.said


async def test_capacity_obtained_after_the_cancellation_is_freed(
    requester: CapacityRequester, nats_server: TestServer
) -> None:
    """A replica that does not know the request acknowledges the cancellation."""
    first, second = Pool(), Pool()
    go = asyncio.Event()

    async def until_allowed(request: Request) -> None:
        # Ignores its cancellation, as a call to an external API would.
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue

    first.before = until_allowed
    async with running(first.provider(grace_seconds=1.0), nats_server):
        await requester.asks()
        await until(lambda: bool(first.calls))
        async with running(second.provider(), nats_server):
            await requester.takes_back()
            await asyncio.sleep(0.1)
            go.set()
            await until(lambda: not first.booked)

    assert not requester.said


async def test_accepted_capacity_is_provisioned_later_and_may_be_revoked(
    requester: CapacityRequester, nats_server: TestServer
) -> None:
    provider = Provider(CLASS)
    seen: list[Request] = []

    @provider.requested
    async def obtain(request: Request) -> Accepted:
        seen.append(request)
        return Accepted("in four minutes")

    async with running(provider, nats_server):
        await requester.asks()
        await until(lambda: requester.words() == ["Accepted"])
        assert await seen[0].say(Provisioned("here"))
        assert await provider.report("u/c/1/1", CapacityRevoked("sold"))
        await until(lambda: len(requester.said) == 3)

    assert requester.words() == ["Accepted", "Provisioned", "CapacityRevoked"]
    assert [status.seq for status in requester.said] == [1, 2, 3]


@pytest.mark.servers("real")
async def test_a_plain_function_can_publish_statuses(
    bus: Bus, requester: CapacityRequester, nats_server: TestServer
) -> None:
    beats = await beats_of(bus)
    provider = Provider(CLASS)
    heard_accepted = threading.Event()

    @provider.requested
    def obtain(request: Request) -> Provisioned:
        provider.inactive("one at a time")
        assert request.say_from_thread(Accepted("booting"))
        assert heard_accepted.wait(20)
        provider.ready()
        return Provisioned("here")

    def revoke() -> bool:
        return provider.report_from_thread("u/c/1/1", CapacityRevoked("sold"))

    async with running(provider, nats_server):
        await until(lambda: bool(beats))
        await requester.asks()
        await until(lambda: requester.words() == ["Accepted"] and not beats[-1].active)
        heard_accepted.set()
        await until(lambda: len(requester.said) == 2 and beats[-1].active)
        assert await asyncio.to_thread(revoke)
        await until(lambda: len(requester.said) == 3)
        await requester.takes_back()
        await until_cancelled(requester)
        assert not await asyncio.to_thread(revoke)

    assert requester.words() == ["Accepted", "Provisioned", "CapacityRevoked"]


async def test_a_function_that_raises_is_called_again(
    requester: CapacityRequester, nats_server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("admittance.sdk.threads.PAUSE_MIN", 0.01)
    pool = Pool()

    async def twice(_: Request) -> None:
        if len(pool.calls) < 3:
            raise OSError("the API is away")

    pool.before = twice
    logged = LogCapture()
    log = structlog.wrap_logger(None, processors=[logged])
    monkeypatch.setattr("admittance.providers.request_worker.log", log)
    async with running(pool.provider(), nats_server):
        await requester.asks()
        await until(lambda: "Provisioned" in requester.words())

    assert len(pool.calls) == 3
    events = [
        entry["reason"] for entry in logged.entries if entry["event"] == "capacity_not_obtained"
    ]
    assert events == ["OSError: the API is away"] * 2
    # The workload's message has only the kind of the error, as its text may be confidential.
    assert [(type(status).__name__, status.message) for status in requester.said] == [
        ("Accepted", "obtaining failed (OSError), again in 0.01 s"),
        ("Accepted", "obtaining failed (OSError), again in 0.02 s"),
        ("Provisioned", "booked"),
    ]


@pytest.mark.parametrize(
    ("says", "last"),
    [
        pytest.param([], None, id="of which the author said nothing"),
        pytest.param([Accepted("booting")], "accepted", id="that its author had accepted"),
    ],
)
async def test_a_request_without_a_status_of_the_provider_counts_as_new(
    requester: CapacityRequester, nats_server: TestServer, says: list[Accepted], last: str | None
) -> None:
    pool = Pool()

    async def fail(request: Request) -> None:
        for answer in says:
            await request.say(answer)
        raise OSError("the API is away")

    pool.before = fail
    async with running(pool.provider(grace_seconds=0.0), nats_server):
        await requester.asks()
        await until(lambda: len(requester.said) > len(says))

    after = Pool()
    seen: list[str | None] = []

    async def look(request: Request) -> None:
        seen.append(request.last)

    after.before = look
    async with running(after.provider(), nats_server):
        await until(lambda: "Provisioned" in requester.words())
    assert seen == [last]


async def test_a_cancelled_request_is_not_called_again_after_an_error(
    bus: Bus, requester: CapacityRequester, nats_server: TestServer
) -> None:
    pool = Pool()

    async def fail(request: Request) -> None:
        pool.booked[request.id] = 1
        # By a replica that has acknowledged it, and this one has missed it.
        about = {"id": request.id, "namespace": "ns", "name": "w"}
        await StatusStore(bus, CLASS).cancel(about)
        raise OSError("booked, and the answer is lost")

    pool.before = fail
    async with running(pool.provider(), nats_server):
        await requester.asks()
        await until(lambda: bool(pool.calls) and not pool.booked)

    assert not requester.said
    assert len(pool.calls) == 1


async def beats_of(bus: Bus) -> list[ProviderAlive]:
    """The heartbeats that arrive, in order."""
    beats: list[ProviderAlive] = []
    await bus.nc.listen(
        "admit.alive.provisioning.*",
        lambda _s, _r, data, _h: beats.append(msgspec.json.decode(data, type=ProviderAlive)),
    )
    return beats


class Wanted(msgspec.Struct):
    zone: str
    size: int = 1


async def test_parameters_become_the_struct_and_wrong_ones_fail_permanently(
    requester: CapacityRequester, nats_server: TestServer
) -> None:
    provider = Provider(CLASS, parameters=Wanted)
    seen: list[Wanted] = []

    @provider.requested
    def obtain(request: Request) -> Provisioned:
        seen.append(request.parameters)
        return Provisioned()

    async with running(provider, nats_server):
        await requester.asks(parameters={"zone": "a", "size": "3"})
        await requester.asks("u/c/1/2", parameters={"size": "many"})
        await until(lambda: len(requester.said) == 2)

    assert seen == [Wanted("a", 3)]
    failed = next(status for status in requester.said if status.id == "u/c/1/2")
    assert msgspec.to_builtins(failed)["retryable"] is False
    assert "wrong parameters" in failed.message


async def test_heartbeats_contain_the_class_and_its_readiness(
    bus: Bus, requester: CapacityRequester, nats_server: TestServer
) -> None:
    beats = await beats_of(bus)
    provider = Provider(CLASS, parameters=Wanted)
    provider.requested(lambda _: Provisioned())

    async with running(provider, nats_server):
        await until(lambda: bool(beats))
        provider.inactive("maintenance")
        await until(lambda: not beats[-1].active)

    assert beats[0].parameters == ("zone", "size")
    assert beats[-1].message == "maintenance"
