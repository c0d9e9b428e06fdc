"""The invariants of machines fire where what is stored, said or run breaks them, and only there."""

from __future__ import annotations

from math import inf
from typing import Any

import msgspec
import pytest

from admittance.events.codec import encode
from admittance.events.facts import CheckReported
from admittance.events.placement import PlacementPart
from admittance.events.subjects import subject_of
from admittance.lease import service_domain
from admittance.runner.host.records import Spec
from admittance.runtime.leader.lease_store import fence
from simulation.environment.machine_specs import GPU, MachineSpec
from simulation.family_world import ADMITTED, RESERVED, World
from simulation.invariants.machines.bookings import CONTROLLER
from simulation.invariants.machines.fences import SUBJECT
from simulation.invariants.observer import MACHINES
from simulation.invariants.seen import Seen
from simulation.nats.observed import Stored
from simulation.plots.configuration import manifest
from simulation.transcript import Broken

PLACEMENT = service_domain("placement")


def part(runner: str, first: int, *gpus: str, count: int = 0) -> PlacementPart:
    return PlacementPart(
        runner=runner,
        id=runner,
        pod_set="main",
        first=first,
        count=count or len(gpus),
        devices={GPU: gpus} if gpus else {},
    )


WHOLE = (part("r-a", 0, "0"), part("r-b", 1, "0"))


class Machines:
    """Two machines with two cores and two devices each, and the flavor f0, which is covered."""

    def __init__(self) -> None:
        self.world = World(quota=9)
        self.looks = self.world.looks
        for name in ("r-a", "r-b"):
            status = {"id": name, "capacity": {"cpu": "2", GPU: "2"}}
            made = manifest("Runner", name, {})
            self.world.put(
                f"runner.{name}", {**made, "apiVersion": "admittance.dev/v1", "status": status}
            )
        check = {
            "controllerName": CONTROLLER,
            "onFlavors": ["f0"],
            "preemptionPolicy": "AfterCheckPassedOrOnDemand",
        }
        self.world.put("admissioncheck.machines", manifest("AdmissionCheck", MACHINES, check))
        stated = f"admit.object.applied.admissioncheck._.{MACHINES}"
        self.looks.logged(Stored(1, stated, b"{}", {}, 0.0))
        self.seen: dict[str, Seen] = {}
        self.fact = 10

    def write(
        self,
        name: str,
        parts: tuple[PlacementPart, ...],
        *,
        admitted: bool = True,
        pods: int = 2,
        gpus: int = 1,
        said: bool = True,
    ) -> None:
        """Stores a job of one core and ``gpus`` devices each pod. ``said``: by its check."""
        self.fact += 1
        key = f"workload.ns.{name}"
        if said:
            verdict = CheckReported(
                namespace="ns",
                name=name,
                check=MACHINES,
                controller=CONTROLLER,
                cycle=0,
                state="Ready",
                placement=parts,
            )
            self.looks.effects.verdicts[key][MACHINES].append((1, verdict))
        requests = {"cpu": "1", **({GPU: str(gpus)} if gpus else {})}
        template = {"spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}}
        usage = {"name": "main", "count": pods, "flavors": {"cpu": "f0"}}
        plain = msgspec.to_builtins(parts)
        status: dict[str, Any] = {
            "conditions": ADMITTED if admitted else RESERVED,
            "admission": {
                "clusterQueue": "q",
                "podSetAssignments": [{**usage, "resourceUsage": {"cpu": str(pods)}}],
            },
            "admissionChecks": [{"name": MACHINES, "state": "Ready", "placement": plain}],
            "log": {"fact": self.fact},
        }
        if admitted:
            status["placement"] = plain
        made = manifest("Workload", name, {"podSets": [{"count": pods, "template": template}]})
        made["metadata"] = {"namespace": "ns", "name": name, "uid": name}
        data = msgspec.json.encode({**made, "status": status})
        before = self.seen.get(key, Seen())
        after = Seen.of(Stored(self.fact, key, data, {}, 0.0), self.world.kernel.time())
        self.seen[key] = self.looks.seen[key] = after
        self.looks.bookings.stored(key, before, after)

    def run(self, name: str, runner: str, *units: str, number: int = 0, revision: int = 9) -> None:
        """Starts a run with one core on a machine of two cores."""
        key = f"ns.{name}.{revision}" + (f"-{number}" if number else "")
        spec = Spec(
            sets=(),
            key=key,
            mark="",
            namespace="ns",
            name=name,
            uid=name,
            revision=revision,
            notify="",
            lease="",
            lease_stop=inf,
            lease_kill=inf,
            units=tuple(f"{GPU}={unit}" for unit in units),
            part=number,
            placed=True,
            requests={"cpu": 1000},
        )
        self.looks.machines.started(spec, runner, MachineSpec(cpu=2, gpus=2))

    def verdict(self, epoch: int) -> None:
        """A leader of that epoch gives a verdict."""
        verdict = CheckReported(
            namespace="ns", name="w", check=MACHINES, controller=CONTROLLER, cycle=0, state="Ready"
        )
        headers = fence(PLACEMENT, epoch)
        self.looks.fences.logged(Stored(50, subject_of(verdict), encode(verdict), headers, 0.0))


def test_what_keeps_the_promises_is_no_fault() -> None:
    machines = Machines()
    machines.write("a", WHOLE, admitted=False)
    machines.write("a", WHOLE)
    machines.run("a", "r-a", "0", number=1)
    machines.run("a", "r-b", "0", number=2)
    machines.write("b", (part("r-a", 0, "1"),), pods=1)
    machines.run("b", "r-a", "1")
    machines.looks.machines.ended("ns.b.9")
    machines.run("b", "r-a", "1", revision=10)
    machines.looks.fences.logged(Stored(40, SUBJECT, b"", {}, 0.0))
    machines.verdict(40)
    # The batch of a verdict may give before it takes.
    machines.write("c", (part("r-b", 0, "1"),), admitted=False, pods=1)
    machines.write("d", (part("r-b", 0, "1"),), admitted=False, pods=1)
    machines.write("c", (), admitted=False, pods=1)
    machines.looks.bookings.acknowledged(machines.fact)


@pytest.mark.parametrize(
    ("parts", "wrong"),
    [
        ((part("r-a", 0, "0"),), "2 pods main are placed as [0]"),
        ((part("r-a", 0, "0"), part("r-b", 0, "0")), "2 pods main are placed as [0, 0]"),
        ((part("r-a", 0, "0", count=2),), "2 pods with 1 nvidia.com/gpu each are assigned ('0',)"),
        ((part("r-a", 0, "0"), part("r-a", 1, "0")), "it is assigned a unit twice"),
    ],
)
def test_an_assignment_without_each_pod_and_unit_once_is_a_fault(
    parts: tuple[PlacementPart, ...], wrong: str
) -> None:
    with pytest.raises(Broken) as broken:
        Machines().write("a", parts, admitted=False)
    assert wrong in str(broken.value)


def test_a_device_or_a_core_of_two_workloads_is_a_fault() -> None:
    machines = Machines()
    machines.write("a", WHOLE)
    machines.write("b", (part("r-a", 0, "0"),), admitted=False, pods=1)
    with pytest.raises(Broken, match=r"'nvidia.com/gpu=0'.* of r-a, which workload.ns.a holds"):
        machines.looks.bookings.acknowledged(machines.fact)
    with pytest.raises(Broken, match="3000m cpu are assigned on r-b, which has 2000m"):
        machines.write("c", (part("r-b", 0, count=2),), gpus=0)


@pytest.mark.parametrize(
    ("said", "parts", "wrong"),
    [
        (True, (), "is placed on no machine"),
        (False, WHOLE, "which no verdict said"),
    ],
)
def test_an_admission_without_the_machines_of_its_check_is_a_fault(
    said: bool, parts: tuple[PlacementPart, ...], wrong: str
) -> None:
    machines = Machines()
    with pytest.raises(Broken, match=wrong):
        machines.write("a", parts, said=said)


@pytest.mark.parametrize(
    ("run", "wrong"),
    [
        (("a", "r-c", "0", 1, 9), "is placed on ['r-a', 'r-b']"),
        (("a", "r-a", "0", 2, 9), "starts as part 2, and r-a has part 1"),
        (("a", "r-a", "1", 1, 9), "is assigned ['nvidia.com/gpu=0']"),
        (("old", "r-a", "1", 0, 10), "starts while ns.old.9 runs"),
        (("new", "r-a", "0", 0, 9), "is used by ns.old.9 and by ns.new.9"),
        (("full", "r-b", "1", 0, 9), "has 2 cpu, and 3000m run on it"),
    ],
)
def test_a_run_that_breaks_a_promise_is_a_fault(
    run: tuple[str, str, str, int, int], wrong: str
) -> None:
    machines = Machines()
    machines.write("a", WHOLE)
    machines.run("old", "r-a", "0")
    machines.run("x", "r-b")
    machines.run("y", "r-b")
    name, runner, unit, number, revision = run
    with pytest.raises(Broken) as broken:
        machines.run(name, runner, unit, number=number, revision=revision)
    assert wrong in str(broken.value)


def test_a_verdict_of_a_deposed_placement_is_a_fault() -> None:
    machines = Machines()
    for epoch in (30, 40):
        machines.looks.fences.logged(Stored(epoch, SUBJECT, b"", {}, 0.0))
    with pytest.raises(Broken, match="placement of epoch 30 gives a verdict in epoch 40"):
        machines.verdict(30)
