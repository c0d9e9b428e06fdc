"""The check controllers' part of a benchmark: every request gets Ready for its cycle."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from admittance.bench.load import Publisher, SimulatedController
from admittance.events import facts
from admittance.events.codec import decode, encode
from admittance.events.subjects import subject_of
from admittance.runtime.bus.bus import Bus
from support.servers import within

pytestmark = pytest.mark.bus


async def test_a_bench_check_answers_ready_for_the_requested_cycle(bus: Bus) -> None:
    publisher = Publisher(bus)
    publishing = asyncio.create_task(publisher.run())
    answered: asyncio.Queue[facts.CheckReported] = asyncio.Queue()

    def on_reported(subject: bytes, _reply: bytes, data: bytes, _headers: bytes) -> None:
        fact = decode(subject.decode(), data)
        assert isinstance(fact, facts.CheckReported)
        answered.put_nowait(fact)

    await bus.nc.listen("admit.check.reported.>", on_reported)
    await bus.nc.listen("admit.check.requested.>", SimulatedController(publisher).on_message)
    asked = facts.CheckRequested(
        namespace="team",
        name="w.1",
        controller="bench/c",
        check="c",
        cycle=3,
        workload=msgspec.Raw(b"{}"),
    )
    await bus.nc.publish(subject_of(asked), encode(asked))
    said = await within(answered.get())
    await publisher.until_acknowledged()
    publishing.cancel()
    assert (said.namespace, said.name, said.check) == ("team", "w.1", "c")
    assert (said.cycle, said.state) == (3, "Ready")
    assert publisher.refused == []
