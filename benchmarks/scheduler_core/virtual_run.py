"""The contended mix of a generator file, played against the core in virtual time.

The rest of the system is imitated: the scheduler state contains a decision a few milliseconds
later, an admitted workload finishes after its runtime, and a preempted workload has stopped a few
milliseconds after its eviction. Only the time of the core counts: changes, cycles, refusals.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from heapq import heappop, heappush
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import msgspec

from admittance.api.fields.units import render
from admittance.bench.generator import BenchPlan, PlannedWorkload, bench_plan, read
from admittance.events.facts import Assigned, Preempted, Refused
from admittance.scheduling.cycle.decisions import Decided
from admittance.scheduling.state.config import Config
from admittance.workload.stored import StoredWorkload

from .bench import START, Core, a_workload, clock, condition, with_status

BASELINE: Final = Path(__file__).parents[1] / "baseline.yaml"
EFFECT_SECONDS: Final = 0.003
"""From a decision until the scheduler state contains its outcome."""
STOP_SECONDS: Final = 0.005

T = TypeVar("T")


class CoreTimes(NamedTuple):
    """Seconds in the core for changes of workloads, cycles and refusals, and counts of a run."""

    changes: float
    cycling: float
    refusing: float
    cycles: int
    events: int
    admissions: int
    preemptions: int
    refusals: int

    @property
    def microseconds(self) -> float:
        """All time in the core per admission."""
        return (self.changes + self.cycling + self.refusing) / self.admissions * 1e6


class VirtualRun(Core):
    """Plays a plan against the core. ``at_once``: all workloads are created at the start. ``tick``:
    changes within so many seconds are applied together before the next cycle; 0.0: one by one."""

    def __init__(
        self, planned: BenchPlan, config: Config, *, at_once: bool = False, tick: float = 0.0
    ) -> None:
        super().__init__(config)
        self.tick = tick
        self.now = 0.0
        self.spent = {"changes": 0.0, "cycle": 0.0, "refuse": 0.0}
        self.cycles = self.events = self.admissions = self.preemptions = self.refusals = 0
        self.planned: dict[str, PlannedWorkload] = {}
        self.stored: dict[str, tuple[StoredWorkload, int]] = {}
        self.agenda: list[tuple[float, int, Callable[[], object]]] = []
        self.number = 0
        self.put("ResourceFlavor", "default")
        for queue in planned.queues:
            quota = {"name": "cpu", "nominalQuota": render("cpu", queue.nominal)}
            if queue.borrowing is not None:
                quota["borrowingLimit"] = render("cpu", queue.borrowing)
            flavors = [{"name": "default", "resources": [quota]}]
            spec = {
                "cohortName": queue.cohort,
                "namespaceSelector": {},
                "preemption": {
                    "reclaimWithinCohort": queue.reclaim,
                    "withinClusterQueue": queue.within,
                },
                "resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}],
            }
            self.put("ClusterQueue", queue.name, spec)
            self.put("LocalQueue", queue.name, {"clusterQueue": queue.name}, queue.namespace)
        self.own_all()
        for n, workload in enumerate(planned.workloads):
            at = 0.0 if at_once else workload.at
            stored = a_workload(
                n,
                planned.queues[workload.queue].name,
                render("cpu", workload.request),
                workload.priority,
                namespace=planned.queues[workload.queue].namespace,
                created=START + timedelta(seconds=at),
                memory="",
            )
            name = stored.metadata.name
            self.planned[name] = workload
            self.at(at, partial(self.write, stored))

    def run(self) -> CoreTimes:
        """Plays the plan until every workload has finished."""
        while self.agenda:
            self.now = self.agenda[0][0]
            until = self.now + self.tick
            while self.agenda and self.agenda[0][0] <= until:
                heappop(self.agenda)[2]()
                if not self.tick:
                    break
            self.decide()
        assert not self.stored, "everything finishes in the end"
        times = self.spent
        return CoreTimes(
            times["changes"], times["cycle"], times["refuse"], self.cycles, self.events,
            self.admissions, self.preemptions, self.refusals,
        )  # fmt: skip

    def decide(self) -> None:
        """Runs cycles until the core has no work, as the scheduler does between two changes."""
        now = START + timedelta(seconds=self.now)
        while True:
            worked = self.core.has_work()
            if worked:
                self.cycles += 1
                for decision in self.timed("cycle", lambda: self.core.cycle(now=now)):
                    self.plan_effect(decision)
            for refused in self.timed("refuse", lambda: self.core.refusals(now=now)):
                self.plan_effect(refused)
            if not worked:
                return

    def plan_effect(self, decision: Decided) -> None:
        """Plans the effect of a decision, some milliseconds later."""
        self.at(self.now + EFFECT_SECONDS, lambda: self.apply_decision(decision))

    def apply_decision(self, decision: Decided) -> None:
        """Applies the decision, unless the workload has changed since."""
        stored, revision = self.stored.get(decision.name, (None, 0))
        if stored is None or revision != decision.revision:
            return
        at = START + timedelta(seconds=self.now)
        if isinstance(decision, Refused):
            self.refusals += 1
            waits = condition("QuotaReserved", at, on=False, reason=decision.refusal.reason)
            self.write(with_status(stored, waits))
            return
        if isinstance(decision, Assigned):
            self.admissions += 1
            reserved, admitted = condition("QuotaReserved", at), condition("Admitted", at)
            revision = self.write(
                with_status(stored, reserved, admitted, admission=decision.admission)
            )
            ends = self.now + self.planned[decision.name].runtime
            self.at(ends, lambda: self.finish(decision.name, revision))
            return
        # Nothing here has checks, and no quota is cut: nothing is planned, confirmed or revoked.
        assert isinstance(decision, Preempted), decision
        self.preemptions += 1
        evicted = condition("Evicted", at, reason="Preempted")
        held = stored.status
        revision = self.write(
            with_status(stored, *held.conditions, evicted, admission=held.admission)
        )
        self.at(self.now + STOP_SECONDS, lambda: self.stop(decision.name, revision))

    def finish(self, name: str, revision: int) -> None:
        """Finishes the workload, unless it was preempted before."""
        stored, known = self.stored.get(name, (None, 0))
        if stored is not None and known == revision:
            self.write(with_status(stored, condition("Finished", START)))
            del self.stored[name]

    def stop(self, name: str, revision: int) -> None:
        """Frees the quota of the preempted workload, which is pending again."""
        stored, known = self.stored[name]
        if known == revision:
            at = START + timedelta(seconds=self.now)
            lost = condition("QuotaReserved", at, on=False, reason="PendingEvaluation")
            evicted = condition("Evicted", at, reason="Preempted")
            requeued = condition("Requeued", at, reason="Preempted")
            self.write(with_status(stored, lost, evicted, requeued))

    def write(self, stored: StoredWorkload) -> int:
        """Stores the workload in the bucket and applies it to the scheduler state."""
        self.events += 1
        now = START + timedelta(seconds=self.now)
        revision = self.timed("changes", lambda: self.apply(stored, now))
        self.stored[stored.metadata.name] = stored, revision
        return revision

    def at(self, moment: float, what: Callable[[], object]) -> None:
        """Plans a call for a moment of virtual time."""
        self.number += 1
        heappush(self.agenda, (moment, self.number, what))

    def timed(self, what: str, call: Callable[[], T]) -> T:
        """The answer of the call; its time is added to ``what``."""
        before = clock()
        answer = call()
        self.spent[what] += clock() - before
        return answer


def baseline_microseconds(config: Config, *, scale: float = 0.1) -> float:
    """Microseconds in the core per admission while the baseline file is played. ``scale``: the part
    of its workloads that is played. Changes are applied one by one, as in a quiet minute."""
    return VirtualRun(bench_plan(read(BASELINE), scale=scale), config).run().microseconds


def contended_microseconds(queues: int, config: Config) -> float:
    """Microseconds in the core per admission if all workloads of the baseline file are pending from
    the start and quota becomes free as workloads finish: decisions, changes, parking and new
    attempts included. Changes within ten milliseconds are applied together."""
    generator = read(BASELINE)
    (cohorts,) = generator.cohorts
    scale = min(1.0, 30 / queues)
    many = msgspec.structs.replace(cohorts, count=cohorts.count * queues // 30)
    generator = msgspec.structs.replace(generator, cohorts=(many,))
    planned = bench_plan(generator, scale=max(scale, 0.02) * 0.4 if queues <= 30 else 0.02)
    return VirtualRun(planned, config, at_once=True, tick=0.01).run().microseconds
