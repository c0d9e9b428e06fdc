"""A real server, and the part of the workload-controller that a runner meets."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from admittance.api.meta import Condition, ObjectMeta
from admittance.events.base import Fact
from admittance.events.codec import decode, encode
from admittance.events.facts import Admitted, Evicted
from admittance.events.names import token
from admittance.events.placement import Placement
from admittance.events.shapes import PodSetToRun
from admittance.events.subjects import STREAM, subject_of, workload_key
from admittance.job_rules.machine_options import NOTHING_GIVEN, GivenMachine
from admittance.job_rules.options import unix_user
from admittance.job_rules.rules import JobRules
from admittance.runner.service import run
from admittance.runtime.bus import streams
from admittance.runtime.bus.bucket import get, put_message
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.bus.history import read_in_order
from admittance.runtime.errors import BusRefused
from admittance.runtime.nats import micro
from admittance.runtime.nats_server.embedded_server import EmbeddedServer
from admittance.runtime.process.settings import Settings
from admittance.runtime.tasks import cancel_and_wait
from admittance.workload.stored import StoredWorkload, WorkloadStatus
from admittance.workload.stored import decode as decode_workload
from admittance.workload.stored import encode as encode_workload
from admittance.workload_controller.endpoints.reading_endpoints import reading_endpoints
from support.processes.fork_server import ForkedProcess
from support.processes.service_process import OWN_USER
from support.servers import LIMIT

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NAMESPACE = "team"
OWN_RULES = JobRules(run_as={"*": unix_user(str(os.geteuid()))})
CHECKPOINTS = "trap 'sleep 0.3; echo saved; exit 0' TERM; echo on; while :; do sleep 0.02; done"
"""A job that takes a moment to save its state when it is told to end, and then exits 0."""


async def until(truth: Callable[[], Any], what: str, limit: float = LIMIT) -> Any:
    """Waits for truth, which may be a coroutine function."""
    deadline = time.monotonic() + limit
    while True:
        value = truth()
        if isinstance(value, Awaitable):
            value = await value
        if value:
            return value
        assert time.monotonic() < deadline, f"not in time: {what}"
        await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def running_testbed(tmp: Path) -> AsyncIterator[RunnerTestbed]:
    """A real server with the endpoints through which a runner gets its consumers."""
    server = EmbeddedServer(tmp / "nats")
    bus = await Bus.connect(await server.start(), name="test")
    try:
        await streams.ensure(bus)
        testbed = RunnerTestbed(server, bus, tmp)
        await testbed.start_endpoints()
        yield testbed
    finally:
        await bus.close()
        await server.stop()


class RunnerTestbed:
    """The bus, and the workload-controller's side of it."""

    def __init__(self, server: EmbeddedServer, bus: Bus, tmp: Path) -> None:
        self.server = server
        self.bus = bus
        self.tmp = tmp

    async def start_endpoints(self) -> None:
        """Starts the workload-controller's endpoints, which answer until `endpoints` is stopped."""
        name = "workload-controller"
        self.endpoints = await micro.serve(self.bus.nc, name, "test", reading_endpoints(self.bus))

    async def kill_server(self) -> None:
        os.kill(self.server.pid, signal.SIGKILL)
        await until(lambda: not self.server.alive(), "the server's end")
        self.server.leave()

    async def start_server(self) -> None:
        await self.server.start()
        await self.bus.connected()

    async def put(self, name: str, revision: int, *true: str, **status: Any) -> int:
        """The workload with these conditions True; its new revision."""
        stored = StoredWorkload(
            api_version="kueue.x-k8s.io/v1beta2",
            kind="Workload",
            metadata=ObjectMeta(name=name, namespace=NAMESPACE, uid=f"uid-{name}"),
            status=WorkloadStatus(
                conditions=tuple(
                    Condition(type=each, status="True", last_transition_time=NOON) for each in true
                ),
                **status,
            ),
        )
        key = workload_key(NAMESPACE, name)
        return await self.bus.publish(put_message(key, encode_workload(stored), expected=revision))

    async def admitted(self, name: str, placement: Placement = ()) -> int:
        """Writes an admitted workload, without saying so."""
        entry = await get(self.bus, workload_key(NAMESPACE, name))
        before = entry.revision if entry else 0
        return await self.put(name, before, "QuotaReserved", "Admitted", placement=placement)

    async def say_admitted(
        self,
        name: str,
        revision: int,
        script: str,
        *,
        count: int = 1,
        completions: int = 0,
        grace: int = 1,
        containers: list[dict[str, Any]] | None = None,
        submitted_by: str = "",
        restart: str = "Never",
        placement: Placement = (),
        annotations: dict[str, str] | None = None,
    ) -> None:
        container = {"name": "c", "command": ["/bin/sh", "-c", script]}
        template = {
            "metadata": {"annotations": annotations or {}},
            "spec": {
                "containers": containers or [container],
                "terminationGracePeriodSeconds": grace,
                "restartPolicy": restart,
            },
        }
        pod_set = PodSetToRun(
            name="main",
            count=count,
            completions=completions,
            template=msgspec.Raw(msgspec.json.encode(template)),
            parts=placement,
        )
        await self.publish(
            Admitted(
                namespace=NAMESPACE,
                name=name,
                uid=f"uid-{name}",
                revision=revision,
                pod_sets=(pod_set,),
                submitted_by=submitted_by,
            )
        )

    async def admit(self, name: str, script: str, **wants: Any) -> int:
        revision = await self.admitted(name, wants.get("placement", ()))
        await self.say_admitted(name, revision, script, **wants)
        return revision

    async def evict(self, name: str, admitted: int, *, silently: bool = False) -> int:
        entry = await get(self.bus, workload_key(NAMESPACE, name))
        assert entry is not None
        placement = decode_workload(entry.value or b"").status.placement
        revision = await self.put(
            name,
            admitted,
            "QuotaReserved",
            "Admitted",
            "Evicted",
            admitted_revision=admitted,
            placement=placement,
        )
        if not silently:
            await self.say_evicted(name, revision)
        return revision

    async def say_evicted(self, name: str, revision: int) -> None:
        await self.publish(
            Evicted(namespace=NAMESPACE, name=name, uid=f"uid-{name}", revision=revision)
        )

    async def publish(self, fact: Fact) -> int:
        return await self.bus.publish(Outgoing(subject_of(fact), encode(fact)))

    async def said(self, what: str, name: str) -> Any:
        """The last fact of this kind about the workload; None: no such fact."""
        subject = f"admit.workload.{what}.{token(NAMESPACE)}.{token(name)}"
        try:
            answer = await self.bus.api(f"STREAM.MSG.GET.{STREAM}", {"last_by_subj": subject})
        except BusRefused:
            return None
        return decode(subject, base64.b64decode(answer["message"]["data"]))

    async def wait_for_fact(self, what: str, name: str, limit: float = LIMIT) -> Any:
        return await until(lambda: self.said(what, name), f"{what} of {name}", limit)

    async def all_said(self, what: str, name: str) -> list[Any]:
        """All facts of this kind about the workload, in their order."""
        subject = f"admit.workload.{what}.{token(NAMESPACE)}.{token(name)}"
        page, _ = await read_in_order(self.bus, [subject], limit=100, bytes_max=1 << 20)
        return [decode(message.subject, message.data) for message in page]

    async def count(self, what: str) -> int:
        subject = f"admit.workload.{what}.>"
        info = await self.bus.api(f"STREAM.INFO.{STREAM}", {"subjects_filter": subject})
        return sum((info["state"].get("subjects") or {}).values())

    def runner(self, folder: str = "a", **wants: Any) -> Runner:
        return Runner(self, self.tmp / folder, **wants)


class Runner:
    """A runner in this process, on a connection of its own."""

    def __init__(
        self,
        testbed: RunnerTestbed,
        folder: Path,
        *,
        claim_ttl: float = 60.0,
        executor: str = "local",
        detach_jobs: bool = False,
        rules: JobRules = OWN_RULES,
        user: str = "",
        given: GivenMachine = NOTHING_GIVEN,
    ) -> None:
        self.given = given
        self.rules = rules
        self.user = user
        self.testbed = testbed
        self.folder = folder
        self.executor = executor
        self.claim_ttl = claim_ttl
        self.detach_jobs = detach_jobs
        self.stop = asyncio.Event()
        self.bus: Bus | None = None
        self.task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Runner:
        self.bus = await Bus.connect(self.testbed.server.url, name="runner")
        self.bus.nc.user = self.user
        ready = asyncio.Event()
        settings = Settings(
            service="runner",
            instance=self.folder.name,
            url=self.testbed.server.url,
            data_dir=self.folder,
        )
        self.task = asyncio.create_task(
            run(
                self.bus,
                settings,
                executor=self.executor,
                claim_ttl=self.claim_ttl,
                stop=self.stop,
                detach_jobs=self.detach_jobs,
                ready=ready,
                rules=self.rules,
                given=self.given,
            )
        )
        waiting = asyncio.create_task(ready.wait())
        await asyncio.wait([self.task, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self.task.done():
            await self.bus.close()
            self.task.result()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop.set()
        assert self.task is not None
        assert self.bus is not None
        try:
            await self.task
        finally:
            await self.bus.close()

    async def abandon(self) -> None:
        """Ends as by a kill: without stopping anything."""
        assert self.task is not None
        assert self.bus is not None
        await cancel_and_wait(self.task)
        await self.bus.close()


class RunnerProcess:
    """A runner in a process of its own, to be killed."""

    def __init__(self, testbed: RunnerTestbed, folder: Path, claim_ttl: float = 60.0) -> None:
        self.env = {
            **os.environ,
            "ADMIT_NATS_URL": testbed.server.url,
            "ADMIT_DATA_DIR": str(folder),
            "ADMIT_CLAIM_SECONDS": str(claim_ttl),
            "ADMIT_RUN_AS": OWN_USER,
            "ADMIT_CGROUP": "none",  # a killed runner would leave a group behind
        }
        self.process: ForkedProcess | None = None

    async def __aenter__(self) -> RunnerProcess:
        log = Path(f"{self.env['ADMIT_DATA_DIR']}.log")
        self.process = ForkedProcess(["admittance.runner"], self.env, out=log)
        return self

    async def kill(self) -> None:
        assert self.process is not None
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGKILL)
        await self.process.wait()

    async def __aexit__(self, *_: object) -> None:
        await self.kill()
