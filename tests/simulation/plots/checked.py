"""Workloads that wait for checks, and what users and admins do in the middle of it: the plots
``checked`` and ``planned``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from random import Random
from typing import Any

from admittance.events import facts
from admittance.scheduling.state.config import CohortFairSharing, Config
from admittance.workload.limits import Limits
from simulation.environment.checks import CheckBehavior
from simulation.environment.courses import Courses
from simulation.plots.checked_queues import CheckedQueues
from simulation.plots.configuration import NAMESPACE, cpu
from simulation.plots.scenario import (
    CALM_SECONDS,
    AdminChange,
    Scenario,
    UserFact,
    edits,
    faults,
    one_edit,
    outages_of,
    pods_ready,
    skews,
    submission,
    workload_of,
)


def checked(rng: Random, kind: Callable[[Random], CheckedQueues] = CheckedQueues) -> Scenario:
    """Few workloads; their checks give verdicts, change them and fall silent; jobs are late and do
    not stop; users and admins change things in the middle."""
    queues = kind(rng)
    span = rng.choice((0.5, 6.0, 20.0))
    user_facts: list[UserFact] = []
    names = [f"w{number}" for number in range(rng.randint(1, 5))]
    for name in names:
        at = 1.0 + rng.random() * span
        local = rng.choice(sorted(queues.locals))
        raw = workload_of(rng, name, local, most=rng.choice((None, None, None, 3, 8)), sides=0.2)
        user_facts.append(submission(at, name, raw))
        for _ in range(rng.choice((0, 0, 1, 1, 2, 3))):
            at += rng.random() * rng.choice((0.05, 1.0, 15.0))
            user_facts += user_changes(rng, name, at)
    limits = _limits(rng)
    manifests = queues.snapshot()
    admin_changes = edits(rng, queues, (0, 0, 1, 1, 2, 4), (0.3, 2.0, 15.0))
    if rng.random() < 0.3:
        at = 1.0 + rng.random() * 15.0
        for active in rng.choice(((False, True), (False,), (True, False, True))):
            admin_changes.append(AdminChange(at, queues.beat(active=active)))
            at += rng.random() * 8.0
    admin_changes += repairs(queues)
    outages = outages_of(rng, (0, 0, 1, 3))
    return Scenario(
        manifests,
        [*user_facts, *reactivations(names)],
        admin_changes,
        faults(rng)[: rng.choice((0, 1, 2, 6))],
        skews(rng),
        config=Config(
            block_admission=limits.pods_ready is not None and limits.pods_ready.block_admission,
            requeuing_timestamp=rng.choice(("Eviction", "Creation")),
        ),
        limits=limits,
        heals=True,
        check_behavior=CheckBehavior(
            rejected=rng.choice((0.2, 1.5)),
            never=rng.choice((0.3, 2.0)),
            turns=rng.choice((1.0, 4.0)),
            demands=rng.choice((0.0, 1.0)),
            foreign=0.05,
            updates=rng.choice((0.0, 0.5)),
            repeats_retry=rng.choice((0.0, 0.0, 0.0, 0.9)),
        ),
        outages=outages,
        lost_timers=(rng.random() * 40.0,) if rng.random() < 0.2 else (),
        courses=Courses(
            slow=rng.choice((0.0, 0.4)),
            flapping=rng.choice((0.0, 0.3)),
            ignores_stop=rng.choice((0.0, 0.2)),
            hangs=rng.choice((0.0, 0.2)),
        ),
    )


def planned(rng: Random) -> Scenario:
    """Reservations with planned preemption, while checks have given no verdict, victims end or
    change, and other workloads want the same quota."""
    queues = CheckedQueues(rng)
    queues.clear("c0")
    for _ in range(rng.choice((1, 2, 2, 3))):
        spec = queues.queue() | {"cohortName": "c0"}
        for flavor in spec["resourceGroups"][0]["flavors"]:
            flavor["resources"] = cpu(rng.randint(1, 4))
            if rng.random() < 0.2:
                flavor["resources"][0]["lendingLimit"] = 1
            if rng.random() < 0.2:
                flavor["resources"][0]["borrowingLimit"] = 2
        spec["preemption"] = {
            "withinClusterQueue": rng.choice(("LowerPriority", "LowerOrNewerEqualPriority")),
            "reclaimWithinCohort": rng.choice(("Never", "LowerPriority", "Any")),
        }
        queues.add(spec)
    for name in queues.checks:
        if rng.random() < 0.6:
            queues.check(name)["preemptionPolicy"] = "AfterCheckPassedOrOnDemand"
    user_facts: list[UserFact] = []
    names = [f"w{number}" for number in range(rng.randint(4, 9))]
    for name in names:
        at = 1.0 + rng.random() * rng.choice((3.0, 12.0))
        local = rng.choice(sorted(queues.locals))
        raw = workload_of(rng, name, local, priorities=(-1, 0, 1, 2, 3), sides=0.1)
        user_facts.append(submission(at, name, raw))
        if rng.random() < 0.3:
            user_facts += user_changes(rng, name, at + rng.random() * 8.0)
        if rng.random() < 0.2:
            changed = facts.Reprioritized(
                namespace=NAMESPACE, name=name, priority=rng.randint(-2, 4)
            )
            user_facts.append(UserFact(at + rng.random() * 8.0, changed))
    manifests = queues.snapshot()
    admin_changes = [one_edit(rng, queues, 10.0)] if rng.random() < 0.4 else []
    return Scenario(
        manifests,
        [*user_facts, *reactivations(names)],
        [*admin_changes, *repairs(queues)],
        faults(rng)[: rng.choice((0, 1, 2, 6))],
        skews(rng),
        config=Config(fair_sharing=CohortFairSharing()) if rng.random() < 0.2 else Config(),
        heals=True,
        check_behavior=CheckBehavior(demands=rng.choice((0.0, 3.0)), rejected=0.3, never=1.0),
        courses=Courses(lengths=(2.0, 12.0, 25.0)),
    )


def repairs(queues: CheckedQueues, at: float = CALM_SECONDS) -> list[AdminChange]:
    """In the end everything is well."""
    beats = [[{"beat": {"check": check, "active": True}}] for check in queues.checks]
    return [AdminChange(at, queues.repaired()), *(AdminChange(at + 1.0, beat) for beat in beats)]


def reactivations(names: list[str], at: float = CALM_SECONDS) -> Iterator[UserFact]:
    """Lets every workload go on."""
    for name in names:
        me: dict[str, Any] = {"namespace": NAMESPACE, "name": name}
        yield UserFact(at + 2.0, facts.Released(**me))
        yield UserFact(at + 4.0, facts.Activated(**me))


def user_changes(rng: Random, name: str, at: float) -> Iterator[UserFact]:
    """Plans a user's changes of a workload that has not ended."""
    me: dict[str, Any] = {"namespace": NAMESPACE, "name": name}
    match rng.choice(("stop", "stop", "stop", "hold", "priority", "delete", "finish")):
        case "stop":
            yield UserFact(at, facts.Deactivated(**me))
            if rng.random() < 0.85:
                yield UserFact(at + rng.random() * rng.choice((0.1, 6.0)), facts.Activated(**me))
        case "hold":
            yield UserFact(at, facts.Held(**me))
            yield UserFact(at + rng.random() * 5.0, facts.Released(**me))
        case "priority":
            yield UserFact(at, facts.Reprioritized(**me, priority=rng.randint(-2, 3)))
        case "delete" if rng.random() < 0.5:
            yield UserFact(at, facts.Deleted(**me))
        case "finish" if rng.random() < 0.3:
            yield UserFact(at, facts.Finished(**me))


def _limits(rng: Random) -> Limits:
    drain = timedelta(seconds=rng.choice((6.0, 20.0, 300.0)))
    pacing = timedelta(seconds=rng.choice((0, 3, 60, 60)))
    waiting = None if rng.random() < 0.6 else pods_ready(rng, blocks=0.3)
    return Limits(
        drain=drain, pods_ready=waiting, requeue_after=rng.random() < 0.9, pacing_max=pacing
    )
