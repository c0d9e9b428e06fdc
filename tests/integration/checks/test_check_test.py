"""The conformance kit against check controllers with and without faults."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from admittance.checks import AdmissionCheckController, Ready, Request, Retry, Verdict
from admittance.cli.commands.program import invoke
from admittance.conformance.check_kit import TITLES, CheckKitOptions, CheckKitReport, run_check_kit
from admittance.conformance.kit import FAILED, NOT_APPLICABLE, PASSED
from admittance.runtime.bus.bus import Bus
from integration.checks import strays
from integration.checks.strays import STRAY, Stray, at_work
from support.check_requests import running
from support.conformance_runs import assert_only_failure, details_by_case, run_kit, shorten_waits
from support.servers import TestServer

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]

CONTROLLERS = Path(__file__).with_name("controllers.py")


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_waits(monkeypatch)


async def tried(bus: Bus, url: str, **more: Any) -> CheckKitReport:
    fixed = {"controller": STRAY, "check": "c", "parameters": {"limit": 5}}
    wanted = CheckKitOptions(**{**fixed, "timeout": 3.0, "first_timeout": 3.0, **more})
    return await run_kit(run_check_kit, bus, url, wanted)


async def test_a_controller_with_the_sdk_passes(bus: Bus, nats_server: TestServer) -> None:
    controller = AdmissionCheckController(STRAY)

    @controller.check
    async def decide(request: Request) -> Verdict:
        await asyncio.sleep(0.5)  # long enough to be withdrawn in between
        return Ready(f"limit {request.parameters['limit']}")

    async with running(controller, nats_server.url):
        report = await tried(bus, nats_server.url)
    assert details_by_case(report, FAILED) == {}
    assert set(details_by_case(report, NOT_APPLICABLE)) == {"late-retry", "ends"}
    assert [outcome.case for outcome in report.outcomes] == list(TITLES)
    assert report.usual == "Ready"
    assert report.passed


@pytest.mark.scenario("L19")
async def test_the_late_retry_of_the_sdk_is_reported(bus: Bus, nats_server: TestServer) -> None:
    controller = AdmissionCheckController(STRAY)

    @controller.check
    async def decide(request: Request) -> Verdict:
        await asyncio.sleep(0.5)
        return Retry("spent", after=60)

    async with running(controller, nats_server.url):
        report = await tried(bus, nats_server.url)
    assert details_by_case(report, FAILED) == {}
    assert "late-retry" in details_by_case(report, PASSED)
    assert report.usual == "Retry"


async def test_a_controller_without_sdk_and_durable_can_pass(
    bus: Bus, nats_server: TestServer
) -> None:
    async with at_work(strays.PlainSubscription, nats_server.url):
        report = await tried(bus, nats_server.url)
    assert details_by_case(report, FAILED) == {}
    assert "plain subscription" in details_by_case(report, NOT_APPLICABLE)["acknowledges"]


FAULTS: list[tuple[Any, str, str]] = [
    (strays.NeverAnswers, "answers", "no message within"),
    (strays.answering(cycle=1), "names", "sent cycle 1; the request has 7"),
    (strays.answering(state="Approved"), "state", "'Approved'"),
    (strays.SendsNoJson, "json", "not JSON"),
    (strays.JudgesAfterWithdrawal, "withdrawn", "after the request was withdrawn"),
    (strays.AnswersWithdrawals, "withdrawn", "sent Ready"),
    (strays.NeverAcknowledges, "acknowledges", "not acknowledged"),
    (strays.LeavesNamesUnescaped, "subject", "answers_1"),
    (strays.answering(state="Retry", requeueAfterSeconds=-5), "delay", "-5 s, which is negative"),
    (strays.answering(state="Retry", requeueAfterSeconds=10**10), "delay", "seven days"),
    (strays.ChangesItsVerdict, "twice", "Ready, then Retry"),
    (strays.DropsLateRetries, "late-retry", "sent no Retry"),
    (strays.EndsAtUnknownFields, "unknown-parameters", "did not answer any more"),
    (strays.TenASecond, "flood", "of 200"),
    (strays.RepeatsVerdicts, "repeats", " times for one cycle"),
    (
        strays.answering(podSetUpdates=[{"name": "workers", "labels": {"a": "b"}}]),
        "updates",
        "'workers'",
    ),
    (strays.SendsWrongHeartbeats, "heartbeat", "I am well"),
]
"""A program with the fault, the rule that names it, and a part of the report."""


@pytest.mark.parametrize(
    ("make", "case", "sentence"),
    [pytest.param(*fault, id=f"{fault[1]}: {fault[2]}") for fault in FAULTS],
)
async def test_each_fault_is_reported(
    bus: Bus, nats_server: TestServer, make: Callable[[Bus], Stray], case: str, sentence: str
) -> None:
    async with at_work(make, nats_server.url):
        report = await tried(bus, nats_server.url, only=(case,), timeout=1.5, first_timeout=1.5)
    assert_only_failure(report, case, sentence)


def test_the_command_starts_server_and_controller_and_reports(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    parameters = tmp_path / "parameters.yaml"
    parameters.write_text("{apiVersion: a/v1, kind: Budget, metadata: {name: b}, spec: {limit: 5}}")
    call = ["check-test", STRAY, "--embedded", "-o", "json", "--timeout", "20"]
    call += ["--case", "withdrawn", "--case", "ends"]
    call += ["--parameters", str(parameters)]
    call += ["--", sys.executable, str(CONTROLLERS), "ready", STRAY, str(tmp_path)]
    assert invoke(call) == 0
    report = json.loads(capfd.readouterr().out)
    assert report["passed"]
    assert {outcome["case"]: outcome["outcome"] for outcome in report["outcomes"]}[
        "ends"
    ] == "passed"


def test_sigterm_ends_the_command_with_its_server() -> None:
    words = [str(Path(sys.executable).parent / "admit"), "check-test", STRAY, "--embedded"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as command:
        assert command.stderr is not None
        ready = command.stderr.readline()
        assert ready.startswith("ready nats://127.0.0.1:")
        command.terminate()
        assert command.wait(60) == 143
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(ready.strip().rpartition(":")[2])))


def test_the_command_fails_when_a_controller_fails(
    capfd: pytest.CaptureFixture[str],
) -> None:
    call = ["check-test", STRAY, "--embedded", "--timeout", "0.3", "--wait", "0.3"]
    assert invoke(call) == 1
    shown = capfd.readouterr()
    assert "no message within 0.3 s, and no pull from the durable of " in shown.out
    assert "start the controller now" in shown.err


def test_a_controller_that_does_not_start_is_reported_at_once(
    capfd: pytest.CaptureFixture[str],
) -> None:
    call = ["check-test", STRAY, "--embedded", "--timeout", "60", "--case", "ends"]
    assert invoke([*call, "--", sys.executable, "-c", "import nowhere"]) == 1
    shown = capfd.readouterr()
    assert "the program ended before it answered" in shown.out
    assert "it ended by itself, with status 1" in shown.out
    assert invoke([*call, "--", "/nowhere/controller"]) == 1
    assert "cannot start /nowhere/controller" in capfd.readouterr().err
