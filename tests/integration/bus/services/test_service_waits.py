"""A service as a process: what it waits for, and what ends it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from benchmarks.harness.server_cluster import free_ports

from admittance.checks import AdmissionCheckController, Ready
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import BusUnavailable, Busy, Full, NoServer, SetupError
from admittance.runtime.nats.connection_options import NO_OPTIONS, ConnectionOptions
from admittance.runtime.nats_server.embedded_server import EmbeddedServer
from admittance.runtime.process import supervise
from admittance.runtime.process.service import Service, Streams
from admittance.runtime.process.settings import Settings
from admittance.sdk import program
from support.servers import TestServer, within

A_SERVICE = Service("s", lambda: _never, role="s", streams=Streams.KEEPS)


async def _never(*_: object, **__: object) -> None:
    raise AssertionError("each test gives its own function")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise, "PAUSE_MIN", 0.01)
    monkeypatch.setattr(supervise, "PAUSE_MAX", 0.05)


async def test_a_service_waits_for_a_server_that_does_not_run_yet(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    stop = asyncio.Event()
    began = asyncio.Event()

    async def run(bus: Bus, _: Settings, *, stop: asyncio.Event) -> None:
        await bus.api("STREAM.INFO.ADMITTANCE")  # is made by then
        began.set()
        await stop.wait()

    settings = Settings(service="s", instance="i", url=f"nats://127.0.0.1:{port}")
    with pytest.raises(NoServer):
        await Bus.connect(settings.url, name="early")
    serving = asyncio.create_task(supervise.serve(A_SERVICE, settings, run, stop))
    server = EmbeddedServer(tmp_path / "data", port=port)
    await server.start()
    await within(began.wait())
    stop.set()
    await within(serving)
    await server.stop()


@pytest.mark.servers("simulated")
async def test_a_service_without_an_answer_restarts(nats_server: TestServer) -> None:
    stop = asyncio.Event()
    troubles = [BusUnavailable("no answer")] * 30 + [Busy(10008, "not now")] * 30

    async def run(_: Bus, __: Settings, *, stop: asyncio.Event) -> None:
        if troubles:
            raise troubles.pop()
        stop_all.set()
        await stop.wait()

    stop_all = stop
    settings = Settings(service="s", instance="i", url=nats_server.url)
    await within(supervise.serve(A_SERVICE, settings, run, stop))
    assert troubles == []


async def test_a_wrong_setting_ends_a_service(nats_server: TestServer) -> None:
    async def run(_: Bus, __: Settings, *, stop: asyncio.Event) -> None:
        raise AssertionError("it never runs")

    settings = Settings(service="s", instance="i", url=nats_server.url, replicas=3)
    with pytest.raises(SetupError, match="the server is not part of a cluster"):
        await within(supervise.serve(A_SERVICE, settings, run, asyncio.Event()))


@pytest.mark.servers("simulated")
async def test_a_service_retries_when_the_server_s_settings_were_right_before(
    nats_server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = asyncio.Event()
    connect = Bus.connect
    tries = 0

    async def run(_: Bus, __: Settings, *, stop: asyncio.Event) -> None:
        if tries > 5:
            stop_all.set()
            await stop.wait()
        raise BusUnavailable("no answer")

    async def sometimes(url: str, *, name: str, access: ConnectionOptions = NO_OPTIONS) -> Bus:
        nonlocal tries
        tries += 1
        if 1 < tries < 5:
            raise SetupError("the server has no JetStream for this account")
        return await connect(url, name=name, access=access)

    stop_all = stop
    monkeypatch.setattr(Bus, "connect", sometimes)
    settings = Settings(service="s", instance="i", url=nats_server.url)
    await within(supervise.serve(A_SERVICE, settings, run, stop))
    assert tries == 6


async def test_one_server_that_is_down_does_not_prevent_a_connection(
    nats_server: TestServer,
) -> None:
    down = ",".join(f"nats://127.0.0.1:{port}" for port in free_ports(2))
    for _ in range(8):  # the client tries them in an order of its own
        bus = await Bus.connect(f"{down},{nats_server.url}", name="test")
        await bus.close()


@pytest.mark.servers("simulated")
async def test_a_program_without_an_answer_restarts(
    nats_server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "RESTART_PAUSE", 0.01)
    troubles = [BusUnavailable("no answer"), Busy(10008, "not now"), Full(10047, "no room")]
    buses: list[Bus] = []

    class Patient(AdmissionCheckController):
        async def _work(self, bus: Bus, settings: Settings, stop: asyncio.Event) -> None:
            buses.append(bus)
            await bus.api("INFO")
            if troubles:
                raise troubles.pop()

    controller = Patient("example.com/patient")
    controller.check(lambda _: Ready())
    await within(controller.serve(nats_server.url))
    assert len(buses) == 4
    assert all(bus.nc.is_closed for bus in buses)
