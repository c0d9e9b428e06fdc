"""The provider for Kubernetes by itself, against an API server that speaks its REST: what it makes,
follows and leaves, what it does about rights that it lacks, and how often it asks."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from admittance.events.provisioning import ProvisioningFailed
from admittance.events.shapes import PodSetToProvision
from admittance.provider_kubernetes.cluster import connect
from admittance.provider_kubernetes.objects import digest
from admittance.provider_kubernetes.service import KubernetesReconciler
from admittance.provider_kubernetes.settings import KubeSettings
from admittance.runtime.bus.bus import Bus
from admittance.runtime.process.settings import Settings
from integration.provisioning.backends.fake_kubernetes import Kubernetes
from integration.provisioning.capacity_requester import CLASS, CapacityRequester
from support.cluster import Cluster
from support.servers import TestServer, until, within

pytestmark = pytest.mark.bus

ONE = "u/c/1/1"
POSTED = ("POST", "provisioningrequests")
TEMPLATE = msgspec.Raw(b'{"spec":{"containers":[{"name":"c","image":"busybox"}]}}')
PODS = (PodSetToProvision(name="main", names=("main",), count=1, template=TEMPLATE),)


class Running:
    """A reconciler in this process, which can be restarted."""

    def __init__(self, bus: Bus, kubernetes: Kubernetes, folder: Path) -> None:
        self._bus = bus
        self._kube = KubeSettings(
            kubeconfig=str(kubernetes.kubeconfig(folder)),
            classes=(CLASS,),
            namespaces={"ns": "prod"},
            sweep_seconds=0.3,
            away_seconds=0.3,
        )

    @asynccontextmanager
    async def __call__(self, instance: str = "a") -> AsyncIterator[KubernetesReconciler]:
        cluster = connect(self._kube)
        settings = Settings(service="provider-kubernetes", instance=instance, url="")
        reconciler = KubernetesReconciler(self._bus, settings, self._kube, cluster, "ours")
        stop = asyncio.Event()
        task = asyncio.create_task(reconciler.run(stop))
        await until(lambda: reconciler.ready)
        try:
            yield reconciler
        finally:
            stop.set()
            await within(task)
            await cluster.close()


@pytest.fixture
def running(
    bus: Bus, kubernetes: Kubernetes, requester: CapacityRequester, tmp_path: Path
) -> Running:
    return Running(bus, kubernetes, tmp_path)


@pytest.fixture
async def reconciler(running: Running) -> AsyncIterator[KubernetesReconciler]:
    async with running() as reconciler:
        yield reconciler


async def asks(requester: CapacityRequester, *ids: str, namespace: str = "ns") -> None:
    for request_id in ids:
        await requester.asks(request_id, pod_sets=PODS, namespace=namespace)


def provision(kubernetes: Kubernetes) -> None:
    """Makes every new request Provisioned at once, as an autoscaler does."""

    def at_once(made: dict[str, Any]) -> None:
        kubernetes.condition(made["metadata"]["name"], "Provisioned", "here")

    kubernetes.on_create = at_once


def said(requester: CapacityRequester, word: str) -> set[str]:
    return {status.id for status in requester.said if type(status).__name__ == word}


def names(kubernetes: Kubernetes) -> list[str]:
    return sorted(manifest["metadata"]["name"] for manifest in kubernetes.all())


async def made(kubernetes: Kubernetes, count: int = 1) -> list[str]:
    """Waits for ``count`` objects; returns their names."""
    await until(lambda: len(kubernetes.all()) >= count)
    return names(kubernetes)


async def until_nothing_is_left(kubernetes: Kubernetes) -> None:
    await until(lambda: not kubernetes.all() and not kubernetes.templates())


# What is made, and what becomes of it. --------------------------------------------------------


async def test_a_revocation_during_a_restart_is_reported_afterwards(
    kubernetes: Kubernetes, running: Running, requester: CapacityRequester
) -> None:
    provision(kubernetes)
    async with running():
        await asks(requester, ONE)
        await until(lambda: said(requester, "Provisioned") == {ONE})
    (name,) = names(kubernetes)
    kubernetes.condition(name, "CapacityRevoked", "spot was taken back")

    async with running():
        await until(lambda: said(requester, "CapacityRevoked") == {ONE})


async def test_a_kill_before_the_answer_makes_no_second_object(
    kubernetes: Kubernetes, requester: CapacityRequester, nats_server: TestServer, tmp_path: Path
) -> None:
    env = {
        "ADMIT_KUBE_CONFIG": str(kubernetes.kubeconfig(tmp_path)),
        "ADMIT_KUBE_CLASSES": CLASS,
        "ADMIT_KUBE_SWEEP_SECONDS": "0.5",
    }
    cluster = Cluster(nats_server, tmp_path)
    first = await cluster.start("provider-kubernetes", **env)
    # Made, and never told: it is killed while it asks again.
    kubernetes.fail(503, 1000, after=True)
    await asks(requester, ONE)
    (name,) = await made(kubernetes)
    await first.kill()
    kubernetes.injected.clear()

    await cluster.start("provider-kubernetes", **env)
    await asks(requester, ONE)
    kubernetes.condition(name, "Provisioned")
    await until(lambda: said(requester, "Provisioned") == {ONE})
    assert names(kubernetes) == [name]
    await until(lambda: "ownerReferences" in kubernetes.templates()[0]["metadata"])
    await requester.takes_back(ONE)
    await until_nothing_is_left(kubernetes)
    await cluster.stop()


async def test_requests_cancelled_without_a_provider_leave_no_objects(
    kubernetes: Kubernetes, running: Running, requester: CapacityRequester
) -> None:
    async with running():
        await asks(requester, ONE, "v/c/1/1")
        first, _ = await made(kubernetes, 2)
        await until(
            lambda: all(
                "ownerReferences" in template["metadata"] for template in kubernetes.templates()
            )
        )
    # Of one, only the template was made yet.
    with kubernetes.lock:
        for template in kubernetes.templates():
            template["metadata"].pop("ownerReferences", None)
    kubernetes.delete_by_hand(first)
    await requester.takes_back(ONE)
    await requester.takes_back("v/c/1/1")

    async with running():
        await until_nothing_is_left(kubernetes)


async def test_only_our_orphans_are_swept(
    kubernetes: Kubernetes,
    running: Running,
    requester: CapacityRequester,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with running():
        await asks(requester, ONE)
        await made(kubernetes)
        (manifest,) = kubernetes.all()
        ours = {**manifest["metadata"]["labels"], "admittance.dev/request": digest("u/c/9/9")}
        others = {**ours, "admittance.dev/installation": "another"}
        about = {"namespace": "prod", "annotations": {"admittance.dev/request": "u/c/9/9"}}
        for name, labels in (("forgotten", ours), ("others", others)):
            metadata = {**about, "name": name, "labels": labels}
            kubernetes.put("provisioningrequests", {**manifest, "metadata": metadata})
        await until(lambda: "forgotten" not in names(kubernetes))
        assert "others" in names(kubernetes)

    # A person has to know whether that installation is still at work.
    output = ""
    async with running():
        while "objects_of_others" not in output:
            await asyncio.sleep(0.02)
            output += capsys.readouterr().out
    assert "{'another': 1}" in output


async def test_a_request_deleted_by_hand_is_made_again_until_it_is_provisioned(
    kubernetes: Kubernetes, reconciler: KubernetesReconciler, requester: CapacityRequester
) -> None:
    """E9: afterwards it is not, and the job keeps running."""
    await asks(requester, ONE)
    (name,) = await made(kubernetes)
    first = kubernetes.all()[0]["metadata"]["uid"]
    kubernetes.delete_by_hand(name)
    await until(
        lambda: [manifest["metadata"]["uid"] != first for manifest in kubernetes.all()] == [True]
    )
    kubernetes.condition(name, "Provisioned")
    await until(lambda: said(requester, "Provisioned") == {ONE})

    kubernetes.delete_by_hand(name)
    await asks(requester, "v/c/1/1")

    await made(kubernetes)
    await asyncio.sleep(0.4)  # a sweep
    assert name not in names(kubernetes)
    assert not said(requester, "CapacityRevoked")


async def test_a_permanent_refusal_fails_permanently_with_its_message(
    kubernetes: Kubernetes, reconciler: KubernetesReconciler, requester: CapacityRequester
) -> None:
    kubernetes.fail(403, reason="Forbidden", message="a webhook does not want that")
    await asks(requester, ONE)
    await until(lambda: said(requester, "ProvisioningFailed") == {ONE})

    failed = requester.said[-1]
    assert isinstance(failed, ProvisioningFailed)
    assert (failed.message, failed.retryable) == ("a webhook does not want that", False)
    await requester.takes_back(ONE)
    await until_nothing_is_left(kubernetes)


async def test_a_busy_server_is_called_again_after_its_delay(
    kubernetes: Kubernetes, reconciler: KubernetesReconciler, requester: CapacityRequester
) -> None:
    provision(kubernetes)
    kubernetes.fail(429, headers={"Retry-After": "1"}, reason="TooManyRequests")
    kubernetes.fail(500)
    await asks(requester, ONE)
    await until(lambda: said(requester, "Provisioned") == {ONE})

    posted = [code for method, kind, code in kubernetes.calls if (method, kind) == POSTED]
    assert posted == [429, 500, 201]


async def test_an_object_with_another_owner_fails_the_attempt(
    kubernetes: Kubernetes, running: Running, requester: CapacityRequester
) -> None:
    async with running():
        await asks(requester, ONE)
        (name,) = await made(kubernetes)
    kubernetes.delete_by_hand(name)
    theirs = {"apiVersion": "autoscaling.x-k8s.io/v1", "kind": "ProvisioningRequest"}
    pod_sets = [{"podTemplateRef": {"name": "t"}, "count": 1}]
    spec = {"provisioningClassName": "class", "podSets": pod_sets}
    metadata = {"name": name, "namespace": "prod"}
    kubernetes.put("provisioningrequests", {**theirs, "metadata": metadata, "spec": spec})

    async with running():
        await until(lambda: said(requester, "ProvisioningFailed") == {ONE})
        failed = requester.said[-1]
        assert isinstance(failed, ProvisioningFailed)
        assert failed.retryable
        await requester.takes_back(ONE)
        await asks(requester, "u/c/2/2")
        await made(kubernetes, 2)
    assert name in names(kubernetes)


async def test_ended_watches_and_expired_versions_lose_no_change(
    kubernetes: Kubernetes, reconciler: KubernetesReconciler, requester: CapacityRequester
) -> None:
    ids = [f"{uid}/c/1/1" for uid in "uvw"]
    await asks(requester, *ids)
    await made(kubernetes, 3)
    by_id = {
        manifest["metadata"]["annotations"]["admittance.dev/request"]: manifest["metadata"]["name"]
        for manifest in kubernetes.all()
    }

    kubernetes.end_watches()
    kubernetes.condition(by_id[ids[0]], "Provisioned")
    await until(lambda: said(requester, "Provisioned") == set(ids[:1]))
    kubernetes.condition(by_id[ids[1]], "Provisioned")
    kubernetes.forget()
    await until(lambda: said(requester, "Provisioned") == set(ids[:2]))
    kubernetes.condition(by_id[ids[2]], "Provisioned")
    await until(lambda: said(requester, "Provisioned") == set(ids))


async def test_two_instances_make_one_object_and_answer_once(
    kubernetes: Kubernetes, running: Running, requester: CapacityRequester
) -> None:
    ids = {f"{uid}/c/1/1" for uid in "uvw"}
    async with running("a"), running("b"):
        await asks(requester, *ids)
        for name in await made(kubernetes, 3):
            kubernetes.condition(name, "Provisioned")
        await until(lambda: said(requester, "Provisioned") == ids)
        await asyncio.sleep(0.4)  # a sweep
    assert requester.words().count("Provisioned") == 3
    assert len(names(kubernetes)) == 3


# Rights. -------------------------------------------------------------------------------------


def lose(verb: str) -> Callable[[Kubernetes], None]:
    return lambda kubernetes: kubernetes.forbidden.add((verb, "*"))


def forget_us(kubernetes: Kubernetes) -> None:
    kubernetes.token = "another"


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        pytest.param(lose("create"), "cannot create resource", id="a right to make objects"),
        pytest.param(lose("patch"), "cannot patch resource", id="a right to change them"),
        pytest.param(forget_us, "HTTP 401", id="a token that is not taken any more"),
    ],
)
async def test_a_missing_right_makes_the_class_inactive_and_requests_wait(
    kubernetes: Kubernetes,
    reconciler: KubernetesReconciler,
    requester: CapacityRequester,
    trouble: Callable[[Kubernetes], None],
    words: str,
) -> None:
    provision(kubernetes)
    trouble(kubernetes)
    await asks(requester, "u/c/1/1")
    await until(lambda: words in reconciler.trouble)

    kubernetes.forbidden.clear()
    kubernetes.token = "secret"
    await until(lambda: said(requester, "Provisioned") == {"u/c/1/1"})
    await until(lambda: not reconciler.trouble)
    assert not said(requester, "ProvisioningFailed")


async def test_a_request_that_waits_for_a_right_names_it(
    kubernetes: Kubernetes, reconciler: KubernetesReconciler, requester: CapacityRequester
) -> None:
    kubernetes.forbidden.add(("create", "*"))
    await asks(requester, "u/c/1/1")
    await until(
        lambda: any("cannot create resource" in status.message for status in requester.said)
    )


async def test_a_right_missing_in_one_namespace_stops_only_that_namespace(
    kubernetes: Kubernetes, reconciler: KubernetesReconciler, requester: CapacityRequester
) -> None:
    provision(kubernetes)
    await asks(requester, "u/c/1/1")
    await until(lambda: said(requester, "Provisioned") == {"u/c/1/1"})
    kubernetes.forbidden.add(("create", "poor"))

    await asks(requester, "v/c/1/1", namespace="poor")
    await until(
        lambda: any("cannot create resource" in status.message for status in requester.said)
    )
    assert not reconciler.trouble
    await asks(requester, "w/c/1/1")
    await until(lambda: "w/c/1/1" in said(requester, "Provisioned"))

    kubernetes.forbidden.add(("create", "prod"))
    await asks(requester, "x/c/1/1")
    await until(lambda: bool(reconciler.trouble))


async def test_a_provider_that_may_not_delete_makes_no_objects(
    kubernetes: Kubernetes, reconciler: KubernetesReconciler, requester: CapacityRequester
) -> None:
    provision(kubernetes)
    await asks(requester, "u/c/1/1")
    await until(lambda: said(requester, "Provisioned") == {"u/c/1/1"})
    kubernetes.forbidden.add(("delete", "*"))
    await requester.takes_back("u/c/1/1")
    await until(lambda: "cannot delete resource" in reconciler.trouble)

    kubernetes.forbidden.clear()
    await until(lambda: not kubernetes.all() and not reconciler.trouble)


async def test_an_object_deleted_before_the_watch_is_made_again(
    kubernetes: Kubernetes, reconciler: KubernetesReconciler, requester: CapacityRequester
) -> None:
    await asks(requester, "u/c/1/1")
    await until(lambda: len(kubernetes.all()) == 1)
    first = kubernetes.all()[0]["metadata"]
    with kubernetes.lock:
        kubernetes.delete_by_hand(first["name"])
        kubernetes._history.clear()

    await until(
        lambda: (
            [manifest["metadata"]["uid"] for manifest in kubernetes.all()]
            not in ([], [first["uid"]])
        )
    )


@pytest.mark.parametrize("count", [5, 40])
async def test_the_number_of_calls_is_that_of_the_requests(
    kubernetes: Kubernetes,
    reconciler: KubernetesReconciler,
    requester: CapacityRequester,
    count: int,
) -> None:
    """There is one watch for all objects, and each sweep lists them once."""
    kubernetes.page = count
    ids = [f"u{number}/c/1/1" for number in range(count)]
    await asks(requester, *ids)
    await until(lambda: len(kubernetes.all()) == count)
    templates = "podtemplates"
    await until(lambda: Counter(kubernetes.calls)["PATCH", templates, 200] == count)

    kubernetes.calls.clear()
    sweeps = ("GET", templates, 200)
    await until(lambda: kubernetes.calls.count(sweeps) >= 3)
    waiting = Counter((method, kind) for method, kind, _ in kubernetes.calls)
    assert set(waiting) <= {("GET", templates), ("GET", "provisioningrequests")}
    assert waiting["GET", "provisioningrequests"] <= waiting["GET", templates] + 1

    kubernetes.calls.clear()
    for manifest in kubernetes.all():
        kubernetes.condition(manifest["metadata"]["name"], "Provisioned", "here")
    await until(lambda: said(requester, "Provisioned") == set(ids))
    assert not any(method in ("POST", "PATCH", "WATCH") for method, _, _ in kubernetes.calls)
