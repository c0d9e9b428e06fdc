"""The admin port of programs on the SDK: alive, ready or why not, and what they counted."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import urllib.error
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tools.pages.metrics import by_service

from admittance.checks import AdmissionCheckController, Pending, Ready, Request, Verdict
from admittance.events.codec import encode
from admittance.events.provisioning import ProvisioningRequested
from admittance.events.subjects import subject_of
from admittance.providers import Accepted, Provider, Provisioned
from admittance.providers import Request as CapacityRequest
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.bus.durables import provider_durables
from support.check_requests import NAME, CheckRequester, requested, running
from support.requests import becomes, eventually
from support.servers import TestServer, within

pytestmark = pytest.mark.bus

ONE_PROGRAM = """
from admittance.checks import AdmissionCheckController, Ready
controller = AdmissionCheckController("example.com/budget")
controller.check(lambda request: Ready())
controller.run()
"""


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of the admin port: ADMIT_ADMIN."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    monkeypatch.setenv("ADMIT_ADMIN", address)
    return address


async def ask(address: str, path: str) -> tuple[int, str]:
    def asked() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://{address}{path}", timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    return await asyncio.to_thread(asked)


async def until_answer(address: str, path: str, status: int, text: str) -> None:
    await becomes(lambda: ask(address, path), (status, text))


def series(text: str) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_a_check_shows_its_readiness_and_its_verdicts(
    bus: Bus, nats_server: TestServer, address: str
) -> None:
    requester = await CheckRequester(bus).start()
    controller = AdmissionCheckController(NAME)
    calls: list[str] = []

    @controller.check
    async def decide(request: Request) -> Verdict:
        calls.append(request.name)
        if len(calls) == 1:
            raise RuntimeError("the first call fails")
        await request.report(Pending("looking"))
        return Ready("within budget")

    async with running(controller, nats_server.url):
        await until_answer(address, "/readyz", 200, "ok\n")
        assert await ask(address, "/livez") == (200, "ok\n")
        await requester.ask(requested())
        await requester.until(lambda: requester.states() == ["Pending", "Pending", "Ready"])
        controller.inactive("the database is down")
        reason = f"{NAME} is not ready: inactive: the database is down\n"
        await until_answer(address, "/readyz", 503, reason)
        controller.active()
        await until_answer(address, "/readyz", 200, "ok\n")

        async def counted() -> bool:
            samples = series((await ask(address, "/metrics"))[1])
            return samples.get(("admittance_program_answers_total", "Ready", NAME)) == 1

        await eventually(counted)
        _, text = await ask(address, "/metrics")
        samples = series(text)
        assert samples["admittance_program_requests_total", NAME] == 1
        assert samples["admittance_program_failures_total", NAME] == 1
        assert samples["admittance_program_answers_total", "Pending", NAME] == 2
        assert samples["admittance_program_answer_seconds_count", NAME] == 1
        assert samples["admittance_program_heartbeats_total", NAME] >= 1
        assert samples["admittance_program_open_requests", NAME] in (0, 1)
        shown = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")}
        documented = by_service()
        names = documented["check controllers and providers"] + documented["every process"]
        assert shown == {f"admittance_{name.full_name}" for name in names}
    assert (await ask(address, "/livez"))[0] == 0


async def test_a_check_without_a_server_says_so_at_its_admin_port(
    nats_server: TestServer, address: str
) -> None:
    controller = AdmissionCheckController(NAME)
    controller.check(lambda _: Ready())
    stop = asyncio.Event()
    serving = asyncio.create_task(controller.serve("nats://127.0.0.1:1", stop=stop))
    try:

        async def is_reported() -> bool:
            status, text = await ask(address, "/readyz")
            return status == 503 and "nothing listens at nats://127.0.0.1:1" in text

        await eventually(is_reported)
        assert await ask(address, "/livez") == (200, "ok\n")
    finally:
        stop.set()
        await within(serving)


async def test_a_provider_shows_its_readiness_and_its_statuses(
    bus: Bus, nats_server: TestServer, address: str
) -> None:
    await provider_durables.make(bus, "class")
    provider = Provider("class")

    @provider.requested
    async def obtain(request: CapacityRequest) -> Provisioned:
        await request.say(Accepted("booting"))
        return Provisioned()

    provider.inactive("the cloud is away")
    stop = asyncio.Event()
    serving = asyncio.create_task(provider.serve(nats_server.url, stop=stop))
    try:
        reason = "class is not ready: inactive: the cloud is away\n"
        await until_answer(address, "/readyz", 503, reason)
        provider.ready()
        await until_answer(address, "/readyz", 200, "ok\n")
        request = ProvisioningRequested(
            namespace="ns",
            name="w",
            uid="u",
            provisioning_class="class",
            id="u/c/1/1",
            check="c",
            cycle=1,
            attempt=1,
        )
        await bus.publish(Outgoing(subject_of(request), encode(request)))
        samples: dict[tuple[str, ...], float] = {}

        async def counted() -> bool:
            samples.update(series((await ask(address, "/metrics"))[1]))
            return samples.get(("admittance_program_answers_total", "class", "provisioned")) == 1

        await eventually(counted)
        assert samples["admittance_program_requests_total", "class"] == 1
        assert samples["admittance_program_answers_total", "accepted", "class"] == 1
        assert samples["admittance_program_answer_seconds_count", "class"] == 1
    finally:
        stop.set()
        await within(serving)


@pytest.mark.parametrize(
    ("variables", "line"),
    [
        ({}, "cannot serve the admin port at {address}: Address already in use"),
        ({"ADMIT_BEAT_SECONDS": "often"}, "ADMIT_BEAT_SECONDS='often' is not a number"),
    ],
    ids=["a port that is taken", "a number that is none"],
)
async def test_a_program_with_a_wrong_setting_ends_with_one_line(
    address: str, variables: dict[str, str], line: str
) -> None:
    host, _, port = address.rpartition(":")
    with socket.create_server((host, int(port))):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", ONE_PROGRAM),
            env={**os.environ, **variables},
            stderr=asyncio.subprocess.PIPE,
        )
        _, said = await within(process.communicate())
    assert process.returncode == 1
    assert said.decode().splitlines() == [f"error: {line.format(address=address)}"]
