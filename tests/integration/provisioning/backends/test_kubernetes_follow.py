"""Objects are watched and created in a cluster over real HTTP, also when connections fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from admittance.events.provisioning import ProvisioningRequested
from admittance.events.shapes import PodSetToProvision
from admittance.provider_kubernetes.cluster import Cluster, connect
from admittance.provider_kubernetes.object_maker import ClusterRights, ObjectMaker
from admittance.provider_kubernetes.object_watch import ObjectWatch
from admittance.provider_kubernetes.objects import ObjectIdentity, selector
from admittance.provider_kubernetes.settings import KubeSettings
from admittance.providers import Failed, Request
from admittance.providers.health import InactiveReasons
from integration.provisioning.backends.fake_kubernetes import BOOKMARK_SECONDS, Kubernetes
from support.servers import until


@pytest.fixture
async def cluster(kubernetes: Kubernetes, tmp_path: Path) -> AsyncIterator[Cluster]:
    cluster = connect(KubeSettings(kubeconfig=str(kubernetes.kubeconfig(tmp_path))))
    yield cluster
    await cluster.close()


class Following:
    """A running watch, and its calls."""

    def __init__(self, cluster: Cluster) -> None:
        self.listings = 0
        self.changes: list[str] = []
        self.healths: list[str] = []
        self.follower = ObjectWatch(
            cluster,
            None,
            selector("ours"),
            on_change=self.changes.append,
            on_listed=self._on_listed,
            on_health=self.healths.append,
            away_seconds=0.3,
        )

    def _on_listed(self) -> None:
        self.listings += 1


@pytest.fixture
async def following(cluster: Cluster) -> AsyncIterator[Following]:
    follower = Following(cluster)
    task = asyncio.create_task(follower.follower.run())
    yield follower
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def a_maker(cluster: Cluster, installation: str = "ours") -> ObjectMaker:
    return ObjectMaker(cluster, installation, ClusterRights(cluster, InactiveReasons(())))


def asked(number: int = 1, installation: str = "ours") -> ObjectIdentity:
    return ObjectIdentity(
        id=f"u/c/1/{number}",
        provisioning_class="class",
        installation=installation,
        namespace="prod",
        workload="train",
    )


def a_request(number: int = 1, **more: Any) -> Request:
    template = Raw(b'{"spec":{"containers":[{"name":"c","image":"busybox"}]}}')
    fact = ProvisioningRequested(
        namespace="ns",
        name="train",
        uid="u",
        id=f"u/c/1/{number}",
        provisioning_class="class",
        check="c",
        cycle=1,
        attempt=number,
        pod_sets=(PodSetToProvision(name="main", count=1, template=template),),
        **more,
    )
    return Request(fact)


async def test_a_listing_of_many_pages_has_only_our_objects(
    kubernetes: Kubernetes, cluster: Cluster
) -> None:
    for number in range(1, 6):
        await a_maker(cluster).make(asked(number), a_request(number))
    await a_maker(cluster, "theirs").make(asked(9, "theirs"), a_request(9))

    follower = Following(cluster)
    task = asyncio.create_task(follower.follower.run())
    await until(lambda: follower.listings == 1)
    task.cancel()

    assert set(follower.follower.seen) == {f"u/c/1/{number}" for number in range(1, 6)}


async def test_bookmarks_avoid_a_new_listing_after_a_quiet_watch(
    kubernetes: Kubernetes, cluster: Cluster, following: Following
) -> None:
    await until(lambda: following.listings == 1)
    await a_maker(cluster, "theirs").make(asked(9, "theirs"), a_request(9))
    await asyncio.sleep(4 * BOOKMARK_SECONDS)
    kubernetes.compact()
    kubernetes.end_watches()

    await a_maker(cluster).make(asked(), a_request())
    await until(lambda: "u/c/1/1" in following.follower.seen)

    assert following.listings == 1


async def test_an_expired_version_is_listed_again_with_deletions(
    kubernetes: Kubernetes, cluster: Cluster, following: Following
) -> None:
    for number in (1, 2):
        await a_maker(cluster).make(asked(number), a_request(number))
    await until(lambda: len(following.follower.seen) == 2)
    kubernetes.go_away()
    kubernetes.delete_by_hand(asked(1).name)
    kubernetes.forget()
    kubernetes.come_back()

    await until(lambda: set(following.follower.seen) == {"u/c/1/2"})

    assert following.listings == 2
    assert following.changes.count("u/c/1/1") >= 2


async def test_a_long_silence_of_the_server_is_reported_and_its_end(
    kubernetes: Kubernetes, following: Following
) -> None:
    await until(lambda: following.listings == 1)
    kubernetes.go_away()
    await until(lambda: following.healths[-1] != "")
    kubernetes.come_back()
    await until(lambda: following.healths[-1] == "")


async def test_a_missing_right_is_reported_at_once(
    kubernetes: Kubernetes, cluster: Cluster
) -> None:
    kubernetes.fail(403, 1, method="GET", reason="Forbidden", message="may not list")
    follower = Following(cluster)
    task = asyncio.create_task(follower.follower.run())
    await until(lambda: bool(follower.healths))
    task.cancel()

    assert "may not list" in follower.healths[0]


async def test_a_creation_completes_although_its_caller_was_cancelled(
    kubernetes: Kubernetes, cluster: Cluster
) -> None:
    """Otherwise the object could be made after the deletion of all others."""
    kubernetes.slow_seconds = 0.3
    maker = a_maker(cluster)
    making = asyncio.create_task(maker.make(asked(), a_request()))
    await asyncio.sleep(0.1)
    making.cancel()
    await asyncio.wait([making])

    await maker.delete("u/c/1/1", "prod")
    await asyncio.sleep(0.4)

    assert not kubernetes.all()
    assert not kubernetes.templates()


async def test_making_an_object_twice_makes_it_once(
    kubernetes: Kubernetes, cluster: Cluster
) -> None:
    maker = a_maker(cluster)
    first = await maker.make(asked(), a_request())
    again = await maker.make(asked(), a_request())

    assert not isinstance(first, Failed)
    assert not isinstance(again, Failed)
    assert first.uid == again.uid
    assert (len(kubernetes.all()), len(kubernetes.templates())) == (1, 1)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        pytest.param({"parameters": {"a": "x" * 256}}, "spec.parameters[a]", id="long parameters"),
        pytest.param(
            {"parameters": {f"k{i}": "v" for i in range(101)}}, "Too many", id="many of them"
        ),
    ],
)
async def test_a_violation_of_the_schema_fails_permanently(
    kubernetes: Kubernetes, cluster: Cluster, more: dict[str, Any], words: str
) -> None:
    answer = await a_maker(cluster).make(asked(), a_request(**more))

    assert isinstance(answer, Failed)
    assert not answer.retryable
    assert words in answer.message


async def test_a_missing_namespace_fails_permanently(
    kubernetes: Kubernetes, cluster: Cluster
) -> None:
    kubernetes.namespaces = {"other"}

    answer = await a_maker(cluster).make(asked(), a_request())

    assert answer == Failed('namespaces "prod" not found', retryable=False)


FULL = 'podtemplates "w" is forbidden: exceeded quota: batch, requested: count/podtemplates=1'
GOES = "unable to create new content in namespace prod because it is being terminated"
HOOK = 'admission webhook "size.example.com" denied the request: no more than 8 pods'


@pytest.mark.parametrize(
    ("message", "retryable"),
    [
        pytest.param(FULL, True, id="a quota that others have used up"),
        pytest.param(GOES, True, id="a namespace that is on its way out"),
        pytest.param(HOOK, False, id="what a webhook does not want"),
    ],
)
async def test_a_temporary_refusal_may_be_retried(
    kubernetes: Kubernetes, cluster: Cluster, message: str, retryable: bool
) -> None:
    kubernetes.fail(403, reason="Forbidden", message=message)

    answer = await a_maker(cluster).make(asked(), a_request())

    assert answer == Failed(message, retryable=retryable)


async def test_only_the_objects_of_that_request_are_deleted(
    kubernetes: Kubernetes, cluster: Cluster
) -> None:
    maker = a_maker(cluster)
    for number in (1, 2):
        await maker.make(asked(number), a_request(number))

    await maker.delete("u/c/1/1", "prod")
    await maker.delete("u/c/1/1", "prod")

    assert [manifest["metadata"]["name"] for manifest in kubernetes.all()] == [asked(2).name]
    assert len(kubernetes.templates()) == 1
