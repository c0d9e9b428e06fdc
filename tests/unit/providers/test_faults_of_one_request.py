"""An exception in a step of a built-in provider for one request ends neither the process nor the
steps for other requests: it is a fault of this request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from admittance.provider_aws import ec2, reservations
from admittance.provider_aws.parameters import token_of
from admittance.provider_aws.reservations import Reservation
from admittance.provider_aws.service import AwsReconciler, AwsSettings
from admittance.provider_docker import comparer
from admittance.provider_docker import engine as docker_engine
from admittance.provider_docker.engine import DockerSettings
from admittance.provider_docker.service import DockerReconciler
from admittance.provider_docker.workers import ListedWorker
from admittance.provider_kubernetes import cluster as kubernetes_cluster
from admittance.provider_kubernetes.objects import Condition, Seen
from admittance.provider_kubernetes.service import KubernetesReconciler
from admittance.provider_kubernetes.settings import KubeSettings
from admittance.provider_pool import ledger
from admittance.providers import (
    Cancellation,
    CapacityRevoked,
    Failed,
    Provider,
    Request,
    Status,
    builtin,
)
from admittance.providers.builtin import ObjectSteps, StoredRequest, provider_of
from admittance.providers.status_store import StoredStatus
from admittance.runtime.errors import Superseded
from admittance.runtime.process.settings import Settings
from admittance.runtime.telemetry.object_faults import faults

BAD, GOOD = "u0/c/1/1", "u1/c/1/1"
CLASS = "class"


class Reports(NamedTuple):
    """The requests for which a provider did something."""

    made: list[str]

    def of(self, request_id: str) -> None:
        if request_id == BAD:
            raise ZeroDivisionError("a bug")
        self.made.append(request_id)


Run = Callable[[], Awaitable[object]]
Case = Callable[[pytest.MonkeyPatch, Reports], Run]


def settings(service: str) -> Settings:
    return Settings(service=service, instance="a", url="")


def stored(monkeypatch: pytest.MonkeyPatch, status: str, **details: str) -> None:
    """Both requests have this status; "" is a request without one."""

    async def read(*_: Any) -> dict[str, StoredRequest]:
        return {
            id: StoredRequest(
                CLASS,
                StoredStatus(id=id, namespace="ns", name="w", status=status, details=details),
            )
            for id in (BAD, GOOD)
        }

    monkeypatch.setattr(builtin, "stored_requests", read)
    monkeypatch.setattr(comparer, "stored_requests", read)


def reporting(provider: Provider, monkeypatch: pytest.MonkeyPatch, reports: Reports) -> None:
    async def report(request_id: str, _: object) -> bool:
        reports.of(request_id)
        return True

    monkeypatch.setattr(provider, "report", report)


class FakeEngine:
    """An engine that has one worker of each request. ``reports``: the removed ones."""

    def __init__(self, reports: Reports) -> None:
        self._reports = reports

    async def workers(self, request_id: str | None = None) -> list[ListedWorker]:
        return [
            ListedWorker(
                container=id,
                name=id,
                installation="ours",
                request_id=id,
                provisioning_class=CLASS,
                state="exited",
            )
            for id in (BAD, GOOD)
            if request_id in (None, id)
        ]

    async def remove(self, container: str) -> None:
        self._reports.of(container)


def docker(reports: Reports) -> DockerReconciler:
    bus: Any = None
    engine: Any = FakeEngine(reports)
    docker = DockerSettings(image="any", classes=(CLASS,), settle_seconds=0)
    return DockerReconciler(bus, settings("provider-docker"), docker, engine, "ours")


def docker_compare(monkeypatch: pytest.MonkeyPatch, reports: Reports) -> Run:
    stored(monkeypatch, "provisioned", containers="w")
    reconciler = docker(reports)
    monkeypatch.setattr(comparer, "missing_containers", lambda *_: ("w",))
    reporting(reconciler._providers[CLASS], monkeypatch, reports)
    return reconciler._comparer.compare


def docker_sweep(monkeypatch: pytest.MonkeyPatch, reports: Reports) -> Run:
    stored(monkeypatch, "cancelled")
    reconciler = docker(reports)
    return reconciler._comparer.compare


def seen(id: str, **fields: Any) -> Seen:
    return Seen(
        id=id,
        provisioning_class=CLASS,
        installation="ours",
        namespace="prod",
        name=f"object-{id}",
        uid=id,
        **fields,
    )


class FakeCluster:
    """A cluster that lists what it is given."""

    def __init__(self, listed: tuple[str, ...]) -> None:
        self._listed = listed
        self.server = "here"

    async def list(self, kind: str, *_: Any) -> tuple[list[dict[str, Any]], str]:
        listed = self._listed if kind == kubernetes_cluster.REQUESTS else ()
        return [{"metadata": {"uid": uid}} for uid in listed], "1"


def kubernetes(*there: Seen, listed: bool = True) -> KubernetesReconciler:
    bus: Any = None
    cluster: Any = FakeCluster(tuple(record.uid for record in there) if listed else ())
    kube = KubeSettings(classes=(CLASS,), namespaces={"ns": "prod"})
    reconciler = KubernetesReconciler(bus, settings("provider-kubernetes"), kube, cluster, "ours")
    reconciler._objects.seen.update({record.id: record for record in there})
    return reconciler


def kubernetes_report(monkeypatch: pytest.MonkeyPatch, reports: Reports) -> Run:
    stored(monkeypatch, "provisioned")
    revoked = {"CapacityRevoked": Condition("CapacityRevoked", "True", "", "gone")}
    reconciler = kubernetes(*(seen(id, conditions=revoked) for id in (BAD, GOOD)))
    reporting(reconciler._providers[CLASS], monkeypatch, reports)
    return reconciler._sweeper._sweep


def kubernetes_sweep(monkeypatch: pytest.MonkeyPatch, reports: Reports) -> Run:
    stored(monkeypatch, "cancelled")
    reconciler = kubernetes(seen(BAD), seen(GOOD))

    async def delete(request_id: str, _: str) -> None:
        reports.of(request_id)

    monkeypatch.setattr(reconciler._maker, "delete", delete)
    return reconciler._sweeper._sweep


def kubernetes_deleted(monkeypatch: pytest.MonkeyPatch, reports: Reports) -> Run:
    stored(monkeypatch, "provisioned")
    reconciler = kubernetes(seen(BAD), seen(GOOD), listed=False)

    async def is_there(seen: Seen) -> bool:
        reports.of(seen.id)
        return True

    monkeypatch.setattr(reconciler._maker, "is_there", is_there)
    return reconciler._sweeper._sweep


def kubernetes_look(monkeypatch: pytest.MonkeyPatch, reports: Reports) -> Run:
    reconciler = kubernetes(seen(BAD), seen(GOOD))

    class Store:
        def __init__(self, *_: Any) -> None:
            pass

        async def get(self, request_id: str) -> Any:
            reports.of(request_id)
            status = StoredStatus(id=request_id, namespace="ns", name="w", status="provisioned")
            return SimpleNamespace(status=status)

    monkeypatch.setattr("admittance.provider_kubernetes.sweeper.StatusStore", Store)

    async def look() -> None:
        for id in (BAD, GOOD):
            reconciler._sweeper.look(id)
        await reconciler._sweeper._tasks.settled()

    return look


class FakeEc2:
    """EC2 with an active reservation for each request."""

    def __init__(self, reports: Reports) -> None:
        self._reports = reports

    def ours(self, token: str | None = None) -> list[Reservation]:
        return [Reservation(id, token_of(id), "failed", 1) for id in (BAD, GOOD)]

    def cancel(self, reservation: str) -> None:
        self._reports.of(reservation)


def aws(reports: Reports) -> AwsReconciler:
    bus: Any = None
    calls: Any = FakeEc2(reports)
    return AwsReconciler(
        bus, settings("provider-aws"), AwsSettings(provisioning_class=CLASS), calls
    )


async def listed_once(reconciler: AwsReconciler) -> None:
    await reconciler._list()
    await reconciler._tasks.settled()
    await asyncio.sleep(0)


def aws_status(reconciler: AwsReconciler, status: str) -> None:
    for id in (BAD, GOOD):
        details = {"capacityReservationId": id, "instanceCount": "1"}
        reconciler.booked.status_changed(
            id,
            StoredStatus(id=id, namespace="ns", name="w", status=status, seq=1, details=details),
            0.0,
        )


def aws_revoke(monkeypatch: pytest.MonkeyPatch, reports: Reports) -> Run:
    reconciler = aws(reports)
    aws_status(reconciler, "provisioned")
    reporting(reconciler._provider, monkeypatch, reports)
    return lambda: listed_once(reconciler)


def aws_compare(monkeypatch: pytest.MonkeyPatch, reports: Reports) -> Run:
    reconciler = aws(reports)
    aws_status(reconciler, "provisioned")
    reporting(reconciler._provider, monkeypatch, reports)

    def revocation(reservation: Reservation, _: int) -> CapacityRevoked:
        if reservation.id == BAD:
            raise ZeroDivisionError("a bug")
        return CapacityRevoked("gone")

    monkeypatch.setattr(reservations, "revocation", revocation)
    return lambda: listed_once(reconciler)


def aws_answer(monkeypatch: pytest.MonkeyPatch, reports: Reports) -> Run:
    reconciler = aws(reports)
    for id in (BAD, GOOD):
        reconciler.booked.begin_waiting(reservations.Booking(id, id, 1), 0.0)

    def initial_answer(reservation: Reservation) -> Failed:
        reports.of(reservation.id)
        return Failed("gone")

    monkeypatch.setattr(reservations, "initial_answer", initial_answer)
    return lambda: listed_once(reconciler)


def aws_sweep(monkeypatch: pytest.MonkeyPatch, reports: Reports) -> Run:
    reconciler = aws(reports)
    aws_status(reconciler, "cancelled")
    monkeypatch.setattr(Reservation, "costs", True)
    return lambda: listed_once(reconciler)


STEPS_OF_ALL = [
    pytest.param(docker_compare, "compare workers", id="docker compares workers"),
    pytest.param(docker_sweep, "remove an orphan", id="docker removes orphans"),
    pytest.param(kubernetes_report, "report the end of capacity", id="kubernetes reports an end"),
    pytest.param(kubernetes_sweep, "remove an orphan", id="kubernetes deletes orphans"),
    pytest.param(kubernetes_deleted, "look for an object", id="kubernetes misses an object"),
    pytest.param(kubernetes_look, "look at an object", id="kubernetes looks at a change"),
    pytest.param(aws_compare, "compare a reservation", id="aws compares a reservation"),
    pytest.param(aws_answer, "compare a coming reservation", id="aws answers a request"),
    pytest.param(aws_revoke, "change a reservation", id="aws reports a revocation"),
    pytest.param(aws_sweep, "change a reservation", id="aws cancels a reservation"),
]


@pytest.mark.parametrize(("case", "step"), STEPS_OF_ALL)
async def test_a_step_that_raises_for_one_request_is_its_fault_alone(
    case: Case, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = Reports([])
    await case(monkeypatch, reports)()

    assert reports.made == [GOOD]
    ((_, error_kind, about, reason),) = faults.take()
    assert (error_kind, reason) == (step, "ZeroDivisionError: a bug")
    assert BAD in about


async def test_a_function_of_a_provider_that_raises_is_a_fault_and_is_called_again() -> None:
    async def obtain(_: Request) -> Status:
        raise ZeroDivisionError("a bug")

    async def free(_: Cancellation) -> None:
        raise ZeroDivisionError("a bug")

    provider = provider_of(ObjectSteps("provider"), CLASS, obtain, free)
    asked: Any = SimpleNamespace(id=BAD)
    with pytest.raises(ZeroDivisionError):
        await provider.obtain(asked)
    with pytest.raises(ZeroDivisionError):
        await provider.free(Cancellation(id=BAD, namespace="ns", name="w"))

    assert [(fault.step, fault.about) for fault in faults.take()] == [
        ("obtain capacity", f"request {BAD}"),
        ("free capacity", f"request {BAD}"),
    ]


@pytest.mark.parametrize(
    ("steps", "error"),
    [
        (docker_engine.STEPS, docker_engine.EngineUnavailable("away")),
        (docker_engine.STEPS, docker_engine.EngineDenied(500, "no")),
        (kubernetes_cluster.STEPS, kubernetes_cluster.ClusterUnavailable("away")),
        (kubernetes_cluster.STEPS, kubernetes_cluster.Missing(404, "", "no")),
        (ec2.STEPS, ec2.Ec2Error("Unavailable", "no")),
        (ledger.STEPS, Superseded("another one leads")),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_an_error_that_a_provider_handles_is_not_counted_as_a_fault(
    steps: ObjectSteps, error: Exception
) -> None:
    async def refuse() -> None:
        raise error

    for awaited in (steps.attempt, steps.call):
        with pytest.raises(type(error)):
            await awaited("step", BAD, refuse())
