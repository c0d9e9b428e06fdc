"""Jobs on machines: devices, jobs in several parts, gangs, drained and lost machines, and
leaders of placement that fall."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from random import Random
from typing import Final

import msgspec

from admittance.events import facts
from admittance.placement.verdicts import PlacementTimes
from admittance.workload.limits import Limits
from simulation.environment.checks import CheckBehavior
from simulation.environment.courses import Courses
from simulation.environment.machine_specs import GPU, MachineSpec
from simulation.plots.checked import reactivations, user_changes
from simulation.plots.configuration import NAMESPACE, Spec, manifest
from simulation.plots.placed_queues import PlacedQueues
from simulation.plots.scenario import (
    CALM_SECONDS,
    SERVICES,
    AdminChange,
    Fault,
    Scenario,
    UserFact,
    pods_ready,
    skews,
    submission,
)
from simulation.plots.scenario import faults as faults_of

PLACED_SERVICES: Final = (*SERVICES, "pl-a", "pl-b")
VARIANTS: Final = ("v-a", "v-b")
KINDS: Final = ("one", "one", "large", "gang", "gang", "spread", "spread", "sets", "cpu", "cpu")
"""Kinds of jobs."""
RUNNERS: Final = ("r-a", "r-b", "r-c", "r-d")


def placed(rng: Random) -> Scenario:
    """A few machines, and jobs that want more of them than there is."""
    names = RUNNERS[: rng.choice((2, 3, 3, 4))]
    pools = rng.choice((("a",), ("a",), ("a", "b")))
    machines = {
        name: MachineSpec(
            cpu=rng.choice((2, 4, 6)),
            gpus=rng.choice((1, 1, 2, 4)),
            pool=pools[number % len(pools)],
            slices=rng.choice((1, 1, 1, 2)),
        )
        for number, name in enumerate(names)
    }
    races = len(pools) > 1 and rng.random() < 0.5
    queues = PlacedQueues(rng, machines, races=races)
    jobs = [f"w{number}" for number in range(rng.randint(4, 10))]
    span = rng.choice((1.0, 6.0, 6.0, 20.0))
    user_facts: list[UserFact] = []
    for name in jobs:
        at = 1.5 + rng.random() * span
        user_facts.append(submission(at, name, job_of(rng, name, queues)))
        if rng.random() < 0.2:
            user_facts += user_changes(rng, name, at + rng.random() * 15.0)
        elif rng.random() < 0.15:
            # The quota is free at once, and the machine when the processes have ended.
            finished = facts.Finished(namespace=NAMESPACE, name=name)
            user_facts.append(UserFact(at + rng.random() * 20.0, finished))
    services = tuple(dict.fromkeys((*PLACED_SERVICES, *names, *(VARIANTS if races else ()))))
    drain = timedelta(seconds=rng.choice((6.0, 20.0, 300.0)))
    return Scenario(
        queues.all(),
        [*user_facts, *reactivations(jobs)],
        list(_operations(rng, queues)),
        _faults(rng, services, names),
        skews(rng, services),
        limits=Limits(drain=drain, pods_ready=pods_ready(rng) if rng.random() < 0.2 else None),
        heals=True,
        services=services,
        check_behavior=CheckBehavior(demands=rng.choice((0.0, 2.0)), rejected=0.2, never=0.3),
        courses=Courses(
            lengths=rng.choice(((2.0, 12.0, 25.0), (12.0, 30.0), (0.2, 2.0, 6.0))),
            slow=rng.choice((0.0, 0.2)),
            ignores_stop=rng.choice((0.0, 0.2)),
            hangs=rng.choice((0.0, 0.1)),
        ),
        machines=machines,
        times=PlacementTimes(
            retry_after=timedelta(seconds=rng.choice((6, 20, 120))),
            retry_delay=timedelta(seconds=rng.choice((2, 10))),
            hold_after=timedelta(seconds=rng.choice((8, 30))),
            hold_without_quota=timedelta(seconds=rng.choice((10, 60))),
            lost_after=timedelta(seconds=rng.choice((3, 15, 60))),
            repeat_after=timedelta(seconds=rng.choice((5, 30))),
        ),
    )


def job_of(rng: Random, name: str, queues: PlacedQueues, *, queue: str = "") -> msgspec.Raw:
    """A job that has room on the machines of each pool when they are empty."""
    queue = queue or rng.choice(sorted(queues.queues))
    machines = list(queues.machines.values())
    units = min(
        sum(min(machine.units(), machine.cpu) for machine in machines if machine.pool == pool)
        for pool in queues.pools
    )
    largest = min(
        max(machine.units() for machine in machines if machine.pool == pool)
        for pool in queues.pools
    )
    cores = min(queues.cores(pool) for pool in queues.pools)
    most = min(
        max(machine.cpu for machine in machines if machine.pool == pool) for pool in queues.pools
    )
    kind = rng.choice(KINDS)
    count, gpus, cpu = 1, 1, 1
    if kind == "large":
        gpus = largest
    elif kind == "gang":
        count = rng.randint(1, min(units, 4))
    elif kind == "spread":
        count = min(units, largest + rng.choice((1, 1, 2)), 6)
    elif kind == "cpu":
        gpus, cpu = 0, rng.randint(1, min(most, 3))
        count = rng.choice((1, 1, 2)) if 2 * cpu <= most else 1
    pod_sets = [_pod_set("main", count, cpu, gpus)]
    if kind == "sets":
        pod_sets.append(_pod_set("side", rng.randint(1, min(2, cores - 1)), 1, 0))
    if kind == "gang" and count > 1 and rng.random() < 0.15:
        pod_sets[0]["minCount"] = 1
    spec: Spec = {
        "queueName": f"l{queue[1:]}",
        "podSets": pod_sets,
        "priority": rng.choice((-1, 0, 0, 1, 2)),
    }
    if rng.random() < 0.08:
        spec["maximumExecutionTimeSeconds"] = 8
    made = manifest("Workload", name, spec, namespace=NAMESPACE)
    return msgspec.Raw(json.dumps(made).encode())


def _pod_set(name: str, count: int, cpu: int, gpus: int) -> Spec:
    requests = {"cpu": str(cpu), **({GPU: str(gpus)} if gpus else {})}
    container = {
        "name": "c",
        "image": "i",
        "command": ["true"],
        "resources": {"requests": requests},
    }
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    return {"name": name, "count": count, "template": template}


def _operations(rng: Random, queues: PlacedQueues) -> Iterator[AdminChange]:
    """Machines are cordoned and drained; in the end all take jobs."""
    for _ in range(rng.choice((0, 0, 1, 2, 4))):
        at = 3.0 + rng.random() * 40.0
        yield AdminChange(at, queues.operate(at))
    for change in queues.open():
        yield AdminChange(CALM_SECONDS, change)


def _faults(rng: Random, services: tuple[str, ...], runners: tuple[str, ...]) -> list[Fault]:
    drawn = faults_of(rng, services)[: rng.choice((0, 2, 4))]
    for _ in range(rng.choice((0, 1, 2, 3))):
        kind = rng.choice(("crash", "crash", "unplug", "kill", "pause", "partition"))
        seconds = rng.choice((0.5, 5.0, 20.0, 45.0)) * (0.5 + rng.random())
        after = rng.randint(20, 260)
        drawn.append(Fault(after, rng.choice(runners), kind, seconds, rng.random() * 0.05))
    for _ in range(rng.choice((0, 1, 2, 4))):
        drawn += _loss_of_placer(rng)
    return drawn


def _loss_of_placer(rng: Random) -> list[Fault]:
    """The active placement is cut off or killed with verdicts on their way, for about as long as
    its lease lasts, while the workload-controller that applies them is slow."""
    after = rng.randint(20, 220)
    kind = rng.choice(("kill", "kill", "pause", "mute", "mute"))
    seconds = rng.choice((0.1, 3.0)) if kind == "kill" else 7.5 + rng.random() * 4.0
    drawn = [Fault(after, "placer", kind, seconds, rng.random() * 0.01)]
    if rng.random() < 0.6:
        drawn.append(Fault(after, "leader", rng.choice(("slow", "slower", "pause")), 4.0, 0.0))
    return drawn
