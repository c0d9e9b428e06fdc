"""Jobs of a lost deployment, after its restore: with new runners, on new machines."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from admittance.cli.up.readiness import until_ready
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.services import SERVICES as EVERY_SERVICE
from admittance.workload.phase import phase
from recorded.story import NAMESPACE, manifest, queue
from recorded.story import workload as a_workload
from support.cluster import Cluster
from support.processes.fork_server import Answer, run_admit
from support.requests import apply, becomes, eventually, submit, workload
from support.servers import TestServer, within

pytestmark = pytest.mark.bus

SERVICES = ("workload-controller", "scheduler", "retry-timer")


class Deployment:
    """A server with services and a runner."""

    def __init__(self, folder: Path) -> None:
        self.server = TestServer(folder / "nats")
        self.cluster = Cluster(self.server, folder)
        self.bus: Bus

    async def start_server(self) -> None:
        self.bus = await Bus.connect(await self.server.start(), name="test")

    async def start_services(self, runner: Path) -> None:
        """``runner``: the data folder of the runner."""
        for service in SERVICES:
            await self.cluster.start(service)
        env = {"ADMIT_CLAIM_SECONDS": "4", "ADMIT_DATA_DIR": str(runner)}
        await self.cluster.start("runner", **env)
        for service in (*SERVICES, "runner"):
            await within(until_ready(self.bus, EVERY_SERVICE[service]))

    async def lose(self) -> None:
        for process in self.cluster.processes:
            await process.kill()
        await self.bus.close()
        await self.server.kill()

    async def stop(self) -> None:
        await self.cluster.stop()
        await self.bus.close()
        await self.server.stop()

    async def phase(self, name: str) -> str:
        stored = await workload(self.bus, name, NAMESPACE)
        return str(phase(stored, clock.now())) if stored is not None else "absent"

    async def until_phase(self, name: str, wanted: str) -> None:
        await becomes(lambda: self.phase(name), wanted)

    async def admit(self, *words: str) -> Answer:
        env = {"ADMIT_NATS_URL": self.server.url}
        return await asyncio.to_thread(run_admit, *words, env=env)


def a_job(name: str, script: str) -> dict[str, Any]:
    made = a_workload(name, "jobs", cpu=1)
    (container,) = made["spec"]["podSets"][0]["template"]["spec"]["containers"]
    container["command"] = ["sh", "-c", script]
    return made


def begun(runs: Path) -> list[str]:
    """The jobs that have begun, in alphabetical order."""
    return sorted(runs.read_text().split()) if runs.exists() else []


async def has_begun(runs: Path, name: str, *, times: int = 1) -> bool:
    return begun(runs).count(name) >= times


async def test_a_running_job_runs_again_and_a_finished_one_does_not(tmp_path: Path) -> None:
    runs, gate = tmp_path / "runs", tmp_path / "gate"
    old, new = Deployment(tmp_path / "old"), Deployment(tmp_path / "new")
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    await old.start_server()
    try:
        await old.start_services(tmp_path / "machine")
        flavor = manifest("ResourceFlavor", "on-demand", {})
        await apply(old.bus, flavor, *queue("jobs", {"on-demand": {"cpu": 2}}))
        long = f"echo long >> {runs}; test -e {gate} || sleep 600"
        await submit(old.bus, [a_job("short", f"echo short >> {runs}"), a_job("long", long)])
        await old.until_phase("short", "Finished")
        await old.until_phase("long", "Running")
        await submit(old.bus, [a_job("second", f"echo second >> {runs}; sleep 600")])
        await submit(old.bus, [a_job("third", "true")])
        await old.until_phase("second", "Running")
        await eventually(lambda: has_begun(runs, "second"))
        done = await old.admit("backup", str(tmp_path / "FILE"))
        assert done.status == 0, done.err
    finally:
        await old.lose()

    gate.touch()
    await new.start_server()
    try:
        done = await new.admit("restore", str(tmp_path / "FILE"))
        assert done.status == 0, done.err
        await new.start_services(tmp_path / "other-machine")
        await new.until_phase("long", "Finished")
        # `second` runs again, and `third` gets the quota of `long`.
        await new.until_phase("third", "Finished")
        await eventually(lambda: has_begun(runs, "second", times=2))
        assert begun(runs) == ["long", "long", "second", "second", "short"]
        assert await new.phase("short") == "Finished"
        checks = await new.admit("doctor")
        assert "none: all entries can be read" in checks.out
    finally:
        await new.stop()


async def test_a_runner_that_survived_runs_what_is_submitted_again(tmp_path: Path) -> None:
    """The runner has folders of runs that the restored deployment does not know."""
    runs, gate = tmp_path / "runs", tmp_path / "gate"
    old, new = Deployment(tmp_path / "old"), Deployment(tmp_path / "new")
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    machine = tmp_path / "machine"
    await old.start_server()
    try:
        await old.start_services(machine)
        flavor = manifest("ResourceFlavor", "on-demand", {})
        await apply(old.bus, flavor, *queue("jobs", {"on-demand": {"cpu": 2}}))
        waits = a_job("waits", f"until test -e {gate}; do sleep 0.1; done; echo waits >> {runs}")
        await submit(old.bus, [waits])
        await old.until_phase("waits", "Running")
        done = await old.admit("backup", str(tmp_path / "FILE"))
        assert done.status == 0, done.err
        lost = a_job("lost", f"echo lost >> {runs}")
        await submit(old.bus, [lost])
        await old.until_phase("lost", "Finished")
    finally:
        await old.lose()

    await new.start_server()
    try:
        done = await new.admit("restore", str(tmp_path / "FILE"))
        assert done.status == 0, done.err
        assert await new.phase("lost") == "absent"
        await new.start_services(machine)
        await submit(new.bus, [lost])
        await new.until_phase("lost", "Finished")
        assert runs.read_text().split() == ["lost", "lost"]
        gate.touch()
        await new.until_phase("waits", "Finished")
    finally:
        await new.stop()
