"""How long from the time that a workload waits for until it competes again.

``python -m benchmarks.due [--count 10000] [--rate 200] [--seconds 30] [--idle 20]
[--nats URL]``

A check puts workloads off: first ``--count`` of them so that all are due within one second, then
``--rate`` a second, evenly. At the end all of the first wait for an hour, and the benchmark prints
what the system uses then. All times are those of messages on the log: of ``requeued``, and of the
timer that fired."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from math import ceil
from typing import Final, NamedTuple

import msgspec

from admittance.bench import generator
from admittance.bench.generator import BenchPlan, PlannedQueue, PlannedWorkload
from admittance.bench.run import Find, delay
from admittance.bench.system import Meter, ProcessUse
from admittance.client.requests.link import Link
from admittance.events.codec import encode
from admittance.events.facts import CheckReported
from admittance.events.requests.services import Timers, TimersReply
from admittance.events.subjects import TIMER_DUE, subject_of
from admittance.runtime import clock
from admittance.runtime.bus import history
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import SetupError
from benchmarks.harness.load import Load, load_on
from benchmarks.harness.program import NATS, Option, run_program
from benchmarks.harness.waits import PATIENCE_SECONDS, News, until_right

CHECK: Final = "later"
QUEUES: Final = 30
REQUEUED: Final = "admit.workload.requeued."
LEAD_SECONDS: Final = 5.0
"""From the last verdict to the second in which all are due, and more."""
SPREAD_SECONDS: Final = 6
"""How long each waits where they are spread."""
HOUR: Final = 3600
TOGETHER: Final = 200
"""Verdicts under way at once where all have to be due in one second."""


class _Said(msgspec.Struct, frozen=True):
    name: str
    cycle: int = 0
    at: datetime | None = None


_said = msgspec.json.Decoder(_Said)


class Delays(NamedTuple):
    """Milliseconds, sorted, behind the time that was waited for. ``fired``: until the fact was on
    the log; ``back``: until the workload competed again. ``took``: seconds from the first time to
    the last workload; ``over``: to the last time."""

    fired: list[float]
    back: list[float]
    took: float
    over: float

    def line(self, what: str) -> str:
        """One line."""
        fired, back = delay(self.fired), delay(self.back)
        return (
            f"{what}, {len(self.back)} workloads: back after p50 {back.p50:.0f} ms, "
            f"p99 {back.p99:.0f} ms, at most {self.back[-1]:.0f} ms; all within "
            f"{self.took:.2f} s, due over {self.over:.2f} s; the timer fired after p50 "
            f"{fired.p50:.0f} ms, p99 {fired.p99:.0f} ms; "
            f"{sum(d < 0 for d in self.back)} too early"
        )


def bench_plan(count: int) -> BenchPlan:
    """Queues that have room for so many workloads each, and one check."""
    queues = (
        PlannedQueue(f"due-{n}", nominal=1000 * (count + 1), checks=(CHECK,)) for n in range(QUEUES)
    )
    return BenchPlan(tuple(queues), ())


class Controller:
    """The check's part: receives requests, and answers Retry when the benchmark asks for it."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._cycles: dict[str, int] = {}
        self._back: set[str] = set()
        self._news = News()

    async def start(self) -> None:
        """Starts to receive messages."""
        nc = self._load.link.bus.nc
        await nc.listen("admit.check.requested.>", self._on_request)
        await nc.listen(f"{REQUEUED}>", self._on_requeued)

    def _on_request(self, _s: bytes, _r: bytes, data: bytes, _h: bytes) -> None:
        said = _said.decode(data)
        self._cycles[said.name] = said.cycle
        self._news.note()

    def _on_requeued(self, subject: bytes, _r: bytes, _d: bytes, _h: bytes) -> None:
        self._back.add(subject.decode().rpartition(".")[2])
        self._news.note()

    async def asked(self, names: list[str], cycle: int) -> None:
        """Waits until it was asked about all of them, in that cycle."""
        await self._news.until(
            lambda: all(self._cycles.get(name) == cycle for name in names), self._counts
        )

    async def back(self, names: list[str]) -> None:
        """Waits until all of them compete again."""
        await self._news.until(lambda: self._back.issuperset(names), self._counts)

    def _counts(self) -> str:
        asked, back = len(self._cycles), len(self._back)
        return f"it was asked about {asked} workloads, and {back} were back"

    def put_off(self, name: str, seconds: int) -> None:
        """Says Retry."""
        fact = CheckReported(
            namespace="default",
            name=name,
            controller=f"bench/{CHECK}",
            check=CHECK,
            cycle=self._cycles[name],
            state="Retry",
            message="later",
            requeue_after_seconds=seconds,
        )
        self._load.publisher.publish(subject_of(fact), encode(fact))


async def measured(
    *, count: int, rate: int, seconds: int, idle: float, nats: str | None
) -> list[str]:
    """The figures, one line each."""
    async with load_on(nats) as load:
        await generator.create(load.link, bench_plan(count + rate * seconds))
        controller = Controller(load)
        await controller.start()
        lines = [f"no workload waits: {await _cpu(load.find, idle)}"]
        meter = Meter(load.find)
        crowd = await _crowd(load, controller, meter, count)
        lines.append(f"{crowd.line('due in one second')}; {_spent(meter.stop(), count)}")
        meter = Meter(load.find)
        spread = await _spread(load, controller, meter, rate, seconds)
        spent = _spent(meter.stop(), rate * seconds)
        lines.append(f"{spread.line(f'due at {rate} a second')}; {spent}")
        for n in range(count):
            controller.put_off(f"due-{n}", HOUR)
        await load.publisher.until_acknowledged()
        await _calm(load.link, count)
        lines.append(f"{count} wait for an hour: {await _cpu(load.find, idle)}")
        return lines


async def _submitted(load: Load, controller: Controller, names: list[str]) -> None:
    plan = bench_plan(0)
    workloads = tuple(
        PlannedWorkload(0.0, 1.0, name, number % QUEUES, "due", 1000, 0)
        for number, name in enumerate(names)
    )
    await load.submit(plan._replace(workloads=workloads))
    await controller.asked(names, 0)


async def _crowd(load: Load, controller: Controller, meter: Meter, count: int) -> Delays:
    names = [f"due-{n}" for n in range(count)]
    await _submitted(load, controller, names)
    end = clock.monotonic() + LEAD_SECONDS + count / 500
    for number, name in enumerate(names):
        controller.put_off(name, ceil(end - clock.monotonic()))
        if number % TOGETHER == TOGETHER - 1:
            # The delay counts from when a verdict is dealt with: that must be about now.
            await load.publisher.until_acknowledged()
            await load.settled()
    # From here on nothing is done but for what is due, up to the next reservation.
    meter.start()
    await controller.back(names)
    await controller.asked(names, 1)
    return await _delays(load.link.bus, set(names))


async def _spread(
    load: Load, controller: Controller, meter: Meter, rate: int, seconds: int
) -> Delays:
    names = [f"spread-{n}" for n in range(rate * seconds)]
    await _submitted(load, controller, names)
    meter.start()
    started = clock.monotonic()
    for number, name in enumerate(names):
        pause = started + number / rate - clock.monotonic()
        if pause > 0.002:
            await asyncio.sleep(pause)
        controller.put_off(name, SPREAD_SECONDS)
    await controller.back(names)
    return await _delays(load.link.bus, set(names))


async def _delays(bus: Bus, names: set[str]) -> Delays:
    """Reads from the log when each workload was due, when its timer fired, and when it competed
    again."""
    due: dict[str, datetime] = {}
    fired: list[float] = []
    back: list[float] = []
    last: datetime | None = None
    after = 0
    while page := await history.read_messages(bus, [f"{TIMER_DUE}>", f"{REQUEUED}>"], after=after):
        after = page[-1].sequence
        for message in page:
            said = _said.decode(message.data)
            if said.name not in names:
                continue
            if message.subject.startswith(TIMER_DUE):
                if said.at is not None and said.name not in due:
                    due[said.name] = said.at
                    fired.append(_ms(message.time - said.at))
            else:
                back.append(_ms(message.time - due[said.name]))
                last = message.time
    if len(back) != len(names) or last is None:
        raise SetupError(f"{len(back)} of {len(names)} workloads came back")
    first = min(due.values())
    took, over = ((end - first).total_seconds() for end in (last, max(due.values())))
    return Delays(sorted(fired), sorted(back), took, over)


def _ms(span: timedelta) -> float:
    return span.total_seconds() * 1000


async def _calm(link: Link, waiting: int) -> None:
    """Waits until the schedules of so many stand."""
    reply = await until_right(
        lambda: link.ask("timers", Timers(), TimersReply),
        lambda reply: reply.wanted == waiting and not reply.pending,
        seconds=PATIENCE_SECONDS,
    )
    if reply is None or reply.wanted != waiting or reply.pending:
        raise SetupError(f"of {waiting} workloads not all wait: the retry-timer answers {reply}")
    await asyncio.sleep(5.0)


def _spent(used: list[ProcessUse], workloads: int) -> str:
    """The CPU time of each process for one workload: to delay it (if that happened in the measured
    time), to wake it, and to give it quota again."""
    told = (f"{use.name} {1000 * use.cpu_seconds / workloads:.2f} ms" for use in used)
    return f"CPU a workload: {', '.join(told)}"


async def _cpu(find: Find, seconds: float) -> str:
    meter = Meter(find)
    meter.start()
    await asyncio.sleep(seconds)
    used = meter.stop()
    return ", ".join(f"{use.name} {100 * use.cpu_seconds / seconds:.1f} % CPU" for use in used)


if __name__ == "__main__":
    run_program(
        measured,
        __doc__,
        Option("--count", 10_000, "due in one second", least=1),
        Option("--rate", 200, "due a second, where spread", least=1),
        Option("--seconds", 30, least=1),
        Option("--idle", 20.0, "seconds of doing nothing", above=0),
        NATS,
    )
