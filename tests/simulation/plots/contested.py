"""Tight queues and leaders that fall: contested, reconfigured and preempting."""

from __future__ import annotations

from copy import deepcopy
from random import Random
from typing import Any

from admittance.events import facts
from admittance.events.base import Fact
from admittance.scheduling.state.config import CohortFairSharing, Config
from simulation.plots.configuration import NAMESPACE, Queues, Spec, cpu, manifest
from simulation.plots.scenario import (
    AdminChange,
    Fault,
    Scenario,
    UserFact,
    leader_loss,
    skews,
    submission,
    workload_of,
)
from simulation.plots.scenario import faults as faults_of


def contested(rng: Random) -> Scenario:
    """One tight queue, and leaders that fall again and again while decisions are on their way."""
    queues = Queues(rng)
    queues.checks = []
    queues.flavors = ["f0"]
    queues.cohorts = []
    spec = queues.queue() | {"queueingStrategy": "BestEffortFIFO"}
    queues.clear()
    queues.add(spec)
    spec["resourceGroups"] = _one_flavor(rng.randint(2, 4))
    user_facts = []
    for number in range(16):
        raw = workload_of(rng, f"w{number}", "l0")
        user_facts.append(submission(1.0 + rng.random() * 20.0, f"w{number}", raw))
    losses = [fault for _ in range(6) for fault in leader_loss(rng)]
    return Scenario(queues.all(), user_facts, [], losses, skews(rng))


def backfilled(rng: Random) -> Scenario:
    """One queue that promises its large workloads a start; in every second story nothing fails."""
    base = contested(rng)
    manifests = deepcopy(base.manifests)
    queue = next(one for one in manifests if one["kind"] == "ClusterQueue")
    nominal = rng.randint(4, 6)
    queue["spec"] |= {"backfill": "Easy", "resourceGroups": _one_flavor(nominal)}
    user_facts = []
    for number in range(16):
        name = f"w{number}"
        most = rng.choice((3, 6, 6, 12, 25, 25, None)) if number else 25
        cpus = rng.choice((1, 1, 2, nominal - 1, nominal))
        raw = workload_of(rng, name, "l0", priorities=(0, 0, 0, 1), most=most, cpus=cpus)
        user_facts.append(submission(1.0 + rng.random() * 30.0, name, raw))
    calm = rng.random() < 0.5
    return base._replace(
        manifests=manifests,
        user_facts=user_facts,
        faults=[] if calm else base.faults,
        skews={} if calm else base.skews,
    )


def _one_flavor(nominal: int) -> list[Spec]:
    return [{"coveredResources": ["cpu"], "flavors": [{"name": "f0", "resources": cpu(nominal)}]}]


def reconfigured(rng: Random) -> Scenario:
    """The same with quotas that are edited all the time, by leaders that fall."""
    base = contested(rng)
    queue = next(manifest for manifest in base.manifests if manifest["kind"] == "ClusterQueue")
    admin_changes = []
    at = 2.0
    for _ in range(12):
        at += rng.random() * 2.5
        edited = deepcopy(queue)
        if rng.random() < 0.5:
            flavor = edited["spec"]["resourceGroups"][0]["flavors"][0]
            flavor["resources"][0]["nominalQuota"] = rng.randint(2, 4)
        else:
            labels = {"x": str(rng.randint(0, 9))}
            local = {"clusterQueue": "q0"}
            edited = manifest("LocalQueue", "l0", local, namespace=NAMESPACE, labels=labels)
        admin_changes.append(AdminChange(at, [edited]))
    faults = []
    for _ in range(5):
        kind = rng.choice(("pause", "pause", "partition", "mute", "kill", "slower"))
        seconds = rng.choice((0.1, 9.0, 12.0))
        faults.append(Fault(rng.randint(20, 200), "leader", kind, seconds, rng.random() * 0.01))
    return base._replace(admin_changes=admin_changes, faults=faults)


def _protect(queues: Queues) -> None:
    """Lets the workloads of the first queue run for some time before they are preempted, and those
    of the second one if others can be preempted in their place."""
    first, second = queues.queues.values()
    first["preemption"]["minRunSeconds"] = 5
    second["preemption"] |= {"minRunSeconds": 20, "minRunPolicy": "Preferred"}


def preempting(rng: Random) -> Scenario:
    """Two queues of a cohort that take from each other and among themselves, while leaders fall;
    often with a check, so that some victims run and others merely hold a reservation."""
    queues = Queues(rng)
    queues.flavors = ["f0"]
    queues.checks = ["k0"]
    queues.clear("c0")
    for _ in range(2):
        spec = queues.queue() | {"cohortName": "c0", "queueingStrategy": "BestEffortFIFO"}
        spec["resourceGroups"] = _one_flavor(rng.randint(1, 4))
        spec["preemption"] = queues.preemption()
        spec.pop("admissionChecks", None)
        if rng.random() < 0.6:
            spec["admissionChecks"] = ["k0"]
        queues.add(spec)
    user_facts = []
    for number in range(14):
        name = f"w{number}"
        me: dict[str, Any] = {"namespace": NAMESPACE, "name": name}
        raw = workload_of(rng, name, rng.choice(("l0", "l1")), priorities=(-1, 0, 0, 1, 2))
        at = 1.0 + rng.random() * rng.choice((4.0, 25.0))
        user_facts.append(submission(at, name, raw))
        if rng.random() < 0.2:
            at += rng.random() * 8.0
            about: Fact = facts.Deleted(**me)
            if rng.random() < 0.6:
                about = facts.Reprioritized(**me, priority=rng.randint(-2, 3))
            user_facts.append(UserFact(at, about))
    if len(user_facts) % 2:
        # Without a further draw, so that the other stories stay as they are.
        _protect(queues)
    manifests = queues.snapshot()
    admin_changes = []
    if rng.random() < 0.3:
        at = 3.0 + rng.random() * 10.0
        admin_changes.append(AdminChange(at, deepcopy(queues.edit())))
    faults = faults_of(rng)
    for _ in range(rng.choice((0, 2, 4))):
        faults += leader_loss(rng)
    config = Config(fair_sharing=CohortFairSharing()) if rng.random() < 0.3 else Config()
    return Scenario(manifests, user_facts, admin_changes, faults, skews(rng), config)
