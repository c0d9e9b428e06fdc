"""A load on a system under test: its submissions, the jobs that it plays, and a system to kill."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import psutil

from admittance.bench.connection import until_settled
from admittance.bench.generator import BenchPlan
from admittance.bench.load import IN_FLIGHT_MAX, Publisher, publishing, submission
from admittance.bench.run import Find, measured_system
from admittance.bench.system import READY_SECONDS, Child, family, start
from admittance.client.requests.link import Link
from admittance.runtime import clock
from admittance.runtime.errors import SetupError
from benchmarks.harness.jobs import NAMESPACE
from benchmarks.harness.waits import News


class Load:
    """Publishes what people and runners publish, all at once or at the times of a benchmark's plan.
    ``find``: the processes of the system."""

    def __init__(self, link: Link, publisher: Publisher, find: Find) -> None:
        self.link = link
        self.find = find
        self.publisher = publisher

    async def submit(self, plan: BenchPlan, begin: int = 0, end: int | None = None) -> None:
        """Submits these workloads of the plan as fast as the server acknowledges them. Raises
        SetupError for a refused one."""
        for workload in plan.workloads[begin:end]:
            if self.publisher.in_flight > IN_FLIGHT_MAX:
                await self.publisher.until_acknowledged()
            queue = plan.queues[workload.queue].name
            subject = f"admit.workload.submitted.{NAMESPACE}.{workload.name}"
            self.publisher.publish(subject, submission(workload, NAMESPACE, queue))
        await self.publisher.until_acknowledged(30.0)
        if self.publisher.refused:
            raise SetupError(f"a submission was refused: {self.publisher.refused[0]}")

    def say(self, what: str, name: str, revision: int = 0) -> None:
        """Publishes a fact as a runner. The names that a plan makes contain no character that JSON
        escapes."""
        data = f'{{"namespace":"{NAMESPACE}","name":"{name}","revision":{revision}}}'
        self.publisher.publish(f"admit.workload.{what}.{NAMESPACE}.{name}", data.encode())

    async def settled(self, patience: float = 30.0) -> None:
        """Waits until everything that was published is applied."""
        await until_settled(self.link, self.publisher.sequence, patience=patience)


@asynccontextmanager
async def load_over(link: Link, find: Find = lambda: ()) -> AsyncIterator[Load]:
    """A load over a connection."""
    async with publishing(link.bus) as publisher:
        yield Load(link, publisher, find)


@asynccontextmanager
async def load_on(nats: str | None) -> AsyncIterator[Load]:
    """A load on the system at a URL; None: on an embedded one."""
    async with measured_system(nats) as (link, find), load_over(link, find) as load:
        yield load


class _Said(msgspec.Struct, frozen=True):
    name: str
    revision: int = 0


_said = msgspec.json.Decoder(_Said)


class Jobs:
    """A runner with jobs that never end by themselves, and stop as soon as they are evicted.

    ``admissions``: how often each was admitted, by name. ``last``: the last admitted one, and when,
    in monotonic seconds. A fact that arrives twice counts once."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._revisions: dict[str, int] = {}
        self._stopped: dict[str, int] = {}
        self._news = News()
        self.admissions: dict[str, int] = {}
        self.evicted_at = 0.0
        self.last: tuple[str, float] = ("", 0.0)

    def on_message(self, subject: bytes, _reply: bytes, data: bytes, _headers: bytes) -> None:
        """Handles a message on ``admit.workload.{admitted,evicted}.<ns>.<name>``."""
        said = _said.decode(data)
        if subject.startswith(b"admit.workload.admitted."):
            self._admitted(said)
        elif self._stopped.get(said.name, 0) < said.revision:
            self._stopped[said.name] = said.revision
            self.evicted_at = clock.monotonic()
            self._load.say("stopped", said.name, said.revision)

    def _admitted(self, said: _Said) -> None:
        if said.revision <= self._revisions.get(said.name, 0):
            return
        self._revisions[said.name] = said.revision
        self.admissions[said.name] = self.admissions.get(said.name, 0) + 1
        self.last = said.name, clock.monotonic()
        self._news.note()

    def end(self, name: str) -> float:
        """The job ends; when, in monotonic seconds."""
        self._load.say("finished", name, self._revisions[name])
        return clock.monotonic()

    async def reach(self, count: int) -> None:
        """Waits until there were so many admissions. Raises SetupError when nothing moves."""
        while (before := self._count()) < count:
            await self._news.until(
                partial(self._has_more, before), lambda: f"{self._count()} of {count} are admitted"
            )

    def _count(self) -> int:
        return sum(self.admissions.values())

    def _has_more(self, before: int) -> bool:
        return self._count() > before


class OwnSystem:
    """`admit up` without a runner and without credentials, which can be killed with everything that
    it started, and started again on its data folder."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "log"
        self._arguments = ["up", "--insecure", "--no-runner", "--port", "0"]
        self._arguments += ["--data-dir", str(folder / "data")]
        self._child: Child | None = None

    async def start(self, patience: float = READY_SECONDS) -> str:
        """Starts the system, and returns its URL when it is ready."""
        self._child = await start(self._arguments, self._log)
        return await self._child.ready(patience)

    @property
    def processes(self) -> Iterable[psutil.Process]:
        """The processes of the system."""
        return family(self._child.pid) if self._child is not None else []

    @property
    def log_lines(self) -> list[str]:
        """The lines that the system has logged."""
        return self._log.read_text(errors="replace").splitlines()

    def kill(self) -> None:
        """``kill -9`` of the process and of all that it started."""
        for process in self.processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()

    async def ended(self) -> None:
        """Waits until the killed process is gone."""
        if self._child is not None:
            await self._child.process.wait()

    async def stop(self) -> int:
        """Ends the system in order; returns its exit status."""
        return await self._child.stop() if self._child is not None else 0


@asynccontextmanager
async def own_system() -> AsyncIterator[OwnSystem]:
    """A system on a temporary data folder, not started yet, ended at the end."""
    with tempfile.TemporaryDirectory(prefix="admit-bench-") as folder:
        system = OwnSystem(Path(folder))
        try:
            yield system
        finally:
            await system.stop()


FREE_ROOM: Final = 1_000_000_000
"""Millicores of a queue that has room for all."""
