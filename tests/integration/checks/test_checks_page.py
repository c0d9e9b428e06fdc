"""The programs of docs/checks.md pass the conformance kit unchanged."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from admittance.api.reading.manifest import read
from admittance.conformance.check_kit import CheckKitOptions, CheckKitReport, run_check_kit
from admittance.runtime.bus.bus import Bus
from support.conformance_runs import assert_passed, run_kit
from support.servers import TestServer, within

pytestmark = pytest.mark.bus

PAGE = Path(__file__).parents[3] / "docs" / "checks.md"
FREEZE = "example.com/freeze"
CASES = ("answers", "new-cycle", "twice", "unknown-parameters", "unknown-fields", "acknowledges")


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs of the page answer in some milliseconds."""
    monkeypatch.setattr("admittance.conformance.kit.QUIET_SECONDS", 0.5)


def block(language: str, number: int = 0) -> str:
    """A code block of the page."""
    return str(re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)[number])


async def tried(bus: Bus, url: str, *command: str, only: tuple[str, ...] = CASES) -> CheckKitReport:
    wanted = CheckKitOptions(
        controller=FREEZE,
        check="freeze",
        parameters=None,
        timeout=10.0,
        first_timeout=10.0,
        command=command,
        only=only,
    )
    return await run_kit(run_check_kit, bus, url, wanted)


def assert_says(report: CheckKitReport, usual: str, only: tuple[str, ...] = CASES) -> None:
    assert_passed(report, only)
    assert report.usual == usual


@pytest.mark.parametrize("frozen", [False, True], ids=["Ready", "Retry"])
async def test_the_ten_lines_of_python_are_a_check(
    bus: Bus, nats_server: TestServer, tmp_path: Path, frozen: bool
) -> None:
    flag = tmp_path / "freeze"
    if frozen:
        flag.touch()
    text = block("python")
    assert "/tmp/freeze" in text
    program = text.replace("/tmp/freeze", str(flag))
    report = await tried(bus, nats_server.url, sys.executable, "-c", program)
    assert_says(report, "Retry" if frozen else "Ready")


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
@pytest.mark.parametrize("frozen", [False, True], ids=["Ready", "Retry"])
async def test_the_raw_protocol_is_a_check(
    bus: Bus, nats_server: TestServer, tmp_path: Path, frozen: bool
) -> None:
    flag = tmp_path / "freeze"
    if frozen:
        flag.touch()
    port = nats_server.url.rpartition(":")[2]
    program = block("bash").replace("/tmp/freeze", str(flag))
    program = program.replace("127.0.0.1/4222", f"127.0.0.1/{port}")
    report = await tried(bus, nats_server.url, "bash", "-c", program)
    assert_says(report, "Retry" if frozen else "Ready")


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
async def test_the_raw_protocol_sends_heartbeats(bus: Bus, nats_server: TestServer) -> None:
    heard = await bus.nc.subscribe("admit.alive.check.example_com=2Ffreeze")
    await bus.nc.flush()
    port = nats_server.url.rpartition(":")[2]
    program = block("bash").replace("127.0.0.1/4222", f"127.0.0.1/{port}")
    process = await asyncio.create_subprocess_exec("bash", "-c", program)
    try:
        assert (await within(heard.next_msg(timeout=20))).data == b"{}"
    finally:
        process.kill()
        await process.wait()


STAND_IN = """#!{python} -IS
import os, socket, sys

what, *words = sys.argv[1:]
host, port = os.environ["NATS_URL"].removeprefix("nats://").split(":")
link = socket.create_connection((host, int(port)), timeout=20)
lines = link.makefile("rb")
lines.readline()
inbox = f"_INBOX.{{os.getpid()}}"

def publish(subject, data, reply=""):
    link.sendall(f"PUB {{subject}} {{reply}} {{len(data)}}\\r\\n".encode() + data + b"\\r\\n")

def next_line():
    return lines.readline().split() or sys.exit("the server has ended")

def answer():
    "The reply subject and the data of the next message; a status of the server has none."
    while True:
        line = next_line()
        if line[0] == b"PING":
            link.sendall(b"PONG\\r\\n")
        elif line[0] in (b"MSG", b"HMSG"):
            headers = int(line[-2]) if line[0] == b"HMSG" else 0
            data = lines.read(int(line[-1]) + 2)[headers:-2]
            return line[3].decode() if len(line) == (6 if headers else 5) else "", data

link.sendall(b'CONNECT {{"verbose":false,"headers":true}}\\r\\n')
link.sendall(f"SUB {{inbox}} 1\\r\\n".encode())
if (what, words[0]) == ("consumer", "next"):
    _, stream, durable, raw, timeout, seconds = words
    assert (raw, timeout, seconds) == ("--raw", "--timeout", "30s"), words
    next = f"$JS.API.CONSUMER.MSG.NEXT.{{stream}}.{{durable}}"
    publish(next, b'{{"batch":1,"expires":2000000000}}', inbox)
    reply, data = answer()
    print(data.decode())
    if not reply:
        sys.exit("no message received")
    publish(reply, b"+ACK")
    link.sendall(b"PING\\r\\n")
    while next_line() != [b"PONG"]:
        pass
else:
    assert (what, *words[:2]) == ("pub", "--jetstream", "--no-templates"), words
    publish(words[2], words[3].encode(), inbox)
    answer()
"""
"""What the page uses of the nats command, for where that is not installed."""


def put_tools_on_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts the commands of the pages on the path: ``admit``, and ``nats`` or a replacement."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    if shutil.which("nats") is None:
        tool = folder / "nats"
        tool.write_text(STAND_IN.format(python=sys.executable))
        tool.chmod(0o755)
        path = f"{folder}:{path}"
    monkeypatch.setenv("PATH", path)


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
async def test_the_loop_around_the_nats_command_is_a_check(
    bus: Bus, nats_server: TestServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_tools_on_path(tmp_path, monkeypatch)
    flag = tmp_path / "freeze"
    program = block("sh", 1).replace("/tmp/freeze", str(flag))
    # A process for every message takes its time.
    only = ("answers", "acknowledges")
    report = await tried(bus, nats_server.url, "bash", "-c", program, only=only)
    assert_says(report, "Ready", only)


def test_the_manifests_of_the_page_are_valid() -> None:
    documents = read(block("yaml"), "checks.md")
    kinds = [document.manifest.kind for document in documents]
    assert kinds == ["AdmissionCheck", "ResourceFlavor", "ClusterQueue", "LocalQueue"]
