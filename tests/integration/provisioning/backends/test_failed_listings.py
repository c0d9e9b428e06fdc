"""The whole list of workers or reservations fails, with an error that names no single object. It
ends no process: the class is inactive with the reason, which `admit doctor` has, and the list is
read again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest

from admittance.provider_aws.ec2 import Ec2, Ec2Error
from admittance.provider_aws.reservations import Reservation
from admittance.provider_aws.service import LISTINGS_MAX, AwsReconciler, AwsSettings
from admittance.provider_docker.engine import DockerSettings, Engine, EngineDenied
from admittance.provider_docker.service import DockerReconciler
from admittance.provider_docker.workers import ListedWorker
from admittance.provider_kubernetes.cluster import Cluster
from admittance.provider_kubernetes.object_watch import ObjectWatch
from admittance.runtime.bus.bus import Bus
from admittance.runtime.process.settings import Settings
from admittance.runtime.tasks import cancel_and_wait
from admittance.runtime.telemetry.findings import own_findings
from admittance.runtime.telemetry.metrics import text_of
from admittance.runtime.telemetry.object_faults import faults
from integration.provisioning.capacity_requester import CLASS
from support.servers import until

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]


class Lists:
    """A list that raises an exception, if there is one. ``asked``: how often it was read."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.asked = 0

    def read(self) -> list[Any]:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return []


class ListedEngine(Engine):
    def __init__(self, lists: Lists) -> None:
        self._lists = lists

    async def workers(self, request_id: str | None = None) -> list[ListedWorker]:
        return self._lists.read()

    def listen(self, installation: str, on_event: Callable[[], None]) -> None:
        raise OSError("no events")


class ListedEc2(Ec2):
    def __init__(self, lists: Lists) -> None:
        self._lists = lists

    def ours(self, token: str | None = None) -> list[Reservation]:
        return self._lists.read()


def of_docker(bus: Bus, lists: Lists) -> DockerReconciler:
    ours = DockerSettings(image="any", classes=(CLASS,), sweep_seconds=0.1)
    settings = Settings(service="provider-docker", instance="a", url="")
    return DockerReconciler(bus, settings, ours, ListedEngine(lists), "ours")


def of_aws(bus: Bus, lists: Lists) -> AwsReconciler:
    ours = AwsSettings(provisioning_class=CLASS, poll_seconds=0.1, sweep_seconds=0.1)
    settings = Settings(service="provider-aws", instance="a", url="")
    return AwsReconciler(bus, settings, ours, ListedEc2(lists))


@pytest.fixture(params=[of_docker, of_aws], ids=["docker", "aws"])
async def listed(
    request: pytest.FixtureRequest, bus: Bus
) -> AsyncIterator[tuple[DockerReconciler | AwsReconciler, Lists]]:
    lists = Lists()
    reconciler = request.param(bus, lists)
    task = asyncio.create_task(reconciler.run())
    await until(lambda: reconciler.ready or task.done())
    yield reconciler, lists
    assert not task.done(), "the error of a list ends no process"
    await cancel_and_wait(task)
    await reconciler.close()


def counted() -> float:
    text = b"".join(text_of([faults.counter])).decode()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return sum(float(line.split()[-1]) for line in lines)


async def test_an_unexpected_list_is_counted_logged_and_read_again(
    listed: tuple[DockerReconciler | AwsReconciler, Lists],
) -> None:
    reconciler, lists = listed
    before = counted()
    lists.error = ValueError("not a number: x")
    await until(lambda: "ValueError: not a number: x" in reconciler.trouble)
    asked = lists.asked
    await until(lambda: lists.asked >= asked + 2)
    assert counted() >= before + 2
    [finding] = [
        finding for finding in own_findings() if finding.what.startswith("faults of provider-")
    ]
    assert finding.state == "wrong"
    assert "ValueError: not a number: x" in finding.found
    lists.error = None
    await until(lambda: not reconciler.trouble)
    assert len(faults.take()) == 1


async def test_a_refused_list_makes_the_class_inactive_until_it_is_answered(
    listed: tuple[DockerReconciler | AwsReconciler, Lists],
) -> None:
    reconciler, lists = listed
    is_docker = isinstance(reconciler, DockerReconciler)
    asked = lists.asked
    lists.error = (
        EngineDenied(403, "not today") if is_docker else Ec2Error("Later", "not today", 500)
    )
    await until(lambda: "not today" in reconciler.trouble)
    assert lists.asked - asked >= (1 if is_docker else LISTINGS_MAX)
    lists.error = None
    await until(lambda: not reconciler.trouble)


async def test_an_unexpected_object_of_a_cluster_is_listed_again() -> None:
    lists, said = Lists(), []

    class ListedCluster:
        server = "https://cluster"

        async def list(self, *_: object) -> tuple[list[Any], str]:
            return lists.read(), "7"

        async def watch(self, *_: object) -> AsyncIterator[tuple[str, Any]]:
            await asyncio.Event().wait()
            yield "", {}

    watch = ObjectWatch(
        cast(Cluster, ListedCluster()), None, "", on_change=said.append, on_listed=lambda: None,
        on_health=said.append, away_seconds=0.1,
    )  # fmt: skip
    lists.error = KeyError("uid")
    task = asyncio.create_task(watch.run())
    await until(lambda: lists.asked >= 2)
    assert said[-1] == "https://cluster: KeyError: 'uid'"
    lists.error = None
    await until(lambda: said[-1] == "")
    assert [fault.about for fault in faults.take()] == ["the cluster"]
    await cancel_and_wait(task)
