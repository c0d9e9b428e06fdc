"""The runs that a runner reports as open."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import msgspec

from admittance.events.facts import Admitted
from admittance.events.placement import PlacementPart
from admittance.events.shapes import PodSetToRun
from admittance.runner.host.records import RunIdentity
from admittance.runner.machines.open_runs import open_runs
from admittance.runner.runs.run_starts import requests_of

TEMPLATE = msgspec.Raw(
    b'{"spec":{"containers":[{"resources":{"requests":{"cpu":"250m","nvidia.com/gpu":1}}}]}}'
)


def admitted(**fields: Any) -> Admitted:
    pod_set = PodSetToRun(name="main", count=4, template=TEMPLATE, **fields)
    return Admitted(namespace="n", name="w", uid="u", revision=1, pod_sets=(pod_set,))


def run(number: int) -> Any:
    identity = RunIdentity(
        key=f"n.w{number}.1",
        namespace="n",
        name=f"w{number}",
        uid="u",
        revision=1,
        units=(f"nvidia.com/gpu=GPU-{number}",),
        requests={"cpu": 100},
    )
    return cast(Any, SimpleNamespace(identity=identity))


def test_a_run_asks_for_what_its_pods_on_this_machine_ask_for() -> None:
    assert requests_of(admitted(), "a1") == {"cpu": 1000, "nvidia.com/gpu": 4}
    parts = (
        PlacementPart(runner="gpu-1", id="a1", pod_set="main", first=0, count=3),
        PlacementPart(runner="gpu-2", id="b2", pod_set="main", first=3, count=1),
    )
    placed = admitted(parts=parts)
    assert requests_of(placed, "a1") == {"cpu": 750, "nvidia.com/gpu": 3}
    assert requests_of(placed, "b2") == {"cpu": 250, "nvidia.com/gpu": 1}
    untyped = PodSetToRun(name="main", count=1)
    assert requests_of(msgspec.structs.replace(placed, pod_sets=(untyped,)), "a1") == {}


def test_runs_above_the_limit_are_one_run_with_all_that_they_have() -> None:
    runs = [run(number) for number in range(4)]
    assert [each.name for each in open_runs(runs)] == ["w0", "w1", "w2", "w3"]
    first, second, others = open_runs(runs, most=2)
    assert (first.name, second.name, others.name) == ("w0", "w1", "")
    assert others.requests == {"cpu": 200}
    assert others.devices == {"nvidia.com/gpu": ("GPU-2", "GPU-3")}
