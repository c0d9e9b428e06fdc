"""Statuses of a provider and verdicts of the check are published in the end, also after a kill
between storing and publishing, and after the log was full."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from admittance.events import provisioning as facts
from admittance.events.subjects import STREAM
from admittance.providers import Provider, Provisioned, Request
from admittance.providers.status_store import StatusStore
from admittance.runtime.bus.bus import Bus
from admittance.workload.phase import Phase
from integration.provisioning.bare_provider import BareProvider
from integration.provisioning.capacity_requester import running
from support.builders import a_manifest
from support.capacity import CHECK, a_config, until_phase
from support.cluster import Cluster
from support.requests import apply, eventually, queues, submit
from support.servers import TestServer

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]


async def test_a_stored_revocation_arrives_when_the_provider_is_back(
    cluster: Cluster, bus: Bus, nats_server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADMIT_INSTANCE", "the-same-as-before")
    ids: list[str] = []

    def a_provider() -> Provider:
        provider = Provider("class")

        @provider.requested
        async def book(request: Request) -> Provisioned:
            ids.append(request.id)
            return Provisioned("here")

        return provider

    await apply(bus, CHECK, a_config(), *queues("cq", admissionChecks=["capacity"]))
    async with running(a_provider(), nats_server):
        await submit(bus, [a_manifest("w", queue="lq-cq")])
        await until_phase(bus, Phase.ADMITTED)

    store = StatusStore(bus, "class")
    stored, revision = await store.get(ids[0])
    assert stored is not None
    revoked = replace(stored, status="capacity_revoked", seq=stored.seq + 1, message="sold")
    await store.put(revoked, revision)
    async with running(a_provider(), nats_server):
        await until_phase(bus, Phase.REJECTED)


@pytest.mark.servers("real")
async def test_a_verdict_refused_by_a_full_log_is_published_later(
    cluster: Cluster, bus: Bus
) -> None:
    provider = await BareProvider(bus).start()
    await apply(bus, CHECK, a_config(), *queues("cq", admissionChecks=["capacity"]))
    await submit(bus, [a_manifest("w", queue="lq-cq")])
    request = await provider.until_asked()
    check = cluster.processes[-1]
    check.pause()
    await provider.publish_status(request, facts.Provisioned)
    info = await bus.api(f"STREAM.INFO.{STREAM}")
    full = {**info["config"], "max_msgs": info["state"]["messages"]}
    await bus.api(f"STREAM.UPDATE.{STREAM}", full)
    check.resume()

    async def refused() -> bool:
        return "verdict_refused" in check.log

    await eventually(refused)
    await bus.api(f"STREAM.UPDATE.{STREAM}", info["config"])

    await until_phase(bus, Phase.ADMITTED)
