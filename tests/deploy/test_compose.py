"""The containers of compose.yaml, built and started for real, carry a job to its end."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import bases
import pytest
from testcontainers.compose import DockerCompose

pytestmark = pytest.mark.deploy

ROOT = Path(__file__).parents[2]
ADMIT = Path(sys.executable).parent / "admit"
BASE = "admittance-test-base"
HEALTHY_SECONDS = 90.0

JOB = """
apiVersion: batch/v1
kind: Job
metadata:
  name: greet
  namespace: default
  labels: {kueue.x-k8s.io/queue-name: research}
spec:
  parallelism: 2
  completions: 2
  template:
    spec:
      restartPolicy: Never
      containers:
        - name: main
          image: busybox
          command: [sh, -c, "echo hello from $(id -u 2>/dev/null || echo a container)"]
          resources: {requests: {cpu: "1", memory: 64Mi}}
"""


class Standalone(DockerCompose):
    """For Debian's docker-compose, a program of its own and no plugin of docker."""

    @cached_property
    def compose_command_property(self) -> list[str]:
        return ["docker-compose", *super().compose_command_property[2:]]


def engine() -> str:
    """Why no container engine can be used; "" when one answers."""
    if shutil.which("docker") is None:
        return "there is no docker command"
    told = subprocess.run(["docker", "version"], capture_output=True, text=True, check=False)
    if told.returncode:
        return f"no container engine answers: {told.stderr.strip().splitlines()[-1]}"
    if compose_command() is None:
        return "neither `docker compose` nor docker-compose is there"
    return ""


def compose_command() -> str | None:
    """The command of docker compose: the plugin, or Debian's program of its own."""
    plugin = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)
    return "docker compose" if plugin.returncode == 0 else shutil.which("docker-compose")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An image with Python, nats-server and the lock's packages, made from this machine."""
    reason = engine()
    if reason:
        pytest.skip(reason)
    given = os.environ.get("ADMIT_BASE_IMAGE")
    if given:
        return given
    base = f"{BASE}:{bases.fingerprint()}"
    if docker("image", "inspect", "--format", "{{.Id}}", base).startswith("sha256:"):
        return base
    folder = tmp_path_factory.mktemp("base")
    (folder / "wheels").mkdir()
    archive = folder / "base.tar"
    bases.pack(archive, bases.wheels(folder / "wheels"))
    settings = "ENV PATH=/usr/local/bin:/usr/bin:/bin PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels"
    subprocess.run(
        ["docker", "import", "-c", settings, str(archive), base], check=True, capture_output=True
    )
    archive.unlink()
    return base


@pytest.fixture(scope="module")
def project() -> str:
    """A name that keeps these containers and volumes apart from any others."""
    return f"admittance-test-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="module")
def deployment(base: str, project: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """compose.yaml as it stands, up and healthy on a free port; the URL of its server."""
    port = free_port()
    settings = tmp_path_factory.mktemp("compose") / "env"
    settings.write_text(
        f"ADMIT_PORT={port}\nADMIT_BASE_IMAGE={base}\n"
        f"ADMIT_NATS_BASE_IMAGE={os.environ.get('ADMIT_NATS_BASE_IMAGE', base)}\n"
        f"COMPOSE_PROJECT_NAME={project}\n"
    )
    kind = DockerCompose if compose_command() == "docker compose" else Standalone
    compose = kind(context=str(ROOT), env_file=str(settings), build=True, wait=False)
    try:
        compose.start()
        await_health(project)
        yield f"nats://127.0.0.1:{port}"
    finally:
        compose.stop(down=True)


def await_health(project: str) -> None:
    """Waits until every container says that it is healthy; fails with their last words."""
    mine = f"label=com.docker.compose.project={project}"
    deadline = time.monotonic() + HEALTHY_SECONDS
    while True:
        told = docker("ps", "--all", "--filter", mine, "--format", "{{.Names}} {{.Status}}")
        containers = told.splitlines()
        if len(containers) == 4 and all("(healthy)" in line for line in containers):
            return
        if time.monotonic() > deadline:
            names = docker("ps", "--all", "--filter", mine, "--format", "{{.Names}}").split()
            words = [f"{name}: {docker('logs', '--tail', '5', name)}" for name in names]
            pytest.fail("\n".join([told, *words]))
        threading.Event().wait(0.5)


def docker(*arguments: str) -> str:
    """What the engine answers, with what it says on standard error."""
    told = subprocess.run(
        ["docker", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return told.stdout


def admit(url: str, *arguments: str, text: str | None = None) -> str:
    """What `admit` answers; fails with its error."""
    told = subprocess.run(
        [str(ADMIT), "--nats", url, *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert told.returncode == 0, f"admit {' '.join(arguments)}: {told.stderr}{told.stdout}"
    return told.stdout


def test_no_process_of_a_service_is_root(deployment: str, project: str) -> None:
    mine = f"label=com.docker.compose.project={project}"
    names = docker("ps", "--filter", mine, "--format", "{{.Names}}").split()
    assert deployment
    for name in names:
        assert "Uid:\t65532\t65532\t65532" in docker("exec", name, "cat", "/proc/1/status"), name


def test_a_job_runs_from_submission_to_end_in_containers(deployment: str, tmp_path: Path) -> None:
    admit(deployment, "apply", "-f", str(ROOT / "deploy" / "samples" / "queues.yaml"))
    job = tmp_path / "job.yaml"
    job.write_text(JOB)
    admit(deployment, "submit", "-f", str(job))
    admit(deployment, "wait", "workload", "greet", "--for", "Finished", "--timeout", "60")
    found = json.loads(admit(deployment, "get", "workload", "greet", "-o", "json"))
    assert found["status"]["admission"]["clusterQueue"] == "research"
    assert admit(deployment, "logs", "workload", "greet").count("hello from") == 2
