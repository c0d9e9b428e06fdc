"""How often the provider of worker containers asks its engine, and what it does while the engine
does not answer. The engine is a stand-in that counts; a real one is tried in tests/deploy."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import pytest

from admittance.events.names import token
from admittance.events.subjects import PROVIDERS
from admittance.provider_docker.comparer import GATHER_SECONDS
from admittance.provider_docker.engine import (
    DockerSettings,
    Engine,
    EngineDenied,
    EngineUnavailable,
)
from admittance.provider_docker.service import DockerReconciler
from admittance.provider_docker.workers import EngineCapacity, ListedWorker, WorkerSpec
from admittance.providers.builtin import CLASS as CLASS_LABEL
from admittance.providers.builtin import INSTALLATION, REQUEST
from admittance.runtime.bus.bucket import put_message
from admittance.runtime.bus.bus import Bus
from admittance.runtime.process.settings import Settings
from integration.provisioning.capacity_requester import CLASS, CapacityRequester, pods
from support.servers import until

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]


class CountingEngine(Engine):
    """Containers in memory. ``calls``: by name."""

    def __init__(self) -> None:
        self.there: dict[str, ListedWorker] = {}
        self.calls: Counter[str] = Counter()
        self.away = False
        self.stuck: set[str] = set()
        self.on_change: Callable[[], None] = lambda: None
        self.listened = False
        self.ended = threading.Event()

    def _count(self, name: str) -> None:
        self.calls[name] += 1
        if self.away:
            raise EngineUnavailable("connection refused")

    async def room(self) -> EngineCapacity:
        self._count("room")
        return EngineCapacity("here", 10**9, 2**60)

    async def workers(self, request_id: str | None = None) -> list[ListedWorker]:
        self._count("workers" if request_id is None else "workers of one")
        return [worker for worker in self.there.values() if request_id in (None, worker.request_id)]

    async def start(self, worker: WorkerSpec, labels: dict[str, str], env: dict[str, str]) -> None:
        self._count("start")
        self.there[worker.name] = ListedWorker(
            container=worker.name,
            name=worker.name,
            installation=labels[INSTALLATION],
            request_id=labels[REQUEST],
            provisioning_class=labels[CLASS_LABEL],
            state="running",
        )

    async def remove(self, container: str) -> None:
        self._count("remove")
        if container in self.stuck:
            raise EngineDenied(403, "the container is stuck")
        self.there.pop(container, None)
        self.on_change()

    async def last_lines(self, container: str) -> str:
        return ""

    def listen(self, installation: str, on_change: Callable[[], None]) -> None:
        self.on_change = on_change
        self.listened = True
        self.ended.wait()  # in a thread of its own


@pytest.fixture
async def engine() -> CountingEngine:
    return CountingEngine()


@pytest.fixture
async def reconciler(bus: Bus, engine: CountingEngine) -> AsyncIterator[DockerReconciler]:
    ours = DockerSettings(
        image="any", classes=(CLASS,), settle_seconds=0.05, sweep_seconds=60.0, workers_max=999
    )
    settings = Settings(service="provider-docker", instance="a", url="")
    reconciler = DockerReconciler(bus, settings, ours, engine, "ours")
    task = asyncio.create_task(reconciler.run())
    await until(lambda: reconciler.ready and engine.listened)
    yield reconciler
    engine.ended.set()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    await reconciler.close()


def said(requester: CapacityRequester, word: str) -> set[str]:
    return {status.id for status in requester.said if type(status).__name__ == word}


async def books(requester: CapacityRequester, count: int) -> set[str]:
    ids = {f"u{number}/c/1/1" for number in range(count)}
    for request_id in ids:
        await requester.asks(request_id, **pods(2))
    await until(lambda: said(requester, "Provisioned") == ids)
    return ids


@pytest.mark.parametrize("count", [5, 40])
async def test_the_number_of_calls_is_that_of_the_requests(
    reconciler: DockerReconciler, engine: CountingEngine, requester: CapacityRequester, count: int
) -> None:
    before = engine.calls["workers"]
    ids = await books(requester, count)
    assert engine.calls["start"] == 2 * count
    assert engine.calls["room"] == count
    assert engine.calls["workers"] - before <= count + 1
    assert engine.calls["workers of one"] == count

    # Whatever ends at once is looked at once; an event each is not a look each.
    engine.calls.clear()
    now = asyncio.get_running_loop().time
    began = now()
    for request_id in ids:
        await requester.takes_back(request_id)
    await until(lambda: not engine.there)
    assert engine.calls["remove"] == 2 * count
    assert engine.calls["workers of one"] == count
    assert engine.calls["workers"] <= 2 + (now() - began) / GATHER_SECONDS


async def test_workers_lost_at_once_are_reported_by_one_comparison(
    reconciler: DockerReconciler, engine: CountingEngine, requester: CapacityRequester
) -> None:
    ids = await books(requester, 30)
    engine.calls.clear()
    for worker in list(engine.there)[::2]:
        del engine.there[worker]
        engine.on_change()
    await until(lambda: said(requester, "CapacityRevoked") == ids)
    assert engine.calls["workers"] <= 2


async def test_an_unreachable_engine_is_tried_once_for_all_requests(
    reconciler: DockerReconciler, engine: CountingEngine, requester: CapacityRequester
) -> None:
    engine.away = True
    for number in range(20):
        await requester.asks(f"u{number}/c/1/1", **pods(1))
    await until(lambda: "connection refused" in reconciler.trouble)
    await until(lambda: engine.calls["room"] == 20)
    engine.calls.clear()
    await until(lambda: engine.calls["workers"] == 2)
    assert engine.calls["room"] == 0

    engine.away = False
    await until(lambda: len(said(requester, "Provisioned")) == 20)
    assert not reconciler.trouble


async def test_containers_of_another_installation_are_left_alone(
    reconciler: DockerReconciler, engine: CountingEngine, requester: CapacityRequester
) -> None:
    about: dict[str, Any] = {"provisioning_class": CLASS, "state": "running"}
    for name, installation in (("orphan", "ours"), ("theirs", "another")):
        engine.there[name] = ListedWorker(
            container=name, name=name, installation=installation, request_id="z/c/1/1", **about
        )
    engine.on_change()
    await until(lambda: "orphan" not in engine.there)
    assert "theirs" in engine.there


async def test_one_unreadable_status_or_worker_does_not_stop_the_comparison(
    bus: Bus, reconciler: DockerReconciler, engine: CountingEngine
) -> None:
    unreadable = put_message(f"{token(CLASS)}.x", b"{", expected=None, bucket=PROVIDERS)
    await bus.publish(unreadable)
    engine.stuck = {"a"}
    about: dict[str, Any] = {"provisioning_class": CLASS, "state": "exited", "installation": "ours"}
    for name in ("a", "b"):
        engine.there[name] = ListedWorker(
            container=name, name=name, request_id=f"{name}/c/1/1", **about
        )
    engine.on_change()
    await until(lambda: "b" not in engine.there)
    assert reconciler.ready
