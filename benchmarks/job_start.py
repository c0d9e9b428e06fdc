"""How long from submitted to started on one machine, and what a start costs.

``python -m benchmarks.job_start [--rate 20] [--seconds 15] [--queue 200] [--user nobody]
[--cgroup none] [--admit PROGRAM]``

Starts an open nats-server with all services in one process, and a runner in another one. Jobs run
``true`` with quota for all of them. The CPU of a job is that of the runner, and that of the fork
server with the shims and jobs. Then a queue of jobs with quota for four of them at a time shows how
long quota lies idle between the end of a job and the start of the next. ``--admit`` measures
another version.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import msgspec
import psutil
from nats.aio.msg import Msg

from admittance.bench.system import Child
from admittance.client import Client
from admittance.events.codec import encode
from admittance.events.facts import Submitted
from admittance.events.subjects import subject_of
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.errors import SetupError
from benchmarks.harness.program import Option, run_program
from benchmarks.harness.server_cluster import free_ports

IDLE_SECONDS: Final = 10.0
LIMIT_SECONDS: Final = 60.0
ROOM: Final = 4
QUEUES: Final = f"""
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {{name: here}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {{name: all}}
spec:
  namespaceSelector: {{}}
  resourceGroups:
  - coveredResources: [cpu, memory]
    flavors:
    - name: here
      resources:
      - {{name: cpu, nominalQuota: 100000}}
      - {{name: memory, nominalQuota: 100Ti}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {{name: few}}
spec:
  namespaceSelector: {{}}
  resourceGroups:
  - coveredResources: [cpu, memory]
    flavors:
    - name: here
      resources:
      - {{name: cpu, nominalQuota: {ROOM}}}
      - {{name: memory, nominalQuota: 100Ti}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {{name: all, namespace: default}}
spec: {{clusterQueue: all}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {{name: few, namespace: default}}
spec: {{clusterQueue: few}}
"""


def workload(name: str, queue: str = "all") -> dict[str, Any]:
    """A workload whose job ends at once."""
    resources = {"requests": {"cpu": "1", "memory": "64Mi"}}
    container = {"name": "c", "command": ["/bin/true"], "resources": resources}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "queueName": queue,
            "podSets": [{"name": "main", "count": 1, "template": template}],
        },
    }


def own_cpu(process: psutil.Process) -> float:
    """The CPU time of a process in seconds."""
    times = process.cpu_times()
    return float(times.user + times.system)


def all_cpu(process: psutil.Process) -> float:
    """The CPU time of a process and of all its ended children."""
    times = process.cpu_times()
    return own_cpu(process) + float(times.children_user + times.children_system)


async def start(
    stack: AsyncExitStack, log: Path, env: Mapping[str, str], *words: str
) -> asyncio.subprocess.Process:
    """Starts a process that ends with the stack."""
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *words,
            env={**os.environ, **env},
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
        )
    stack.push_async_callback(Child(process, log).stop)
    return process


async def measured(
    *, rate: float, seconds: float, queue: int, user: str, cgroup: str, admit: str
) -> list[str]:
    """The figures. Raises SetupError if a job does not start."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="admit-start-")))
        env = {"XDG_CONFIG_HOME": str(folder), "ADMIT_LOG_LEVEL": "warning"}
        arguments = ("up", "--no-runner", "--insecure", "--port", "0", "--data-dir", f"{folder}/up")
        log = folder / "up.log"
        url = await Child(await start(stack, log, env, admit, *arguments), log).ready()
        address = f"127.0.0.1:{free_ports(1)[0]}"
        settings = {
            **env,
            "ADMIT_NATS_URL": url,
            "ADMIT_RUN_AS": f"*={user or os.geteuid()}",
            "ADMIT_DATA_DIR": f"{folder}/runner",
            "ADMIT_ADMIN": address,
            **({"ADMIT_CGROUP": cgroup} if cgroup else {}),
        }
        process = await start(stack, folder / "runner.log", settings, admit, "serve", "runner")
        runner = psutil.Process(process.pid)
        bus = await Bus.connect(url, name="benchmark")
        stack.push_async_callback(bus.close)
        async with await Client.connect(url) as client:
            await client.apply(QUEUES)
        return await _measure(bus, runner, rate, seconds, queue)


def percentiles(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    middle, last = ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)]
    return f"p50 {middle * 1000:.0f} ms, p99 {last * 1000:.0f} ms"


async def _measure(
    bus: Bus, runner: psutil.Process, rate: float, seconds: float, queue: int
) -> list[str]:
    began_at: dict[str, float] = {}
    delays: list[float] = []
    starts: list[float] = []
    ends: list[float] = []
    ended: set[str] = set()

    async def on_start(message: Msg) -> None:
        name = message.subject.rpartition(".")[2]
        starts.append(clock.monotonic())
        if name in began_at:
            delays.append(clock.monotonic() - began_at[name])

    async def on_end(message: Msg) -> None:
        ends.append(clock.monotonic())
        ended.add(message.subject.rpartition(".")[2])

    await bus.nc.subscribe("admit.workload.started.>", cb=on_start)
    await bus.nc.subscribe("admit.workload.finished.>", cb=on_end)

    async def submit(name: str, to: str = "all") -> None:
        fact = Submitted(
            namespace="default",
            name=name,
            time=clock.now(),
            workload=msgspec.Raw(msgspec.json.encode(workload(name, to))),
        )
        began_at[name] = clock.monotonic()
        await bus.publish(Outgoing(subject_of(fact), encode(fact)))

    async def wait(count: int) -> None:
        deadline = clock.monotonic() + LIMIT_SECONDS
        while len(ended) < count:
            if clock.monotonic() > deadline:
                raise SetupError(f"{len(ended)} of {count} jobs have ended in {LIMIT_SECONDS:g} s")
            await asyncio.sleep(0.05)

    await submit("warm")
    await wait(1)
    (server,) = [each for each in runner.children() if "fork_server" in " ".join(each.cmdline())]
    idle = own_cpu(runner)
    await asyncio.sleep(IDLE_SECONDS)
    idle = (own_cpu(runner) - idle) / IDLE_SECONDS
    before = own_cpu(runner), all_cpu(server)
    delays.clear()
    count = int(rate * seconds)
    first = clock.monotonic()
    for number in range(count):
        await asyncio.sleep(max(0.0, first + number / rate - clock.monotonic()))
        await submit(f"job{number}")
    await wait(count + 1)
    lasted = clock.monotonic() - first
    jobs = (own_cpu(runner) - before[0] - idle * lasted) / count, all_cpu(server) - before[1]
    latency = percentiles(delays)
    starts.clear()
    ends.clear()
    for number in range(queue):
        await submit(f"queued{number}", "few")
    await wait(count + 1 + queue)
    # The end of a job makes room for the job that starts as the fourth after it.
    idle_quota = [start - end for end, start in zip(ends, starts[ROOM:], strict=False)]
    return [
        f"submitted to started at {rate:g} a second, {count} jobs: {latency}",
        f"CPU of a job: fork server, shim and job {jobs[1] / count * 1000:.1f} ms, runner "
        f"{jobs[0] * 1000:.1f} ms",
        f"idle runner: {idle:.2%} of a core",
        f"{queue} jobs in a queue with quota for {ROOM} at a time: from finished to the next "
        f"started {percentiles(idle_quota)}; {queue / (ends[-1] - starts[0]):.0f} a second",
    ]


if __name__ == "__main__":
    run_program(
        measured,
        __doc__,
        Option("--rate", 20.0, "jobs a second", above=0),
        Option("--seconds", 15.0, above=0),
        Option("--queue", 200, "jobs that wait for quota", above=ROOM),
        Option("--user", "", "the Unix user of jobs, by default that of the runner", kind=str),
        Option("--cgroup", "", "the runner's option; an older version has none", kind=str),
        Option("--admit", str(Path(sys.executable).with_name("admit")), "the program", kind=str),
    )
