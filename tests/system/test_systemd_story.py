"""What the units of deploy/systemd start, with the users of docs/systemd.md, runs a job."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.processes.fork_server import ForkedProcess, run_admit
from support.processes.service_process import OWN_USER
from support.requests import eventually

pytestmark = pytest.mark.bus

ROOT = Path(__file__).resolve().parents[2]
UNITS = ROOT / "deploy" / "systemd"
PROGRAMS = Path(sys.executable).parent


class Machine:
    """A folder in place of the root of a machine, and the processes of its units."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[asyncio.subprocess.Process | ForkedProcess] = []
        self.url = ""
        for name in ("etc/creds", "var/nats", "state", "credentials"):
            (folder / name).mkdir(parents=True)

    def inside(self, text: str) -> str:
        """The text with paths of this folder."""
        text = text.replace("/opt/admittance/bin", str(PROGRAMS))
        text = text.replace("/etc/admittance", str(self._folder / "etc"))
        text = text.replace("/var/lib/admittance", str(self._folder / "var"))
        return text.replace("runuser -u admittance --", "")

    async def add_users(self) -> None:
        """Runs the commands of the page that make users."""
        page = (ROOT / "docs" / "systemd.md").read_text()
        (script,) = re.findall(r"^```sh\n(cd .*?)^```$", page, re.M | re.S)
        # No server runs yet; another one of this machine may have the default port.
        env = {**os.environ, "ADMIT_NATS_URL": "nats://127.0.0.1:1"}
        process = await asyncio.create_subprocess_exec("bash", "-ec", self.inside(script), env=env)
        assert await process.wait() == 0

    async def start_server(self) -> None:
        """Starts nats-server on a free port, as its unit does."""
        text = self.inside((UNITS / "nats.conf").read_text())
        text = text.replace(":4222", ":-1").replace(":8222", ":-1")
        config = self._folder / "etc" / "nats.conf"
        config.write_text(f'{text}\nports_file_dir: "{self._folder}"\n')
        await self._start("admittance-nats.service", "")

        async def listening() -> bool:
            for path in self._folder.glob("*.ports"):
                if match := re.search(r"nats://[0-9.:]+", path.read_text()):
                    self.url = match[0]
            return bool(self.url)

        await eventually(listening)

    async def start(self, service: str) -> None:
        """Starts a service as systemd would: from its own unit, else from the template."""
        own = f"admittance@{service}.service"
        unit = own if (UNITS / own).exists() else "admittance@.service"
        await self._start(unit, service)

    async def _start(self, unit: str, service: str) -> None:
        text = self.inside((UNITS / unit).read_text())
        credentials = self._folder / "credentials" / service
        credentials.mkdir(exist_ok=True)
        for letter, meaning in (("i", service), ("S", self._folder / "state"), ("d", credentials)):
            text = text.replace(f"%{letter}", str(meaning))
        for name, file in re.findall(r"^LoadCredential=(.+?):(.+)$", text, re.M):
            shutil.copy(file, credentials / name)
        variables = dict(re.findall(r"^Environment=(.+?)=(.+)$", text, re.M))
        if service:
            variables |= {"ADMIT_NATS_URL": self.url, "ADMIT_LEASE_SECONDS": "1"}
        if "ADMIT_RUN_AS" in variables:
            variables["ADMIT_RUN_AS"] = OWN_USER
        (command,) = re.findall(r"^ExecStart=(.+)$", text, re.M)
        program, *words = command.split()
        assert os.access(program, os.X_OK), command
        env = {"PATH": "/usr/bin:/bin", "HOME": "/", **variables}
        log = self._folder / f"{unit}{service}.log"
        if program == str(PROGRAMS / "admit"):
            self._processes.append(ForkedProcess(["admit", *words], env, out=log))
            return
        with log.open("wb") as output:
            server = await asyncio.create_subprocess_exec(program, *words, env=env, stderr=output)
        self._processes.append(server)

    async def stop(self) -> None:
        for process in reversed(self._processes):
            if process.returncode is None:
                process.terminate()
            await process.wait()


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    await machine.stop()


async def test_units_with_the_users_of_the_page_run_a_job(machine: Machine, tmp_path: Path) -> None:
    await machine.add_users()
    await machine.start_server()
    target = (UNITS / "admittance.target").read_text()
    for service in re.findall(r"^Wants=admittance@(.+)\.service$", target, re.M):
        await machine.start(service)
    admin = ["--nats", machine.url, "--creds", str(tmp_path / "etc/creds/admin.creds")]
    queues = ROOT / "deploy" / "samples" / "queues.yaml"

    async def applied() -> bool:
        return (await asyncio.to_thread(run_admit, *admin, "apply", "-f", str(queues))).status == 0

    await eventually(applied)
    job = ("submit", "-q", "research", "--name", "hello", "--wait", "--", "true")
    answer = await asyncio.to_thread(run_admit, *admin, *job)
    assert answer.status == 0, answer
    assert "workload.kueue.x-k8s.io/hello finished" in answer.out
