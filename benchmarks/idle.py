"""What an idle service costs: ``python -m benchmarks.idle [SECONDS]``.

Starts an open nats-server, and each service and a sample check as a process of its own, with
nothing to do. The providers of EC2, Kubernetes and a container engine find none, and are not ready.
Prints for each process the time from its start to ready, and over SECONDS (30) the resident memory
at the end and the share of one core.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import psutil

from admittance.services import SERVICES

SECONDS = 30.0
SETTLE_SECONDS = 5.0
READY_SECONDS = 60.0
NOTHING = "127.0.0.1:1"
AWAY = {
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
KUBECONFIG = f"""
apiVersion: v1
kind: Config
current-context: none
contexts: [{{name: none, context: {{cluster: none, user: none}}}}]
clusters: [{{name: none, cluster: {{server: "http://{NOTHING}"}}}}]
users: [{{name: none, user: {{}}}}]
"""
CHECK = """
from admittance.checks import AdmissionCheckController, Ready
controller = AdmissionCheckController("example.com/idle")
controller.check(lambda request: Ready())
controller.run()
"""


class Running(NamedTuple):
    """A process. ``ready_seconds``: from its start to ready; 0 if it does not become ready."""

    name: str
    process: psutil.Process
    ready_seconds: float


def a_free_port() -> int:
    """A port of loopback that no program uses now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def until_ready(address: str, process: subprocess.Popen[bytes]) -> None:
    """Waits until ``/readyz`` at the address answers 200."""
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://{address}/readyz", timeout=10):
                return
        except (OSError, urllib.error.HTTPError):
            time.sleep(0.01)
    sys.exit(f"{process.args!r} is not ready")


def start(
    stack: ExitStack,
    name: str,
    command: Sequence[str],
    env: Mapping[str, str],
    log: Path,
    *,
    ready: bool = True,
) -> Running:
    """Starts a process, waits until it is ready, unless ``ready`` is False, and ends it with the
    stack."""
    address = f"127.0.0.1:{a_free_port()}"
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, *command],
        env={**os.environ, **env, "ADMIT_ADMIN": address, "ADMIT_INSTANCE": name},
        stdout=subprocess.DEVNULL,
        stderr=stack.enter_context(log.open("wb")),
    )
    stack.callback(process.wait)
    stack.callback(process.terminate)
    if ready:
        until_ready(address, process)
    seconds = time.monotonic() - began if ready else 0.0
    return Running(name, psutil.Process(process.pid), seconds)


def cpu_seconds(process: psutil.Process) -> float:
    """The CPU time of a process until now."""
    times = process.cpu_times()
    return float(times.user + times.system)


def main() -> None:
    """Starts, waits, and prints a table in Markdown."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="admit-idle-")))
        (folder / "kubeconfig").write_text(KUBECONFIG)
        port = a_free_port()
        server = subprocess.Popen(
            [
                *(Path(sys.executable).parent / "nats-server", "-js", "-a", "127.0.0.1"),
                *("-p", str(port), "-sd", str(folder / "nats")),
            ],
            stderr=subprocess.DEVNULL,
        )
        stack.callback(server.wait)
        stack.callback(server.terminate)
        env = {"ADMIT_NATS_URL": f"nats://127.0.0.1:{port}", "ADMIT_RUN_AS": f"*={os.geteuid()}"}
        found = []
        for name in SERVICES:
            away = {key: text.format(folder=folder) for key, text in AWAY.get(name, {}).items()}
            module = f"admittance.{name.replace('-', '_')}"
            own = {**env, **away, "ADMIT_DATA_DIR": str(folder / name)}
            log = folder / f"{name}.log"
            found.append(start(stack, name, ("-m", module), own, log, ready=name not in AWAY))
        found.append(start(stack, "a check", ("-c", CHECK), env, folder / "check.log"))
        time.sleep(SETTLE_SECONDS)
        processes = [*found, Running("nats-server", psutil.Process(server.pid), 0.0)]
        before = [cpu_seconds(one.process) for one in processes]
        began = time.monotonic()
        time.sleep(seconds)
        lasted = time.monotonic() - began
        lines = ["| process | resident | of a core | start to ready |", "| --- | --- | --- | --- |"]
        for one, then in zip(processes, before, strict=True):
            if one.process.status() == psutil.STATUS_ZOMBIE:
                sys.exit(
                    f"{one.name} has ended: {(folder / one.name).with_suffix('.log').read_text()}"
                )
            resident = one.process.memory_info().rss / 2**20
            share = (cpu_seconds(one.process) - then) / lasted
            ready = f"{one.ready_seconds:.1f} s" if one.ready_seconds else ""
            lines.append(f"| {one.name} | {resident:.0f} MiB | {share:.2%} | {ready} |")
        sys.stdout.write("\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
