"""How long from the time that a workload waits for until it competes again.

``python -m benchmarks.due [--count 10000] [--rate 200] [--seconds 30] [--idle 20]
[--nats URL]``

A check puts workloads off: first ``--count`` of them so that all are due within one second, then
``--rate`` a second, evenly. At the end all of the first wait for an hour, and what the system uses
then is told. Times are the log's: of ``requeued`` and of the fact that the timer became.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from math import ceil
from typing import Final, NamedTuple

import msgspec

from admittance.bench import generator
from admittance.bench.generator import BenchPlan, PlannedQueue, PlannedWorkload
from admittance.bench.load import Publisher, submission, until_settled
from admittance.bench.run import Find, loop_factory, main_of, system
from admittance.bench.system import Meter, ProcessUse
from admittance.events.requests import Timers, TimersReply
from admittance.events.subjects import TIMER_DUE
from admittance.runtime import clock
from admittance.runtime.bus import history
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import SetupError

CHECK: Final = "later"
QUEUES: Final = 30
REQUEUED: Final = "admit.workload.requeued."
PATIENCE: Final = 120.0
LEAD_SECONDS: Final = 5.0
"""From the last verdict to the second in which all are due, and more."""
SPREAD_SECONDS: Final = 6
"""How long each waits where they are spread."""
HOUR: Final = 3600
TOGETHER: Final = 200
"""Verdicts under way at once where all have to be due in one second."""

_encode = msgspec.json.Encoder().encode
_timers = msgspec.json.Decoder(TimersReply)


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

    def told(self, what: str) -> str:
        """One line."""
        return (
            f"{what}, {len(self.back)} workloads: back after p50 {_at(self.back, 50):.0f} ms, "
            f"p99 {_at(self.back, 99):.0f} ms, at most {self.back[-1]:.0f} ms; all within "
            f"{self.took:.2f} s, due over {self.over:.2f} s; the timer fired after p50 "
            f"{_at(self.fired, 50):.0f} ms, p99 {_at(self.fired, 99):.0f} ms; "
            f"{sum(d < 0 for d in self.back)} too early"
        )


def _at(values: list[float], percent: int) -> float:
    return values[min(len(values) - 1, len(values) * percent // 100)]


def bench_plan(count: int) -> BenchPlan:
    """Queues that have room for so many workloads each, and one check."""
    room = 1000 * (count + 1)
    return BenchPlan(
        tuple(
            PlannedQueue(
                f"due-{n}", "cq", "", "default", room, None, None, "Never", "Never", (CHECK,)
            )
            for n in range(QUEUES)
        ),
        (),
    )


class Controller:
    """The check's part: hears requests, and says Retry when it is told to."""

    def __init__(self, bus: Bus, publisher: Publisher) -> None:
        self._bus = bus
        self._publisher = publisher
        self._cycles: dict[str, int] = {}
        self._back: set[str] = set()
        self._moved = asyncio.Event()

    async def start(self) -> None:
        """Starts to receive messages."""
        await self._bus.nc.listen("admit.check.requested.>", self._on_request)
        await self._bus.nc.listen(f"{REQUEUED}>", self._on_requeued)

    def _on_request(self, _s: bytes, _r: bytes, data: bytes, _h: bytes) -> None:
        said = _said.decode(data)
        self._cycles[said.name] = said.cycle
        self._moved.set()

    def _on_requeued(self, subject: bytes, _r: bytes, _d: bytes, _h: bytes) -> None:
        self._back.add(subject.decode().rpartition(".")[2])
        self._moved.set()

    async def asked(self, names: list[str], cycle: int) -> None:
        """Waits until it was asked about all of them, in that cycle."""
        await self._until(lambda: all(self._cycles.get(name) == cycle for name in names))

    async def back(self, names: list[str]) -> None:
        """Waits until all of them compete again."""
        await self._until(lambda: self._back.issuperset(names))

    async def _until(self, claim: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                while not claim():
                    self._moved.clear()
                    await self._moved.wait()
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise SetupError(
                f"after {PATIENCE:.0f} s it was asked about {len(self._cycles)} workloads, and "
                f"{len(self._back)} were back"
            ) from None

    def put_off(self, name: str, seconds: int) -> None:
        """Says Retry."""
        said = {
            "namespace": "default",
            "name": name,
            "controller": f"bench/{CHECK}",
            "check": CHECK,
            "cycle": self._cycles[name],
            "state": "Retry",
            "message": "later",
            "requeueAfterSeconds": seconds,
        }
        self._publisher.publish(
            f"admit.check.reported.bench=2F{CHECK}.default.{name}", _encode(said)
        )


async def measured(
    count: int, rate: int, seconds: int, idle: float, nats: str | None = None
) -> list[str]:
    """The figures, one line each."""
    async with system(nats) as (url, access, find):
        bus = await Bus.connect(url, name="admit-bench", access=access)
        try:
            await generator.create(bus, bench_plan(count + rate * seconds))
            publisher = Publisher(bus)
            publishing = asyncio.create_task(publisher.run())
            controller = Controller(bus, publisher)
            await controller.start()
            lines = [f"no workload waits: {await _cpu(find, idle)}"]
            meter = Meter(find)
            crowd = await _crowd(bus, controller, publisher, meter, count)
            lines.append(f"{crowd.told('due in one second')}; {_spent(meter.stop(), count)}")
            meter = Meter(find)
            spread = await _spread(bus, controller, publisher, meter, rate, seconds)
            spent = _spent(meter.stop(), rate * seconds)
            lines.append(f"{spread.told(f'due at {rate} a second')}; {spent}")
            names = [f"due-{n}" for n in range(count)]
            for name in names:
                controller.put_off(name, HOUR)
            await publisher.until_acknowledged()
            await _calm(bus, count)
            lines.append(f"{count} wait for an hour: {await _cpu(find, idle)}")
            publishing.cancel()
            return lines
        finally:
            await bus.close()


async def _submitted(controller: Controller, publisher: Publisher, names: list[str]) -> None:
    for number, name in enumerate(names):
        workload = PlannedWorkload(0.0, 1.0, name, 0, "due", 1000, 0)
        data = submission(workload, "default", f"due-{number % QUEUES}")
        publisher.publish(f"admit.workload.submitted.default.{name}", data)
        if number % 500 == 499:
            await publisher.until_acknowledged()
    await controller.asked(names, 0)


async def _crowd(
    bus: Bus, controller: Controller, publisher: Publisher, meter: Meter, count: int
) -> Delays:
    names = [f"due-{n}" for n in range(count)]
    await _submitted(controller, publisher, names)
    end = clock.monotonic() + LEAD_SECONDS + count / 500
    for number, name in enumerate(names):
        controller.put_off(name, ceil(end - clock.monotonic()))
        if number % TOGETHER == TOGETHER - 1:
            # The delay counts from when a verdict is dealt with: that must be about now.
            await publisher.until_acknowledged()
            await until_settled(bus, publisher.sequence)
    # From here on nothing is done but for what is due, up to the next reservation.
    meter.start()
    await controller.back(names)
    await controller.asked(names, 1)
    return await _delays(bus, set(names))


async def _spread(
    bus: Bus, controller: Controller, publisher: Publisher, meter: Meter, rate: int, seconds: int
) -> Delays:
    names = [f"spread-{n}" for n in range(rate * seconds)]
    await _submitted(controller, publisher, names)
    meter.start()
    started = clock.monotonic()
    for number, name in enumerate(names):
        pause = started + number / rate - clock.monotonic()
        if pause > 0.002:
            await asyncio.sleep(pause)
        controller.put_off(name, SPREAD_SECONDS)
    await controller.back(names)
    return await _delays(bus, set(names))


async def _delays(bus: Bus, names: set[str]) -> Delays:
    """From the log: when each was due, when the timer fired, when it competed again."""
    due: dict[str, datetime] = {}
    fired: list[float] = []
    back: list[float] = []
    last: datetime | None = None
    after = 0
    while page := await history.read_messages(bus, [f"{TIMER_DUE}>", f"{REQUEUED}>"], after=after):
        after = page[-1].sequence
        for found in page:
            said = _said.decode(found.data)
            if said.name not in names:
                continue
            if found.subject.startswith(TIMER_DUE):
                if said.at is not None and said.name not in due:
                    due[said.name] = said.at
                    fired.append(_ms(found.time - said.at))
            else:
                back.append(_ms(found.time - due[said.name]))
                last = found.time
    if len(back) != len(names) or last is None:
        raise SetupError(f"{len(back)} of {len(names)} workloads came back")
    first = min(due.values())
    took, over = ((end - first).total_seconds() for end in (last, max(due.values())))
    return Delays(sorted(fired), sorted(back), took, over)


def _ms(span: timedelta) -> float:
    return span.total_seconds() * 1000


async def _calm(bus: Bus, waiting: int) -> None:
    """Waits until the schedules of so many stand."""
    deadline = clock.monotonic() + PATIENCE
    while clock.monotonic() < deadline:
        reply = _timers.decode(await bus.request("admit.api.timers", _encode(Timers())))
        if reply.wanted == waiting and not reply.pending:
            await asyncio.sleep(5.0)
            return
        await asyncio.sleep(0.5)
    raise SetupError(f"{reply.wanted} of {waiting} wait, {reply.pending} not yet on the bus")


def _spent(used: list[ProcessUse], workloads: int) -> str:
    """Put off (where it is done meanwhile), woken, and given quota again."""
    told = (f"{one.name} {1000 * one.cpu_seconds / workloads:.2f} ms" for one in used)
    return f"CPU a workload: {', '.join(told)}"


async def _cpu(find: Find, seconds: float) -> str:
    meter = Meter(find)
    meter.start()
    await asyncio.sleep(seconds)
    used: list[ProcessUse] = meter.stop()
    return ", ".join(f"{one.name} {100 * one.cpu_seconds / seconds:.1f} % CPU" for one in used)


def command() -> list[str]:
    """Runs the benchmark with the options of the command line; returns the lines to print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=10_000, help="due in one second")
    parser.add_argument("--rate", type=int, default=200, help="due a second, where spread")
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--idle", type=float, default=20.0, help="seconds of doing nothing")
    parser.add_argument("--nats", default=None, help="a running system instead of an embedded one")
    found = parser.parse_args()
    if min(found.count, found.rate, found.seconds) < 1 or found.idle <= 0:
        raise SetupError("all of them must be greater than 0")
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(measured(found.count, found.rate, found.seconds, found.idle, found.nats))


if __name__ == "__main__":
    main_of(command)
