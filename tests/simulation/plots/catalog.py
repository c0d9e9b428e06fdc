"""The plots: each makes scenarios of its kind. ``scenario`` is a random mixture of all."""

from __future__ import annotations

from random import Random
from typing import Any, Final

from admittance.events import facts
from admittance.events.base import Fact
from simulation.plots.arrays import arrays
from simulation.plots.budgeted import budgeted
from simulation.plots.checked import checked, planned
from simulation.plots.configuration import NAMESPACE, Queues
from simulation.plots.contested import backfilled, contested, preempting, reconfigured
from simulation.plots.families import exclusive, families
from simulation.plots.held import held
from simulation.plots.limited import limited
from simulation.plots.placed import placed
from simulation.plots.provided import provided
from simulation.plots.scenario import (
    ACTIVE_SECONDS,
    Plot,
    Scenario,
    UserFact,
    edits,
    faults,
    skews,
    submission,
    workload_of,
)

__all__ = [
    "PLOTS",
    "arrays",
    "backfilled",
    "budgeted",
    "checked",
    "contested",
    "exclusive",
    "families",
    "held",
    "limited",
    "placed",
    "planned",
    "preempting",
    "provided",
    "reconfigured",
    "scenario",
]

_SHARES: Final[tuple[tuple[float, Plot], ...]] = (
    (0.06, contested),
    (0.12, reconfigured),
    (0.22, preempting),
    (0.26, provided),
    (0.52, checked),
    (0.62, families),
    (0.8, planned),
    (0.86, exclusive),
)
"""Up to which chance ``scenario`` is of another plot."""


def scenario(rng: Random) -> Scenario:
    """A scenario of any plot, or one of many workloads and of queues that are edited."""
    chance = rng.random()
    for upper, plot in _SHARES:
        if chance < upper:
            return plot(rng)
    queues = Queues(rng)
    manifests = queues.snapshot()
    user_facts: list[UserFact] = []
    span = rng.choice((2.0, 15.0, 15.0, 30.0, ACTIVE_SECONDS))
    names = [f"w{number}" for number in range(rng.randint(4, 14))]
    for name in names:
        at = 1.0 + rng.random() * span
        queue = rng.choice(sorted(queues.locals))
        user_facts.append(submission(at, name, workload_of(rng, name, queue)))
        for _ in range(rng.choice((0, 0, 0, 1, 1, 2))):
            at += rng.random() * rng.choice((0.05, 1.0, 15.0))
            changes, at = _user_changes(rng, name, queue, at)
            user_facts += changes
    admin_changes = edits(rng, queues, (0, 0, 1, 2, 3, 5), (0.3, 1.0, 20.0))
    return Scenario(manifests, user_facts, admin_changes, faults(rng), skews(rng))


def _user_changes(rng: Random, name: str, queue: str, at: float) -> tuple[list[UserFact], float]:
    """Plans a user's changes of a workload; returns the time of the last."""
    me: dict[str, Any] = {"namespace": NAMESPACE, "name": name}
    match rng.choice(("stop", "stop", "hold", "priority", "delete", "finish")):
        case "stop":
            return _for_a_while(rng, at, facts.Deactivated(**me), facts.Activated(**me))
        case "hold":
            return _for_a_while(rng, at, facts.Held(**me), facts.Released(**me))
        case "priority":
            changed = facts.Reprioritized(**me, priority=rng.randint(-2, 3))
            return [UserFact(at, changed)], at
        case "finish" if rng.random() < 0.3:
            return [UserFact(at, facts.Finished(**me))], at
        case "delete":
            steps = [UserFact(at, facts.Deleted(**me))]
            if rng.random() < 0.5:
                raw = workload_of(rng, name, queue)
                steps.append(submission(at + rng.random() * 6.0, name, raw))
            return steps, at
    return [], at


def _for_a_while(rng: Random, at: float, first: Fact, then: Fact) -> tuple[list[UserFact], float]:
    until = at + rng.random() * 5.0
    ends = rng.random() < 0.8
    return [UserFact(at, first), *([UserFact(until, then)] if ends else [])], until


PLOTS: Final[dict[str, Plot]] = {
    plot.__name__: plot
    for plot in (
        scenario,
        checked,
        planned,
        provided,
        contested,
        backfilled,
        preempting,
        reconfigured,
        families,
        exclusive,
        placed,
        arrays,
        limited,
        budgeted,
        held,
    )
}
"""By name."""
