"""Requests and withdrawals in every order: calls, verdicts and acknowledgements."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from admittance.checks.judge import Judge
from admittance.checks.judgements import JudgementKey
from admittance.checks.request import Request, Withdrawal, is_too_late
from admittance.checks.verdicts import Ready, Retry, Verdict
from support.servers import until


def of(name: str = "w", cycle: int = 1, uid: str = "u") -> JudgementKey:
    return JudgementKey(uid, "ns", name, "c", cycle)


class JudgeRecorder:
    """A `Judge` that records calls ("w 1"), verdicts, releases, acknowledgements ("ack r1") and
    naks ("nak r1") in order."""

    def __init__(
        self,
        judge: Callable[[Request], Awaitable[Verdict | None]] | None = None,
        *,
        free: Callable[[Withdrawal], Awaitable[None]] | None = None,
        concurrency: int = 10,
    ) -> None:
        self.story: list[str] = []
        self._settled: set[str] = set()
        self._inner = judge
        self.judging = Judge(
            self, judge=self._judge, publish=self._say, release=free, concurrency=concurrency
        )

    async def _judge(self, request: Request) -> Verdict | None:
        self.story.append(f"{request.name} {request.cycle}")
        return Ready() if self._inner is None else await self._inner(request)

    async def _say(self, request: Request, verdict: Verdict) -> bool:
        if is_too_late(request, verdict):
            return False
        request.published += 1
        await asyncio.sleep(0)
        self.story.append(f"{verdict.state} {request.name} {request.cycle}")
        return True

    def ack(self, reply: str) -> None:
        self._settle("ack", reply)

    def nak(self, reply: str, delay_seconds: float = 0.0) -> None:
        self._settle("nak", reply)

    def _settle(self, word: str, reply: str) -> None:
        # As at the real desk: the first word counts.
        if reply and reply not in self._settled:
            self._settled.add(reply)
            self.story.append(f"{word} {reply}")

    def let_wait(self, reply: str) -> None:
        self.story.append(f"rest {reply}")

    def ask(
        self, identity: JudgementKey, reply: str, raw: bytes = b"null", *, revision: int = 1
    ) -> Request:
        request = Request(
            namespace="ns", name=identity.name, uid=identity.uid, check="c", cycle=identity.cycle
        )
        request.raw = raw
        request.revision = revision
        self.judging.requested(identity, request, reply)
        return request

    async def until(self, *lines: str) -> None:
        await until(lambda: all(line in self.story for line in lines))

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)


async def forever(_: Request) -> Verdict:
    await asyncio.Event().wait()
    raise AssertionError("not reached")


async def test_a_delivery_gets_one_verdict_and_is_acknowledged_after_it() -> None:
    room = JudgeRecorder()
    room.ask(of(), "r1")
    await room.until("ack r1")
    room.ask(of(), "r2")
    assert room.story == ["w 1", "Ready w 1", "ack r1", "ack r2"]


async def test_a_redelivery_while_the_function_runs_calls_it_no_second_time() -> None:
    go = asyncio.Event()

    async def judge(_: Request) -> Verdict:
        await go.wait()
        return Ready()

    room = JudgeRecorder(judge)
    room.ask(of(), "r1")
    await room.settle()
    room.ask(of(), "r2")
    go.set()
    await room.until("ack r2")
    assert room.story == ["w 1", "ack r1", "Ready w 1", "ack r2"]


async def test_a_request_with_other_parameters_is_decided_anew() -> None:
    room = JudgeRecorder()
    room.ask(of(), "r1", b"1")
    await room.until("ack r1")
    room.ask(of(), "r2", b"2")
    await room.until("ack r2")
    room.ask(of(), "r3", b"2")
    assert room.story == ["w 1", "Ready w 1", "ack r1", "w 1", "Ready w 1", "ack r2", "ack r3"]


async def test_other_parameters_wait_for_the_judgement_that_is_under_way() -> None:
    go = asyncio.Event()
    seen = []

    async def judge(request: Request) -> Verdict:
        seen.append(request.raw)
        await go.wait()
        return Ready(request.raw.decode())

    room = JudgeRecorder(judge)
    first = room.ask(of(), "r1", b"1")
    await room.settle()
    room.ask(of(), "r2", b"2")
    await room.settle()
    assert first.superseded
    assert seen == [b"1"]
    room.ask(of(), "r3", b"2")  # handed out again meanwhile
    go.set()
    await room.until("ack r1", "ack r3")
    assert seen == [b"1", b"2"]
    assert room.story.index("ack r3") > room.story.index("ack r1")


async def test_a_withdrawal_also_drops_a_waiting_repeat() -> None:
    room = JudgeRecorder(forever)
    room.ask(of(), "r1", b"1")
    await room.settle()
    room.ask(of(), "r2", b"2")
    room.judging.withdrawn(of(), "Preempted", "")
    await room.until("ack r1", "ack r2")
    assert room.story.count("w 1") == 1


@pytest.mark.parametrize("judge", [None, forever], ids=["judged", "under way"])
async def test_a_check_that_is_listed_again_is_called_again(judge: Any) -> None:
    room = JudgeRecorder(judge)
    room.ask(of(), "r1")
    await room.settle()
    room.judging.withdrawn(of(), "CheckRemoved", "")
    room.ask(of(), "r2")  # the same request, handed out again
    await room.settle()
    assert room.story.count("w 1") == 1
    room.ask(of(), "r3", revision=2)
    await room.settle()
    assert room.story.count("w 1") == 2
    await room.judging.stop(0)


async def test_a_namesake_with_another_uid_is_another_workload() -> None:
    room = JudgeRecorder()
    room.ask(of(uid="old"), "r1")
    room.ask(of(uid="new"), "r2")
    await room.until("ack r1", "ack r2")
    assert room.story.count("w 1") == 2


async def test_a_late_redelivery_of_an_old_cycle_gets_no_verdict() -> None:
    room = JudgeRecorder(forever)
    room.ask(of(cycle=3), "r3")
    await room.settle()
    room.ask(of(cycle=2), "r2")
    assert room.story == ["w 3", "ack r2"]
    await room.judging.stop(0)


async def test_a_withdrawal_that_comes_before_its_request_prevents_it() -> None:
    room = JudgeRecorder()
    room.judging.withdrawn(of(), "Preempted", "")
    room.ask(of(), "r1")
    await room.settle()
    assert room.story == ["ack r1"]


async def test_a_withdrawal_by_another_check_s_retry_prevents_nothing() -> None:
    room = JudgeRecorder()
    room.judging.withdrawn(of(), "AdmissionCheck", "x")
    room.ask(of(), "r1")
    await room.until("ack r1")
    assert room.story == ["ack x", "w 1", "Ready w 1", "ack r1"]


async def test_a_withdrawal_ends_a_judgement_without_a_verdict() -> None:
    room = JudgeRecorder(forever)
    request = room.ask(of(), "r1")
    await room.settle()
    room.judging.withdrawn(of(), "Preempted", "x")
    await room.until("ack r1", "ack x")
    assert request.withdrawn == "Preempted"
    assert room.story[0] == "w 1"
    assert not [line for line in room.story if line.startswith("Ready")]


async def test_a_second_withdrawal_can_end_a_continued_judgement() -> None:
    freed: list[str] = []

    async def free(withdrawal: Withdrawal) -> None:
        freed.append(withdrawal.reason)

    room = JudgeRecorder(forever, free=free)
    room.ask(of(), "r1")
    await room.settle()
    room.judging.withdrawn(of(), "AdmissionCheck", "x")
    await room.until("ack x")
    assert "ack r1" not in room.story
    room.judging.withdrawn(of(), "Deactivated", "y")
    await room.until("ack r1", "ack y")
    assert freed == ["AdmissionCheck", "Deactivated"]


async def test_a_request_withdrawn_before_its_judgement_frees_its_place() -> None:
    room = JudgeRecorder(concurrency=1)
    room.ask(of("a"), "r1")
    # In the same breath: its task exists and has not taken its first step.
    room.judging.withdrawn(of("a"), "Preempted", "x")
    room.ask(of("b"), "r2")
    await room.until("ack r1", "ack r2")
    assert room.story.count("b 1") == 1


async def test_a_waiting_request_is_withdrawn_without_a_call() -> None:
    go = asyncio.Event()

    async def judge(_: Request) -> Verdict:
        await go.wait()
        return Ready()

    room = JudgeRecorder(judge, concurrency=1)
    room.ask(of("a"), "r1")
    room.ask(of("b"), "r2")
    await room.settle()
    room.judging.withdrawn(of("b"), "Preempted", "x")
    go.set()
    await room.until("ack r1", "ack r2", "ack x")
    assert "b 1" not in room.story


async def test_the_callback_runs_for_a_delivery_or_a_judgement_of_this_replica() -> None:
    freed: list[str] = []

    async def free(withdrawal: Withdrawal) -> None:
        freed.append(withdrawal.name)

    room = JudgeRecorder(free=free)
    room.ask(of("mine"), "r1")
    await room.until("ack r1")
    room.judging.withdrawn(of("mine"), "Preempted", "")
    room.judging.withdrawn(of("theirs"), "Preempted", "")
    room.judging.withdrawn(of("unknown"), "Preempted", "x")
    await room.until("ack x")
    await room.settle()
    room.judging.withdrawn(of("mine"), "Preempted", "y")
    await room.until("ack y")
    assert freed == ["mine", "unknown"]


async def test_a_callback_that_fails_is_called_again_and_acknowledged_only_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("admittance.sdk.threads.PAUSE_MIN", 0.01)
    calls = 0

    async def free(_: Withdrawal) -> None:
        nonlocal calls
        calls += 1
        if calls < 3:
            raise OSError("the provider is down")

    room = JudgeRecorder(free=free)
    room.judging.withdrawn(of(), "Preempted", "x")
    room.judging.withdrawn(of(), "Preempted", "y")
    await room.until("ack x", "ack y")
    assert calls == 3


async def test_a_check_that_fails_is_called_again_and_holds_no_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("admittance.sdk.threads.PAUSE_MIN", 0.05)

    async def judge(request: Request) -> Verdict | None:
        if room.story.count(f"{request.name} 1") == 1:
            raise OSError("down")
        return Ready()

    room = JudgeRecorder(judge, concurrency=1)
    room.ask(of("a"), "r1")
    room.ask(of("b"), "r2")
    await room.until("ack r1", "ack r2")
    assert "rest r1" in room.story
    assert room.story.index("b 1") < room.story.index("Ready a 1")
    assert room.story.count("Pending a 1") == 1


@pytest.mark.parametrize(
    "what",
    [
        pytest.param(None, id="nothing at all"),
        pytest.param(asyncio.CancelledError(), id="a cancellation by the check itself"),
    ],
)
async def test_a_value_that_is_not_a_verdict_is_a_failure(what: BaseException | None) -> None:
    async def judge(_: Request) -> Verdict | None:
        if what is not None:
            raise what
        return None

    room = JudgeRecorder(judge)
    room.ask(of(), "r1")
    await room.until("Pending w 1")
    assert "ack r1" not in room.story
    await room.judging.stop(0)
    assert "nak r1" in room.story


async def test_a_check_that_has_reported_may_return_none() -> None:
    async def judge(request: Request) -> Verdict | None:
        await room.judging._publish(request, Retry("later"))
        return None

    room = JudgeRecorder(judge)
    room.ask(of(), "r1")
    await room.until("ack r1")
    assert room.story == ["w 1", "Retry w 1", "ack r1"]


async def test_a_failing_check_makes_room_for_a_newer_cycle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def judge(request: Request) -> Verdict:
        if request.cycle == 1:
            raise OSError("down")
        return Ready()

    room = JudgeRecorder(judge)
    room.ask(of(cycle=1), "r1")
    await room.until("Pending w 1")
    room.ask(of(cycle=2), "r2")
    await room.until("ack r1", "ack r2")
    assert room.story[-2:] == ["Ready w 2", "ack r2"]


async def test_the_end_hands_back_waiting_requests_and_finishes_others() -> None:
    go = asyncio.Event()

    async def judge(_: Request) -> Verdict:
        await go.wait()
        return Ready()

    room = JudgeRecorder(judge, concurrency=1)
    room.ask(of("a"), "r1")
    room.ask(of("b"), "r2")
    await room.settle()
    room.ask(of("a", 2), "r3")
    ending = asyncio.create_task(room.judging.stop(5.0))
    await room.settle()
    room.ask(of("c"), "r4")
    room.judging.withdrawn(of("d"), "Preempted", "x")
    go.set()
    await ending
    assert {"nak r2", "nak r3", "nak r4", "nak x"} <= set(room.story)
    assert room.story.index("Ready a 1") < room.story.index("ack r1")
    assert not {"b 1", "a 2", "c 1"} & set(room.story)


async def test_a_judgement_beyond_the_grace_period_is_handed_back() -> None:
    room = JudgeRecorder(forever)
    room.ask(of(), "r1")
    await room.settle()
    await room.judging.stop(0.01)
    assert room.story == ["w 1", "nak r1"]


async def test_a_repeated_withdrawal_does_not_interrupt_cleanup() -> None:
    ended: list[str] = []

    async def judge(request: Request) -> Verdict:
        try:
            return await forever(request)
        finally:
            await asyncio.sleep(0.01)
            ended.append(request.name)

    room = JudgeRecorder(judge)
    room.ask(of(), "r1")
    await room.settle()
    room.judging.withdrawn(of(), "Preempted", "")
    await room.settle()
    room.judging.withdrawn(of(), "Preempted", "x")
    await room.until("ack r1")
    assert ended == ["w"]


async def test_later_acknowledges_the_request_without_a_verdict() -> None:
    async def later(request: Request) -> None:
        request.later = True

    room = JudgeRecorder(later)
    room.ask(of(), "r1")

    await room.until("ack r1")
    assert room.story == ["w 1", "ack r1"]
