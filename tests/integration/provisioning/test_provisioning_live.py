"""The provisioning check beside real services: capacity is there before anything starts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from admittance.api.workload import CheckState
from admittance.events import provisioning as facts
from admittance.provisioning.answers import CLASS, CONSUME, NOT_ACTIVE
from admittance.runtime.bucket import read_all
from admittance.runtime.bus import Bus
from admittance.runtime.clock import now
from admittance.workload.phase import Phase, phase
from integration.provisioning.bare_provider import BareProvider

from builders import a_manifest
from processes import Fleet, apply, eventually, queues, submit, workload
from servers import TestServer

pytestmark = pytest.mark.bus

CHECK = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "AdmissionCheck",
    "metadata": {"name": "capacity"},
    "spec": {
        "controllerName": "kueue.x-k8s.io/provisioning-request",
        "parameters": {
            "apiGroup": "kueue.x-k8s.io",
            "kind": "ProvisioningRequestConfig",
            "name": "config",
        },
    },
}


def a_config(limit: int = 1, base: int = 1, **spec: Any) -> dict[str, Any]:
    retry = {"backoffLimitCount": limit, "backoffBaseSeconds": base, "backoffMaxSeconds": 60}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ProvisioningRequestConfig",
        "metadata": {"name": "config"},
        "spec": {"provisioningClassName": "class", "retryStrategy": retry, **spec},
    }


@pytest.fixture
async def fleet(bus: Bus, nats_server: TestServer, tmp_path: Path) -> AsyncIterator[Fleet]:
    folder = tmp_path / "services"
    folder.mkdir()
    fleet = Fleet(nats_server.url, folder)
    for service in ("workload-controller", "scheduler", "retry-timer", "provisioning-check"):
        await fleet.start(service)
    yield fleet
    await fleet.stop()


@pytest.fixture
async def provider(bus: Bus) -> BareProvider:
    return await BareProvider(bus).start()


async def row(bus: Bus, name: str = "w") -> CheckState:
    found = await workload(bus, name)
    assert found is not None
    return next(row for row in found.status.admission_checks if row.name == "capacity")


async def until_phase(bus: Bus, wanted: Phase, name: str = "w") -> None:
    async def there() -> bool:
        found = await workload(bus, name)
        return found is not None and phase(found, now()) is wanted

    await eventually(there)


async def records(bus: Bus) -> list[str]:
    return [entry.key for entry in await read_all(bus, "provisioningrequest.>")]


@pytest.mark.scenario("E2")
async def test_a_workload_starts_once_its_capacity_is_there(
    fleet: Fleet, bus: Bus, provider: BareProvider
) -> None:
    await apply(bus, CHECK, a_config(), *queues("cq", admissionChecks=["capacity"]))
    await submit(bus, [a_manifest("w", queue="lq-cq")])

    request = await provider.until_asked()
    assert await records(bus) == ["provisioningrequest.ns.w-capacity-1"]
    await provider.says(request, facts.Accepted, message="soon")
    await provider.says(request, facts.Provisioned, message="here")

    await until_phase(bus, Phase.ADMITTED)
    told = await row(bus)
    assert told.message == "here"
    (update,) = told.pod_set_updates
    assert update["annotations"] == {CONSUME: "w-capacity-1", CLASS: "class"}


@pytest.mark.scenario("E3")
async def test_a_failure_is_retried_after_its_delay_with_the_next_attempt(
    fleet: Fleet, bus: Bus, provider: BareProvider
) -> None:
    await apply(bus, CHECK, a_config(), *queues("cq", admissionChecks=["capacity"]))
    await submit(bus, [a_manifest("w", queue="lq-cq")])

    first = await provider.until_asked()
    await provider.says(first, facts.ProvisioningFailed, message="none left")
    second = await provider.until_asked(2)

    assert (first.attempt, second.attempt) == (1, 2)
    assert provider.booked == {second.id}
    await provider.says(second, facts.Provisioned)
    await until_phase(bus, Phase.ADMITTED)


@pytest.mark.scenario("E4", "E7")
async def test_revoked_capacity_ends_a_running_workload_and_frees_what_was_booked(
    fleet: Fleet, bus: Bus, provider: BareProvider
) -> None:
    await apply(bus, CHECK, a_config(), *queues("cq", admissionChecks=["capacity"]))
    await submit(bus, [a_manifest("w", queue="lq-cq")])
    request = await provider.until_asked()
    await provider.says(request, facts.Provisioned)
    await until_phase(bus, Phase.ADMITTED)

    await provider.says(request, facts.CapacityRevoked, message="sold")

    await until_phase(bus, Phase.REJECTED)
    await eventually(lambda: _nothing_booked(bus, provider))


async def _nothing_booked(bus: Bus, provider: BareProvider) -> bool:
    return not provider.booked and not await records(bus)


@pytest.mark.scenario("E8")
async def test_without_its_config_the_check_says_why_and_goes_on_when_it_comes(
    fleet: Fleet, bus: Bus, provider: BareProvider
) -> None:
    await apply(bus, CHECK, a_config(), *queues("cq", admissionChecks=["capacity"]))
    await submit(bus, [a_manifest("w", queue="lq-cq")])
    first = await provider.until_asked()

    await apply(bus, a_config(parameters={"zone": "b"}))
    second = await provider.until_asked(2)

    assert (second.attempt, second.parameters) == (1, {"zone": "b"})
    assert first.id not in provider.booked
    assert (await row(bus)).message != NOT_ACTIVE


@pytest.mark.scenario("E14")
async def test_one_that_takes_over_goes_on_where_the_other_was_killed(
    fleet: Fleet, bus: Bus, provider: BareProvider
) -> None:
    await apply(bus, CHECK, a_config(), *queues("cq", admissionChecks=["capacity"]))
    await submit(bus, [a_manifest("w", queue="lq-cq")])
    request = await provider.until_asked()

    await fleet.processes[-1].kill()
    # Said while nobody is there to hear it.
    await provider.says(request, facts.Provisioned)
    await fleet.start("provisioning-check")

    await until_phase(bus, Phase.ADMITTED)
    assert {one.id for one in provider.asked} == {request.id}
