"""How the telemetry service reads the log: one instance at a time, from its last position on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from admittance.events.subjects import STREAM, TELEMETRY_DURABLE
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.nats import micro
from admittance.telemetry import log_reader
from admittance.telemetry.log_reader import LogReader
from admittance.workload_controller.endpoints.reading_endpoints import reading_endpoints
from support.requests import becomes
from support.servers import until, within

pytestmark = [pytest.mark.bus, pytest.mark.servers("real", "simulated")]


@pytest.fixture(autouse=True)
async def answers(bus: Bus) -> AsyncIterator[None]:
    serving = await micro.serve(bus.nc, "workload-controller", "test", reading_endpoints(bus))
    yield
    await serving.stop()


async def publish(bus: Bus, *names: str) -> list[int]:
    return [await bus.publish(Outgoing(f"admit.workload.held.ns.{name}", b"{}")) for name in names]


async def read(reader: LogReader, count: int) -> list[int]:
    sequences: list[int] = []
    while len(sequences) < count:
        batch = await within(reader.batch())
        for delivery in batch:
            reader.made_spans(delivery, len(sequences))
            sequences.append(delivery.sequence)
    return sequences


async def begun(bus: Bus, instance: str) -> LogReader:
    """A reader that has its consumer."""
    reader = LogReader(bus, instance)
    await within(reader.start())
    return reader


async def floor(bus: Bus) -> int:
    info = await bus.api(f"CONSUMER.INFO.{STREAM}.{TELEMETRY_DURABLE}")
    return int(info["ack_floor"]["stream_seq"])


async def test_a_first_reader_begins_at_the_end_of_the_log(bus: Bus) -> None:
    await publish(bus, "before")
    reader = await begun(bus, "a")
    [new] = await publish(bus, "after")
    assert await read(reader, 1) == [new]
    await reader.close()


async def test_facts_without_exported_spans_are_read_again_after_a_restart(bus: Bus) -> None:
    reader = await begun(bus, "a")
    sequences = await publish(bus, "one", "two", "three")
    assert await read(reader, 3) == sequences
    reader.acknowledge(0)
    await reader.close()
    await becomes(lambda: floor(bus), sequences[0])
    again = await begun(bus, "b")
    assert await read(again, 2) == sequences[1:]
    await again.close()


async def test_a_second_instance_stands_by_until_the_first_has_ended(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reader, "STANDBY_SECONDS", 0.05)
    first = await begun(bus, "a")
    second = LogReader(bus, "b")
    reading = asyncio.create_task(read(second, 1))
    await until(lambda: second.reader == "a")
    [sequence] = await publish(bus, "one")
    assert await read(first, 1) == [sequence]
    first.acknowledge(0)
    await first.close()
    [two] = await publish(bus, "two")
    assert await within(reading) == [two]
    assert second.reader == ""
    await second.close()
