"""Backfill in the scheduler's cycles: what may start beside the promise of a head, and when the
workloads that wait for the promised start compete again (docs/spec/scheduling.md#4.8)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from admittance.scheduling.state.config import CohortFairSharing, Config
from support.builders import NOON
from support.cores.stepped_scheduler import SteppedScheduler, groups

MINUTE = timedelta(minutes=1)
HELD = "WaitingForPromisedStart"


class Day(SteppedScheduler):
    """ClusterQueue ``a`` with backfill and 4 cpu."""

    def __init__(
        self, config: Config | None = None, *, cpu: Any = "4", cohort: str = "", **spec: Any
    ) -> None:
        super().__init__(config)
        self.queue("a", cohort, resourceGroups=groups(default=cpu), backfill="Easy", **spec)

    def job(
        self, name: str, cpu: int, minutes: float | None = None, *, queue: str = "a", **more: Any
    ) -> None:
        """Submits a workload with this time limit; later ones are younger."""
        self.now += timedelta(seconds=1)
        age = -(self.now - NOON).total_seconds()
        spec = {**more.pop("spec", {})}
        if minutes is not None:
            spec["maximumExecutionTimeSeconds"] = round(minutes * 60)
        self.submit(name, queue, str(cpu), age=age, spec=spec, **more)

    def start(self, *jobs: tuple[str, int, float | None]) -> None:
        for name, cpu, minutes in jobs:
            self.job(name, cpu, minutes)
        assert sorted(self.settle()) == sorted(name for name, _, _ in jobs)

    def reasons(self) -> dict[str, str]:
        """Why the pending workloads wait."""
        return {
            name: self.why(name).reason
            for name, stored in self.stored.items()
            if stored.status.admission is None
        }


@pytest.mark.parametrize(
    ("cpu", "minutes", "starts"),
    [
        pytest.param(1, 4, True, id="ends before the promised time"),
        pytest.param(1, 6, False, id="ends after it"),
        pytest.param(1, None, False, id="has no limit"),
    ],
)
def test_a_later_workload_starts_only_if_it_does_not_delay_the_head(
    cpu: int, minutes: float | None, starts: bool
) -> None:
    day = Day()
    day.start(("long", 1, None), ("short", 2, 5))
    day.job("big", 3)
    day.job("small", cpu, minutes)
    assert day.settle() == (["small"] if starts else [])
    assert day.reasons() == {"big": "WaitingForQuota"} | ({} if starts else {"small": HELD})


def test_a_workload_that_leaves_room_at_the_promised_time_starts_beside_it() -> None:
    day = Day()
    day.start(("short", 3, 5))
    day.job("big", 3)
    day.job("small", 1)
    day.job("more", 1)
    assert day.settle() == ["small"]
    day.finish("short")
    assert day.settle() == ["big"]
    day.finish("small")
    assert day.settle() == ["more"]


def test_without_the_field_a_small_workload_passes_the_head() -> None:
    day = Day()
    day.queue("a", resourceGroups=groups(default="4"))
    day.start(("short", 3, 5))
    day.job("big", 4)
    day.job("small", 1)
    assert day.settle() == ["small"]


def test_no_promise_holds_workloads_back_while_a_holder_in_the_way_has_no_limit() -> None:
    day = Day()
    day.start(("endless", 3, None))
    day.job("big", 4)
    day.job("small", 1)
    assert day.settle() == ["small"]


# What ends or changes a promise. ----------------------------------------------------------------


def _starts(day: Day) -> None:
    day.finish("short")


def _leaves(day: Day) -> None:
    day.gone("big")


def _stops(day: Day) -> None:
    day.respec("big", active=False)


def _shrinks(day: Day) -> None:
    day.respec("big", podSets=[
        {"name": "main", "count": 1,
         "template": {"spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}}}
    ])  # fmt: skip


def _loses_limit(day: Day) -> None:
    day.respec("short", maximumExecutionTimeSeconds=None)


def _turns_off(day: Day) -> None:
    day.queue("a", resourceGroups=groups(default="4"))


def _grows(day: Day) -> None:
    day.queue("a", resourceGroups=groups(default="9"), backfill="Easy")


def _gets_a_limit(day: Day) -> None:
    day.respec("small", maximumExecutionTimeSeconds=60)


def _moves(day: Day) -> None:
    day.put("Cohort", "co", {})
    day.queue("b", "co", resourceGroups=groups(default="1"))
    day.respec("big", queueName="b")


def _gets_a_check(day: Day) -> None:
    """The head waits for something else than quota."""
    day.put("LocalQueue", "held", {"clusterQueue": "a", "stopPolicy": "Hold"}, namespace="ns")
    day.respec("big", queueName="held")


@pytest.mark.parametrize(
    "change",
    [_starts, _leaves, _stops, _shrinks, _loses_limit, _turns_off, _grows, _gets_a_limit, _moves,
     _gets_a_check],
)  # fmt: skip
def test_a_workload_that_was_held_back_starts_when_the_promise_is_over(
    change: Callable[[Day], None],
) -> None:
    day = Day()
    day.start(("short", 3, 5))
    day.job("big", 4)
    day.job("small", 1)
    assert (day.settle(), day.parked()) == ([], ["big", "small"])
    change(day)
    day.now += MINUTE
    if change in (_starts, _shrinks):
        assert day.settle() == ["big"]
        day.finish("big")
    assert "small" in day.settle()


def test_a_promise_that_moves_to_a_later_time_lets_more_start() -> None:
    day = Day()
    day.start(("short", 3, 5))
    day.job("big", 4)
    day.job("small", 1, 9)
    assert day.settle() == []
    day.respec("short", maximumExecutionTimeSeconds=20 * 60)
    assert day.settle() == ["small"]


def test_the_head_keeps_its_promise_while_another_one_starts_ahead_of_it() -> None:
    day = Day()
    day.start(("short", 2, 5))
    day.job("big", 4)
    day.job("small", 1)
    assert day.settle() == []
    day.job("urgent", 1, 1, priority=9)
    assert day.settle() == ["urgent"]
    assert day.reasons() == {"big": "WaitingForQuota", "small": HELD}


def test_a_head_that_can_never_start_has_no_promise() -> None:
    day = Day()
    day.start(("short", 3, 5))
    day.job("huge", 9)
    day.job("gpu", 1, pods=[{"requests": {"gpu": "1"}}])
    day.job("big", 4)
    day.job("small", 1)
    assert day.settle() == []
    assert day.reasons()["small"] == HELD
    day.gone("big")
    assert day.settle() == ["small"]


def test_the_scheduler_rests_while_the_end_of_a_holder_is_not_known_to_the_second() -> None:
    day = Day()
    day.admits = False
    day.job("short", 3, 5)
    assert day.settle() == ["short"]
    day.job("big", 4)
    day.job("small", 1)
    assert day.settle() == []
    day.now += MINUTE
    day.core.flush("a")
    assert day.settle() == []
    day.now += 9 * MINUTE
    assert not day.core.has_work()


# Other queues of the cohort. --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cpu", "minutes", "starts"),
    [
        pytest.param(2, None, True, id="within its own quota"),
        pytest.param(3, 4, True, id="borrows and ends in time"),
        pytest.param(3, None, False, id="borrows"),
    ],
)
def test_another_queue_is_held_back_only_where_it_borrows(
    cpu: int, minutes: float | None, starts: bool
) -> None:
    day = Day(cohort="co")
    day.queue("b", "co", resourceGroups=groups(default="2"))
    day.start(("short", 3, 5))
    day.job("big", 6)
    day.job("other", cpu, minutes, queue="b")
    assert day.settle() == (["other"] if starts else [])
    if not starts:
        assert day.reasons()["other"] == HELD
        day.gone("big")
        assert day.settle() == ["other"]


def test_the_head_of_a_strict_queue_stays_at_its_head_while_it_is_held_back() -> None:
    day = Day(cohort="co")
    day.queue("b", "co", resourceGroups=groups(default="2"), queueingStrategy="StrictFIFO")
    day.start(("short", 3, 5))
    day.job("big", 6)
    day.job("first", 3, queue="b")
    day.job("second", 1, queue="b")
    assert day.settle() == []
    assert day.reasons()["first"] == HELD
    day.gone("big")
    assert day.settle() == ["first", "second"][:1]


def test_a_head_with_victims_needs_no_promise() -> None:
    day = Day(preemption={"withinClusterQueue": "LowerPriority"})
    day.start(("short", 3, 5))
    day.job("big", 4, priority=1)
    day.job("small", 1)
    assert day.cycle(confirm=False) == []
    assert [one.name for one in day.preempted] == ["short"]


def test_a_workload_does_not_preempt_past_the_promise() -> None:
    """The victim's quota is promised to the head, which may not preempt."""
    day = Day(cohort="co", preemption={"withinClusterQueue": "LowerPriority"})
    day.start(("old", 2, 5))
    day.job("victim", 2, 5, priority=-5)
    assert day.settle() == ["victim"]
    day.job("big", 4, priority=0)
    day.job("small", 2, priority=-1)
    assert day.settle() == []
    assert day.all_preempted == []
    assert day.reasons()["small"] == HELD


# What else decides about a promise. -------------------------------------------------------------


@pytest.mark.parametrize(
    ("controller", "starts"), [("admittance.dev/machines", True), ("ctl-other", False)]
)
def test_only_the_check_for_machines_leaves_the_begin_of_a_run_known(
    controller: str, starts: bool
) -> None:
    day = Day(cohort="co")
    day.put(
        "AdmissionCheck", "gate", {"controllerName": controller},
        status={"conditions": [{"type": "Active", "status": "True"}]},
    )  # fmt: skip
    day.queue("b", "co", resourceGroups=groups(default="1"), admissionChecks=["gate"])
    day.start(("short", 4, 5))
    day.job("big", 5)
    day.queue("c", "co", resourceGroups=groups(default="1"))
    day.job("other", 2, 4, queue="b")
    assert day.settle() == (["other"] if starts else [])


def test_an_evicted_workload_counts_as_ending_now() -> None:
    day = Day()
    day.start(("endless", 2, None), ("long", 1, 60))
    day.job("big", 3)
    day.job("small", 1, 30)
    assert day.settle() == ["small"], "no promise: the end of endless is not known"
    day.change("endless", conditions={"Evicted": (True, "Deactivated")})
    day.finish("small")
    day.job("more", 1, 30)
    assert day.settle() == []
    assert day.reasons() == {"big": "WaitingForQuota", "more": HELD}


def test_a_head_that_may_start_with_fewer_pods_is_promised_the_fewest() -> None:
    day = Day(Config(partial_admission=True))
    day.start(("long", 2, 60), ("short", 2, 5))
    pods = [{"name": "main", "count": 4, "requests": {"cpu": "1"}}]
    day.job("big", 4, pods=pods)
    day.respec("big", podSets=[{
        "name": "main", "count": 4, "minCount": 2,
        "template": {"spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}},
    }])  # fmt: skip
    day.settle()
    promise = day.why("big").promise
    assert promise is not None
    assert promise.after == ("ns/short",)


def test_the_promise_is_for_the_flavor_that_is_free_first() -> None:
    day = Day()
    day.flavor("spot")
    day.queue("a", resourceGroups=groups(default="4", spot="4"), backfill="Easy")
    day.start(("long", 4, 60), ("short", 3, 5))
    day.job("big", 4)
    day.job("small", 1)
    assert day.settle() == []
    day.finish("long")
    assert day.settle() == ["big", "small"], "big takes the first flavor, small the second"


def test_a_workload_that_takes_nothing_of_the_promised_flavor_starts() -> None:
    day = Day()
    day.flavor("spot")
    day.queue("a", resourceGroups=groups(default="4", spot="2"), backfill="Easy")
    day.start(("short", 4, 5))
    day.job("big", 4)
    day.job("small", 2)
    assert day.settle() == ["small"]
    assert day.flavors("small") == [{"cpu": "spot"}]


def test_kueues_mode_knows_no_promise() -> None:
    day = Day(Config(as_kueue=True))
    day.job("short", 3, 5)
    day.cycle()
    day.job("big", 4)
    day.job("small", 1)
    assert "small" in [*day.cycle(), *day.cycle()]


def test_fair_sharing_tries_heads_beside_the_promise_in_its_own_order() -> None:
    day = Day(Config(fair_sharing=CohortFairSharing()), cohort="co")
    for name in "bc":
        day.queue(name, "co", resourceGroups=groups(default="2"))
    day.start(("short", 6, 5))
    day.job("big", 8)
    day.job("lender", 2, queue="b")
    assert day.settle() == ["lender"]
    day.job("borrower", 1, queue="b")
    assert day.settle() == []
