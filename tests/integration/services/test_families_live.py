"""The variant-controller as a process, beside the others, on a real server."""

from __future__ import annotations

import asyncio
import socket
import urllib.request
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from admittance.events import facts
from admittance.events.codec import encode
from admittance.events.requests import Families, FamiliesReply
from admittance.events.subjects import WorkloadName, address_of, subject_of
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.bus.history import last, read_messages
from admittance.runtime.telemetry.tracing import extract
from admittance.telemetry.log_reader import LogReader
from admittance.telemetry.open_traces import OpenTraces
from admittance.traces.spans import LoggedFact, Span
from admittance.workload.conditions import is_true
from admittance.workload.stored import StoredWorkload, head, owner_of
from support.builders import a_manifest
from support.cluster import Cluster
from support.cores.stepped_variants import a_cluster_queue
from support.requests import apply, ask, eventually, health, submit, workload, workloads
from support.servers import LIMIT
from support.service_process import ServiceProcess

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]

VERSION = "kueue.x-k8s.io/v1beta2"
FLAVORS = ("reservation", "demand", "spot")
NAME = WorkloadName("ns", "j")


def objects(*flavors: str, **more: Any) -> list[dict[str, Any]]:
    """ResourceFlavors, the ClusterQueue ``cq`` with a policy, and the LocalQueue ``lq``."""
    flavors = flavors or FLAVORS
    kinds = [
        {"apiVersion": VERSION, "kind": "ResourceFlavor", "metadata": {"name": name}}
        for name in flavors
    ]
    queue = a_cluster_queue(flavors, **more)
    queue["spec"]["namespaceSelector"] = {}
    local = {
        "apiVersion": VERSION,
        "kind": "LocalQueue",
        "metadata": {"name": "lq", "namespace": "ns"},
        "spec": {"clusterQueue": "cq"},
    }
    return [*kinds, queue, local]


class Place:
    """The workload-controller and what a test starts beside it."""

    def __init__(self, bus: Bus, cluster: Cluster) -> None:
        self.bus = bus
        self.cluster = cluster

    async def start(self, *services: str, **env: str) -> list[ServiceProcess]:
        return [await self.cluster.start(service, **env) for service in services]

    async def submit(self, *names: str, **spec: Any) -> None:
        await submit(self.bus, [a_manifest(name, **spec) for name in names])

    async def families(self) -> dict[str, list[StoredWorkload]]:
        """The variants of every parent, the best first."""
        found = await workloads(self.bus)
        parents = {one.metadata.uid: one.metadata.name for one in found if role(one) == "parent"}
        families: dict[str, list[StoredWorkload]] = {name: [] for name in parents.values()}
        for one in sorted(found, key=lambda one: head(one).sibling_index or 0):
            if role(one) == "variant" and owner_of(one)[1] in parents:
                families[parents[owner_of(one)[1]]].append(one)
        return families

    async def until(self, claim: Callable[[dict[str, list[StoredWorkload]]], bool]) -> None:
        async def so() -> bool:
            return claim(await self.families())

        await eventually(so)

    async def told(self) -> FamiliesReply:
        """The reply of the leading variant-controller to a query about its families."""
        found: FamiliesReply = await ask(self.bus, "admit.api.families", Families(), FamiliesReply)
        return found

    async def rest(self) -> None:
        """Waits until no act of the variant-controller is pending."""

        async def so() -> bool:
            return (await self.told()).pending == 0

        await eventually(so)

    async def why(self, name: str) -> dict[str, str]:
        """From the parent's status: by tag, why the variant is active or inactive."""
        parent = await workload(self.bus, name)
        return {row.variant: row.why for row in parent.status.variants} if parent else {}

    async def is_on(self, name: str, variant: str = "") -> bool:
        """It is admitted: by that variant, or by any."""
        one = await workload(self.bus, name)
        admitted = one is not None and is_true(one, "Admitted") and not is_true(one, "Evicted")
        return admitted and variant in ("", await self.admitted(name))

    async def admitted(self, name: str) -> str:
        one = await workload(self.bus, name)
        return one.status.admitted_variant if one is not None else ""

    async def runs(self, name: str) -> str:
        """Waits until it is admitted; by which variant."""
        await eventually(lambda: self.is_on(name))
        return await self.admitted(name)

    async def finish(self, name: str) -> None:
        """Publishes `finished`, as a user does with `admit finish`."""
        fact = facts.Finished(namespace="ns", name=name)
        await self.bus.publish(Outgoing(subject_of(fact), encode(fact)))

    async def leader(self, *among: ServiceProcess) -> ServiceProcess:
        """Waits until one of them leads."""
        found: list[ServiceProcess] = []

        async def so() -> bool:
            leads = {one.instance for one in await health(self.bus) if one.leads and one.ready}
            found[:] = [one for one in among if one.instance in leads]
            return bool(found)

        await eventually(so)
        return found[0]


def sleeping(name: str, allowed: list[str] | None) -> dict[str, Any]:
    """A workload that uses a whole flavor; its job runs until it is stopped."""
    more: dict[str, Any] = (
        {"admissionConstraints": {"allowedResourceFlavors": allowed}} if allowed else {}
    )
    manifest = a_manifest(name, requests={"cpu": "4"}, **more)
    (pods,) = manifest["spec"]["podSets"]
    (container,) = pods["template"]["spec"]["containers"]
    container["command"] = ["sleep", "600"]
    return manifest


def a_free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


async def scrape(port: int) -> str:
    answer = await asyncio.to_thread(
        urllib.request.urlopen, f"http://127.0.0.1:{port}/metrics", timeout=LIMIT
    )
    text: str = answer.read().decode()
    answer.close()
    return text


def role(one: StoredWorkload) -> str:
    return head(one).role


def tags(variants: list[StoredWorkload]) -> list[str]:
    return [head(one).variant for one in variants]


@pytest.fixture
async def place(bus: Bus, cluster: Cluster) -> AsyncIterator[Place]:
    found = Place(bus, cluster)
    await found.start("workload-controller")
    yield found


async def test_with_the_gate_off_there_are_no_families(place: Place, tmp_path: Path) -> None:
    (controller,) = place.cluster.processes
    await controller.stop()
    file = tmp_path / "configuration.yaml"
    file.write_text(
        "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
        "featureGates: {ConcurrentAdmission: false}\n"
    )
    await place.start("workload-controller", "variant-controller", ADMIT_CONFIG=str(file))
    await apply(place.bus, *objects())
    await place.submit("j")

    async def stored() -> bool:
        return await workload(place.bus, "j") is not None

    await eventually(stored)
    await place.rest()
    assert [(one.metadata.name, role(one)) for one in await workloads(place.bus)] == [
        ("j", "regular")
    ]


async def test_a_stale_variant_controller_does_no_harm_after_a_pause(
    place: Place,
) -> None:
    both = await place.start("variant-controller", "variant-controller")
    await apply(place.bus, *objects())
    await place.submit("first")
    await place.until(lambda found: len(found.get("first", [])) == 3)
    leader = await place.leader(*both)
    leader.pause()
    names = [f"j{number}" for number in range(20)]
    await place.submit(*names)
    await place.until(lambda found: all(len(found.get(name, [])) == 3 for name in names))
    leader.resume()
    # It says what the other one has said long ago, and hears then that it leads no more.
    (other,) = (one for one in both if one is not leader)

    async def only_the_other_leads() -> bool:
        answers = [one for one in await health(place.bus) if one.service == "variant-controller"]
        leads = [one.instance for one in answers if one.leads]
        return len(answers) == 2 and leads == [other.instance]

    await eventually(only_the_other_leads)
    await place.rest()
    families = await place.families()
    assert {tuple(tags(found)) for found in families.values()} == {FLAVORS}


async def test_a_variant_controller_killed_midway_leaves_no_partial_family(place: Place) -> None:
    """kill -9 while hundreds of families are made: the next one makes what is lacking, once."""
    await apply(place.bus, *objects())
    names = [f"j{number}" for number in range(300)]
    (controller,) = place.cluster.processes
    process = (await place.start("variant-controller"))[0]
    await place.leader(process)
    # So that nothing that it says has an effect before it dies.
    controller.pause()
    await place.submit(*names)
    controller.resume()
    for _ in range(3):
        await place.until(lambda found: any(found.values()))
        await process.kill()
        process = (await place.start("variant-controller"))[0]
        await place.leader(process)
    await place.until(
        lambda found: len(found) == 300 and all(len(one) == 3 for one in found.values())
    )
    await place.rest()
    families = await place.families()
    assert {tuple(tags(found)) for found in families.values()} == {FLAVORS}
    before = await last(place.bus, "admit.workload.*.ns.*")
    told = await place.told()
    assert told.families == 300
    after = await last(place.bus, "admit.workload.*.ns.*")
    assert before is not None
    assert after is not None
    assert before.sequence == after.sequence, "it goes on talking"


@pytest.mark.servers("real")
async def test_a_job_migrates_and_finishes_without_leftover_messages(place: Place) -> None:
    """With all services: a family is admitted on the free flavor and migrates when the better
    flavor becomes free. After each step all commands show the true state."""
    port = a_free_port()
    await place.start("scheduler", "retry-timer", "runner")
    await place.start("variant-controller", ADMIT_ADMIN=f"127.0.0.1:{port}")
    await apply(place.bus, *objects("reservation", "spot"))
    sleeps = [sleeping("first", ["reservation"]), sleeping("second", None)]
    for manifest in sleeps:
        await submit(place.bus, [manifest])
        await place.runs(manifest["metadata"]["name"])
        await place.rest()
    parent = await workload(place.bus, "second")
    assert parent is not None
    (*_, spot) = (await place.families())["second"]
    assert spot.metadata.name == "second-variant-spot"
    assert owner_of(spot) == ("second", parent.metadata.uid)
    assert await place.why("first") == {"reservation": "admitted"}
    assert await place.why("second") == {"reservation": "upgrade", "spot": "admitted"}
    assert await place.runs("second") == "second-variant-spot"
    await place.finish("first")
    await eventually(lambda: place.is_on("second", "second-variant-reservation"))
    await place.rest()
    assert await place.why("second") == {"reservation": "admitted", "spot": "lowerThanAdmitted"}
    await place.finish("second")
    await place.until(
        lambda found: all(is_true(one, "Finished") for family in found.values() for one in family)
    )
    await place.rest()
    told = await place.told()
    assert (told.families, told.stuck, told.gates_open) == (2, 0, {})
    assert "admittance_preemption_gate_open" in await scrape(port)


async def test_a_trace_continues_in_the_middle_of_a_family_that_runs(place: Place) -> None:
    await place.start("scheduler", "variant-controller", "runner")
    await apply(place.bus, *objects())
    await submit(place.bus, [sleeping("j", None)])
    await place.runs("j")
    await place.rest()
    log = await facts_of_log(place.bus)
    reader = LogReader(place.bus, "test")

    async def read(facts: list[LoggedFact]) -> list[Span]:
        traces = OpenTraces(lambda *_: True, reader.history)
        return [span for one in facts for span in await traces.read(one)]

    family = {address_of(one.subject).name for one in await reader.history(NAME, ())}
    assert family == {"j", *(f"j-variant-{one}" for one in FLAVORS)}
    (middle,) = (n for n, one in enumerate(log) if ".quota_reserved." in one.subject)
    before = await read(log[:middle])
    await place.finish("j")

    async def ended() -> bool:
        log[:] = await facts_of_log(place.bus)
        found = await workload(place.bus, "j")
        return found is not None and is_true(found, "Finished")

    await eventually(ended)
    await place.rest()
    log = await facts_of_log(place.bus)
    whole = await read(log)
    assert {one.name for one in whole} >= {"workload", "variant reservation", "variant spot"}
    parts = {one.span_id for one in (*before, *await read(log[middle:]))}
    assert parts == {one.span_id for one in whole}


async def facts_of_log(bus: Bus) -> list[LoggedFact]:
    found: list[LoggedFact] = []
    while page := await read_messages(bus, ["admit.>"], after=found[-1].sequence if found else 0):
        for one in page:
            trace = extract(one.headers)
            found.append(LoggedFact(one.sequence, one.time, one.subject, one.data, trace))
    return found
