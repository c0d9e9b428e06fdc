"""The lower bound is what quota and creation times allow, and not a second more."""

from __future__ import annotations

from pathlib import Path

import pytest

from admittance.bench.generator import (
    BenchPlan,
    PlannedQueue,
    PlannedWorkload,
    bench_plan,
    read,
)
from admittance.bench.run import lower_bound_seconds, useful_usage_percent

ROOT = Path(__file__).parents[3]


def a_queue(*, cohort: str = "one", nominal: int = 1000, borrowing: int | None = 0) -> PlannedQueue:
    return PlannedQueue("q", "cq", cohort, "ns", nominal, borrowing, None, "Never", "Never")


def a_workload(
    at: float, runtime: float, *, request: int = 1000, queue: int = 0
) -> PlannedWorkload:
    return PlannedWorkload(at, runtime, f"w{at}", queue, "small", request, 0)


@pytest.mark.parametrize(
    ("made", "want"),
    [
        pytest.param(
            BenchPlan((a_queue(),), (a_workload(5.0, 2.0),)),
            7.0,
            id="one workload ends its runtime after its creation",
        ),
        pytest.param(
            BenchPlan((a_queue(),), tuple(a_workload(1.0, 2.0) for _ in range(3))),
            7.0,
            id="a full quota works one after the other",
        ),
        pytest.param(
            BenchPlan(
                (a_queue(),), (a_workload(0.0, 1.0), *(a_workload(4.0, 2.0) for _ in range(3)))
            ),
            10.0,
            id="quota that was idle before the rush is lost",
        ),
        pytest.param(
            BenchPlan((a_queue(borrowing=None), a_queue()), (a_workload(0.0, 2.0),) * 4),
            4.0,
            id="a queue borrows what its cohort has",
        ),
        pytest.param(
            BenchPlan(
                (a_queue(borrowing=500), a_queue()), (a_workload(0.0, 3.0, request=500),) * 6
            ),
            6.0,
            id="and no more than its borrowing limit",
        ),
        pytest.param(BenchPlan((a_queue(),), ()), 0.0, id="nothing to do takes no time"),
    ],
)
def test_lower_bound(made: BenchPlan, want: float) -> None:
    assert lower_bound_seconds(made) == pytest.approx(want)


def test_the_baseline_is_bounded_by_its_quota() -> None:
    bound = lower_bound_seconds(bench_plan(read(ROOT / "benchmarks" / "baseline.yaml")))
    assert bound == pytest.approx(66.8, abs=0.1)  # 1,320 cpu-seconds of 20 cpu, from 1.2 s on


def test_useful_usage_counts_finished_work_only() -> None:
    made = BenchPlan((a_queue(nominal=2000),), (a_workload(0.0, 2.0), a_workload(0.0, 3.0)))
    assert useful_usage_percent(made, [1], 3.0) == pytest.approx(50.0)
