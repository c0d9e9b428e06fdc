"""`admit delete provisioningrequest` cancels a request, also without an active leader."""

from __future__ import annotations

import asyncio

import pytest

from admittance.events import provisioning as facts
from admittance.provisioning.steps import DELETED
from admittance.runtime.bus.bus import Bus
from admittance.workload.phase import Phase
from integration.provisioning.bare_provider import BareProvider
from support.builders import a_manifest
from support.capacity import CHECK, a_config, records, until_phase
from support.cluster import Cluster
from support.processes.fork_server import run_admit
from support.requests import apply, eventually, queues, submit
from support.servers import TestServer

pytestmark = pytest.mark.bus
SERVICES = ("workload-controller", "scheduler", "provisioning-check")
NAME = "provisioningrequest.autoscaling.x-k8s.io/w-capacity-1"


async def admit(server: TestServer, *arguments: str) -> tuple[int, str]:
    """Exit status, and all that was printed."""
    env = {"ADMIT_NATS_URL": server.url, "COLUMNS": "300"}
    done = await asyncio.to_thread(run_admit, "-n", "ns", *arguments, env=env)
    return done.status, done.out + done.err


async def test_deleting_a_request_prints_what_follows(
    cluster: Cluster, bus: Bus, nats_server: TestServer
) -> None:
    provider = await BareProvider(bus).start()
    await apply(bus, CHECK, a_config(), *queues("cq", admissionChecks=["capacity"]))
    assert (await admit(nats_server, "delete", "pr", "w-capacity-1"))[0] == 1
    await submit(bus, [a_manifest("w", queue="lq-cq")])
    first = await provider.until_asked()

    status, output = await admit(nats_server, "delete", "pr", "w-capacity-1")

    assert (status, output) == (
        0,
        f"{NAME} deleted\nits provider frees the capacity; w still waits and makes a new request "
        "in the same attempt\n",
    )
    second = await provider.until_asked(2)
    assert (second.attempt, second.id) == (1, f"{first.id}~2")
    assert provider.booked == {second.id}
    ended = [fact for fact in provider.received if isinstance(fact, facts.ProvisioningCancelled)]
    assert [cancellation.reason for cancellation in ended] == [DELETED]
    await provider.publish_status(second, facts.Provisioned)
    await until_phase(bus, Phase.ADMITTED)

    status, output = await admit(nats_server, "delete", "provisioningrequest/w-capacity-1")

    assert status == 0
    assert "w runs on without it; `admit stop workload w` stops it" in output
    assert not provider.booked
    assert not await records(bus)
    await until_phase(bus, Phase.ADMITTED)


async def test_a_deletion_without_a_leader_is_finished_by_the_next_one(
    cluster: Cluster, bus: Bus, nats_server: TestServer
) -> None:
    provider = await BareProvider(bus).start()
    await apply(bus, CHECK, a_config(), *queues("cq", admissionChecks=["capacity"]))
    await submit(bus, [a_manifest("w", queue="lq-cq")])
    first = await provider.until_asked()
    await cluster.processes[-1].kill()

    status, output = await admit(nats_server, "delete", "pr", "w-capacity-1")

    assert (status, output.splitlines()[0]) == (0, f"{NAME} deleting")
    assert "once it runs" in output
    assert "Deleting" in (await admit(nats_server, "get", "pr"))[1]
    await cluster.start("provisioning-check")
    second = await provider.until_asked(2)
    await eventually(lambda: _only(provider, second.id))
    assert second.id != first.id


async def _only(provider: BareProvider, id: str) -> bool:
    return provider.booked == {id}
