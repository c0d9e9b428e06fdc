"""One run: from a seed to a result."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple

from simulation.broken import Broken
from simulation.ending import Ending
from simulation.plots import scenario
from simulation.scenario import Scenario
from simulation.world import World

STEPS: Final = 3_000_000
"""Callbacks in which a story must end."""


class Result(NamedTuple):
    """``broken``: the invariant that did not hold; "" when all held. ``faults``: those that struck,
    by kind. ``moves``: the phases that workloads went through, as pairs."""

    seed: int
    broken: str
    story: list[str]
    steps: int
    reservations: int
    finished: int
    faults: Counter[str] = Counter()  # noqa: RUF012
    moves: frozenset[tuple[str, str]] = frozenset()


def run(
    seed: int,
    *,
    plot: Callable[[Random], Scenario] = scenario,
    keep: bool = False,
    world_of: type[World] = World,
    steps: int = STEPS,
) -> Result:
    """Plays one seed. ``plot`` makes the scenario; ``keep``: with its story; ``steps``: the most
    callbacks that it may take."""
    world = world_of(seed, plot, keep=keep)
    world.kernel.max_steps = steps
    with world.playing():
        return _play(world)


def _play(world: World) -> Result:
    kernel, invariants, story = world.kernel, world.invariants, world.story
    broken = ""
    try:
        world.begin()
        kernel.run(world.plan.calm)
        ending = Ending(world.server, invariants, kernel, world.users, heals=world.plan.heals)
        ending.settle()
        ending.check()
        if "p-a" in world.plan.services:
            world.provider.check_end()
        for name, core in world.pictures():
            ending.check_picture(name, core)
        for complaint in world.loop.complaints:
            raise Broken(complaint)
    except Broken as error:
        broken = str(error)
        story.tell("BROKEN", broken)
    except Exception as error:
        # A core that raises ends its process, and does so again when it is back.
        broken = f"{type(error).__name__}: {error}"
        for line in traceback.format_exception(error)[-6:]:
            story.tell("BROKEN", line.rstrip())
    return Result(
        world.seed,
        broken,
        story.lines,
        world.loop.steps,
        invariants.reservations,
        sum(seen.where == "finished" for seen in invariants.seen.values()),
        world.struck,
        frozenset(invariants.moves),
    )
