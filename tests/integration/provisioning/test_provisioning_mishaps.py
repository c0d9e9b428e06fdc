"""What goes wrong with provisioning beside real services: configurations that change, providers
that fall silent, and kills."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from admittance.api.checks import AdmissionCheck
from admittance.events import provisioning as facts
from admittance.events.codec import encode
from admittance.events.facts import Finished
from admittance.events.requests.services import ProviderQuery, ProviderReply
from admittance.events.subjects import ALIVE_PROVISIONING, subject_of
from admittance.events.system import ProviderAlive
from admittance.provisioning.records import Record
from admittance.runtime.bus.bucket import get
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.nats import micro
from admittance.workload.phase import Phase
from integration.provisioning.bare_provider import BareProvider
from support.builders import a_manifest
from support.capacity import CHECK, a_config, records, row, until_phase
from support.cluster import Cluster
from support.requests import apply, becomes, eventually, queues, submit
from support.servers import TestServer

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]

KEY = "provisioningrequest.ns.w-capacity-1"


@pytest.fixture
async def cluster(bus: Bus, nats_server: TestServer, tmp_path: Path) -> AsyncIterator[Cluster]:
    folder = tmp_path / "services"
    folder.mkdir()
    cluster = Cluster(nats_server, folder)
    for service in ("workload-controller", "scheduler", "retry-timer", "provisioning-check"):
        await cluster.start(service, ADMIT_BEAT_SECONDS="0.3")
    yield cluster
    await cluster.stop()


@pytest.fixture
async def provider(bus: Bus) -> BareProvider:
    return await BareProvider(bus).start()


async def reserved(bus: Bus, provider: BareProvider) -> facts.ProvisioningRequested:
    """``w`` waits for its capacity."""
    await apply(bus, CHECK, a_config(), *queues("cq", admissionChecks=["capacity"]))
    await submit(bus, [a_manifest("w", queue="lq-cq")])
    return await provider.until_asked()


async def kept(bus: Bus) -> Record | None:
    entry = await get(bus, KEY)
    if entry is None or entry.value is None:
        return None
    return msgspec.json.decode(entry.value, type=Record)


async def wait_for_message(bus: Bus, message: str) -> None:
    async def there() -> bool:
        return (await row(bus)).message == message

    await eventually(there)


def named(config: str) -> dict[str, Any]:
    """The check, with another configuration."""
    parameters = {**CHECK["spec"]["parameters"], "name": config}
    return {**CHECK, "spec": {**CHECK["spec"], "parameters": parameters}}


@pytest.mark.scenario("E8")
async def test_a_request_is_replaced_when_its_configuration_is(
    cluster: Cluster, bus: Bus, provider: BareProvider
) -> None:
    other = await BareProvider(bus, "other").start()
    first = await reserved(bus, provider)
    second = a_config(provisioningClassName="other", parameters={"zone": "b"})

    await apply(bus, {**second, "metadata": {"name": "second"}}, named("second"))

    new = await other.until_asked(1)
    assert (first.attempt, new.attempt) == (1, 1)
    assert first.id != new.id
    await eventually(lambda: _is_free(provider, first.id))
    await provider.publish_status(first, facts.Provisioned)
    await other.publish_status(new, facts.Provisioned)
    await until_phase(bus, Phase.ADMITTED)
    assert other.booked == {new.id}


async def _is_free(provider: BareProvider, id: str) -> bool:
    return id not in provider.booked


async def activity(bus: Bus) -> tuple[str, str]:
    """Status and reason of the check's Active condition; "" without one."""
    entry = await get(bus, "admissioncheck.capacity")
    assert entry is not None
    assert entry.value is not None
    status = msgspec.json.decode(entry.value, type=AdmissionCheck).status
    for condition in status.conditions if status is not None else ():
        if condition.type == "Active":
            return condition.status, condition.reason
    return "", ""


@pytest.mark.scenario("E14")
async def test_three_missed_heartbeats_make_the_check_inactive_until_the_next(
    cluster: Cluster, bus: Bus, provider: BareProvider
) -> None:
    request = await reserved(bus, provider)
    questions: list[str] = []

    async def answer(data: bytes, _: str) -> ProviderReply:
        asked = msgspec.json.decode(data, type=ProviderQuery).id
        questions.append(asked)
        return ProviderReply(id=asked, status="provisioned", message="here", seq=1)

    async def beat() -> None:
        await bus.nc.publish(f"{ALIVE_PROVISIONING}class", encode(ProviderAlive()))

    await beat()
    await becomes(lambda: activity(bus), ("False", "ProviderDown"))
    assert provider.booked == {request.id}, "it is down, and keeps what it has"
    service = await micro.serve(
        bus.nc, "provider-class", "bare", {"admit.api.provider.class": answer}
    )
    try:

        async def back() -> bool:
            await beat()
            await asyncio.sleep(0.1)
            return (await activity(bus))[0] == "True"

        await eventually(back)
        # Asked what became of its requests, and what it says counts.
        await until_phase(bus, Phase.ADMITTED)
        assert set(questions) == {request.id}
    finally:
        await service.stop()


@pytest.mark.scenario("E14", "E10")
async def test_kills_between_record_and_request_book_once(
    cluster: Cluster, bus: Bus, provider: BareProvider
) -> None:
    await apply(bus, CHECK, a_config(9), *queues("cq", cpu=40, admissionChecks=["capacity"]))
    names = [f"w{i}" for i in range(20)]
    await submit(bus, [a_manifest(name, queue="lq-cq") for name in names])
    for _ in range(3):
        await provider.until_asked(1)
        await cluster.processes[-1].kill()
        await cluster.start("provisioning-check", ADMIT_BEAT_SECONDS="0.3")
        await asyncio.sleep(0.2)
    await provider.until_asked(len(names))
    for asked in {request.id: request for request in provider.asked}.values():
        await provider.publish_status(asked, facts.Provisioned)
    for name in names:
        await until_phase(bus, Phase.ADMITTED, name)
    assert len({request.id for request in provider.asked}) == len(names), "one for each attempt"

    await cluster.processes[-1].kill()
    for name in names:
        fact = Finished(namespace="ns", name=name)
        await bus.publish(Outgoing(subject_of(fact), encode(fact)))
    await cluster.start("provisioning-check", ADMIT_BEAT_SECONDS="0.3")

    async def nothing() -> bool:
        return not provider.booked and not await records(bus)

    await eventually(nothing)
