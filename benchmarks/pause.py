"""How long admissions stall after the nats-server was paused (SIGSTOP, SIGCONT).

``python -m benchmarks.pause [--pauses 20] [--most 30] [--apart [--instances 1]]``: a server of its
own and every service but the runner, in one process (`admit up`) or each in its own (``--apart``).
Workloads are submitted all the time, to a queue that has room for all. Per pause: the stall, from
its end until the first workload is admitted that was submitted after it, and when everything
submitted during the pause is admitted too.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

from admittance.bench import generator
from admittance.bench.connection import connected
from admittance.bench.generator import BenchPlan, PlannedQueue
from admittance.client.requests.link import Link
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.tasks import BackgroundTasks
from benchmarks.harness.fleet import UP, WITHOUT_RUNNER, Fleet, instances_of
from benchmarks.harness.jobs import publish_surely, submission
from benchmarks.harness.load import FREE_ROOM
from benchmarks.harness.program import SEED, Option, kept_folder, run_program, tell
from benchmarks.harness.server_cluster import ServerCluster
from benchmarks.harness.waits import News

RATE: Final = 5.0
"""Workloads a second."""
QUEUE: Final = "steady"
WORRIES: Final = ("heartbeat_failed", "service_interrupted", "service_crashed", "decisions_unknown")
RECOVERY_SECONDS: Final = 120.0


class Stall(NamedTuple):
    """The cost of one pause. Seconds; ``first`` and ``all`` count from the end of the pause."""

    pause: float
    first: float
    all: float
    worries: int
    ended: int


class Submitter:
    """Submits workloads at a steady rate and receives the time of each admission."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._tasks = BackgroundTasks()
        self._news = News()
        self.begun: dict[str, float] = {}
        self.admitted: dict[str, float] = {}

    async def run(self) -> None:
        """Submits until cancelled."""
        await self._bus.nc.listen("admit.workload.admitted.>", self._on_admitted)
        while True:
            name = f"pause-{len(self.begun)}"
            self.begun[name] = clock.monotonic()
            self._tasks.start(publish_surely(self._bus, submission(name, QUEUE), name))
            await asyncio.sleep(1 / RATE)

    async def end(self) -> None:
        """Ends the submissions that are under way."""
        await self._tasks.end()

    def _on_admitted(self, subject: bytes, _reply: bytes, _data: bytes, _headers: bytes) -> None:
        name = subject.decode().rpartition(".")[2]
        self.admitted.setdefault(name, clock.monotonic())
        self._news.note()

    async def until_admitted(self, names: set[str]) -> None:
        """Waits until all of them were admitted. Raises SetupError."""
        await self._news.until(
            lambda: names <= self.admitted.keys(),
            lambda: f"{len(names - self.admitted.keys())} workloads wait still",
            RECOVERY_SECONDS,
        )

    async def until_one_begun_after(self, moment: float) -> float:
        """When the first workload submitted after ``moment`` was admitted. Raises SetupError."""

        def times() -> list[float]:
            return [at for name, at in self.admitted.items() if self.begun.get(name, 0.0) > moment]

        await self._news.until(
            lambda: bool(times()), lambda: "no new workload is admitted", RECOVERY_SECONDS
        )
        return min(times())


@asynccontextmanager
async def running(
    apart: bool, instances: int, keep: Path | None
) -> AsyncIterator[tuple[Fleet, Link]]:
    """A server of its own, and all services but the runner. ``keep``: the folder of their logs."""
    with kept_folder("admit-pause-", None) as data, kept_folder("admit-pause-", keep) as folder:
        names = instances_of(WITHOUT_RUNNER, instances) if apart else [f"{UP}-0"]
        servers = ServerCluster(data / "servers", 1)
        fleet = Fleet(folder, servers, names, {"ADMIT_LOG_LEVEL": "info"})
        try:
            await fleet.begin()
            if not apart:
                await fleet.ready()
            async with connected(servers.url) as link:
                yield fleet, link
        finally:
            await fleet.stop()


def worries(fleet: Fleet) -> int:
    """Log lines so far that report an interruption."""
    return sum(line.count(worry) for _, line in fleet.log_lines() for worry in WORRIES)


async def stall(fleet: Fleet, submitter: Submitter, seconds: float) -> Stall:
    """Pauses the server once the system is steady, and measures until it is again."""
    await submitter.until_one_begun_after(clock.monotonic() + 1.0)
    worried, ended = worries(fleet), len(fleet.ended())
    fleet.servers.pause(0)
    await asyncio.sleep(seconds)
    fleet.servers.resume(0)
    over = clock.monotonic()
    before = set(submitter.begun)
    first = await submitter.until_one_begun_after(over) - over
    await submitter.until_admitted(before)
    last = max(submitter.admitted[name] for name in before) - over
    return Stall(seconds, first, last, worries(fleet) - worried, len(fleet.ended()) - ended)


async def measured(
    *,
    pauses: int,
    least: float,
    most: float,
    apart: bool,
    instances: int,
    logs: Path | None,
    seed: int,
) -> list[str]:
    """The worst of all pauses; prints each as it is over."""
    chance = random.Random(seed)
    stalls: list[Stall] = []
    tell("pause s | first admission after s | all admitted after s | warnings | ended")
    async with running(apart, instances, logs) as (fleet, link):
        queue = PlannedQueue(QUEUE, nominal=FREE_ROOM)
        await generator.create(link, BenchPlan((queue,), ()))
        submitter = Submitter(link.bus)
        submitting = asyncio.create_task(submitter.run())
        try:
            for _ in range(pauses):
                past = await stall(fleet, submitter, chance.uniform(least, most))
                stalls.append(past)
                tell(
                    f"{past.pause:7.1f} | {past.first:23.2f} | {past.all:20.2f} | "
                    f"{past.worries:8} | {past.ended}"
                )
        finally:
            submitting.cancel()
            await submitter.end()
    first, last = max(past.first for past in stalls), max(past.all for past in stalls)
    return [f"at the most: first {first:.2f} s, all {last:.2f} s"]


if __name__ == "__main__":
    run_program(
        measured,
        __doc__,
        Option("--pauses", 20, least=1),
        Option("--least", 1.0, "seconds of the shortest pause", above=0),
        Option("--most", 30.0, "seconds of the longest pause", above=0),
        Option("--apart", False, "each service in a process of its own"),
        Option("--instances", 1, "of each service, with --apart", least=1),
        Option("--logs", None, "keep the services' logs in this folder", kind=Path),
        SEED,
    )
