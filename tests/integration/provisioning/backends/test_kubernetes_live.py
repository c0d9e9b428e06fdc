"""The provider for Kubernetes beside all services, against an API server that speaks its REST.
test_kubernetes_reconciler tests the provider alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from admittance.events.codec import encode
from admittance.events.facts import Finished
from admittance.events.subjects import subject_of
from admittance.provisioning.steps import CLASS, CONSUME
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.workload.phase import Phase
from integration.provisioning.backends.fake_kubernetes import Kubernetes, Manifest
from support.builders import a_manifest
from support.capacity import CHECK, SERVICES, a_config, row, until_phase
from support.cluster import Cluster
from support.processes.service_process import ServiceProcess
from support.requests import apply, eventually, queues, submit
from support.servers import TestServer, until

pytestmark = pytest.mark.bus


class KubernetesTestbed:
    """All services, a cluster, and the provider between them."""

    def __init__(self, cluster: Cluster, bus: Bus, kubernetes: Kubernetes, folder: Path) -> None:
        self.cluster = cluster
        self.bus = bus
        self.kubernetes = kubernetes
        self.env = {
            "ADMIT_KUBE_CONFIG": str(kubernetes.kubeconfig(folder)),
            "ADMIT_KUBE_CLASSES": "class",
            "ADMIT_KUBE_NAMESPACES": "ns=prod",
            "ADMIT_KUBE_SWEEP_SECONDS": "0.5",
            "ADMIT_KUBE_AWAY_SECONDS": "0.5",
            "ADMIT_BEAT_SECONDS": "0.5",
        }

    async def provider(self, **env: str) -> ServiceProcess:
        return await self.cluster.start("provider-kubernetes", **{**self.env, **env})

    async def begin(self, *names: str, config: dict[str, Any] | None = None) -> None:
        cq = queues("cq", cpu=40, admissionChecks=["capacity"])
        await apply(self.bus, CHECK, config or a_config(), *cq)
        await submit(self.bus, [a_job(name) for name in names or ("w",)])

    async def request(self, number: int = 1) -> Manifest:
        """Waits for as many objects; returns the newest."""
        await until(lambda: len(self.kubernetes.all()) >= number)
        return self.kubernetes.all()[-1]

    async def finish(self, name: str = "w") -> None:
        fact = Finished(namespace="ns", name=name)
        await self.bus.publish(Outgoing(subject_of(fact), encode(fact)))

    async def until_nothing_is_left(self) -> None:
        await until(lambda: not self.kubernetes.all() and not self.kubernetes.templates())


@pytest.fixture
async def testbed(
    bus: Bus, nats_server: TestServer, tmp_path: Path, kubernetes: Kubernetes
) -> AsyncIterator[KubernetesTestbed]:
    folder = tmp_path / "services"
    folder.mkdir()
    cluster = Cluster(nats_server, folder)
    for service in SERVICES:
        await cluster.start(service)
    yield KubernetesTestbed(cluster, bus, kubernetes, folder)
    await cluster.stop()


def a_job(name: str) -> dict[str, Any]:
    container = {"name": "c", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    pod_sets = [{"name": "main", "count": 2, "template": template}]
    return a_manifest(name, queue="lq-cq", podSets=pod_sets)


async def test_a_job_starts_when_provisioned_and_leaves_no_objects(
    testbed: KubernetesTestbed,
) -> None:
    await testbed.provider()
    await testbed.begin(config=a_config(parameters={"maxRunDurationSeconds": "60"}))

    made = await testbed.request()
    (template,) = testbed.kubernetes.templates()
    name = made["metadata"]["name"]
    assert made["metadata"]["namespace"] == "prod"
    assert made["metadata"]["labels"]["kueue.x-k8s.io/managed"] == "true"
    assert made["spec"] == {
        "provisioningClassName": "class",
        "parameters": {"maxRunDurationSeconds": "60"},
        "podSets": [{"podTemplateRef": {"name": f"ppt-{name}-main"}, "count": 2}],
    }
    assert template["template"]["spec"]["restartPolicy"] == "Never"
    await until(lambda: "ownerReferences" in testbed.kubernetes.templates()[0]["metadata"])
    (owner,) = testbed.kubernetes.templates()[0]["metadata"]["ownerReferences"]
    assert owner["uid"] == made["metadata"]["uid"]

    testbed.kubernetes.condition(name, "Accepted")
    testbed.kubernetes.condition(name, "Provisioned", "in 4 minutes", status="False")

    async def told() -> bool:
        return (await row(testbed.bus)).message == "in 4 minutes"

    await eventually(told)
    testbed.kubernetes.condition(name, "Provisioned", "here", details={"group": "g7"})

    await until_phase(testbed.bus, Phase.ADMITTED)
    shown = await row(testbed.bus)
    assert shown.message == "here"
    assert shown.pod_set_updates[0]["annotations"] == {CONSUME: name, CLASS: "class"}
    await testbed.finish()
    await testbed.until_nothing_is_left()


async def test_a_job_stops_when_its_capacity_is_revoked(testbed: KubernetesTestbed) -> None:
    await testbed.provider()
    await testbed.begin()
    name = (await testbed.request())["metadata"]["name"]
    testbed.kubernetes.condition(name, "Provisioned")
    await until_phase(testbed.bus, Phase.ADMITTED)

    testbed.kubernetes.condition(name, "CapacityRevoked", "spot was taken back")

    await until_phase(testbed.bus, Phase.REJECTED)
    await testbed.until_nothing_is_left()


async def test_the_check_is_inactive_while_the_cluster_is_unreachable(
    testbed: KubernetesTestbed,
) -> None:
    provider = await testbed.provider()
    await testbed.begin()
    name = (await testbed.request())["metadata"]["name"]

    testbed.kubernetes.go_away()
    await until(lambda: '"cluster_unavailable"' in provider.log)
    controller = testbed.cluster.processes[0]
    await until(lambda: "ProviderDown" in controller.log)
    testbed.kubernetes.come_back()
    testbed.kubernetes.condition(name, "Provisioned")

    await until_phase(testbed.bus, Phase.ADMITTED)
