"""The containers of compose.yaml, built and started for real, carry a job to its end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import containers
import pytest
from containers import ROOT, Deployment

pytestmark = pytest.mark.deploy

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


@pytest.fixture(scope="module")
def deployment(base: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """compose.yaml without a profile."""
    with containers.deployed(base, tmp_path_factory.mktemp("compose")) as found:
        found.await_health()
        yield found


def test_no_process_of_a_service_is_root(deployment: Deployment) -> None:
    names = deployment.containers()
    assert len(names) == len(containers.services())
    for name in names:
        told = containers.docker("exec", name, "cat", "/proc/1/status")
        assert "Uid:\t65532\t65532\t65532" in told, name


def test_a_job_runs_from_submission_to_end_in_containers(
    deployment: Deployment, tmp_path: Path
) -> None:
    admit = deployment.admit
    admit("apply", "-f", str(ROOT / "deploy" / "samples" / "queues.yaml"))
    job = tmp_path / "job.yaml"
    job.write_text(JOB)
    admit("submit", "-f", str(job))
    admit("wait", "workload", "greet", "--for", "Finished", "--timeout", "60")
    found = json.loads(admit("get", "workload", "greet", "-o", "json"))
    assert found["status"]["admission"]["clusterQueue"] == "research"
    assert admit("logs", "workload", "greet").count("hello from") == 2


def test_every_container_ends_in_order_when_it_is_stopped(deployment: Deployment) -> None:
    # nats first: the others cannot say goodbye any more.
    for name in sorted(deployment.containers(), key=lambda name: "nats" not in name):
        containers.docker("stop", name)
        status = containers.docker("inspect", "--format", "{{.State.ExitCode}}", name).strip()
        # 137: killed, since its time was over.
        assert status == "0", name
