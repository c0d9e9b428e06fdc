"""The SDK for checks against a real server: requests, judgements, verdicts, acknowledgements."""

from __future__ import annotations

import asyncio
import threading

import msgspec
import pytest

from admittance.checks import (
    AdmissionCheckController,
    Pending,
    PodSetUpdate,
    Ready,
    Rejected,
    Request,
    Retry,
    Verdict,
    Withdrawal,
)
from admittance.events.subjects import STREAM
from admittance.events.system import CheckAlive
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.durables import check_durables
from admittance.runtime.telemetry.tracing import start, trace_id
from support.check_requests import NAME, CheckRequester, requested, running, withdrawn
from support.servers import TestServer, until, within

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]


@pytest.fixture
async def requester(bus: Bus) -> CheckRequester:
    return await CheckRequester(bus).start()


def controller_with(verdict: Verdict) -> tuple[AdmissionCheckController, list[Request]]:
    """A check controller that always gives ``verdict``, and the list of the requests it gets."""
    controller = AdmissionCheckController(NAME)
    requests: list[Request] = []

    @controller.check
    async def decide(request: Request) -> Verdict:
        requests.append(request)
        return verdict

    return controller, requests


async def test_a_request_gets_a_verdict_that_names_check_and_cycle(
    requester: CheckRequester, nats_server: TestServer
) -> None:
    budget, requests = controller_with(Retry("weekly budget is spent", after=3600))
    context = start()
    async with running(budget, nats_server.url):
        await requester.ask(
            requested("w", 3, parameters={"limit": 5}, retry_count=2), traceparent=context
        )
        await until(lambda: bool(requester.verdicts))
        await requester.until_acknowledged()
    [said] = requester.verdicts
    assert (said.namespace, said.name, said.uid) == ("ns", "w", "uid-w")
    assert (said.controller, said.check, said.cycle) == (NAME, "budget", 3)
    assert (said.state, said.message) == ("Retry", "weekly budget is spent")
    assert said.requeue_after_seconds == 3600
    assert trace_id(requester.headers[0]["traceparent"]) == trace_id(context)
    assert requester.headers[0]["Nats-Msg-Id"]
    [request] = requests
    assert (request.retry_count, request.parameters) == (2, {"limit": 5})
    assert (request.workload.labels, request.workload.queue) == ({"team": "a"}, "q")


@pytest.mark.parametrize(
    ("verdict", "want"),
    [
        pytest.param(
            Pending("booking", reason="PreemptionRequired"),
            {"state": "Pending", "message": "booking", "reason": "PreemptionRequired"},
            id="Pending carries its reason",
        ),
        pytest.param(
            Ready("go", pod_set_updates=[{"name": "main", "nodeSelector": {"zone": "a"}}]),
            {
                "state": "Ready",
                "message": "go",
                "pod_set_updates": (PodSetUpdate(name="main", node_selector={"zone": "a"}),),
            },
            id="Ready carries what it adds to the pods",
        ),
        pytest.param(
            Retry("soon", after=0.2),
            {"state": "Retry", "requeue_after_seconds": 1},
            id="a part of a second is a whole one, since a delay is never shorter",
        ),
        pytest.param(
            Retry("now"), {"state": "Retry", "requeue_after_seconds": None}, id="Retry at once"
        ),
        pytest.param(Rejected("never"), {"state": "Rejected"}, id="Rejected"),
    ],
)
async def test_each_verdict_is_published_with_all_its_fields(
    requester: CheckRequester, nats_server: TestServer, verdict: Verdict, want: dict[str, object]
) -> None:
    budget, _ = controller_with(verdict)
    async with running(budget, nats_server.url):
        await requester.ask(requested())
        await until(lambda: bool(requester.verdicts))
    said = requester.verdicts[0]
    assert {key: getattr(said, key) for key in want} == want


async def test_a_check_can_change_its_verdict_after_ready(
    requester: CheckRequester, nats_server: TestServer
) -> None:
    budget, requests = controller_with(Ready("within budget"))
    async with running(budget, nats_server.url):
        await requester.ask(requested())
        await until(lambda: requester.states() == ["Ready"])
        assert await requests[0].report(Retry("spent meanwhile", after=60))
        assert await budget.report(requests[0].reference, Ready("paid"))
        await until(lambda: len(requester.verdicts) == 3)
    assert requester.states() == ["Ready", "Retry", "Ready"]
    assert len({header["Nats-Msg-Id"] for header in requester.headers}) == 3


@pytest.mark.servers("real")
async def test_plain_functions_run_in_threads_and_report_from_there(
    requester: CheckRequester, nats_server: TestServer
) -> None:
    budget = AdmissionCheckController(NAME)
    threads: list[str] = []

    @budget.check
    def decide(request: Request) -> Verdict:
        threads.append(threading.current_thread().name)
        request.report_from_thread(Pending("asking"))
        return Ready("yes")

    async with running(budget, nats_server.url):
        await requester.ask(requested())
        await until(lambda: requester.states() == ["Pending", "Ready"])
    assert threads == ["call"]


class Budget(msgspec.Struct):
    limit: float
    query: str = ""


async def test_parameters_are_decoded_as_the_requested_struct(
    requester: CheckRequester, nats_server: TestServer
) -> None:
    budget = AdmissionCheckController(NAME, parameters=Budget)
    seen: list[Budget] = []

    @budget.check
    async def decide(request: Request) -> Verdict:
        seen.append(request.parameters)
        return Ready()

    async with running(budget, nats_server.url):
        await requester.ask(requested(parameters={"limit": 5, "query": "up", "unknown": 1}))
        await until(lambda: bool(requester.verdicts))
    assert seen == [Budget(limit=5, query="up")]


async def test_wrong_parameters_are_reported_until_they_are_corrected(
    requester: CheckRequester, bus: Bus, nats_server: TestServer
) -> None:
    budget = AdmissionCheckController(NAME, parameters=Budget)
    beats: list[CheckAlive] = []

    async def on_beat(message: object) -> None:
        beats.append(msgspec.json.decode(message.data, type=CheckAlive))  # type: ignore[attr-defined]

    await bus.nc.subscribe("admit.alive.check.example_com=2Fbudget", cb=on_beat)
    await bus.nc.flush()

    @budget.check
    async def decide(request: Request) -> Verdict:
        return Ready(f"limit {request.parameters.limit:g}")

    async with running(budget, nats_server.url):
        await requester.ask(requested("w", parameters={"limit": "much"}))
        await until(lambda: requester.states() == ["Pending"])
        assert "limit" in requester.verdicts[0].message
        await until(lambda: any(beat.checks for beat in beats))
        activity = next(beat for beat in beats if beat.checks).checks["budget"]
        assert (activity.active, activity.reason) == (False, "BadParametersRef")
        assert "limit" in activity.message
        await requester.until_acknowledged()
        await requester.ask(requested("other", parameters={"limit": 7}))
        await until(lambda: requester.states() == ["Pending", "Ready"])
        await until(lambda: not beats[-1].checks)
    assert [verdict.message for verdict in requester.verdicts if verdict.state == "Ready"] == [
        "limit 7"
    ] * 2


async def test_the_sdk_waits_for_its_durable(bus: Bus, nats_server: TestServer) -> None:
    requester = await CheckRequester(bus).start(durable=False)
    budget = AdmissionCheckController(NAME)
    budget.check(lambda _: Ready())
    async with running(budget, nats_server.url):
        heartbeats = await bus.nc.subscribe("admit.alive.check.>")
        await within(heartbeats.next_msg(timeout=20))
        await check_durables.make(bus, NAME)
        await requester.ask(requested())
        await until(lambda: requester.states() == ["Ready"])
        # Deleted and made anew, as when the last AdmissionCheck goes and another one comes.
        await check_durables.remove(bus, NAME)
        await check_durables.make(bus, NAME)
        await requester.ask(requested("later"))
        await until(lambda: requester.states("later") == ["Ready"])
    consumers = await bus.api("CONSUMER.NAMES.ADMITTANCE")
    assert consumers["consumers"] == ["check-example_com=2Fbudget"], "the helper makes none"


async def test_no_more_judgements_are_under_way_than_the_limit(
    requester: CheckRequester, nats_server: TestServer
) -> None:
    budget = AdmissionCheckController(NAME, concurrency=3)
    most = 0
    now = 0
    go = asyncio.Event()

    @budget.check
    async def decide(request: Request) -> Verdict:
        nonlocal most, now
        now += 1
        most = max(most, now)
        await go.wait()
        now -= 1
        return Ready()

    async with running(budget, nats_server.url):
        await requester.ask(*[requested(f"w{i}") for i in range(20)])
        await until(lambda: now == 3)
        go.set()
        await until(lambda: len(requester.verdicts) == 20)
        await requester.until_acknowledged()
    assert most == 3


async def test_two_thousand_requests_get_one_verdict_each_and_are_acknowledged(
    requester: CheckRequester, nats_server: TestServer
) -> None:
    budget = AdmissionCheckController(NAME)

    @budget.check
    async def decide(request: Request) -> Verdict:
        return Ready()

    async with running(budget, nats_server.url):
        await requester.ask(*[requested(f"w{i}") for i in range(2000)])
        await until(lambda: len(requester.verdicts) >= 2000)
        await requester.until_acknowledged()
    assert len({verdict.name for verdict in requester.verdicts}) == len(requester.verdicts) == 2000


async def test_a_withdrawal_cancels_the_judgement_and_then_frees(
    requester: CheckRequester, nats_server: TestServer
) -> None:
    budget = AdmissionCheckController(NAME)
    story: list[str] = []

    @budget.check
    async def decide(request: Request) -> Verdict:
        story.append(f"begun {request.cycle}")
        if request.cycle == 2:
            return Ready()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)  # it has something to put in order
            story.append("ended")
        return Ready()

    @budget.withdrawn
    async def free(withdrawal: Withdrawal) -> None:
        story.append(f"freed {withdrawal.cycle} {withdrawal.reason}")

    async with running(budget, nats_server.url):
        await requester.ask(requested("w", 1))
        await until(lambda: story == ["begun 1"])
        await requester.ask(withdrawn("w", 1), requested("w", 2))
        await until(lambda: bool(requester.verdicts))
        await requester.until_acknowledged()
    assert story.index("ended") < story.index("freed 1 Preempted")
    assert story.count("freed 1 Preempted") == 1
    assert [(verdict.cycle, verdict.state) for verdict in requester.verdicts] == [(2, "Ready")]


@pytest.mark.scenario("L19")
async def test_a_judgement_continues_when_another_check_says_retry(
    requester: CheckRequester, nats_server: TestServer
) -> None:
    budget = AdmissionCheckController(NAME)
    freed = asyncio.Event()
    ended = asyncio.Event()

    @budget.check
    async def decide(request: Request) -> Verdict:
        # What was booked is freed beside it, and it says its own Retry all the same.
        await ended.wait()
        return Retry("no licence", after=120)

    @budget.withdrawn
    async def free(withdrawal: Withdrawal) -> None:
        assert withdrawal.reason == "AdmissionCheck"
        freed.set()

    async with running(budget, nats_server.url):
        await requester.ask(requested())
        await requester.ask(withdrawn(reason="AdmissionCheck"))
        await within(freed.wait())
        assert not requester.verdicts
        ended.set()
        await until(lambda: bool(requester.verdicts))
        await requester.until_acknowledged()
    [said] = requester.verdicts
    assert (said.state, said.cycle, said.requeue_after_seconds) == ("Retry", 1, 120)


async def test_after_a_withdrawal_only_verdicts_that_count_are_published(
    requester: CheckRequester, nats_server: TestServer
) -> None:
    budget, requests = controller_with(Ready())
    async with running(budget, nats_server.url):
        await requester.ask(requested())
        await until(lambda: requester.states() == ["Ready"])
        await requester.ask(withdrawn(reason="Preempted"))
        await until(lambda: requests[0].withdrawn == "Preempted")
        assert not await requests[0].report(Ready("again"))
        assert not await requests[0].report(Pending("again"))
        assert await requests[0].report(Rejected("never"))
        await until(lambda: len(requester.verdicts) == 2)
    assert requester.states() == ["Ready", "Rejected"]


async def test_a_failing_check_answers_pending_and_is_called_again(
    requester: CheckRequester, nats_server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("admittance.sdk.threads.PAUSE_MIN", 0.05)
    budget = AdmissionCheckController(NAME)
    calls = 0

    @budget.check
    async def decide(request: Request) -> Verdict:
        nonlocal calls
        calls += 1
        if calls < 3:
            raise ConnectionError("secret://user:password@host")
        return Ready()

    async with running(budget, nats_server.url):
        await requester.ask(requested())
        await until(lambda: "Ready" in requester.states())
        await requester.until_acknowledged()
    assert requester.states() == ["Pending", "Ready"]
    assert "ConnectionError" in requester.verdicts[0].message
    assert "password" not in requester.verdicts[0].message


async def test_only_the_newest_waiting_cycle_gets_a_verdict(
    requester: CheckRequester, nats_server: TestServer
) -> None:
    budget = AdmissionCheckController(NAME)
    go = asyncio.Event()
    begun: list[int] = []
    now = 0

    @budget.check
    async def decide(request: Request) -> Verdict:
        nonlocal now
        now += 1
        assert now == 1
        begun.append(request.cycle)
        await go.wait()
        now -= 1
        return Retry("slow", after=120)

    async with running(budget, nats_server.url):
        await requester.ask(requested("w", 1))
        await until(lambda: begun == [1])
        for cycle in range(1, 6):
            await requester.ask(withdrawn("w", cycle, "AdmissionCheck"), requested("w", cycle + 1))
        # All but the two are acknowledged: one judges, one waits for it.
        await until(lambda: begun == [1])
        go.set()
        await until(lambda: len(requester.verdicts) == 2)
        await requester.until_acknowledged()
    assert [verdict.cycle for verdict in requester.verdicts] == begun
    assert begun[0] == 1
    assert begun[-1] == 6


async def test_a_judgement_may_take_longer_than_the_server_waits(
    requester: CheckRequester, bus: Bus, nats_server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("admittance.sdk.requests.PROGRESS_SECONDS", 0.4)
    settings = {**check_durables.settings(NAME), "ack_wait": 1_000_000_000}
    durable = settings["name"]
    # An update would come into force after the first thirty seconds.
    await check_durables.remove(bus, NAME)
    await bus.api(
        f"CONSUMER.CREATE.{STREAM}.{durable}", {"stream_name": STREAM, "config": settings}
    )
    working = await bus.nc.subscribe(f"$JS.ACK.{STREAM}.{durable}.>")
    await bus.nc.flush()
    budget = AdmissionCheckController(NAME)
    go = asyncio.Event()

    @budget.check
    async def decide(_: Request) -> Verdict:
        await go.wait()
        return Ready()

    async with running(budget, nats_server.url):
        await requester.ask(requested())
        # Ten times a fifth of a second: twice as long as the server waits.
        for _ in range(10):
            assert (await working.next_msg(timeout=20)).data == b"+WPI"
        go.set()
        await until(lambda: requester.states() == ["Ready"])
        await requester.until_acknowledged()
        info = await bus.api(f"CONSUMER.INFO.{STREAM}.{durable}")
    assert info["delivered"]["consumer_seq"] == 1, "it was delivered once"
