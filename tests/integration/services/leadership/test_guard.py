"""Only the current leader writes manifests; a predecessor is refused."""

from __future__ import annotations

import asyncio

import pytest

from admittance.events.facts import Deactivated
from admittance.runtime.bus import bucket
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.errors import BusUnavailable, StaleRevision, Superseded
from admittance.workload.bucket_reader import read
from admittance.workload.stored import head
from admittance.workload_controller import commit_writer
from admittance.workload_controller.commit_writer import CommitWriter, WorkloadWriter, WriteGuard
from admittance.workload_controller.journal import (
    HistoryRecorder,
    JournalAtTakeover,
    JournalPosition,
)
from support.nats import leases
from unit.control.test_fold import KEY as WORKLOAD
from unit.control.test_fold import ME, Bench

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]

KEY = "flavor.f"


async def test_a_write_of_a_predecessor_after_a_takeover_is_refused(bus: Bus) -> None:
    # An epoch is a place on the log.
    epochs = [await leases.take_epoch(bus, "d", "x", expected=n) for n in (0, 1)]
    first, second = (WriteGuard(bus, epoch) for epoch in epochs)
    await first.take()
    assert await first.write([bucket.put_message(KEY, b"1", expected=0)]) == 3
    await second.take()
    with pytest.raises(StaleRevision):
        await first.write([bucket.put_message(KEY, b"late", expected=3)])
    with pytest.raises(Superseded):
        await first.take()
    puts = [
        bucket.put_message(KEY, b"2", expected=3),
        bucket.put_message("flavor.g", b"1", expected=0),
    ]
    last = await second.write(puts)
    entry = await bucket.get(bus, KEY)
    assert entry is not None
    assert (entry.value, entry.revision) == (b"2", last - 1)
    assert await second.write([bucket.put_message(KEY, b"3", expected=last - 1)]) == last + 2


async def test_an_abandoned_write_does_not_arrive_later(bus: Bus) -> None:
    guard = WriteGuard(bus, 1)
    await guard.take()
    given_up = [guard._put(), bucket.put_message(KEY, b"slow", expected=0)]
    await guard.take()
    with pytest.raises(StaleRevision):
        await bus.atomic(given_up)
    assert await bucket.get(bus, KEY) is None


async def test_an_epoch_that_is_not_in_the_log_supersedes_no_leader(bus: Bus) -> None:
    await bus.publish(bucket.put_message("_admittance.manifests", b"9" * 30, expected=0))
    guard = WriteGuard(bus, 1)
    await guard.take()
    await guard.write([bucket.put_message(KEY, b"1", expected=0)])


async def test_a_guard_never_waits_long_for_one_answer(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish, waits = bus.publish, list[float]()

    async def refused_for_hours(message: Outgoing, *, timeout: float) -> int:
        waits.append(timeout)
        if len(waits) < 2_000:
            raise BusUnavailable("no connection")
        return await publish(message)

    monkeypatch.setattr(bus, "publish", refused_for_hours)
    monkeypatch.setattr(commit_writer, "GUARD_PAUSE_SECONDS", 0.0)
    await WriteGuard(bus, 1).take()
    assert waits[:5] == [1.0, 2.0, 4.0, 8.0, 10.0]
    assert max(waits) == 10.0


async def test_the_leader_writes_back_a_workload_that_became_unreadable(bus: Bus) -> None:
    bench = Bench()
    controller = bench.controller
    guard = WriteGuard(bus, 1)
    await guard.take()
    history = HistoryRecorder(
        bus,
        asyncio.Lock(),
        controller,
        JournalAtTakeover(JournalPosition(), [], 0),
        epoch=1,
        every_seconds=3600.0,
    )
    puts = WorkloadWriter(bus, finished_seconds=60.0)
    writer = CommitWriter(bus, controller, guard, puts, history, None)
    await writer.perform([bench.submitted()])
    await bus.publish(bucket.put_message(WORKLOAD, b"junk", expected=None))
    await writer.perform([bench.logged(Deactivated(**ME))])
    entry = await bucket.get(bus, WORKLOAD)
    assert entry is not None
    assert entry.value is not None
    assert head(read(WORKLOAD, entry.value)).active is False
