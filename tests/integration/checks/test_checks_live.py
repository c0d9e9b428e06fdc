"""Controllers made with the SDK and real services: their verdicts decide which workloads start."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from admittance.api.workload import CheckState
from admittance.conformance.check_kit import CheckKitOptions, run_check_kit
from admittance.runtime.bus.bus import Bus
from admittance.runtime.clock import now
from admittance.workload.phase import Phase, phase
from integration.checks.replicas import Replicas
from support.builders import a_manifest
from support.check_requests import NAME
from support.cluster import Cluster
from support.requests import admission_check, apply, eventually, queues, submit, workload
from support.servers import LIMIT, TestServer, until, within

pytestmark = pytest.mark.bus


@pytest.fixture
async def cluster(bus: Bus, nats_server: TestServer, tmp_path: Path) -> AsyncIterator[Cluster]:
    """Workload-controller, scheduler and retry-timer."""
    folder = tmp_path / "services"
    folder.mkdir()
    cluster = Cluster(nats_server, folder)
    for service in ("workload-controller", "scheduler", "retry-timer"):
        await cluster.start(service)
    yield cluster
    await cluster.stop()


@pytest.fixture
async def replicas(nats_server: TestServer, tmp_path: Path) -> AsyncIterator[Replicas]:
    replicas = Replicas(nats_server.url, tmp_path)
    yield replicas
    await replicas.stop()


async def where(bus: Bus, name: str) -> Phase | None:
    stored = await workload(bus, name)
    return None if stored is None else phase(stored, now())


async def until_phase(bus: Bus, name: str, wanted: Phase) -> None:
    async def there() -> bool:
        return await where(bus, name) is wanted

    await eventually(there)


async def row(bus: Bus, name: str, check: str) -> CheckState:
    stored = await workload(bus, name)
    assert stored is not None
    return next(row for row in stored.status.admission_checks if row.name == check)


@pytest.mark.scenario("A2")
async def test_a_workload_is_admitted_when_both_of_its_checks_are_ready(
    cluster: Cluster, bus: Bus, replicas: Replicas, tmp_path: Path
) -> None:
    await apply(
        bus,
        admission_check("budget", NAME),
        admission_check("capacity", "example.com/capacity"),
        *queues("cq", admissionChecks=["budget", "capacity"]),
    )
    await submit(bus, [a_manifest("w", queue="lq-cq")])
    # The request was sent before the controller ran.
    await until_phase(bus, "w", Phase.QUOTA_RESERVED)
    await replicas.start("ready")
    await replicas.start("slow", "example.com/capacity")

    async def one_is_ready() -> bool:
        return (await row(bus, "w", "budget")).state == "Ready"

    await eventually(one_is_ready)
    await until(lambda: replicas.begun() == ["w"])
    assert await where(bus, "w") is Phase.QUOTA_RESERVED
    (tmp_path / "go").touch()
    await until_phase(bus, "w", Phase.ADMITTED)


async def test_a_conformance_test_does_not_disturb_a_live_system(
    cluster: Cluster,
    bus: Bus,
    nats_server: TestServer,
    replicas: Replicas,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("admittance.conformance.kit.HEARTBEAT_SECONDS", 0.0)
    await apply(bus, admission_check("budget", NAME), *queues("cq", admissionChecks=["budget"]))
    await replicas.start("ready")
    await submit(bus, [a_manifest("before", queue="lq-cq")])
    await until_phase(bus, "before", Phase.ADMITTED)
    letters = await bus.nc.subscribe("admit.deadletter.>")
    said = await bus.nc.subscribe("admit.workload.>")
    await bus.nc.flush()
    wanted = CheckKitOptions(
        controller=NAME, check="budget", parameters=None, timeout=LIMIT, first_timeout=LIMIT
    )
    trial = run_check_kit(
        bus, nats_server.url, wanted, on_case=lambda _: None, on_ready=lambda: None
    )
    report = await within(trial)
    assert report.passed
    while said.pending_msgs:
        message = await said.next_msg(timeout=LIMIT)
        assert "check-test-" not in message.subject, "nothing was ever said of its workloads"
    await submit(bus, [a_manifest("after", queue="lq-cq")])
    await until_phase(bus, "after", Phase.ADMITTED)
    assert not letters.pending_msgs
    # The durable belongs to the AdmissionCheck, and stays.
    names = await bus.api("CONSUMER.NAMES.ADMITTANCE")
    assert "check-example_com=2Fbudget" in names["consumers"]
