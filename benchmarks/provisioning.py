"""How long from capacity that is there until its job may start, and how long a booking stays.

``python -m benchmarks.provisioning [--requests 1000] [--rate 50] [--bookings 200]``

So many workloads wait for capacity at one provisioning check. The bench is their provider: it says
`provisioned` of half of them at a steady rate while the others wait on, and then of the rest at
once. Afterwards a pool of machines books for others; they end, every process is killed with
``kill -9`` at that moment, and is started again on the same data folder. What is told is how long
after those ends the last booking has gone, and how long after the start.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import psutil

from admittance.bench import generator
from admittance.bench.generator import BenchPlan, PlannedQueue, PlannedWorkload
from admittance.bench.load import Publisher, submission
from admittance.bench.run import delay, loop_factory, main_of
from admittance.bench.system import family, start
from admittance.events.requests import Apply, ApplyReply
from admittance.events.subjects import PROVIDERS
from admittance.runtime import clock
from admittance.runtime.bus.bucket import read_all
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import AdmittanceError, SetupError

PATIENCE: Final = 120.0
CLASS: Final = "bench"
POOL: Final = "bench-pool"
CALM_SECONDS: Final = 1.0
_API: Final = "kueue.x-k8s.io/v1beta2"
_CONTROLLER: Final = "kueue.x-k8s.io/provisioning-request"
_KIND: Final = "ProvisioningRequestConfig"

_encode = msgspec.json.Encoder().encode
_applied = msgspec.json.Decoder(ApplyReply)


class _Asked(msgspec.Struct, frozen=True):
    id: str
    namespace: str
    name: str
    uid: str = ""


_asked = msgspec.json.Decoder(_Asked)


def manifests(bookings: int) -> list[dict[str, Any]]:
    """A queue for each class, each with its check; and a pool with room for so many."""
    found: list[dict[str, Any]] = []
    for name in (CLASS, POOL):
        config = {"provisioningClassName": name}
        reference = {"apiGroup": "kueue.x-k8s.io", "kind": _KIND, "name": name}
        check = {"controllerName": _CONTROLLER, "parameters": reference}
        found.append(_object(_KIND, name, config))
        found.append(_object("AdmissionCheck", name, check))
    found += generator.manifests_of(bench_plan())
    for one in found:
        if one["kind"] == "ClusterQueue":
            one["spec"]["admissionChecks"] = [one["metadata"]["name"]]
    machine = {"name": "m", "count": max(1, bookings), "resources": {"cpu": 1}}
    spec = {"provisioningClassName": POOL, "machines": [machine]}
    pool = _object("MachinePool", POOL, spec)
    return [*found, {**pool, "apiVersion": "admittance.dev/v1"}]


def bench_plan() -> BenchPlan:
    """The queues."""
    room = 1_000_000_000
    return BenchPlan(
        tuple(
            PlannedQueue(name, "cq", "", "default", room, None, None, "Never", "Never")
            for name in (CLASS, POOL)
        ),
        (),
    )


def _object(kind: str, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": _API, "kind": kind, "metadata": {"name": name}, "spec": dict(spec)}


async def _apply(bus: Bus, objects: list[dict[str, Any]]) -> None:
    data = _encode(Apply(objects=tuple(msgspec.Raw(_encode(one)) for one in objects)))
    deadline = clock.monotonic() + PATIENCE
    reply = _applied.decode(await generator.ask(bus, "admit.api.apply", data, deadline))
    if reply.error or reply.problems:
        raise SetupError(f"the queues were refused: {(*reply.problems, reply.error)[0]}")


class Provider:
    """The class of the bench by hand. ``asked``: by name of the workload; times are monotonic."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self.asked: dict[str, _Asked] = {}
        self.said_at: dict[str, float] = {}
        self.admitted_at: dict[str, float] = {}
        self._moved = asyncio.Event()

    async def start(self, bus: Bus) -> None:
        """Starts to receive messages."""
        await bus.nc.listen(f"admit.provisioning.requested.{CLASS}.>", self._on_request)
        await bus.nc.listen("admit.workload.admitted.>", self._on_admitted)

    def _on_request(self, _s: bytes, _r: bytes, data: bytes, _h: bytes) -> None:
        asked = _asked.decode(data)
        self.asked[asked.name] = asked
        self._moved.set()

    def _on_admitted(self, subject: bytes, _r: bytes, _d: bytes, _h: bytes) -> None:
        name = subject.decode().rpartition(".")[2]
        self.admitted_at.setdefault(name, clock.monotonic())
        self._moved.set()

    def provisioned(self, name: str) -> None:
        """The capacity of that workload is there."""
        asked = self.asked[name]
        self.said_at[name] = clock.monotonic()
        said = {
            "namespace": asked.namespace,
            "name": name,
            "uid": asked.uid,
            "provisioningClass": CLASS,
            "id": asked.id,
            "message": "here",
        }
        subject = f"admit.provisioning.provisioned.{CLASS}.{asked.namespace}.{name}"
        self._publisher.publish(subject, _encode(said))

    async def until(self, claim: Callable[[], bool], what: str) -> None:
        """Waits until claim holds. Raises SetupError."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not claim():
                    self._moved.clear()
                    await self._moved.wait()
        except TimeoutError:
            raise SetupError(
                f"{what}: after {PATIENCE:.0f} s {len(self.asked)} were asked for, and "
                f"{len(self.admitted_at)} admitted"
            ) from None

    def delays(self, names: list[str]) -> list[float]:
        """Milliseconds from `provisioned` to `admitted`."""
        return [1000 * (self.admitted_at[name] - self.said_at[name]) for name in names]


def _submit(publisher: Publisher, queue: str, names: list[str]) -> None:
    for name in names:
        workload = PlannedWorkload(0.0, 1.0, name, 0, queue, 1000, 0)
        publisher.publish(
            f"admit.workload.submitted.default.{name}", submission(workload, "default", queue)
        )


async def _in_flight(bus: Bus, publisher: Publisher, requests: int, rate: float) -> list[str]:
    provider = Provider(publisher)
    await provider.start(bus)
    names = [f"flight-{n}" for n in range(requests)]
    began = clock.monotonic()
    _submit(publisher, CLASS, names)
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
        publisher.publish(f"admit.workload.finished.default.{name}", _finished(name))
    told = delay(provider.delays(steady))
    return [
        f"{requests} requests in flight at one check: all asked for {asked:.1f} s after their "
        f"submission; provisioned to admitted at {rate:g} a second: p50 {told.p50:.1f} ms, "
        f"p99 {told.p99:.1f} ms, at most {max(provider.delays(steady)):.1f} ms",
        f"the other {len(rest)} provisioned at once: all admitted after {took:.2f} s, "
        f"{len(rest) / took:.0f} a second",
    ]


def _finished(name: str) -> bytes:
    return _encode({"namespace": "default", "name": name})


async def count_bookings(bus: Bus) -> int:
    """How many bookings the pools keep."""
    return len(await read_all(bus, "_pool.>", bucket=PROVIDERS))


async def _until_booked(bus: Bus, wanted: int) -> None:
    deadline = clock.monotonic() + PATIENCE
    found = -1
    while clock.monotonic() < deadline:
        with suppress(AdmittanceError):
            found = await count_bookings(bus)
            if found == wanted:
                return
        await asyncio.sleep(0.02)
    raise SetupError(f"{found} are booked after {PATIENCE:.0f} s instead of {wanted}")


async def measured(requests: int, rate: float, bookings: int) -> list[str]:
    """The figures, one line each. Raises SetupError when something does not come."""
    with tempfile.TemporaryDirectory(prefix="admit-provisioning-") as folder:
        arguments = [
            "up",
            "--insecure",
            "--port",
            "0",
            "--no-runner",
            "--data-dir",
            str(Path(folder) / "data"),
        ]
        log = Path(folder) / "log"
        child = await start(arguments, log)
        try:
            bus = await Bus.connect(await child.ready(), name="admit-bench")
            publisher = Publisher(bus)
            publishing = asyncio.create_task(publisher.run())
            try:
                await _apply(bus, manifests(bookings))
                lines = await _in_flight(bus, publisher, requests, rate)
                names = [f"kept-{n}" for n in range(bookings)]
                _submit(publisher, POOL, names)
                await _until_booked(bus, bookings)
                await asyncio.sleep(CALM_SECONDS)
                lines.append(await _one_by_one(bus, publisher, names[: bookings // 2], bookings))
                for name in names[bookings // 2 :]:
                    publisher.publish(f"admit.workload.finished.default.{name}", _finished(name))
                await publisher.until_acknowledged()
                ended = clock.monotonic()
                kill(child.pid)
            finally:
                publishing.cancel()
                await bus.close()
            await child.process.wait()
            began = clock.monotonic()
            child = await start(arguments, log)
            bus = await Bus.connect(await child.ready(PATIENCE), name="admit-bench")
            ready = clock.monotonic() - began
            try:
                await _until_booked(bus, 0)
            finally:
                await bus.close()
            over = clock.monotonic()
        finally:
            await child.stop()
    return [
        *lines,
        f"{bookings - bookings // 2} workloads end and everything is killed: their bookings are "
        f"gone {over - ended:.1f} s after the ends, {over - began:.1f} s after the new start, "
        f"which was ready after {ready:.1f} s",
    ]


async def _one_by_one(bus: Bus, publisher: Publisher, names: list[str], before: int) -> str:
    took: list[float] = []
    for number, name in enumerate(names[:20], 1):
        began = clock.monotonic()
        publisher.publish(f"admit.workload.finished.default.{name}", _finished(name))
        await _until_booked(bus, before - number)
        took.append(1000 * (clock.monotonic() - began))
    began = clock.monotonic()
    for name in names[20:]:
        publisher.publish(f"admit.workload.finished.default.{name}", _finished(name))
    await _until_booked(bus, before - len(names))
    over = clock.monotonic() - began
    told = delay(took or [0.0])
    return (
        f"a workload ends: its booking is gone after p50 {told.p50:.0f} ms, p99 {told.p99:.0f} ms; "
        f"those of {max(0, len(names) - 20)} at once after {over:.2f} s"
    )


def kill(pid: int) -> None:
    """``kill -9`` of the process and of all that it started."""
    for process in family(pid):
        with suppress(psutil.NoSuchProcess):
            process.kill()


def command() -> list[str]:
    """Runs the benchmark with the options of the command line; returns the lines to print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--requests", type=int, default=1000, help="in flight at once")
    parser.add_argument("--rate", type=float, default=50.0, help="provisioned a second")
    parser.add_argument("--bookings", type=int, default=200, help="kept when all is killed")
    found = parser.parse_args()
    if found.requests < 2 or found.bookings < 2 or found.rate <= 0:
        raise SetupError("--requests and --bookings must be at least 2, --rate greater than 0")
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(measured(found.requests, found.rate, found.bookings))


if __name__ == "__main__":
    main_of(command)
