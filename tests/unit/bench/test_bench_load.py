"""The load against a real bus, where a toy system admits every workload at once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import psutil
import pytest

from admittance.bench.connection import connected, messages_stored
from admittance.bench.generator import BenchPlan, PlannedQueue, PlannedWorkload
from admittance.bench.load import execute, submission
from admittance.bench.run import play
from admittance.client.requests.link import Link
from admittance.events import facts
from admittance.events.codec import decode
from admittance.events.requests.history import SettledReply
from admittance.events.requests.manifests import Applied, Apply, ApplyReply
from admittance.events.requests.queues import QueuesReply, QueueStatus
from admittance.runtime.bus import streams
from admittance.runtime.bus.bus import Bus
from admittance.runtime.nats_server.embedded_server import EmbeddedServer
from support.servers import within

pytestmark = pytest.mark.bus

QUEUE = PlannedQueue("q-0", "cq", "team", "team", 2000, None, None, "Any", "LowerPriority")
WORKLOADS = tuple(PlannedWorkload(0.01 * n, 0.02, f"w-{n}", 0, "small", 1000, 5) for n in range(30))
PLAN = BenchPlan((QUEUE,), WORKLOADS)
encode = msgspec.json.encode


@pytest.fixture
async def link(tmp_path: Path) -> AsyncIterator[Link]:
    server = EmbeddedServer(tmp_path)
    async with connected(await server.start()) as connection:
        await streams.ensure(connection.bus)
        yield connection
    await server.stop()


class Toy:
    """Admits workloads at once and publishes each admission twice; evicts workload ``evict`` once
    before. Records the messages of the load."""

    def __init__(self, bus: Bus, evict: str = "") -> None:
        self.bus = bus
        self.evict = evict
        self.said: list[tuple[str, str, int]] = []
        self.manifests: list[dict[str, object]] = []

    async def start(self) -> None:
        for subject, answer in (
            ("admit.api.apply", self.on_apply),
            ("admit.api.queues", self.on_queues),
            ("admit.api.settled", self.on_settled),
            ("admit.workload.>", self.on_fact),
        ):
            await self.bus.nc.subscribe(subject, cb=answer)
        await self.bus.nc.flush()

    async def on_apply(self, message) -> None:  # type: ignore[no-untyped-def]
        objects = msgspec.json.decode(message.data, type=Apply).objects
        self.manifests += [msgspec.json.decode(raw) for raw in objects]
        await message.respond(
            encode(ApplyReply(results=(Applied(kind="X", name="x", outcome="created"),)))
        )

    async def on_queues(self, message) -> None:  # type: ignore[no-untyped-def]
        await message.respond(encode(QueuesReply(cluster_queues=(QueueStatus(name="q-0"),))))

    async def on_settled(self, message) -> None:  # type: ignore[no-untyped-def]
        await message.respond(encode(SettledReply(outcome="applied")))

    async def on_fact(self, message) -> None:  # type: ignore[no-untyped-def]
        fact = decode(message.subject, message.data)
        match fact:
            case facts.Submitted():
                await self.tell("admitted", fact.name, 7)
                await self.tell("admitted", fact.name, 7)
                if fact.name == self.evict:
                    await self.tell("evicted", fact.name, 8)
            case facts.Stopped(revision=revision):
                self.said.append(("stopped", fact.name, revision))
                await self.tell("admitted", fact.name, 9)
            case facts.Finished(revision=revision):
                self.said.append(("finished", fact.name, revision))

    async def tell(self, what: str, name: str, revision: int) -> None:
        data = encode({"namespace": "team", "name": name, "revision": revision})
        await self.bus.nc.publish(f"admit.workload.{what}.team.{name}", data)


async def test_each_workload_is_submitted_and_finished_once(link: Link) -> None:
    toy = Toy(link.bus)
    await toy.start()
    outcome = await within(execute(link, PLAN))
    assert outcome.trouble == ""
    assert outcome.finished == set(range(30))
    assert sorted(toy.said) == sorted(("finished", w.name, 7) for w in WORKLOADS)
    assert 0.3 < outcome.wall_seconds < 5
    assert all(c <= a for c, a in zip(outcome.created_at, outcome.admitted_at, strict=True))


async def test_an_evicted_workload_stops_at_once_and_finishes_its_next_admission(
    link: Link,
) -> None:
    toy = Toy(link.bus, evict="w-3")
    await toy.start()
    outcome = await within(execute(link, PLAN))
    assert outcome.evictions == 1
    assert outcome.finished == set(range(30))
    assert [said for said in toy.said if said[1] == "w-3"] == [
        ("stopped", "w-3", 8),
        ("finished", "w-3", 9),
    ]


async def test_the_report_has_the_names_of_the_public_face(link: Link) -> None:
    await (toy := Toy(link.bus)).start()
    before = await messages_stored(link.bus)
    report, _ = await within(play(link, PLAN, lambda: [psutil.Process()]))
    plain = msgspec.json.decode(encode(report))
    assert {
        "wallSeconds",
        "workloads",
        "workloadsPerSecond",
        "clusterQueueUsagePercent",
        "timeToAdmissionMs",
        "evictions",
        "usefulUsagePercent",
        "cpuMsPerWorkload",
        "lowerBoundSeconds",
        "busRawPublishPerSecond",
        "persistedMessagesPerSecond",
        "processes",
    } <= plain.keys()
    assert plain["timeToAdmissionMs"]["small"].keys() == {"mean", "p50", "p99"}
    assert plain["processes"][0].keys() == {"name", "pid", "cpuSeconds", "peakMemoryBytes"}
    assert report.bus_raw_publish_per_second > 1000
    # Submitted, admitted twice, finished; the yardstick's stream is gone and not counted.
    assert await messages_stored(link.bus) - before == 4 * 30
    assert [m["kind"] for m in toy.manifests] == ["ResourceFlavor", "ClusterQueue", "LocalQueue"]


def test_a_submission_is_what_the_codec_reads() -> None:
    fact = decode("admit.workload.submitted.team.w-0", submission(WORKLOADS[0], "team", "q-0"))
    assert isinstance(fact, facts.Submitted)
    manifest = msgspec.json.decode(fact.workload)
    assert manifest["spec"]["priority"] == 5
    container = manifest["spec"]["podSets"][0]["template"]["spec"]["containers"][0]
    assert container["resources"] == {"requests": {"cpu": "1"}}
