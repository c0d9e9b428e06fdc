"""The containers of compose.yaml, built and started for real, carry a job to its end."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import bases
import pytest
from testcontainers.compose import DockerCompose

pytestmark = pytest.mark.deploy

ROOT = Path(__file__).parents[2]
ADMIT = Path(sys.executable).parent / "admit"
BASE = "admittance-test-base"

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
    folder = tmp_path_factory.mktemp("base")
    (folder / "wheels").mkdir()
    archive = folder / "base.tar"
    bases.pack(archive, bases.wheels(folder / "wheels"))
    settings = "ENV PATH=/usr/local/bin:/usr/bin:/bin PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels"
    subprocess.run(
        ["docker", "import", "-c", settings, str(archive), BASE], check=True, capture_output=True
    )
    archive.unlink()
    return BASE


@pytest.fixture(scope="module")
def deployment(base: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """compose.yaml as it stands, up and healthy on a free port; the URL of its server."""
    port = free_port()
    project = f"admittance-test-{uuid.uuid4().hex[:8]}"
    settings = tmp_path_factory.mktemp("compose") / "env"
    settings.write_text(
        f"ADMIT_PORT={port}\nADMIT_BASE_IMAGE={base}\n"
        f"ADMIT_NATS_BASE_IMAGE={os.environ.get('ADMIT_NATS_BASE_IMAGE', base)}\n"
        f"COMPOSE_PROJECT_NAME={project}\n"
    )
    command = compose_command()
    assert command is not None
    compose = DockerCompose(
        context=str(ROOT),
        env_file=str(settings),
        build=True,
        wait=False,
        # Debian's docker-compose takes no space in its name; the plugin is two words.
        docker_command_path=None if " " in command else command,
    )
    try:
        compose.start()
        yield f"nats://127.0.0.1:{port}"
    finally:
        compose.stop(down=True)


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


def test_a_job_runs_from_submission_to_end_in_containers(deployment: str, tmp_path: Path) -> None:
    admit(deployment, "apply", "-f", str(ROOT / "deploy" / "samples" / "queues.yaml"))
    job = tmp_path / "job.yaml"
    job.write_text(JOB)
    admit(deployment, "submit", "-f", str(job))
    admit(deployment, "wait", "workload", "greet", "--for", "Finished", "--timeout", "60")
    found = json.loads(admit(deployment, "get", "workload", "greet", "-o", "json"))
    assert found["status"]["admission"]["clusterQueue"] == "research"
    assert admit(deployment, "logs", "workload", "greet").count("hello from") == 2
