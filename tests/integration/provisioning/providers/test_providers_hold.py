"""The guarantees of the helper when replicas die, are full, or are late."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from admittance.events.provisioning import ProvisioningStatus
from admittance.events.subjects import PROVIDERS
from admittance.providers import (
    Accepted,
    BookingExpired,
    Cancellation,
    CapacityRevoked,
    Failed,
    Provider,
    Provisioned,
    Request,
)
from admittance.providers.status_store import StatusPublisher, StatusStore, StoredStatus
from admittance.runtime.bus import bucket
from admittance.runtime.bus.bus import Bus
from integration.provisioning.capacity_requester import (
    CLASS,
    CapacityRequester,
    Pool,
    running,
    until_cancelled,
)
from support.servers import TestServer, until, within

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]


def provisioned(requester: CapacityRequester) -> set[str]:
    return {status.id for status in requester.said if type(status).__name__ == "Provisioned"}


async def held(bus: Bus) -> int:
    info = await bus.api("CONSUMER.INFO.ADMITTANCE.provider-check-capacity_autoscaling_x-k8s_io")
    return int(info["num_ack_pending"]) + int(info["num_pending"])


async def until_all_acknowledged(bus: Bus) -> None:
    async def poll() -> None:
        while await held(bus):  # noqa: ASYNC110  (the server tells of it by no event)
            await asyncio.sleep(0.05)

    await within(poll())


async def test_waiting_requests_do_not_block_others(
    requester: CapacityRequester, nats_server: TestServer
) -> None:
    provider = Provider(CLASS, concurrency=1)
    provider.requested(lambda _: Accepted("in an hour"))
    async with running(provider, nats_server):
        for number in range(12):
            await requester.asks(f"u/c/1/{number}")
        await until(lambda: len(requester.said) == 12)


async def test_a_request_with_a_raising_function_does_not_block_others(
    requester: CapacityRequester, nats_server: TestServer
) -> None:
    provider = Provider(CLASS, concurrency=1)

    @provider.requested
    async def obtain(request: Request) -> Provisioned:
        if request.id == "u/c/1/1":
            raise OSError("the API is away")
        return Provisioned()

    async with running(provider, nats_server):
        await requester.asks("u/c/1/1")
        await requester.asks("u/c/1/2")
        await until(lambda: provisioned(requester) == {"u/c/1/2"})


async def test_a_cancellation_is_received_while_all_requests_wait(
    requester: CapacityRequester, nats_server: TestServer
) -> None:
    pool = Pool(size=0)
    pool.booked["u/c/1/0"] = 1
    room = asyncio.Event()

    async def wait_for_room(_: Request) -> None:
        await room.wait()

    pool.before = wait_for_room
    provider = pool.provider(concurrency=1)
    async with running(provider, nats_server):
        for number in range(1, 9):
            await requester.asks(f"u/c/1/{number}")
        await until(lambda: bool(pool.calls))
        await asyncio.sleep(0.2)  # until no more are taken
        await requester.takes_back("u/c/1/0")
        await until(lambda: not pool.booked)
        room.set()


async def test_a_status_after_a_crash_has_a_higher_number(
    requester: CapacityRequester, nats_server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill between store and log must not give a number twice."""
    provider = Provider(CLASS, grace_seconds=0.1)
    provider.requested(lambda _: Accepted("soon"))

    async def never(self: StatusStore, said: StoredStatus, expected: int) -> int:
        await asyncio.Event().wait()
        return 0

    with monkeypatch.context() as dying:
        dying.setattr(StatusStore, "put", never)
        async with running(provider, nats_server):
            await requester.asks()
            await asyncio.sleep(0.5)

    ready = Provider(CLASS)
    ready.requested(lambda _: Provisioned("here"))
    async with running(ready, nats_server):
        await until(lambda: bool(provisioned(requester)))
    numbers = [status.seq or 0 for status in requester.said]
    assert numbers == sorted(set(numbers))


async def test_a_stored_status_is_published_when_the_request_comes_again(
    requester: CapacityRequester, bus: Bus, nats_server: TestServer
) -> None:
    said = StoredStatus(
        id="u/c/1/1", namespace="ns", name="w", uid="u", status="provisioned", seq=1
    )
    await StatusStore(bus, CLASS).put(said, 0)
    pool = Pool()
    async with running(pool.provider(), nats_server):
        await requester.asks()
        await until(lambda: provisioned(requester) == {"u/c/1/1"})
    assert not pool.calls


async def test_a_stored_revocation_is_published_when_reported_again(
    requester: CapacityRequester, bus: Bus, nats_server: TestServer
) -> None:
    said = StoredStatus(
        id="u/c/1/1",
        namespace="ns",
        name="w",
        uid="u",
        status="capacity_revoked",
        seq=2,
        message="sold",
    )
    await StatusStore(bus, CLASS).put(said, 0)
    provider = Pool().provider()
    async with running(provider, nats_server):
        await until(lambda: provider.is_running)
        outbox_runs = provider.report("u/c/1/1", CapacityRevoked("sold"))
        assert await within(outbox_runs)
        await until(lambda: requester.words() == ["CapacityRevoked"])


async def test_a_booking_of_a_dead_replica_is_freed_after_a_cancellation(
    requester: CapacityRequester, bus: Bus, nats_server: TestServer
) -> None:
    """A replica that received only the cancellation gets the request afterwards."""
    pool = Pool()
    async with running(pool.provider(), nats_server):
        await requester.takes_back()
        await until_all_acknowledged(bus)
        pool.booked["u/c/1/1"] = 1
        await requester.asks()
        await until(lambda: not pool.booked)
        await until_all_acknowledged(bus)
    assert not pool.calls
    assert not requester.said


async def test_capacity_reported_after_the_cancellation_is_freed(
    requester: CapacityRequester, bus: Bus, nats_server: TestServer
) -> None:
    provider = Provider(CLASS)
    freed: list[str] = []
    provider.requested(lambda _: Accepted("in an hour"))

    @provider.cancelled
    async def free(cancellation: Cancellation) -> None:
        freed.append(cancellation.id)

    async with running(provider, nats_server):
        await requester.asks()
        await until(lambda: requester.words() == ["Accepted"])
        await requester.takes_back()
        await until_all_acknowledged(bus)
        before = len(freed)
        assert not await provider.report("u/c/1/1", Provisioned("there it is"))
        await until(lambda: len(freed) > before)


async def test_a_request_finished_by_another_replica_is_acknowledged(
    requester: CapacityRequester, bus: Bus, nats_server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("admittance.providers.request_worker.LOOK_SECONDS", 0.1)
    holder, other = Provider(CLASS), Provider(CLASS)
    holder.requested(lambda _: Accepted("in an hour"))
    other.requested(lambda _: Accepted("in an hour"))
    async with running(holder, nats_server):
        await requester.asks()
        await until(lambda: requester.words() == ["Accepted"])
        async with running(other, nats_server):
            await until(lambda: other.is_running)
            assert await within(other.report("u/c/1/1", Provisioned("here")))
            await until_all_acknowledged(bus)


async def test_a_cancellation_that_arrives_twice_frees_once(
    requester: CapacityRequester, bus: Bus, nats_server: TestServer
) -> None:
    """From the durable, and directly, like each replica with the request."""
    provider = Provider(CLASS)
    freed: list[str] = []
    go = asyncio.Event()
    provider.requested(lambda _: Accepted("in an hour"))

    @provider.cancelled
    async def free(cancellation: Cancellation) -> None:
        freed.append(cancellation.id)
        await go.wait()

    async with running(provider, nats_server):
        await requester.asks()
        await until(lambda: requester.words() == ["Accepted"])
        await requester.takes_back()
        await until(lambda: bool(freed))
        await asyncio.sleep(0.2)
        go.set()
        await until_all_acknowledged(bus)
    assert freed == ["u/c/1/1"]


async def test_all_replicas_read_a_request_in_progress(
    requester: CapacityRequester, nats_server: TestServer
) -> None:
    """Otherwise the check would send it again, and another replica would book it as well."""
    go = asyncio.Event()
    pools = [Pool(), Pool()]

    async def wait(_: Request) -> None:
        await go.wait()

    for pool in pools:
        pool.before = wait
    async with running(pools[0].provider(), nats_server):
        await requester.asks()
        await until(lambda: bool(pools[0].calls))
        other = pools[1].provider()
        async with running(other, nats_server):
            await until(lambda: other.is_running)
            replies = [await requester.query("u/c/1/1") for _ in range(20)]
            go.set()
            await until(lambda: bool(requester.said))
    assert all(reply.known and not reply.status for reply in replies)
    assert requester.said[0].seq == 1


async def test_an_unfinished_release_is_handed_back_at_the_end(
    requester: CapacityRequester, bus: Bus, nats_server: TestServer
) -> None:
    provider = Provider(CLASS, grace_seconds=0.1)
    begun = asyncio.Event()
    provider.requested(lambda _: Provisioned())

    @provider.cancelled
    async def never(cancellation: Cancellation) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with running(provider, nats_server):
        await requester.takes_back()
        await within(begun.wait())

    pool = Pool()
    pool.booked["u/c/1/1"] = 1
    async with running(pool.provider(), nats_server):
        # Much sooner than the redelivery of a request that was not handed back.
        await until(lambda: not pool.booked, 4.0)


@pytest.mark.servers("real")
async def test_a_plain_function_ends_before_its_request_is_freed(
    requester: CapacityRequester, bus: Bus, nats_server: TestServer
) -> None:
    provider = Provider(CLASS)
    begun, go = threading.Event(), threading.Event()
    story: list[str] = []

    @provider.requested
    def obtain(request: Request) -> Provisioned:
        begun.set()
        assert go.wait(20)
        story.append(f"counts: {request.say_from_thread(Accepted('booting'))}")
        time.sleep(0.1)
        story.append("booked")
        return Provisioned()

    @provider.cancelled
    def free(cancellation: Cancellation) -> None:
        story.append("freed")

    async with running(provider, nats_server):
        await requester.asks()
        await until(begun.is_set)
        await requester.takes_back()
        await until_cancelled(requester)
        go.set()
        await until_all_acknowledged(bus)

    assert {*story} == {"counts: False", "booked", "freed"}
    assert story[-1] == "freed", "perhaps before, too: nothing was to be kept"
    assert not requester.said


async def test_a_cancellation_that_hits_a_bug_is_redelivered(
    requester: CapacityRequester, nats_server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("admittance.providers.request_worker.AGAIN_SECONDS", 0.05)
    cancel, failed = StatusStore.cancel, asyncio.Event()

    async def once(self: StatusStore, about: dict[str, Any]) -> StoredStatus | None:
        if not failed.is_set():
            failed.set()
            raise LookupError("a bug")
        return await cancel(self, about)

    monkeypatch.setattr(StatusStore, "cancel", once)
    pool = Pool()
    pool.booked["u/c/1/1"] = 1
    async with running(pool.provider(), nats_server):
        await requester.takes_back()
        # Much sooner than what was never settled would: as long as this process lives, never.
        await until(lambda: not pool.booked)


async def test_an_unreadable_status_is_overwritten(
    requester: CapacityRequester, bus: Bus, nats_server: TestServer
) -> None:
    key = StatusStore(bus, CLASS)._key("u/c/1/1")
    await bus.publish(bucket.put_message(key, b"no record", expected=None, bucket=PROVIDERS))
    pool = Pool()
    async with running(pool.provider(), nats_server):
        await requester.asks()
        await until(lambda: requester.words() == ["Provisioned"])
        await requester.takes_back()
        await until(lambda: not pool.booked)


class Log:
    """Stores messages in place of the outbox."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.ids: list[str] = []

    async def put(self, message: Any) -> None:
        self.said.append(message.subject.split(".")[2])
        self.ids.append(message.headers["Nats-Msg-Id"])


@pytest.mark.parametrize(
    ("statuses", "counts", "said"),
    [
        pytest.param(
            [Provisioned(), Accepted("soon")],
            [True, True],
            ["provisioned"],
            id="accepted after provisioned is late, and no reason to free anything",
        ),
        pytest.param(
            [Provisioned("a"), Provisioned("a")],
            [True, True],
            ["provisioned", "provisioned"],
            id="the same again is said again, under its number",
        ),
        pytest.param(
            [Failed("full"), Provisioned()],
            [True, False],
            ["failed"],
            id="nothing is provided after a failure",
        ),
        pytest.param(
            [Provisioned(), BookingExpired("late"), CapacityRevoked("sold")],
            [True, True, True],
            ["provisioned", "booking_expired", "capacity_revoked"],
            id="what has expired may be revoked",
        ),
        pytest.param(
            [CapacityRevoked("sold"), BookingExpired("late")],
            [True, False],
            ["capacity_revoked"],
            id="what was revoked does not expire",
        ),
    ],
)
async def test_which_status_may_follow_which(
    bus: Bus, statuses: list[Any], counts: list[bool], said: list[str]
) -> None:
    log: Any = Log()
    publisher = StatusPublisher(CLASS, StatusStore(bus, CLASS), log)
    about = {"id": "u/c/1/1", "namespace": "ns", "name": "w", "uid": "u"}
    assert [await publisher.publish(about, status) for status in statuses] == counts
    assert log.said == said


async def test_replicas_with_one_secret_give_a_status_one_message_id(bus: Bus) -> None:
    """A foreign message with a guessed id would suppress the status."""
    log: Any = Log()
    about = {"id": "u/c/1/1", "namespace": "ns", "name": "w", "uid": "u"}
    for secret in (b"a", b"a", b"b"):
        await StatusPublisher(CLASS, StatusStore(bus, CLASS), log, secret=secret).publish(
            about, Provisioned()
        )
    first, again, other = log.ids
    assert first == again != other


async def test_a_message_of_any_length_is_published(
    requester: CapacityRequester, nats_server: TestServer
) -> None:
    provider = Provider(CLASS)
    provider.requested(lambda _: Failed("x" * 2_000_000))
    async with running(provider, nats_server):
        await requester.asks()
        await until(lambda: bool(requester.said))
    assert isinstance(requester.said[0], ProvisioningStatus)
    assert len(requester.said[0].message) == 32_768
