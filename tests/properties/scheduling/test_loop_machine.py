"""Random lending between queues: while no workload finishes, the scheduler reaches a stable state,
and preemptions of one queue's quota stay within the loop guard.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, example, given, settings

from admittance.events import facts
from admittance.scheduling.state.config import (
    FINAL_SHARE,
    INITIAL_SHARE,
    CohortFairSharing,
    Config,
    PreemptionLoops,
)
from support.cores.stepped_cores import SteppedCores
from support.cores.stepped_scheduler import groups, quota
from support.examples import examples

TIMES = PreemptionLoops().times
QUEUES = ("a", "b", "c")
STRATEGIES = [None, (FINAL_SHARE,), (INITIAL_SHARE,), (FINAL_SHARE, INITIAL_SHARE)]

limits = st.one_of(st.none(), st.none(), st.integers(0, 5))
queues = st.fixed_dictionaries(
    {
        "cohort": st.sampled_from(["left", "right", "root"]),
        "nominal": st.integers(0, 4),
        "borrow": limits,
        "within": st.sampled_from(["Never", "LowerPriority", "LowerOrNewerEqualPriority"]),
        "reclaim": st.sampled_from(["Never", "LowerPriority", "Any", "Any"]),
        "borrows": st.booleans(),
        "strict": st.sampled_from([False, False, True]),
        "weight": st.sampled_from([1, 1, 0, 2, 3]),
    }
)
workloads = st.tuples(st.sampled_from(QUEUES), st.integers(1, 5), st.integers(-1, 2))


def configured_cores(
    specs: list[dict[str, Any]], strategies: tuple[str, ...] | None
) -> SteppedCores:
    fair = CohortFairSharing(strategies=strategies) if strategies else None
    cores = SteppedCores(Config(fair_sharing=fair))
    for cohort in ("left", "right"):
        cores.put("Cohort", cohort, {"parentName": "root"})
    for name, spec in zip(QUEUES, specs, strict=True):
        preemption: dict[str, Any] = {
            "withinClusterQueue": spec["within"],
            "reclaimWithinCohort": spec["reclaim"],
        }
        if spec["borrows"] and spec["reclaim"] != "Never":
            preemption["borrowWithinCohort"] = {"policy": "LowerPriority"}
        borrow = None if spec["borrow"] is None else str(spec["borrow"])
        cores.queue(
            name,
            spec["cohort"],
            resourceGroups=groups(default=quota(str(spec["nominal"]), borrow=borrow)),
            preemption=preemption,
            queueingStrategy="StrictFIFO" if spec["strict"] else "BestEffortFIFO",
            fairSharing={"weight": spec["weight"]},
        )
    return cores


def a_queue(cohort: str, nominal: int, within: str, **more: Any) -> dict[str, Any]:
    plain = {"borrow": None, "reclaim": "Any", "borrows": True, "strict": False, "weight": 1}
    return {"cohort": cohort, "nominal": nominal, "within": within, **plain, **more}


RING = [
    a_queue("left", 2, "LowerPriority"),
    a_queue("left", 1, "Never", reclaim="Never"),
    a_queue("left", 3, "LowerOrNewerEqualPriority"),
]


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(queues, min_size=3, max_size=3),
    st.lists(workloads, min_size=3, max_size=8),
    st.sampled_from(STRATEGIES),
    st.booleans(),
)
@example(RING, [("c", 4, 0), ("c", 3, -1), ("a", 5, 1)], None, False)
def test_the_scheduler_reaches_a_stable_state(
    specs: list[dict[str, Any]],
    asked: list[tuple[str, int, int]],
    strategies: tuple[str, ...] | None,
    one_by_one: bool,
) -> None:
    cores = configured_cores(specs, strategies)
    for n, (queue, cpu, priority) in enumerate(asked):
        cores.submit(f"w{n}", queue, str(cpu), priority=priority, age=100 - n)
        if one_by_one:
            cores.settle(150)
    cores.settle(150)
    priorities = {f"w{n}": priority for n, (_, _, priority) in enumerate(asked)}
    for (victim, preemptor), times in Counter(cores.preempted()).items():
        if priorities[victim] >= priorities[preemptor]:
            assert times <= TIMES
    for decision in cores.decided:
        if isinstance(decision, facts.Preempted):
            assert decision.times >= 1
