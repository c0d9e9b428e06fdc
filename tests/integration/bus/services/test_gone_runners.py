"""What remains of a removed runner: its consumer and its announcement."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from admittance.events.requests.reading import ConsumerReply, RunnerConsumer
from admittance.events.subjects import CLAIMS, STREAM, runner_consumer
from admittance.events.system import RunnerAnnouncement
from admittance.runtime.bus.bucket import put_message
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.durables import list_consumers
from admittance.runtime.bus.pull_consumer import MadeConsumer
from admittance.runtime.bus.puller import Puller
from admittance.workload_controller.endpoints.outside_consumers import OutsideConsumers
from support.requests import eventually
from support.servers import within

pytestmark = [pytest.mark.bus, pytest.mark.servers("real", "simulated")]


async def runner(bus: Bus, folder: str, consumer: str) -> OutsideConsumers:
    """A runner that announced itself and had its consumer made, and is away."""
    consumers = OutsideConsumers(bus)
    announcement = RunnerAnnouncement(root="/data", consumer=consumer)
    data = msgspec.json.encode(announcement)
    await bus.publish(put_message(f"_runner.{folder}", data, expected=None, bucket=CLAIMS))
    asked = msgspec.json.encode(RunnerConsumer())
    await consumers.of_runner(asked, runner_consumer(consumer, ()))
    return consumers


async def left(bus: Bus, consumers: OutsideConsumers) -> tuple[list[str], list[str]]:
    names = [info["name"] for info in await list_consumers(bus, STREAM)]
    return names, [consumer.runner for consumer in (await consumers.announced(b"{}", "")).runners]


@pytest.mark.parametrize("name", ["gpu.one", "f00d"])
async def test_a_gone_runner_is_deleted_by_the_name_of_its_consumer_or_folder(
    bus: Bus, name: str
) -> None:
    consumers = await runner(bus, "f00d", "gpu.one")
    await runner(bus, "beef", "other")
    assert (await consumers.remove_runner(name, "ada"))[0].outcome == "deleted"
    assert await left(bus, consumers) == (["runner-other"], ["beef"])
    assert (await consumers.remove_runner(name, "ada"))[0].outcome == "absent"


async def test_a_runner_that_reads_is_not_deleted(bus: Bus) -> None:
    consumers = await runner(bus, "f00d", "gpu")

    async def request(after: int | None) -> MadeConsumer:
        asked = msgspec.json.encode(RunnerConsumer(after=after))
        made = await consumers.of_runner(asked, runner_consumer("gpu", ()))
        return MadeConsumer(made.consumer, made.after, made.pending, made.last)

    puller = Puller(bus, "runner-gpu", ("admit.workload.admitted.>",), request=request)
    await within(puller.start())
    try:

        async def is_read() -> bool:
            return bool((await bus.api(f"CONSUMER.INFO.{STREAM}.runner-gpu"))["num_waiting"])

        await eventually(is_read)
        reply, _ = await consumers.remove_runner("f00d", "ada")
        assert "runner f00d reads runner-gpu: stop it first" in reply.error
        assert await left(bus, consumers) == (["runner-gpu"], ["f00d"])
    finally:
        await puller.close()


@pytest.mark.servers("real")
@pytest.mark.parametrize("stream", ["log", "claims"])
async def test_a_copy_of_a_request_leaves_the_consumer_that_the_request_made(
    bus: Bus, stream: str
) -> None:
    subject = runner_consumer("gpu", ())
    stored = STREAM if stream == "log" else f"KV_{CLAIMS}"

    instances = OutsideConsumers(bus), OutsideConsumers(bus)

    async def made_by(request: str, instance: int) -> tuple[ConsumerReply, str]:
        data = msgspec.json.encode(RunnerConsumer(stream=stream, id=request))
        reply = await instances[instance].of_runner(data, subject)
        return reply, (await bus.api(f"CONSUMER.INFO.{stored}.runner-gpu"))["created"]

    first, created = await made_by("1", 0)
    assert await made_by("1", 0) == (first, created)
    assert await made_by("1", 1) == (first, created)
    assert (await made_by("2", 0))[1] != created


async def test_copies_of_a_request_that_is_being_answered_get_its_answer(bus: Bus) -> None:
    consumers = OutsideConsumers(bus)
    subject = runner_consumer("gpu", ())
    data = msgspec.json.encode(RunnerConsumer())
    replies = await asyncio.gather(*(consumers.of_runner(data, subject) for _ in range(3)))
    assert replies[0] is replies[1] is replies[2]
    with pytest.raises(ValueError, match='stream "logs" must be log or claims'):
        await consumers.of_runner(b'{"stream": "logs"}', subject)
