"""``python -m simulation.hunting.fleet``: plays one long story of many machines and very many jobs.

``--machines 100 --jobs 10000 --seed 1``. It prints what was played, and the broken promise if there
is one. Too long for the suite.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from functools import partial
from itertools import islice
from typing import Final

from admittance.runner.host.records import Spec
from simulation.hunting.figures import Figures
from simulation.plots.fleet import fleet
from simulation.run import run
from simulation.world import World

STEPS: Final = 2_000_000_000
CPU_SECONDS: Final = 6 * 3600.0
SAY_EACH: Final = 1000


class FleetWorld(World):
    """Counts what starts on the machines, and says how far the story is."""

    worlds: Final[list[FleetWorld]] = []

    def begin(self) -> None:
        self.runs: Counter[str] = Counter()
        self.began = time.process_time()
        self.worlds.append(self)
        super().begin()

    def _job_started(self, spec: Spec, name: str) -> None:
        super()._job_started(spec, name)
        self.runs["runs"] += 1
        self.runs["runs of parts"] += spec.part > 0
        self.runs["runs with devices"] += bool(spec.units)
        if self.runs["runs"] % SAY_EACH == 0:
            sys.stderr.write(f"{self.runs['runs']} runs: {self.times()}\n")

    def times(self) -> str:
        """How long the story is, and what it has cost."""
        seconds = time.process_time() - self.began
        return f"{self.loop.now:.0f} virtual seconds, {seconds:.0f} s of CPU"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m simulation.hunting.fleet")
    parser.add_argument("--machines", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=2)
    asked = parser.parse_args()
    plot = partial(fleet, machines=asked.machines, jobs=asked.jobs)
    result = run(asked.seed, plot=plot, world_of=FleetWorld, steps=STEPS, cpu_seconds=CPU_SECONDS)
    world = FleetWorld.worlds[-1]
    figures = Figures()
    figures.add(result)
    runs = ", ".join(f"{count} {what}" for what, count in world.runs.items())
    for line in (
        f"{asked.machines} machines, {asked.jobs} jobs, seed {asked.seed}: {world.times()}",
        runs,
        *islice(figures.lines(), 1, None),
        result.broken or "every promise was kept",
    ):
        sys.stdout.write(f"{line}\n")
    return 1 if result.broken else 0


if __name__ == "__main__":
    sys.exit(main())
