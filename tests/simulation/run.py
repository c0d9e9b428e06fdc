"""One run: from a seed to a result."""

from __future__ import annotations

import signal
import threading
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from admittance.runtime.telemetry.object_faults import faults
from simulation.invariants.ending import Ending
from simulation.plots.catalog import scenario
from simulation.plots.scenario import Plot
from simulation.transcript import Broken
from simulation.world import World

STEPS: Final = 3_000_000
"""Callbacks in which a story must end."""
CPU_SECONDS: Final = 120.0
"""CPU time in which a story must end, far more than any takes."""


class NoEnd(KeyboardInterrupt):
    """A callback runs on and on. No service catches an interrupt."""


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
    plot: Plot = scenario,
    keep: bool = False,
    world_of: type[World] = World,
    steps: int = STEPS,
    cpu_seconds: float = CPU_SECONDS,
) -> Result:
    """Plays one seed. ``plot`` makes the scenario; ``keep``: keeps the lines of its story;
    ``steps`` and ``cpu_seconds``: a run that takes more counts as broken."""
    world = world_of(seed, plot, keep=keep)
    world.kernel.max_steps = steps
    with world.playing(), _limited(cpu_seconds):
        return _play(world)


@contextmanager
def _limited(cpu_seconds: float) -> Iterator[None]:
    """Raises `NoEnd` after so much CPU time. Has no effect in other threads than the main
    thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: object) -> None:
        raise NoEnd(f"{cpu_seconds:g} s of CPU time, and no end")

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, cpu_seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)


def _play(world: World) -> Result:
    kernel, invariants, transcript = world.kernel, world.invariants, world.transcript
    broken = ""
    faults.take()
    try:
        world.begin()
        kernel.run(world.plan.calm)
        for touched in world.touched:
            raise Broken(touched)
        ending = Ending(world.server, invariants, kernel, world.users, heals=world.plan.heals)
        ending.settle()
        ending.check()
        if "p-a" in world.plan.services:
            world.capacity.check_end()
        for name, core in world.pictures():
            ending.check_picture(name, core)
        for complaint in world.loop.complaints:
            raise Broken(complaint)
    except Broken as error:
        # What touched the world outside is the cause of all that broke afterwards.
        broken = world.touched[0] if world.touched else str(error)
        transcript.tell("BROKEN", broken)
    except (Exception, NoEnd) as error:
        # A core that raises ends its process, and does so again when it is back.
        broken = f"{type(error).__name__}: {error}"
        for line in traceback.format_exception(error)[-6:]:
            transcript.tell("BROKEN", line.rstrip())
    for fault in faults.take()[:1]:
        # A service that sets an object aside by a bug goes on: the bug is the cause of what broke.
        broken = f"{fault.service} cannot {fault.step}: {fault.about}: {fault.reason}"
        transcript.tell("BROKEN", broken)
    return Result(
        world.seed,
        broken,
        transcript.lines,
        world.loop.steps,
        invariants.reservations,
        sum(seen.where == "finished" for seen in invariants.seen.values()),
        world.faults.struck,
        frozenset(invariants.moves),
    )
