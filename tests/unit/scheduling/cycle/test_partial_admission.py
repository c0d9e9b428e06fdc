"""Fewer pods where there is not room for all, and usage that shrinks with pods no longer needed."""

from __future__ import annotations

from typing import Any

import pytest

from admittance.api.workload import ReclaimablePod
from admittance.events.requests.queues import Queues
from admittance.scheduling.cycle.nominate import most_of
from admittance.scheduling.state.config import Config
from support.cores.stepped_scheduler import SteppedScheduler, groups


def a_scheduler(nominal: str, **config: Any) -> SteppedScheduler:
    scheduler = SteppedScheduler(Config(preemption=True, **{"partial_admission": True, **config}))
    within = {"withinClusterQueue": "LowerPriority"}
    scheduler.queue("cq", resourceGroups=groups(default=nominal), preemption=within)
    return scheduler


def pods(count: int, least: int | None) -> dict[str, Any]:
    container = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
    pod_set = {"name": "main", "count": count, "template": {"spec": {"containers": [container]}}}
    return pod_set if least is None else {**pod_set, "minCount": least}


def count(scheduler: SteppedScheduler, name: str) -> int:
    admission = scheduler.admission(name)
    return admission.pod_set_assignments[0].count if admission is not None else 0


@pytest.mark.parametrize(
    ("room", "least", "want"),
    [
        pytest.param("10", 4, 10, id="all pods where there is room for all"),
        pytest.param("7", 4, 7, id="as many as there is room for"),
        pytest.param("4", 4, 4, id="the least that would do"),
        pytest.param("3", 4, 0, id="none where not even the least has room"),
        pytest.param("7", None, 0, id="none where only all would do"),
    ],
)
def test_as_many_pods_are_admitted_as_fit(room: str, least: int | None, want: int) -> None:
    scheduler = a_scheduler(room)
    scheduler.submit("one", "cq")
    scheduler.respec("one", podSets=[pods(10, least)])
    scheduler.settle()
    assert count(scheduler, "one") == want


def test_a_workload_with_min_count_0_starts_without_pods() -> None:
    scheduler = a_scheduler("0")
    for name, least in (("all", None), ("some", 1), ("any", 0)):
        scheduler.submit(name, "cq")
        scheduler.respec(name, podSets=[pods(10, least)])
    scheduler.settle()
    admitted = {name: scheduler.admission(name) for name in ("all", "some", "any")}
    assert admitted["all"] is admitted["some"] is None
    assert admitted["any"] is not None
    assert [assignment.count for assignment in admitted["any"].pod_set_assignments] == [0]


def test_all_pods_by_preemption_come_before_fewer_without() -> None:
    scheduler = a_scheduler("10")
    scheduler.submit("low", "cq", "6", priority=-1)
    scheduler.settle()
    scheduler.submit("high", "cq")
    scheduler.respec("high", podSets=[pods(8, 2)])
    scheduler.settle()
    assert [preemption.name for preemption in scheduler.all_preempted] == ["low"]
    assert count(scheduler, "high") == 8


def test_reclaimed_pods_free_quota_once_after_a_partial_admission() -> None:
    scheduler = a_scheduler("6")
    scheduler.submit("one", "cq")
    scheduler.respec("one", podSets=[pods(10, 2)])
    scheduler.settle()
    assert count(scheduler, "one") == 6
    for gone, left in ((3, 6_000), (4, 6_000), (7, 3_000), (10, 0)):
        scheduler.change("one", reclaimable_pods=(ReclaimablePod(name="main", count=gone),))
        (status,) = scheduler.core.queues(Queues(cluster_queue="cq")).cluster_queues
        assert sum(usage.reserved for usage in status.usage) == left


def test_with_the_feature_off_no_reservation_is_revoked() -> None:
    scheduler = a_scheduler("7", partial_admission=False)
    scheduler.submit("one", "cq")
    scheduler.respec("one", podSets=[pods(10, 4)])
    scheduler.settle()
    assert scheduler.admission("one") is None


@pytest.mark.parametrize(
    ("counts", "room", "most"),
    [
        pytest.param([(5, None)], 9, None, id="no minCount"),
        pytest.param([(5, 5)], 9, None, id="no pod can be spared"),
        pytest.param([(2, 1)], 9, [2], id="all fit, one can be spared"),
        pytest.param([(2, 1)], 1, [1], id="the least"),
        pytest.param([(2, 1)], 0, None, id="less than the least"),
        pytest.param([(9, 2)], 5, [5], id="between"),
        pytest.param([(9, 2)], 2, [2], id="exactly the least"),
        pytest.param([(4, None), (4, 0)], 6, [4, 2], id="only one can be reduced"),
        pytest.param([(4, 2), (8, 4)], 9, [3, 6], id="by the same fraction"),
        pytest.param([(4, 2), (8, 4)], 6, [2, 4], id="all to the least"),
        pytest.param([(4, 2), (8, 4)], 5, None, id="too little for all"),
    ],
)
def test_the_largest_numbers_of_pods_that_fit_are_found(
    counts: list[tuple[int, int | None]], room: int, most: list[int] | None
) -> None:
    assert most_of(counts, lambda pods: pods if sum(pods) <= room else None) == most
