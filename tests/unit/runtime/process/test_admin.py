"""The admin port of a process: alive, ready, metrics."""

from __future__ import annotations

import asyncio
import selectors
import socket
import threading
from http.client import HTTPConnection

import pytest

from admittance.runtime.errors import SetupError
from admittance.runtime.process import admin
from admittance.runtime.process.admin import AdminPort, address_of, admin_port, show_metrics
from admittance.runtime.process.settings import Settings
from admittance.runtime.telemetry.metrics import Counter, Gauges, gauge


def settings(where: str | None = "127.0.0.1:0", prefix: str = "admittance_") -> Settings:
    return Settings(service="one", instance="i", admin=where, metrics_prefix=prefix)


def ask(port: AdminPort, path: str, method: str = "GET") -> tuple[int, str]:
    connection = HTTPConnection(*port.address, timeout=30)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


async def asked(port: AdminPort | None, path: str, method: str = "GET") -> tuple[int, str]:
    assert port is not None
    return await asyncio.to_thread(ask, port, path, method)


async def test_the_process_is_alive_while_its_event_loop_runs() -> None:
    async with admin_port(settings()) as port:
        assert await asked(port, "/livez") == (200, "ok\n")
        assert await asked(port, "/livez", "HEAD") == (200, "")
        assert (await asked(port, "/nothing"))[0] == 404
        assert (await asked(port, "/metrics", "POST"))[0] == 501


async def test_the_port_sleeps_until_a_client_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float | None] = []

    class Selector(selectors.DefaultSelector):
        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            waits.append(timeout)
            return super().select(timeout)

    monkeypatch.setattr(selectors, "DefaultSelector", Selector)
    async with admin_port(settings()) as port:
        assert (await asked(port, "/livez"))[0] == 200
    assert waits == [None, None]


async def test_a_process_with_a_blocked_event_loop_is_not_alive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admin, "ANSWER_SECONDS", 0.05)
    answers: list[tuple[int, str]] = []
    async with admin_port(settings()) as port:
        assert port is not None
        asking = threading.Thread(target=lambda: answers.append(ask(port, "/livez")))
        asking.start()
        asking.join()  # blocks the event loop until the answer is there
    [(status, text)] = answers
    assert status == 503
    assert text == "the event loop of the process has not answered for 0.05 s\n"


async def test_readiness_names_each_service_that_is_not_ready() -> None:
    async def ready() -> str:
        return ""

    async def away() -> str:
        return "no connection to the bus"

    async with admin_port(settings()) as port:
        assert await asked(port, "/readyz") == (503, "no service has started yet\n")
        assert port is not None
        port.expect("one")
        port.expect("two")
        both = "one is not ready: starting\ntwo is not ready: starting\n"
        assert await asked(port, "/readyz") == (503, both)
        with port.ready_if("one", ready):
            assert await asked(port, "/readyz") == (503, "two is not ready: starting\n")
            with port.ready_if("two", ready):
                assert await asked(port, "/readyz") == (200, "ok\n")
            with port.ready_if("two", away):
                why = "two is not ready: no connection to the bus\n"
                assert await asked(port, "/readyz") == (503, why)


async def test_services_of_one_process_share_one_port() -> None:
    first, other = Counter("ones", "Ones", ()), Counter("others", "Others", ())
    first.add(())
    other.add(())
    async with admin_port(settings()) as port, show_metrics(settings(), first):
        async with show_metrics(settings(), other):
            both = (await asked(port, "/metrics"))[1].splitlines()
        alone = (await asked(port, "/metrics"))[1].splitlines()
    assert {"admittance_ones_total 1", "admittance_others_total 1"} <= set(both)
    assert "admittance_ones_total 1" in alone
    assert "admittance_others_total 1" not in alone
    assert any(line.startswith("admittance_build_info{") for line in alone)


async def test_metrics_are_shown_under_another_prefix() -> None:
    async with admin_port(settings(prefix="kueue_")) as port:
        assert "\nkueue_build_info{" in (await asked(port, "/metrics"))[1]


async def test_an_error_of_one_gauge_is_an_answer() -> None:
    def broken() -> dict[str, dict[tuple[str, ...], float]]:
        raise ValueError("no number")

    async with admin_port(settings()) as port:
        async with show_metrics(settings(), Gauges((gauge("open", "Open"),), broken)):
            status, text = await asked(port, "/metrics")
        assert (status, text) == (500, "cannot read the metrics: ValueError('no number')\n")
        assert (await asked(port, "/metrics"))[0] == 200


async def test_clients_that_send_nothing_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "CLIENTS_MAX", 2)
    async with admin_port(settings()) as port:
        assert port is not None
        silent = [socket.create_connection(port.address, timeout=30) for _ in range(2)]
        third = await asyncio.to_thread(socket.create_connection, port.address, 30)
        assert await asyncio.to_thread(third.recv, 1) == b""
        for client in silent:
            client.shutdown(socket.SHUT_WR)
            # The end of an answer makes room for another client.
            assert await asyncio.to_thread(port._server._room.acquire, timeout=30)
        for client in (*silent, third):
            client.close()


async def test_a_port_in_use_is_reported() -> None:
    async with admin_port(settings()) as port:
        assert port is not None
        with pytest.raises(SetupError, match=r"cannot serve the admin port at 127.*in use"):
            async with admin_port(settings(f"127.0.0.1:{port.address[1]}")):
                pass


async def test_without_an_address_nothing_is_served() -> None:
    async with admin_port(settings(None)) as port:
        assert port is None


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("127.0.0.1:9464", ("127.0.0.1", 9464)),
        (":9464", ("0.0.0.0", 9464)),
        ("[::1]:9464", ("::1", 9464)),
    ],
)
def test_an_address_has_a_host_and_a_port(text: str, want: tuple[str, int]) -> None:
    assert address_of(text) == want


@pytest.mark.parametrize("text", ["9464", "host", "host:", "host:x", "host:70000"])
def test_a_wrong_address_is_reported(text: str) -> None:
    with pytest.raises(SetupError, match="HOST:PORT"):
        address_of(text)
