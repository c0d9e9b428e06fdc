"""Faults of other schedulers: lost heads, queues that drain slowly, quota freed for one workload
and taken by another. Preemption loops: `test_loop_guard`.
"""

from __future__ import annotations

from typing import Any

import pytest

from admittance.scheduling.cycle.nominate import Nominator
from admittance.scheduling.cycle.process import EntryProcessor
from admittance.scheduling.state.config import CohortFairSharing, Config
from admittance.scheduling.state.workload_info import Nomination
from support.cores.stepped_cores import SteppedCores
from support.cores.stepped_scheduler import SteppedScheduler, groups

LOWER: dict[str, Any] = {"preemption": {"withinClusterQueue": "LowerPriority"}}
ANY: dict[str, Any] = {"preemption": {"reclaimWithinCohort": "Any"}}


def test_a_failed_cycle_keeps_its_heads_and_releases_its_quota(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scheduler = SteppedScheduler()
    for name in ("a", "b", "c"):
        scheduler.queue(name, "co", resourceGroups=groups(default="5"), **ANY)
    scheduler.submit("borrows", "b", "10")
    scheduler.settle()
    for name in ("a", "c"):
        scheduler.submit(f"in-{name}", name, "5", age=9)
    sound = Nominator.nominate
    looked_at: list[str] = []

    def fails(self: Nominator, queue, member, *args, **more) -> Nomination:  # type: ignore[no-untyped-def]
        looked_at.append(queue.name)
        if len(looked_at) > 1:
            raise RuntimeError("a bug")
        return sound(self, queue, member, *args, **more)

    monkeypatch.setattr(Nominator, "nominate", fails)
    with pytest.raises(RuntimeError):
        scheduler.cycle()
    monkeypatch.undo()
    assert sorted(scheduler.active()) == ["in-a", "in-c"]
    usage = {
        name: node.cell(("default", "cpu")).usage
        for name, node in scheduler.core.catalog.tree.queues.items()
    }
    assert usage == {"a": 0, "b": 10_000, "c": 0}
    assert sorted(scheduler.settle()) == ["in-a", "in-c"]


def test_quota_held_for_a_cycle_is_released_when_the_cycle_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scheduler = SteppedScheduler()
    for name in ("a", "b"):
        scheduler.queue(name, "co", resourceGroups=groups(default="5"), **ANY)
    scheduler.queue("lender", "co", resourceGroups=groups(default="1"))
    scheduler.submit("borrows", "b", "11")
    scheduler.settle()
    scheduler.submit("owner", "a", "5", age=9)
    scheduler.submit("last", "lender", "1")
    sound = EntryProcessor.process

    def fails(self, entry):  # type: ignore[no-untyped-def]
        if entry.workload.key[1] == "last":
            raise RuntimeError("a bug")
        return sound(self, entry)

    monkeypatch.setattr(EntryProcessor, "process", fails)
    with pytest.raises(RuntimeError):
        scheduler.cycle()
    cell = scheduler.core.catalog.tree.queues["a"].cell(("default", "cpu"))
    assert cell.usage == 0


def test_a_queue_drains_without_waiting_for_writes() -> None:
    scheduler = SteppedScheduler()
    scheduler.queue("cq", resourceGroups=groups(default="300"))
    for n in range(300):
        scheduler.submit(f"w{n:03}", "cq", "1", age=300 - n)
    drained: list[str] = []
    while scheduler.core.has_work():
        drained += scheduler.cycle(confirm=False)
        assert len(scheduler.decided) == 1
    assert drained == [f"w{n:03}" for n in range(300)]


def test_workloads_that_do_not_fit_block_no_other() -> None:
    scheduler = SteppedScheduler()
    scheduler.queue("cq", resourceGroups=groups(default="10"))
    for n in range(200):
        scheduler.submit(f"big-{n}", "cq", "20", age=900 - n)
    scheduler.submit("small", "cq", "1")
    scheduler.cycle()
    assert scheduler.cycle() == ["small"], "equals are parked as one"
    scheduler.finish("small")
    scheduler.submit("another", "cq", "1")
    scheduler.cycle()
    assert scheduler.cycle() == ["another"], "also when all are woken"


@pytest.mark.parametrize("restarts", [False, True])
def test_freed_quota_goes_to_the_preemptor(restarts: bool) -> None:
    cores = SteppedCores()
    cores.queue("cq", resourceGroups=groups(default="10"), **LOWER)
    cores.submit("low", "cq", "10", priority=-1)
    cores.settle()
    cores.submit("high", "cq", "10", priority=1)
    cores.slow_jobs.add("low")
    cores.settle()
    assert cores.phase("low") == "Evicting"
    cores.submit("older", "cq", "10", priority=1, age=900)
    if restarts:
        cores.restart_scheduler()
    cores.settle()
    cores.stop("low")
    cores.settle()
    assert cores.phases("high", "older", "low") == ["Admitted", "Pending", "Pending"]
    assert cores.preempted() == [("low", "high")]


def test_a_requeued_victim_does_not_take_its_preemptors_quota() -> None:
    cores = SteppedCores()
    cores.queue("cq", resourceGroups=groups(default="10"), **LOWER)
    cores.submit("low", "cq", "10", age=900)
    cores.settle()
    cores.submit("high", "cq", "6", priority=1)
    cores.settle()
    assert cores.phases("high", "low") == ["Admitted", "Pending"]
    assert cores.preempted() == [("low", "high")]


def test_under_fair_sharing_a_search_in_a_queue_without_a_cohort_ends() -> None:
    cores = SteppedCores(Config(fair_sharing=CohortFairSharing()))
    cores.queue("cq", resourceGroups=groups(default="10"), **LOWER)
    for n in range(3):
        cores.submit(f"low-{n}", "cq", "3")
    cores.settle()
    cores.submit("high", "cq", "9", priority=1)
    cores.submit("never", "cq", "11", priority=2)
    cores.settle()
    assert cores.phases("high", "never") == ["Admitted", "Pending"]
    assert len(cores.preempted()) == 3
