"""Searches for victims that leave out victims that would be spared in the end or could not help."""

from __future__ import annotations

import random

import pytest

from admittance.scheduling.preemption import candidates, classical, room
from admittance.scheduling.preemption.room import RemovedVictim
from admittance.scheduling.state.config import Config
from admittance.scheduling.state.workload_info import Queue
from support.cores.stepped_scheduler import SteppedScheduler, groups

POLICIES = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
QUEUES = 5


def a_crowd(seed: int) -> SteppedScheduler:
    """Queues that borrow from each other, and heads that need quota of their own queue as well as
    of others."""
    drawn = random.Random(seed)
    scheduler = SteppedScheduler(Config(preemption=True))
    for n in range(QUEUES):
        scheduler.queue(f"q{n}", "all", resourceGroups=groups(default="10"), preemption=POLICIES)
    for n in range(30):
        queue = f"q{drawn.choice((0, 1, 1, 2, 2, 3, 4))}"
        size = str(drawn.randint(1, 4))
        scheduler.submit(f"w{n}", queue, size, priority=drawn.randint(0, 2), age=100 - n)
        if drawn.random() < 0.8:
            scheduler.settle()
    for n in range(QUEUES):
        scheduler.submit(f"head{n}", f"q{n}", str(drawn.randint(5, 10)), priority=5)
        scheduler.settle()
    return scheduler


def preemptions(scheduler: SteppedScheduler) -> set[tuple[str, str, str]]:
    return {
        (preemption.name, preemption.reason, preemption.by)
        for preemption in scheduler.all_preempted
    }


def no_victims(*_: object) -> list[RemovedVictim]:
    return []


@pytest.mark.parametrize("seed", range(12))
def test_the_short_search_finds_the_same_victims(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = preemptions(a_crowd(seed))
    monkeypatch.setattr(classical._Search, "fit_within_nominal", no_victims)
    assert preemptions(a_crowd(seed)) == short


def test_the_short_search_removes_few_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    fill_back = room.fill_back

    def counted(out: list[RemovedVictim], *rest: object, **more: bool) -> object:
        taken.append(len(out))
        return fill_back(out, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(classical, "fill_back", counted)
    scheduler = SteppedScheduler(Config(preemption=True))
    for n in range(2):
        scheduler.queue(f"q{n}", "all", resourceGroups=groups(default="20"), preemption=POLICIES)
    scheduler.submit("own", "q0", "5", priority=0, age=50)
    for n in range(35):
        scheduler.submit(f"w{n:02}", "q1", "1", priority=0, age=40)
    scheduler.settle()
    scheduler.submit("head", "q0", "17", priority=5)
    scheduler.settle()
    assert {preemption.name for preemption in scheduler.all_preempted} >= {"own"}
    assert len(scheduler.all_preempted) == 13
    assert max(taken) == 13


def test_other_queues_are_not_searched_if_only_the_own_one_helps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[str] = []
    of = candidates.candidates_of

    def noted(queue: Queue, *rest: object) -> object:
        looked.append(queue.name)
        return of(queue, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(candidates, "candidates_of", noted)
    scheduler = SteppedScheduler(Config(preemption=True))
    for n in range(2):
        scheduler.queue(f"q{n}", "all", resourceGroups=groups(default="10"), preemption=POLICIES)
    scheduler.submit("equal", "q0", "5", priority=5, age=50)
    scheduler.submit("other", "q1", "15", priority=0, age=50)
    scheduler.settle()
    scheduler.submit("head", "q0", "8", priority=5)
    scheduler.settle()
    assert preemptions(scheduler) == set()
    assert looked == []
