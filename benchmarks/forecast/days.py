"""Generated days of a cohort tree, played with the scheduler's core in virtual time.

Six queues share a cohort. Users run scripts again and again; run times are log-normal, and there
are arrays, early failures, declared limits, and arrivals with day and night."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Final, NamedTuple

from admittance.bench.generator import BenchPlan, PlannedQueue, PlannedWorkload
from admittance.forecast.rows import Source
from admittance.scheduling.state.config import Config
from admittance.workload.stored import StoredWorkload
from benchmarks.scheduler_core.virtual_run import VirtualRun

DAY: Final = 86_400.0
DAYS: Final = 6
QUEUES: Final = 6
USERS: Final = 25
COHORT: Final = "all"


class Day(NamedTuple):
    """The parameters of a generated load. ``load``: requested cpu seconds over the quota.
    ``urgent``: the share of workloads with a high priority, for which others are preempted."""

    seed: int
    load: float
    urgent: float = 0.0


CASES: Final = (
    *(Day(1, 0.8), Day(1, 0.95), Day(2, 0.8), Day(2, 0.95), Day(7, 0.7), Day(8, 0.7)),
    *(Day(9, 0.75, 0.15), Day(10, 0.65, 0.15)),
)


class Job(NamedTuple):
    """A workload of the load. ``limit``: its declared limit; None: none."""

    planned: PlannedWorkload
    source: Source
    limit: float | None


class Life(NamedTuple):
    """What became of a workload: its runs, each with begin and end; the last one is its whole
    run time."""

    job: Job
    runs: list[tuple[float, float]]

    def start_after(self, moment: float) -> float | None:
        """When it next starts after the moment."""
        return next((begin for begin, _ in self.runs if begin > moment), None)

    def holds(self, moment: float) -> float | None:
        """The begin of its run at the moment; None: it does not run then."""
        return next((begin for begin, end in self.runs if begin <= moment < end), None)

    def waits(self, moment: float) -> bool:
        """Whether it waits at the moment."""
        over = not self.runs or self.runs[-1][1] <= moment
        return self.job.planned.at <= moment and not over and self.holds(moment) is None


class _Script(NamedTuple):
    name: str
    user: str
    queue: int
    median: float
    spread: float
    request: int
    limit: float | None
    arrays: float

    def run_time(self, shift: float, chance: random.Random) -> float:
        """Draws a run time; one in ten runs fails early. ``shift``: what the runs of an array have
        in common; 0: it is a single run."""
        drawn = shift / 2 + chance.gauss(0, self.spread)
        seconds = min(self.median * math.exp(drawn), 2 * DAY)
        if chance.random() < 0.1:
            seconds *= 0.1 * chance.random()
        return max(5.0, min(seconds, self.limit or seconds))


def scripts_of(day: Day) -> dict[tuple[str, str], _Script]:
    """The scripts of a day, by user and name."""
    scripts = _scripts(_chance_of(day))
    return {(script.user, script.name): script for script in scripts}


def _chance_of(day: Day) -> random.Random:
    return random.Random(day.seed * 1000 + int(day.load * 100))


def jobs_of(day: Day, nominal: tuple[int, ...]) -> list[Job]:
    """The workloads of six days, in the order of their arrivals."""
    chance = _chance_of(day)
    scripts = list(_scripts(chance))
    weights = [chance.paretovariate(1.2) for _ in scripts]
    quota = sum(nominal) * DAY * DAYS
    jobs: list[Job] = []
    asked = 0.0
    while asked < day.load * quota:
        script = chance.choices(scripts, weights)[0]
        at = _arrival(chance)
        count = chance.randint(5, 40) if chance.random() < script.arrays else 1
        array = f"a{len(jobs)}" if count > 1 else ""
        shift = chance.gauss(0, script.spread) if count > 1 else 0.0
        priority = 100 if chance.random() < day.urgent else 0
        for _ in range(count):
            seconds = script.run_time(shift, chance)
            asked += seconds * script.request
            jobs.append(_job(script, at, seconds, array, priority))
    jobs.sort(key=lambda job: job.planned.at)
    return jobs


def _scripts(chance: random.Random) -> Iterator[_Script]:
    for user in range(USERS):
        queue = user % QUEUES
        for number in range(chance.randint(1, 6)):
            median = 60 * math.exp(chance.gauss(4.4, 1.3))
            has_limit = chance.random() < 0.6
            yield _Script(
                name=f"s{number}.py",
                user=f"u{user}",
                queue=queue,
                median=median,
                spread=chance.uniform(0.2, 0.9),
                request=chance.choice((1, 1, 1, 2, 2, 4, 6)),
                limit=3600.0 * math.ceil(median * chance.uniform(3, 20) / 3600)
                if has_limit
                else None,
                arrays=0.2 if chance.random() < 0.5 else 0.0,
            )


def _arrival(chance: random.Random) -> float:
    """A moment of the six days; by day four times as many arrive as by night."""
    while True:
        at = chance.uniform(0, DAYS * DAY)
        light = 0.5 - 0.5 * math.cos(2 * math.pi * (at % DAY) / DAY)
        if chance.random() < 0.25 + 0.75 * light:
            return at


def _job(script: _Script, at: float, seconds: float, array: str, priority: int) -> Job:
    planned = PlannedWorkload(
        at=at,
        runtime=seconds,
        name="",
        queue=script.queue,
        class_name="",
        request=script.request * 1000,
        priority=priority,
    )
    source = Source(queue=f"q{script.queue}", user=script.user, script=script.name, array=array)
    return Job(planned, source, script.limit)


def plan_of(day: Day) -> tuple[list[Job], BenchPlan]:
    """The workloads and the plan for the scheduler's core."""
    chance = random.Random(day.seed)
    nominal = tuple(chance.choice((8, 12, 16, 24)) for _ in range(QUEUES))
    jobs = jobs_of(day, nominal)
    queues = tuple(
        PlannedQueue(
            name=f"q{number}",
            cohort=COHORT,
            nominal=amount * 1000,
            within="LowerPriority" if day.urgent else "Never",
        )
        for number, amount in enumerate(nominal)
    )
    return jobs, BenchPlan(queues, tuple(job.planned for job in jobs))


class _Recorded(VirtualRun):
    """A run that records when each workload held quota."""

    def __init__(self, planned: BenchPlan, config: Config) -> None:
        self.begun: dict[str, float] = {}
        self.runs: dict[str, list[tuple[float, float]]] = {}
        super().__init__(planned, config)

    def write(self, stored: StoredWorkload) -> int:
        name = stored.metadata.name
        states = {each.type: each.status for each in stored.status.conditions}
        if states.get("Finished") == "True" or states.get("QuotaReserved") == "False":
            begin = self.begun.pop(name, None)
            if begin is not None:
                self.runs.setdefault(name, []).append((begin, self.now))
        elif states.get("Admitted") == "True":
            self.begun.setdefault(name, self.now)
        return super().write(stored)


def lives(day: Day) -> tuple[list[Life], BenchPlan]:
    """What became of each workload of the day."""
    jobs, plan = plan_of(day)
    run = _Recorded(plan, Config())
    run.run()
    return [Life(job, run.runs.get(f"w-{n}", [])) for n, job in enumerate(jobs)], plan
