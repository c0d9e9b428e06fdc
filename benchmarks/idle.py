"""What an idle service costs: ``python -m benchmarks.idle [SECONDS]``.

Starts an open nats-server, and each service and a sample check as a process of its own, with
nothing to do. The providers of EC2, Kubernetes and a container engine find none, and are not ready.
Prints for each process the time from its start to ready, and over SECONDS (30) the resident memory
at the end and the share of one core.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import urllib.request
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Final, NamedTuple

import psutil

from admittance.bench.system import Child
from admittance.runtime import clock
from admittance.runtime.errors import SetupError
from admittance.services import SERVICES
from benchmarks.harness.program import Option, run_program
from benchmarks.harness.server_cluster import ServerCluster, free_ports

SETTLE_SECONDS: Final = 5.0
READY_SECONDS: Final = 60.0
NOTHING: Final = "127.0.0.1:1"
AWAY: Final = {
    "provider-aws": {
        "AWS_ENDPOINT_URL": f"http://{NOTHING}",
        "AWS_DEFAULT_REGION": "eu-central-1",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
    },
    "provider-kubernetes": {"ADMIT_KUBE_CONFIG": "{folder}/kubeconfig"},
    "provider-docker": {"DOCKER_HOST": f"tcp://{NOTHING}", "ADMIT_DOCKER_IMAGE": "busybox"},
}
"""Services that need more than a NATS server, with variables that name a closed port."""
KUBECONFIG: Final = f"""
apiVersion: v1
kind: Config
current-context: none
contexts: [{{name: none, context: {{cluster: none, user: none}}}}]
clusters: [{{name: none, cluster: {{server: "http://{NOTHING}"}}}}]
users: [{{name: none, user: {{}}}}]
"""
CHECK: Final = """
from admittance.checks import AdmissionCheckController, Ready
controller = AdmissionCheckController("example.com/idle")
controller.check(lambda request: Ready())
controller.run()
"""


class Running(NamedTuple):
    """A process. ``ready_seconds``: from its start to ready; 0 if it does not become ready."""

    name: str
    process: psutil.Process
    ready_seconds: float = 0.0

    @property
    def cpu_seconds(self) -> float:
        """The CPU time of the process until now."""
        times = self.process.cpu_times()
        return float(times.user + times.system)


def _is_ready(address: str) -> bool:
    """Whether ``/readyz`` at the address answers 200."""
    with suppress(OSError), urllib.request.urlopen(f"http://{address}/readyz", timeout=10):
        return True
    return False


class Processes:
    """Starts processes with Python, each with a log in the folder, and ends them with the stack."""

    def __init__(self, stack: AsyncExitStack, folder: Path, url: str) -> None:
        self._stack = stack
        self._folder = folder
        self._url = url

    async def start(
        self, name: str, *words: str, env: Mapping[str, str] | None = None, ready: bool = True
    ) -> Running:
        """Starts a process and waits until it is ready, unless ``ready`` is False. Raises
        SetupError."""
        address = f"127.0.0.1:{free_ports(1)[0]}"
        settings = {
            "ADMIT_NATS_URL": self._url,
            "ADMIT_RUN_AS": f"*={os.geteuid()}",
            "ADMIT_ADMIN": address,
            "ADMIT_INSTANCE": name.replace(" ", "-"),
            "ADMIT_DATA_DIR": str(self._folder / name),
        }
        log = self._folder / f"{name}.log"
        began = clock.monotonic()
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, *words),
                env={**os.environ, **settings, **(env or {})},
                stdout=asyncio.subprocess.DEVNULL,
                stderr=output,
            )
        child = Child(process, log)
        self._stack.push_async_callback(child.stop)
        while ready and not await asyncio.to_thread(_is_ready, address):
            if not child.running or clock.monotonic() - began > READY_SECONDS:
                raise SetupError(f"{name} is not ready: {child.last_log_line()}")
            await asyncio.sleep(0.01)
        seconds = clock.monotonic() - began if ready else 0.0
        return Running(name, psutil.Process(process.pid), seconds)


async def measured(*, seconds: float) -> list[str]:
    """A table in Markdown. Raises SetupError for a process that ends."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="admit-idle-")))
        (folder / "kubeconfig").write_text(KUBECONFIG)
        server = ServerCluster(folder / "servers", 1)
        stack.push_async_callback(server.stop)
        processes = Processes(stack, folder, await server.start())
        running = []
        for name, service in SERVICES.items():
            env = {key: text.format(folder=folder) for key, text in AWAY.get(name, {}).items()}
            ready = name not in AWAY
            running.append(await processes.start(name, "-m", service.package, env=env, ready=ready))
        running.append(await processes.start("a check", "-c", CHECK))
        await asyncio.sleep(SETTLE_SECONDS)
        running.append(Running("nats-server", psutil.Process(server.pids[0])))
        before = [each.cpu_seconds for each in running]
        began = clock.monotonic()
        await asyncio.sleep(seconds)
        lasted = clock.monotonic() - began
        lines = ["| process | resident | of a core | start to ready |", "| --- | --- | --- | --- |"]
        for each, then in zip(running, before, strict=True):
            if each.process.status() == psutil.STATUS_ZOMBIE:
                raise SetupError(f"{each.name} has ended")
            resident = each.process.memory_info().rss / 2**20
            share = (each.cpu_seconds - then) / lasted
            ready_after = f"{each.ready_seconds:.1f} s" if each.ready_seconds else ""
            lines.append(f"| {each.name} | {resident:.0f} MiB | {share:.2%} | {ready_after} |")
        return lines


if __name__ == "__main__":
    run_program(measured, __doc__, Option("seconds", 30.0, "how long it is measured", above=0))
