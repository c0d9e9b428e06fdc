"""How long a flood of one namespace delays the single job of another one, on a locked server.

``python -m benchmarks.flood [--flood 20000] [--jobs 15] [--containers 1]``

The flood is published twice: straight to the log, as by a client in the account of the services,
and by a user, whose facts enter the log in turn by namespace. Each time a process of its own sends
all submissions at once. Until the last of them is applied, a single job with free quota is
submitted in another namespace every 100 ms; the time until each is admitted is compared with that
before the flood.

With ``--flood 30 --containers 5500`` the flood is 30 manifests of 460 KB, and only the user sends
them.
"""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any, Final

from admittance.access.users import User
from admittance.bench import generator
from admittance.bench.connection import connected, until_settled
from admittance.bench.generator import BenchPlan, PlannedQueue
from admittance.bench.system import embedded, with_load_user
from admittance.client.requests.link import Link
from admittance.events.base import HEADER_MSG_ID
from admittance.events.codec import encode
from admittance.events.subjects import subject_of, user_subject
from admittance.runtime import chance, clock
from admittance.runtime.bus.bus import Outgoing
from admittance.runtime.errors import SetupError
from admittance.runtime.nats.connection_options import ConnectionOptions
from admittance.runtime.nats_server.auth_store import AuthStore
from benchmarks.harness.jobs import submission
from benchmarks.harness.program import Option, run_program

LIMIT: Final = 300.0
PART: Final = 1000
EVERY: Final = 0.1
"""Seconds between two single jobs during the flood."""
WAYS: Final = {"log": "", "turns": "ada"}
"""The user that sends the flood, by way; "": a client in the account of the services."""
QUEUES: Final = (
    PlannedQueue("flood", namespace="flood", nominal=1000),
    PlannedQueue("quiet", namespace="quiet", nominal=1_000_000),
)


def _submission(user: str, namespace: str, name: str, containers: int = 1) -> Outgoing:
    fact = submission(name, namespace, namespace=namespace, containers=containers)
    subject = user_subject(user, fact) if user else subject_of(fact)
    return Outgoing(subject, encode(fact), {HEADER_MSG_ID: f"flood-{name}"})


async def _flood(url: str, creds: str, way: str, count: int, containers: int) -> None:
    """Sends all submissions at once, and waits until all are acknowledged."""
    messages = [_submission(WAYS[way], "flood", f"{way}-{n}", containers) for n in range(count)]
    parts = [messages[at : at + PART] for at in range(0, count, PART)]
    async with connected(url, ConnectionOptions(creds=creds)) as link:
        sys.stdout.write("begin\n")
        sys.stdout.flush()
        publish_all = partial(link.bus.publish_all, timeout=LIMIT)
        outcomes = chain.from_iterable(await asyncio.gather(*map(publish_all, parts)))
    refused, stored = 0, 0
    for outcome in outcomes:
        if isinstance(outcome, int):
            stored = max(stored, outcome)
        else:
            refused += 1
            reason = outcome
    if refused:
        raise SetupError(f"{refused} submissions were refused: {reason}")
    sys.stdout.write(f"{stored}\n")


class Quiet:
    """The jobs of the other namespace. ``core`` receives the admissions."""

    def __init__(self, core: Link, bob: Link) -> None:
        self._core = core
        self._bob = bob
        self._admitted: dict[str, asyncio.Event] = {}

    async def start(self) -> None:
        """Starts to receive messages."""
        await self._core.bus.nc.listen("admit.workload.admitted.quiet.*", self._on_admitted)

    def _on_admitted(self, subject: bytes, _reply: bytes, _data: bytes, _headers: bytes) -> None:
        waits = self._admitted.get(subject.decode().split(".")[-1])
        if waits is not None:
            waits.set()

    async def job(self, way: str) -> float:
        """Submits one job; returns the milliseconds until it is admitted."""
        name = chance.token_hex(6)
        admitted = self._admitted[name] = asyncio.Event()
        link, user = (self._bob, "bob") if WAYS[way] else (self._core, "")
        began = clock.monotonic()
        await link.bus.publish(_submission(user, "quiet", name), timeout=LIMIT)
        async with asyncio.timeout(LIMIT):
            await admitted.wait()
        return (clock.monotonic() - began) * 1000

    async def jobs_until(self, done: asyncio.Task[Any], way: str) -> list[asyncio.Task[float]]:
        """Submits a job every now and then until the task is done."""
        running: list[asyncio.Task[float]] = []
        while not done.done():
            running.append(asyncio.create_task(self.job(way)))
            await asyncio.wait([done], timeout=EVERY)
        return running


async def _way(way: str, flood: int, jobs: int, containers: int) -> str:
    async with embedded("--no-runner") as child:
        store = AuthStore(child.data / "auth")
        creds = {user: str(child.log.with_name(f"{user}.creds")) for user in ("ada", "bob")}
        for user, namespace in (("ada", "flood"), ("bob", "quiet")):
            person = User(name=user, role="user", key="", namespaces=(namespace,))
            store.add(person, Path(creds[user]))
        # The users were written anew, without that of the load.
        access = await with_load_user(child.data / "auth", child.url)
        async with (
            connected(child.url, access) as core,
            connected(child.url, ConnectionOptions(creds=creds["bob"])) as bob,
        ):
            await generator.create(core, BenchPlan(QUEUES, ()))
            quiet = Quiet(core, bob)
            await quiet.start()
            before = [await quiet.job(way) for _ in range(jobs)]
            words = ["--url", child.url, "--creds", creds["ada"] if WAYS[way] else access.creds]
            words += ["--way", way, "--flood", str(flood), "--containers", str(containers)]
            flooding = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "benchmarks.flood", *map(str, words)),
                stdout=asyncio.subprocess.PIPE,
            )
            assert flooding.stdout is not None
            began_line = await flooding.stdout.readline()
            began = clock.monotonic()
            told = asyncio.create_task(flooding.communicate())
            running = await quiet.jobs_until(told, way)
            last, _ = await told
            if not began_line or flooding.returncode:
                raise SetupError("the flood ended with an error")
            applied = asyncio.create_task(until_settled(core, int(last), patience=LIMIT))
            running += await quiet.jobs_until(applied, way)
            await applied
            during = await asyncio.gather(*running)
            took = clock.monotonic() - began
    delay = median(during) - median(before)
    size = f" of {containers:,} containers" if containers > 1 else ""
    return (
        f"{way:<5}  {flood} submissions at once{size}: a single job of another namespace is "
        f"admitted after {median(before):.1f} ms without and {median(during):.1f} ms with the "
        f"flood, median of {len(during)} jobs in {took:.1f} s, longest {max(during):.0f} ms: "
        f"delayed by {delay:.0f} ms"
    )


async def measured(
    *, flood: int, jobs: int, containers: int, url: str, creds: str, way: str
) -> list[str]:
    """Returns a line for each way. With a URL, publishes the flood itself and prints its last
    sequence."""
    if url:
        await _flood(url, creds, way, flood, containers)
        return []
    ways = WAYS if containers == 1 else ["turns"]
    return [await _way(each, flood, jobs, containers) for each in ways]


if __name__ == "__main__":
    run_program(
        measured,
        __doc__,
        Option("--flood", 20_000, "submissions at once", least=1),
        Option("--jobs", 15, "single jobs before the flood", least=1),
        Option("--containers", 1, "of a submission of the flood", least=1),
        Option("--url", "", "of the process that floods: the server"),
        Option("--creds", "", "its credentials"),
        Option("--way", "log", "its way"),
    )
