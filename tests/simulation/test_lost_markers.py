"""The end of a lost job is published once, whatever happens to the runner that has marked it."""

from __future__ import annotations

from functools import partial
from random import Random

import pytest

from admittance.runner.host.records import Spec
from admittance.runner.runs.claims import END, RUNNER
from simulation.environment.courses import Courses
from simulation.nats.observed import Stored
from simulation.plots.configuration import NAMESPACE, Queues
from simulation.plots.contested import _one_flavor
from simulation.plots.scenario import SERVICES, Fault, Scenario, submission, workload_of
from simulation.run import run
from simulation.world import World

SEED = 5
"""A seed without faults of its own, with runners that cannot read the folders of each other."""
STOPPED = f"admit.workload.stopped.{NAMESPACE}.w0"
GONE = "gone"
"""The machine is lost for good."""


def one_job(rng: Random) -> Scenario:
    """One job and four runners."""
    queues = Queues(rng)
    queues.checks, queues.flavors = [], ["f0"]
    spec = queues.queue()
    queues.clear()
    queues.add(spec)
    spec["resourceGroups"] = _one_flavor(9)
    job = submission(1.0, "w0", workload_of(rng, "w0", "l0"))
    services = (*SERVICES, "r-c", "r-d")
    courses = Courses(lengths=(20.0,))
    return Scenario(queues.all(), [job], [], [], {}, services=services, courses=courses)


class LostMarkers(World):
    """The machine of the first run is lost for good, and then faults strike the first runners that
    mark the claim of this run: ``strikes``, each with its kind and its seconds."""

    strikes: tuple[tuple[str, float], ...] = ()

    def begin(self) -> None:
        super().begin()
        self.markers: list[str] = []
        self.stopped = 0
        self.lost = ""
        self.server.claims.on_stored.append(self._on_mark)
        self.server.log.on_stored.append(self._on_fact)

    def _strike(self, name: str, kind: str, seconds: float) -> None:
        if kind == GONE:
            self.services[name].process.kill()
            self.machines[name].crash()
        else:
            self.faults.strike(Fault(0, name, kind, seconds, 0.0))

    def _job_started(self, spec: Spec, name: str) -> None:
        super()._job_started(spec, name)
        if not self.lost:
            self.lost = name
            self.loop.after(1.0, self._strike, name, GONE, 0.0)

    def _on_mark(self, stored: Stored) -> None:
        if stored.headers.get(END) and not self.stopped:
            marker = stored.headers[RUNNER]
            self.markers.append(marker)
            if len(self.markers) <= len(self.strikes):
                self._strike(marker, *self.strikes[len(self.markers) - 1])

    def _on_fact(self, stored: Stored) -> None:
        # Some runner also answers the eviction that follows, without a reason.
        self.stopped += stored.subject == STOPPED and b"NodeFailures" in stored.data


CASES = {
    "the runner publishes what it has marked": ((), 1),
    "the runner never comes back, and another takes the mark over": (((GONE, 0.0),), 2),
    "two runners never come back": (((GONE, 0.0), (GONE, 0.0)), 3),
    "the runner starts again, and takes its own mark over": ((("crash", 2.0),), 2),
    "the runner goes on after another has published the end": ((("pause", 30.0),), 2),
}


@pytest.mark.parametrize("case", CASES)
def test_the_end_of_a_lost_job_is_published_once_when(case: str) -> None:
    strikes, marks = CASES[case]
    worlds: list[LostMarkers] = []

    def world_of(*args: object, **kwargs: object) -> World:
        world: LostMarkers = partial(LostMarkers, *args, **kwargs)()  # type: ignore[arg-type]
        world.strikes = strikes
        worlds.append(world)
        return world

    result = run(SEED, plot=one_job, world_of=world_of, keep=True)  # type: ignore[arg-type]
    story = "\n".join(result.story[-60:])
    assert result.broken == "", story
    assert (result.finished, worlds[0].stopped) == (1, 1), story
    assert len(worlds[0].markers) == marks, story
