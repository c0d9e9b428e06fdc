"""What goes wrong with provisioning beside real services: configurations that change, records that
are deleted by hand, flavors that are left, providers that fall silent and answer twice, and kills.
"""

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
from admittance.events.requests import Delete, DeleteReply, ProviderQuery, ProviderReply
from admittance.events.subjects import ALIVE_PROVISIONING, subject_of
from admittance.events.system import ProviderAlive
from admittance.provisioning.records import Record
from admittance.provisioning.steps import NOT_ACTIVE
from admittance.runtime.bus.bucket import delete_message, get
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.nats import micro
from admittance.workload.phase import Phase
from integration.provisioning.bare_provider import BareProvider
from support.builders import a_manifest
from support.capacity import CHECK, a_config, records, row, until_phase
from support.cluster import Cluster
from support.requests import apply, ask, eventually, queues, submit
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


# E8. ----------------------------------------------------------------------------------------


@pytest.mark.scenario("E8")
@pytest.mark.parametrize("what", ["class", "parameter", "config"])
async def test_a_request_is_replaced_when_its_configuration_is(
    what: str, cluster: Cluster, bus: Bus, provider: BareProvider
) -> None:
    other = await BareProvider(bus, "other").start()
    first = await reserved(bus, provider)

    match what:
        case "class":
            await apply(bus, a_config(provisioningClassName="other"))
        case "parameter":
            await apply(bus, a_config(parameters={"zone": "b"}))
        case "config":
            second = a_config(provisioningClassName="other", parameters={"zone": "b"})
            await apply(bus, {**second, "metadata": {"name": "second"}}, named("second"))

    asked = provider if what == "parameter" else other
    new = await asked.until_asked(2 if what == "parameter" else 1)
    assert (first.attempt, new.attempt) == (1, 1)
    assert first.id != new.id
    await eventually(lambda: _is_free(provider, first.id))
    await provider.publish_status(first, facts.Provisioned)
    await asked.publish_status(new, facts.Provisioned)
    await until_phase(bus, Phase.ADMITTED)
    assert asked.booked == {new.id}


async def _is_free(provider: BareProvider, id: str) -> bool:
    return id not in provider.booked


@pytest.mark.scenario("E8")
async def test_a_deleted_config_ends_the_request_and_a_new_config_renews_it(
    cluster: Cluster, bus: Bus, provider: BareProvider
) -> None:
    await reserved(bus, provider)

    gone = Delete(kind="ProvisioningRequestConfig", name="config")
    await ask(bus, "admit.api.delete", gone, DeleteReply)

    await wait_for_message(bus, NOT_ACTIVE)
    assert provider.booked == set()
    await apply(bus, a_config())
    second = await provider.until_asked(2)
    await provider.publish_status(second, facts.Provisioned)
    await until_phase(bus, Phase.ADMITTED)


# E9. ----------------------------------------------------------------------------------------


@pytest.mark.scenario("E9")
async def test_a_request_that_is_deleted_under_a_running_job_does_not_come_back(
    cluster: Cluster, bus: Bus, provider: BareProvider
) -> None:
    request = await reserved(bus, provider)
    await provider.publish_status(request, facts.Provisioned)
    await until_phase(bus, Phase.ADMITTED)

    await bus.publish(delete_message(KEY, expected=None, ttl_seconds=60.0))

    await eventually(lambda: _is_free(provider, request.id))
    await cluster.processes[-1].kill()
    await cluster.start("provisioning-check", ADMIT_BEAT_SECONDS="0.3")
    await submit(bus, [a_manifest("v", queue="lq-cq")])
    await provider.until_asked(2)  # The new leader has read all.
    await until_phase(bus, Phase.ADMITTED)
    assert await kept(bus) is None
    assert len({one.id for one in provider.asked if one.name == "w"}) == 1


@pytest.mark.scenario("E9")
async def test_a_request_that_is_deleted_while_it_is_waited_for_is_written_again(
    cluster: Cluster, bus: Bus, provider: BareProvider
) -> None:
    request = await reserved(bus, provider)
    await provider.publish_status(request, facts.Accepted, message="soon")
    await wait_for_message(bus, "soon")

    await bus.publish(delete_message(KEY, expected=None, ttl_seconds=60.0))

    async def back() -> bool:
        found = await kept(bus)
        return found is not None and found.spec.id == request.id

    await eventually(back)
    await provider.publish_status(request, facts.Provisioned)
    await until_phase(bus, Phase.ADMITTED)


# E13. ---------------------------------------------------------------------------------------


# E14. ---------------------------------------------------------------------------------------


async def activity(bus: Bus) -> tuple[str, str]:
    """Status and reason of the check's Active condition; "" without one."""
    entry = await get(bus, "admissioncheck.capacity")
    assert entry is not None
    assert entry.value is not None
    status = msgspec.json.decode(entry.value, type=AdmissionCheck).status
    for one in status.conditions if status is not None else ():
        if one.type == "Active":
            return one.status, one.reason
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

    async def down() -> bool:
        return await activity(bus) == ("False", "ProviderDown")

    await eventually(down)
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
    for one in {one.id: one for one in provider.asked}.values():
        await provider.publish_status(one, facts.Provisioned)
    for name in names:
        await until_phase(bus, Phase.ADMITTED, name)
    assert len({one.id for one in provider.asked}) == len(names), "one for each attempt"

    await cluster.processes[-1].kill()
    for name in names:
        fact = Finished(namespace="ns", name=name)
        await bus.publish(Outgoing(subject_of(fact), encode(fact)))
    await cluster.start("provisioning-check", ADMIT_BEAT_SECONDS="0.3")

    async def nothing() -> bool:
        return not provider.booked and not await records(bus)

    await eventually(nothing)
