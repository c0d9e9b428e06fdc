"""What planners and their victims are charged for together: by direct calls."""

from __future__ import annotations

import pytest

from admittance.events.shapes import PendingPreemption, PlannedVictim
from admittance.scheduling.state.held import charging
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.workload_info import Queue, WorkloadInfo
from support.builders import NOON, an_admission
from support.cores.stepped_scheduler import SteppedScheduler, groups

CPU = ("default", "cpu")


class House:
    """A queue with quota of 10000, and workloads that are charged by hand."""

    def __init__(self) -> None:
        scheduler = SteppedScheduler()
        scheduler.queue("cq", resourceGroups=groups(default="10"))
        self.state: SchedulerState = scheduler.core._state
        self.queue: Queue = self.state.queues["cq"]
        assert self.queue.node is not None
        self.cell = self.queue.node.cells[CPU]

    def workload(self, name: str) -> WorkloadInfo:
        made = WorkloadInfo(("ns", name))
        made.uid = f"uid-{name}"
        made.queued_at = made.created_at = NOON
        self.state.workloads[made.key] = made
        return made

    def charge(self, workload: WorkloadInfo, amount: int) -> None:
        cells = [(self.cell, amount)]
        charging.charge(self.state, workload, self.queue, an_admission("cq"), cells)

    def plan(self, planner: WorkloadInfo, *victims: str, uid: str = "") -> None:
        planned = tuple(
            PlannedVictim(namespace="ns", name=name, uid=uid or f"uid-{name}", reason="r")
            for name in victims
        )
        charging.set_plan(self.state, planner, PendingPreemption(victims=planned))

    @property
    def used(self) -> int:
        return self.cell.usage


@pytest.mark.parametrize(
    ("planner", "victim", "used"), [(4, 3, 4), (3, 4, 4), (4, 4, 4), (0, 3, 3), (3, 0, 3)]
)
@pytest.mark.parametrize("first", ["planner", "victim", "plan"])
def test_a_planner_and_its_victim_count_as_the_larger_one(
    first: str, planner: int, victim: int, used: int
) -> None:
    house = House()
    high, low = house.workload("high"), house.workload("low")
    if first == "plan":
        house.plan(high, "low")
    if first == "planner":
        house.charge(high, planner)
        house.plan(high, "low")
    house.charge(low, victim)
    if first != "planner":
        house.charge(high, planner)
        house.plan(high, "low")
    assert house.used == used
    charging.set_plan(house.state, high, None)
    assert house.used == planner + victim
    assert not house.state.planners_by_victim
    assert not house.state.planning_domains


def test_a_victim_that_is_released_and_charged_again_is_shared_again() -> None:
    house = House()
    high, low, other = (house.workload(name) for name in ("high", "low", "other"))
    house.charge(high, 4)
    house.charge(low, 3)
    house.plan(high, "low")
    charging.release(house.state, low)
    assert house.used == 4
    house.charge(other, 1)
    assert house.used == 5, "others are charged in full"
    house.charge(low, 3)
    assert house.used == 5
    charging.release(house.state, high)
    assert house.used == 4
    house.charge(high, 2)
    assert house.used == 4


def test_two_planners_of_one_victim_are_charged_with_the_rest_of_it() -> None:
    house = House()
    one, two, low = (house.workload(name) for name in ("one", "two", "low"))
    house.charge(low, 5)
    house.charge(one, 2)
    house.charge(two, 2)
    house.plan(one, "low")
    house.plan(two, "low")
    assert house.used == 5
    assert set(house.state.planners_by_victim) == {low.key}
    charging.set_plan(house.state, one, None)
    assert set(house.state.planners_by_victim) == {low.key}
    assert house.used == 7


def test_victims_in_two_queues_are_shared_in_each_node_above_them() -> None:
    scheduler = SteppedScheduler()
    for name in ("near", "far"):
        scheduler.queue(name, "co", resourceGroups=groups(default="10"))
    house = House()
    house.state = scheduler.core._state
    house.queue = house.state.queues["near"]
    far = house.state.queues["far"]
    assert house.queue.node is not None and far.node is not None
    house.cell, far_cell = house.queue.node.cells[CPU], far.node.cells[CPU]
    high, low, other = (house.workload(name) for name in ("high", "low", "other"))
    house.charge(high, 4)
    house.charge(low, 3)
    charging.charge(house.state, other, far, an_admission("far"), [(far_cell, 2)])
    above = house.cell.parent
    assert above is not None
    for victims, used in (
        (("low", "other"), (4, 2, 5)),
        (("other", "low"), (4, 2, 5)),
        (("low",), (4, 2, 6)),
        (("other",), (7, 2, 7)),
    ):
        house.plan(high, *victims)
        assert (house.used, far_cell.usage, above.usage) == used
    charging.set_plan(house.state, high, None)
    assert (house.used, far_cell.usage, above.usage) == (7, 2, 9)


@pytest.mark.parametrize(
    ("victims", "uid"), [((), ""), (("gone",), ""), (("low",), "uid-other"), (("high",), "")]
)
def test_a_plan_without_its_victims_shares_nothing(victims: tuple[str, ...], uid: str) -> None:
    house = House()
    high, low = house.workload("high"), house.workload("low")
    house.charge(high, 4)
    house.charge(low, 3)
    house.plan(high, *victims, uid=uid)
    assert house.used == 7
    assert list(charging.outstanding_victims(house.state, high)) == []
    assert (high.pending_preemption is None) is (not victims)


def test_a_victim_with_newer_quota_is_no_victim_of_the_plan() -> None:
    house = House()
    high, low = house.workload("high"), house.workload("low")
    house.charge(high, 4)
    house.charge(low, 3)
    for since, reserved_at, found in ((None, NOON, [low]), (NOON, NOON, [low]), (NOON, None, [])):
        low.reserved_at = reserved_at
        victim = PlannedVictim(namespace="ns", name="low", uid=low.uid, since=since, reason="r")
        high.pending_preemption = PendingPreemption(victims=(victim,))
        assert list(charging.outstanding_victims(house.state, high)) == found
