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

import asyncio
import json
import random
import tempfile
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from admittance.bench import generator
from admittance.bench.connection import connected
from admittance.bench.generator import BenchPlan, PlannedQueue
from admittance.client import kinds
from admittance.client.errors import ClientError
from admittance.client.requests import objects
from admittance.client.requests.link import Link
from admittance.events import facts, reasons
from admittance.events.base import Fact
from admittance.events.subjects import subject_of
from admittance.runtime import clock
from admittance.runtime.errors import AdmittanceError, SetupError
from admittance.workload.conditions import Type, find
from benchmarks.harness.fleet import Fleet, instances_of
from benchmarks.harness.jobs import (
    NAMESPACE,
    facts_in,
    publish_surely,
    read_log,
    submission,
    unfinished,
)
from benchmarks.harness.program import SEED, Option, run_program
from benchmarks.harness.server_cluster import ServerCluster
from benchmarks.harness.waits import until_right
from benchmarks.job_traces import JobFacts, JobRun, JobVerdict, sum_of_verdicts, verdict_on

CONTROLLERS: Final = ("workload-controller", "scheduler", "retry-timer", "variant-controller")
CLAIM_SECONDS: Final = 5.0
GRACE_SECONDS: Final = 10
STEP_SECONDS: Final = 0.2
GOALS: Final = (5, 60)
"""Steps of a job, at least and at most."""
ALIVE: Final = 30
"""Jobs that are submitted and not finished."""
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


def runs_of(fleet: Fleet, runners: Iterable[str]) -> Mapping[str, list[JobRun]]:
    """Every run that any runner has in its folder, by the name of its job."""
    runs: dict[str, list[JobRun]] = defaultdict(list)
    for name in runners:
        for path in (fleet.folder_of(name) / "runner/runs").glob("*/spec.json"):
            spec = json.loads(path.read_bytes())
            runs[spec["name"]].append(_run_of(spec["revision"], path.with_name("journal")))
    return runs


class JobPopulation:
    """The jobs: submitted while there are few, deactivated and activated again."""

    def __init__(self, link: Link, folder: Path, chance: random.Random) -> None:
        self._link = link
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
        """Submits jobs until enough of them are unfinished. Raises RequestFailed."""
        self._open = set(await unfinished(self._link))
        while len(self._open) < ALIVE:
            name = f"job-{len(self.goals)}"
            goal = self._chance.randint(*GOALS)
            queue = self._chance.choice((PREEMPTED, PREEMPTED, MIGRATED))
            priority = self._chance.choice((0, 0, 10, 20))
            self.goals[name] = goal
            self._open.add(name)
            await self.say(job(name, queue, priority, goal, self._folder / "jobs"))

    async def off_and_on(self, seconds: float) -> None:
        """Deactivates a job as a user does, and activates it again."""
        if not self._open:
            return
        name = self._chance.choice(sorted(self._open))
        await self.say(facts.Deactivated(namespace=NAMESPACE, name=name))
        await asyncio.sleep(seconds)
        await self.say(facts.Activated(namespace=NAMESPACE, name=name))

    async def say(self, fact: Fact) -> None:
        """Publishes a fact until the log has it."""
        await publish_surely(self._link.bus, fact, f"checkpointing-{self._chance.random()}")


def job(name: str, queue: str, priority: int, goal: int, folder: Path) -> facts.Submitted:
    """The submission of one job."""
    env = {"GOAL": goal, "STATE": folder / f"{name}.state", "TRACE": folder / f"{name}.trace"}
    return submission(
        name, queue, ("sh", "-c", SCRIPT), env, priority=priority, grace_seconds=GRACE_SECONDS
    )


def bench_plan() -> BenchPlan:
    """Queues with quota for a few jobs: in one, jobs of low priority are preempted; in the other,
    families migrate."""

    return BenchPlan(
        (
            PlannedQueue(PREEMPTED, nominal=5000, within="LowerPriority"),
            PlannedQueue(MIGRATED, nominal=3000, within="LowerPriority", variants=2),
        ),
        (),
    )


async def measured(*, minutes: float, seed: int, runners: int) -> list[str]:
    """Runs the attack and checks the promises; raises SetupError with every broken one."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="admit-checkpointing-") as name:
        folder = Path(name)
        of_runners = instances_of(["runner"], runners)
        fleet = Fleet(
            folder,
            ServerCluster(folder / "servers", 1),
            [*instances_of(CONTROLLERS), *of_runners],
            {"ADMIT_CLAIM_SECONDS": str(CLAIM_SECONDS)},
        )
        faults: Counter[str] = Counter()
        began = clock.monotonic()
        try:
            await fleet.begin()
            async with connected(fleet.servers.url) as link:
                await generator.create(link, bench_plan())
                population = JobPopulation(link, folder, chance)
                await _storm(fleet, of_runners, population, chance, 60.0 * minutes, faults)
                left = await until_right(
                    lambda: unfinished(link), lambda names: not names, seconds=PATIENCE_SECONDS
                )
                told = await _log(link)
                succeeded = await _succeeded(link)
            broken = fleet.ended()
        finally:
            await fleet.stop()
        seconds = clock.monotonic() - began
        stuck = ["nothing answered"] if left is None else [f"{job} is stuck" for job in left]
        runs = runs_of(fleet, of_runners)
        verdicts = {
            each: verdict_on(
                each, goal, population.trace(each), runs.get(each, []), _told(each, told, succeeded)
            )
            for each, goal in population.goals.items()
        }
    return _answer(seconds, faults, verdicts, told, [*stuck, *broken])


def _answer(
    seconds: float,
    faults: Mapping[str, int],
    verdicts: Mapping[str, JobVerdict],
    told: Mapping[str, list[Fact]],
    more: list[str],
) -> list[str]:
    whole = sum_of_verdicts(verdicts)
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
        f"{len(verdicts)} jobs in {seconds:.0f} s: {whole.runs} runs, {whole.saves} saved states, "
        f"{whole.steps} steps of which {whole.lost} were worked again",
        f"faults: {_listed(faults)}",
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
    fleet: Fleet,
    runners: Iterable[str],
    population: JobPopulation,
    chance: random.Random,
    seconds: float,
    faults: Counter[str],
) -> None:
    """Makes one fault after the other on each part, on several parts at once, until the time is
    over."""
    until = clock.monotonic() + seconds

    async def submit() -> None:
        while clock.monotonic() < until:
            with suppress(AdmittanceError, ClientError):
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
                faults["runners killed"] += 1
                await fleet.restart(name, after=away)
            case "paused":
                faults["runners paused"] += 1
                await fleet.pause_for(name, away)
            case _:
                faults["runners ended in order"] += 1
                await fleet.restart_in_order(name, after=away)

    async def trouble_controller() -> None:
        faults["controllers killed"] += 1
        await fleet.restart(f"{chance.choice(CONTROLLERS)}-0", after=chance.uniform(0.0, 3.0))

    async def trouble_server() -> None:
        faults["server killed"] += 1
        await fleet.kill_server()

    async def trouble_user() -> None:
        faults["stopped by a user"] += 1
        await population.off_and_on(chance.uniform(0.0, 3.0))

    await asyncio.gather(
        submit(),
        *(again(partial(trouble_runner, name), 4.0, 20.0) for name in runners),
        again(trouble_controller, 8.0, 30.0),
        again(trouble_server, 45.0, 90.0),
        again(trouble_user, 3.0, 8.0),
    )


async def _succeeded(link: Link) -> frozenset[str]:
    workloads, _ = await objects.find_all(link, kinds.WORKLOAD, NAMESPACE)
    ends = ((each.name, find(each.workload(), Type.FINISHED)) for each in workloads)
    return frozenset(name for name, end in ends if end and end.reason == reasons.SUCCEEDED)


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


async def _log(link: Link) -> Mapping[str, list[Fact]]:
    """All facts on the log about each workload, oldest first."""
    told: dict[str, list[Fact]] = defaultdict(list)
    for fact in facts_in(await read_log(link)):
        if subject_of(fact).startswith("admit.workload."):
            told[fact.name].append(fact)
    return told


if __name__ == "__main__":
    run_program(
        measured,
        __doc__,
        Option("--minutes", 15.0, above=0),
        SEED,
        Option("--runners", 3, least=1),
    )
