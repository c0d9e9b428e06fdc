"""What happens in a run: queues, workloads, what users and admins do, and which faults strike.

Small on purpose: few queues, tight quotas, many collisions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from datetime import timedelta
from random import Random
from typing import Any, Final, NamedTuple

import msgspec

from admittance.events import facts
from admittance.events.base import Fact
from admittance.placement.verdicts import PlacementTimes
from admittance.scheduling.state.config import Config
from admittance.workload.limits import Limits, PodsReadyLimits
from simulation.environment.checks import CheckBehavior, Outage
from simulation.environment.courses import Courses
from simulation.environment.holding_programs import HoldingProgram
from simulation.environment.machine_specs import MachineSpec
from simulation.plots.configuration import NAMESPACE, Manifests, Queues, manifest

ACTIVE_SECONDS: Final = 60.0
"""Virtual seconds during which users act and faults happen."""
CALM_SECONDS: Final = 90.0
"""Virtual time from which no fault happens."""
SERVICES: Final = ("wc-a", "wc-b", "s-a", "s-b", "r-a", "r-b", "t-a", "t-b")
PROVIDED_SERVICES: Final = (*SERVICES, "p-a", "p-b")
"""The services with the provisioning check."""
FAMILY_SERVICES: Final = (*SERVICES, "v-a", "v-b")
"""The services with the variant-controller."""


class UserFact(NamedTuple):
    """A user publishes a fact."""

    at: float
    fact: Fact


class AdminChange(NamedTuple):
    """An admin applies manifests, or deletes objects."""

    at: float
    manifests: Manifests


class Fault(NamedTuple):
    """Something goes wrong with a service, at the ``after``-th message that the server stores:
    so it strikes where work is done, not while all is idle. ``target`` "leader": the active
    workload-controller; "decider": a scheduler that decides; "placer": the active placement;
    "array-leader": the active array-controller;
    "budget-leader": the active budget-controller.
    ``seconds``: how long it lasts."""

    after: int
    target: str
    kind: str
    seconds: float
    delay: float


class Scenario(NamedTuple):
    """``lost_timers``: when the server forgets every schedule that it has. ``heals``: in the end
    there is room for all, and nothing is stopped or turned off, so that everything must end.
    ``begins``: the virtual time at which the story begins; ``calm``: when its end begins.
    ``interval_factor``: lengthens the time between renewals of claims and between comparisons of
    schedules, which cost most in a long story. ``machines``: what the machines of runners have, by
    the name of the runner; ``times``: those of placement. ``programs``: those that hold
    the quota of the workload with the name themselves. ``log_bytes``: the size above which the
    log loses its oldest part; 0: it loses nothing."""

    manifests: Manifests
    user_facts: list[UserFact]
    admin_changes: list[AdminChange]
    faults: list[Fault]
    skews: dict[str, float]
    config: Config = Config()
    limits: Limits = Limits()
    check_behavior: CheckBehavior = CheckBehavior()
    outages: tuple[Outage, ...] = ()
    lost_timers: tuple[float, ...] = ()
    courses: Courses = Courses()
    heals: bool = False
    services: tuple[str, ...] = SERVICES
    calm: float = CALM_SECONDS
    interval_factor: float = 1.0
    machines: Mapping[str, MachineSpec] = {}
    times: PlacementTimes = PlacementTimes()
    programs: Mapping[str, HoldingProgram] = {}
    begins: float = 0.0
    log_bytes: int = 0

    def slack(self) -> timedelta:
        """Largest number of seconds by which any clock may be ahead."""
        return timedelta(seconds=max((0.0, *self.skews.values())))

    def spread(self) -> timedelta:
        """Largest number of seconds by which two clocks may differ."""
        return self.slack() - timedelta(seconds=min((0.0, *self.skews.values())))


Plot = Callable[[Random], Scenario]
"""Draws a scenario."""


def workload_of(
    rng: Random,
    name: str,
    queue: str,
    *,
    priorities: tuple[int, ...] = (),
    most: int | None = None,
    sides: float = 0.0,
    cpus: int = 0,
) -> msgspec.Raw:
    """``most``: seconds that it may run. ``sides``: how likely a second pod set is. ``cpus``: of
    the only pod; 0: pods and cpus are drawn."""
    container = {
        "name": "c",
        "image": "i",
        "command": ["true"],
        "resources": {"requests": {"cpu": str(cpus or rng.choice((1, 1, 2, 3)))}},
    }
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    count = 1 if cpus else rng.choice((1, 1, 1, 2))
    pod_set = {"name": "main", "count": count, "template": template}
    spec: dict[str, Any] = {"queueName": queue, "podSets": [pod_set]}
    if priorities:
        spec["priority"] = rng.choice(priorities)
    elif rng.random() < 0.4:
        spec["priority"] = rng.randint(-1, 2)
    if most is not None:
        spec["maximumExecutionTimeSeconds"] = most
    if not cpus and rng.random() < 0.1:
        pod_set["count"], pod_set["minCount"] = 3, 1
    if rng.random() < sides:
        spec["podSets"].append({"name": "side", "count": 1, "template": template})
    made = manifest("Workload", name, spec, namespace=NAMESPACE)
    return msgspec.Raw(json.dumps(made).encode())


def submission(at: float, name: str, raw: msgspec.Raw) -> UserFact:
    """A user submits a workload."""
    return UserFact(at, facts.Submitted(namespace=NAMESPACE, name=name, workload=raw))


def edits(
    rng: Random, queues: Queues, counts: tuple[int, ...], gaps: tuple[float, ...]
) -> list[AdminChange]:
    """Random edits of the queues: as many as one of ``counts``, with pauses up to one of
    ``gaps``."""
    drawn = []
    at = 2.0
    for _ in range(rng.choice(counts)):
        at += rng.random() * rng.choice(gaps)
        drawn.append(AdminChange(at, deepcopy(queues.edit())))
    return drawn


def one_edit(rng: Random, queues: Queues, within: float) -> AdminChange:
    """A random edit of the queues, in their first ``within`` seconds."""
    edit = deepcopy(queues.edit())
    return AdminChange(3.0 + rng.random() * within, edit)


def outages_of(rng: Random, counts: tuple[int, ...]) -> tuple[Outage, ...]:
    """Replicas of check controllers that are gone for a while."""
    return tuple(
        Outage(rng.random() * 30.0, rng.choice((0, 1)), rng.random() * 15.0)
        for _ in range(rng.choice(counts))
    )


def pods_ready(rng: Random, *, blocks: float = 0.0) -> PodsReadyLimits:
    """Draws short timeouts for pods. ``blocks``: how likely others wait for them."""
    return PodsReadyLimits(
        timeout=timedelta(seconds=rng.choice((2.0, 8.0, 40.0))),
        recovery=rng.choice((None, timedelta(seconds=3.0))),
        block_admission=bool(blocks) and rng.random() < blocks,
        backoff_limit=rng.choice((None, 0, 1, 2)),
        backoff_base=rng.choice((1, 5)),
        backoff_max=rng.choice((4, 60)),
    )


def faults(rng: Random, services: tuple[str, ...] = SERVICES) -> list[Fault]:
    drawn = []
    targets = ("leader", "leader", *services, "s-a", "s-b")
    for _ in range(rng.choice((0, 1, 2, 3, 4, 6, 8))):
        kind = rng.choice(("kill", "kill", "kill", "pause", "pause", "partition", "slow", "stall"))
        seconds = rng.choice((0.2, 2.0, 14.0, 14.0, 35.0)) * (0.5 + rng.random())
        if kind == "pause" and rng.random() < 0.1:
            seconds = 125.0 + rng.random() * 20.0
        if kind == "kill":
            seconds = rng.choice((0.1, 1.0, 12.0)) * (0.5 + rng.random())
        delay = rng.random() * rng.choice((0.0, 0.002, 0.02))
        drawn.append(Fault(rng.randint(10, 220), rng.choice(targets), kind, seconds, delay))
    if rng.random() < 0.4:
        drawn += leader_loss(rng)
    return drawn


def faults_of_one_leader(
    rng: Random, services: tuple[str, ...], leader: str, until: int
) -> list[Fault]:
    """A few faults of the services, and of the leader that the story is about, up to a number of
    messages."""
    drawn = faults(rng, services)[: rng.choice((0, 1, 2, 4))]
    for _ in range(rng.choice((0, 1, 2, 4))):
        kind = rng.choice(("kill", "kill", "pause", "mute", "partition"))
        seconds = rng.choice((0.1, 3.0)) if kind == "kill" else 7.5 + rng.random() * 6.0
        drawn.append(Fault(rng.randint(20, until), leader, kind, seconds, rng.random() * 0.02))
    return drawn


def leader_loss(rng: Random) -> list[Fault]:
    """A scheduler that decides is cut off or killed with decisions on their way, for about as long
    as its lease lasts, while the workload-controller that applies them is slow."""
    after = rng.randint(20, 150)
    kind = rng.choice(("kill", "kill", "pause", "mute", "mute"))
    seconds = 0.1 if kind == "kill" else 7.5 + rng.random() * 4.0
    drawn = [Fault(after, "decider", kind, seconds, rng.random() * 0.01)]
    if rng.random() < 0.7:
        drawn.append(Fault(after, "leader", rng.choice(("slow", "slower", "pause")), 4.0, 0.0))
    return drawn


def skews(rng: Random, services: tuple[str, ...] = SERVICES) -> dict[str, float]:
    if rng.random() < 0.5:
        return {}
    return {name: rng.uniform(-2.0, 2.0) for name in services}
