"""A spoilt request does not disturb others, and an answer in time counts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from admittance.events import provisioning as facts
from admittance.runtime.bus.bucket import put_message
from admittance.runtime.bus.bus import Bus
from admittance.workload.phase import Phase
from integration.provisioning.bare_provider import BareProvider
from integration.provisioning.test_provisioning_mishaps import KEY, kept, wait_for_message
from support.builders import a_manifest
from support.capacity import CHECK, a_config, until_phase
from support.cluster import Cluster
from support.requests import apply, eventually, queues, submit

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]


async def asked_for(provider: BareProvider, name: str) -> facts.ProvisioningRequested:
    async def there() -> bool:
        return any(request.name == name for request in provider.asked)

    await eventually(there)
    return next(request for request in provider.asked if request.name == name)


async def is_served(bus: Bus, provider: BareProvider, name: str) -> None:
    await submit(bus, [a_manifest(name, queue="lq-cq")])
    await provider.publish_status(await asked_for(provider, name), facts.Provisioned)
    await until_phase(bus, Phase.ADMITTED, name)


def large(name: str) -> dict[str, Any]:
    manifest = a_manifest(name, queue="lq-cq")
    (container,) = manifest["spec"]["podSets"][0]["template"]["spec"]["containers"]
    container["env"] = [{"name": "LARGE", "value": "x" * 120_000}]
    return manifest


async def test_a_request_that_is_too_large_is_noted_and_blocks_no_other(
    cluster: Cluster, bus: Bus
) -> None:
    provider = await BareProvider(bus).start()
    await apply(bus, CHECK, a_config(), *queues("cq", cpu=9, admissionChecks=["capacity"]))
    await submit(bus, [large("w")])
    request = await provider.until_asked()

    details = {str(number): "x" * 15_000 for number in range(64)}
    await provider.publish_status(request, facts.Provisioned, details=details)

    await is_served(bus, provider, "v")
    record = await kept(bus)
    assert record is not None
    assert record.status.notes
    await provider.publish_status(request, facts.Provisioned)
    await until_phase(bus, Phase.ADMITTED)


async def test_an_unreadable_record_is_overwritten(cluster: Cluster, bus: Bus) -> None:
    provider = await BareProvider(bus).start()
    await apply(bus, CHECK, a_config(), *queues("cq", cpu=9, admissionChecks=["capacity"]))
    await submit(bus, [a_manifest("w", queue="lq-cq")])
    request = await provider.until_asked()
    await provider.publish_status(request, facts.Accepted, message="soon")
    await wait_for_message(bus, "soon")

    await bus.publish(put_message(KEY, b"no record", expected=None))

    async def back() -> bool:
        try:
            record = await kept(bus)
        except Exception:
            return False
        return record is not None and record.spec.id == request.id

    await eventually(back)
    await cluster.processes[-1].kill()
    await bus.publish(put_message(KEY, b"{}", expected=None))
    await cluster.start("provisioning-check")

    await is_served(bus, provider, "v")
    second = next(request for request in reversed(provider.asked) if request.name == "w")
    await provider.publish_status(second, facts.Provisioned)
    await until_phase(bus, Phase.ADMITTED)


async def test_an_answer_in_time_counts_although_it_is_read_late(
    cluster: Cluster, bus: Bus
) -> None:
    provider = await BareProvider(bus).start()
    in_time = a_config(parameters={"ValidUntilSeconds": "2"})
    await apply(bus, CHECK, in_time, *queues("cq", admissionChecks=["capacity"]))
    await submit(bus, [a_manifest("w", queue="lq-cq")])
    request = await provider.until_asked()
    await cluster.processes[-1].kill()
    await provider.publish_status(request, facts.Provisioned)
    await asyncio.sleep(2.1)

    await cluster.start("provisioning-check")

    await until_phase(bus, Phase.ADMITTED)
    assert len({request.id for request in provider.asked}) == 1
