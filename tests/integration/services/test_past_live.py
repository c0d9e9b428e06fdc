"""The past, asked of a scheduler: as it was, at its border, and with bad questions."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta

import pytest

from admittance.client import Client
from admittance.client.errors import BadInput, NotFound, RequestFailed
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.nats_server.embedded_server import EmbeddedServer
from admittance.workload.phase import Phase, phase
from support.builders import a_manifest
from support.cluster import Cluster
from support.processes.fork_server import Answer, run_admit
from support.requests import apply, eventually, queues, submit

pytestmark = [pytest.mark.bus, pytest.mark.servers("real")]


async def until_phase(client: Client, name: str, wanted: Phase) -> None:
    async def has_it() -> bool:
        try:
            found = await client.get("workload", name)
        except NotFound:
            return False
        return phase(found.workload(), clock.now()) is wanted

    await eventually(has_it)


async def pictures(client: Client, at: int) -> list[object]:
    """What the client answers about a moment."""
    stored = await client.get("workload", "waits", at=at)
    return [
        await client.pending(at=at),
        await client.queues(at=at),
        await client.queues(cohort="cohort", at=at),
        (stored.revision, stored.plain()),
        await client.explain("waits", at=at, whole=False),
        await client.explain("waits", at=at),
    ]


async def test_queues_and_workloads_are_shown_as_they_were(
    cluster: Cluster, bus: Bus, nats_server: EmbeddedServer
) -> None:
    for service in ("workload-controller", "scheduler"):
        await cluster.start(service, ADMIT_HISTORY_DAYS="1")
    await apply(bus, *queues("cq", cpu=1, cohortName="cohort"))
    await submit(bus, [a_manifest("runs", queue="lq-cq")])
    async with await Client.connect(nats_server.url, namespace="ns") as client:
        await until_phase(client, "runs", Phase.ADMITTED)
        [*_, waits] = await submit(bus, [a_manifest("waits", queue="lq-cq")])

        async def is_refused() -> bool:
            facts = [entry.subject async for entry in client.events("waits")]
            return "admit.workload.pending.ns.waits" in facts

        await eventually(is_refused)
        [*_, refused] = [entry async for entry in client.events("waits")]
        await client.finish("runs")
        await until_phase(client, "waits", Phase.ADMITTED)

        before = await client.pending(at=waits - 1)
        assert before.total == 0
        then = await client.pending(at=refused.sequence)
        [row] = then.rows
        assert (row.name, row.position, row.reason) == ("waits", 1, "WaitingForQuota")
        [queue] = (await client.queues("cq", at=refused.sequence)).cluster_queues
        assert (queue.pending, queue.admitted, queue.usage[0].reserved) == (1, 1, 1000)
        [queue] = (await client.queues("cq", at=clock.now())).cluster_queues
        assert (queue.pending, queue.usage[0].reserved) == (0, 1000)

        stored = await client.get("workload", "waits", at=refused.sequence)
        assert stored.workload().status.admission is None
        light = await client.explain("waits", at=refused.sequence, whole=False)
        whole = await client.explain("waits", at=refused.sequence)
        assert light.message == whole.message
        assert [each.rooms[0].short for each in light.flavors] == [1000]
        assert [each.rooms[0].short for each in whole.flavors] == [1000]
        assert whole.unblocked_by and not light.unblocked_by

        at = ("--at", str(refused.sequence))

        async def admit(*words: str) -> Answer:
            env = {"ADMIT_NATS_URL": nats_server.url}
            said = await asyncio.to_thread(run_admit, "-n", "ns", *words, env=env)
            assert said.status == 0, said
            return said

        said = await admit("explain", "workload", "waits", *at)
        assert "ns/waits is Pending (WaitingForQuota" in said.out
        said = await admit("get", "workload", "waits", *at)
        assert "Pending" in said.out
        said = await admit("get", "pending", *at)
        assert "waits" in said.out and "1 more" not in said.out
        said = await admit("events", "workload", "waits", *at, "-o", "json")
        last = [entry.sequence async for entry in client.events("waits", at=refused.sequence)]
        assert [json.loads(line)["sequence"] for line in said.out.splitlines()] == last
        assert last[-1] == refused.sequence

        moment = await client.moment(refused.sequence)
        assert (moment.sequence, moment.time) == (refused.sequence, refused.time)
        kept = await pictures(client, refused.sequence)
        await bus.api("STREAM.DELETE.ADMITTANCE_HISTORY")
        assert (await client.moment(refused.sequence)).facts == refused.sequence
        assert await pictures(client, refused.sequence) == kept
        assert "made from" in (await admit("get", "pending", "-q", "cq", *at)).err

        with pytest.raises(NotFound, match='there was no workload "waits" in namespace ns'):
            await client.get("workload", "waits", at=waits - 1)
        with pytest.raises(RequestFailed, match="the log begins at sequence 1, "):
            await client.moment(datetime(2020, 1, 1, tzinfo=UTC))
        with pytest.raises(RequestFailed, match="the log ends at sequence "):
            await client.queues(at=10**12)
        with pytest.raises(RequestFailed, match="is in the future"):
            await client.moment(clock.now() + timedelta(days=1))
        with pytest.raises(BadInput, match="0 is not the sequence of a fact"):
            await client.moment(0)
