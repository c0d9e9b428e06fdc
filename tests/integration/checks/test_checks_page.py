"""The programs of docs/checks.md pass the conformance kit unchanged."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from nats.js.api import ConsumerConfig

from admittance.api.reading.manifest import read
from admittance.conformance.check_kit import CheckKitOptions, CheckKitReport, run_check_kit
from admittance.runtime.bus.bus import Bus
from admittance.runtime.nats_server.jwt_issuer import new_key
from support.conformance_runs import assert_passed, run_kit
from support.needs import needs_jq
from support.servers import TestServer, within

pytestmark = pytest.mark.bus

PAGE = Path(__file__).parents[3] / "docs" / "checks.md"
FREEZE = "example.com/freeze"
TOKEN = "example_com=2Ffreeze"
WITHOUT_HELPER = -1
"""The last program in Python on the page."""
CASES = ("answers", "new-cycle", "twice", "unknown-parameters", "unknown-fields", "acknowledges")


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the programs of the page answer in some milliseconds."""
    monkeypatch.setattr("admittance.conformance.kit.QUIET_SECONDS", 0.5)


def block(language: str, number: int = 0) -> str:
    """A code block of the page."""
    return str(re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)[number])


async def tried(bus: Bus, url: str, *command: str, only: tuple[str, ...] = CASES) -> CheckKitReport:
    wanted = CheckKitOptions(
        controller=FREEZE,
        check="freeze",
        parameters=None,
        timeout=20.0,
        first_timeout=20.0,
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


@needs_jq
@pytest.mark.parametrize("frozen", [False, True], ids=["Ready", "Retry"])
async def test_the_raw_protocol_is_a_check(
    bus: Bus, nats_server: TestServer, tmp_path: Path, frozen: bool
) -> None:
    flag = tmp_path / "freeze"
    if frozen:
        flag.touch()
    program = block("bash").replace("/tmp/freeze", str(flag))
    report = await tried(bus, nats_server.url, "bash", "-c", program)
    assert_says(report, "Retry" if frozen else "Ready")


@needs_jq
async def test_the_raw_protocol_sends_heartbeats(bus: Bus, nats_server: TestServer) -> None:
    heartbeats = await bus.nc.subscribe("admit.alive.check.example_com=2Ffreeze")
    await bus.nc.flush()
    async with running(nats_server.url, "bash", "-c", block("bash")):
        assert (await within(heartbeats.next_msg(timeout=20))).data == b"{}"


@asynccontextmanager
async def running(url: str, *command: str) -> AsyncIterator[None]:
    """Runs the command until the end of the block."""
    environment = {**os.environ, "ADMIT_NATS_URL": url}
    process = await asyncio.create_subprocess_exec(*command, env=environment)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def make_durable_with_request(bus: Bus) -> None:
    """Makes the log and the durable of the controller, with one request. No stream stores
    verdicts, so a test confirms or refuses them.
    """
    js = bus.nc.jetstream()
    await js.add_stream(name="ADMITTANCE", subjects=["admit.check.requested.>"])
    await js.add_consumer("ADMITTANCE", ConsumerConfig(durable_name=f"check-{TOKEN}", ack_wait=1))
    request = {"namespace": "a", "name": "b", "uid": "u", "check": "freeze", "cycle": 3}
    data = json.dumps({**request, "workload": {}}).encode()
    await js.publish(f"admit.check.requested.{TOKEN}.a.b", data)


@pytest.mark.parametrize("language", ["bash", "nats-py"])
async def test_a_request_is_acknowledged_once_its_verdict_is_stored(
    bare_bus: Bus, nats_server: TestServer, seed: Path, language: str
) -> None:
    if language == "bash" and shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    await make_durable_with_request(bare_bus)
    verdicts = await bare_bus.nc.subscribe(f"admit.check.reported.{TOKEN}.a.b")
    acknowledgements = await bare_bus.nc.subscribe("$JS.ACK.ADMITTANCE.>")
    await bare_bus.nc.flush()
    program = ("bash", "-c", block("bash"))
    if language == "nats-py":
        program = (sys.executable, "-c", block("python", WITHOUT_HELPER))
    refusal = b'{"error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"}}'
    async with running(nats_server.url, *program):
        first = await within(verdicts.next_msg(timeout=20))
        assert first.reply
        await first.respond(refusal)
        # Bash asks for the next request, nats-py ends with the refusal: then a new start asks.
        async with running(nats_server.url, *program):
            second = await within(verdicts.next_msg(timeout=20))
            assert json.loads(second.data) == json.loads(first.data)
            assert acknowledgements.pending_msgs == 0
            await second.respond(b'{"stream":"ADMITTANCE","seq":2}')
            acknowledgement = await within(acknowledgements.next_msg(timeout=20))
            assert acknowledgement.data in (b"+ACK", b"")


@pytest.fixture
def seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A credentials file, which the environment names. The server demands none."""
    path = tmp_path / "freeze.creds"
    path.write_text(f"# user: freeze\n{new_key().seed}\n")
    path.chmod(0o600)
    monkeypatch.setenv("ADMIT_NATS_CREDS", str(path))
    return path


@pytest.mark.parametrize("frozen", [False, True], ids=["Ready", "Retry"])
async def test_the_program_without_the_helper_is_a_check(
    bus: Bus, nats_server: TestServer, tmp_path: Path, seed: Path, frozen: bool
) -> None:
    flag = tmp_path / "freeze"
    if frozen:
        flag.touch()
    program = block("python", WITHOUT_HELPER).replace("/tmp/freeze", str(flag))
    report = await tried(bus, nats_server.url, sys.executable, "-c", program)
    assert_says(report, "Retry" if frozen else "Ready")


def test_the_program_without_the_helper_has_at_most_25_lines() -> None:
    lines = [line for line in block("python", WITHOUT_HELPER).splitlines() if line]
    assert "admittance" not in "".join(lines)
    assert len(lines) <= 25


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


@needs_jq
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
