"""Publishes junk on every subject and key while workloads run and services are killed.

``python -m benchmarks.fuzz [--messages 100000] [--minutes 25] [--seed 1] [--keep FOLDER]``: starts
a nats-server and every service as a process of its own, two of the workload-controller and of the
scheduler. Junk is published all the time (`benchmarks.junk`), workloads are submitted, and now and
then a service is killed with ``kill -9`` and started again. At the end every submitted workload
must be finished, no job may have run twice at once, no process may have ended by itself, and after
the last junk nothing may be published on the log any more.

Left out, since only permissions prevent their abuse: facts that a program understands about our
workloads (a foreign ``finished`` finishes), keys of our own workloads and manifests in the bucket,
reservations that can be read, heartbeats and claims in the name of an instance or a job that lives,
epochs that name a living instance, consumers like a leader's in everything, purges of streams and
headers that roll a subject up.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import psutil

from admittance.bench import generator
from admittance.bench.connection import connected, messages_stored
from admittance.bench.generator import BenchPlan, PlannedQueue
from admittance.client.requests.link import Link
from admittance.events import codec, subjects
from admittance.events.facts import CheckReported
from admittance.events.names import token
from admittance.events.system import Epoch
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.errors import AdmittanceError, SetupError
from admittance.workload import stored
from admittance.workload.phase import Phase
from benchmarks.harness.fleet import SERVICES, Fleet, instances_of
from benchmarks.harness.jobs import phases, publish_surely, with_trail
from benchmarks.harness.program import SEED, Option, kept_folder, run_program
from benchmarks.harness.server_cluster import ServerCluster
from benchmarks.harness.trail import new_trail, trail_of
from benchmarks.harness.waits import until_right
from benchmarks.junk import SANE, Junk, SeenMessage, random_publication

TWICE: Final = ("workload-controller-1", "scheduler-1")
TOGETHER: Final = 20
"""Pieces of junk published at once."""
CHECK: Final = f"{SANE}-check"
CONTROLLER: Final = f"bench/{CHECK}"
QUEUES: Final = (f"{SANE}-plain", f"{SANE}-one", f"{SANE}-two", f"{SANE}-checked")
DOMAINS: Final = (f"queue-{SANE}-plain", f"cohort-{SANE}-cohort", "service-retry-timer")
PATIENCE: Final = 180.0
REST_SECONDS: Final = 5.0
REST_MESSAGES: Final = 50
"""A second, of those that are kept: what a system at rest may still say."""
REST_CPU: Final = 60.0
"""Percent of one core, of a service at rest."""
CORPUS_MAX: Final = 400
HEARD: Final = (
    "admit.workload.>",
    "admit.check.>",
    "admit.provisioning.>",
    "admit.object.>",
    "admit.lease.>",
    "admit.checkpoint.>",
    "admit.timer.>",
    "admit.alive.>",
    "admit.deadletter.>",
    "$KV.>",
)
"""What the corpus is made of."""

SETTINGS: Final = {
    "ADMIT_LEASE_SECONDS": "2",
    "ADMIT_CLAIM_SECONDS": "20",
    "ADMIT_DRAIN_SECONDS": "20",
    "ADMIT_BEAT_SECONDS": "2",
    "ADMIT_CHECKPOINT_SECONDS": "20",
    "ADMIT_LOG": "text",
}


class Fuzz:
    """One run. ``names``: the names of workloads that junk uses."""

    def __init__(self, link: Link, fleet: Fleet, chance: random.Random, trail: Path) -> None:
        self._link = link
        self._bus = link.bus
        self._fleet = fleet
        self._chance = chance
        self._trail = trail
        self.corpus: list[SeenMessage] = []
        self.said: Counter[str] = Counter()
        self.submitted: list[str] = []
        self.published = self.refused = 0
        self._epochs = 0

    async def listen(self) -> None:
        """Collects the corpus, and answers the check of one of the queues."""
        # Not ``admit.>``: requests would then have a listener, and wait for its answer.
        for subject in HEARD:
            await self._bus.nc.listen(subject, self._collect)
        await self._bus.nc.listen(f"admit.check.requested.{token(CONTROLLER)}.>", self._asked)

    def _collect(self, subject: bytes, _: bytes, data: bytes, __: bytes) -> None:
        seen = SeenMessage(subject.decode("utf-8", "replace"), data[:20_000])
        if len(self.corpus) < CORPUS_MAX:
            self.corpus.append(seen)
        elif f".{SANE}" in seen.subject or self._chance.random() < 0.05:
            self.corpus[self._chance.randrange(CORPUS_MAX)] = seen

    def _asked(self, subject: bytes, _: bytes, data: bytes, __: bytes) -> None:
        with suppress(codec.Undecodable):
            asked: Any = codec.decode(subject.decode("utf-8", "replace"), data)
            fact = CheckReported(
                namespace=asked.namespace,
                name=asked.name,
                uid=asked.uid,
                controller=CONTROLLER,
                check=asked.check,
                cycle=asked.cycle,
                state="Ready",
            )
            message = Outgoing(subjects.subject_of(fact), codec.encode(fact))
            task = asyncio.ensure_future(self._bus.publish(message))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())

    def permitted(self, junk: Junk) -> bool:
        """Whether the fuzz may publish the junk: the docstring of the module lists what it leaves
        out."""
        parts = junk.subject.split(".")
        if len(junk.subject) > 900 or any(not part for part in parts):
            return False
        ours = any(part.startswith(SANE) or part == generator.FLAVOR for part in parts)
        if parts[:2] == ["admit", "api"]:
            return SANE.encode() not in junk.data
        if junk.subject.startswith(subjects.EPOCH):
            return self._is_no_takeover(junk)
        if parts[0] == "$KV":
            return not ours and not self._is_believed(parts, junk)
        if ours and parts[1] in ("workload", "check", "provisioning", "timer"):
            with suppress(codec.Undecodable):
                codec.decode(junk.subject, junk.data)
                return False
        return not (parts[1:3] == ["workload", "submitted"] and _is_crowd(junk.data))

    def _is_no_takeover(self, junk: Junk) -> bool:
        # Each makes the leader take its domain anew: seldom.
        self._epochs += 1
        if self._epochs % 20:
            return False
        with suppress(msgspec.MsgspecError, ValueError, RecursionError):
            return msgspec.json.decode(junk.data, type=Epoch).owner not in self._fleet.instances
        return True

    def _is_believed(self, parts: list[str], junk: Junk) -> bool:
        if parts[1] == subjects.CLAIMS:
            return any(instance in junk.subject for instance in self._fleet.instances)
        if parts[2] == "workload":
            with suppress(Exception):
                return stored.decode(junk.data).status.admission is not None
        return parts[2] in ("clusterqueue", "cohort") and b"cohort" in junk.data

    async def publish(self, count: int) -> None:
        """Publishes that many junk messages."""
        names = [*(f"junk-{n}" for n in range(30)), *self.submitted[-20:], *QUEUES, "=ZZ", "a_b"]
        kept: list[Outgoing] = []
        for _ in range(count):
            junk = random_publication(self._chance, self.corpus, names, DOMAINS, self.permitted)
            self.published += 1
            self.said[_family(junk.subject)] += 1
            if junk.subject.startswith(("admit.api.", "admit.alive.")):
                await self._bus.publish_unacknowledged((junk.subject, junk.data))
            else:
                kept.append(Outgoing(junk.subject, junk.data, junk.headers))
        with suppress(AdmittanceError):
            outcomes = await self._bus.publish_all(kept, timeout=10.0)
            self.refused += sum(not isinstance(outcome, int) for outcome in outcomes)

    async def pretend(self) -> None:
        """Makes a consumer with the name of a leader's consumer."""
        stem = self._chance.choice(("workload-controller", "provisioning-check", "runner-x"))
        generation = self._chance.choice((1, 50, 10**15, 10**30))
        name = f"{stem}-{generation}-{self._chance.choice((1, 2, 10**12))}"
        policy = self._chance.choice(("explicit", "none")) if generation < 100 else "all"
        config = {"name": name, "durable_name": name, "ack_policy": policy}
        with suppress(AdmittanceError):
            await self._bus.api(
                f"CONSUMER.CREATE.{subjects.STREAM}.{name}",
                {"stream_name": subjects.STREAM, "config": config},
            )

    async def submit(self) -> None:
        """Submits one valid workload."""
        name = f"{SANE}-{len(self.submitted)}"
        queue = QUEUES[len(self.submitted) % len(QUEUES)]
        await publish_surely(self._bus, with_trail(name, queue, self._trail), f"fuzz-{name}")
        self.submitted.append(name)

    async def unfinished(self) -> list[str]:
        """The submitted workloads that have not ended, each with its phase."""
        known = await phases(self._link)
        where = {name: known.get(name, "missing") for name in self.submitted}
        return [f"{name} {how}" for name, how in where.items() if how != Phase.FINISHED]


def _family(subject: str) -> str:
    parts = subject.split(".")
    return ".".join(parts[:3] if parts[0] == "$KV" else parts[:2])


def _is_crowd(data: bytes) -> bool:
    """Whether a workload requests more pods than this machine should run."""
    try:
        spec = msgspec.json.decode(data)["workload"]["spec"]
        return any(not 0 <= pods.get("count", 1) <= 4 for pods in spec["podSets"])
    except Exception:
        return False


def queues() -> BenchPlan:
    """Four queues: one alone, two in a cohort, one with an admission check."""
    planned = (
        PlannedQueue(
            name,
            cohort=f"{SANE}-cohort" if name.endswith(("one", "two")) else "",
            nominal=2000,
            checks=(CHECK,) if name.endswith("checked") else (),
        )
        for name in QUEUES
    )
    return BenchPlan(tuple(planned), ())


async def measured(*, messages: int, minutes: float, seed: int, keep: Path | None) -> list[str]:
    """Runs the attack; returns the figures, one line each. Raises SetupError with every broken
    promise."""
    with kept_folder("admit-fuzz-", keep) as folder:
        return await run_fuzz(messages, minutes, seed, folder)


async def run_fuzz(messages: int, minutes: float, seed: int, folder: Path) -> list[str]:
    """Runs the attack with its logs, streams and trail in a folder."""
    trail = new_trail(folder)
    instances = [*instances_of(SERVICES), *TWICE]
    fleet = Fleet(folder, ServerCluster(folder / "servers", 1), instances, SETTINGS)
    chance = random.Random(seed)
    began = clock.monotonic()
    try:
        await fleet.begin()
        async with connected(fleet.servers.url) as link:
            fuzz = Fuzz(link, fleet, chance, trail)
            await fuzz.listen()
            await generator.create(link, queues())
            ended = await _storm(fuzz, fleet, messages, minutes * 60, chance)
            wrong = ended + await _judged(fuzz, fleet, link.bus, trail)
    finally:
        await fleet.stop()
    seconds = clock.monotonic() - began
    lines = [
        f"{fuzz.published:,} pieces of junk ({fuzz.refused:,} refused by the server) and "
        f"{len(fuzz.submitted)} workloads in {seconds:.0f} s, {fleet.restarts} services killed",
        ", ".join(f"{name} {count:,}" for name, count in fuzz.said.most_common(30)),
    ]
    if wrong:
        raise SetupError("\n".join([*lines, *wrong]))
    return [*lines, "all finished, none twice at once, no service ended by itself, all at rest"]


async def _storm(
    fuzz: Fuzz, fleet: Fleet, messages: int, seconds: float, chance: random.Random
) -> list[str]:
    """Publishes junk and kills services; a sentence for each service that ended by itself."""
    began = clock.monotonic()
    rate = messages / seconds
    next_job = next_kill = 0.0
    ended: list[str] = []
    while fuzz.published < messages:
        passed = clock.monotonic() - began
        if passed >= next_job:
            await fuzz.submit()
            next_job = passed + 2.0
        ended += await fleet.start_ended()
        if passed >= next_kill + 4.0:
            next_kill = passed
            await fleet.restart(chance.choice(fleet.instances))
            await fuzz.pretend()
        await fuzz.publish(min(TOGETHER, messages - fuzz.published))
        await asyncio.sleep(max(0.0, fuzz.published / rate - passed))
    return ended


async def _judged(fuzz: Fuzz, fleet: Fleet, bus: Bus, trail: Path) -> list[str]:
    """The broken promises, one line each."""
    wrong: list[str] = []

    async def ask() -> list[str]:
        wrong.extend(await fleet.start_ended())
        return await fuzz.unfinished()

    left = await until_right(ask, lambda names: not names, seconds=PATIENCE, every=1.0)
    if left is None:
        left = ["none was ever read"]
    if left:
        wrong.append(f"{len(left)} workloads are not finished: {', '.join(left[:10])}")
    written = trail_of(trail)
    if written.overlapping:
        wrong.append(f"{len(written.overlapping)} jobs ran twice at once: {written.overlapping[0]}")
    missing = [name for name in fuzz.submitted if name not in written.ended]
    if missing and not left:
        wrong.append(f"{len(missing)} jobs never came to their end, such as {missing[0]}")
    return wrong + await _activity_at_rest(fleet, bus)


async def _activity_at_rest(fleet: Fleet, bus: Bus) -> list[str]:
    """A sentence for each process that works although nothing happens, and for messages that
    nothing caused."""
    restless: list[str] = []
    before = await messages_stored(bus, (subjects.STREAM, f"KV_{subjects.BUCKET}"))
    processes = {name: psutil.Process(fleet.pid(name)) for name in fleet.instances}
    with suppress(psutil.NoSuchProcess):
        for process in processes.values():
            process.cpu_percent()
        await asyncio.sleep(REST_SECONDS)
        for name, process in processes.items():
            if (used := process.cpu_percent()) > REST_CPU:
                restless.append(f"{name} uses {used:.0f} % of a core at rest")
    said = await messages_stored(bus, (subjects.STREAM, f"KV_{subjects.BUCKET}")) - before
    if said > REST_MESSAGES * REST_SECONDS:
        restless.append(f"{said / REST_SECONDS:.0f} messages a second at rest")
    return restless


if __name__ == "__main__":
    run_program(
        measured,
        __doc__,
        Option("--messages", 100_000, least=1),
        Option("--minutes", 25.0, above=0),
        SEED,
        Option("--keep", None, "where logs and streams stay, an empty folder", kind=Path),
    )
