"""The plot ``scenario``: a random mixture, with queues that are edited."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from admittance.events import facts
from simulation.plots.checked import checked
from simulation.plots.configuration import NAMESPACE, Queues
from simulation.plots.contested import contested, preempting, reconfigured
from simulation.plots.families import exclusive, families
from simulation.plots.planned import planned
from simulation.plots.provided import provided
from simulation.plots.scenario import (
    ACTIVE_SECONDS,
    Applying,
    Saying,
    Scenario,
    skews,
    workload_of,
)
from simulation.plots.scenario import faults as faults_of


def scenario(rng: Random) -> Scenario:
    """A random one."""
    kind = rng.random()
    if kind < 0.06:
        return contested(rng)
    if kind < 0.12:
        return reconfigured(rng)
    if kind < 0.22:
        return preempting(rng)
    if kind < 0.26:
        return provided(rng)
    if kind < 0.52:
        return checked(rng)
    if kind < 0.62:
        return families(rng)
    if kind < 0.8:
        return planned(rng)
    if kind < 0.86:
        return exclusive(rng)
    queues = Queues(rng)
    manifests = json.loads(json.dumps(queues.all()))
    sayings: list[Saying] = []
    span = rng.choice((2.0, 15.0, 15.0, 30.0, ACTIVE_SECONDS))
    names = [f"w{number}" for number in range(rng.randint(4, 14))]
    for name in names:
        at = 1.0 + rng.random() * span
        me: dict[str, Any] = {"namespace": NAMESPACE, "name": name}
        queue = rng.choice(sorted(queues.locals))
        submitted = facts.Submitted(**me, workload=workload_of(rng, name, queue))
        sayings.append(Saying(at, submitted))
        for _ in range(rng.choice((0, 0, 0, 1, 1, 2))):
            at += rng.random() * rng.choice((0.05, 1.0, 15.0))
            match rng.choice(("stop", "stop", "hold", "priority", "delete", "finish")):
                case "stop":
                    sayings.append(Saying(at, facts.Deactivated(**me)))
                    at += rng.random() * 5.0
                    if rng.random() < 0.8:
                        sayings.append(Saying(at, facts.Activated(**me)))
                case "hold":
                    sayings.append(Saying(at, facts.Held(**me)))
                    at += rng.random() * 5.0
                    if rng.random() < 0.8:
                        sayings.append(Saying(at, facts.Released(**me)))
                case "priority":
                    sayings.append(
                        Saying(at, facts.Reprioritized(**me, priority=rng.randint(-2, 3)))
                    )
                case "finish" if rng.random() < 0.3:
                    sayings.append(Saying(at, facts.Finished(**me)))
                case "delete":
                    sayings.append(Saying(at, facts.Deleted(**me)))
                    if rng.random() < 0.5:
                        again = facts.Submitted(**me, workload=workload_of(rng, name, queue))
                        sayings.append(Saying(at + rng.random() * 6.0, again))
    applyings = []
    at = 2.0
    for _ in range(rng.choice((0, 0, 1, 2, 3, 5))):
        at += rng.random() * rng.choice((0.3, 1.0, 20.0))
        applyings.append(Applying(at, json.loads(json.dumps(queues.edit()))))
    return Scenario(manifests, sayings, applyings, faults_of(rng), skews(rng))
