"""What the provider for Kubernetes does about rights that it lacks, and how often it asks."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from admittance.events.shapes import PodSetToProvision
from admittance.provider_kubernetes.cluster import connect
from admittance.provider_kubernetes.keeper import Keeper
from admittance.provider_kubernetes.settings import KubeSettings
from admittance.runtime.bus import Bus
from admittance.runtime.settings import Settings
from integration.provisioning.fake_kubernetes import Kubernetes
from integration.provisioning.test_providers_obtain import CLASS, Asker

from servers import until, within

pytestmark = pytest.mark.bus

TEMPLATE = msgspec.Raw(b'{"spec":{"containers":[{"name":"c","image":"busybox"}]}}')
PODS = (PodSetToProvision(name="main", names=("main",), count=1, template=TEMPLATE),)


@pytest.fixture
def kubernetes() -> Iterator[Kubernetes]:
    found = Kubernetes()
    yield found
    found.close()


@pytest.fixture
async def asker(bus: Bus) -> Asker:
    return await Asker(bus).start()


@pytest.fixture
async def keeper(bus: Bus, kubernetes: Kubernetes, tmp_path: Path) -> AsyncIterator[Keeper]:
    kube = KubeSettings(
        kubeconfig=str(kubernetes.kubeconfig(tmp_path)), classes=(CLASS,), sweep_seconds=0.3
    )
    cluster = connect(kube)
    settings = Settings(service="provider-kubernetes", instance="a", url="")
    keeper = Keeper(bus, settings, kube, cluster, "ours")
    stop = asyncio.Event()
    task = asyncio.create_task(keeper.run(stop))
    await until(lambda: keeper.ready)
    yield keeper
    stop.set()
    await within(task)
    await cluster.close()


async def asks(asker: Asker, *ids: str, namespace: str = "ns") -> None:
    for request_id in ids:
        await asker.asks(request_id, pod_sets=PODS, namespace=namespace)


def provision(kubernetes: Kubernetes) -> None:
    """The autoscaler does what it is there for."""

    def at_once(made: dict[str, Any]) -> None:
        kubernetes.condition(made["metadata"]["name"], "Provisioned", "here")

    kubernetes.on_create = at_once


def said(asker: Asker, word: str) -> set[str]:
    return {one.id for one in asker.said if type(one).__name__ == word}


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
async def test_a_right_that_is_lost_fails_nobody_and_makes_the_class_inactive(
    kubernetes: Kubernetes,
    keeper: Keeper,
    asker: Asker,
    trouble: Callable[[Kubernetes], None],
    words: str,
) -> None:
    provision(kubernetes)
    trouble(kubernetes)
    await asks(asker, "u/c/1/1")
    await until(lambda: words in keeper.trouble)

    kubernetes.forbidden.clear()
    kubernetes.token = "secret"
    await until(lambda: said(asker, "Provisioned") == {"u/c/1/1"})
    await until(lambda: not keeper.trouble)
    assert not said(asker, "ProvisioningFailed")


async def test_whoever_waits_for_a_right_is_told_which(
    kubernetes: Kubernetes, keeper: Keeper, asker: Asker
) -> None:
    kubernetes.forbidden.add(("create", "*"))
    await asks(asker, "u/c/1/1")
    await until(lambda: any("cannot create resource" in one.message for one in asker.said))


async def test_a_right_that_nobody_waits_for_any_more_is_missed_until_it_is_there(
    kubernetes: Kubernetes, keeper: Keeper, asker: Asker
) -> None:
    """Else every job of the night would find out by itself, and use up its attempts."""
    kubernetes.forbidden.add(("create", "*"))
    await asks(asker, "u/c/1/1")
    await until(lambda: bool(keeper.trouble))
    await asker.takes_back("u/c/1/1")
    reviews = ("POST", "selfsubjectaccessreviews", 201)
    await until(lambda: kubernetes.calls.count(reviews) >= 2)
    assert keeper.trouble

    kubernetes.forbidden.clear()
    await until(lambda: not keeper.trouble)


async def test_a_right_that_lacks_in_one_namespace_stops_nobody_in_others(
    kubernetes: Kubernetes, keeper: Keeper, asker: Asker
) -> None:
    provision(kubernetes)
    await asks(asker, "u/c/1/1")
    await until(lambda: said(asker, "Provisioned") == {"u/c/1/1"})
    kubernetes.forbidden.add(("create", "poor"))

    await asks(asker, "v/c/1/1", namespace="poor")
    await until(lambda: any("cannot create resource" in one.message for one in asker.said))
    assert not keeper.trouble
    await asks(asker, "w/c/1/1")
    await until(lambda: "w/c/1/1" in said(asker, "Provisioned"))

    kubernetes.forbidden.add(("create", "ns"))
    await asks(asker, "x/c/1/1")
    await until(lambda: bool(keeper.trouble))


async def test_who_may_not_delete_makes_no_more(
    kubernetes: Kubernetes, keeper: Keeper, asker: Asker
) -> None:
    provision(kubernetes)
    await asks(asker, "u/c/1/1")
    await until(lambda: said(asker, "Provisioned") == {"u/c/1/1"})
    kubernetes.forbidden.add(("delete", "*"))
    await asker.takes_back("u/c/1/1")
    await until(lambda: "cannot delete resource" in keeper.trouble)

    kubernetes.forbidden.clear()
    await until(lambda: not kubernetes.all() and not keeper.trouble)


async def test_what_went_before_a_watch_could_tell_of_it_is_made_again(
    kubernetes: Kubernetes, keeper: Keeper, asker: Asker
) -> None:
    await asks(asker, "u/c/1/1")
    await until(lambda: len(kubernetes.all()) == 1)
    first = kubernetes.all()[0]["metadata"]
    with kubernetes.lock:
        kubernetes.delete_by_hand(first["name"])
        kubernetes._history.clear()

    await until(
        lambda: [one["metadata"]["uid"] for one in kubernetes.all()] not in ([], [first["uid"]])
    )


@pytest.mark.parametrize("count", [5, 40])
async def test_calls_are_as_many_as_requests_and_no_more(
    kubernetes: Kubernetes, keeper: Keeper, asker: Asker, count: int
) -> None:
    """One watch for all of them, and each sweep lists them once, however many wait."""
    kubernetes.page = count
    ids = [f"u{number}/c/1/1" for number in range(count)]
    await asks(asker, *ids)
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
    for one in kubernetes.all():
        kubernetes.condition(one["metadata"]["name"], "Provisioned", "here")
    await until(lambda: said(asker, "Provisioned") == set(ids))
    assert not any(method in ("POST", "PATCH", "WATCH") for method, _, _ in kubernetes.calls)
