"""Check controllers as processes: they share work, die, and end in order; nothing is lost."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from admittance.events.subjects import STREAM
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.durables import check_durables
from integration.checks.replicas import Replicas
from support.check_requests import NAME, CheckRequester, requested, withdrawn
from support.servers import TestServer, until, within

pytestmark = pytest.mark.bus


@pytest.fixture
async def replicas(nats_server: TestServer, tmp_path: Path) -> AsyncIterator[Replicas]:
    replicas = Replicas(nats_server.url, tmp_path)
    yield replicas
    await replicas.stop()


@pytest.fixture
async def requester(bus: Bus) -> CheckRequester:
    """A requester with a durable that redelivers unacknowledged requests after two seconds."""
    settings = {**check_durables.settings(NAME), "ack_wait": 2_000_000_000}
    await bus.api(
        f"CONSUMER.CREATE.{STREAM}.{settings['name']}",
        {"stream_name": STREAM, "config": settings},
    )
    return await CheckRequester(bus).start(durable=False)


async def test_replicas_share_the_work_and_each_request_gets_one_verdict(
    requester: CheckRequester, replicas: Replicas
) -> None:
    for _ in range(2):
        await replicas.start("ready")
    await replicas.until_serving(2)
    for start in range(0, 600, 50):
        await requester.ask(*[requested(f"w{i}") for i in range(start, start + 50)])
    await until(lambda: len(requester.verdicts) == 600)
    await requester.until_acknowledged()
    assert len({verdict.name for verdict in requester.verdicts}) == 600
    await until(lambda: all(replicas.log(i).count("check_judged") > 50 for i in range(2)))


async def test_requests_of_a_killed_replica_go_to_another_one(
    requester: CheckRequester, replicas: Replicas, tmp_path: Path
) -> None:
    first = await replicas.start("slow")
    await replicas.until_serving()
    await requester.ask(*[requested(f"w{i}") for i in range(5)])
    await until(lambda: len(replicas.begun()) == 5)
    first.kill()
    await first.wait()
    await replicas.start("slow")
    await until(lambda: len(replicas.begun()) == 10)
    assert not requester.verdicts
    (tmp_path / "go").touch()
    await until(lambda: len(requester.verdicts) == 5)
    await requester.until_acknowledged()
    assert {verdict.name for verdict in requester.verdicts} == {f"w{i}" for i in range(5)}


async def test_a_replica_finishes_its_judgements_before_it_ends(
    requester: CheckRequester, replicas: Replicas, tmp_path: Path
) -> None:
    process = await replicas.start("slow")
    await replicas.until_serving()
    await requester.ask(requested())
    await until(lambda: bool(replicas.begun()))
    process.send_signal(signal.SIGTERM)
    (tmp_path / "go").touch()
    assert await within(process.wait()) == 0
    await until(lambda: requester.states() == ["Ready"])
    assert await requester.unacknowledged() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
async def test_a_judgement_beyond_the_grace_period_goes_to_another_replica(
    requester: CheckRequester, replicas: Replicas, number: signal.Signals
) -> None:
    process = await replicas.start("stuck")
    await replicas.until_serving()
    await requester.ask(*[requested(f"w{i}") for i in range(40)])
    await until(lambda: len(replicas.begun()) == 16)
    handed_back: list[bytes] = []

    async def on_acknowledgement(message: Any) -> None:
        handed_back.append(message.data)

    await requester.bus.nc.subscribe(f"$JS.ACK.{STREAM}.>", cb=on_acknowledgement)
    await requester.bus.nc.flush()
    process.send_signal(number)
    assert await within(process.wait(), 9.0) == 0
    assert not requester.verdicts
    assert await requester.unacknowledged() == 40
    assert handed_back.count(b"-NAK") >= 32, "what it judged, and what it had taken beside"
    assert b"+ACK" not in handed_back
    await replicas.start("ready")
    await until(lambda: len(requester.verdicts) == 40)


async def test_a_withdrawal_reaches_the_replica_at_work(
    requester: CheckRequester, replicas: Replicas, tmp_path: Path
) -> None:
    for _ in range(3):
        await replicas.start("book")
    await replicas.until_serving(3)
    # Ten: the server deals them out in turn, so that the withdrawals go to other replicas.
    await requester.ask(*[requested(f"w{i}") for i in range(10)])
    await until(lambda: len(list(tmp_path.glob("booked-*"))) == 10)
    await requester.ask(*[withdrawn(f"w{i}") for i in range(10)])
    await until(lambda: not list(tmp_path.glob("booked-*")))
    await until(lambda: len(list(tmp_path.glob("cancelled-*"))) == 10)
    await requester.until_acknowledged()
    (tmp_path / "go").touch()
    await requester.ask(requested("last", 2))
    await until(lambda: "Ready" in requester.states("last"))
    assert {verdict.name for verdict in requester.verdicts if verdict.state == "Ready"} == {"last"}


async def test_verdicts_continue_after_a_kill_of_the_server(
    requester: CheckRequester, replicas: Replicas, nats_server: TestServer
) -> None:
    await replicas.start("ready")
    await replicas.until_serving()
    await requester.ask(*[requested(f"w{i}") for i in range(20)])
    await until(lambda: len(requester.verdicts) == 20)
    await nats_server.restart_after_kill()
    await requester.bus.connected()
    await requester.ask(*[requested(f"later{i}") for i in range(20)])
    await until(lambda: len({verdict.name for verdict in requester.verdicts}) == 40)
    await requester.until_acknowledged()


async def test_a_controller_waits_for_the_bus_and_ends_in_order_before_it_is_there(
    replicas: Replicas,
) -> None:
    replicas.url = "nats://127.0.0.1:9"
    process = await replicas.start("ready")
    await until(lambda: "not_connected_yet" in replicas.log(0))
    process.send_signal(signal.SIGTERM)
    assert await within(process.wait()) == 0


async def test_a_controller_ends_in_order_without_the_bus(
    requester: CheckRequester, replicas: Replicas, nats_server: TestServer
) -> None:
    process = await replicas.start("stuck")
    await replicas.until_serving()
    await requester.ask(requested())
    await until(lambda: bool(replicas.begun()))
    await nats_server.kill()
    await until(lambda: "bus_disconnected" in replicas.log(0))
    process.send_signal(signal.SIGTERM)
    assert await within(process.wait()) == 0
