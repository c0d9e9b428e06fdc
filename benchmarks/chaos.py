"""Real jobs while services and servers are killed: is anything lost, started twice, or over quota?

``python -m benchmarks.chaos [--jobs 1000] [--seed 1]``: a nats-server and every service as a
process of its own, which start at the same time. Then jobs come at a steady rate; one fault of a
server or service follows the other, each kind in turn, and each is mended before the next;
meanwhile, every three seconds, a service is killed with ``kill -9`` and started again. In the end
every job must have run once, within quota, and no process may have ended by itself. The longest
stall of admissions is measured for each kind of fault, by the log's own times.

With ``--locked`` the servers demand credentials, and each service has those of its own role. With
``--servers 3`` the servers are a cluster, each service has two instances, and one is killed each
second. ``--only "pause of the server that leads" --times 10 --scale 4`` makes ten pauses of 20 s.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from bisect import bisect_right
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from admittance.bench import generator
from admittance.bench.connection import connected
from admittance.bench.generator import BenchPlan, PlannedQueue
from admittance.client.requests.link import Link
from admittance.events.facts import Admitted
from admittance.events.requests.history import LogEntry
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import SetupError
from admittance.runtime.tasks import set_within
from benchmarks.faults import ONE_SERVER, Fault, Faults, kinds_on
from benchmarks.harness import jobs as harness_jobs
from benchmarks.harness.fleet import SERVICES, STREAMS, Fleet, instances_of
from benchmarks.harness.program import SEED, Option, run_program, tell
from benchmarks.harness.server_cluster import ServerCluster
from benchmarks.harness.trail import new_trail, replay, trail_of
from benchmarks.harness.waits import News, until_right

READY_SECONDS: Final = 180.0
RECOVERY_SECONDS: Final = 180.0
"""Longest wait for admissions to continue after a fault was repaired."""
CALM_SECONDS: Final = 3.0
"""Between two faults, with everything well."""
QUEUES: Final = 4
QUOTA_MILLI: Final = 4000


class InjectedFault(NamedTuple):
    """A past fault: it began at ``began`` and was repaired at ``mended``; the next fault began
    after ``until``."""

    kind: str
    began: datetime
    mended: datetime
    until: datetime


class Stall(NamedTuple):
    """One kind of fault: how often it was made, its longest duration, the longest time without an
    admission, and the longest time from the repair to the next admission; in seconds."""

    kind: str
    times: int
    lasted: float
    longest: float
    after: float


class JobFlow:
    """Submits jobs at a steady rate until stopped; each submission is repeated until the log has
    it."""

    def __init__(self, bus: Bus, trail: Path, rate: float) -> None:
        self._bus = bus
        self._trail = trail
        self._rate = rate
        self._stopped = asyncio.Event()
        self.jobs = 0

    def stop(self) -> None:
        """Stops the submissions."""
        self._stopped.set()

    async def run(self) -> None:
        """Submits until stopped."""
        began = clock.monotonic()
        while not self._stopped.is_set():
            if self.jobs / self._rate <= clock.monotonic() - began:
                name, queue = f"job-{self.jobs}", f"chaos-{self.jobs % QUEUES}"
                fact = harness_jobs.with_trail(name, queue, self._trail)
                await harness_jobs.publish_surely(self._bus, fact, f"chaos-{name}")
                self.jobs += 1
            else:
                await asyncio.sleep(0.02)


class Admissions:
    """Counts admissions when they are published."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._news = News()
        self.count = 0

    async def listen(self) -> None:
        await self._bus.nc.listen("admit.workload.admitted.>", self._on_fact)

    def _on_fact(self, _subject: bytes, _reply: bytes, _data: bytes, _headers: bytes) -> None:
        self.count += 1
        self._news.note()

    async def more(self, count: int, timeout: float) -> bool:
        """Whether so many more admissions were published within timeout seconds."""
        wanted = self.count + count
        return await self._news.holds(lambda: self.count >= wanted, timeout)


class ChaosPlan(NamedTuple):
    """The faults to inject. ``jobs``: faults follow until so many jobs are submitted. ``kinds``:
    only these faults, however many jobs. ``rate``: jobs a second. ``scale``: a factor for the
    duration of each fault. ``kill_every``: seconds between two kills of an instance; 0: none.
    ``stall_max``: the longest allowed stall of admissions in seconds after the loss of one server;
    0: not judged."""

    servers: int = 3
    jobs: int = 2000
    seed: int = 1
    rate: float = 4.0
    kinds: Sequence[str] = ()
    scale: float = 1.0
    locked: bool = False
    kill_every: float = 1.0
    stall_max: float = 0.0


class Observed(NamedTuple):
    """The state after a storm of faults. ``log``: the facts about the jobs; ``broken``: what the
    processes and the sums of usage broke."""

    jobs: int
    seconds: float
    faults: list[InjectedFault]
    unfinished: list[str]
    log: list[LogEntry]
    broken: list[str]


async def run_chaos(plan: ChaosPlan) -> list[str]:
    """Makes faults while jobs run; returns the figures, one line each. Raises SetupError with every
    broken promise."""
    with tempfile.TemporaryDirectory(prefix="admit-chaos-") as name:
        folder = Path(name)
        trail = new_trail(folder)
        servers = ServerCluster(folder / "servers", plan.servers, locked=plan.locked)
        names = instances_of(SERVICES, each=2 if plan.servers > 1 else 1)
        fleet = Fleet(folder, servers, names)
        try:
            observed = await _observed(fleet, trail, plan)
        finally:
            await fleet.stop()
        written = trail_of(trail)
    quota = {queue.name: queue.nominal for queue in queues()}
    booked = replay(harness_jobs.facts_in(observed.log), quota)
    stalls = longest_stalls(observed.faults, admission_times(observed.log))
    broken = harness_jobs.broken_promises(
        observed.jobs,
        observed.unfinished,
        written,
        booked,
        at_once=QUEUES * QUOTA_MILLI // 1000,
    )
    broken += [*observed.broken, *too_long(stalls, plan.stall_max)]
    lines = [
        f"{observed.jobs} jobs in {observed.seconds:.0f} s on {plan.servers} servers through "
        f"{len(observed.faults)} faults and {fleet.restarts} kills of services: "
        f"{len(written.ended)} ended, {written.started} runs started, "
        f"{booked.admissions} admissions",
        *stall_table(stalls),
    ]
    if broken:
        raise SetupError("\n".join([*lines, *broken]))
    return [
        *lines,
        "all finished, none lost, none twice at once, quota never exceeded, usage summed right, "
        "no process ended by itself",
    ]


def queues() -> list[PlannedQueue]:
    """The queues of the jobs."""
    return [
        PlannedQueue(f"chaos-{n}", cohort=f"c-{n % 2}", nominal=QUOTA_MILLI, borrowing=0)
        for n in range(QUEUES)
    ]


async def _observed(fleet: Fleet, trail: Path, plan: ChaosPlan) -> Observed:
    """Starts servers and services at once: the services find servers that do not listen yet, then
    servers without a leader. Then makes the faults, and waits until every job has finished."""
    began = clock.monotonic()
    await asyncio.gather(fleet.servers.start(), *map(fleet.start, fleet.instances))
    await fleet.servers.formed(READY_SECONDS)
    async with connected(fleet.servers.url, fleet.servers.access) as link:
        await generator.create(link, BenchPlan(tuple(queues()), ()), timeout=READY_SECONDS)
        tell(f"serving after {clock.monotonic() - began:.1f} s")
        flow = JobFlow(link.bus, trail, plan.rate)
        calm = asyncio.Event()
        flowing = asyncio.create_task(flow.run())
        killing = asyncio.create_task(kill_services(fleet, plan, calm))
        try:
            struck = await _storm(fleet, link.bus, flow, plan)
        finally:
            calm.set()
            flow.stop()
            await asyncio.wait([flowing, killing])
        flowing.result()
        killing.result()
        for name in fleet.instances:
            if not fleet.runs(name):
                await fleet.start(name)
        left = await until_right(
            lambda: harness_jobs.unfinished(link),
            lambda names: not names,
            seconds=RECOVERY_SECONDS + flow.jobs / 4,
        )
        seconds = clock.monotonic() - began
        # The facts about the quota of the last jobs may follow some time after the jobs have ended.
        read = await until_right(
            lambda: _log_and_sums(link), lambda seen: not seen[1], seconds=RECOVERY_SECONDS
        )
        log, wrong = read or ([], ["the log and its sums were never read"])
    for reason, often in fleet.begun_anew().items():
        tell(f"began anew {often} times: {reason}")
    unfinished = ["none of them was ever read"] if left is None else left
    broken = [*fleet.ended(), *fleet.crashed(), *wrong]
    return Observed(flow.jobs, seconds, struck, unfinished, log, broken)


async def _log_and_sums(link: Link) -> tuple[list[LogEntry], list[str]]:
    """All messages of the log, and how the sums of usage differ from them."""
    log = await harness_jobs.read_log(link)
    return log, await harness_jobs.wrong_sums(link, log)


async def kill_services(fleet: Fleet, plan: ChaosPlan, calm: asyncio.Event) -> None:
    """Kills an instance after the other, and starts it again, until ``calm`` is set. Each killed
    instance is started before the function returns."""
    chance = random.Random(plan.seed + 1)
    while plan.kill_every and not await set_within(calm, plan.kill_every):
        await fleet.restart(chance.choice(fleet.instances))


async def _storm(fleet: Fleet, bus: Bus, flow: JobFlow, plan: ChaosPlan) -> list[InjectedFault]:
    chance = random.Random(plan.seed)
    faults = Faults(fleet, bus, chance, scale=plan.scale)
    admissions = Admissions(bus)
    await admissions.listen()
    await _well(admissions, "the start")
    struck: list[InjectedFault] = []
    while not struck or (not plan.kinds and flow.jobs < plan.jobs):
        round_ = [faults.of(kind) for kind in plan.kinds] if plan.kinds else faults.every()
        chance.shuffle(round_)
        for fault in round_:
            if struck and not plan.kinds and flow.jobs >= plan.jobs:
                break
            past = await _strike(fault, admissions)
            struck.append(past)
            tell(
                f"{past.kind}: {(past.mended - past.began).total_seconds():.1f} s, well again "
                f"{(past.until - past.mended).total_seconds():.1f} s later"
            )
            if ended := fleet.ended():
                raise SetupError("\n".join([f"after {fault.kind}:", *ended]))
            await fleet.servers.healthy(bus, STREAMS, timeout=RECOVERY_SECONDS)
            await asyncio.sleep(CALM_SECONDS * plan.scale)
    return struck


async def _strike(fault: Fault, admissions: Admissions) -> InjectedFault:
    began = clock.now()
    mend = await fault.begin()
    await asyncio.sleep(fault.seconds)
    await mend()
    mended = clock.now()
    await _well(admissions, fault.kind)
    return InjectedFault(fault.kind, began, mended, clock.now())


async def _well(admissions: Admissions, since: str) -> None:
    if not await admissions.more(3, RECOVERY_SECONDS):
        raise SetupError(f"no admission within {RECOVERY_SECONDS:g} s after {since}")


# Stalls. ----------------------------------------------------------------------------------


def admission_times(log: Sequence[LogEntry]) -> list[datetime]:
    """The times at which admissions were stored."""
    prefix = f"admit.workload.{Admitted.__name__.lower()}."
    return [entry.time for entry in log if entry.subject.startswith(prefix)]


def longest_stalls(struck: Sequence[InjectedFault], times: Sequence[datetime]) -> list[Stall]:
    """The longest stall of each kind of fault, the worst kind first. ``times``: the sorted times of
    the admissions."""
    worst: dict[str, Stall] = {}
    for fault in struck:
        first = max(0, bisect_right(times, fault.began) - 1)
        last = min(len(times), bisect_right(times, fault.until) + 1)
        around = times[first:last]
        gaps = [b - a for a, b in pairwise(around)] or [timedelta(0)]
        behind = bisect_right(times, fault.mended)
        after = times[behind] - fault.mended if behind < len(times) else timedelta(0)
        before = worst.get(fault.kind, Stall(fault.kind, 0, 0.0, 0.0, 0.0))
        worst[fault.kind] = Stall(
            fault.kind,
            before.times + 1,
            max(before.lasted, (fault.mended - fault.began).total_seconds()),
            max(before.longest, max(gaps).total_seconds()),
            max(before.after, after.total_seconds()),
        )
    return sorted(worst.values(), key=lambda stall: -stall.longest)


def too_long(stalls: Sequence[Stall], limit: float) -> list[str]:
    """A sentence for each kind of fault that left a majority of the servers and stalled admissions
    for longer than ``limit`` seconds; 0: no limit."""
    return [
        f"{stall.kind} stalled admissions for {stall.longest:.1f} s, at most {limit:g} s are "
        "allowed"
        for stall in stalls
        if limit and stall.kind in ONE_SERVER and stall.longest > limit
    ]


def stall_table(stalls: Sequence[Stall]) -> list[str]:
    """Returns the stalls as a table for the documentation."""
    rows = (
        (stall.kind, f"{stall.times}", *(f"{seconds:.1f}" for seconds in stall[2:]))
        for stall in stalls
    )
    return [
        "| fault | times | lasted (s) | longest stall (s) | after it was mended (s) |",
        "| --- | ---: | ---: | ---: | ---: |",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


async def measured(
    *,
    servers: int,
    jobs: int,
    seed: int,
    locked: bool,
    kill_every: float | None,
    stall_max: float,
    only: str,
    times: int,
    scale: float,
) -> list[str]:
    """Runs the plan that the options name. Raises SetupError for faults that do not exist."""
    known = kinds_on(servers)
    kinds = [kind for kind in known if only in kind] if only else []
    if only and not kinds:
        raise SetupError(f"no fault has {only!r} in its name: {', '.join(known)}")
    return await run_chaos(
        ChaosPlan(
            servers=servers,
            jobs=jobs or (2000 if servers > 1 else 1000),
            seed=seed,
            locked=locked,
            kill_every=(1.0 if servers > 1 else 3.0) if kill_every is None else kill_every,
            stall_max=stall_max,
            kinds=kinds * times,
            scale=scale,
        )
    )


if __name__ == "__main__":
    run_program(
        measured,
        __doc__,
        Option("--jobs", 0, "default 1000; on a cluster 2000", least=0),
        SEED,
        Option("--locked", False, "the servers demand credentials"),
        Option("--servers", 1, "more than one: a cluster of them", least=1),
        Option("--kill-every", None, "seconds; 0: services are not killed so often", kind=float),
        Option("--stall-max", 0.0, "allowed seconds after one server's loss", least=0),
        Option("--only", "", "only faults with this text in their name"),
        Option("--times", 1, "how often, with --only", least=1),
        Option("--scale", 1.0, "factor for the length of faults", above=0),
    )
