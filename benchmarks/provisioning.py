"""Measures the time from available capacity to the start of its job, and until a booking ends.

``python -m benchmarks.provisioning [--requests 1000] [--rate 50] [--bookings 200]``

So many workloads wait for capacity at one provisioning check. The bench is their provider: it says
`provisioned` of half of them at a steady rate while the others wait on, and then of the rest at
once. Afterwards a pool of machines books for others; they end, every process is killed with
``kill -9`` at that moment, and is started again on the same data folder. It prints how long
after those ends the last booking has gone, and how long after the start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from admittance.bench import generator
from admittance.bench.connection import connected
from admittance.bench.generator import BenchPlan, PlannedQueue, PlannedWorkload
from admittance.bench.run import delay
from admittance.client.requests.link import Link
from admittance.events.codec import encode
from admittance.events.provisioning import Provisioned
from admittance.events.subjects import PROVIDERS, subject_of
from admittance.runtime import clock
from admittance.runtime.errors import SetupError
from benchmarks.harness.load import FREE_ROOM, Load, load_over, own_system
from benchmarks.harness.program import Option, run_program
from benchmarks.harness.waits import PATIENCE_SECONDS, News, until_right

CLASS: Final = "bench"
POOL: Final = "bench-pool"
CALM_SECONDS: Final = 1.0
_API: Final = "kueue.x-k8s.io/v1beta2"
_CONTROLLER: Final = "kueue.x-k8s.io/provisioning-request"
_KIND: Final = "ProvisioningRequestConfig"


class _Asked(msgspec.Struct, frozen=True):
    id: str
    namespace: str
    name: str
    uid: str = ""


_asked = msgspec.json.Decoder(_Asked)


def manifests_of(bookings: int) -> list[dict[str, Any]]:
    """A queue for each class, each with its check; and a pool with room for so many."""
    manifests: list[dict[str, Any]] = []
    for name in (CLASS, POOL):
        config = {"provisioningClassName": name}
        reference = {"apiGroup": "kueue.x-k8s.io", "kind": _KIND, "name": name}
        check = {"controllerName": _CONTROLLER, "parameters": reference}
        manifests.append(_object(_KIND, name, config))
        manifests.append(_object("AdmissionCheck", name, check))
    manifests += generator.manifests_of(bench_plan())
    for manifest in manifests:
        if manifest["kind"] == "ClusterQueue":
            manifest["spec"]["admissionChecks"] = [manifest["metadata"]["name"]]
    machine = {"name": "m", "count": max(1, bookings), "resources": {"cpu": 1}}
    spec = {"provisioningClassName": POOL, "machines": [machine]}
    pool = _object("MachinePool", POOL, spec)
    return [*manifests, {**pool, "apiVersion": "admittance.dev/v1"}]


def bench_plan() -> BenchPlan:
    """The queues."""
    return BenchPlan(tuple(PlannedQueue(name, nominal=FREE_ROOM) for name in (CLASS, POOL)), ())


def _object(kind: str, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": _API, "kind": kind, "metadata": {"name": name}, "spec": dict(spec)}


class Provider:
    """The provider of the benchmark. ``asked``: when each workload was requested, in monotonic
    time."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self.asked: dict[str, _Asked] = {}
        self.said_at: dict[str, float] = {}
        self.admitted_at: dict[str, float] = {}
        self._news = News()

    async def start(self) -> None:
        """Starts to receive messages."""
        nc = self._load.link.bus.nc
        await nc.listen(f"admit.provisioning.requested.{CLASS}.>", self._on_request)
        await nc.listen("admit.workload.admitted.>", self._on_admitted)

    def _on_request(self, _s: bytes, _r: bytes, data: bytes, _h: bytes) -> None:
        asked = _asked.decode(data)
        self.asked[asked.name] = asked
        self._news.note()

    def _on_admitted(self, subject: bytes, _r: bytes, _d: bytes, _h: bytes) -> None:
        name = subject.decode().rpartition(".")[2]
        self.admitted_at.setdefault(name, clock.monotonic())
        self._news.note()

    def provisioned(self, name: str) -> None:
        """The capacity of that workload is there."""
        asked = self.asked[name]
        self.said_at[name] = clock.monotonic()
        fact = Provisioned(
            namespace=asked.namespace,
            name=name,
            uid=asked.uid,
            provisioning_class=CLASS,
            id=asked.id,
            message="here",
        )
        self._load.publisher.publish(subject_of(fact), encode(fact))

    async def until(self, claim: Callable[[], bool], what: str) -> None:
        """Waits until claim holds. Raises SetupError."""
        await self._news.until(
            claim,
            lambda: (
                f"{what}: {len(self.asked)} were asked for, and {len(self.admitted_at)} admitted"
            ),
        )

    def delays(self, names: list[str]) -> list[float]:
        """Milliseconds from `provisioned` to `admitted`."""
        return [1000 * (self.admitted_at[name] - self.said_at[name]) for name in names]


async def _submit(load: Load, queue: str, names: list[str]) -> None:
    workloads = tuple(PlannedWorkload(0.0, 1.0, name, 0, queue, 1000, 0) for name in names)
    await load.submit(BenchPlan((PlannedQueue(queue),), workloads))


async def _in_flight(load: Load, requests: int, rate: float) -> list[str]:
    provider = Provider(load)
    await provider.start()
    names = [f"flight-{n}" for n in range(requests)]
    began = clock.monotonic()
    await _submit(load, CLASS, names)
    await provider.until(lambda: len(provider.asked) == requests, "requests")
    asked = clock.monotonic() - began
    await asyncio.sleep(CALM_SECONDS)
    steady, rest = names[: requests // 2], names[requests // 2 :]
    began = clock.monotonic()
    for number, name in enumerate(steady):
        pause = began + number / rate - clock.monotonic()
        if pause > 0:
            await asyncio.sleep(pause)
        provider.provisioned(name)
    await provider.until(lambda: provider.admitted_at.keys() >= set(steady), "one after the other")
    began = clock.monotonic()
    for name in rest:
        provider.provisioned(name)
    await provider.until(lambda: len(provider.admitted_at) == requests, "all at once")
    took = clock.monotonic() - began
    for name in names:
        load.say("finished", name)
    told = delay(provider.delays(steady))
    return [
        f"{requests} requests in flight at one check: all asked for {asked:.1f} s after their "
        f"submission; provisioned to admitted at {rate:g} a second: p50 {told.p50:.1f} ms, "
        f"p99 {told.p99:.1f} ms, at most {max(provider.delays(steady)):.1f} ms",
        f"the other {len(rest)} provisioned at once: all admitted after {took:.2f} s, "
        f"{len(rest) / took:.0f} a second",
    ]


async def count_bookings(link: Link) -> int:
    """How many bookings the pools keep."""
    return len(await link.read_all("_pool.>", bucket=PROVIDERS))


async def _until_booked(link: Link, wanted: int) -> None:
    booked = await until_right(
        lambda: count_bookings(link),
        lambda count: count == wanted,
        seconds=PATIENCE_SECONDS,
        every=0.02,
    )
    if booked != wanted:
        raise SetupError(f"{booked} are booked after {PATIENCE_SECONDS:.0f} s instead of {wanted}")


async def measured(*, requests: int, rate: float, bookings: int) -> list[str]:
    """The figures, one line each. Raises SetupError when something does not come."""
    half = bookings // 2
    async with own_system() as system:
        async with connected(await system.start()) as link, load_over(link) as load:
            await generator.apply(link, manifests_of(bookings))
            lines = await _in_flight(load, requests, rate)
            names = [f"kept-{n}" for n in range(bookings)]
            await _submit(load, POOL, names)
            await _until_booked(link, bookings)
            await asyncio.sleep(CALM_SECONDS)
            lines.append(await _one_by_one(load, names[:half], bookings))
            for name in names[half:]:
                load.say("finished", name)
            await load.publisher.until_acknowledged()
            ended = clock.monotonic()
            system.kill()
        await system.ended()
        began = clock.monotonic()
        async with connected(await system.start(PATIENCE_SECONDS)) as link:
            ready = clock.monotonic() - began
            await _until_booked(link, 0)
        over = clock.monotonic()
    return [
        *lines,
        f"{bookings - half} workloads end and everything is killed: their bookings are "
        f"gone {over - ended:.1f} s after the ends, {over - began:.1f} s after the new start, "
        f"which was ready after {ready:.1f} s",
    ]


async def _one_by_one(load: Load, names: list[str], before: int) -> str:
    took: list[float] = []
    for number, name in enumerate(names[:20], 1):
        began = clock.monotonic()
        load.say("finished", name)
        await _until_booked(load.link, before - number)
        took.append(1000 * (clock.monotonic() - began))
    began = clock.monotonic()
    for name in names[20:]:
        load.say("finished", name)
    await _until_booked(load.link, before - len(names))
    over = clock.monotonic() - began
    told = delay(took or [0.0])
    return (
        f"a workload ends: its booking is gone after p50 {told.p50:.0f} ms, p99 {told.p99:.0f} ms; "
        f"those of {max(0, len(names) - 20)} at once after {over:.2f} s"
    )


if __name__ == "__main__":
    run_program(
        measured,
        __doc__,
        Option("--requests", 1000, "in flight at once", least=2),
        Option("--rate", 50.0, "provisioned a second", above=0),
        Option("--bookings", 200, "kept when all is killed", least=2),
    )
