"""Budgets: how much queues, namespaces and users may use in a day. The day ends, leaders of the
budget-controller fall, and the log loses its oldest part."""

from __future__ import annotations

from datetime import timedelta
from random import Random
from typing import Any, Final

from admittance.api.budgets import BUDGET_CONTROLLER, VERSION
from admittance.workload.limits import Limits
from simulation.environment.checks import CheckBehavior
from simulation.environment.courses import Courses
from simulation.plots.checked import reactivations, user_changes
from simulation.plots.configuration import NAMESPACE, Manifests, Queues, cpu, manifest
from simulation.plots.scenario import (
    CALM_SECONDS,
    SERVICES,
    AdminChange,
    Scenario,
    UserFact,
    faults_of_one_leader,
    skews,
    submission,
    workload_of,
)
from simulation.virtual_time.loop import START

BUDGET_SERVICES: Final = (*SERVICES, "b-a", "b-b")
BUDGET: Final = "b0"
CHECK: Final = "budget"
ACCOUNTS: Final = {
    "ClusterQueue": ("q0", "q1"),
    "LocalQueue": (f"{NAMESPACE}/l0", f"{NAMESPACE}/l1"),
    "Namespace": (NAMESPACE,),
    "User": (),
}
"""The accounts of a budget that have a limit of their own now and then; no job has a user."""
MIDNIGHT: Final = float(24 * 3600 - START.hour * 3600)
"""The virtual time at which the first day ends."""
PLENTY: Final = 1_000_000
LOG_BYTES: Final = 25_000
"""Above this size the log loses its oldest part: about a third of what a story writes."""


def budgeted(rng: Random) -> Scenario:
    """Jobs that need more of a day than their budget has; in the end it has enough."""
    begins = MIDNIGHT - rng.choice((10.0, 25.0, 45.0, 600.0))
    queues = _queues(rng)
    with_check = rng.random() < 0.25
    if with_check:
        queues.checks = ["k0"]
        queues.queues["q0"]["admissionChecks"] = [CHECK, "k0"]
    per = rng.choice(sorted(ACCOUNTS))
    spec: dict[str, Any] = {
        "per": per,
        "window": "Day",
        "unit": "cpu-seconds",
        "limit": rng.randint(25, 70),
        "maxDelaySeconds": rng.choice((12, 25, 40)),
    }
    if ACCOUNTS[per] and rng.random() < 0.4:
        spec["limits"] = {rng.choice(ACCOUNTS[per]): rng.randint(25, 90)}
    unlimited = rng.choice((0.0, 0.0, 0.0, 0.3))
    span = rng.choice((5.0, 20.0, 40.0))
    user_facts: list[UserFact] = []
    names = [f"w{number}" for number in range(rng.randint(5, 10))]
    for name in names:
        at = begins + 1.5 + rng.random() * span
        most = None if rng.random() < unlimited else rng.choice((4, 8, 15, 22))
        raw = workload_of(rng, name, rng.choice(sorted(queues.locals)), most=most, cpus=_cpus(rng))
        user_facts.append(submission(at, name, raw))
        if rng.random() < 0.2:
            user_facts += user_changes(rng, name, at + rng.random() * 15.0)
    calm = begins + CALM_SECONDS
    return Scenario(
        [*queues.all(), *_budget(spec)],
        [*user_facts, *reactivations(names, calm)],
        [
            *([AdminChange(calm - 60.0, _raised(rng, spec))] if rng.random() < 0.2 else []),
            AdminChange(calm, _budget(spec | {"limit": PLENTY, "limits": {}})),
        ],
        faults_of_one_leader(rng, BUDGET_SERVICES, "budget-leader", until=300),
        skews(rng, BUDGET_SERVICES),
        limits=Limits(drain=timedelta(seconds=rng.choice((6.0, 20.0)))),
        heals=True,
        services=BUDGET_SERVICES,
        begins=begins,
        calm=calm,
        check_behavior=CheckBehavior(rejected=0.0, never=0.3),
        courses=Courses(
            lengths=rng.choice(((2.0, 6.0, 30.0), (12.0, 30.0))),
            ignores_stop=rng.choice((0.0, 0.2)),
        ),
        log_bytes=rng.choice((0, LOG_BYTES)),
    )


def _cpus(rng: Random) -> int:
    return rng.choice((1, 1, 2, 3))


def _queues(rng: Random) -> Queues:
    queues = Queues(rng)
    queues.checks = []
    queues.flavors = ["f0"]
    queues.clear("c0")
    for _ in range(rng.choice((1, 2))):
        spec = queues.queue() | {"cohortName": "c0", "queueingStrategy": "BestEffortFIFO"}
        flavor = {"name": "f0", "resources": cpu(rng.randint(3, 6))}
        spec["resourceGroups"] = [{"coveredResources": ["cpu"], "flavors": [flavor]}]
        spec["admissionChecks"] = [CHECK]
        queues.add(spec)
    return queues


def _budget(spec: dict[str, Any]) -> Manifests:
    """The budget, and the check that names it."""
    group, kind = VERSION.partition("/")[0], "Budget"
    parameters = {"apiGroup": group, "kind": kind, "name": BUDGET}
    check = {"controllerName": BUDGET_CONTROLLER, "parameters": parameters}
    budget = manifest(kind, BUDGET, spec) | {"apiVersion": VERSION}
    return [budget, manifest("AdmissionCheck", CHECK, check)]


def _raised(rng: Random, spec: dict[str, Any]) -> Manifests:
    """The budget with a somewhat higher limit."""
    return _budget(spec | {"limit": spec["limit"] + rng.randint(5, 40)})
