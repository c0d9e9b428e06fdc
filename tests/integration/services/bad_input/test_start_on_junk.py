"""Services start, take over and work on a server with junk on every subject and key."""

from __future__ import annotations

import asyncio
import json
import random
import re
from contextlib import suppress
from pathlib import Path

import pytest
from benchmarks.junk import Junk, SeenMessage, random_publication

from admittance.events.subjects import COMMITS, STREAM
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.errors import AdmittanceError
from admittance.workload.conditions import Type, is_true
from support.builders import a_manifest
from support.cluster import Cluster
from support.processes.fork_server import run_admit
from support.requests import apply, eventually, health, queues, submit, workload
from support.servers import LIMIT, TestServer
from support.stored.values import VALUES_OF_A_STORY

pytestmark = pytest.mark.bus

SERVICES = (
    "workload-controller",
    "scheduler",
    "retry-timer",
    "variant-controller",
    "provisioning-check",
    "placement",
    "provider-pool",
    "runner",
)
NAMES = [f"junk-{n}" for n in range(20)]
LONG = 2 * LIMIT

KNOWN = (
    (COMMITS, b"junk"),
    ("admit.checkpoint.made.x", b'{"id":">"}'),
    ("admit.object.applied.clusterqueue._.a", b"{}"),
    ("admit.object.applied.flavor._.default", b'{"kind":"x","name":"y","revision":1000000000000}'),
    ("$KV.admittance._admittance.manifests", b"9" * 30),
    ("$KV.admittance.workload.ns.broken", b"junk"),
    ("$KV.admittance.workload.ns.deep", b"[" * 5000),
    ("$KV.admittance.workload.=ZZ", b"{}"),
    ("$KV.admittance.clusterqueue.broken", b"{}"),
    ("$KV.admittance.barrier.queue-a", b"[]"),
    ("$KV.admittance._usage.ns.lq-a", b"1"),
    ("$KV.admittance.provisioningrequest.ns.x", b"{}"),
    ("$KV.admittance_claims._alive.scheduler.junk", b"{}"),
    ("$KV.admittance_claims._alive.scheduler.=ZZ", b"{}"),
    ("$KV.admittance_claims.ns.w.x", b"junk"),
    ("$KV.admittance_claims._runner_inventory.x", b"junk"),
    ("$KV.admittance_claims._runner_alive.=ZZ", b"{}"),
    ("$KV.admittance.runner.x", b"{}"),
    ("$KV.admittance_providers._pool.rack.x", b"junk"),
)
"""Each of these messages once ended a service at every start, or stopped its work."""
NAMED = (
    "workload.ns.broken",
    "workload.ns.deep",
    "workload.=ZZ",
    "clusterqueue.broken",
    "_usage.ns.lq-a",
    "_alive.scheduler.junk",
    "_pool.rack.x",
    "admit.checkpoint.made.x",
    "workload-controller-999999999-1",
)
"""Junk that no service removes, so that `admit doctor` must name it."""


async def test_services_start_and_take_over_on_junk_and_doctor_names_it(
    cluster: Cluster, bus: Bus, nats_server: TestServer, tmp_path: Path
) -> None:
    chance = random.Random(12)
    corpus = [SeenMessage(subject, data) for subject, data in VALUES_OF_A_STORY]
    await _publish(
        bus,
        [random_publication(chance, corpus, NAMES, ["queue-a"], _permitted) for _ in range(400)],
    )
    await _publish(bus, [Junk(subject, data, {}) for subject, data in KNOWN])
    value = a_manifest("ahead") | {"status": {"log": {"fact": 10**15}}}
    await _publish(bus, [Junk("$KV.admittance.workload.ns.ahead", json.dumps(value).encode(), {})])
    # Named like one of the leader's, of a generation that is far away.
    foreign = {"durable_name": "workload-controller-999999999-1", "ack_policy": "explicit"}
    await bus.api(
        f"CONSUMER.CREATE.{STREAM}.workload-controller-999999999-1",
        {"stream_name": STREAM, "config": {**foreign, "name": foreign["durable_name"]}},
    )
    for service in SERVICES:
        await cluster.start(service)
    await eventually(lambda: _leads(bus), LONG)
    await apply(bus, *queues("a"))
    await _works(bus, "first")

    # Once more from the beginning, now that services have written beside it.
    await _publish(bus, [Junk(COMMITS, b"junk", {}), Junk(KNOWN[2][0], b"{}", {})])
    for process in list(cluster.processes):
        if process.service != "runner":
            assert process.status is None, process.log[-2000:]
            await process.kill()
            cluster.processes.remove(process)
            await cluster.start(process.service)
    await _works(bus, "second")
    for process in cluster.processes:
        assert process.status is None, process.log[-2000:]
        assert "Traceback" not in process.log

    output = await _admit(nats_server.url, tmp_path, "-o", "json", "doctor")
    assert [place for place in NAMED if place not in output] == []
    await _repair(nats_server.url, tmp_path, output)
    listed = await _admit(nats_server.url, tmp_path, "-n", "ns", "get", "workloads")
    assert "first" in listed
    assert "second" in listed
    story = await _admit(nats_server.url, tmp_path, "-n", "ns", "events", "-A")
    assert "second" in story
    for process in cluster.processes:
        if process.service == "workload-controller":
            await process.kill()
    await _publish(bus, [Junk("$KV.admittance.clusterqueue.broken", b"{}", {})])
    call = ("delete", "--stored", "clusterqueue.broken", "--stored", "workload.ns.second")
    env = {"HOME": str(tmp_path)}
    done = await asyncio.to_thread(run_admit, "--nats", nats_server.url, *call, env=env)
    assert done.out == "clusterqueue.broken deleted\n"
    # The job of a workload that can be read is stopped first.
    assert "`admit delete workload second -n ns` deletes it" in done.err


async def _publish(bus: Bus, junk: list[Junk]) -> None:
    messages = [
        Outgoing(message.subject, message.data, message.headers or None) for message in junk
    ]
    for message in messages:
        # Some headers are refused by the server, which is as well.
        with suppress(AdmittanceError):
            await bus.publish(message)


def _permitted(junk: Junk) -> bool:
    """Kept, and of nothing that only permissions prevent: see `benchmarks.fuzz`."""
    parts = junk.subject.split(".")
    if parts[0] == "admit" and parts[1] in ("api", "alive"):
        return False
    if any(not part for part in parts) or b'"admission"' in junk.data or b"cohort" in junk.data:
        return False
    return parts[-1] in NAMES or parts[0] == "$KV" or parts[1] in ("checkpoint", "lease", "timer")


async def _leads(bus: Bus) -> bool:
    controllers = [reply for reply in await health(bus) if reply.service == "workload-controller"]
    return any(reply.leads and reply.ready for reply in controllers)


async def _works(bus: Bus, name: str) -> None:
    await submit(bus, [a_manifest(name, queue="lq-a")])

    async def finished() -> bool:
        stored = await workload(bus, name)
        return stored is not None and is_true(stored, Type.FINISHED)

    await eventually(finished, LONG)


async def _repair(url: str, home: Path, output: str) -> None:
    """Deletes each key of the bucket as `admit doctor` says: with the workload-controller, which
    answers here."""
    keys = sorted(set(re.findall(r"`admit delete --stored (\S+)`", output)))
    assert {key for key in NAMED if key.startswith(("workload.", "clusterqueue."))} <= {*keys}
    options = [word for key in keys for word in ("--stored", key)]
    call = ("--nats", url, "delete", *options)
    done = await asyncio.to_thread(run_admit, *call, env={"HOME": str(home)})
    assert {f"{key} deleted" for key in keys} <= {*done.out.splitlines()}, done.err
    assert "--stored" not in await _admit(url, home, "-o", "json", "doctor")


async def _admit(url: str, home: Path, *call: str) -> str:
    env = {"HOME": str(home)}
    return (await asyncio.to_thread(run_admit, "--nats", url, *call, env=env)).out
