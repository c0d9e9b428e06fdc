"""The contended mix of a generator file, played against the core in virtual time.

What the rest of the system does is mimicked: a decision is heard of a few milliseconds later,
an admitted workload finishes after its runtime, a preempted one has stopped a few milliseconds
after it was told to. Only the core's own time counts: hearing, cycles, refusals.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from heapq import heappop, heappush
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import msgspec

from admittance.api.units import render
from admittance.cli.bench.generator import BenchPlan, PlannedWorkload, bench_plan, read
from admittance.events.facts import Assigned, Preempted, Refused
from admittance.scheduling.cycle.decisions import Decided
from admittance.scheduling.state.config import Config
from admittance.workload.stored import StoredWorkload

from .bench import START, Core, a_workload, clock, condition, with_status

BASELINE: Final = Path(__file__).parents[1] / "baseline.yaml"
HEARD_SECONDS: Final = 0.003
"""From a decision until the scheduler state contains its outcome."""
STOP_SECONDS: Final = 0.005

T = TypeVar("T")


class Spent(NamedTuple):
    """Seconds in the core by what it was asked, and how much came of it."""

    hearing: float
    cycling: float
    refusing: float
    cycles: int
    events: int
    admissions: int
    preemptions: int
    refusals: int

    @property
    def microseconds(self) -> float:
        """Per admission, all included."""
        return (self.hearing + self.cycling + self.refusing) / self.admissions * 1e6


class Life(Core):
    """A plan being lived through. ``at_once``: everything is created at the start. ``tick``: what
    happens within so many seconds is heard together before the next cycle; 0.0: one by one."""

    def __init__(
        self, planned: BenchPlan, config: Config, *, at_once: bool = False, tick: float = 0.0
    ) -> None:
        super().__init__(config)
        self.tick = tick
        self.now = 0.0
        self.spent = {"hear": 0.0, "cycle": 0.0, "refuse": 0.0}
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
        for n, one in enumerate(planned.workloads):
            at = 0.0 if at_once else one.at
            stored = a_workload(
                n,
                planned.queues[one.queue].name,
                render("cpu", one.request),
                one.priority,
                namespace=planned.queues[one.queue].namespace,
                created=START + timedelta(seconds=at),
                memory="",
            )
            name = stored.metadata.name
            self.planned[name] = one
            self.at(at, partial(self.write, stored))

    def run(self) -> Spent:
        """Until everything has finished."""
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
        return Spent(
            times["hear"], times["cycle"], times["refuse"], self.cycles, self.events,
            self.admissions, self.preemptions, self.refusals,
        )  # fmt: skip

    def decide(self) -> None:
        """Cycles until there is no work left, as the shell does when nothing happens meanwhile."""
        now = START + timedelta(seconds=self.now)
        while True:
            worked = self.core.has_work()
            if worked:
                self.cycles += 1
                for one in self.timed("cycle", lambda: self.core.cycle(now=now)):
                    self.heard_of(one)
            for refused in self.timed("refuse", lambda: self.core.refusals(now=now)):
                self.heard_of(refused)
            if not worked:
                return

    def heard_of(self, one: Decided) -> None:
        """Stores the decisions, and the scheduler gets the writes."""
        self.at(self.now + HEARD_SECONDS, lambda: self.carry_out(one))

    def carry_out(self, one: Decided) -> None:
        """The decision takes effect, unless the workload has moved on."""
        stored, revision = self.stored.get(one.name, (None, 0))
        if stored is None or revision != one.revision:
            return
        at = START + timedelta(seconds=self.now)
        if isinstance(one, Refused):
            self.refusals += 1
            waits = condition("QuotaReserved", at, on=False, reason=one.refusal.reason)
            self.write(with_status(stored, waits))
            return
        if isinstance(one, Assigned):
            self.admissions += 1
            reserved, admitted = condition("QuotaReserved", at), condition("Admitted", at)
            revision = self.write(with_status(stored, reserved, admitted, admission=one.admission))
            ends = self.now + self.planned[one.name].runtime
            self.at(ends, lambda: self.finish(one.name, revision))
            return
        # Nothing here has checks, and no quota is cut: nothing is planned, confirmed or revoked.
        assert isinstance(one, Preempted), one
        self.preemptions += 1
        evicted = condition("Evicted", at, reason="Preempted")
        held = stored.status
        revision = self.write(
            with_status(stored, *held.conditions, evicted, admission=held.admission)
        )
        self.at(self.now + STOP_SECONDS, lambda: self.stop(one.name, revision))

    def finish(self, name: str, revision: int) -> None:
        """It ran to its end, if it was let."""
        stored, known = self.stored.get(name, (None, 0))
        if stored is not None and known == revision:
            self.write(with_status(stored, condition("Finished", START)))
            del self.stored[name]

    def stop(self, name: str, revision: int) -> None:
        """It gives its quota back and waits again."""
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
        revision = self.timed("hear", lambda: self.apply(stored, now))
        self.stored[stored.metadata.name] = stored, revision
        return revision

    def at(self, moment: float, what: Callable[[], object]) -> None:
        """Something to happen then."""
        self.number += 1
        heappush(self.agenda, (moment, self.number, what))

    def timed(self, what: str, call: Callable[[], T]) -> T:
        """The answer, its time counted."""
        before = clock()
        answer = call()
        self.spent[what] += clock() - before
        return answer


def living(config: Config, *, scale: float = 0.1) -> float:
    """Microseconds in the core per admission while the baseline file is lived through, with so
    many of its workloads: one event after the other, as in a quiet minute of a busy system."""
    return Life(bench_plan(read(BASELINE), scale=scale), config).run().microseconds


def contended(queues: int, config: Config) -> float:
    """Microseconds in the core per admission where the mix of the baseline file waits from the
    start and room comes free as what runs finishes: deciding, hearing, parking, and looking again
    included. Ends within ten milliseconds are heard together."""
    generator = read(BASELINE)
    (cohorts,) = generator.cohorts
    scale = min(1.0, 30 / queues)
    many = msgspec.structs.replace(cohorts, count=cohorts.count * queues // 30)
    generator = msgspec.structs.replace(generator, cohorts=(many,))
    planned = bench_plan(generator, scale=max(scale, 0.02) * 0.4 if queues <= 30 else 0.02)
    return Life(planned, config, at_once=True, tick=0.01).run().microseconds
