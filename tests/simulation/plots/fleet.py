"""Many machines and very many jobs: what a story of `placed` is in small."""

from __future__ import annotations

from datetime import timedelta
from random import Random
from typing import Final

from admittance.placement.verdicts import PlacementTimes
from admittance.workload.limits import Limits
from simulation.environment.courses import Courses
from simulation.environment.machine_specs import MachineSpec
from simulation.plots.checked import reactivations
from simulation.plots.placed import PLACED_SERVICES, job_of
from simulation.plots.placed_queues import PlacedQueues
from simulation.plots.scenario import AdminChange, Fault, Scenario, UserFact, skews, submission

RATE: Final = 0.12
"""Jobs that are submitted each second, for each machine: they keep half of all devices busy."""
CALM_AFTER: Final = 60.0
"""Seconds between the last submission and the end of the faults."""
MESSAGES: Final = 9
"""Messages that are stored for each job, about."""
INTERVALS: Final = 5.0


def fleet(rng: Random, *, machines: int, jobs: int) -> Scenario:
    """So many machines in two pools, and so many jobs: single ones, gangs and jobs in parts, while
    machines crash, lose devices and are drained, and leaders fall."""
    names = [f"r-{number}" for number in range(machines)]
    specs = {
        name: MachineSpec(cpu=rng.choice((4, 8)), gpus=rng.choice((1, 2, 4)), pool="ab"[number % 2])
        for number, name in enumerate(names)
    }
    queues = PlacedQueues(rng, specs, races=False)
    span = jobs / (machines * RATE)
    calm = 2.0 + span + CALM_AFTER
    user_facts: list[UserFact] = []
    submitted = [f"w{number}" for number in range(jobs)]
    for name in submitted:
        at = 2.0 + rng.random() * span
        user_facts.append(submission(at, name, job_of(rng, name, queues)))
    services = tuple(name for name in PLACED_SERVICES if not name.startswith("r-"))
    operations = [
        AdminChange(at, queues.operate(at))
        for at in (3.0 + rng.random() * span for _ in range(machines // 2))
    ]
    return Scenario(
        queues.all(),
        [*user_facts, *reactivations(submitted, calm)],
        [*operations, *(AdminChange(calm, change) for change in queues.open())],
        _faults(rng, services, names, jobs * MESSAGES),
        skews(rng, services),
        limits=Limits(drain=timedelta(seconds=60)),
        heals=True,
        services=(*services, *names),
        courses=Courses(lengths=(0.5, 3.0, 8.0), ignores_stop=0.05, hangs=0.02),
        calm=calm,
        interval_factor=INTERVALS,
        machines=specs,
        times=PlacementTimes(
            retry_after=timedelta(seconds=10),
            retry_delay=timedelta(seconds=5),
            hold_after=timedelta(seconds=20),
            lost_after=timedelta(seconds=30),
        ),
    )


def _faults(
    rng: Random, services: tuple[str, ...], runners: list[str], messages: int
) -> list[Fault]:
    """A fault of a machine or a runner for every second machine, and one of a service for every
    fifth."""
    drawn = []
    for _ in range(len(runners) // 2):
        kind = rng.choice(("crash", "crash", "unplug", "kill", "pause", "partition"))
        seconds = rng.choice((0.5, 20.0, 90.0)) * (0.5 + rng.random())
        at = rng.randint(50, messages)
        drawn.append(Fault(at, rng.choice(runners), kind, seconds, rng.random() * 0.05))
    for _ in range(max(2, len(runners) // 5)):
        kind = rng.choice(("kill", "kill", "pause", "mute", "partition", "slow"))
        target = rng.choice(("leader", "placer", "placer", "decider", *services))
        seconds = rng.choice((0.1, 3.0, 10.0)) * (0.5 + rng.random())
        drawn.append(Fault(rng.randint(50, messages), target, kind, seconds, rng.random() * 0.01))
    return drawn
