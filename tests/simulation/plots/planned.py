"""Reservations with planned preemption, and events in between."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from admittance.events import facts
from admittance.scheduling.state.config import Config, FairSharing
from simulation.actors.checks import Tempers
from simulation.actors.courses import Courses
from simulation.plots.checked import healing, meddling, reviving
from simulation.plots.checked_queues import Checked
from simulation.plots.configuration import NAMESPACE
from simulation.plots.scenario import Applying, Saying, Scenario, faults, skews, workload_of


def planned(rng: Random) -> Scenario:
    """Reservations that plan whom they will preempt, while checks make up their minds, victims
    end or change, and others want the same quota."""
    queues = Checked(rng)
    queues.queues, queues.locals = {}, {}
    for number in range(rng.choice((1, 2, 2, 3))):
        spec = queues.queue() | {"cohortName": "c0"}
        for flavor in spec["resourceGroups"][0]["flavors"]:
            flavor["resources"] = [{"name": "cpu", "nominalQuota": rng.randint(1, 4)}]
            if rng.random() < 0.2:
                flavor["resources"][0]["lendingLimit"] = 1
            if rng.random() < 0.2:
                flavor["resources"][0]["borrowingLimit"] = 2
        spec["preemption"] = {
            "withinClusterQueue": rng.choice(("LowerPriority", "LowerOrNewerEqualPriority")),
            "reclaimWithinCohort": rng.choice(("Never", "LowerPriority", "Any")),
        }
        queues.queues[f"q{number}"] = spec
        queues.locals[f"l{number}"] = {"clusterQueue": f"q{number}"}
    for name in queues.checks:
        if rng.random() < 0.6:
            queues.check(name)["preemptionPolicy"] = "AfterCheckPassedOrOnDemand"
    sayings: list[Saying] = []
    names = [f"w{number}" for number in range(rng.randint(4, 9))]
    for name in names:
        at = 1.0 + rng.random() * rng.choice((3.0, 12.0))
        local = rng.choice(sorted(queues.locals))
        raw = workload_of(rng, name, local, priorities=(-1, 0, 1, 2, 3), sides=0.1)
        sayings.append(Saying(at, facts.Submitted(namespace=NAMESPACE, name=name, workload=raw)))
        if rng.random() < 0.3:
            sayings += list(meddling(rng, name, at + rng.random() * 8.0))
        if rng.random() < 0.2:
            me: dict[str, Any] = {"namespace": NAMESPACE, "name": name}
            about = facts.Reprioritized(**me, priority=rng.randint(-2, 4))
            sayings.append(Saying(at + rng.random() * 8.0, about))
    manifests = json.loads(json.dumps(queues.all()))
    applyings = []
    if rng.random() < 0.4:
        edit = json.loads(json.dumps(queues.edit()))
        applyings.append(Applying(3.0 + rng.random() * 10.0, edit))
    applyings += healing(queues)
    sayings += reviving(names)
    return Scenario(
        manifests,
        sayings,
        applyings,
        faults(rng)[: rng.choice((0, 1, 2, 6))],
        skews(rng),
        config=Config(fair_sharing=FairSharing()) if rng.random() < 0.2 else Config(),
        heals=True,
        tempers=Tempers(demands=rng.choice((0.0, 3.0)), rejected=0.3, never=1.0),
        courses=Courses(lengths=(2.0, 12.0, 25.0)),
    )
