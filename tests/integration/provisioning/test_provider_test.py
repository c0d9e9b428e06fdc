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
from admittance.conformance.provider_cases import TITLES, ProviderKitReport
from admittance.conformance.provider_kit import ProviderKitOptions, run_provider_kit
from admittance.conformance.provider_requester import RequestShape
from admittance.providers import Accepted, Cancellation, Failed, Provider, Provisioned, Request
from admittance.runtime.bus.bus import Bus
from integration.checks.strays import at_work
from integration.provisioning import stray_providers as strays
from integration.provisioning.stray_providers import STRAY_CLASS, StrayProvider
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
    assert [one.case for one in report.outcomes] == list(TITLES)
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


@pytest.mark.parametrize("make", [StrayProvider, strays.Plain], ids=["durable", "subscription"])
async def test_a_provider_without_the_helper_passes(
    bus: Bus, nats_server: TestServer, make: Callable[[Bus], StrayProvider]
) -> None:
    async with at_work(make, nats_server.url):
        report = await tried(bus, nats_server.url, room=2)
    assert details_by_case(report, FAILED) == {}
    if make is strays.Plain:
        assert "plain subscription" in details_by_case(report, NOT_APPLICABLE)["acknowledges"]


@pytest.mark.parametrize(
    ("make", "case", "sentence"),
    [
        pytest.param(strays.Mute, "answers", "no message within", id="one that never answers"),
        pytest.param(
            strays.Promising, "answers", "sent accepted", id="one that accepts and never provides"
        ),
        pytest.param(strays.Mumbling, "json", "not JSON", id="JSON that is none"),
        pytest.param(strays.Nameless, "json", "left out id", id="an answer without the id"),
        pytest.param(strays.Mistaken, "names", "sent id 'mine/", id="an id of its own"),
        pytest.param(strays.Inventing, "subject", ".ready.", id="a word that does not exist"),
        pytest.param(
            strays.Unescaping, "subject", "answers_1", id="names that are not escaped in subjects"
        ),
        pytest.param(strays.Numbing, "details", "at `$.details", id="details that are no text"),
        pytest.param(strays.Verbose, "details", "65 details", id="too many details"),
        pytest.param(
            strays.Adding, "updates", "'workers'", id="adding to a pod set that is not there"
        ),
        pytest.param(
            strays.Hurried, "delay", "only failed can have one", id="a delay of what has not failed"
        ),
        pytest.param(strays.Counting, "seq", "seq 1 after Accepted", id="numbers that fall"),
        pytest.param(
            strays.Backward, "order", "accepted after Provisioned", id="accepting after providing"
        ),
        pytest.param(strays.Sharing, "message-id", "have the id mine", id="one id for all it says"),
        pytest.param(
            strays.Doubting, "twice", "provisioned, then failed", id="two minds about one request"
        ),
        pytest.param(strays.Greedy, "twice", "booked twice", id="other details the second time"),
        pytest.param(
            strays.Hogging, "frees", "1 of 2 requests", id="booking again without telling it"
        ),
        pytest.param(
            strays.Forgetting, "attempt", "/2 within", id="requests known by their workload"
        ),
        pytest.param(
            strays.Protesting, "unknown-id", "sent failed", id="complaints about unknown ids"
        ),
        pytest.param(
            strays.Deafened, "cancelled", "never freed", id="providing what was taken back"
        ),
        pytest.param(
            strays.Trusting, "overtaken", "never freed", id="not minding what was taken back"
        ),
        pytest.param(
            strays.Keeping, "frees", "no other request got its capacity", id="freeing nothing"
        ),
        pytest.param(
            strays.Refusing,
            "unknown-parameters",
            "retryable: false",
            id="failing for now what never changes",
        ),
        pytest.param(strays.Careless, "wrong-parameters", "sent provisioned", id="taking anything"),
        pytest.param(
            strays.Strict, "unknown-fields", "did not answer any more", id="dying of unknown fields"
        ),
        pytest.param(
            strays.Timeless, "deadline", "an hour after", id="providing after the deadline"
        ),
        pytest.param(strays.Fragile, "garbage", "did not answer any more", id="dying of garbage"),
        pytest.param(strays.Overwhelmed, "burst", "of 20", id="lost in a burst"),
        pytest.param(
            strays.Chattering, "repeats", "times for one request", id="saying it again and again"
        ),
        pytest.param(
            strays.Hoarding, "acknowledges", "not acknowledged", id="one that never acknowledges"
        ),
        pytest.param(strays.Gasping, "heartbeat", "I am well", id="unreadable heartbeats"),
        pytest.param(strays.Lying, "query", "known: true", id="knowing an unknown request"),
    ],
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
    outcomes = {one["case"]: one for one in report["outcomes"]}
    assert [one for one in report["outcomes"] if one["outcome"] != "passed"] == []
    assert status == 0
    assert outcomes.keys() == TITLES.keys()
    # Nothing that it was asked for is still booked.
    assert [one.read_text() for one in rack.iterdir()] == ["", ""]


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
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    command = [sys.executable, "-m", "integration.provisioning.forgetful_rack", how, STRAY_CLASS]
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
