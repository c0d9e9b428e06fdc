"""The variant-controller as a process, beside the others, on a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from admittance.events import facts
from admittance.events.codec import encode
from admittance.events.requests.services import Families, FamiliesReply
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
from support.cores.families.stepped_variants import a_cluster_queue
from support.processes.service_process import ServiceProcess
from support.requests import apply, ask, eventually, health, submit, workload, workloads

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
        stored = await workloads(self.bus)
        parents = {
            parent.metadata.uid: parent.metadata.name
            for parent in stored
            if role(parent) == "parent"
        }
        families: dict[str, list[StoredWorkload]] = {name: [] for name in parents.values()}
        for variant in sorted(stored, key=lambda variant: head(variant).sibling_index or 0):
            if role(variant) == "variant" and owner_of(variant)[1] in parents:
                families[parents[owner_of(variant)[1]]].append(variant)
        return families

    async def until(self, claim: Callable[[dict[str, list[StoredWorkload]]], bool]) -> None:
        async def so() -> bool:
            return claim(await self.families())

        await eventually(so)

    async def reply(self) -> FamiliesReply:
        """The reply of the leading variant-controller to a query about its families."""
        reply: FamiliesReply = await ask(self.bus, "admit.api.families", Families(), FamiliesReply)
        return reply

    async def rest(self) -> None:
        """Waits until no act of the variant-controller is pending."""

        async def so() -> bool:
            return (await self.reply()).pending == 0

        await eventually(so)

    async def is_there(self, name: str, condition: str = "") -> None:
        """Waits until it is stored, and the condition is true."""

        async def so() -> bool:
            member = await workload(self.bus, name)
            return member is not None and (not condition or is_true(member, condition))

        await eventually(so)

    async def leader(self, *among: ServiceProcess) -> ServiceProcess:
        """Waits until one of them leads."""
        leading: list[ServiceProcess] = []

        async def so() -> bool:
            leads = {
                reply.instance for reply in await health(self.bus) if reply.leads and reply.ready
            }
            leading[:] = [process for process in among if process.instance in leads]
            return bool(leading)

        await eventually(so)
        return leading[0]


def role(member: StoredWorkload) -> str:
    return head(member).role


def tags(variants: list[StoredWorkload]) -> list[str]:
    return [head(variant).variant for variant in variants]


@pytest.fixture
async def place(bus: Bus, cluster: Cluster) -> AsyncIterator[Place]:
    place_made = Place(bus, cluster)
    await place_made.start("workload-controller")
    yield place_made


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
    await place.is_there("j")
    await place.rest()
    assert [
        (workload.metadata.name, role(workload)) for workload in await workloads(place.bus)
    ] == [("j", "regular")]


async def test_a_stale_variant_controller_does_no_harm_after_a_pause(
    place: Place,
) -> None:
    both = await place.start("variant-controller", "variant-controller")
    await apply(place.bus, *objects())
    await place.submit("first")
    await place.until(lambda variants: len(variants.get("first", [])) == 3)
    leader = await place.leader(*both)
    leader.pause()
    names = [f"j{number}" for number in range(20)]
    await place.submit(*names)
    await place.until(lambda variants: all(len(variants.get(name, [])) == 3 for name in names))
    leader.resume()
    # It says what the other one has said long ago, and hears then that it leads no more.
    (other,) = (process for process in both if process is not leader)

    async def only_the_other_leads() -> bool:
        answers = [
            reply for reply in await health(place.bus) if reply.service == "variant-controller"
        ]
        leads = [answer.instance for answer in answers if answer.leads]
        return len(answers) == 2 and leads == [other.instance]

    await eventually(only_the_other_leads)
    await place.rest()
    families = await place.families()
    assert {tuple(tags(family)) for family in families.values()} == {FLAVORS}


async def test_a_variant_controller_killed_midway_leaves_no_partial_family(place: Place) -> None:
    """kill -9 while many families are made: the next one makes what is lacking, once."""
    await apply(place.bus, *objects())
    names = [f"j{number}" for number in range(150)]
    (controller,) = place.cluster.processes
    process = (await place.start("variant-controller"))[0]
    await place.leader(process)
    # So that nothing that it says has an effect before it dies.
    controller.pause()
    await place.submit(*names)
    controller.resume()
    for _ in range(3):
        await place.until(lambda variants: any(variants.values()))
        await process.kill()
        process = (await place.start("variant-controller"))[0]
        await place.leader(process)
    await place.until(
        lambda variants: (
            len(variants) == 150 and all(len(members) == 3 for members in variants.values())
        )
    )
    await place.rest()
    families = await place.families()
    assert {tuple(tags(family)) for family in families.values()} == {FLAVORS}
    before = await last(place.bus, "admit.workload.*.ns.*")
    reply = await place.reply()
    assert reply.families == 150
    after = await last(place.bus, "admit.workload.*.ns.*")
    assert before is not None
    assert after is not None
    assert before.sequence == after.sequence, "it still publishes"


async def test_a_trace_continues_in_the_middle_of_a_family_that_runs(place: Place) -> None:
    await place.start("scheduler", "variant-controller", "runner")
    await apply(place.bus, *objects())
    await place.submit("j", requests={"cpu": "4"})
    await place.is_there("j", "Admitted")
    await place.rest()
    log = await facts_of_log(place.bus)
    reader = LogReader(place.bus, "test")

    async def read(facts: list[LoggedFact]) -> list[Span]:
        traces = OpenTraces(lambda *_: True, reader.history)
        return [span for fact in facts for span in await traces.read(fact)]

    family = {address_of(message.subject).name for message in await reader.history(NAME, ())}
    assert family == {"j", *(f"j-variant-{flavor}" for flavor in FLAVORS)}
    (middle,) = (n for n, message in enumerate(log) if ".quota_reserved." in message.subject)
    before = await read(log[:middle])
    finished = facts.Finished(namespace="ns", name="j")
    await place.bus.publish(Outgoing(subject_of(finished), encode(finished)))
    await place.is_there("j", "Finished")
    await place.rest()
    log = await facts_of_log(place.bus)
    whole = await read(log)
    assert {span.name for span in whole} >= {"workload", "variant reservation", "variant spot"}
    parts = {span.span_id for span in (*before, *await read(log[middle:]))}
    assert parts == {span.span_id for span in whole}


async def facts_of_log(bus: Bus) -> list[LoggedFact]:
    logged: list[LoggedFact] = []
    while page := await read_messages(bus, ["admit.>"], after=logged[-1].sequence if logged else 0):
        for message in page:
            trace = extract(message.headers)
            logged.append(
                LoggedFact(message.sequence, message.time, message.subject, message.data, trace)
            )
    return logged
