"""While victims stop slowly, no other workload is preempted for the same quota, and the scheduler
decides like its reference."""

from __future__ import annotations

from datetime import timedelta
from random import Random
from typing import Any

import pytest

from admittance.events.facts import Assigned, Preempted
from admittance.events.requests.queues import PendingQuery
from admittance.replay.minimal_system import NEVER, MinimalSystem, config_of_kueue, settle_result
from admittance.replay.scenario import IDLE, perform_step

from twin.compare import in_shape
from twin.draw import scenario
from twin.slow import CYCLES, Going, SlowPlay, gone_in

FAMILIES = (
    "preemption",
    "reclaim",
    "borrow-within-cohort",
    "hierarchical",
    "fungibility",
    "fair-sharing",
    "partial-admission",
    "mixed",
)


class Slow:
    """The scheduler, and what of its decisions is still on its way."""

    def __init__(self, world: MinimalSystem) -> None:
        self.world = world
        self.going: list[Going] = []

    def settle(self) -> int:
        """As `SlowPlay.settle`."""
        world = self.world
        world.cycle = idle = 0
        while world.cycle < CYCLES:
            left = self.let_go(world.cycle)
            competes = world.scheduler.wake_due(now=world.now)
            if (not competes or idle >= IDLE) and not self.going:
                world.cycle -= idle
                break
            world.now += timedelta(seconds=1)
            world.cycle += 1
            if not competes:
                continue
            before = self.standing()
            acted = self.decide()
            idle = 0 if acted or left or self.standing() != before else idle + 1
        self.let_go(world.cycle + CYCLES)
        return world.cycle

    def standing(self) -> set[tuple[str, bool]]:
        rows = self.world.scheduler.pending(PendingQuery(limit=NEVER)).rows
        return {(row.name, row.parked) for row in rows if row.position}

    def let_go(self, cycle: int) -> bool:
        due = sorted(pair for pair in self.going if pair[0] <= cycle)
        for victim in due:
            self.going.remove(victim)
            _, name, reason, by = victim
            if self.world.stored[name].status.admission is not None:
                self.world.evict(name, "Preempted", shown_reason=reason, by=by)
        return bool(due)

    def decide(self) -> bool:
        decided = self.world.scheduler.cycle(now=self.world.now)
        for decision in decided:
            if isinstance(decision, Assigned):
                self.world.reserve(decision)
        for decision in decided:
            if isinstance(decision, Preempted):
                assert all(name != decision.name for _, name, _, _ in self.going), "told twice"
                due, by = gone_in(decision.name, self.world.cycle), decision.by.rpartition("/")[2]
                self.going.append((due, decision.name, decision.reason, by))
                conditions = {"Evicted": (True, "Preempted"), "Preempted": (True, decision.reason)}
                self.world.change(decision.name, conditions)
        return bool(decided)


def lives_alike(drawn: dict[str, Any]) -> None:
    twin = SlowPlay(drawn)
    slow = Slow(MinimalSystem(config_of_kueue(fair_sharing=drawn["fairSharing"])))
    for obj in drawn["objects"]:
        slow.world.apply_manifest(obj, "default")
    slow.world.own_all()
    for step in drawn["steps"]:
        ((what, value),) = step.items()
        twin.step(step)
        if what == "settle":
            got = in_shape(settle_result(slow.world, 0, slow.settle()))
            assert got == twin.outcome()
        else:
            perform_step(slow.world, what, value)


@pytest.mark.parametrize("family", FAMILIES)
def test_both_schedulers_decide_alike_while_victims_stop(family: str) -> None:
    for seed in range(6):
        lives_alike(scenario(family, Random(f"slow-{family}-{seed}")))
