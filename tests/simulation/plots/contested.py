"""Tight queues and leaders that fall: contested, reconfigured and preempting."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from admittance.events import facts
from admittance.events.base import Fact
from admittance.scheduling.state.config import Config, FairSharing
from simulation.plots.configuration import NAMESPACE, Queues, manifest
from simulation.plots.scenario import (
    Applying,
    Fault,
    Saying,
    Scenario,
    coup,
    skews,
    workload_of,
)
from simulation.plots.scenario import faults as faults_of


def contested(rng: Random) -> Scenario:
    """One tight queue, and leaders that fall again and again while decisions are on their way."""
    queues = Queues(rng)
    queues.checks = []
    queues.flavors = ["f0"]
    queues.cohorts = []
    queues.trees = {}
    queues.queues = {"q0": queues.queue()}
    queues.locals = {"l0": {"clusterQueue": "q0"}}
    quota = {"name": "cpu", "nominalQuota": rng.randint(2, 4)}
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "f0", "resources": [quota]}]}]
    queues.queues["q0"] |= {"resourceGroups": groups, "queueingStrategy": "BestEffortFIFO"}
    sayings = []
    for number in range(16):
        name = f"w{number}"
        submitted = facts.Submitted(
            namespace=NAMESPACE, name=name, workload=workload_of(rng, name, "l0")
        )
        sayings.append(Saying(1.0 + rng.random() * 20.0, submitted))
    faults = []
    for _ in range(6):
        faults += coup(rng)
    return Scenario(queues.all(), sayings, [], faults, skews(rng))


def reconfigured(rng: Random) -> Scenario:
    """The same with quotas that are edited all the time, by leaders that fall."""
    base = contested(rng)
    queue = next(one for one in base.manifests if one["kind"] == "ClusterQueue")
    applyings = []
    at = 2.0
    for _ in range(12):
        at += rng.random() * 2.5
        edited = json.loads(json.dumps(queue))
        if rng.random() < 0.5:
            flavor = edited["spec"]["resourceGroups"][0]["flavors"][0]
            flavor["resources"][0]["nominalQuota"] = rng.randint(2, 4)
        else:
            labels = {"x": str(rng.randint(0, 9))}
            local = {"clusterQueue": "q0"}
            edited = manifest("LocalQueue", "l0", local, namespace=NAMESPACE, labels=labels)
        applyings.append(Applying(at, [edited]))
    faults = []
    for _ in range(5):
        what = rng.choice(("pause", "pause", "partition", "mute", "kill", "slower"))
        seconds = rng.choice((0.1, 9.0, 12.0))
        faults.append(Fault(rng.randint(20, 200), "leader", what, seconds, rng.random() * 0.01))
    return base._replace(applyings=applyings, faults=faults)


def preempting(rng: Random) -> Scenario:
    """Two queues of a cohort that take from each other and among themselves, while leaders fall;
    often with a check, so that some victims run and others merely hold a reservation."""
    queues = Queues(rng)
    queues.flavors = ["f0"]
    queues.checks = ["k0"]
    queues.cohorts = ["c0"]
    queues.trees = {"c0": {}}
    queues.queues, queues.locals = {}, {}
    for number in range(2):
        spec = queues.queue() | {"cohortName": "c0", "queueingStrategy": "BestEffortFIFO"}
        quota = {"name": "cpu", "nominalQuota": rng.randint(1, 4)}
        spec["resourceGroups"] = [
            {"coveredResources": ["cpu"], "flavors": [{"name": "f0", "resources": [quota]}]}
        ]
        spec["preemption"] = queues.preemption()
        spec.pop("admissionChecks", None)
        if rng.random() < 0.6:
            spec["admissionChecks"] = ["k0"]
        queues.queues[f"q{number}"] = spec
        queues.locals[f"l{number}"] = {"clusterQueue": f"q{number}"}
    sayings = []
    for number in range(14):
        name = f"w{number}"
        me: dict[str, Any] = {"namespace": NAMESPACE, "name": name}
        raw = workload_of(rng, name, rng.choice(("l0", "l1")), priorities=(-1, 0, 0, 1, 2))
        at = 1.0 + rng.random() * rng.choice((4.0, 25.0))
        sayings.append(Saying(at, facts.Submitted(**me, workload=raw)))
        if rng.random() < 0.2:
            at += rng.random() * 8.0
            about: Fact = facts.Deleted(**me)
            if rng.random() < 0.6:
                about = facts.Reprioritized(**me, priority=rng.randint(-2, 3))
            sayings.append(Saying(at, about))
    manifests = json.loads(json.dumps(queues.all()))
    applyings = []
    if rng.random() < 0.3:
        at = 3.0 + rng.random() * 10.0
        applyings.append(Applying(at, json.loads(json.dumps(queues.edit()))))
    faults = faults_of(rng)
    for _ in range(rng.choice((0, 2, 4))):
        faults += coup(rng)
    config = Config(fair_sharing=FairSharing()) if rng.random() < 0.3 else Config()
    return Scenario(manifests, sayings, applyings, faults, skews(rng), config)
