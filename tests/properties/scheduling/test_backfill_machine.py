"""Random days of queues with backfill, with the cores that ship: in one queue with true limits no
workload starts after the first promise that it got; no workload is left waiting; and a replay of
the log makes every decision and refusal again."""

from __future__ import annotations

from datetime import datetime, timedelta
from random import Random
from typing import Any

import pytest

from admittance.events import facts
from admittance.events.reader import BucketEntry
from admittance.replay.decision import repeat
from admittance.replay.logged_decisions import LoggedDecision
from admittance.scheduling.state.config import CohortFairSharing, Config
from admittance.workload.conditions import Type, find
from admittance.workload.due_times import execution_end
from support.cores.stepped_cores import SteppedCores
from support.cores.stepped_scheduler import groups
from support.examples import examples

MINUTE = timedelta(minutes=1)
CYCLES = timedelta(seconds=20)
"""The time that cycles take in these days: one second each."""


class Day(SteppedCores):
    """Ends jobs at their limits at the latest, and notes the first promise of each head."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.names: list[str] = []
        self.first: dict[str, datetime] = {}
        self.buckets: dict[int, list[BucketEntry]] = {}
        self.repeated = 0
        self.number = 0

    def job(self, queue: str, cpu: int, minutes: int | None, **spec: Any) -> None:
        self.number += 1
        name = f"w{self.number}"
        self.names.append(name)
        if minutes is not None:
            spec["maximumExecutionTimeSeconds"] = minutes * 60
        self.submit(name, queue, str(cpu), **spec)

    def running(self) -> list[str]:
        return [name for name in self.names if self.phase(name) in ("Admitted", "Running")]

    def pending(self) -> list[str]:
        return [name for name in self.names if self.phase(name) == "Pending"]

    def pass_time(self, minutes: int) -> None:
        until = self.now + minutes * MINUTE
        while True:
            ends = [
                (end, name)
                for name in self.running()
                if (end := execution_end(self.stored(name))) is not None and end <= until
            ]
            if not ends:
                break
            self.now, name = min(ends)
            self.finish(name)
            self.rest()
        self.now = until

    def rest(self) -> None:
        self.settle(300)
        for name in self.pending():
            start = self.scheduler.explain("ns", name, now=self.now).promise
            if start is not None and start.head == f"ns/{name}" and start.at is not None:
                self.first.setdefault(name, start.at)

    # The log. ---------------------------------------------------------------------------------

    def cycle(self, *, apply: bool = True, later: float = 1) -> list[facts.Decision]:
        self.buckets[self.revision] = self.entries()
        return super().cycle(apply=apply, later=later)

    def apply(self, decision: facts.Decision) -> None:
        before = [LoggedDecision(at, 1, made) for at, made in enumerate(self.decided)]
        target = LoggedDecision(len(before), 1, decision)
        if isinstance(decision, facts.Assigned) or _is_held_back(decision):
            same = repeat(target, before, self.buckets.__getitem__, self.config or Config())
            assert same.differences == []
            self.repeated += _is_held_back(decision)
        super().apply(decision)


def _is_held_back(decision: facts.Decision) -> bool:
    return (
        isinstance(decision, facts.Refused) and decision.refusal.reason == "WaitingForPromisedStart"
    )


def condition_time(day: Day, name: str) -> datetime:
    """When the workload was admitted."""
    admitted = find(day.stored(name), Type.ADMITTED)
    assert admitted is not None and admitted.last_transition_time is not None
    return admitted.last_transition_time


def nothing_is_left_waiting(day: Day) -> None:
    """A scheduler that starts now, and so tries every workload, decides nothing."""
    before = [one for one in day.decided if not isinstance(one, facts.Refused)]
    day.restart_scheduler()
    for _ in range(3):
        day.cycle(later=0)
    assert [one for one in day.decided if not isinstance(one, facts.Refused)] == before


@pytest.mark.parametrize("seed", range(examples(40)))
def test_no_workload_starts_after_its_first_promise_in_one_queue(seed: int) -> None:
    rng = Random(seed)
    day = Day(Config())
    day.put("ResourceFlavor", "spot")
    day.queue("a", resourceGroups=groups(default="6", spot="2"), backfill="Easy")
    for _ in range(rng.randint(10, 30)):
        match rng.choice(("submit", "submit", "wait", "finish")):
            case "submit":
                day.job("a", rng.randint(1, 6), rng.choice((1, 2, 5, 9, 30)))
            case "wait":
                day.pass_time(rng.choice((1, 1, 2, 7)))
            case "finish" if running := day.running():
                day.finish(rng.choice(running))
        day.rest()
    day.pass_time(300)
    assert day.pending() == []
    for name, promised in day.first.items():
        since = condition_time(day, name)
        assert since <= promised + CYCLES, name


@pytest.mark.parametrize("seed", range(examples(60)))
def test_no_workload_of_a_cohort_is_left_waiting_and_replays_agree(seed: int) -> None:
    rng = Random(seed)
    day = Day(Config(fair_sharing=rng.choice((None, None, CohortFairSharing()))))
    for name in "abc":
        a_queue(day, rng, name)
    acts = ("submit", "submit", "submit", "submit", "wait", "finish", "edit", "delete")
    for _ in range(rng.randint(12, 25)):
        match rng.choice(acts):
            case "submit":
                limit = rng.choice((None, 1, 5, 5, 9, 9, 30, 30))
                priority = rng.choice((0, 0, 0, 1))
                day.job(rng.choice("aabc"), rng.randint(1, 7), limit, priority=priority)
            case "wait":
                day.pass_time(rng.choice((1, 1, 2, 7)))
            case "finish" if running := day.running():
                day.finish(rng.choice(running))
            case "edit":
                a_queue(day, rng, rng.choice("abc"))
            case "delete" if pending := day.pending():
                day.publish(facts.Deleted, name := rng.choice(pending))
                day.names.remove(name)
        day.rest()
        nothing_is_left_waiting(day)


def a_queue(day: Day, rng: Random, name: str) -> None:
    day.queue(
        name,
        rng.choice(("co", "co", "co", "")),
        resourceGroups=groups(default=str(rng.randint(1, 4))),
        queueingStrategy="StrictFIFO" if (strict := rng.random() < 0.2) else "BestEffortFIFO",
        backfill="" if strict or rng.random() < 0.3 else "Easy",
        preemption={
            "withinClusterQueue": rng.choice(("Never", "Never", "LowerPriority")),
            "reclaimWithinCohort": rng.choice(("Never", "Never", "Any")),
        },
    )
