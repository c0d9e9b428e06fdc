"""The provisioning check with real services: capacity is ready before a workload starts."""

from __future__ import annotations

import pytest

from admittance.events import provisioning as facts
from admittance.provisioning.steps import CLASS, CONSUME
from admittance.runtime.bus.bus import Bus
from admittance.workload.phase import Phase
from integration.provisioning.bare_provider import BareProvider
from support.builders import a_manifest
from support.capacity import CHECK, a_config, records, row, until_phase
from support.cluster import Cluster
from support.requests import apply, eventually, queues, submit

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]


@pytest.fixture
async def provider(bus: Bus) -> BareProvider:
    return await BareProvider(bus).start()


@pytest.mark.scenario("E2")
async def test_a_workload_starts_when_its_capacity_is_available(
    cluster: Cluster, bus: Bus, provider: BareProvider
) -> None:
    await apply(bus, CHECK, a_config(), *queues("cq", admissionChecks=["capacity"]))
    await submit(bus, [a_manifest("w", queue="lq-cq")])

    request = await provider.until_asked()
    assert await records(bus) == ["provisioningrequest.ns.w-capacity-1"]
    await provider.publish_status(request, facts.Accepted, message="soon")
    await provider.publish_status(request, facts.Provisioned, message="here")

    await until_phase(bus, Phase.ADMITTED)
    shown = await row(bus)
    assert shown.message == "here"
    (update,) = shown.pod_set_updates
    assert update["annotations"] == {CONSUME: "w-capacity-1", CLASS: "class"}


@pytest.mark.scenario("E3")
async def test_a_failure_is_retried_after_its_delay_with_the_next_attempt(
    cluster: Cluster, bus: Bus, provider: BareProvider
) -> None:
    await apply(bus, CHECK, a_config(), *queues("cq", admissionChecks=["capacity"]))
    await submit(bus, [a_manifest("w", queue="lq-cq")])

    first = await provider.until_asked()
    await provider.publish_status(first, facts.ProvisioningFailed, message="none left")
    second = await provider.until_asked(2)

    assert (first.attempt, second.attempt) == (1, 2)
    assert provider.booked == {second.id}
    await provider.publish_status(second, facts.Provisioned)
    await until_phase(bus, Phase.ADMITTED)


@pytest.mark.scenario("E4", "E7")
async def test_revoked_capacity_ends_a_running_workload_and_its_booking(
    cluster: Cluster, bus: Bus, provider: BareProvider
) -> None:
    await apply(bus, CHECK, a_config(), *queues("cq", admissionChecks=["capacity"]))
    await submit(bus, [a_manifest("w", queue="lq-cq")])
    request = await provider.until_asked()
    await provider.publish_status(request, facts.Provisioned)
    await until_phase(bus, Phase.ADMITTED)

    await provider.publish_status(request, facts.CapacityRevoked, message="sold")

    await until_phase(bus, Phase.REJECTED)
    await eventually(lambda: _nothing_booked(bus, provider))


async def _nothing_booked(bus: Bus, provider: BareProvider) -> bool:
    return not provider.booked and not await records(bus)
