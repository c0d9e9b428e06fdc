"""The check in bash, as it stands in the samples, beside a real system."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from sample_programs import SAMPLES, Admit, program

from admittance.runtime.bus.bus import Bus
from admittance.runtime.nats_server.embedded_server import EmbeddedServer
from support.processes.forked_system import embedded
from support.servers import LIMIT, within

pytestmark = [
    pytest.mark.bus,
    pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash"),
]

SCRIPT = SAMPLES / "shell" / "freeze.sh"


async def test_a_job_is_delayed_while_the_file_exists_and_then_runs(tmp_path: Path) -> None:
    freeze = tmp_path / "freeze"
    freeze.touch()
    settings = {"FREEZE_FILE": str(freeze), "DELAY_SECONDS": "1"}
    async with embedded("--insecure") as system:
        admit = Admit(system)
        await admit("apply", "-f", SAMPLES / "shell" / "manifests.yaml")
        async with program(
            tmp_path / "log", "bash", SCRIPT, ADMIT_NATS_URL=system.url, **settings
        ) as check:
            await check.wait_until_printed("listens at")
            await admit("submit", "-q", "freezable", "--name", "train.7", "--", "true")
            await check.wait_until_printed("default/train.7 cycle 1 retry 1: Retry")
            row = await admit.row("train.7")
            assert row["retryCount"] >= 1
            assert (await admit.workload("train.7"))["status"].get("admittedRevision", 0) == 0
            freeze.unlink()
            await admit.wait("train.7", "Finished")
            assert "Ready (not frozen)" in check.printed
            assert "refused" not in check.printed


async def test_requests_sent_while_the_sample_was_down_are_redelivered(tmp_path: Path) -> None:
    manifests = (SAMPLES / "shell" / "manifests.yaml").read_text()
    assert "checkTimeoutSeconds: 60" in manifests
    manifests = manifests.replace("checkTimeoutSeconds: 60", "checkTimeoutSeconds: 3")
    async with embedded("--insecure") as system:
        admit = Admit(system)
        await admit("apply", "-f", "-", text=manifests)
        await admit("submit", "-q", "freezable", "--name", "early", "--", "true")
        assert (await admit.row("early"))["state"] == "Pending"
        async with program(tmp_path / "log", "bash", SCRIPT, ADMIT_NATS_URL=system.url) as check:
            await admit.wait("early", "Finished")
            # It sends no verdict for a cycle without a received request.
            assert "default/early cycle 0" not in check.printed
            assert "default/early cycle" in check.printed


async def test_the_sample_sends_heartbeats_and_reconnects_to_the_server(tmp_path: Path) -> None:
    server = EmbeddedServer(tmp_path / "data")
    url = await server.start()
    async with program(
        tmp_path / "log", "bash", SCRIPT, ADMIT_NATS_URL=url, BEAT_SECONDS="1"
    ) as check:
        await check.wait_until_printed("listens at")
        await _beats(url)
        port = int(url.rpartition(":")[2])
        await server.stop()
        await check.wait_until_printed("trying again")
        server = EmbeddedServer(tmp_path / "data", port=port)
        await server.start()
        await _beats(url)
    await server.stop()


async def _beats(url: str) -> None:
    bus = await Bus.connect(url, name="test")
    received = asyncio.Event()

    async def beat(_: object) -> None:
        received.set()

    await bus.nc.subscribe("admit.alive.check.example_com=2Ffreeze", cb=beat)
    await within(received.wait())
    await bus.close()


def request_of(name: str, *, padding: str = "") -> bytes:
    """The request as the workload-controller writes it: the workload comes last, and may contain
    any text."""
    return (
        f'{{"namespace":"default","name":"{name}","uid":"u-1","controller":"example.com/freeze",'
        f'"check":"freeze","cycle":7,"retryCount":2,"parameters":{{"cycle":99,"check":"other"}},'
        f'"workload":{{"name":"impostor","cycle":98,"text":"{padding}"}}}}'
    ).encode()


@pytest.mark.parametrize(
    ("name", "token", "padding"),
    [
        pytest.param("a", "a", "", id="a plain name"),
        pytest.param("train.7", "train_7", "", id="a name with a dot"),
        pytest.param("a", "a", "ä" * 70_000, id="many bytes of more than one each"),
        pytest.param("a", "a", r"\"cycle\":5 }] MSG x 1 3\r\n", id="text that looks like more"),
    ],
)
async def test_a_request_gets_the_exact_answer_of_the_script(
    tmp_path: Path, name: str, token: str, padding: str
) -> None:
    server = EmbeddedServer(tmp_path / "data")
    url = await server.start()
    bus = await Bus.connect(url, name="test")
    answers = await bus.nc.subscribe("admit.check.reported.>")
    async with program(tmp_path / "log", "bash", SCRIPT, ADMIT_NATS_URL=url) as check:
        await check.wait_until_printed("listens at")
        for _ in range(2):  # the second shows that nothing of the first was left unread
            await bus.nc.publish(
                f"admit.check.requested.example_com=2Ffreeze.default.{token}",
                request_of(name, padding=padding),
                headers={"Nats-Msg-Id": "1"},
            )
            answer = await answers.next_msg(timeout=LIMIT)
            assert answer.subject == f"admit.check.reported.example_com=2Ffreeze.default.{token}"
            assert answer.data.decode() == (
                f'{{"namespace":"default","name":"{name}","uid":"u-1","check":"freeze","cycle":7,'
                '"state":"Ready","message":"not frozen"}'
            )
    await bus.close()
    await server.stop()


async def test_two_replicas_of_the_sample_share_the_work(tmp_path: Path) -> None:
    server = EmbeddedServer(tmp_path / "data")
    url = await server.start()
    bus = await Bus.connect(url, name="test")
    answers = await bus.nc.subscribe("admit.check.reported.>")
    async with (
        program(tmp_path / "one", "bash", SCRIPT, ADMIT_NATS_URL=url) as first,
        program(tmp_path / "two", "bash", SCRIPT, ADMIT_NATS_URL=url) as two,
    ):
        for check in (first, two):
            await check.wait_until_printed("listens at")
        for number in range(40):
            subject = f"admit.check.requested.example_com=2Ffreeze.default.w{number}"
            await bus.nc.publish(subject, request_of(f"w{number}"))
        subjects = {(await answers.next_msg(timeout=LIMIT)).subject for _ in range(40)}
        assert len(subjects) == 40
        for check in (first, two):
            await check.wait_until_printed(": Ready")
    await bus.close()
    await server.stop()
