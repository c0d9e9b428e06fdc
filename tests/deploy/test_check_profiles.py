"""The sample checks in containers, each with the profile of its name."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.request import Request, urlopen

import containers
import pytest
from containers import ROOT, Deployment

pytestmark = pytest.mark.deploy

PROFILES = (*(() if containers.no_prometheus() else ("budget",)), "approval", "backoff", "shell")
PROBED = "http://capacity.example.com/free"
ABSENT = "http://nats:1/free"
THERE = "http://scheduler:9464/livez"
CHECKS = ROOT / "deploy" / "samples" / "checks"


@pytest.fixture(scope="module")
def deployment(base: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """compose.yaml with the profiles of all samples that can run here, at once."""
    more = {"ADMIT_ADMIN": "0.0.0.0:9464"}
    with containers.deployed(
        base, tmp_path_factory.mktemp("compose"), PROFILES, more
    ) as deployment:
        for sample in PROFILES:
            manifests = (CHECKS / sample / "manifests.yaml").read_text()
            deployment.admit("apply", "-f", "-", text=manifests.replace(PROBED, ABSENT))
        yield deployment


def test_a_workload_that_the_bash_check_accepts_runs(deployment: Deployment) -> None:
    admit = deployment.admit
    freezer = deployment.container("freeze-check")
    # It receives only requests that are published while it listens.
    containers.eventually(lambda: containers.docker("logs", freezer), "listens at")
    containers.docker("exec", freezer, "touch", "/tmp/freeze")
    admit("submit", "-q", "freezable", "--name", "frozen", "--", "true")
    admit("wait", "workload", "frozen", "--for", "Backoff", "--timeout", "60")
    containers.docker("exec", freezer, "rm", "/tmp/freeze")
    admit("submit", "-q", "freezable", "--name", "free", "--", "true")
    admit("wait", "workload", "free", "--for", "Finished", "--timeout", "60")


def test_an_approved_workload_runs(deployment: Deployment) -> None:
    admit = deployment.admit
    admit("submit", "-q", "approved", "--name", "careful", "--", "true")
    admit("wait", "workload", "careful", "--for", "QuotaReserved", "--timeout", "60")
    admit("approve", "workload", "careful")
    admit("wait", "workload", "careful", "--for", "Finished", "--timeout", "60")


@pytest.mark.skipif(bool(containers.no_prometheus()), reason=containers.no_prometheus())
def test_a_namespace_that_spends_too_much_is_stopped(deployment: Deployment) -> None:
    admit = deployment.admit
    admit("submit", "-q", "budgeted", "--name", "spender", "--", "sleep", "600")
    admit("wait", "workload", "spender", "--for", "Running", "--timeout", "60")
    port = deployment.ports["ADMIT_SPENDING_PORT"]
    url = f"http://127.0.0.1:{port}/spend?namespace=default&amount=150"
    urlopen(Request(url, method="POST"), timeout=10).close()
    admit("wait", "workload", "spender", "--for", "Backoff", "--timeout", "60")


def test_a_workload_without_capacity_is_delayed_until_there_is_some(deployment: Deployment) -> None:
    admit = deployment.admit
    admit("submit", "-q", "probed", "--name", "patient", "--", "true")
    admit("wait", "workload", "patient", "--for", "Backoff", "--timeout", "60")
    assert "attempt 1, next in 30 s" in admit("describe", "workload", "patient")
    manifests = (CHECKS / "backoff" / "manifests.yaml").read_text()
    admit("apply", "-f", "-", text=manifests.replace(PROBED, THERE))
    admit("submit", "-q", "probed", "--name", "lucky", "--", "true")
    admit("wait", "workload", "lucky", "--for", "Finished", "--timeout", "60")
