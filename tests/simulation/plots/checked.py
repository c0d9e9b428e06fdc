"""Workloads in the hands of checks, and what users and admins do in the middle of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from random import Random
from typing import Any

from admittance.events import facts
from admittance.scheduling.state.config import Config
from admittance.workload.limits import Limits, PodsReadyLimits
from simulation.actors.checks import Outage, Tempers
from simulation.actors.courses import Courses
from simulation.plots.checked_queues import Checked
from simulation.plots.configuration import NAMESPACE
from simulation.plots.scenario import (
    CALM_SECONDS,
    Applying,
    Saying,
    Scenario,
    faults,
    skews,
    workload_of,
)


def checked(rng: Random, kind: Callable[[Random], Checked] = Checked) -> Scenario:
    """Few workloads in the hands of checks that judge, turn and fall silent, of jobs that are late
    and deaf, and of users and admins who do something in the middle."""
    queues = kind(rng)
    span = rng.choice((0.5, 6.0, 20.0))
    sayings: list[Saying] = []
    names = [f"w{number}" for number in range(rng.randint(1, 5))]
    for name in names:
        at = 1.0 + rng.random() * span
        local = rng.choice(sorted(queues.locals))
        raw = workload_of(rng, name, local, most=rng.choice((None, None, None, 3, 8)), sides=0.2)
        sayings.append(Saying(at, facts.Submitted(namespace=NAMESPACE, name=name, workload=raw)))
        for _ in range(rng.choice((0, 0, 1, 1, 2, 3))):
            at += rng.random() * rng.choice((0.05, 1.0, 15.0))
            sayings += list(meddling(rng, name, at))
    limits = _limits(rng)
    manifests = json.loads(json.dumps(queues.all()))
    applyings = []
    at = 2.0
    for _ in range(rng.choice((0, 0, 1, 1, 2, 4))):
        at += rng.random() * rng.choice((0.3, 2.0, 15.0))
        applyings.append(Applying(at, json.loads(json.dumps(queues.edit()))))
    if rng.random() < 0.3:
        at = 1.0 + rng.random() * 15.0
        for active in rng.choice(((False, True), (False,), (True, False, True))):
            applyings.append(Applying(at, queues.beat(active=active)))
            at += rng.random() * 8.0
    applyings += healing(queues)
    sayings += reviving(names)
    outages = [
        Outage(rng.random() * 30.0, rng.choice((0, 1)), rng.random() * 15.0)
        for _ in range(rng.choice((0, 0, 1, 3)))
    ]
    return Scenario(
        manifests,
        sayings,
        applyings,
        faults(rng)[: rng.choice((0, 1, 2, 6))],
        skews(rng),
        config=Config(
            block_admission=limits.pods_ready is not None and limits.pods_ready.block_admission,
            requeuing_timestamp=rng.choice(("Eviction", "Creation")),
        ),
        limits=limits,
        heals=True,
        tempers=Tempers(
            rejected=rng.choice((0.2, 1.5)),
            never=rng.choice((0.3, 2.0)),
            turns=rng.choice((1.0, 4.0)),
            demands=rng.choice((0.0, 1.0)),
            foreign=0.05,
            updates=rng.choice((0.0, 0.5)),
            stubborn=rng.choice((0.0, 0.0, 0.0, 0.9)),
        ),
        outages=tuple(outages),
        lost_timers=(rng.random() * 40.0,) if rng.random() < 0.2 else (),
        courses=Courses(
            slow=rng.choice((0.0, 0.4)),
            flapping=rng.choice((0.0, 0.3)),
            deaf=rng.choice((0.0, 0.2)),
            mute=rng.choice((0.0, 0.2)),
        ),
    )


def healing(queues: Checked, at: float = CALM_SECONDS) -> list[Applying]:
    """In the end everything is well."""
    found = [Applying(at, json.loads(json.dumps(queues.healed())))]
    for check in queues.checks:
        beat = {"beat": {"check": check, "active": True}}
        found.append(Applying(at + 1.0, [beat]))
    return found


def reviving(names: list[str], at: float = CALM_SECONDS) -> Iterator[Saying]:
    """Lets every part go on."""
    for name in names:
        me: dict[str, Any] = {"namespace": NAMESPACE, "name": name}
        yield Saying(at + 2.0, facts.Released(**me))
        yield Saying(at + 4.0, facts.Activated(**me))


def meddling(rng: Random, name: str, at: float) -> Iterator[Saying]:
    """What a user does to a workload in the middle of its life."""
    me: dict[str, Any] = {"namespace": NAMESPACE, "name": name}
    match rng.choice(("stop", "stop", "stop", "hold", "priority", "delete", "finish")):
        case "stop":
            yield Saying(at, facts.Deactivated(**me))
            if rng.random() < 0.85:
                yield Saying(at + rng.random() * rng.choice((0.1, 6.0)), facts.Activated(**me))
        case "hold":
            yield Saying(at, facts.Held(**me))
            yield Saying(at + rng.random() * 5.0, facts.Released(**me))
        case "priority":
            yield Saying(at, facts.Reprioritized(**me, priority=rng.randint(-2, 3)))
        case "delete" if rng.random() < 0.5:
            yield Saying(at, facts.Deleted(**me))
        case "finish" if rng.random() < 0.3:
            yield Saying(at, facts.Finished(**me))


def _limits(rng: Random) -> Limits:
    drain = timedelta(seconds=rng.choice((6.0, 20.0, 300.0)))
    pacing = timedelta(seconds=rng.choice((0, 3, 60, 60)))
    if rng.random() < 0.6:
        return Limits(drain=drain, requeue_after=rng.random() < 0.9, pacing_max=pacing)
    waiting = PodsReadyLimits(
        timeout=timedelta(seconds=rng.choice((2.0, 8.0, 40.0))),
        recovery=rng.choice((None, timedelta(seconds=3.0))),
        block_admission=rng.random() < 0.3,
        backoff_limit=rng.choice((None, 0, 1, 2)),
        backoff_base=rng.choice((1, 5)),
        backoff_max=rng.choice((4, 60)),
    )
    return Limits(
        drain=drain, pods_ready=waiting, requeue_after=rng.random() < 0.9, pacing_max=pacing
    )
