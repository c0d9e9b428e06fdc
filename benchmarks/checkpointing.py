"""Jobs that save their state on SIGTERM and exit 0, while everything stops them.

``python -m benchmarks.checkpointing [--minutes 15] [--seed 1] [--runners 3]``: a nats-server, every
service as a process of its own, and several runners on one machine with claims of a few seconds.
Jobs of low priority are preempted by jobs of high priority, families of concurrent admission
migrate, and users deactivate jobs and activate them again. Meanwhile runners are killed, paused for
longer than their claims, and ended in order; controllers and the server are killed. Then the faults
stop until every job has ended. The log, the journals of the shims and the trace that each job
writes show which promises were kept.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import tempfile
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from admittance.bench import generator
from admittance.bench.generator import BenchPlan, PlannedQueue
from admittance.bench.run import loop_factory, main_of
from admittance.bench.system import Child, start
from admittance.events import codec, facts
from admittance.events.base import Fact
from admittance.events.requests import EventsReply
from admittance.events.subjects import subject_of
from admittance.runtime import clock
from admittance.runtime.bus import bucket, streams
from admittance.runtime.bus.bus import MESSAGE_ID, Bus, Outgoing
from admittance.runtime.errors import AdmittanceError, Refused, SetupError, Unavailable
from admittance.runtime.nats_server.embedded_server import EmbeddedServer
from admittance.workload import stored
from admittance.workload.conditions import Type, find
from admittance.workload.phase import phase
from benchmarks.chaos_jobs import read_log
from benchmarks.job_traces import JobFacts, JobRun, JobVerdict, sum_of_verdicts, verdict_on

CONTROLLERS: Final = ("workload-controller", "scheduler", "retry-timer", "variant-controller")
NAMESPACE: Final = "default"
CLAIM_SECONDS: Final = 5.0
GRACE_SECONDS: Final = 10
STEP_SECONDS: Final = 0.2
GOALS: Final = (5, 60)
"""Steps of a job, at least and at most."""
ALIVE: Final = 30
"""Jobs that are submitted and not finished."""
FAULT_SECONDS: Final = (1.0, 4.0)
PATIENCE_SECONDS: Final = 300.0
PREEMPTED, MIGRATED = "preempted", "migrated"

SCRIPT: Final = """
n=$(cat "$STATE" 2>/dev/null); n=${n:-0}
echo "start $n $$" >>"$TRACE"
save() {
  echo "$n" >"$STATE.part"; mv "$STATE.part" "$STATE"; echo "saved $n $$" >>"$TRACE"; exit 0
}
trap save TERM
while [ "$n" -lt "$GOAL" ]; do
  sleep STEP & wait $!
  n=$((n+1)); echo "step $n $$" >>"$TRACE"
done
echo "done $n $$" >>"$TRACE"
""".replace("STEP", str(STEP_SECONDS))

_events = msgspec.json.Decoder(EventsReply)
_encode = msgspec.json.Encoder().encode


class Fleet:
    """A server, the controllers and some runners, which can be killed, paused and started again."""

    def __init__(self, folder: Path, runners: int) -> None:
        self._folder = folder
        self._server = EmbeddedServer(folder / "server")
        self.runners = [f"runner-{n}" for n in range(runners)]
        self._children: dict[str, Child] = {}
        self.url = ""
        self.faults: Counter[str] = Counter()

    async def begin(self) -> None:
        self.url = await self._server.start()
        bus = await Bus.connect(self.url, name="checkpointing")
        await streams.ensure(bus)
        await bus.close()
        for name in (*CONTROLLERS, *self.runners):
            await self._start(name)

    async def _start(self, name: str) -> None:
        settings = {
            "ADMIT_INSTANCE": name,
            "ADMIT_DATA_DIR": str(self._folder / name),
            "ADMIT_CLAIM_SECONDS": str(CLAIM_SECONDS),
            "ADMIT_RUN_AS": f"*={os.geteuid()}",
            "ADMIT_LOG_LEVEL": "warning",
        }
        service = "runner" if name in self.runners else name
        arguments = ["--nats", self.url, "serve", service]
        self._children[name] = await start(arguments, self._folder / f"{name}.log", settings)

    async def kill(self, name: str, away: float) -> None:
        """Kills the process with ``kill -9`` and starts it again after some seconds."""
        child = self._children[name]
        child.kill()
        await child.process.wait()
        await asyncio.sleep(away)
        await self._start(name)

    async def pause(self, name: str, seconds: float) -> None:
        child = self._children[name]
        with suppress(ProcessLookupError):
            child.process.send_signal(signal.SIGSTOP)
            await asyncio.sleep(seconds)
            child.process.send_signal(signal.SIGCONT)

    async def end_in_order(self, name: str, away: float) -> None:
        await self._children[name].stop()
        await asyncio.sleep(away)
        await self._start(name)

    async def kill_server(self) -> None:
        port = int(self.url.rpartition(":")[2])
        os.kill(self._server.pid, signal.SIGKILL)
        while self._server.alive():  # noqa: ASYNC110  (a process has no event)
            await asyncio.sleep(0.005)
        self._server.leave()
        self._server = EmbeddedServer(self._folder / "server", port=port)
        await self._server.start()

    def ended(self) -> list[str]:
        """The services that have ended by themselves, with the last lines of their logs."""
        return [
            f"{name} ended with status {child.process.returncode}: {child.last_log_line()}"
            for name, child in self._children.items()
            if not child.running
        ]

    async def end(self) -> None:
        for name in reversed(list(self._children)):
            await self._children[name].stop()
        await self._server.stop()

    def runs(self) -> Mapping[str, list[JobRun]]:
        """Every run that any runner has in its folder, by the name of its job."""
        found: dict[str, list[JobRun]] = defaultdict(list)
        for name in self.runners:
            for path in (self._folder / name / "runner/runs").glob("*/spec.json"):
                spec = json.loads(path.read_bytes())
                run = _run_of(spec["revision"], path.with_name("journal"))
                found[spec["name"]].append(run)
        return found


class JobPopulation:
    """The jobs: submitted while there are few, deactivated and activated again."""

    def __init__(self, bus: Bus, folder: Path, chance: random.Random) -> None:
        self._bus = bus
        self._folder = folder
        self._chance = chance
        self.goals: dict[str, int] = {}
        self._open: set[str] = set()
        (folder / "jobs").mkdir()

    def trace(self, name: str) -> list[str]:
        with suppress(FileNotFoundError):
            return (self._folder / "jobs" / f"{name}.trace").read_text().splitlines()
        return []

    async def fill(self) -> None:
        """Submits jobs until enough of them are unfinished. Raises Unavailable."""
        self._open = set(await unfinished_jobs(self._bus))
        outgoing = []
        for _ in range(ALIVE - len(self._open)):
            name = f"job-{len(self.goals)}"
            goal = self._chance.randint(*GOALS)
            queue = self._chance.choice((PREEMPTED, PREEMPTED, MIGRATED))
            priority = self._chance.choice((0, 0, 10, 20))
            self.goals[name] = goal
            self._open.add(name)
            outgoing.append(
                Outgoing(
                    f"admit.workload.submitted.{NAMESPACE}.{name}",
                    job(name, queue, priority, goal, self._folder / "jobs"),
                    {MESSAGE_ID: f"checkpointing-{name}"},
                )
            )
        for outcome in await self._bus.publish_all(outgoing, timeout=60.0):
            if isinstance(outcome, Refused):
                raise SetupError(f"a submission was refused: {outcome}")

    async def off_and_on(self, seconds: float) -> None:
        """Deactivates a job as a user does, and activates it again."""
        if not self._open:
            return
        name = self._chance.choice(sorted(self._open))
        await self.say(facts.Deactivated(namespace=NAMESPACE, name=name))
        await asyncio.sleep(seconds)
        await self.say(facts.Activated(namespace=NAMESPACE, name=name))

    async def say(self, fact: Fact) -> None:
        headers = {MESSAGE_ID: f"checkpointing-{self._chance.random()}"}
        message = Outgoing(subject_of(fact), codec.encode(fact), headers)
        while True:
            try:
                await self._bus.publish(message)
            except Unavailable:
                await asyncio.sleep(0.5)
                continue
            return


def job(name: str, queue: str, priority: int, goal: int, folder: Path) -> bytes:
    """The submission of one job."""
    env = {"GOAL": goal, "STATE": folder / f"{name}.state", "TRACE": folder / f"{name}.trace"}
    container = {
        "name": "main",
        "image": "none",
        "command": ["sh", "-c", SCRIPT],
        "env": [{"name": key, "value": str(value)} for key, value in env.items()],
        "resources": {"requests": {"cpu": "1"}},
    }
    template = {
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": GRACE_SECONDS,
            "containers": [container],
        }
    }
    manifest = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "queueName": queue,
            "priority": priority,
            "podSets": [{"name": "main", "count": 1, "template": template}],
        },
    }
    return _encode({"namespace": NAMESPACE, "name": name, "workload": manifest})


def bench_plan() -> BenchPlan:
    """Queues with quota for a few jobs: in one, jobs of low priority are preempted; in the other,
    families migrate."""

    def queue(name: str, nominal: int, variants: int) -> PlannedQueue:
        within = "LowerPriority"
        return PlannedQueue(
            name, "cq", "", NAMESPACE, nominal, None, None, "Never", within, variants=variants
        )

    return BenchPlan((queue(PREEMPTED, 5000, 0), queue(MIGRATED, 3000, 2)), ())


async def run_attack(minutes: float, seed: int, runners: int) -> list[str]:
    """Runs the attack and checks the promises; raises SetupError with every broken one."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="admit-checkpointing-") as name:
        folder = Path(name)
        fleet = Fleet(folder, runners)
        began = clock.monotonic()
        try:
            await fleet.begin()
            bus = await Bus.connect(fleet.url, name="checkpointing")
            try:
                await generator.create(bus, bench_plan())
                population = JobPopulation(bus, folder, chance)
                await _storm(fleet, population, chance, 60.0 * minutes)
                left = await _calm(bus)
                told = await _log(bus)
                objects = await _succeeded(bus)
            finally:
                await bus.close()
            ended = fleet.ended()
        finally:
            await fleet.end()
        seconds = clock.monotonic() - began
        runs = fleet.runs()
        found = {
            each: verdict_on(
                each, goal, population.trace(each), runs.get(each, []), _told(each, told, objects)
            )
            for each, goal in population.goals.items()
        }
    return _answer(seconds, fleet, found, told, [*left, *ended])


def _answer(
    seconds: float,
    fleet: Fleet,
    found: Mapping[str, JobVerdict],
    told: Mapping[str, list[Fact]],
    more: list[str],
) -> list[str]:
    whole = sum_of_verdicts(found)
    evictions = Counter(
        fact.reason for each in told.values() for fact in each if isinstance(fact, facts.Evicted)
    )
    stops = Counter(
        fact.reason or "asked to"
        for each in told.values()
        for fact in each
        if isinstance(fact, facts.Stopped)
    )
    story = [
        f"{len(found)} jobs in {seconds:.0f} s: {whole.runs} runs, {whole.saves} saved states, "
        f"{whole.steps} steps of which {whole.lost} were worked again",
        f"faults: {_listed(fleet.faults)}",
        f"evictions: {_listed(evictions)}",
        f"stopped: {_listed(stops)}",
    ]
    broken = [*more, *whole.broken]
    if broken:
        raise SetupError("\n".join([*story, f"{len(broken)} broken:", *broken[:40]]))
    return [
        *story,
        "every job reached its goal, none ran beside itself, no result was lost or run again, "
        "no process ended by itself",
    ]


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {what}" for what, count in sorted(counts.items())) or "none"


async def _storm(
    fleet: Fleet, population: JobPopulation, chance: random.Random, seconds: float
) -> None:
    """Makes one fault after the other on each part, on several parts at once, until the time is
    over."""
    until = clock.monotonic() + seconds

    async def submit() -> None:
        while clock.monotonic() < until:
            with suppress(AdmittanceError):
                await population.fill()
            await asyncio.sleep(1.0)

    async def again(fault: Callable[[], Awaitable[None]], least: float, most: float) -> None:
        while clock.monotonic() < until:
            await asyncio.sleep(chance.uniform(least, most))
            await fault()

    async def trouble_runner(name: str) -> None:
        away = chance.choice((0.0, 0.5 * CLAIM_SECONDS, 1.2 * CLAIM_SECONDS, 2.0 * CLAIM_SECONDS))
        match chance.choice(("killed", "paused", "ended in order")):
            case "killed":
                fleet.faults["runners killed"] += 1
                await fleet.kill(name, away)
            case "paused":
                fleet.faults["runners paused"] += 1
                await fleet.pause(name, away)
            case _:
                fleet.faults["runners ended in order"] += 1
                await fleet.end_in_order(name, away)

    async def trouble_controller() -> None:
        fleet.faults["controllers killed"] += 1
        await fleet.kill(chance.choice(CONTROLLERS), chance.uniform(0.0, 3.0))

    async def trouble_server() -> None:
        fleet.faults["server killed"] += 1
        await fleet.kill_server()

    async def trouble_user() -> None:
        fleet.faults["stopped by a user"] += 1
        await population.off_and_on(chance.uniform(0.0, 3.0))

    await asyncio.gather(
        submit(),
        *(again(partial(trouble_runner, name), 4.0, 20.0) for name in fleet.runners),
        again(trouble_controller, 8.0, 30.0),
        again(trouble_server, 45.0, 90.0),
        again(trouble_user, 3.0, 8.0),
    )


async def _calm(bus: Bus) -> list[str]:
    """Waits until every job has ended; a sentence for each that does not."""
    until = clock.monotonic() + PATIENCE_SECONDS
    left: list[str] = ["nothing answered"]
    while clock.monotonic() < until:
        with suppress(AdmittanceError):
            left = await unfinished_jobs(bus)
            if not left:
                return []
        await asyncio.sleep(1.0)
    return [f"{name} is stuck" for name in left]


async def unfinished_jobs(bus: Bus) -> list[str]:
    """The names of the jobs that have not finished; for a family the name of its parent."""
    now = clock.now()
    found = []
    for entry in await bucket.read_all(bus, "workload.>"):
        if entry.value is None:
            continue
        workload = stored.decode(entry.value)
        name = workload.metadata.name
        if "-variant-" not in name and phase(workload, now=now) != "Finished":
            found.append(name)
    return found


async def _succeeded(bus: Bus) -> frozenset[str]:
    names = set()
    for entry in await bucket.read_all(bus, "workload.>"):
        if entry.value is not None:
            workload = stored.decode(entry.value)
            finished = find(workload, Type.FINISHED)
            if finished is not None and finished.reason == "Succeeded":
                names.add(workload.metadata.name)
    return frozenset(names)


def _told(name: str, told: Mapping[str, list[Fact]], succeeded: frozenset[str]) -> JobFacts:
    kinds = Counter(type(fact) for fact in told.get(name, ()))
    return JobFacts(
        kinds[facts.Finished], kinds[facts.Started], kinds[facts.Stopped], name in succeeded
    )


def _run_of(revision: int, journal: Path) -> JobRun:
    outcome, began = "", False
    with suppress(FileNotFoundError):
        for line in journal.read_text().splitlines():
            with suppress(json.JSONDecodeError):
                entry: dict[str, Any] = json.loads(line)
                began = began or entry["e"] == "start"
                outcome = entry["kind"] if entry["e"] == "outcome" else outcome
    return JobRun(revision, outcome, began)


async def _log(bus: Bus) -> Mapping[str, list[Fact]]:
    """All facts on the log about each workload, oldest first."""
    told: dict[str, list[Fact]] = defaultdict(list)
    for fact in await read_log(bus, timeout=120.0):
        if subject_of(fact).startswith("admit.workload."):
            told[fact.name].append(fact)
    return told


def command() -> list[str]:
    """Runs the benchmark with the options of the command line; returns the lines to print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--seed", type=int, default=1, help="what happens when")
    parser.add_argument("--runners", type=int, default=3)
    found = parser.parse_args()
    if found.minutes <= 0 or found.runners < 1:
        raise SetupError("--minutes must be more than 0, --runners at least 1")
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(run_attack(found.minutes, found.seed, found.runners))


if __name__ == "__main__":
    main_of(command)
