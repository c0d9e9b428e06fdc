"""The bucket: writes with an expected revision, reads in order, across restarts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from admittance.events.subjects import CLAIMS
from admittance.runtime.bus import bucket, history
from admittance.runtime.bus.bucket import BucketReader, Entry, follow_bucket, follow_until
from admittance.runtime.bus.bus import EXPECTED, Bus
from admittance.runtime.errors import StaleRevision
from admittance.runtime.leader import lease_store
from admittance.runtime.tasks import cancel_and_wait
from simulation.virtual_time.loop import VirtualLoop
from support.nats import leases
from support.servers import TestServer, until, within

pytestmark = [pytest.mark.bus, pytest.mark.servers("real", "simulated")]


class Following:
    """Reads a bucket in the background."""

    def __init__(self, reader: BucketReader) -> None:
        self.reader = reader
        self.seen: list[Entry] = []
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async for batch in self.reader.batches():
            self.seen.extend(batch)

    def keys(self) -> list[str]:
        return [entry.key for entry in self.seen]

    async def stop(self) -> None:
        await cancel_and_wait(self.task)
        await self.reader.close()


async def test_a_put_is_refused_when_the_key_has_changed(bus: Bus) -> None:
    first = await bus.publish(bucket.put_message("workload.a.b", b"1", expected=0))
    with pytest.raises(StaleRevision):
        await bus.publish(bucket.put_message("workload.a.b", b"2", expected=0))
    gone = await bus.publish(bucket.delete_message("workload.a.b", expected=first))
    assert await bucket.get(bus, "workload.a.b") == Entry(
        "workload.a.b", None, gone, {"KV-Operation": "DEL", EXPECTED: str(first)}
    )
    with pytest.raises(StaleRevision):
        await bus.publish(bucket.put_message("workload.a.b", b"2", expected=0))
    assert await bus.publish(bucket.put_message("workload.a.b", b"2", expected=gone)) > gone


async def test_a_reader_loads_all_entries_and_then_every_change(
    bus: Bus,
) -> None:
    puts = [bucket.put_message(f"workload.a.n{i}", b"x", expected=0) for i in range(5000)]
    await bus.publish_all(puts)
    following = Following(BucketReader(bus, ("workload.>",)))
    await within(following.reader.loaded.wait())
    assert len(following.seen) == 5000
    await bus.publish(bucket.put_message("cohort.x", b"", expected=0))
    gone = await bus.publish(bucket.delete_message("workload.a.n7", expected=8))
    await until(lambda: following.reader.last == gone)
    assert following.seen[-1].value is None
    assert following.keys()[-1] == "workload.a.n7"
    assert len(await bucket.read_all(bus)) == 4999
    await following.stop()


async def test_an_empty_bucket_is_loaded_at_once(bus: Bus) -> None:
    following = Following(BucketReader(bus))
    await within(following.reader.loaded.wait())
    assert following.seen == []
    await following.stop()


async def test_a_reader_misses_nothing_when_the_server_is_killed(
    bus: Bus, nats_server: TestServer
) -> None:
    following = Following(BucketReader(bus))
    await within(following.reader.loaded.wait())
    await bus.publish(bucket.put_message("workload.a.one", b"", expected=0))
    await until(lambda: following.reader.last == 1)
    await nats_server.restart_after_kill()
    other = await Bus.connect(nats_server.url, name="other")
    await other.publish(bucket.put_message("workload.a.two", b"", expected=0))
    await until(lambda: following.reader.last == 2)
    assert following.keys() == ["workload.a.one", "workload.a.two"]
    await following.stop()
    await other.close()


async def test_a_liveness_key_expires_and_readers_see_it(bus: Bus) -> None:
    following = Following(BucketReader(bus, ("_alive.>",), bucket=CLAIMS))
    await lease_store.write_heartbeat(bus, "scheduler", "one", ttl_seconds=1)
    assert await leases.is_alive(bus, "scheduler", "one")
    await until(lambda: len(following.seen) == 2)
    assert following.seen[1].value is None
    assert not await leases.is_alive(bus, "scheduler", "one")
    await following.stop()


@pytest.mark.servers("simulated")
async def test_a_follower_ends_at_any_moment_of_its_cancellation(bus: Bus) -> None:
    """A cancellation that comes together with an answer is lost in `wait_for` of Python 3.11."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    for step in range(1, 80):
        follower = asyncio.create_task(follow_bucket(bus, ["flavor.>"], lambda _: None))
        loop.at_step(loop.steps + step, lambda task=follower: task.cancel())
        with pytest.raises(asyncio.CancelledError):
            await within(follower)


def _said_to_be_newest(revisions: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader of the bucket says one after the other that these are its newest revisions."""

    async def newest(*_: object, **__: object) -> int:
        return revisions.pop(0) if len(revisions) > 1 else revisions[0]

    monkeypatch.setattr(history, "newest_sequence", newest)


async def test_a_follower_that_ends_at_its_first_entries_has_loaded_them_all(bus: Bus) -> None:
    await bus.publish_all(
        [bucket.put_message(f"check.n{i}", b"x", expected=0) for i in range(5000)]
    )
    needed, loaded, seen = asyncio.Event(), asyncio.Event(), list[Entry]()

    def apply(entries: Sequence[Entry]) -> None:
        seen.extend(entries)
        needed.set()

    await within(follow_until(needed, bus, ["check.>"], apply, loaded))
    assert (loaded.is_set(), len(seen)) == (True, 5000)


async def test_a_current_reader_is_loaded_once_it_has_what_the_leader_had(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The consumer may read from a replica that lags behind the leader."""
    puts = [bucket.put_message(f"workload.a.n{i}", b"x", expected=0) for i in range(3)]
    await bus.publish_all(puts)
    _said_to_be_newest([4], monkeypatch)
    following = Following(BucketReader(bus, ("workload.>",), current=True))
    await until(lambda: len(following.seen) == 3)
    assert not following.reader.loaded.is_set()
    await bus.publish(bucket.put_message("workload.a.n3", b"x", expected=0))
    await within(following.reader.loaded.wait())
    assert len(following.seen) == 4
    await following.stop()


async def test_a_current_reader_asks_again_because_an_entry_may_have_expired(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bus.publish(bucket.put_message("workload.a.b", b"x", expected=0))
    _said_to_be_newest([2, 1], monkeypatch)
    following = Following(BucketReader(bus, ("workload.>",), current=True))
    await within(following.reader.loaded.wait())
    assert following.keys() == ["workload.a.b"]
    await following.stop()


async def test_a_direct_get_that_names_a_revision_waits_for_a_replica_that_lags(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await bus.publish(bucket.put_message("workload.a.b", b"1", expected=0))
    reading = asyncio.create_task(bucket.get_directly(bus, "workload.a.b", at_least=first + 1))
    second = await bus.publish(bucket.put_message("workload.a.b", b"2", expected=first))
    entry = await within(reading)
    assert entry is not None
    assert (entry.revision, entry.value) == (second, b"2")
    # A bucket that was restored never gets the revision.
    monkeypatch.setattr(bucket, "LAG_SECONDS", 0.0)
    entry = await within(bucket.get_directly(bus, "workload.a.b", at_least=99))
    assert entry is not None
    assert entry.revision == second
