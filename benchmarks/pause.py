"""How long admissions stall after the nats-server was paused (SIGSTOP, SIGCONT).

``python benchmarks/pause.py [--pauses 20] [--most 30] [--apart [--instances 1]]``: a server of its
own and every service but the runner, in one process (`admit up`) or each in its own (``--apart``).
Workloads are submitted all the time, to a queue that has room for all. Per pause: the stall, from
its end until the first workload is admitted that was submitted after it, and when everything
submitted during the pause is admitted too.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from admittance import services
from admittance.bench import generator
from admittance.bench.generator import BenchPlan, PlannedQueue
from admittance.bench.run import loop_factory
from admittance.bench.system import Child, start
from admittance.runtime import clock
from admittance.runtime.bus import streams
from admittance.runtime.bus.bus import MESSAGE_ID, Bus, Outgoing
from admittance.runtime.errors import AdmittanceError, Unavailable
from admittance.runtime.nats_server.embedded_server import EmbeddedServer
from admittance.runtime.process.service import WithUp

SERVICES: Final = tuple(
    name
    for name, one in services.SERVICES.items()
    if one.with_up is WithUp.ALWAYS and not one.runs_jobs
)
RATE: Final = 5.0
"""Workloads a second."""
ROOM_MILLI: Final = 10**9
WORRIES: Final = ("heartbeat_failed", "service_interrupted", "service_crashed", "decisions_unknown")
RECOVERY_SECONDS: Final = 120.0

_encode = msgspec.json.Encoder().encode


class Stall(NamedTuple):
    """What one pause cost. Seconds; ``first`` and ``all`` count from the end of the pause."""

    pause: float
    first: float
    all: float
    worries: int
    ended: int


class Submitter:
    """Submits workloads at a steady rate and hears when each is admitted."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._number = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self.begun: dict[str, float] = {}
        self.admitted: dict[str, float] = {}
        self.changed = asyncio.Event()

    async def run(self) -> None:
        await self._bus.nc.listen("admit.workload.admitted.>", self._hear)
        while True:
            name = f"pause-{self._number}"
            self._number += 1
            self.begun[name] = clock.monotonic()
            task = asyncio.create_task(self._submit(name))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            await asyncio.sleep(1 / RATE)

    async def _submit(self, name: str) -> None:
        message = Outgoing(
            f"admit.workload.submitted.default.{name}", submission(name), {MESSAGE_ID: name}
        )
        while True:
            with suppress(Unavailable):
                await self._bus.publish(message)
                return

    def _hear(self, subject: bytes, _reply: bytes, _data: bytes, _headers: bytes) -> None:
        name = subject.decode().rpartition(".")[2]
        self.admitted.setdefault(name, clock.monotonic())
        self.changed.set()

    async def until_admitted(self, names: set[str]) -> None:
        while not names <= self.admitted.keys():
            self.changed.clear()
            await self.changed.wait()

    async def until_one_begun_after(self, moment: float) -> float:
        """When the first workload submitted after ``moment`` was admitted."""
        while True:
            times = [at for name, at in self.admitted.items() if self.begun.get(name, 0.0) > moment]
            if times:
                return min(times)
            self.changed.clear()
            await self.changed.wait()


def submission(name: str) -> bytes:
    """A workload of one CPU."""
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    manifest = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "queueName": "steady",
            "podSets": [{"name": "main", "count": 1, "template": template}],
        },
    }
    return _encode({"namespace": "default", "name": name, "workload": manifest})


class System:
    """A server and the services."""

    def __init__(self, folder: Path, server: EmbeddedServer) -> None:
        self._folder = folder
        self._server = server
        self._children: list[Child] = []

    async def begin(self, apart: bool, instances: int) -> None:
        if apart:
            for name in SERVICES:
                arguments = ["--nats", self._server.url, "serve", name]
                for number in range(instances):
                    await self._start(f"{name}-{number}", arguments)
        else:
            arguments = ["up", "--nats", self._server.url, "--no-runner"]
            arguments += ["--data-dir", str(self._folder / "up")]
            child = await self._start("up", arguments)
            await child.ready()

    async def _start(self, name: str, arguments: list[str]) -> Child:
        child = await start(arguments, self._folder / f"{name}.log", {"ADMIT_LOG_LEVEL": "info"})
        self._children.append(child)
        return child

    @property
    def ended(self) -> int:
        """Processes that have ended by themselves."""
        return sum(not child.running for child in self._children)

    def worries(self) -> int:
        """Log lines so far that report an interruption."""
        return sum(
            child.log.read_text(errors="replace").count(worry)
            for child in self._children
            for worry in WORRIES
        )

    def pause(self) -> None:
        os.kill(self._server.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self._server.pid, signal.SIGCONT)

    async def end(self) -> None:
        self.resume()
        await asyncio.gather(*(child.stop() for child in self._children))


@asynccontextmanager
async def running(
    apart: bool, instances: int, keep: Path | None
) -> AsyncIterator[tuple[System, Bus]]:
    with tempfile.TemporaryDirectory(prefix="admit-pause-") as name:
        folder = keep or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        server = EmbeddedServer(Path(name) / "server")
        bus = await Bus.connect(await server.start(), name="pause")
        system = System(folder, server)
        try:
            await streams.ensure(bus)
            await system.begin(apart, instances)
            yield system, bus
        finally:
            await system.end()
            await bus.close()
            await server.stop()


async def stalls(found: argparse.Namespace) -> AsyncIterator[Stall]:
    """One after the other, each when the system is steady again."""
    chance = random.Random(found.seed)
    queue = PlannedQueue(
        "steady", "cq", "", "default", ROOM_MILLI, None, None, "Never", "Never", ()
    )
    async with running(found.apart, found.instances, found.logs) as (system, bus):
        await generator.create(bus, BenchPlan((queue,), ()))
        submitter = Submitter(bus)
        submitting = asyncio.create_task(submitter.run())
        try:
            for _ in range(found.pauses):
                async with asyncio.timeout(RECOVERY_SECONDS):
                    await submitter.until_one_begun_after(clock.monotonic() + 1.0)
                seconds = chance.uniform(found.least, found.most)
                worries, ended = system.worries(), system.ended
                system.pause()
                await asyncio.sleep(seconds)
                system.resume()
                over = clock.monotonic()
                before = set(submitter.begun)
                async with asyncio.timeout(RECOVERY_SECONDS):
                    first = await submitter.until_one_begun_after(over) - over
                    await submitter.until_admitted(before)
                last = max(submitter.admitted[name] for name in before) - over
                yield Stall(seconds, first, last, system.worries() - worries, system.ended - ended)
        finally:
            submitting.cancel()


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def table(found: argparse.Namespace) -> None:
    tell("pause s | first admission after s | all admitted after s | warnings | ended")
    worst = [0.0, 0.0]
    async for stall in stalls(found):
        worst = [max(worst[0], stall.first), max(worst[1], stall.all)]
        tell(
            f"{stall.pause:7.1f} | {stall.first:23.2f} | {stall.all:20.2f} | {stall.worries:8} | "
            f"{stall.ended}"
        )
    tell(f"at the most: first {worst[0]:.2f} s, all {worst[1]:.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pauses", type=int, default=20)
    parser.add_argument("--least", type=float, default=1.0, help="seconds of the shortest pause")
    parser.add_argument("--most", type=float, default=30.0, help="seconds of the longest pause")
    parser.add_argument("--apart", action="store_true", help="each service in a process of its own")
    parser.add_argument("--instances", type=int, default=1, help="of each service, with --apart")
    parser.add_argument("--logs", type=Path, help="keep the services' logs in this folder")
    parser.add_argument("--seed", type=int, default=1)
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(table(parser.parse_args()))
    except AdmittanceError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
