"""Jobs that save their state on SIGTERM and exit 0: stopped in every way, they go on."""

from __future__ import annotations

import asyncio
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from admittance.events import facts
from admittance.events.base import Fact
from admittance.events.codec import decode, encode
from admittance.events.subjects import subject_of
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.bus.history import read_messages
from admittance.workload.phase import Phase, phase
from support.builders import an_object
from support.processes.fork_server import run_admit
from support.requests import admission_check, apply, eventually, queues, submit, workload
from support.servers import LIMIT

ADMIT = Path(sys.executable).parent / "admit"
VERSION = "kueue.x-k8s.io/v1beta2"
CHECK = "suspends"

SCRIPT = """
if [ -e "$STATE" ]; then echo "resumed at $(cat "$STATE")"; exit 0; fi
trap 'sleep 0.2; echo 5 >"$STATE"; echo saved; exit 0' TERM
echo on; touch "$STATE.on"
while :; do sleep 0.1 & wait $!; done
"""

pytestmark = pytest.mark.bus


class Up:
    """`admit up` on a data folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = ""
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        with (self.folder / "log").open("a") as log:
            self._process = subprocess.Popen(
                [ADMIT, "up", "--insecure", "--data-dir", self.folder / "data", "--port", "0"],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "ADMIT_NATS_URL": ""},
            )
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], LIMIT)
        line = self._process.stdout.readline() if ready else ""
        match = re.fullmatch(r"ready (nats://\S+)\n", line)
        assert match, f"{line!r}; {(self.folder / 'log').read_text()[-2000:]}"
        self.url = match.group(1)

    def end(self) -> int:
        if self._process is None:
            return 0
        process, self._process = self._process, None
        process.send_signal(signal.SIGTERM)
        try:
            status = process.wait(LIMIT)
        finally:
            process.kill()
        assert process.stdout is not None
        process.stdout.close()
        return status

    def logs(self, name: str) -> str:
        done = run_admit("-n", "ns", "logs", "workload", name, "--nats", self.url)
        assert done.status == 0, done.err
        return done.out


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    made = Up(tmp_path_factory.mktemp("up"))
    made.start()
    yield made
    assert made.end() == 0


@pytest.fixture
async def stage(up: Up) -> AsyncIterator[Stage]:
    bus = await Bus.connect(up.url, name="test")
    yield Stage(up, bus)
    await bus.close()


class Stage:
    """What a test does to the system, and what it reads from it."""

    def __init__(self, up: Up, bus: Bus) -> None:
        self.up = up
        self.bus = bus

    def state(self, name: str) -> Path:
        return self.up.folder / f"{name}.state"

    async def submit(self, name: str, queue: str, script: str = SCRIPT, **spec: Any) -> None:
        container = {
            "name": "main",
            "command": ["sh", "-c", script],
            "env": [{"name": "STATE", "value": str(self.state(name))}],
            "resources": {"requests": {"cpu": "1"}},
        }
        template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
        manifest = an_object(
            "Workload",
            name,
            {
                "queueName": f"lq-{queue}",
                "podSets": [{"name": "main", "count": 1, "template": template}],
                **spec,
            },
            namespace="ns",
        )
        await submit(self.bus, [manifest])

    async def say(self, fact: Fact) -> None:
        await self.bus.publish(Outgoing(subject_of(fact), encode(fact)))

    async def runs(self, name: str) -> None:
        """Waits until the job runs and its runner has said so: an eviction that comes between the
        two is answered with ``stopped`` alone."""
        await self.eventually(lambda: self.state(name).with_suffix(".state.on").exists())

        async def has_started() -> bool:
            return "started" in await self.facts(name)

        await eventually(has_started)

    async def saved(self, name: str) -> None:
        await self.eventually(self.state(name).exists)

    async def eventually(self, claim: Callable[[], bool]) -> None:
        async def asked() -> bool:
            return claim()

        await eventually(asked)

    async def facts(self, name: str) -> list[str]:
        messages = await read_messages(self.bus, [f"admit.workload.*.ns.{name}"])
        return [message.subject.split(".")[2] for message in messages]

    async def ends(self, name: str, phase_wanted: Phase = Phase.FINISHED) -> None:
        async def ended() -> bool:
            stored = await workload(self.bus, name)
            return stored is not None and phase(stored, clock.now()) is phase_wanted

        await eventually(ended)


async def preempted(stage: Stage) -> None:
    await apply(
        stage.bus, *queues("preempted", cpu=1, preemption={"withinClusterQueue": "LowerPriority"})
    )
    await stage.submit("preempted", "preempted", priority=0)
    await stage.runs("preempted")
    await stage.submit("urgent", "preempted", "true", priority=10)
    await stage.ends("urgent")


async def migrated(stage: Stage) -> None:
    flavors = [
        {"apiVersion": VERSION, "kind": "ResourceFlavor", "metadata": {"name": name}}
        for name in ("better", "worse")
    ]
    flag = stage.up.folder / "leave"
    made = queues("migrated", concurrentAdmission={"migrationConstraints": {"mode": "UpgradeOnly"}})
    quota = [{"name": "cpu", "nominalQuota": 1}]
    made[1]["spec"]["resourceGroups"][0]["flavors"] = [
        {"name": name, "resources": quota} for name in ("better", "worse")
    ]
    await apply(stage.bus, *flavors, *made)
    await stage.submit(
        "blocks",
        "migrated",
        f"touch $STATE.on; until [ -e {flag} ]; do sleep 0.05; done",
        admissionConstraints={"allowedResourceFlavors": ["better"]},
    )
    await stage.runs("blocks")
    await stage.submit("migrated", "migrated")
    await stage.runs("migrated")
    flag.touch()
    await stage.ends("blocks")


async def drained(stage: Stage) -> None:
    await apply(stage.bus, *queues("drained"))
    await stage.submit("drained", "drained")
    await stage.runs("drained")
    await apply(stage.bus, *queues("drained", stopPolicy="HoldAndDrain"))
    await stage.saved("drained")
    await apply(stage.bus, *queues("drained"))


async def suspended_by_a_check(stage: Stage) -> None:
    name = "suspended_by_a_check".replace("_", "-")
    cycles: asyncio.Queue[int] = asyncio.Queue()

    def on_requested(subject: bytes, _reply: bytes, data: bytes, _headers: bytes) -> None:
        fact = decode(subject.decode(), data)
        assert isinstance(fact, facts.CheckRequested)
        cycles.put_nowait(fact.cycle)

    async def verdict(state: str, cycle: int) -> None:
        await stage.say(
            facts.CheckReported(
                namespace="ns",
                name=name,
                controller="test/it",
                check=CHECK,
                cycle=cycle,
                state=state,
            )
        )

    check = admission_check(CHECK, "test/it")
    await stage.bus.nc.listen("admit.check.requested.>", on_requested)
    await apply(stage.bus, check, *queues("checked", admissionChecks=[CHECK]))
    await stage.submit(name, "checked")
    async with asyncio.timeout(LIMIT):
        cycle = await cycles.get()
        await verdict("Ready", cycle)
        await stage.runs(name)
        await verdict("Retry", cycle)
        await verdict("Ready", await cycles.get())


async def stopped_by_a_user(stage: Stage) -> None:
    name = "stopped-by-a-user"
    await apply(stage.bus, *queues("user"))
    await stage.submit(name, "user")
    await stage.runs(name)
    await stage.say(facts.Deactivated(namespace="ns", name=name))
    await stage.saved(name)
    assert await workload(stage.bus, name) is not None
    await stage.ends(name, Phase.DEACTIVATED)
    await stage.say(facts.Activated(namespace="ns", name=name))


@pytest.mark.parametrize(
    "story", [preempted, migrated, drained, suspended_by_a_check, stopped_by_a_user]
)
async def test_a_job_continues_from_its_saved_state_after_it_was(
    stage: Stage, story: Callable[[Stage], Awaitable[None]]
) -> None:
    name = story.__name__.replace("_", "-")
    await story(stage)
    await stage.ends(name)
    assert stage.up.logs(name) == "resumed at 5\n"
    log = await stage.facts(name)
    assert (log.count("started"), log.count("finished")) == (2, 1)
    assert log.index("evicted") < log.index("stopped") < log.index("finished")


async def test_a_job_continues_after_admit_up_has_ended_with_its_output(up: Up) -> None:
    bus = await Bus.connect(up.url, name="test")
    before = Stage(up, bus)
    await apply(bus, *queues("ended"))
    await before.submit("ended", "ended")
    await before.runs("ended")
    await bus.close()
    assert up.end() == 0
    up.start()
    bus = await Bus.connect(up.url, name="test")
    after = Stage(up, bus)
    await after.ends("ended")
    assert re.fullmatch(r"on\n(Terminated\n)?saved\nresumed at 5\n", up.logs("ended"))
    log = await after.facts("ended")
    assert [what for what in log if what in ("started", "stopped", "finished")] == [
        *("started", "stopped"),
        *("started", "finished"),
    ]
    await bus.close()
