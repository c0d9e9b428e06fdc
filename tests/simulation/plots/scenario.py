"""What happens in a run: queues, workloads, what users and admins do, and which faults strike.

Small on purpose: few queues, tight quotas, many collisions.
"""

from __future__ import annotations

import json
from datetime import timedelta
from random import Random
from typing import Any, Final, NamedTuple

import msgspec

from admittance.events.base import Fact
from admittance.scheduling.state.config import Config
from admittance.workload.limits import Limits
from simulation.actors.checks import Outage, Tempers
from simulation.actors.courses import Courses
from simulation.plots.configuration import NAMESPACE, manifest

ACTIVE_SECONDS: Final = 60.0
"""For so long users act and faults strike."""
CALM_SECONDS: Final = 90.0
"""From here on nothing goes wrong any more."""
SERVICES: Final = ("wc-a", "wc-b", "s-a", "s-b", "r-a", "r-b", "t-a", "t-b")
PROVIDED_SERVICES: Final = (*SERVICES, "p-a", "p-b")
"""With those that see to capacity."""
FAMILY_SERVICES: Final = (*SERVICES, "v-a", "v-b")
"""With those that see to families."""


class Saying(NamedTuple):
    """A user says something."""

    at: float
    fact: Fact


class Applying(NamedTuple):
    """An admin applies something."""

    at: float
    manifests: list[dict[str, Any]]


class Fault(NamedTuple):
    """Something goes wrong with a service, at the ``after``-th message that the server stores:
    so it strikes where work is done, not while all is idle. ``who`` "leader": the active
    workload-controller; "decider": a scheduler that decides. ``seconds``: how long it lasts."""

    after: int
    who: str
    what: str
    seconds: float
    delay: float


class Scenario(NamedTuple):
    """``lost_timers``: when the server forgets every schedule that it has. ``heals``: in the end
    there is room for all, and nothing is stopped or turned off, so that everything must end.
    ``calm``: when that end begins."""

    manifests: list[dict[str, Any]]
    sayings: list[Saying]
    applyings: list[Applying]
    faults: list[Fault]
    skews: dict[str, float]
    config: Config = Config()
    limits: Limits = Limits()
    tempers: Tempers = Tempers()
    outages: tuple[Outage, ...] = ()
    lost_timers: tuple[float, ...] = ()
    courses: Courses = Courses()
    heals: bool = False
    services: tuple[str, ...] = SERVICES
    calm: float = CALM_SECONDS

    def slack(self) -> timedelta:
        """By how much any clock may be ahead."""
        return timedelta(seconds=max((0.0, *self.skews.values())))


def workload_of(
    rng: Random,
    name: str,
    queue: str,
    *,
    priorities: tuple[int, ...] = (),
    most: int | None = None,
    sides: float = 0.0,
) -> msgspec.Raw:
    """``most``: seconds that it may run. ``sides``: how likely a second pod set is."""
    container = {
        "name": "c",
        "image": "i",
        "command": ["true"],
        "resources": {"requests": {"cpu": str(rng.choice((1, 1, 2, 3)))}},
    }
    spec: dict[str, Any] = {
        "queueName": queue,
        "podSets": [
            {
                "name": "main",
                "count": rng.choice((1, 1, 1, 2)),
                "template": {"spec": {"containers": [container], "restartPolicy": "Never"}},
            }
        ],
    }
    if priorities:
        spec["priority"] = rng.choice(priorities)
    elif rng.random() < 0.4:
        spec["priority"] = rng.randint(-1, 2)
    if most is not None:
        spec["maximumExecutionTimeSeconds"] = most
    (pod_set,) = spec["podSets"]
    if rng.random() < 0.1:
        pod_set["count"], pod_set["minCount"] = 3, 1
    if rng.random() < sides:
        spec["podSets"].append(
            {"name": "side", "count": 1, "template": json.loads(json.dumps(pod_set["template"]))}
        )
    made = manifest("Workload", name, spec, namespace=NAMESPACE)
    return msgspec.Raw(json.dumps(made).encode())


def faults(rng: Random, services: tuple[str, ...] = SERVICES) -> list[Fault]:
    found = []
    who = ("leader", "leader", *services, "s-a", "s-b")
    for _ in range(rng.choice((0, 1, 2, 3, 4, 6, 8))):
        what = rng.choice(("kill", "kill", "kill", "pause", "pause", "partition", "slow", "stall"))
        seconds = rng.choice((0.2, 2.0, 14.0, 14.0, 35.0)) * (0.5 + rng.random())
        if what == "pause" and rng.random() < 0.1:
            seconds = 125.0 + rng.random() * 20.0
        if what == "kill":
            seconds = rng.choice((0.1, 1.0, 12.0)) * (0.5 + rng.random())
        delay = rng.random() * rng.choice((0.0, 0.002, 0.02))
        found.append(Fault(rng.randint(10, 220), rng.choice(who), what, seconds, delay))
    if rng.random() < 0.4:
        found += coup(rng)
    return found


def coup(rng: Random) -> list[Fault]:
    """Whoever decides is cut off or killed with decisions on their way, for about as long as its
    lease lasts, while whoever applies them is slow."""
    after = rng.randint(20, 150)
    what = rng.choice(("kill", "kill", "pause", "mute", "mute"))
    seconds = 0.1 if what == "kill" else 7.5 + rng.random() * 4.0
    found = [Fault(after, "decider", what, seconds, rng.random() * 0.01)]
    if rng.random() < 0.7:
        found.append(Fault(after, "leader", rng.choice(("slow", "slower", "pause")), 4.0, 0.0))
    return found


def skews(rng: Random, services: tuple[str, ...] = SERVICES) -> dict[str, float]:
    if rng.random() < 0.5:
        return {}
    return {name: rng.uniform(-2.0, 2.0) for name in services}
