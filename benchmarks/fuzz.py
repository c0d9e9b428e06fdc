"""Publishes junk on every subject and key while workloads run and services are killed.

``python -m benchmarks.fuzz [--messages 100000] [--minutes 25] [--seed 1] [--keep FOLDER]``: a
nats-server and every service as a process of its own, of the workload-controller and the scheduler
two. Junk is published all the time (`benchmarks.junk`), workloads are submitted, and now and then a
service is killed with ``kill -9`` and started again. At the end every submitted workload must be
finished, no job may have run twice at once, no process may have ended by itself, and after the last
junk nothing may be published on the log any more.

Left out, since only permissions prevent their abuse: facts that a program understands about our
workloads (a foreign ``finished`` finishes), keys of our own workloads and manifests in the bucket,
reservations that can be read, heartbeats and claims in the name of an instance or a job that lives,
epochs that name a living instance, consumers like a leader's in everything, purges of streams and
headers that roll a subject up.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import psutil

from admittance import services
from admittance.bench import generator
from admittance.bench.run import loop_factory, main_of, messages_stored
from admittance.bench.system import Child
from admittance.events import codec, subjects
from admittance.events.requests import Apply
from admittance.events.system import Epoch
from admittance.runtime import clock
from admittance.runtime.bus import bucket, streams
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.errors import AdmittanceError, SetupError
from admittance.runtime.nats_server.embedded_server import EmbeddedServer
from admittance.runtime.process.service import WithUp
from admittance.workload import stored
from admittance.workload.phase import phase
from benchmarks.chaos_jobs import submission_of
from benchmarks.junk import SANE, Junk, SeenMessage, random_publication
from benchmarks.trail import read_trail

TWICE: Final = ("workload-controller", "scheduler")
TOGETHER: Final = 20
"""Pieces of junk published at once."""
CONTROLLER: Final = "fuzz"
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

_encode = msgspec.json.Encoder().encode


class Services:
    """Every service as a process, which can be killed and started again. ``ended``: the services
    that ended by themselves, with the last lines of their logs."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder = folder
        self._url = url
        self._lives: Counter[str] = Counter()
        self.children: dict[str, Child] = {}
        self.instances: set[str] = set()
        self.kills = 0
        self.ended: list[str] = []

    async def begin(self) -> None:
        for name, one in services.SERVICES.items():
            if one.with_up is WithUp.ALWAYS:
                for number in range(2 if name in TWICE else 1):
                    await self._start(f"{name}.{number}")

    async def _start(self, name: str) -> None:
        service, _, _ = name.partition(".")
        self._lives[name] += 1
        instance = f"{name.replace('.', '-')}-{self._lives[name]}"
        self.instances.add(instance)
        module = services.SERVICES[service].package
        env = {
            **os.environ,
            "ADMIT_NATS_URL": self._url,
            "ADMIT_INSTANCE": instance,
            "ADMIT_DATA_DIR": str(self._folder / name),
            "ADMIT_LEASE_SECONDS": "2",
            "ADMIT_CLAIM_SECONDS": "20",
            "ADMIT_DRAIN_SECONDS": "20",
            "ADMIT_BEAT_SECONDS": "2",
            "ADMIT_CHECKPOINT_SECONDS": "20",
            "ADMIT_LOG": "text",
            "ADMIT_LOG_LEVEL": "warning",
        }
        log = self._folder / f"{name}.log"
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", module, env=env, stdout=output, stderr=output
            )
        self.children[name] = Child(process, log)

    async def look(self) -> None:
        """Notes the services that ended by themselves, and starts them again."""
        for name, child in list(self.children.items()):
            if not child.running:
                self.ended.append(f"{name}: {child.last_log_line()[:300]}")
                await self._start(name)

    async def kill(self, name: str) -> None:
        """Kills a service and starts it again."""
        await self.look()
        child = self.children[name]
        child.kill()
        await child.process.wait()
        self.kills += 1
        await self._start(name)

    async def end(self) -> None:
        for child in reversed(self.children.values()):
            await child.stop()


class Fuzz:
    """One run. ``names``: the names of workloads that junk uses."""

    def __init__(self, bus: Bus, running: Services, chance: random.Random, trail: Path) -> None:
        self._bus = bus
        self._running = running
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
        await self._bus.nc.listen(f"admit.check.requested.{CONTROLLER}.>", self._asked)

    def _collect(self, subject: bytes, _: bytes, data: bytes, __: bytes) -> None:
        seen = SeenMessage(subject.decode("utf-8", "replace"), data[:20_000])
        if len(self.corpus) < CORPUS_MAX:
            self.corpus.append(seen)
        elif f".{SANE}" in seen.subject or self._chance.random() < 0.05:
            self.corpus[self._chance.randrange(CORPUS_MAX)] = seen

    def _asked(self, subject: bytes, _: bytes, data: bytes, __: bytes) -> None:
        with suppress(codec.Undecodable):
            asked: Any = codec.decode(subject.decode("utf-8", "replace"), data)
            ready = {
                "namespace": asked.namespace,
                "name": asked.name,
                "uid": asked.uid,
                "check": asked.check,
                "cycle": asked.cycle,
                "state": "Ready",
            }
            subject_ = f"admit.check.reported.{CONTROLLER}.{asked.namespace}.{asked.name}"
            task = asyncio.ensure_future(self._bus.publish(Outgoing(subject_, _encode(ready))))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())

    def permitted(self, junk: Junk) -> bool:
        """Whether the fuzz may publish the junk: the docstring of the module lists what it leaves
        out."""
        parts = junk.subject.split(".")
        if len(junk.subject) > 900 or any(not part for part in parts):
            return False
        ours = any(part.startswith(SANE) for part in parts)
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
            return msgspec.json.decode(junk.data, type=Epoch).owner not in self._running.instances
        return True

    def _is_believed(self, parts: list[str], junk: Junk) -> bool:
        if parts[1] == subjects.CLAIMS:
            return any(instance in junk.subject for instance in self._running.instances)
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
            self.refused += sum(not isinstance(one, int) for one in outcomes)

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
        subject = f"admit.workload.submitted.default.{name}"
        await self._bus.publish(
            Outgoing(subject, submission_of(name, queue, self._trail)), timeout=30.0
        )
        self.submitted.append(name)

    async def unfinished(self) -> list[str]:
        """The submitted workloads that have not ended, each with its phase."""
        found: dict[str, str] = dict.fromkeys(self.submitted, "missing")
        now = clock.now()
        for entry in await bucket.read_all(self._bus, "workload.default.*"):
            name = entry.key.rpartition(".")[2]
            if name in found:
                with suppress(Exception):
                    found[name] = phase(stored.decode(entry.value or b""), now=now)
        return [f"{name} {how}" for name, how in found.items() if how != "Finished"]


def _family(subject: str) -> str:
    parts = subject.split(".")
    return ".".join(parts[:3] if parts[0] == "$KV" else parts[:2])


def _is_crowd(data: bytes) -> bool:
    """Whether a workload requests more pods than this machine should run."""
    try:
        spec = msgspec.json.decode(data)["workload"]["spec"]
        return any(not 0 <= one.get("count", 1) <= 4 for one in spec["podSets"])
    except Exception:
        return False


def manifests() -> list[dict[str, Any]]:
    """The manifests of four queues: one alone, two in a cohort, one with an admission check."""
    version = "kueue.x-k8s.io/v1beta2"

    def made(kind: str, name: str, spec: dict[str, Any], **more: str) -> dict[str, Any]:
        meta = {"name": name, **more}
        return {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec}

    found = [
        made("ResourceFlavor", f"{SANE}-flavor", {}),
        made("AdmissionCheck", f"{SANE}-check", {"controllerName": CONTROLLER}),
    ]
    for name in QUEUES:
        quota = {"name": f"{SANE}-flavor", "resources": [{"name": "cpu", "nominalQuota": "2"}]}
        spec: dict[str, Any] = {
            "namespaceSelector": {},
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [quota]}],
        }
        if name.endswith(("one", "two")):
            spec["cohortName"] = f"{SANE}-cohort"
        if name.endswith("checked"):
            spec["admissionChecks"] = [f"{SANE}-check"]
        found.append(made("ClusterQueue", name, spec))
        found.append(made("LocalQueue", name, {"clusterQueue": name}, namespace="default"))
    return found


async def run_fuzz(messages: int, minutes: float, seed: int, folder: Path) -> list[str]:
    """Runs the attack; returns the figures, one line each. Raises SetupError with every broken
    promise."""
    trail = folder / "trail"
    trail.touch()
    server = EmbeddedServer(folder / "server")
    url = await server.start()
    bus = await Bus.connect(url, name="fuzz")
    running = Services(folder, url)
    chance = random.Random(seed)
    fuzz = Fuzz(bus, running, chance, trail)
    began = clock.monotonic()
    try:
        await streams.ensure(bus)
        await fuzz.listen()
        await running.begin()
        raws = tuple(msgspec.Raw(_encode(one)) for one in manifests())
        await generator.ask(bus, "admit.api.apply", _encode(Apply(objects=raws)), began + 60)
        await _storm(fuzz, running, messages, minutes * 60, chance)
        wrong = await _judged(fuzz, running, bus, trail)
    finally:
        await running.end()
        await bus.close()
        await server.stop()
    seconds = clock.monotonic() - began
    lines = [
        f"{fuzz.published:,} pieces of junk ({fuzz.refused:,} refused by the server) and "
        f"{len(fuzz.submitted)} workloads in {seconds:.0f} s, {running.kills} services killed",
        ", ".join(f"{name} {count:,}" for name, count in fuzz.said.most_common(30)),
    ]
    if wrong:
        raise SetupError("\n".join([*lines, *wrong]))
    return [*lines, "all finished, none twice at once, no service ended by itself, all at rest"]


async def _storm(
    fuzz: Fuzz, running: Services, messages: int, seconds: float, chance: random.Random
) -> None:
    began = clock.monotonic()
    rate = messages / seconds
    next_job = next_kill = 0.0
    while fuzz.published < messages:
        passed = clock.monotonic() - began
        if passed >= next_job:
            await fuzz.submit()
            next_job = passed + 2.0
        if passed >= next_kill + 4.0:
            next_kill = passed
            await running.kill(chance.choice(sorted(running.children)))
            await fuzz.pretend()
        await running.look()
        await fuzz.publish(min(TOGETHER, messages - fuzz.published))
        await asyncio.sleep(max(0.0, fuzz.published / rate - passed))


async def _judged(fuzz: Fuzz, running: Services, bus: Bus, trail: Path) -> list[str]:
    """The broken promises, one line each."""
    deadline = clock.monotonic() + PATIENCE
    left = await fuzz.unfinished()
    while left and clock.monotonic() < deadline:
        await asyncio.sleep(1.0)
        await running.look()
        left = await fuzz.unfinished()
    wrong = [f"ended by itself: {one}" for one in running.ended]
    if left:
        wrong.append(f"{len(left)} workloads are not finished: {', '.join(left[:10])}")
    found = read_trail(_lines(trail))
    if found.overlapping:
        wrong.append(f"{len(found.overlapping)} jobs ran twice at once: {found.overlapping[0]}")
    missing = [name for name in fuzz.submitted if name not in found.ended and name not in left]
    if missing and not left:
        wrong.append(f"{len(missing)} jobs never came to their end, such as {missing[0]}")
    before = await messages_stored(bus, (subjects.STREAM, f"KV_{subjects.BUCKET}"))
    processes = {name: psutil.Process(child.pid) for name, child in running.children.items()}
    with suppress(psutil.NoSuchProcess):
        for process in processes.values():
            process.cpu_percent()
        await asyncio.sleep(REST_SECONDS)
        for name, process in processes.items():
            if (used := process.cpu_percent()) > REST_CPU:
                wrong.append(f"{name} uses {used:.0f} % of a core at rest")
    said = await messages_stored(bus, (subjects.STREAM, f"KV_{subjects.BUCKET}")) - before
    if said > REST_MESSAGES * REST_SECONDS:
        wrong.append(f"{said / REST_SECONDS:.0f} messages a second at rest")
    return wrong


def _lines(trail: Path) -> list[str]:
    return trail.read_text().splitlines()


def command() -> list[str]:
    """Runs the benchmark with the options of the command line; returns the lines to print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--minutes", type=float, default=25.0)
    parser.add_argument("--seed", type=int, default=1, help="which junk, which service dies when")
    parser.add_argument("--keep", type=Path, help="where logs and streams stay, an empty folder")
    found = parser.parse_args()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        if found.keep:
            found.keep.mkdir(parents=True, exist_ok=True)
            return runner.run(run_fuzz(found.messages, found.minutes, found.seed, found.keep))
        with tempfile.TemporaryDirectory(prefix="admit-fuzz-") as name:
            return runner.run(run_fuzz(found.messages, found.minutes, found.seed, Path(name)))


if __name__ == "__main__":
    main_of(command)
