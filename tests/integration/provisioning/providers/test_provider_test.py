"""The conformance kit against correct and faulty providers."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from admittance.cli.commands.program import invoke
from admittance.conformance.kit import FAILED, NOT_APPLICABLE, PASSED
from admittance.conformance.provider_cases import TITLES, ProviderKitOptions, ProviderKitReport
from admittance.conformance.provider_kit import run_provider_kit
from admittance.conformance.provider_requester import RequestShape
from admittance.providers import Accepted, Cancellation, Failed, Provider, Provisioned, Request
from admittance.runtime.bus.bus import Bus
from integration.checks.strays import at_work
from integration.provisioning.providers import stray_providers as strays
from integration.provisioning.providers.stray_providers import STRAY_CLASS, StrayProvider
from support.cluster import Cluster
from support.conformance_runs import (
    assert_only_failure,
    details_by_case,
    run_kit,
    shorten_redelivery,
    shorten_waits,
    shrink_burst,
)
from support.requests import apply
from support.servers import TestServer, within

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]

RACK = Path(__file__).with_name("rack_provider.py")


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_waits(monkeypatch, WATCH_SECONDS=0.8)
    shorten_redelivery(monkeypatch)
    monkeypatch.setattr("admittance.conformance.provider_cases.CLEAR_SECONDS", 2.0)


async def tried(
    bus: Bus, url: str, shape: RequestShape | None = None, **more: Any
) -> ProviderKitReport:
    fixed = {"provisioning_class": STRAY_CLASS, "shape": shape or RequestShape()}
    wanted = ProviderKitOptions(**{**fixed, "timeout": 20.0, "first_timeout": 20.0, **more})
    return await run_kit(run_provider_kit, bus, url, wanted)


async def test_a_provider_with_the_helper_passes_the_conformance_kit(
    bus: Bus, nats_server: TestServer
) -> None:
    provider = Provider(STRAY_CLASS)
    booked: dict[str, str] = {}

    @provider.requested
    async def book(request: Request) -> Provisioned | Failed:
        await request.say(Accepted("soon"))
        await asyncio.sleep(0.1)  # long enough to be taken back in between
        if request.parameters.get("size") == "many":
            return Failed("no size", retryable=False)
        if len(booked) == 2 and request.id not in booked:
            return Failed("full", retry_after=30)
        booked.setdefault(request.id, str(len(booked)))
        return Provisioned("here", {"place": booked[request.id]})

    @provider.cancelled
    async def free(cancellation: Cancellation) -> None:
        booked.pop(cancellation.id, None)

    stop = asyncio.Event()
    serving = asyncio.create_task(provider.serve(nats_server.url, stop=stop))
    report = await tried(bus, nats_server.url, room=2, wrong={"size": "many"})
    stop.set()
    await within(serving)

    assert details_by_case(report, FAILED) == {}
    assert set(details_by_case(report, NOT_APPLICABLE)) == {
        "killed",
        "restart",
        "remembers",
        "ends",
    }
    assert [outcome.case for outcome in report.outcomes] == list(TITLES)
    assert report.usual == "provisioned"
    assert not booked


async def test_the_pool_provider_passes_the_conformance_kit(
    bus: Bus, nats_server: TestServer, tmp_path: Path
) -> None:
    cluster = Cluster(nats_server, tmp_path)
    for service in ("workload-controller", "provider-pool"):
        await cluster.start(service)
    machine = {"name": "m", "count": 2, "resources": {"cpu": 2}, "labels": {"zone": "a"}}
    spec = {"provisioningClassName": STRAY_CLASS, "machines": [machine]}
    pool = {"apiVersion": "admittance.dev/v1", "kind": "MachinePool", "spec": spec}
    try:
        await apply(bus, {**pool, "metadata": {"name": "rack"}})
        shape = RequestShape(pods=2, requests={"cpu": "1"}, node_selector={"zone": "a"})
        report = await tried(bus, nats_server.url, shape, room=2)
    finally:
        await cluster.stop()
    assert details_by_case(report, FAILED) == {}
    assert "frees" in details_by_case(report, PASSED)


@pytest.mark.parametrize(
    "make", [StrayProvider, strays.PlainSubscription], ids=["durable", "subscription"]
)
async def test_a_provider_without_the_helper_passes(
    bus: Bus, nats_server: TestServer, make: Callable[[Bus], StrayProvider]
) -> None:
    async with at_work(make, nats_server.url):
        report = await tried(bus, nats_server.url, room=2)
    assert details_by_case(report, FAILED) == {}
    if make is strays.PlainSubscription:
        assert "plain subscription" in details_by_case(report, NOT_APPLICABLE)["acknowledges"]


FAULTS: list[tuple[Any, str, str]] = [
    (strays.NeverAnswers, "answers", "no message within"),
    (strays.OnlyAccepts, "answers", "sent accepted"),
    (strays.SendsNoJson, "json", "not JSON"),
    (strays.LeavesIdOut, "json", "left out id"),
    (strays.saying(id="mine/w/1/1"), "names", "sent id 'mine/"),
    (strays.SendsUnknownWord, "subject", ".ready."),
    (strays.LeavesNamesUnescaped, "subject", "answers_1"),
    (strays.saying(details={"machine": 7}), "details", "at `$.details"),
    (
        strays.saying(details={f"detail-{number}": "x" for number in range(65)}),
        "details",
        "65 details",
    ),
    (strays.saying(podSetUpdates=[{"name": "workers"}]), "updates", "'workers'"),
    (strays.saying(retryAfter=5), "delay", "only failed can have one"),
    (strays.SendsLowerNumbers, "seq", "seq 1 after Accepted"),
    (strays.AcceptsAfterProviding, "order", "accepted after Provisioned"),
    (strays.OneMessageIdForAll, "message-id", "have the id mine"),
    (strays.RefusesItsOwnBooking, "twice", "provisioned, then failed"),
    (strays.BooksAgain, "twice", "booked twice"),
    (strays.BooksAgainSilently, "frees", "1 of 2 requests"),
    (strays.KnowsOnlyWorkloads, "attempt", "/2 within"),
    (strays.FailsUnknownCancellations, "unknown-id", "sent failed"),
    (strays.WorksOnAfterCancellation, "cancelled", "never freed"),
    (strays.ForgetsCancellations, "overtaken", "never freed"),
    (strays.FreesNothing, "frees", "no other request got its capacity"),
    (strays.RetriesWrongParameters, "unknown-parameters", "retryable: false"),
    (StrayProvider, "wrong-parameters", "sent provisioned"),
    (strays.EndsAtUnknownFields, "unknown-fields", "did not answer any more"),
    (strays.IgnoresDeadlines, "deadline", "an hour after"),
    (strays.EndsAtGarbage, "garbage", "did not answer any more"),
    (strays.LosesMoreThanTen, "burst", "of 20"),
    (strays.RepeatsStatuses, "repeats", "times for one request"),
    (strays.NeverAcknowledges, "acknowledges", "not acknowledged"),
    (strays.SendsWrongHeartbeats, "heartbeat", "I am well"),
    (strays.KnowsEveryRequest, "query", "known: true"),
]
"""A program with the fault, the rule that names it, and a part of the report."""


@pytest.mark.parametrize(
    ("make", "case", "sentence"),
    [pytest.param(*fault, id=f"{fault[1]}: {fault[2]}") for fault in FAULTS],
)
async def test_a_fault_of_a_provider_is_named(
    bus: Bus,
    nats_server: TestServer,
    make: Callable[[Bus], StrayProvider],
    case: str,
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shrink_burst(monkeypatch, 20)
    async with at_work(make, nats_server.url):
        report = await tried(
            bus,
            nats_server.url,
            only=(case,),
            timeout=1.5,
            first_timeout=1.5,
            room=2,
            wrong={"size": "many"},
        )
    assert_only_failure(report, case, sentence)


def a_rack(folder: Path, machines: int = 2) -> Path:
    rack = folder / "rack"
    rack.mkdir()
    for number in range(machines):
        (rack / f"node-{number}").touch()
    return rack


def test_the_command_starts_kills_and_restarts_processes_and_reports(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rack = a_rack(tmp_path)
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(
        "{apiVersion: kueue.x-k8s.io/v1beta2, kind: ProvisioningRequestConfig, metadata: {name: c},"
        f" spec: {{provisioningClassName: {STRAY_CLASS}, parameters: {{size: many}}}}}}"
    )
    call = ["provider-test", STRAY_CLASS, "--embedded", "-o", "json", "--timeout", "20"]
    call += ["--wrong", str(wrong), "--room", "2"]
    call += ["--", sys.executable, str(RACK), STRAY_CLASS, str(rack)]
    status = invoke(call)
    report = json.loads(capfd.readouterr().out)
    outcomes = {outcome["case"]: outcome for outcome in report["outcomes"]}
    assert [outcome for outcome in report["outcomes"] if outcome["outcome"] != "passed"] == []
    assert status == 0
    assert outcomes.keys() == TITLES.keys()
    # Nothing that it was asked for is still booked.
    assert [path.read_text() for path in rack.iterdir()] == ["", ""]


@pytest.mark.servers("real")
@pytest.mark.parametrize(
    ("how", "room", "sentence"),
    [
        pytest.param("greedy", 2, "booked one twice", id="booking again what it had booked"),
        pytest.param("forgetful", 2, "capacity for more than 2", id="bookings in memory only"),
        pytest.param("bare", 1, "capacity for more than 1", id="the same without the helper"),
    ],
)
async def test_a_provider_that_forgets_its_bookings_is_named(
    bus: Bus,
    nats_server: TestServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
    room: int,
    sentence: str,
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    command = [
        sys.executable,
        "-m",
        "integration.provisioning.providers.forgetful_rack",
        how,
        STRAY_CLASS,
    ]
    report = await tried(
        bus,
        nats_server.url,
        only=("remembers",),
        room=room,
        command=[*command, str(a_rack(tmp_path))],
    )
    assert_only_failure(report, "remembers", sentence)


def test_a_command_that_does_not_return_is_reported(
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("admittance.conformance.provider_request_cases.START_SECONDS", 0.5)
    monkeypatch.setattr("admittance.conformance.provider_request_cases.ACK_WAIT", 0.5)
    once = f"import os, sys; os.path.exists({str(tmp_path / 'once')!r}) and sys.exit(3)\n"
    once += f"open({str(tmp_path / 'once')!r}, 'w').close()\n"
    program = f"{once}import runpy; runpy.run_path({str(RACK)!r})"
    call = ["provider-test", STRAY_CLASS, "--embedded", "--timeout", "5", "--case", "killed"]
    call += ["--", sys.executable, "-c", program, STRAY_CLASS, str(a_rack(tmp_path))]
    assert invoke(call) == 1
    shown = capfd.readouterr()
    assert "a request from while it was down was not answered" in shown.out
    assert "it ended by itself, with status 3" in shown.out
