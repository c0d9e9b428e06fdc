"""The programs of the page about providers, and the samples, pass the conformance kit."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from admittance.api.reading.manifest import read
from admittance.cli.commands.program import invoke
from admittance.conformance.provider_cases import TITLES, ProviderKitOptions, ProviderKitReport
from admittance.conformance.provider_kit import run_provider_kit
from admittance.conformance.provider_requester import RequestShape
from admittance.events.provisioning import ProvisioningStatus
from admittance.events.subjects import ASKED, PROVISIONING_FACTS
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.durables import provider_durables
from integration.checks.test_checks_page import put_tools_on_path
from support.conformance_runs import (
    assert_passed,
    run_kit,
    shorten_redelivery,
    shorten_waits,
    shrink_burst,
)
from support.needs import needs_jq
from support.servers import TestServer

pytestmark = pytest.mark.bus

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs" / "providers.md"
SAMPLES = ROOT / "deploy" / "samples" / "providers"
RACK = "rack.example.com"
CASES = [
    "answers",
    "twice",
    "attempt",
    "cancelled",
    "overtaken",
    "deadline",
    "killed",
    "frees",
    "remembers",
]


def block(language: str, number: int = 0) -> str:
    """A block of the page in that language."""
    return str(re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)[number])


@pytest.fixture
def rack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shorten_waits(monkeypatch, GRACE_SECONDS=0.5, QUIET_SECONDS=0.5)
    shorten_redelivery(monkeypatch)
    # The sample starts several processes for each message.
    shrink_burst(monkeypatch, 20)
    folder = tmp_path / "rack"
    folder.mkdir()
    for number in range(2):
        (folder / f"node-{number}").touch()
    (folder / ".gone").mkdir()  # Another one of these programs has kept this rack before.
    monkeypatch.setenv("RACK", str(folder))
    return folder


async def tried(
    bus: Bus, url: str, *command: str, only: Sequence[str] = CASES
) -> ProviderKitReport:
    wanted = ProviderKitOptions(
        provisioning_class=RACK,
        shape=RequestShape(),
        timeout=20.0,
        first_timeout=20.0,
        room=2,
        command=command,
        only=only,
    )
    return await run_kit(run_provider_kit, bus, url, wanted, 120.0)


def assert_free(rack: Path) -> None:
    assert [path.read_text() for path in rack.glob("node-*")] == ["", ""]


async def test_the_dozen_lines_are_a_provider(
    bus: Bus, nats_server: TestServer, rack: Path
) -> None:
    report = await tried(bus, nats_server.url, sys.executable, "-c", block("python"))
    assert_passed(report, CASES)
    assert_free(rack)


def test_the_dozen_lines_are_those_of_the_sample() -> None:
    assert (SAMPLES / "dozen-lines" / "rack.py").read_text().endswith(block("python"))


@needs_jq
def test_the_shell_sample_passes_the_conformance_kit(
    rack: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = str(SAMPLES / "shell" / "rack.sh")
    call = ["provider-test", RACK, "--embedded", "--timeout", "20", "--room", "2", "-o", "name"]
    status = invoke([*call, "--", "bash", script])
    shown = dict(line.split(" ", 1) for line in capfd.readouterr().out.splitlines())
    optional = {"message-id", "query", "wrong-parameters"}
    assert {case for case, outcome in shown.items() if outcome != "passed"} == optional
    assert shown.keys() == TITLES.keys()
    assert status == 0
    assert_free(rack)


@needs_jq
async def test_the_loop_around_the_nats_command_is_a_provider(
    bus: Bus,
    nats_server: TestServer,
    rack: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put_tools_on_path(tmp_path, monkeypatch)
    program = block("sh", 1).replace("/tmp/rack", str(rack))
    # A process for every message takes its time.
    only = ("answers", "overtaken", "frees", "acknowledges")
    report = await tried(bus, nats_server.url, "bash", "-c", program, only=only)
    assert_passed(report, only)


def test_the_manifests_of_page_and_samples_are_valid() -> None:
    documents = read(block("yaml"), "providers.md")
    kinds = [document.manifest.kind for document in documents]
    assert kinds == ["ProvisioningRequestConfig", "AdmissionCheck"]
    sample = read((SAMPLES / "manifests.yaml").read_text(), "manifests.yaml")
    assert [document.manifest for document in sample][1].metadata.name == "rack"


def test_the_page_has_all_statuses_and_the_time_of_redelivery() -> None:
    page = PAGE.read_text()
    for word, kind in PROVISIONING_FACTS.items():
        if word not in ASKED:
            assert issubclass(kind, ProvisioningStatus)
            assert f"| `{word}` |" in page
    seconds = provider_durables.settings(RACK)["ack_wait"] // 1_000_000_000
    sentence = f"after {seconds} s without an acknowledgement, a message is delivered again"
    assert sentence in " ".join(page.split())
