"""All services on one real nats-server, shared by many scenarios, each with names of its own.

Checks are plain NATS subscribers: their requests are recorded, and the test answers for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
from nats.aio.msg import Msg

from admittance.events import facts
from admittance.events.base import Fact
from admittance.events.codec import Undecodable, decode
from admittance.events.names import token
from admittance.runtime import clock
from admittance.runtime.bus import streams
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.workload import stored
from admittance.workload.conditions import find
from admittance.workload.phase import phase
from admittance.workload.stored import StoredWorkload, head
from simulation.invariants.siblings import between
from support.builders import an_object
from support.cluster import Cluster
from support.cores.families.family_invariants import FamilyWatch
from support.cores.lifecycle_invariants import Watch
from support.requests import apply, submit
from support.servers import TestServer, within

API = "kueue.x-k8s.io/v1beta2"
NS = "ns"
SERVICES = ("workload-controller", "scheduler", "retry-timer", "variant-controller", "runner")
JOB = """
trap 'while [ -e {hold} ]; do sleep 0.05; done
  echo stopped {name} >> {trail}; kill $!; exit 143' TERM
echo started {name} >> {trail}
sleep 3600 & wait
"""


class Stage:
    """``revisions``: all stored revisions of all workloads, in order. ``asked``: requests and
    withdrawals of checks. ``folder``: the folder in which jobs leave a trail."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server = TestServer(folder / "data")
        self.revisions: dict[str, list[StoredWorkload]] = {}
        self.asked: list[Fact] = []
        self.broken: list[str] = []
        self.trail = folder / "trail"
        self.families = FamilyWatch()
        self._watch = Watch()
        self._moved = asyncio.Event()
        self._mine: dict[str, None] = {}
        self._made: set[str] = set()

    async def start(self) -> Stage:
        """Starts the server and all services."""
        await self.server.start()
        self.bus = await Bus.connect(self.server.url, name="stage")
        await streams.ensure(self.bus)
        await self.bus.nc.subscribe("$KV.admittance.workload.>", cb=self._stored)
        await self.bus.nc.subscribe("admit.check.>", cb=self._on_message)
        await self.bus.nc.subscribe("admit.workload.>", cb=self._on_message)
        await self.bus.nc.flush()
        self.cluster = Cluster(self.server, self.folder)
        for service in SERVICES:
            await self.cluster.start(service)
        self.trail.touch()
        return self

    async def end_scenario(self) -> None:
        """Ends the jobs and deletes the workloads of the scenario."""
        for name in self._mine:
            self.hold(name).unlink(missing_ok=True)
            await self.say("deleted", name)
        self._mine.clear()

    async def kill(self, *services: str) -> None:
        """kill -9 of these, or of all services, at once."""
        processes = [
            process
            for process in self.cluster.processes
            if process.service in (services or SERVICES)
        ]
        await asyncio.gather(*(process.kill() for process in processes))

    async def lose_server(self) -> None:
        """kill -9 of the server, which comes back on what it has stored."""
        back = asyncio.Event()
        self.bus.reconnected.append(back.set)
        await self.server.restart_after_kill()
        await within(back.wait())
        self.bus.reconnected.remove(back.set)
        await self.bus.nc.flush()

    async def start_again(self, *services: str) -> None:
        """Starts these, or all services, that were killed."""
        for process in self.cluster.processes:
            if process.service in (services or SERVICES):
                await process.start()

    async def stop(self) -> None:
        await self.cluster.stop()
        await self.bus.close()
        await self.server.stop()

    # Facts. ---------------------------------------------------------------------------------

    async def _stored(self, message: Msg) -> None:
        key = message.subject.removeprefix("$KV.admittance.")
        name = key.rpartition(".")[2]
        workload = stored.decode(message.data) if message.data else None
        try:
            self._watch.saw(key, workload, clock.now())
            self.families.saw(key, workload)
        except AssertionError as error:
            self.broken.append(str(error))
        if workload is not None:
            self.revisions.setdefault(name, []).append(workload)
        else:
            self.revisions.pop(name, None)
        self._moved.set()

    async def _on_message(self, message: Msg) -> None:
        try:
            fact = decode(message.subject, message.data)
        except Undecodable:
            return
        if message.subject.startswith("admit.check."):
            self.asked.append(fact)
        if isinstance(fact, facts.Admitted | facts.Evicted) and fact.name in self.families.names:
            self.broken.append(f"a runner got a fact about the variant {fact.name}")
        self._moved.set()

    async def until(self, claim: Callable[[], bool], what: str = "") -> None:
        """Waits until claim holds; fails with what the workloads look like when it does not."""

        async def wait() -> None:
            while not claim():
                self._moved.clear()
                try:
                    # Some claims come true by the clock alone, or in a file.
                    await asyncio.wait_for(self._moved.wait(), 0.05)
                except TimeoutError:
                    continue

        try:
            await within(wait())
        except TimeoutError:
            shown = "\n".join(
                f"{name}: {self.now(name).status}" for name in self._mine if self.has(name)
            )
            raise AssertionError(f"never: {what}\n{shown}") from None

    # Configuration. -------------------------------------------------------------------------

    async def put(self, kind: str, name: str, spec: Any = None, namespace: str = "") -> None:
        """Applies an object of that kind."""
        await apply(self.bus, self._object(kind, name, spec, namespace))

    def _object(self, kind: str, name: str, spec: Any, namespace: str = "") -> dict[str, Any]:
        meta = {"name": name, **({"namespace": namespace} if namespace else {})}
        self._made.add(f"{kind}/{name}")
        return {"apiVersion": API, "kind": kind, "metadata": meta, "spec": spec}

    async def queue(
        self,
        name: str,
        flavors: dict[str, tuple[str, ...]] | None = None,
        *,
        cpu: int | dict[str, int] = 10,
        **spec: Any,
    ) -> None:
        """Applies a ClusterQueue and its LocalQueue, with these flavors and their checks (default:
        one flavor without a check). The checks are created first."""
        flavors = flavors if flavors is not None else {f"{name}-f": ()}
        checks = [*spec.get("admissionChecks", ()), *(c for cs in flavors.values() for c in cs)]
        made = [
            self._object("AdmissionCheck", check, {"controllerName": f"ctl-{check}"})
            for check in checks
            if f"AdmissionCheck/{check}" not in self._made
        ]
        offered = []
        for flavor, of_flavor in flavors.items():
            made.append(self._object("ResourceFlavor", flavor, {}))
            quota = cpu if isinstance(cpu, int) else cpu[flavor]
            pod_set: dict[str, Any] = {
                "name": flavor,
                "resources": [{"name": "cpu", "nominalQuota": quota}],
            }
            if of_flavor:
                pod_set["admissionChecks"] = list(of_flavor)
            offered.append(pod_set)
        group = {"coveredResources": ["cpu"], "flavors": offered}
        whole = {"namespaceSelector": {}, "resourceGroups": [group], **spec}
        made.append(self._object("ClusterQueue", name, whole))
        made.append(self._object("LocalQueue", name, {"clusterQueue": name}, NS))
        await apply(self.bus, *made)

    async def check(self, name: str, controller: str = "", **spec: Any) -> None:
        """Applies an AdmissionCheck; its controller is ``ctl-<name>`` by default."""
        await self.put(
            "AdmissionCheck", name, {"controllerName": controller or f"ctl-{name}", **spec}
        )

    # Facts. ---------------------------------------------------------------------------------

    def hold(self, name: str) -> Path:
        """The file that keeps the job from stopping while it exists."""
        return self.folder / f"hold-{name}"

    def script(self, name: str) -> str:
        """The script of a process that leaves a trail under that name, and runs until it is
        stopped."""
        return JOB.format(hold=self.hold(name), name=name, trail=self.trail)

    async def submit(self, name: str, queue: str, cpu: int = 8, **spec: Any) -> None:
        """Submits a workload that runs until it is stopped, and writes a trail."""
        self.revisions.pop(name, None)
        self._mine[name] = None
        script = self.script(name)
        container = {
            "name": "main",
            "image": "none",
            "command": ["/bin/sh", "-c", script],
            "resources": {"requests": {"cpu": str(cpu)}},
        }
        pod = {
            "containers": [container],
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 60,
        }
        pods = {"name": "main", "count": 1, "template": {"spec": pod}}
        manifest = an_object(
            "Workload", name, {"podSets": [pods], "queueName": queue, **spec}, namespace=NS
        )
        await submit(self.bus, [manifest])

    async def say(self, what: str, name: str, **fields: Any) -> None:
        """Publishes a fact as a user or a runner."""
        said = {"namespace": NS, "name": name, **fields}
        subject = f"admit.workload.{what}.{NS}.{token(name)}"
        await self.bus.publish(Outgoing(subject, msgspec.json.encode(said)))

    async def answer(
        self,
        name: str,
        check: str,
        state: str,
        *,
        cycle: int | None = None,
        controller: str = "",
        after: int | None = None,
        **fields: Any,
    ) -> None:
        """Publishes a verdict of the check's controller, as plain JSON."""
        controller = controller or f"ctl-{check}"
        said = {
            "namespace": NS,
            "name": name,
            "controller": controller,
            "check": check,
            "cycle": self.cycle(name) if cycle is None else cycle,
            "state": state,
            **({"requeueAfterSeconds": after} if after is not None else {}),
            **fields,
        }
        subject = f"admit.check.reported.{token(controller)}.{NS}.{token(name)}"
        await self.bus.publish(Outgoing(subject, msgspec.json.encode(said)))

    async def request(self, check: str, name: str, times: int = 1) -> facts.CheckRequested:
        """Waits until the check was asked so often; the last time."""

        def requests() -> list[facts.CheckRequested]:
            return [
                request
                for request in self.asked
                if isinstance(request, facts.CheckRequested)
                and (request.check, request.name) == (check, name)
            ]

        await self.until(lambda: len(requests()) >= times, f"{check} is asked about {name}")
        return requests()[times - 1]

    def requests(self, check: str) -> list[str]:
        """The workloads that the check was asked about so far."""
        return [
            request.name
            for request in self.asked
            if isinstance(request, facts.CheckRequested) and request.check == check
        ]

    def withdrawn(self, check: str, name: str) -> list[str]:
        """The reasons of the withdrawals that the check received."""
        return [
            request.reason
            for request in self.asked
            if isinstance(request, facts.CheckWithdrawn)
            and (request.check, request.name) == (check, name)
        ]

    # Looking. -------------------------------------------------------------------------------

    def now(self, name: str) -> StoredWorkload:
        """The workload as it is."""
        return self.revisions[name][-1]

    def has(self, name: str) -> bool:
        return bool(self.revisions.get(name))

    def cycle(self, name: str) -> int:
        return self.now(name).status.admission_cycle

    def phase(self, name: str) -> str:
        """The phase of the workload; "" if the workload does not exist."""
        if not self.has(name):
            return ""
        return str(phase(self.now(name), clock.now()))

    async def is_in(self, name: str, *phases: str) -> StoredWorkload:
        """Waits until the workload is in one of these phases."""
        await self.until(lambda: self.phase(name) in phases, f"{name} is {' or '.join(phases)}")
        return self.now(name)

    async def has_moved(self, name: str, claim: Callable[[StoredWorkload], bool]) -> StoredWorkload:
        """Waits until the claim holds of the workload."""
        await self.until(lambda: self.has(name) and claim(self.now(name)), f"{name} has moved")
        return self.now(name)

    def states(self, name: str) -> dict[str, str]:
        return {row.name: row.state for row in self.now(name).status.admission_checks}

    def counts(self, name: str) -> dict[str, int]:
        return {row.name: row.retry_count for row in self.now(name).status.admission_checks}

    def reason(self, name: str, kind: str) -> str:
        """``True: Reason`` of a condition; "" when it is absent."""
        condition = find(self.now(name), kind)
        return f"{condition.status}: {condition.reason}" if condition is not None else ""

    def flavor(self, name: str) -> str:
        admission = self.now(name).status.admission
        return admission.pod_set_assignments[0].flavors["cpu"] if admission is not None else ""

    def waits_until(self, name: str) -> datetime:
        """The time from which the workload may compete again."""
        state = self.now(name).status.requeue_state
        assert state is not None
        assert state.requeue_at is not None
        return state.requeue_at

    def trail_of(self, name: str) -> list[str]:
        """The trail of its jobs: started, stopped."""
        lines = self.trail.read_text().splitlines()
        return [
            what
            for what, _, workload in (line.partition(" ") for line in lines)
            if workload == name
        ]

    async def is_on(self, parent: str, flavor: str, starts: int) -> None:
        """Waits until the family is admitted on the flavor and its job was started ``starts``
        times; then checks that parent and variants agree."""
        await self.runs(parent, starts)
        await self.until(
            lambda: self.flavor(parent) == flavor and self.phase(parent) in ("Admitted", "Running"),
            f"{parent} is on {flavor}",
        )
        broken = list(between(self.now(parent), self.variants(parent).values()))
        assert not broken, broken
        trail = self.trail_of(parent)
        assert trail == ["started", "stopped"] * (starts - 1) + ["started"], trail

    def variants(self, parent: str) -> dict[str, StoredWorkload]:
        """Its variants, by name."""
        return self.families.variants.get(self.now(parent).metadata.uid, {})

    def active(self, parent: str) -> set[str]:
        """The tags of its active variants."""
        return {
            head(variant).variant
            for variant in self.variants(parent).values()
            if head(variant).active
        }

    async def runs(self, name: str, times: int = 1) -> None:
        """Waits until its job was started so often."""
        await self.until(
            lambda: self.trail_of(name).count("started") >= times, f"{name} runs {times} times"
        )

    async def quiet(self, seconds: float = 0.4) -> None:
        """Waits a while, so that an event that must not happen has time to happen."""
        await asyncio.sleep(seconds)
