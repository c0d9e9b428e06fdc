"""Real jobs while services are killed: is anything lost, started twice, or over quota?

``python -m benchmarks.chaos [--jobs 1000] [--seed 1]``: a nats-server and every service as a
process of its own. Each second one service, chosen at random, is killed with ``kill -9`` and
started again; the server is killed twice. Afterwards the lines that the jobs wrote are compared
with the log. With ``--locked`` the server demands credentials, and each service has those of its
own role. With ``--servers 3`` the servers are a cluster, each service has two instances, and
servers are killed and paused too (`chaos_cluster`), with ``--kill-every`` and ``--stall-max``.
``--only "pause of the server that leads" --times 10 --scale 4`` makes ten pauses of 20 s.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from admittance.bench.run import loop_factory, main_of
from admittance.bench.system import Child, add_load_user, start
from admittance.cli.up.lock import Lock
from admittance.runtime import clock
from admittance.runtime.bus import streams
from admittance.runtime.bus.bus import MESSAGE_ID, Bus, Outgoing
from admittance.runtime.errors import AdmittanceError, Refused, SetupError
from admittance.runtime.nats.connection_options import NO_OPTIONS
from admittance.runtime.nats_server.embedded_server import EmbeddedServer
from admittance.runtime.nats_server.server_accounts import LOCKED
from benchmarks import chaos_cluster
from benchmarks.chaos_jobs import (
    QUEUES,
    QUOTA_MILLI,
    SERVICES,
    broken_promises,
    create_queues,
    read_log,
    submission_of,
    unfinished_of,
    wrong_sums,
)
from benchmarks.faults import KINDS
from benchmarks.trail import read_trail, replay

PATIENCE: Final = 600.0
SERVER_KILLS: Final = 2


class Deployment:
    """A server and the services, which can be killed and started again. Instances keep their names
    over a restart, as containers of a compose file may."""

    def __init__(self, folder: Path, *, locked: bool = False) -> None:
        self._folder = folder
        data = folder / "server"
        self._lock = Lock(data) if locked else None
        self.access = add_load_user(data / "auth") if locked else NO_OPTIONS
        """The login of the benchmark itself."""
        self._server = self._made(0)
        self._children: dict[str, Child] = {}
        self.url = ""
        self.kills = 0
        self.server_kills = 0

    def _made(self, port: int) -> EmbeddedServer:
        accounts = "" if self._lock is None else LOCKED
        return EmbeddedServer(self._folder / "server", port=port, accounts=accounts)

    async def begin(self) -> None:
        self.url = await self._server.start()
        bus = await Bus.connect(self.url, name="chaos", access=self.access)
        await streams.ensure(bus)
        await bus.close()
        for name in SERVICES:
            await self._start(name)

    async def _start(self, name: str) -> None:
        settings = {
            "ADMIT_INSTANCE": f"chaos-{name}",
            "ADMIT_DATA_DIR": str(self._folder / name),
            "ADMIT_LOG_LEVEL": "warning",
            "ADMIT_RUN_AS": f"*={os.geteuid()}",
        }
        if self._lock is not None:
            settings["ADMIT_RUNNER"] = self._lock.runner
            settings = self._lock.access(name).environment(settings)
        arguments = ["--nats", self.url, "serve", name]
        self._children[name] = await start(arguments, self._folder / f"{name}.log", settings)

    async def kill(self, name: str) -> None:
        """Kills a service and starts it again."""
        child = self._children[name]
        child.kill()
        await child.process.wait()
        self.kills += 1
        await self._start(name)

    async def kill_server(self) -> None:
        """Kills the nats-server and starts it again on the same port."""
        port = int(self.url.rpartition(":")[2])
        os.kill(self._server.pid, signal.SIGKILL)
        while self._server.alive():  # noqa: ASYNC110  (a process has no event)
            # It holds its port until it is gone.
            await asyncio.sleep(0.005)
        self._server.leave()
        self.server_kills += 1
        self._server = self._made(port)
        await self._server.start()

    async def end(self) -> None:
        for name in reversed(SERVICES):
            if name in self._children:
                await self._children[name].stop()
        await self._server.stop()


async def run_chaos(jobs: int, seed: int, *, locked: bool = False) -> list[str]:
    """Runs jobs while services are killed, and checks the promises; raises SetupError with the
    first broken one."""
    with tempfile.TemporaryDirectory(prefix="admit-chaos-") as name:
        folder = Path(name)
        trail = folder / "trail"
        trail.touch()
        deployment = Deployment(folder, locked=locked)
        started = clock.monotonic()
        try:
            await deployment.begin()
            bus = await Bus.connect(deployment.url, name="chaos", access=deployment.access)
            try:
                await create_queues(bus)
                await _submit(bus, jobs, trail)
                await _storm(bus, deployment, jobs, seed, trail)
                seconds = clock.monotonic() - started
                unfinished = await unfinished_of(bus)
                told = await read_log(bus)
                wrong = await wrong_sums(bus)
            finally:
                await bus.close()
        finally:
            await deployment.end()
        found = read_trail(_lines(trail))
    booked = replay(told, {f"chaos-{n}": QUOTA_MILLI for n in range(QUEUES)})
    broken = broken_promises(jobs, unfinished, found, booked) + wrong
    story = (
        f"{jobs} jobs in {seconds:.0f} s through {deployment.kills} kills of services and "
        f"{deployment.server_kills} of the server: {len(found.ended)} ended, {found.started} runs "
        f"started, {found.peak} at once at the most of {QUEUES * QUOTA_MILLI // 1000} allowed, "
        f"{booked.admissions} admissions"
    )
    if broken:
        raise SetupError("; ".join([story, *broken]))
    return [
        story,
        "all finished, none lost, none twice at once, quota never exceeded, usage summed right",
    ]


async def _submit(bus: Bus, jobs: int, trail: Path) -> None:
    messages = [
        Outgoing(
            f"admit.workload.submitted.default.job-{n}",
            submission_of(f"job-{n}", f"chaos-{n % QUEUES}", trail),
            {MESSAGE_ID: f"chaos-{n}"},
        )
        for n in range(jobs)
    ]
    outcomes = await bus.publish_all(messages, timeout=60.0)
    refused = [outcome for outcome in outcomes if isinstance(outcome, Refused)]
    if refused:
        raise SetupError(f"a submission was refused: {refused[0]}")


async def _storm(bus: Bus, deployment: Deployment, jobs: int, seed: int, trail: Path) -> None:
    """Kills services until the trail has the end of every job, then waits for their facts."""
    chance = random.Random(seed)
    deadline = clock.monotonic() + PATIENCE
    while clock.monotonic() < deadline:
        await asyncio.sleep(1.0)
        ended = len(read_trail(_lines(trail)).ended)
        if ended >= jobs:
            break
        await deployment.kill(chance.choice(SERVICES))
        share = (deployment.server_kills + 1) / (SERVER_KILLS + 1)
        if deployment.server_kills < SERVER_KILLS and ended >= share * jobs * 0.9:
            await deployment.kill_server()
    while clock.monotonic() < deadline:
        with suppress(AdmittanceError):
            if not await unfinished_of(bus):
                return
        await asyncio.sleep(0.5)


def _lines(trail: Path) -> list[str]:
    return trail.read_text().splitlines()


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def command() -> list[str]:
    """Runs the benchmark with the options of the command line; returns the lines to print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=0, help="default 1000; on a cluster 2000")
    parser.add_argument("--seed", type=int, default=1, help="which service dies when")
    parser.add_argument("--locked", action="store_true", help="the servers demand credentials")
    parser.add_argument("--servers", type=int, default=1, help="more than one: a cluster of them")
    parser.add_argument(
        "--kill-every", type=float, default=1.0, help="seconds; 0: services are not killed so often"
    )
    parser.add_argument(
        "--stall-max", type=float, default=0.0, help="allowed seconds after one server's loss"
    )
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="of a cluster: only faults whose name has TEXT"
    )
    parser.add_argument("--times", type=int, default=1, help="how often, with --only")
    parser.add_argument("--scale", type=float, default=1.0, help="factor for the length of faults")
    found = parser.parse_args()
    only = [kind for kind in KINDS if found.only in kind] if found.only else []
    if found.only and not only:
        parser.error(f"no fault has {found.only!r} in its name: {', '.join(KINDS)}")
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        if found.servers > 1:
            plan = chaos_cluster.ChaosPlan(
                servers=found.servers,
                jobs=found.jobs or 2000,
                seed=found.seed,
                locked=found.locked,
                kill_every=found.kill_every,
                stall_max=found.stall_max,
                kinds=only * found.times,
                scale=found.scale,
            )
            return runner.run(chaos_cluster.run_cluster_chaos(plan, tell=_tell))
        return runner.run(run_chaos(found.jobs or 1000, found.seed, locked=found.locked))


if __name__ == "__main__":
    main_of(command)
