"""The explanation of a promise of a start: when, after which workloads, and what makes a promise
impossible."""

from __future__ import annotations

from datetime import timedelta

import pytest

from admittance.events.requests.explanation import ExpectedStart
from support.builders import NOON
from support.cores.stepped_scheduler import SteppedScheduler, groups

FIVE = NOON + timedelta(minutes=5)


def a_day(*running: tuple[str, int, int | None], cohort: str = "") -> SteppedScheduler:
    """ClusterQueue ``a`` with 4 cpu, and running workloads: name, cpu, minutes of the limit."""
    day = SteppedScheduler()
    day.queue("a", cohort, resourceGroups=groups(default="4"), backfill="Easy")
    for name, cpu, minutes in running:
        submit(day, name, cpu, minutes)
    day.settle()
    return day


def submit(day: SteppedScheduler, name: str, cpu: int, minutes: int | None, age: int = 0) -> None:
    spec = {} if minutes is None else {"maximumExecutionTimeSeconds": minutes * 60}
    day.submit(name, "a", str(cpu), age=age, spec=spec)


@pytest.mark.parametrize(
    ("running", "cohort", "ending", "start"),
    [
        pytest.param(
            [("x", 2, 5), ("y", 2, 3)], "",
            "; it is promised a start at 2026-01-01T12:05:00Z, when ns/y and ns/x end",
            ExpectedStart(head="ns/big", at=FIVE, certain=True, after=("ns/y", "ns/x")),
            id="both must end",
        ),
        pytest.param(
            [("x", 3, 5), ("y", 1, 3)], "co",
            "; it is expected to start at 2026-01-01T12:05:00Z, when ns/x ends",
            ExpectedStart(head="ns/big", at=FIVE, after=("ns/x",)),
            id="in a cohort, one is enough",
        ),
        pytest.param(
            [("x", 2, 5), ("y", 2, None)], "",
            "; no start can be promised: ns/y has no time limit (--time)",
            ExpectedStart(head="ns/big", without_end=("ns/y",)),
            id="one without a limit",
        ),
        pytest.param(
            [("x", 2, None), ("y", 2, None)], "",
            "; no start can be promised: ns/x and ns/y have no time limit (--time)",
            ExpectedStart(head="ns/big", without_end=("ns/x", "ns/y")),
            id="two without a limit",
        ),
    ],
)  # fmt: skip
def test_the_head_learns_its_start_or_why_there_is_none(
    running: list[tuple[str, int, int | None]], cohort: str, ending: str, start: ExpectedStart
) -> None:
    day = a_day(*running, cohort=cohort)
    submit(day, "big", 3, None)
    day.settle()
    reply = day.why("big")
    assert reply.reason == "WaitingForQuota"
    assert reply.message.endswith(ending), reply.message
    assert reply.promise == start
    assert "more free cpu" in reply.unblocked_by[0]


def test_a_holder_that_waits_for_a_check_has_not_begun() -> None:
    day = a_day()
    day.check("gate")
    day.put("AdmissionCheck", "gate", {"controllerName": "ctl-gate"},
            status={"conditions": [{"type": "Active", "status": "True"}]})  # fmt: skip
    day.queue("a", resourceGroups=groups(default="4"), backfill="Easy", admissionChecks=["gate"])
    day.admits = False
    submit(day, "x", 2, 5)
    day.settle()
    submit(day, "big", 3, None)
    submit(day, "small", 1, 1)
    assert day.settle() == ["small"]  # No promise, so nothing is held back.
    assert day.why("big").message.endswith("; no start can be promised: ns/x has not begun to run")


@pytest.mark.parametrize(
    ("minutes", "sentence", "remedies"),
    [
        (
            None,
            "it has no known end",
            ("start of workload ns/big, which the workload would delay",
             "a time limit (--time) that ends before 2026-01-01T12:05:00Z"),
        ),
        (
            9,
            "it may run until 2026-01-01T12:09:00Z",
            ("start of workload ns/big, which the workload would delay",),
        ),
    ],
)  # fmt: skip
def test_a_workload_that_is_held_back_learns_for_which_and_what_helps(
    minutes: int | None, sentence: str, remedies: tuple[str, ...]
) -> None:
    day = a_day(("x", 3, 5))
    submit(day, "big", 4, None, age=1)
    submit(day, "small", 1, minutes)
    for _ in range(2):  # Before the cycle that parks the workload, and after it.
        reply = day.why("small")
        assert (reply.reason, reply.outlook and reply.outlook.outcome) == (
            "WaitingForPromisedStart", "Hindered",
        )  # fmt: skip
        assert reply.message == (
            "It would delay workload ns/big, which is promised a start at 2026-01-01T12:05:00Z: "
            + sentence
        )
        assert reply.unblocked_by == remedies
        assert reply.promise is not None
        assert (reply.promise.head, reply.promise.at) == ("ns/big", FIVE)
        day.settle()


def test_other_workloads_and_queues_without_backfill_have_no_promise() -> None:
    day = a_day(("x", 3, 5))
    submit(day, "big", 4, None, age=2)
    submit(day, "huge", 3, None, age=1)
    day.settle()
    assert day.why("huge").promise is None
    day.queue("a", resourceGroups=groups(default="4"))
    assert day.why("big").promise is None
