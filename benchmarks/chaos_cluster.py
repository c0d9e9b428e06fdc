"""Real jobs on a cluster of servers, while servers and services are killed and paused.

The services start while the cluster is still being formed. Then jobs come at a steady rate; one
fault follows the other, each kind in turn, and each is mended before the next. In the end every job
must have run once, within quota, and no process may have ended by itself. The longest stall of
admissions is measured for each kind of fault, by the log's own times.
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
from benchmarks.faults import Fault, Faults, Fleet
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


async def run_cluster_chaos(
    *,
    servers: int,
    minutes: float,
    seed: int,
    rate: float = 4.0,
    kinds: Sequence[str] = (),
    scale: float = 1.0,
    tell: Callable[[str], None] = lambda _: None,
) -> list[str]:
    """Makes faults for ``minutes``, or each of ``kinds`` once; returns the figures, one line each.
    ``rate``: jobs a second. ``scale``: a factor for the duration of each fault. Raises SetupError
    with every broken promise."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="admit-chaos-") as name:
        folder = Path(name)
        trail = folder / "trail"
        trail.touch()
        fleet = Fleet(folder, chaos_jobs.SERVICES, ServerCluster(folder / "servers", servers))
        began = clock.monotonic()
        try:
            await _cold_start(fleet)
            bus = await _connected(fleet.servers)
            try:
                await chaos_jobs.create_queues(bus, timeout=READY_SECONDS)
                tell(f"serving after {clock.monotonic() - began:.1f} s")
                flow = JobFlow(bus, trail, rate)
                flowing = asyncio.create_task(flow.run())
                try:
                    struck = await _storm(fleet, bus, chance, minutes, kinds, scale, tell)
                finally:
                    flow.stop()
                    await flowing
                unfinished = await _all_finished(bus, flow.jobs)
                seconds = clock.monotonic() - began
                times = await _times(bus)
                told = await chaos_jobs.read_log(bus)
            finally:
                await bus.close()
            ended = fleet.ended() + fleet.crashed()
            for reason, often in fleet.begun_anew().items():
                tell(f"began anew {often} times: {reason}")
        finally:
            await fleet.stop()
        found = read_trail(trail.read_text().splitlines())
    booked = replay(told, {f"chaos-{n}": chaos_jobs.QUOTA_MILLI for n in range(chaos_jobs.QUEUES)})
    broken = chaos_jobs.broken_promises(flow.jobs, unfinished, found, booked) + ended
    lines = [
        f"{flow.jobs} jobs in {seconds:.0f} s on {servers} servers through {len(struck)} faults: "
        f"{len(found.ended)} ended, {found.started} runs started, {booked.admissions} admissions",
        *stall_table(longest_stalls(struck, times)),
    ]
    if broken:
        raise SetupError("\n".join([*lines, *broken]))
    return [
        *lines,
        "all finished, none lost, none twice at once, quota never exceeded, "
        "no process ended by itself",
    ]


async def _cold_start(fleet: Fleet) -> None:
    """Starts servers and services at once: the services find servers that do not listen yet, then
    servers without a leader."""
    await asyncio.gather(fleet.servers.start(), *map(fleet.start, fleet.services))


async def _connected(servers: ServerCluster) -> Bus:
    deadline = clock.monotonic() + READY_SECONDS
    while True:
        try:
            return await Bus.connect(servers.url, name="chaos")
        except Unavailable:
            if clock.monotonic() > deadline:
                raise
            await asyncio.sleep(AGAIN_SECONDS)


async def _storm(
    fleet: Fleet,
    bus: Bus,
    chance: random.Random,
    minutes: float,
    kinds: Sequence[str],
    scale: float,
    tell: Callable[[str], None],
) -> list[InjectedFault]:
    faults = Faults(fleet, bus, chance, scale=scale)
    admissions = Admissions(bus)
    await admissions.listen()
    await _well(admissions, "the start")
    deadline = clock.monotonic() + minutes * 60.0
    struck: list[InjectedFault] = []
    while not struck or (not kinds and clock.monotonic() < deadline):
        round_ = [faults.of(kind) for kind in kinds] if kinds else faults.every()
        chance.shuffle(round_)
        for fault in round_:
            if struck and not kinds and clock.monotonic() > deadline:
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
            await asyncio.sleep(CALM_SECONDS * scale)
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
