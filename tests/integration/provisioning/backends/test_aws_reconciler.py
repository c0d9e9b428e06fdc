"""EC2 capacity reservations against moto's server: obtained, refused, awaited, missing in lists,
and revoked; and kills at the worst time. These tests run the provider alone; test_aws_live runs it
with all services."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from admittance.events.provisioning import Accepted, ProvisioningFailed
from admittance.provider_aws.ec2 import Ec2
from admittance.provider_aws.service import AwsReconciler, AwsSettings
from admittance.providers.status_store import CANCELLED, StatusStore
from admittance.runtime.bus.bus import Bus
from admittance.runtime.process.settings import Settings
from admittance.runtime.tasks import cancel_and_wait
from integration.provisioning.capacity_requester import CLASS, CapacityRequester, pods
from support.cluster import Cluster
from support.processes.service_process import ServiceProcess
from support.programs.ec2_server import ZONE, Ec2Server
from support.requests import eventually, health
from support.servers import TestServer, until, within

pytestmark = pytest.mark.bus

CREATE = "CreateCapacityReservation"
DESCRIBE = "DescribeCapacityReservations"
LARGE = {"InstanceType": "m5.large", "AvailabilityZone": ZONE}
"""Two vCPUs and 8 GiB."""
ONE = "u/c/1/1"
SETTINGS = AwsSettings(
    provisioning_class=CLASS, poll_seconds=0.1, sweep_seconds=0.3, unseen_seconds=2.0
)


async def asks(requester: CapacityRequester, *ids: str, count: int = 1, **parameters: str) -> None:
    """Pods that need half a cpu each."""
    for request_id in ids or (ONE,):
        await requester.asks(
            request_id, name=request_id[0], parameters={**LARGE, **parameters}, **pods(count)
        )


def said(requester: CapacityRequester, word: str) -> set[str]:
    return {status.id for status in requester.said if type(status).__name__ == word}


async def until_provisioned(requester: CapacityRequester, *ids: str) -> None:
    await until(lambda: said(requester, "Provisioned") >= set(ids or (ONE,)))


async def so(claim: Callable[[], bool]) -> None:
    await eventually(lambda: asyncio.to_thread(claim))


class Running:
    """A reconciler in this process, which the test can end and start again. ``trouble``: the
    problems that it reports."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.reconciler: AwsReconciler | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        ec2 = await asyncio.to_thread(Ec2.connect, CLASS)
        settings = Settings(service="provider-aws", instance="a", url="")
        reconciler = self.reconciler = AwsReconciler(self._bus, settings, SETTINGS, ec2)
        task = self._task = asyncio.create_task(reconciler.run())
        await until(lambda: reconciler.ready or task.done())

    async def stop(self) -> None:
        assert self.reconciler is not None
        assert self._task is not None
        await cancel_and_wait(self._task)
        await self.reconciler.close()

    @property
    def trouble(self) -> str:
        assert self.reconciler is not None
        return self.reconciler.trouble


@pytest.fixture
async def running(
    bus: Bus, requester: CapacityRequester, ec2: Ec2Server, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Running]:
    for name, value in ec2.env.items():
        monkeypatch.setenv(name, value)
    running = Running(bus)
    await running.start()
    yield running
    await asyncio.to_thread(ec2.allow)
    await running.stop()


@pytest.fixture
async def cluster(
    nats_server: TestServer, requester: CapacityRequester, tmp_path: Path
) -> AsyncIterator[Cluster]:
    folder = tmp_path / "services"
    folder.mkdir()
    cluster = Cluster(nats_server, folder)
    yield cluster
    await cluster.stop()


async def a_process(cluster: Cluster, ec2: Ec2Server) -> ServiceProcess:
    """The provider as a process of its own, that can be killed."""
    env = {
        **ec2.env,
        "ADMIT_AWS_CLASS": CLASS,
        "ADMIT_AWS_POLL_SECONDS": "0.1",
        "ADMIT_AWS_SWEEP_SECONDS": "0.3",
        "ADMIT_AWS_UNSEEN_SECONDS": "2",
    }
    return await cluster.start("provider-aws", **env)


# Obtaining. ----------------------------------------------------------------------------------


async def test_a_request_waits_for_a_reservation_that_is_not_active(
    running: Running, requester: CapacityRequester, ec2: Ec2Server
) -> None:
    ec2.set(pending=0.8, hidden=0.5)
    ec2.refuse(CREATE, "RequestLimitExceeded", status=503, times=2)
    ec2.refuse(DESCRIBE, "RequestLimitExceeded", status=503, times=2)
    await asks(requester)
    await until_provisioned(requester)

    assert len(ec2.reservations()) == 1
    assert requester.words() == ["Accepted", "Accepted", "Provisioned"]
    throttled, pending, _ = requester.said
    assert isinstance(throttled, Accepted)
    assert "RequestLimitExceeded" in throttled.message
    assert "not yet active" in pending.message


async def test_a_request_without_capacity_fails_and_may_be_retried(
    running: Running, requester: CapacityRequester, ec2: Ec2Server
) -> None:
    ec2.set(capacity=0)
    await asks(requester)
    await until(lambda: requester.words() == ["ProvisioningFailed"])
    failed = requester.said[0]
    assert isinstance(failed, ProvisioningFailed)
    assert failed.retryable
    assert "InsufficientInstanceCapacity" in failed.message

    ec2.set(capacity=1)
    await asks(requester, "u/c/2/2")
    await until_provisioned(requester, "u/c/2/2")
    (made,) = ec2.reservations()
    assert made["tags"]["admittance.dev/request-id"] == "u/c/2/2"


@pytest.mark.parametrize(
    ("reason", "parameters"),
    [
        pytest.param("InvalidInstanceType", {"InstanceType": "m5.nope"}, id="no such type"),
        pytest.param(
            "InvalidParameterValue",
            {"AvailabilityZone": "mars-1a", "InstanceCount": "1"},
            id="no such zone",
        ),
        pytest.param("wrong parameters", {"Tenancy": "mine"}, id="no such word"),
        pytest.param("a pod of main needs", {"InstanceType": "t2.nano"}, id="too small a type"),
    ],
)
async def test_an_impossible_request_fails_permanently(
    running: Running,
    requester: CapacityRequester,
    ec2: Ec2Server,
    reason: str,
    parameters: dict[str, str],
) -> None:
    containers = [{"name": "c", "resources": {"requests": {"memory": "4Gi"}}}]
    main = {"name": "main", "count": 1, "template": {"spec": {"containers": containers}}}
    await requester.asks(ONE, parameters={**LARGE, **parameters}, **pod_sets(main))
    await until(lambda: bool(said(requester, "ProvisioningFailed")))

    (failed,) = (status for status in requester.said if isinstance(status, ProvisioningFailed))
    assert not failed.retryable
    assert reason in failed.message
    assert ec2.reservations() == []


def pod_sets(*sets: dict[str, Any]) -> dict[str, Any]:
    fields = pods(1)
    (pod_set,) = fields["pod_sets"]
    return {
        "pod_sets": tuple(
            {**pod_set, **given, "template": msgspec.Raw(msgspec.json.encode(given["template"]))}
            for given in sets
        )
    }


@pytest.mark.parametrize(
    "refused",
    [
        pytest.param("", id="by the token, which EC2 knows"),
        pytest.param("IdempotentParameterMismatch", id="by its tag, when we count otherwise now"),
    ],
)
async def test_a_provider_killed_before_the_answer_finds_its_reservation(
    cluster: Cluster, bus: Bus, requester: CapacityRequester, ec2: Ec2Server, refused: str
) -> None:
    ec2.hold(CREATE)
    first = await a_process(cluster, ec2)
    await asks(requester)
    await so(lambda: len(ec2.alive()) == 1)
    # A call that hangs holds up nothing else.
    answers = await health(bus, at_least=len(cluster.processes))
    assert "provider-aws" in {answer.service for answer in answers}
    await first.kill()
    ec2.allow()
    if refused:
        ec2.refuse(CREATE, refused)
    await a_process(cluster, ec2)
    await asks(requester)

    await until_provisioned(requester)
    assert len(ec2.reservations()) == 1


# Freeing. ------------------------------------------------------------------------------------


async def test_an_unknown_reservation_of_a_cancelled_request_is_cancelled(
    cluster: Cluster, requester: CapacityRequester, ec2: Ec2Server
) -> None:
    """Also if EC2 lists the reservation late."""
    ec2.set(hidden=5)
    ec2.hold(CREATE)
    first = await a_process(cluster, ec2)
    await asks(requester)
    await so(lambda: len(ec2.alive()) == 1)
    await first.kill()
    ec2.allow()
    await requester.takes_back()
    await a_process(cluster, ec2)

    await so(lambda: not ec2.alive())
    assert len(ec2.reservations()) == 1


async def test_a_reservation_for_a_cancelled_request_is_cancelled(
    running: Running, bus: Bus, requester: CapacityRequester, ec2: Ec2Server
) -> None:
    async def has_request() -> bool:
        status = (await StatusStore(bus, CLASS).get(ONE)).status
        return status is not None and status.status == CANCELLED

    ec2.set(hidden=0.5)
    ec2.hold(CREATE)
    await asks(requester)
    await so(lambda: len(ec2.alive()) == 1)
    await requester.takes_back()
    await eventually(has_request)
    ec2.allow()

    await so(lambda: not ec2.alive())
    assert requester.words() == []


async def test_a_new_leader_reports_revoked_capacity(
    running: Running, requester: CapacityRequester, ec2: Ec2Server
) -> None:
    ways: dict[str, dict[str, Any]] = {
        "a/c/1/1": {"state": "cancelled"},
        "b/c/1/1": {"state": "expired"},
        "c/c/1/1": {"total": 0},
    }
    ec2.set(pending=0.3)
    await asks(requester, ONE, *ways)
    await until_provisioned(requester, ONE, *ways)
    await running.stop()
    await running.start()
    for reservation in ec2.alive():
        ec2.becomes(
            reservation["id"], **ways.get(reservation["tags"]["admittance.dev/request-id"], {})
        )

    await until(lambda: said(requester, "CapacityRevoked") == set(ways))
    for request_id in ways:
        await requester.takes_back(request_id)
    await so(lambda: len(ec2.alive()) == 1)
    assert requester.words().count("CapacityRevoked") == len(ways)


# Rights. -------------------------------------------------------------------------------------


async def test_wrong_credentials_make_the_class_inactive(
    running: Running, requester: CapacityRequester, ec2: Ec2Server
) -> None:
    for action in (CREATE, DESCRIBE, "DescribeInstanceTypes"):
        ec2.refuse(action, "AuthFailure", status=401)
    await asks(requester)
    await until(lambda: "AuthFailure" in running.trouble)
    await until(lambda: requester.words() == ["Accepted"])

    ec2.allow()
    await until_provisioned(requester)
    await until(lambda: not running.trouble)


async def test_a_provider_that_may_not_cancel_makes_no_more_reservations(
    running: Running, requester: CapacityRequester, ec2: Ec2Server
) -> None:
    await asks(requester)
    await until_provisioned(requester)
    ec2.refuse("CancelCapacityReservation", "UnauthorizedOperation", status=403)
    await requester.takes_back()
    await until(lambda: "UnauthorizedOperation" in running.trouble)
    assert len(ec2.alive()) == 1

    ec2.allow()
    await so(lambda: not ec2.alive())
    await until(lambda: not running.trouble)


async def test_a_reservation_forbidden_by_a_policy_fails_alone(
    running: Running, requester: CapacityRequester, ec2: Ec2Server
) -> None:
    """The provider tries a reservation that was allowed before."""
    await asks(requester)
    await until_provisioned(requester)
    ec2.refuse(CREATE, "UnauthorizedOperation", status=403, having="m5.xlarge")
    await asks(requester, "v/c/1/1", InstanceType="m5.xlarge")
    await until(lambda: said(requester, "ProvisioningFailed") == {"v/c/1/1"})

    failed = requester.said[-1]
    assert isinstance(failed, ProvisioningFailed)
    assert not failed.retryable
    assert not running.trouble
    assert len(ec2.reservations()) == 1


@pytest.mark.parametrize(
    ("action", "before"),
    [
        pytest.param(CREATE, True, id="to reserve, which it let us before"),
        pytest.param(CREATE, False, id="to reserve, which we never did"),
        pytest.param("DescribeInstanceTypes", False, id="to ask what machines there are"),
    ],
)
async def test_a_missing_right_makes_the_class_inactive_and_requests_wait(
    running: Running, requester: CapacityRequester, ec2: Ec2Server, action: str, before: bool
) -> None:
    if before:
        await asks(requester, "v/c/1/1")
        await until_provisioned(requester, "v/c/1/1")
    ec2.refuse(action, "UnauthorizedOperation", status=403)
    await asks(requester)
    await until(lambda: "UnauthorizedOperation" in running.trouble)
    await until(lambda: any("UnauthorizedOperation" in status.message for status in requester.said))

    ec2.allow()
    await until_provisioned(requester)
    await until(lambda: not running.trouble)
    assert not said(requester, "ProvisioningFailed")


# How often, and the end. ---------------------------------------------------------------------


@pytest.mark.parametrize("count", [3, 24])
async def test_one_listing_serves_all_requests(
    running: Running, requester: CapacityRequester, ec2: Ec2Server, count: int
) -> None:
    ec2.set(pending=60)
    ids = [f"u{number}/c/1/1" for number in range(count)]
    await asks(requester, *ids)
    await until(lambda: said(requester, "Accepted") == set(ids))
    calls = ec2.calls()
    assert calls[CREATE] == count
    assert calls["DescribeInstanceTypes"] <= count

    now = asyncio.get_running_loop().time
    before, began = ec2.calls(), now()
    await so(lambda: ec2.calls()[DESCRIBE] >= before[DESCRIBE] + 3)
    after = ec2.calls()
    assert after.keys() == before.keys()
    assert after[DESCRIBE] - before[DESCRIBE] <= 2 + (now() - began) / SETTINGS.poll_seconds
    assert after[CREATE] == count


async def test_a_hanging_listing_does_not_delay_the_end(cluster: Cluster, ec2: Ec2Server) -> None:
    process = await a_process(cluster, ec2)
    await so(lambda: ec2.calls()[DESCRIBE] > 0)
    ec2.hold(DESCRIBE)
    before = ec2.calls()[DESCRIBE]
    await so(lambda: ec2.calls()[DESCRIBE] > before)
    await within(process.stop(), 9.0)
    assert process.status == 0
