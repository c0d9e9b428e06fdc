"""Random times that workloads run before they are preempted: no workload is preempted before,
unless its setting is only preferred, and no preemptor is left waiting when the time is over.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from random import Random
from typing import Any

import pytest

from admittance.events import facts
from admittance.scheduling.state.config import CohortFairSharing, Config
from admittance.workload.conditions import Type, find
from support.cores.stepped_cores import SteppedCores
from support.cores.stepped_scheduler import groups
from support.examples import examples

QUEUES = ("a", "b", "c")
WAKES_MAX = 60
LONGEST = timedelta(seconds=300)

LEAST = (None, 0, 20, 60, 300)


def a_queue(rng: Random) -> dict[str, Any]:
    """The spec of a queue in which workloads often preempt each other."""
    preemption = {
        "withinClusterQueue": rng.choice(("Never", "LowerPriority", "LowerPriority")),
        "reclaimWithinCohort": rng.choice(("Never", "LowerPriority", "Any")),
    }
    least = rng.choice(LEAST)
    if least is not None:
        policy = rng.choice(("Required", "Required", "Preferred"))
        preemption |= {"minRunSeconds": least, "minRunPolicy": policy}
    return {
        "resourceGroups": groups(default=str(rng.randint(1, 4))),
        "queueingStrategy": rng.choice(("StrictFIFO", "BestEffortFIFO")),
        "preemption": preemption,
    }


class Protected(SteppedCores):
    """Checks every preemption against the stored workloads, as they were when it was decided."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.names: list[str] = []

    def running(self) -> list[str]:
        """The workloads with a job, in the order of their submission."""
        return [name for name in self.names if self.phase(name) in ("Admitted", "Running")]

    def apply(self, decision: facts.Decision) -> None:
        if isinstance(decision, facts.Preempted):
            self.look_at(decision)
        super().apply(decision)

    def look_at(self, decision: facts.Preempted) -> None:
        victim = self.stored(decision.name)
        admitted = find(victim, Type.ADMITTED)
        assert admitted is not None and victim.status.admission is not None
        if admitted.status == "False":
            return
        ready = find(victim, Type.PODS_READY)
        since = (ready or admitted).last_transition_time
        least, policy = self.rule(decision.name, victim.status.admission.cluster_queue)
        assert since is not None and decision.time is not None
        is_old = decision.time >= since + timedelta(seconds=least)
        assert is_old or policy == "Preferred"
        assert ("has not run for minRunSeconds" in decision.message) is not is_old

    def rule(self, name: str, queue: str) -> tuple[int, str]:
        """The seconds and the policy for the workload."""
        kept = self.object_at("WorkloadPriorityClass", "batch")
        if name.startswith("batch") and kept is not None:
            of: Any = kept.object
            if of.min_run_seconds is not None:
                return of.min_run_seconds, of.min_run_policy
        preemption = self.scheduler.catalog.cluster_queues[queue].spec.preemption
        return preemption.min_run_seconds or 0, preemption.min_run_policy


def configured(rng: Random) -> Protected:
    sharing = CohortFairSharing() if rng.random() < 0.5 else None
    cores = Protected(Config(fair_sharing=sharing))
    cores.put("WorkloadPriorityClass", "batch", value=0)
    for name in QUEUES:
        cores.queue(name, "co", **a_queue(rng))
    return cores


def decided(cores: SteppedCores) -> int:
    return sum(not isinstance(decision, facts.Refused) for decision in cores.decided)


def nothing_is_left_waiting(cores: SteppedCores) -> None:
    """A scheduler that starts now, and so tries every workload, decides nothing."""
    before = decided(cores)
    now = cores.now
    cores.restart_scheduler()
    for _ in range(3):
        cores.cycle(later=0)
    assert decided(cores) == before
    assert cores.now == now


def take_step(cores: Protected, rng: Random) -> None:
    running = cores.running()
    match rng.choice(("submit", "submit", "submit", "wait", "ready", "finish", "class")):
        case "submit":
            ref = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "batch"}
            of_class: dict[str, Any] = {"priorityClassRef": ref} if rng.random() < 0.3 else {}
            name = f"{'batch' if of_class else 'w'}-{len(cores.names)}"
            cores.names.append(name)
            cpu, priority = str(rng.randint(1, 4)), rng.randint(-1, 2)
            cores.submit(name, rng.choice(QUEUES), cpu, priority=priority, **of_class)
        case "wait":
            cores.now += timedelta(seconds=rng.choice((1, 7, 19, 20, 45, 61)))
        case "ready" if running:
            name = rng.choice(running)
            revision = cores.stored(name).status.admitted_revision
            cores.publish(facts.PodsReady, name, revision=revision)
        case "finish" if running:
            cores.finish(rng.choice(running))
        case "class":
            least = rng.choice(LEAST)
            more: dict[str, Any] = {} if least is None else {"minRunSeconds": least}
            cores.put("WorkloadPriorityClass", "batch", value=0, **more)


@pytest.mark.parametrize("seed", range(examples(60)))
def test_workloads_run_for_their_time_and_preemptors_wait_no_longer(seed: int) -> None:
    rng = Random(seed)
    cores = configured(rng)
    for _ in range(rng.randint(8, 25)):
        take_step(cores, rng)
        cores.settle(300)
    wakes: list[datetime] = []
    while (wake := cores.scheduler.next_wake()) is not None:
        assert wake not in wakes, "no time is waited for twice"
        wakes.append(wake)
        if len(wakes) > WAKES_MAX:
            return  # The loop guard tries some pairs again, after growing pauses.
        cores.now = max(cores.now, wake)
        cores.settle(300)
    cores.now += LONGEST
    nothing_is_left_waiting(cores)
