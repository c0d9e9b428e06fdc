"""The containers of compose.yaml, built and started for real, are locked and carry jobs to their
end."""

from __future__ import annotations

import json
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import containers
import pytest
import yaml
from containers import ROOT, Deployment, docker

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


QUEUES = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: rack}
---
apiVersion: admittance.dev/v1
kind: MachinePool
metadata: {name: rack}
spec:
  provisioningClassName: rack.example.com
  machines: [{name: one, count: 1, bootSeconds: 0, resources: {cpu: 4, memory: 8Gi}}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ProvisioningRequestConfig
metadata: {name: rack}
spec: {provisioningClassName: rack.example.com, managedResources: [cpu]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: machines}
spec:
  controllerName: kueue.x-k8s.io/provisioning-request
  parameters: {apiGroup: kueue.x-k8s.io, kind: ProvisioningRequestConfig, name: rack}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: person}
spec: {controllerName: admittance.dev/approval}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: racked}
spec:
  namespaceSelector: {}
  admissionChecks: [machines, person]
  resourceGroups:
    - coveredResources: [cpu, memory]
      flavors:
        - name: rack
          resources: [{name: cpu, nominalQuota: 4}, {name: memory, nominalQuota: 8Gi}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {namespace: team-a, name: racked}
spec: {clusterQueue: racked}
"""
"""A queue for jobs that need a machine of a provider and the approval of a person."""
PEOPLE = {
    "ada": ("user", "--namespace", "team-a"),
    "bob": ("user", "--namespace", "team-b"),
    "eve": ("approver", "--namespace", "team-a"),
    "vic": ("viewer",),
}
PROFILES = ("approval", "pool")
AUTH = "deploy/auth"
"""The folder of users, in the container of `auth`."""


@pytest.fixture(scope="module")
def deployment(base: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """compose.yaml with a check and a provider, and people with roles."""
    with containers.deployed(base, tmp_path_factory.mktemp("compose"), PROFILES) as deployment:
        for name, role in PEOPLE.items():
            deployment.compose("run", "--rm", "auth", "add", role[0], name, *role[1:],
                          "-o", f"{AUTH}/{name}.creds")  # fmt: skip
        deployment.await_health()
        yield deployment


def test_no_service_but_the_runner_is_root(deployment: Deployment) -> None:
    names = deployment.containers()
    assert len(names) == len(containers.services(*PROFILES))
    for name in names:
        status = docker("exec", name, "cat", "/proc/1/status")
        uid = 0 if "runner" in name else 65532
        assert f"Uid:\t{uid}\t{uid}\t{uid}" in status, name


def test_containers_write_nowhere_and_have_limits_and_short_logs(deployment: Deployment) -> None:
    shown = (
        "{{.HostConfig.ReadonlyRootfs}} {{.HostConfig.CapDrop}} {{.HostConfig.LogConfig.Config}} "
        "{{.HostConfig.PidsLimit}} {{.HostConfig.Memory}}"
    )
    for name in deployment.containers():
        shown_value = docker("inspect", "--format", shown, name).strip()
        pids, memory = ("32768", "0") if "runner" in name else ("512", str(2 << 30))
        assert shown_value == f"true [ALL] map[max-file:3 max-size:10m] {pids} {memory}", name


@pytest.mark.parametrize("image", ["admittance", "admittance-nats"])
def test_image_has_labels(base: str, image: str) -> None:
    labels = json.loads(docker("inspect", "--format", "{{json .Config.Labels}}", image))
    name = "org.opencontainers.image."
    assert labels[f"{name}title"] == image
    assert {f"{name}{label}" for label in ("description", "licenses", "revision")} <= labels.keys()
    assert labels[f"{name}version"] == version("admittance")
    assert labels[f"{name}base.name"] == base


def test_the_image_adds_less_than_80_megabytes_to_its_base(base: str) -> None:
    """python:3.13-slim has about 120 MB, and the whole image should have at most 200 MB."""
    size, below = (
        int(docker("inspect", "--format", "{{.Size}}", image)) for image in ("admittance", base)
    )
    assert size - below < 80_000_000


def test_server_demands_credentials(deployment: Deployment) -> None:
    done = subprocess.run(
        [str(containers.ADMIT), "--nats", deployment.url, "get", "clusterqueues"],
        env={"XDG_CONFIG_HOME": str(deployment.auth / "none"), "PATH": "/usr/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "demands signed credentials" in done.stderr


def test_each_container_has_its_own_credentials_only(deployment: Deployment) -> None:
    for service in ("scheduler", "runner", "provider-pool", "approval-check"):
        container = deployment.container(service)
        text = docker("exec", container, "cat", "/run/secrets/credentials")
        assert f"# user: {service}\n" in text
        assert docker("exec", container, "sh", "-c", "echo /run/secrets/*").split() == [
            "/run/secrets/credentials"
        ]


def test_a_job_runs_from_submission_to_end_in_containers(
    deployment: Deployment, tmp_path: Path
) -> None:
    admit = deployment.admit
    admit("apply", "-f", str(ROOT / "deploy" / "samples" / "queues.yaml"))
    job = tmp_path / "job.yaml"
    job.write_text(JOB)
    admit("submit", "-f", str(job))
    admit("wait", "workload", "greet", "--for", "Finished", "--timeout", "60")
    workload = json.loads(admit("get", "workload", "greet", "-o", "json"))
    assert workload["status"]["admission"]["clusterQueue"] == "research"
    assert admit("logs", "workload", "greet").count("hello from") == 2


def test_a_job_cannot_read_what_the_runner_has_and_jobs_of_namespaces_differ(
    deployment: Deployment, tmp_path: Path
) -> None:
    admit = deployment.admit
    admit("apply", "-f", str(ROOT / "deploy" / "samples" / "queues.yaml"))
    look = "id -u; cat /run/secrets/credentials /proc/1/environ /data/runner/id; kill 1; true"
    uids: list[int] = []
    for namespace in ("default", "team-b"):
        job = yaml.safe_load(JOB)
        job["metadata"] |= {"name": "spy", "namespace": namespace}
        job["spec"] |= {"parallelism": 1, "completions": 1}
        job["spec"]["template"]["spec"]["containers"][0]["command"] = ["sh", "-c", look]
        queue = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "LocalQueue",
            "metadata": {"namespace": namespace, "name": "research"},
            "spec": {"clusterQueue": "research"},
        }
        path = tmp_path / f"{namespace}.yaml"
        path.write_text(yaml.safe_dump(queue))
        admit("apply", "-f", str(path))
        path.write_text(yaml.safe_dump(job))
        admit("submit", "-f", str(path))
        admit("-n", namespace, "wait", "workload", "spy", "--for", "Finished", "--timeout", "60")
        output = admit("-n", namespace, "logs", "workload", "spy")
        assert "SEED" not in output
        assert "ADMIT_" not in output
        assert output.count("Permission denied") == 3, output
        assert "Operation not permitted" in output, output
        uids.append(int(next(word for word in output.split() if word.isdecimal())))
    assert len({*uids, 0, 65532}) == 4
    assert min(uids) >= 1_000_000_000


def test_every_role_does_its_part_of_a_job(deployment: Deployment) -> None:
    def does(name: str, *words: str) -> str:
        done = deployment.run("-n", "team-a", *words, user=name)
        assert done.returncode == 0, f"{name} {words}: {done.stderr}{done.stdout}"
        return done.stdout

    deployment.admit("apply", "-f", "-", text=QUEUES)
    does("ada", "submit", "-q", "racked", "--name", "wanted", "--", "sh", "-c", "echo for $USER")
    # The provider books a machine; the check asks for a person.
    does("ada", "wait", "workload", "wanted", "--for", "QuotaReserved", "--timeout", "60")
    seen = containers.eventually(
        lambda: does("vic", "describe", "workload", "wanted"), "waits for a person"
    )
    assert "by ada" in seen
    refused = deployment.run("-n", "team-a", "approve", "workload", "wanted", user="ada")
    assert (refused.returncode, "may not" in refused.stderr) == (1, True), refused.stderr
    does("eve", "approve", "workload", "wanted")
    does("ada", "wait", "workload", "wanted", "--for", "Succeeded", "--timeout", "60")
    assert "for" in does("ada", "logs", "workload", "wanted")
    events = does("vic", "events", "--workload", "wanted")
    for word in ("by ada", "capacity there", "by eve", "admitted", "started"):
        assert word in events, events


def test_services_lack_no_permission(deployment: Deployment) -> None:
    for name in deployment.containers():
        log = docker("logs", name).lower()
        assert "permission" not in log, f"{name}: {log[-3000:]}"


def test_revoked_user_is_refused_at_once(deployment: Deployment) -> None:
    deployment.compose("run", "--rm", "auth", "add", "viewer", "gus", "-o", f"{AUTH}/gus.creds")
    assert deployment.run("get", "workloads", user="gus").returncode == 0
    deployment.compose("run", "--rm", "auth", "revoke", "gus")
    done = deployment.run("get", "workloads", user="gus")
    assert done.returncode == 1
    assert "the server does not know them, or they were revoked" in done.stderr


def test_user_is_refused_when_its_time_is_over(deployment: Deployment) -> None:
    guest = ("add", "viewer", "guest", "--expires", "3s", "-o", f"{AUTH}/guest.creds")
    deployment.compose("run", "--rm", "auth", *guest)
    log = deployment.container("expiry")
    containers.eventually(lambda: docker("logs", log), "users_expired")
    assert deployment.run("get", "workloads", user="guest").returncode == 1


def test_commands_run_in_a_container_of_their_own(deployment: Deployment) -> None:
    sample = "deploy/samples/queues.yaml"
    assert "clusterqueue" in deployment.compose("run", "--rm", "admit", "apply", "-f", sample)
    assert "research" in deployment.compose("run", "--rm", "admit", "get", "clusterqueues")
    submit = ("submit", "-q", "research", "--name", "hello", "--wait", "--", "echo", "hello")
    assert "hello finished" in deployment.compose("run", "--rm", "admit", *submit)
    deployment.compose("run", "--rm", "admit", "doctor")  # with status 0: all is well


def test_the_page_signs_in_with_the_token_of_a_command(deployment: Deployment) -> None:
    said = deployment.compose("run", "--rm", "auth", "token", "ada", "--expires", "1h")
    token = said.split()[-1]
    page = f"http://127.0.0.1:{deployment.ports['ADMIT_WEB_PORT']}"
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    opener.open(f"{page}/signin", urllib.parse.urlencode({"token": token}).encode(), timeout=30)
    pending = json.load(opener.open(f"{page}/pending?format=json", timeout=30))
    assert pending["heading"] == "Pending"


def test_users_that_are_there_stay_when_they_are_made_again(deployment: Deployment) -> None:
    admin = deployment.creds().read_text()
    (deployment.auth / "containers" / "backoff-check.creds").unlink()
    deployment.compose("run", "--rm", "auth")
    assert deployment.creds().read_text() == admin
    assert (deployment.auth / "containers" / "backoff-check.creds").exists()
    assert deployment.run("get", "workloads", user="ada").returncode == 1  # names no namespace
    assert deployment.run("-n", "team-a", "get", "workloads", user="ada").returncode == 0


def test_every_container_ends_in_order_when_it_is_stopped(deployment: Deployment) -> None:
    # nats first: the others cannot say goodbye any more.
    for name in sorted(deployment.containers(), key=lambda name: "nats" not in name):
        containers.docker("stop", name)
        status = containers.docker("inspect", "--format", "{{.State.ExitCode}}", name).strip()
        # 137: killed, since its time was over.
        assert status == "0", name
