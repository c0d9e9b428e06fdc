"""The providers of capacity in containers, each with the profile of its name: capacity is asked for
and there before a job starts, and a job that loses it is stopped. Behind them stand this machine's
engine, an EC2 and an API server of the tests, which listen at loopback only.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import containers
import pytest
from containers import ROOT, Deployment, docker
from relay import PORT, relayed

from integration.provisioning.backends.fake_kubernetes import Kubernetes
from support.programs.ec2_server import Ec2Server
from support.servers import until

pytestmark = pytest.mark.deploy

PROFILES = ("pool", "aws", "kubernetes", "docker")
SAMPLES = ROOT / "deploy" / "samples"
WORKERS = "label=admittance.dev/provisioning-class=docker.admittance.dev"
OWNER = 65533
"""The user that the kubeconfig belongs to; no other may read it."""


@pytest.fixture(scope="module")
def ec2(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ec2Server]:
    server = Ec2Server(tmp_path_factory.mktemp("ec2")).start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Kubernetes]:
    """A cluster that provisions everything that it is asked for."""
    server = Kubernetes()

    def provision(made: dict[str, Any]) -> None:
        server.condition(made["metadata"]["name"], "Provisioned", "there is room")

    server.on_create = provision
    yield server
    server.close()


@pytest.fixture(scope="module")
def deployment(
    base: str, ec2: Ec2Server, cluster: Kubernetes, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    """compose.yaml with the profiles of all providers at once, as their pages say."""
    folder = tmp_path_factory.mktemp("compose")
    kubeconfig = cluster.kubeconfig(folder, f"http://kubernetes:{PORT}")
    kubeconfig.chmod(0o600)
    if os.getuid() == 0:
        os.chown(kubeconfig, OWNER, OWNER)
    engine = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").removeprefix("unix://")
    if not Path(engine).is_socket():
        pytest.skip(f"the engine has no socket on this machine: {engine}")
    keys = ("AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    more = {
        **{name: ec2.env[name] for name in keys},
        "AWS_ENDPOINT_URL": f"http://ec2:{PORT}",
        "ADMIT_AWS_POLL_SECONDS": "0.5",
        "ADMIT_KUBE_CONFIG": str(kubeconfig),
        "ADMIT_KUBE_USER": str(kubeconfig.stat().st_uid),
        "ADMIT_DOCKER_SOCKET": engine,
        "ADMIT_DOCKER_GROUP": str(Path(engine).stat().st_gid),
        "ADMIT_DOCKER_IMAGE": base,
    }
    with (
        containers.deployed(base, folder, PROFILES, more) as deployment,
        relayed(deployment, base, "ec2", ec2.port),
        relayed(deployment, base, "kubernetes", cluster.port),
    ):
        for name in ("aws", "kubernetes", "docker"):
            deployment.admit("apply", "-f", str(SAMPLES / "providers" / name / "manifests.yaml"))
        yield deployment


def runs(deployment: Deployment, name: str) -> None:
    deployment.admit("wait", "workload", name, "--for", "Running", "--timeout", "60")


def stops(deployment: Deployment, name: str) -> str:
    """Waits for the rejection, and returns the description of the workload."""
    deployment.admit("wait", "workload", name, "--for", "Rejected", "--timeout", "60")
    return deployment.admit("describe", "workload", name)


@pytest.mark.parametrize("profile", PROFILES)
def test_a_provider_is_not_root_and_writes_nowhere(deployment: Deployment, profile: str) -> None:
    name = deployment.container(f"provider-{profile}")
    status = docker("exec", name, "cat", "/proc/1/status")
    assert "Uid:\t" in status
    assert "Uid:\t0" not in status
    output = docker(
        "inspect", "--format", "{{.HostConfig.ReadonlyRootfs}} {{.HostConfig.CapDrop}}", name
    )
    assert output.strip() == "true [ALL]"


@pytest.mark.parametrize("profile", PROFILES)
async def test_a_running_provider_is_healthy(deployment: Deployment, profile: str) -> None:
    await until(lambda: ill(deployment, f"provider-{profile}") == "")


def ill(deployment: Deployment, service: str) -> str:
    """The output of the health check in its container."""
    check = containers.services(service.removeprefix("provider-"))[service]["healthcheck"]["test"]
    done = subprocess.run(
        ["docker", "exec", deployment.container(service), *check[1:]],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stderr.strip()


async def test_a_pool_books_its_machines_and_their_loss_stops_the_job(
    deployment: Deployment, tmp_path: Path
) -> None:
    story = SAMPLES / "provisioning"
    admit = deployment.admit
    # The sample's first jobs end after seconds; here they hold the machines until they are stopped.
    held = re.sub(r'sleep, "\d+"', 'sleep, "3600"', (story / "story.yaml").read_text())
    (tmp_path / "story.yaml").write_text(held)
    admit("apply", "-f", str(story / "machines.yaml"), "-f", str(tmp_path / "story.yaml"))
    for name in ("other-on-reservation", "other-on-spot"):
        runs(deployment, name)
    admit("apply", "-f", str(story / "burst.yaml"))
    await until(lambda: "capacity failed" in admit("events", "--workload", "burst"))
    admit("stop", "workload", "other-on-spot")
    runs(deployment, "burst")
    output = admit("events", "--workload", "burst")
    assert (
        output.index("capacity failed") < output.index("capacity there") < output.index("admitted")
    )
    admit("apply", "-f", str(story / "gone" / "machines.yaml"))
    assert "machines of pool spot-rack were taken away" in stops(deployment, "burst")


def test_a_job_with_docker_workers_stops_when_a_worker_is_removed(deployment: Deployment) -> None:
    deployment.admit("submit", "-q", "docker", "--name", "worked", "--", "sleep", "600")
    runs(deployment, "worked")
    [worker] = docker("ps", "--filter", WORKERS, "--format", "{{.Names}}").splitlines()
    docker("rm", "--force", worker)
    assert worker in stops(deployment, "worked")


async def test_a_job_with_an_ec2_reservation_stops_when_it_expires(
    deployment: Deployment, ec2: Ec2Server
) -> None:
    admit = deployment.admit
    many = ("--cpu", "3", "--count", "2")
    admit("submit", "-q", "ec2", "--name", "trained", *many, "--", "sleep", "600")
    runs(deployment, "trained")
    [reservation] = ec2.alive()
    assert reservation["total"] == 2
    ec2.becomes(reservation["id"], state="expired")
    assert reservation["id"] in stops(deployment, "trained")
    admit("submit", "-q", "ec2", "--name", "again", *many, "--", "sleep", "600")
    runs(deployment, "again")
    admit("delete", "workload", "again")
    await until(lambda: not ec2.alive())


async def test_keys_that_ec2_refuses_make_the_container_unhealthy_with_a_reason(
    deployment: Deployment, ec2: Ec2Server
) -> None:
    await until(lambda: ill(deployment, "provider-aws") == "")
    ec2.refuse("DescribeCapacityReservations", "AuthFailure", status=401)
    try:
        # Where nothing is booked EC2 is looked at less often.
        deployment.admit(
            *("submit", "-q", "ec2", "--name", "waits", "--cpu", "3", "--count", "2"),
            *("--", "sleep", "600"),
        )
        await until(lambda: "AuthFailure" in ill(deployment, "provider-aws"))
    finally:
        ec2.allow()
    runs(deployment, "waits")
    deployment.admit("delete", "workload", "waits")
    await until(lambda: ill(deployment, "provider-aws") == "")


def test_a_job_on_kubernetes_capacity_stops_when_it_is_revoked(
    deployment: Deployment, cluster: Kubernetes
) -> None:
    deployment.admit(
        *("submit", "-q", "kubernetes", "--name", "clustered", "--image", "busybox"),
        *("--", "sleep", "600"),
    )
    runs(deployment, "clustered")
    [request] = cluster.all()
    cluster.condition(request["metadata"]["name"], "CapacityRevoked", "the node is gone")
    assert "the node is gone" in stops(deployment, "clustered")
