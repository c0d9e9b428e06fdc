"""Real jobs on a cluster of servers, while servers and services are killed and paused.

The services start while the cluster is still being formed. Then jobs come at a steady rate; one
fault follows the other, each kind in turn, and each is mended before the next; meanwhile, each
second, an instance of a service is killed and started again. In the end every job must have run
once, within quota, and no process may have ended by itself. The longest stall of admissions is
measured for each kind of fault, by the log's own times.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from admittance.events.facts import Admitted
from admittance.runtime import clock
from admittance.runtime.bus.bus import MESSAGE_ID, Bus, Outgoing
from admittance.runtime.bus.history import read_messages
from admittance.runtime.errors import Refused, SetupError, Unavailable, is_temporary
from admittance.runtime.tasks import set_within
from benchmarks import chaos_jobs
from benchmarks.faults import ONE_SERVER, Fault, Faults, Fleet
from benchmarks.server_cluster import ServerCluster
from benchmarks.trail import read_trail, replay

READY_SECONDS: Final = 180.0
RECOVERY_SECONDS: Final = 180.0
"""Longest wait for admissions to continue after a fault was repaired."""
CALM_SECONDS: Final = 3.0
"""Between two faults, with everything well."""
AGAIN_SECONDS: Final = 0.2


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
                await self._submit(self.jobs)
                self.jobs += 1
            else:
                await asyncio.sleep(0.02)

    async def _submit(self, number: int) -> None:
        queue = f"chaos-{number % chaos_jobs.QUEUES}"
        message = Outgoing(
            f"admit.workload.submitted.default.job-{number}",
            chaos_jobs.submission_of(f"job-{number}", queue, self._trail),
            {MESSAGE_ID: f"chaos-{number}"},
        )
        while True:
            try:
                await self._bus.publish(message, timeout=2.0)
                return
            except (Refused, Unavailable) as error:
                if not is_temporary(error):
                    raise
                await asyncio.sleep(AGAIN_SECONDS)


class Admissions:
    """Counts admissions when they are published."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._more = asyncio.Event()
        self.count = 0

    async def listen(self) -> None:
        await self._bus.nc.listen("admit.workload.admitted.>", self._on_fact)

    def _on_fact(self, _subject: bytes, _reply: bytes, _data: bytes, _headers: bytes) -> None:
        self.count += 1
        self._more.set()

    async def more(self, count: int, timeout: float) -> bool:
        """Whether so many more admissions were published within timeout seconds."""
        wanted = self.count + count
        deadline = clock.monotonic() + timeout
        while self.count < wanted and clock.monotonic() < deadline:
            self._more.clear()
            await set_within(self._more, deadline - clock.monotonic())
        return self.count >= wanted


class ChaosPlan(NamedTuple):
    """What to break. ``jobs``: faults follow until so many jobs are submitted. ``kinds``: only
    these faults, however many jobs. ``rate``: jobs a second. ``scale``: a factor for the
    duration of each fault. ``each``: instances of a service. ``kill_every``: seconds between two
    kills of an instance; 0: none. ``stall_max``: the longest allowed stall of admissions in seconds
    after the loss of one server; 0: not judged."""

    servers: int = 3
    jobs: int = 2000
    seed: int = 1
    rate: float = 4.0
    kinds: Sequence[str] = ()
    scale: float = 1.0
    each: int = 2
    locked: bool = False
    kill_every: float = 1.0
    stall_max: float = 0.0


async def run_cluster_chaos(
    plan: ChaosPlan, *, tell: Callable[[str], None] = lambda _: None
) -> list[str]:
    """Makes faults while jobs run; returns the figures, one line each. Raises SetupError with every
    broken promise."""
    with tempfile.TemporaryDirectory(prefix="admit-chaos-") as name:
        folder = Path(name)
        trail = folder / "trail"
        trail.touch()
        servers = ServerCluster(folder / "servers", plan.servers, locked=plan.locked)
        fleet = Fleet(folder, chaos_jobs.SERVICES, servers, each=plan.each)
        began = clock.monotonic()
        try:
            await _cold_start(fleet)
            bus = await _connected(servers)
            try:
                await chaos_jobs.create_queues(bus, timeout=READY_SECONDS)
                tell(f"serving after {clock.monotonic() - began:.1f} s")
                flow = JobFlow(bus, trail, plan.rate)
                flowing = asyncio.create_task(flow.run())
                calm = asyncio.Event()
                killing = asyncio.create_task(kill_services(fleet, plan, calm))
                try:
                    struck = await _storm(fleet, bus, flow, plan, tell)
                finally:
                    calm.set()
                    flow.stop()
                    await asyncio.wait([flowing, killing])
                flowing.result()
                await _all_start(fleet)
                unfinished = await _all_finished(bus, flow.jobs)
                seconds = clock.monotonic() - began
                times = await _times(bus)
                told = await chaos_jobs.read_log(bus)
                wrong = await chaos_jobs.wrong_sums(bus)
            finally:
                await bus.close()
            ended = fleet.ended() + fleet.crashed()
            for reason, often in fleet.begun_anew().items():
                tell(f"began anew {often} times: {reason}")
        finally:
            await fleet.stop()
        found = read_trail(trail.read_text().splitlines())
    booked = replay(told, {f"chaos-{n}": chaos_jobs.QUOTA_MILLI for n in range(chaos_jobs.QUEUES)})
    stalls = longest_stalls(struck, times)
    broken = chaos_jobs.broken_promises(flow.jobs, unfinished, found, booked) + ended
    broken += wrong
    broken += too_long(stalls, plan.stall_max)
    lines = [
        f"{flow.jobs} jobs in {seconds:.0f} s on {plan.servers} servers through {len(struck)} "
        f"faults and {fleet.restarts} kills of services: "
        f"{len(found.ended)} ended, {found.started} runs started, {booked.admissions} admissions",
        *stall_table(stalls),
    ]
    if broken:
        raise SetupError("\n".join([*lines, *broken]))
    return [
        *lines,
        "all finished, none lost, none twice at once, quota never exceeded, usage summed right, "
        "no process ended by itself",
    ]


async def kill_services(fleet: Fleet, plan: ChaosPlan, calm: asyncio.Event) -> None:
    """Kills an instance after the other, and starts it again, until ``calm`` is set. Each killed
    instance is started before the function returns."""
    chance = random.Random(plan.seed + 1)
    while plan.kill_every and not await set_within(calm, plan.kill_every):
        await fleet.restart(chance.choice(fleet.instances))


async def _all_start(fleet: Fleet) -> None:
    """Starts the instances that a fault killed and did not start again."""
    for name in fleet.instances:
        if not fleet.runs(name):
            await fleet.start(name)


async def _cold_start(fleet: Fleet) -> None:
    """Starts servers and services at once: the services find servers that do not listen yet, then
    servers without a leader."""
    await asyncio.gather(fleet.servers.start(), *map(fleet.start, fleet.instances))


async def _connected(servers: ServerCluster) -> Bus:
    deadline = clock.monotonic() + READY_SECONDS
    while True:
        try:
            return await servers.connect()
        except Unavailable:
            if clock.monotonic() > deadline:
                raise
            await asyncio.sleep(AGAIN_SECONDS)


async def _storm(
    fleet: Fleet, bus: Bus, flow: JobFlow, plan: ChaosPlan, tell: Callable[[str], None]
) -> list[InjectedFault]:
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
            struck.append(await _strike(fault, admissions))
            one = struck[-1]
            tell(
                f"{one.kind}: {(one.mended - one.began).total_seconds():.1f} s, well again "
                f"{(one.until - one.mended).total_seconds():.1f} s later"
            )
            if ended := fleet.ended():
                raise SetupError("\n".join([f"after {fault.kind}:", *ended]))
            await fleet.servers.healthy(bus, chaos_jobs.STREAMS, timeout=RECOVERY_SECONDS)
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


async def _all_finished(bus: Bus, jobs: int) -> list[str]:
    deadline = clock.monotonic() + RECOVERY_SECONDS + jobs / 4
    unfinished = ["the bucket was never read"]
    while clock.monotonic() < deadline:
        with suppress(Unavailable, Refused):
            unfinished = await chaos_jobs.unfinished_of(bus)
            if not unfinished:
                break
        await asyncio.sleep(0.5)
    return unfinished


async def _times(bus: Bus) -> list[datetime]:
    """The times at which admissions were stored."""
    found: list[datetime] = []
    after = 0
    subject = f"admit.workload.{Admitted.__name__.lower()}.>"
    while page := await read_messages(bus, [subject], after=after):
        found += [one.time for one in page]
        after = page[-1].sequence
    return found


def longest_stalls(struck: Sequence[InjectedFault], times: Sequence[datetime]) -> list[Stall]:
    """The longest stall of each kind of fault, the worst kind first. ``times``: the sorted times of
    the admissions."""
    worst: dict[str, Stall] = {}
    for one in struck:
        first = max(0, bisect_right(times, one.began) - 1)
        last = min(len(times), bisect_right(times, one.until) + 1)
        around = times[first:last]
        gaps = [b - a for a, b in pairwise(around)] or [timedelta(0)]
        behind = bisect_right(times, one.mended)
        after = times[behind] - one.mended if behind < len(times) else timedelta(0)
        before = worst.get(one.kind, Stall(one.kind, 0, 0.0, 0.0, 0.0))
        worst[one.kind] = Stall(
            one.kind,
            before.times + 1,
            max(before.lasted, (one.mended - one.began).total_seconds()),
            max(before.longest, max(gaps).total_seconds()),
            max(before.after, after.total_seconds()),
        )
    return sorted(worst.values(), key=lambda stall: -stall.longest)


def too_long(found: Sequence[Stall], limit: float) -> list[str]:
    """A sentence for each kind of fault that left a majority of the servers and stalled admissions
    for longer than ``limit`` seconds; 0: no limit."""
    return [
        f"{one.kind} stalled admissions for {one.longest:.1f} s, at most {limit:g} s are allowed"
        for one in found
        if limit and one.kind in ONE_SERVER and one.longest > limit
    ]


def stall_table(found: Sequence[Stall]) -> list[str]:
    """The stalls as the table of the documentation."""
    return [
        "| fault | times | lasted (s) | longest stall (s) | after it was mended (s) |",
        "| --- | ---: | ---: | ---: | ---: |",
        *(
            f"| {one.kind} | {one.times} | {one.lasted:.1f} | {one.longest:.1f} | {one.after:.1f} |"
            for one in found
        ),
    ]
