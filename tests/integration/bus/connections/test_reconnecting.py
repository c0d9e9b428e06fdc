"""The client notices every loss of its connection; a pause of the server is not a loss."""

from __future__ import annotations

import asyncio
from pathlib import Path

import nats.errors
import psutil
import pytest
from nats.aio.msg import Msg
from nats.aio.transport import TcpTransport

from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.bus.history import last_by_direct_get
from admittance.runtime.errors import BusUnavailable
from support.servers import ConfiguredServer, TestServer, paused, until, within

pytestmark = pytest.mark.bus
ACCOUNTS = """jetstream { store_dir: "STORE" }
accounts { MAIN { jetstream: enabled, users: [
  { user: main, password: p }
] } }
"""


def reconnections(bus: Bus) -> list[None]:
    """The number of reconnects."""
    seen: list[None] = []
    bus.reconnected.append(lambda: seen.append(None))
    return seen


async def answers(bus: Bus) -> bool:
    """Whether the server answers this connection."""
    return bool(await within(bus.api("INFO")))


async def test_an_abandoned_flush_does_not_harm_the_connection(
    nats_server: TestServer, bare_bus: Bus
) -> None:
    back = reconnections(bare_bus)
    with paused(nats_server):
        for _ in range(3):
            with pytest.raises(nats.errors.TimeoutError):
                await bare_bus.nc.flush(timeout=0.05)
        waiting = asyncio.create_task(bare_bus.nc.flush(timeout=20))
        cancelled = asyncio.create_task(bare_bus.nc.flush(timeout=20))
        await asyncio.sleep(0)
        cancelled.cancel()
    await within(waiting)
    assert await answers(bare_bus)
    assert not back


async def test_a_cancellation_that_comes_with_an_answer_is_not_lost(bare_bus: Bus) -> None:
    client = bare_bus.nc
    flushing = asyncio.create_task(client.flush())
    await until(lambda: bool(client._pongs))
    client._pongs[-1].set_result(True)
    flushing.cancel()
    requesting = asyncio.create_task(client.request("$JS.API.INFO", timeout=20))
    await until(lambda: bool(client._answers))
    next(iter(client._answers.values())).set_result(Msg(client))
    requesting.cancel()
    await within(asyncio.wait([flushing, requesting]))
    assert flushing.cancelled()
    assert requesting.cancelled()
    assert await answers(bare_bus)


async def test_a_cancellation_that_comes_with_the_connection_is_not_lost(
    nats_server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`wait_for` of Python 3.11 drops a cancellation that comes together with a line."""
    read_line = TcpTransport.readline

    async def read_line_and_cancel(transport: TcpTransport) -> bytes:
        line = await read_line(transport)
        connecting.cancel()
        return line

    monkeypatch.setattr(TcpTransport, "readline", read_line_and_cancel)
    connecting = asyncio.create_task(Bus.connect(nats_server.url, name="test"))
    await within(asyncio.wait([connecting]))
    assert connecting.cancelled()


async def test_a_request_outlives_a_pause_of_the_server(nats_server: TestServer, bus: Bus) -> None:
    with paused(nats_server):
        asking = asyncio.create_task(bus.api("INFO", timeout=20))
        publishing = asyncio.create_task(
            bus.publish(Outgoing("admit.workload.submitted.a.b", b"{}"))
        )
        with pytest.raises(nats.errors.TimeoutError):
            await bus.nc.flush(timeout=0.05)
    assert await within(asking)
    assert await within(publishing) == 1


@pytest.mark.parametrize("name", ["_reading_task", "_flusher_task", "_ping_interval_task"])
async def test_the_client_reconnects_when_one_of_its_tasks_ends(bare_bus: Bus, name: str) -> None:
    back = reconnections(bare_bus)
    getattr(bare_bus.nc, name).cancel()
    await until(lambda: bool(back))
    assert await answers(bare_bus)


async def test_the_client_reconnects_after_an_error_of_the_server(bare_bus: Bus) -> None:
    back = reconnections(bare_bus)
    await bare_bus.nc.send(b"NONSENSE\r\n")
    await until(lambda: bool(back))
    assert await answers(bare_bus)


async def test_an_unexpected_error_does_not_end_the_reconnecting(
    bare_bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    back = reconnections(bare_bus)
    connect = type(bare_bus.nc)._connect_to_server
    attempts = 0

    async def failing_once(*arguments: object) -> None:
        nonlocal attempts
        attempts += 1
        await connect(*arguments)  # type: ignore[arg-type]
        if attempts == 1:
            bare_bus.nc._abandon_transport()

    monkeypatch.setattr(type(bare_bus.nc), "_connect_to_server", failing_once)
    await bare_bus.nc.force_reconnect()
    await until(lambda: bool(back))
    assert attempts > 1
    assert await answers(bare_bus)


async def test_a_wait_for_an_answer_ends_with_its_connection(
    nats_server: TestServer, bare_bus: Bus
) -> None:
    await bare_bus.nc.subscribe("silent")
    asking = asyncio.create_task(bare_bus.request("silent", b"", timeout=600))
    await bare_bus.nc.flush()
    with paused(nats_server):
        flushing = asyncio.create_task(bare_bus.nc.flush(timeout=600))
        await asyncio.sleep(0)
        await bare_bus.nc.force_reconnect()
        with pytest.raises(BusUnavailable):
            await within(asking)
        with pytest.raises(nats.errors.Error):
            await within(flushing)


async def test_attempts_at_a_paused_server_leave_no_sockets(
    nats_server: TestServer, bare_bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[Exception] = []

    async def note(error: Exception) -> None:
        failures.append(error)

    monkeypatch.setattr(bare_bus.nc, "_error_cb", note)
    monkeypatch.setitem(bare_bus.nc.options, "connect_timeout", 0.02)
    monkeypatch.setitem(bare_bus.nc.options, "reconnect_time_wait", 0.02)
    back = reconnections(bare_bus)
    with paused(nats_server):
        await bare_bus.nc.force_reconnect()
        await until(lambda: len(failures) >= 8)
        port = int(nats_server.url.rpartition(":")[2])
        ours = [
            connection
            for connection in psutil.Process().net_connections("tcp")
            if connection.raddr and connection.raddr.port == port
        ]
        assert len(ours) <= 2
    bare_bus.nc.options["connect_timeout"] = 2
    await until(lambda: bool(back))


async def test_closing_does_not_wait_for_a_server_that_does_not_read(
    nats_server: TestServer,
) -> None:
    bus = await Bus.connect(nats_server.url, name="closing")
    with paused(nats_server):
        for _ in range(40):
            await within(bus.publish_unacknowledged(("anywhere", b"x" * 1_000_000)))
        await within(bus.close())
    assert bus.nc.is_closed


async def test_requests_to_jetstream_outlast_a_new_configuration_of_the_server(
    tmp_path: Path,
) -> None:
    server = ConfiguredServer(tmp_path, ACCOUNTS)
    await server.start()
    bus = await within(Bus.connect(server.url("main:p"), name="reload"))
    try:
        await bus.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "allow_direct": True})
        await bus.publish(Outgoing("s", b"x"))
        users = ACCOUNTS.splitlines()[2].strip()
        for number in range(15):
            more = f"{users}, {{ user: u{number}, password: p }}"
            server.reload(users, more)
            users = more
            for _ in range(10):
                asking = [bus.api("STREAM.INFO.S") for _ in range(4)]
                reading = [last_by_direct_get(bus, "s", stream="S") for _ in range(4)]
                await within(asyncio.gather(*asking, *reading))
    finally:
        await bus.close()
        server.stop()
