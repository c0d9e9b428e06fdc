"""What went wrong elsewhere, and must not here: heads that are lost, queues that drain slowly, room
that is made for one and taken by another. Preemption loops: `test_loop_guard`.
"""

from __future__ import annotations

from typing import Any

import pytest

from admittance.scheduling.cycle.nominate import Nominator
from admittance.scheduling.cycle.process import EntryProcessor
from admittance.scheduling.state.config import Config, FairSharing
from admittance.scheduling.state.workload_info import Nomination
from support.cores.scheduling_story import Story, groups

from living import Life

LOWER: dict[str, Any] = {"preemption": {"withinClusterQueue": "LowerPriority"}}
ANY: dict[str, Any] = {"preemption": {"reclaimWithinCohort": "Any"}}


def test_a_failed_cycle_keeps_its_heads_and_releases_its_quota(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story = Story()
    for name in ("a", "b", "c"):
        story.queue(name, "co", resourceGroups=groups(default="5"), **ANY)
    story.submit("borrows", "b", "10")
    story.settle()
    for name in ("a", "c"):
        story.submit(f"in-{name}", name, "5", age=9)
    sound = Nominator.nominate
    looked_at: list[str] = []

    def fails(self: Nominator, queue, member, *args, **more) -> Nomination:  # type: ignore[no-untyped-def]
        looked_at.append(queue.name)
        if len(looked_at) > 1:
            raise RuntimeError("a bug")
        return sound(self, queue, member, *args, **more)

    monkeypatch.setattr(Nominator, "nominate", fails)
    with pytest.raises(RuntimeError):
        story.cycle()
    monkeypatch.undo()
    assert sorted(story.active()) == ["in-a", "in-c"]
    usage = {
        name: node.cell(("default", "cpu")).usage
        for name, node in story.core.catalog.tree.queues.items()
    }
    assert usage == {"a": 0, "b": 10_000, "c": 0}
    assert sorted(story.settle()) == ["in-a", "in-c"]


def test_quota_held_for_a_cycle_is_released_when_the_cycle_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story = Story()
    for name in ("a", "b"):
        story.queue(name, "co", resourceGroups=groups(default="5"), **ANY)
    story.queue("lender", "co", resourceGroups=groups(default="1"))
    story.submit("borrows", "b", "11")
    story.settle()
    story.submit("owner", "a", "5", age=9)
    story.submit("last", "lender", "1")
    sound = EntryProcessor.process

    def fails(self, entry):  # type: ignore[no-untyped-def]
        if entry.workload.key[1] == "last":
            raise RuntimeError("a bug")
        return sound(self, entry)

    monkeypatch.setattr(EntryProcessor, "process", fails)
    with pytest.raises(RuntimeError):
        story.cycle()
    cell = story.core.catalog.tree.queues["a"].cell(("default", "cpu"))
    assert cell.usage == 0


def test_a_queue_drains_without_waiting_for_writes() -> None:
    story = Story()
    story.queue("cq", resourceGroups=groups(default="300"))
    for n in range(300):
        story.submit(f"w{n:03}", "cq", "1", age=300 - n)
    drained: list[str] = []
    while story.core.has_work():
        drained += story.cycle(confirm=False)
        assert len(story.decided) == 1
    assert drained == [f"w{n:03}" for n in range(300)]


def test_workloads_that_do_not_fit_block_no_other() -> None:
    story = Story()
    story.queue("cq", resourceGroups=groups(default="10"))
    for n in range(200):
        story.submit(f"big-{n}", "cq", "20", age=900 - n)
    story.submit("small", "cq", "1")
    story.cycle()
    assert story.cycle() == ["small"], "equals are parked as one"
    story.finish("small")
    story.submit("another", "cq", "1")
    story.cycle()
    assert story.cycle() == ["another"], "also when all are woken"


@pytest.mark.parametrize("restarts", [False, True])
def test_freed_quota_goes_to_the_preemptor(restarts: bool) -> None:
    life = Life()
    life.queue("cq", resourceGroups=groups(default="10"), **LOWER)
    life.submit("low", "cq", "10", priority=-1)
    life.settle()
    life.submit("high", "cq", "10", priority=1)
    life.stubborn.add("low")
    life.settle()
    assert life.phase("low") == "Evicting"
    life.submit("older", "cq", "10", priority=1, age=900)
    if restarts:
        life.restart()
    life.settle()
    life.stop("low")
    life.settle()
    assert life.phases("high", "older", "low") == ["Admitted", "Pending", "Pending"]
    assert life.preempted() == [("low", "high")]


def test_a_requeued_victim_does_not_take_its_preemptors_quota() -> None:
    life = Life()
    life.queue("cq", resourceGroups=groups(default="10"), **LOWER)
    life.submit("low", "cq", "10", age=900)
    life.settle()
    life.submit("high", "cq", "6", priority=1)
    life.settle()
    assert life.phases("high", "low") == ["Admitted", "Pending"]
    assert life.preempted() == [("low", "high")]


def test_under_fair_sharing_a_search_in_a_queue_without_a_cohort_ends() -> None:
    life = Life(Config(fair_sharing=FairSharing()))
    life.queue("cq", resourceGroups=groups(default="10"), **LOWER)
    for n in range(3):
        life.submit(f"low-{n}", "cq", "3")
    life.settle()
    life.submit("high", "cq", "9", priority=1)
    life.submit("never", "cq", "11", priority=2)
    life.settle()
    assert life.phases("high", "never") == ["Admitted", "Pending"]
    assert len(life.preempted()) == 3
