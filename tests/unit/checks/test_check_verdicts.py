"""Verdicts, requests, and tests of a check without a bus."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from admittance.checks import (
    AdmissionCheckController,
    BadParameters,
    Later,
    Pending,
    Ready,
    Rejected,
    Request,
    Retry,
    Verdict,
    Workload,
)
from admittance.sdk.threads import Threads


@pytest.mark.parametrize(
    ("after", "want"),
    [
        pytest.param(None, None, id="without a delay"),
        pytest.param(0, 0, id="at once"),
        pytest.param(3600, 3600, id="whole seconds"),
        pytest.param(0.001, 1, id="a part of a second is a whole one"),
        pytest.param(timedelta(minutes=2, milliseconds=1), 121, id="a timedelta, rounded up"),
        pytest.param("8m0s", 480, id="a duration as Go writes it"),
        pytest.param("1.5s", 2, id="a duration, rounded up"),
    ],
)
def test_a_delay_is_whole_seconds_and_never_shorter(after: Any, want: int | None) -> None:
    assert Retry("spent", after=after).seconds() == want


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: Retry("x", after=-1), id="a delay below zero"),
        pytest.param(lambda: Retry("x", after=float("nan")), id="a delay that is not a number"),
        pytest.param(lambda: Retry("x", after=float("inf")), id="a delay without end"),
        pytest.param(lambda: Retry("x", after=2**31), id="a delay that the wire does not carry"),
        pytest.param(lambda: Retry("x", after="an hour"), id="a delay in words"),
        pytest.param(lambda: Retry("x", after="-5s"), id="a duration below zero"),
        pytest.param(lambda: Retry("x", after=True), id="a truth for a delay"),
        pytest.param(lambda: Ready(None), id="no message, where one is said"),  # type: ignore[arg-type]
        pytest.param(
            lambda: Ready("x", pod_set_updates=[{"labels": {}}]), id="an update of no pod set"
        ),
        pytest.param(
            lambda: Ready("x", pod_set_updates=[{"name": "a", "labels": {"a": 1}}]),
            id="a label that is not text",
        ),
    ],
)
def test_a_wrong_verdict_is_refused_when_it_is_created(make: Callable[[], Verdict]) -> None:
    with pytest.raises(ValueError):
        make()


class Budget(msgspec.Struct):
    limit: int


class Fussy(msgspec.Struct):
    limit: int

    def __post_init__(self) -> None:
        _ = {"5": 5}[str(self.limit)]


def controller(answer: Any, **more: Any) -> AdmissionCheckController:
    made = AdmissionCheckController("example.com/budget", **more)

    @made.check
    async def decide(request: Request) -> Any:
        return answer(request)

    return made


async def test_a_check_can_be_tested_without_a_bus() -> None:
    def answer(request: Request) -> Verdict:
        if request.parameters["limit"] > len(request.namespace):
            return Ready(f"{request.workload.queue} {request.workload.labels['team']}")
        return Retry("spent", after=2**request.retry_count)

    budget = controller(answer)
    asked = Request(
        namespace="team-a",
        parameters={"limit": 7},
        workload=Workload({"queueName": "q"}, {"team": "a"}),
    )
    assert await budget.judge(asked) == Ready("q a")
    asked = Request(namespace="team-a", parameters={"limit": 1}, retry_count=3)
    assert await budget.judge(asked) == Retry("spent", after=8)


def test_a_plain_function_can_be_tested_too() -> None:
    budget = AdmissionCheckController("example.com/budget")

    @budget.check
    def decide(request: Request) -> Verdict:
        assert request.report_from_thread(Pending("looking"))
        return Rejected("no")

    asked = Request()
    assert asyncio.run(budget.judge(asked)) == Rejected("no")
    assert asked.reported == [Pending("looking")]


async def test_test_parameters_are_converted_to_the_struct() -> None:
    budget = controller(lambda asked: Ready(f"{asked.parameters.limit}"), parameters=Budget)
    assert await budget.judge(Request(parameters={"limit": 3})) == Ready("3")
    assert await budget.judge(Request(parameters=Budget(limit=4))) == Ready("4")
    with pytest.raises(BadParameters, match="limit"):
        await budget.judge(Request())


@pytest.mark.parametrize("answer", [True, "Ready", {"state": "Ready"}, Ready])
async def test_a_return_value_that_is_not_a_verdict_is_an_error(answer: Any) -> None:
    with pytest.raises(TypeError, match="return Pending, Ready, Retry or Rejected"):
        await controller(lambda _: answer).judge(Request())


async def test_a_check_can_report_its_verdict_later() -> None:
    asked = Request()

    assert await controller(lambda _: Later()).judge(asked) is None
    assert asked.later


def test_wrong_arguments_of_a_controller_are_refused() -> None:
    with pytest.raises(ValueError):
        AdmissionCheckController("")
    with pytest.raises(ValueError, match="concurrency"):
        AdmissionCheckController("a", concurrency=0)
    budget = controller(lambda _: Ready())
    with pytest.raises(ValueError, match="has a check already"):
        budget.check(print)


async def test_a_controller_that_does_not_run_cannot_report() -> None:
    budget = controller(lambda _: Ready())
    with pytest.raises(RuntimeError, match="not running"):
        await budget.report(Request().reference, Ready())
    with pytest.raises(RuntimeError, match="no check"):
        await AdmissionCheckController("a").serve()


async def test_any_exception_of_a_parameter_struct_means_bad_parameters() -> None:
    budget = controller(lambda _: Ready(), parameters=Fussy)
    assert await budget.judge(Request(parameters={"limit": 5})) == Ready()
    with pytest.raises(BadParameters, match="wrong parameters"):
        await budget.judge(Request(parameters={"limit": 6}))


async def test_plain_functions_share_threads_and_see_their_callers_context() -> None:
    threads = Threads(3)
    name: ContextVar[int] = ContextVar("name")
    seen: set[int] = set()

    def work(number: int) -> bool:
        seen.add(threading.get_ident())
        if number == 7:
            raise LookupError("seven")
        return name.get() == number

    async def call(number: int) -> bool:
        name.set(number)
        return await threads.call(work, number)

    answers = await asyncio.gather(*map(call, range(50)), return_exceptions=True)
    assert [answer for answer in answers if answer is not True] == [answers[7]]
    assert isinstance(answers[7], LookupError)
    assert len(seen) <= 3
