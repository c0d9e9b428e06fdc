"""What is missing, in one sentence with numbers."""

from __future__ import annotations

from typing import Any

import pytest

from admittance.api.meta import Taint
from admittance.api.pods import NodeSelectorRequirement, NodeSelectorTerm
from admittance.events.system import RunnerStarts
from admittance.placement.machines.machine import HOSTNAME, Machine
from admittance.placement.search.request import Demands, PlacementRequest, PodGroup
from admittance.placement.search.shortage import SENTENCE_MAX, Shortage, Why, _head, amount_text
from support.machines import GPU, Machines, a_group, a_machine, a_request

TAINT = Taint(key="team", value="x", effect="NoSchedule")
NO_ZONE = NodeSelectorTerm(
    match_expressions=(NodeSelectorRequirement(key="zone", operator="DoesNotExist"),)
)


def shortage(request: PlacementRequest, *machines: Machine) -> Shortage:
    missing = Machines(*machines).place(request)
    assert isinstance(missing, Shortage)
    return missing


def used(name: str, gpus: int, free: int, **more: Any) -> tuple[Machine, PlacementRequest]:
    """A machine with so many GPUs and free GPUs, and the request that takes the others."""
    group = a_group(gpus=gpus - free, selector={HOSTNAME: name}) if gpus > free else a_group(0)
    return a_machine(name, gpus=gpus, **more), a_request(f"n/{name}", group)


def no_room(request: PlacementRequest, *pairs: tuple[Machine, PlacementRequest]) -> Shortage:
    machines = Machines(*(machine for machine, _ in pairs))
    for _, taken in pairs:
        machines.book(taken)
    missing = machines.place(request)
    assert isinstance(missing, Shortage)
    assert missing.why is Why.ROOM
    assert missing.may_end
    return missing


def test_a_lack_of_devices_names_the_nearest_machines() -> None:
    missing = no_room(
        a_request("n/w", a_group(gpus=4)),
        *(used("gpu-0", 4, 0), used("gpu-1", 4, 3), used("gpu-2", 4, 2), used("gpu-3", 4, 1)),
    )
    assert missing.message == ("4 GPUs on one machine: gpu-1 has 3 free, gpu-2 has 2, gpu-3 has 1")


def test_a_gang_says_how_many_of_its_pods_have_room() -> None:
    missing = no_room(
        a_request("n/w", a_group(4, gpus=3)),
        *(used("a", 8, 7), used("b", 8, 5)),
    )
    assert missing.message == "4 pods with 3 GPUs each: room for 3; b has 2 free, a has 1"


def test_a_gang_among_many_machines_is_counted_and_not_tried() -> None:
    machines = [a_machine(f"m{n}", gpus=4) for n in range(300)]
    taken = a_request("n/old", a_group(299, gpus=2))
    missing = no_room(
        a_request("n/w", a_group(300, gpus=3)),
        (machines[0], taken),
        *[(machine, a_request("n/none", a_group(0))) for machine in machines[1:]],
    )
    assert missing.message == "300 pods with 3 GPUs and 1 cpu each: room for at most 150"


def test_only_the_resources_that_are_short_are_named() -> None:
    missing = no_room(
        a_request("n/w", a_group(gpus=2, cpu=8, memory=1)),
        *(used("a", 4, 4, cpu=8), used("b", 4, 1, cpu=8)),
        *[(a_machine("c", cpu=4), a_request("n/c", a_group(cpu=4, selector={HOSTNAME: "a"})))],
    )
    assert missing.message == (
        "2 GPUs and 8 cpu on one machine: a has 4 GPUs and 4 cpu free, "
        "b has 1 GPU and 7 cpu, c has 0 GPUs and 4 cpu"
    )


@pytest.mark.parametrize(
    ("group", "why", "message"),
    [
        pytest.param(
            a_group(selector={"zone": "9"}), Why.LABELS, "no machine has the label zone=9",
            id="label",
        ),
        pytest.param(
            a_group(selector={"zone": "1", "disk": "ssd"}), Why.LABELS,
            "no machine has the labels disk=ssd and zone=1 together", id="labels",
        ),
        pytest.param(
            a_group(selector={"rack": "1", "zone": "9"}), Why.LABELS,
            "no machine has the labels rack=1 or zone=9", id="several_labels",
        ),
        pytest.param(
            a_group(terms=(NO_ZONE,)), Why.AFFINITY,
            "no machine matches the required node affinity of the pods", id="affinity",
        ),
        pytest.param(
            a_group(selector={"zone": "1"}, terms=(NO_ZONE,)), Why.AFFINITY,
            "no machine matches the required node affinity of the pods and has the labels zone=1",
            id="affinity_and_label",
        ),
        pytest.param(
            a_group(selector={"zone": "3"}), Why.TAINT,
            "c has the taint team=x:NoSchedule, which the pods do not tolerate", id="taint",
        ),
        pytest.param(
            a_group(gpus=16), Why.SIZE, "16 GPUs on one machine: the largest, a, has 8 GPUs",
            id="devices",
        ),
        pytest.param(
            a_group(cpu=65, memory=300), Why.SIZE,
            "65 cpu and 300Gi memory on one machine: the largest, b, has 64 cpu and 256Gi memory",
            id="cpu_and_memory",
        ),
        pytest.param(
            a_group(gpus=2, cpu=16, memory=300), Why.SIZE,
            "2 GPUs and 300Gi memory on one machine: a comes nearest, it has 256Gi memory",
            id="memory_beside_devices",
        ),
        pytest.param(
            a_group(gpus=9, cpu=64), Why.SIZE,
            "9 GPUs and 64 cpu on one machine: the largest, a, has 8 GPUs and 16 cpu",
            id="largest_that_has_some_of_each",
        ),
        pytest.param(
            a_group(gpus=8, cpu=64), Why.SIZE,
            "8 GPUs and 64 cpu on one machine: no machine has all of it, also when it is empty; "
            "a comes nearest, it has 16 cpu", id="not_together",
        ),
        pytest.param(
            a_group(3, gpus=8), Why.SIZE,
            "3 pods with 8 GPUs and 1 cpu each: the machines have room for 1 when they are empty",
            id="gang",
        ),
    ],
)  # fmt: skip
def test_a_shortage_that_no_end_of_a_job_mends(group: PodGroup, why: Why, message: str) -> None:
    missing = shortage(
        a_request("n/w", group),
        a_machine("a", labels={"zone": "1"}, gpus=8, cpu=16),
        a_machine("b", labels={"zone": "2", "disk": "ssd"}),
        a_machine("c", labels={"zone": "3"}, taints=(TAINT,), gpus=16),
    )
    assert (missing.why, missing.message) == (why, message)
    assert not missing.may_end


@pytest.mark.parametrize(
    ("demands", "why", "message"),
    [
        pytest.param(
            Demands(executor="podman"), Why.EXECUTOR,
            "no machine for the pods has the executor podman: a has docker", id="executor",
        ),
        pytest.param(
            Demands(folder="/home/ada", host="x"), Why.FOLDER,
            "no machine for the pods sees the folder /home/ada of the submitter; shared are /data",
            id="folder",
        ),
        pytest.param(
            Demands(refusal=lambda starts: f"no Unix user besides {starts.submitters[0]}"),
            Why.REFUSED, "runner a: no Unix user besides bob", id="user",
        ),
    ],
)  # fmt: skip
def test_a_runner_that_does_not_start_the_job(demands: Demands, why: Why, message: str) -> None:
    machine = a_machine(
        "a", executors=("docker",), folders=("/data",), starts=RunnerStarts(submitters=("bob",))
    )
    missing = shortage(a_request("n/w", demands=demands), machine)
    assert (missing.why, missing.message) == (why, message)


@pytest.mark.parametrize(
    ("machines", "message"),
    [
        pytest.param((), "no runner has announced a machine", id="none"),
        pytest.param(
            (
                a_machine("a", unschedulable=True),
                a_machine("b", draining=True, message="new kernel"),
                a_machine("c", ready=False),
            ),
            "no machine for the pods takes jobs now: a is cordoned, b is drained (new kernel), "
            "c is not ready",
            id="states",
        ),
    ],
)
def test_machines_that_take_no_jobs(machines: tuple[Machine, ...], message: str) -> None:
    assert shortage(a_request("n/w"), *machines) == Shortage(Why.NO_MACHINE, message)


@pytest.mark.parametrize(
    ("group", "head"),
    [
        pytest.param(a_group(gpus=1, memory=900), "900Gi memory on one machine", id="one"),
        pytest.param(a_group(gpus=4, cpu=64), "4 GPUs and 64 cpu on one machine", id="together"),
    ],
)
def test_a_pod_that_no_drained_machine_could_hold(group: PodGroup, head: str) -> None:
    missing = shortage(
        a_request("n/w", group),
        a_machine("a", gpus=4, cpu=8, draining=True),
        a_machine("b", cpu=64, unschedulable=True),
    )
    text = "no machine for the pods has it, also when it is empty, and none takes jobs now"
    assert missing == Shortage(Why.SIZE, f"{head}: {text}: a is drained, b is cordoned")


@pytest.mark.parametrize(
    ("group", "closed", "why", "message"),
    [
        (a_group(gpus=1), [{"draining": True, "message": "new fans"}], Why.ROOM,
         "1 GPU on one machine: a has 0 free, m0 is drained (new fans)"),
        (a_group(gpus=1), [{"unschedulable": True}, {"ready": False}], Why.ROOM,
         "1 GPU on one machine: a has 0 free, m0 is cordoned, m1 is not ready"),
        (a_group(gpus=1), [{"draining": True, "labels": {"x": "y"}, "taints": (TAINT,)}], Why.ROOM,
         "1 GPU on one machine: a has 0 free"),
        (a_group(gpus=1), [{"draining": True}] * 15, Why.ROOM, "1 GPU on one machine: a has 0 "
         "free, m0 is drained, m1 is drained, m10 is drained and 12 more are drained"),
        (a_group(gpus=1), [{"draining": True}] * 3 + [{"ready": False}], Why.ROOM, "1 GPU on one "
         "machine: a has 0 free, m0 is drained, m1 is drained, m2 is drained and 1 more takes no "
         "jobs"),
        (a_group(gpus=3), [{"draining": True}], Why.NO_MACHINE,
         "3 GPUs on one machine: m0 is drained; the largest, a, has 1 GPU"),
        (a_group(gpus=9), [{"draining": True}], Why.SIZE,
         "9 GPUs on one machine: the largest, a, has 1 GPU"),
        (a_group(2, gpus=2), [{"draining": True}], Why.NO_MACHINE,
         "2 pods with 2 GPUs each: m0 is drained; the largest, a, has 1 GPU"),
        (a_group(3, gpus=2), [{"draining": True}], Why.SIZE,
         "3 pods with 2 GPUs each: the machines have room for 2 when they are empty"),
        (a_group(5, gpus=1), [{"draining": True}], Why.NO_MACHINE, "5 pods with 1 GPU and 1 cpu "
         "each: m0 is drained; the other machines have room for 1 when they are empty"),
        (a_group(6, gpus=1), [{"draining": True}], Why.SIZE,
         "6 pods with 1 GPU and 1 cpu each: the machines have room for 5 when they are empty"),
    ],
)  # fmt: skip
def test_machines_that_take_no_jobs_now_are_named_beside_the_numbers(
    group: PodGroup, closed: list[dict[str, Any]], why: Why, message: str
) -> None:
    machine, taken = used("a", 1, 0)
    machines = Machines(machine, *(a_machine(f"m{n}", gpus=4, **c) for n, c in enumerate(closed)))
    machines.book(taken)
    missing = machines.place(a_request("n/w", group))
    assert missing == Shortage(why, message)


@pytest.mark.parametrize(
    ("group", "message"),
    [
        (a_group(gpus=2, memory=300), "2 GPUs and 300Gi memory on one machine: gpu-2 comes "
         "nearest, it has 256Gi memory"),
        (a_group(gpus=2, cpu=65), "2 GPUs and 65 cpu on one machine: gpu-2 comes nearest, it has "
         "64 cpu"),
    ],
)  # fmt: skip
def test_the_nearest_machine_lacks_the_fewest_resources(group: PodGroup, message: str) -> None:
    machines = a_machine("gpu-1", gpus=1), a_machine("gpu-2", gpus=2), a_machine("gpu-3", gpus=2)
    assert shortage(a_request("n/w", group), *machines).message == message


def test_a_pod_set_is_named_where_there_are_several() -> None:
    missing = shortage(
        a_request("n/w", a_group(name="driver"), a_group(gpus=1, name="workers")), a_machine("a")
    )
    assert missing.message == ("pod set workers: 1 GPU on one machine: the largest, a, has 0 GPUs")


def test_a_sentence_has_a_bounded_length() -> None:
    pairs = [used("x" * 250 + str(number), 4, 1) for number in range(9)]
    missing = no_room(a_request("n/w", a_group(gpus=4)), *pairs)
    assert 700 < len(missing.message) <= SENTENCE_MAX


@pytest.mark.parametrize(
    ("group", "head"),
    [
        pytest.param(a_group(1, gpus=2), "2 GPUs on one machine", id="one pod"),
        pytest.param(a_group(2, gpus=1), "2 pods with 1 GPU each", id="two pods"),
        pytest.param(a_group(1200, gpus=1), "1,200 pods with 1 GPU each", id="many pods"),
        pytest.param(a_group(1, gpus=1, together=True), "1 GPU on one machine", id="one together"),
        pytest.param(
            a_group(2, gpus=1, together=True), "2 GPUs on one machine for 2 pods", id="together"
        ),
    ],
)
def test_what_pods_need_is_said_for_each_or_together(group: PodGroup, head: str) -> None:
    assert _head(group, [GPU]) == head


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        (GPU, 1, "1 GPU"),
        (GPU, 0, "0 GPUs"),
        ("gpu", 2, "2 GPUs"),
        ("cpu", 1500, "1500m cpu"),
        ("example.com/gpus", 1, "1 example.com/gpus"),
    ],
)
def test_amounts_are_written_for_people(resource: str, amount: int, text: str) -> None:
    assert amount_text(resource, amount) == text
