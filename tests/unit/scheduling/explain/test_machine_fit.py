"""Whether machines are large enough for a workload that is not submitted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from admittance.api.checks import MACHINES_CHECK, MACHINES_CONTROLLER
from admittance.api.meta import ObjectMeta
from admittance.api.runners import Runner, RunnerDevice, RunnerSpec, RunnerStatus
from admittance.events.requests.whatif import Fit
from admittance.events.subjects import PROVISIONING_CONTROLLER
from admittance.scheduling.explain.fit import _have_common_labels
from admittance.scheduling.explain.machine_fit import Choice, _admissions
from admittance.scheduling.state.flavor_plan import Option
from support.cores.stepped_scheduler import SteppedScheduler
from support.machines import GPU

TOO_LARGE = "no machine can hold it, even if empty"


def a_runner(name: str, *, gpus: int, memory: str, **spec: Any) -> Runner:
    return Runner(
        metadata=ObjectMeta(name=name, labels={"gpu": name.partition("-")[0]}),
        spec=RunnerSpec(**spec),
        status=RunnerStatus(
            id=f"id-{name}",
            capacity={"cpu": "64", "memory": memory},
            devices=tuple(
                RunnerDevice(resource=GPU, index=n, id=f"{name}-{n}") for n in range(gpus)
            ),
        ),
    )


def a_system(*covered: str, checks: Mapping[str, str] | None = None) -> SteppedScheduler:
    """A queue of the flavors a100 and h100, with quota above all machines."""
    system = SteppedScheduler()
    for flavor in ("a100", "h100"):
        system.flavor(flavor, nodeLabels={"gpu": flavor})
    check = {"controllerName": MACHINES_CONTROLLER, "onFlavors": list(covered)}
    system.put("AdmissionCheck", MACHINES_CHECK, check)
    for name, controller in (checks or {}).items():
        system.put("AdmissionCheck", name, {"controllerName": controller})
    resources = [{"name": name, "nominalQuota": "100Ti"} for name in ("memory", GPU)]
    flavors = [{"name": name, "resources": resources} for name in ("a100", "h100")]
    group = {"coveredResources": ["memory", GPU], "flavors": flavors}
    system.queue("cq", resourceGroups=[group], admissionChecks=list(checks or {}))
    return system


def misfit(
    system: SteppedScheduler, count: int = 1, *, least: int | None = None, **requests: str
) -> str:
    asked = {GPU if name == "gpu" else name: amount for name, amount in requests.items()}
    containers = [{"name": "c", "resources": {"requests": asked}}]
    pods = {"name": "main", "count": count, "template": {"spec": {"containers": containers}}}
    spec = {"queueName": "cq", "podSets": [pods | ({"minCount": least} if least else {})]}
    manifest = msgspec.Raw(json.dumps({"spec": spec}).encode())
    reply = system.core.fit(Fit(workload=manifest), "ns")
    assert (reply.error, reply.fits) == ("", True)
    return reply.machines


def with_machines(system: SteppedScheduler) -> SteppedScheduler:
    for runner in (
        a_runner("a100-1", gpus=8, memory="512Gi", unschedulable=True),
        a_runner("h100-1", gpus=4, memory="256Gi"),
    ):
        system.core.apply_object("Runner", "", runner.metadata.name, runner, system.revision)
    return system


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        pytest.param({"gpu": "8", "memory": "512Gi"}, "", id="all of a cordoned machine"),
        pytest.param(
            {"gpu": "2", "memory": "900Gi"},
            f"{TOO_LARGE} (flavor a100): 2 GPUs and 900Gi memory on one machine: a100-1 comes "
            "nearest, it has 512Gi memory",
            id="memory",
        ),
        pytest.param(
            {"gpu": "9"},
            f"{TOO_LARGE} (flavor a100): 9 GPUs on one machine: the largest, a100-1, has 8 GPUs",
            id="devices",
        ),
        pytest.param({"count": 2, "gpu": "4"}, "", id="a gang in one flavor"),
        pytest.param(
            {"count": 3, "gpu": "4"},
            f"{TOO_LARGE} (flavor a100): 3 pods with 4 GPUs each: the machines have room for 2 "
            "when they are empty",
            id="a gang that is too large for each flavor",
        ),
        pytest.param({"count": 3, "least": 2, "gpu": "4"}, "", id="the fewest pods count"),
    ],
)
def test_a_workload_is_compared_with_the_machines_of_each_flavor(
    asked: dict[str, Any], said: str
) -> None:
    waits = "; it waits for another machine" if said else ""
    assert misfit(with_machines(a_system("a100", "h100")), **asked) == said + waits


@pytest.mark.parametrize(
    ("covered", "checks", "said"),
    [
        pytest.param((), {}, "", id="no flavor is covered"),
        pytest.param(("a100",), {}, "", id="another flavor is not covered"),
        pytest.param(("a100", "h100"), {"p": PROVISIONING_CONTROLLER}, "", id="machines to obtain"),
        pytest.param(
            ("a100", "h100"),
            {},
            "no machine can start it (flavor a100): no runner has announced a machine; it waits "
            "for another machine",
            id="no machine",
        ),
    ],
)
def test_machines_are_compared_only_where_workloads_are_placed(
    covered: tuple[str, ...], checks: dict[str, str], said: str
) -> None:
    assert misfit(a_system(*covered, checks=checks), gpu="1") == said


def test_a_label_that_no_machine_has_is_named() -> None:
    system = a_system("a100", "h100")
    runner = a_runner("t4-1", gpus=1, memory="1Gi")
    system.core.apply_object("Runner", "", "t4-1", runner, system.revision)
    said = (
        "no machine can start it (flavor a100): no machine has the label gpu=a100; it waits for "
        "another machine"
    )
    assert misfit(system, gpu="1") == said
    large = a_runner("a100-2", gpus=1, memory="1Gi")
    system.core.apply_object("Runner", "", "a100-2", large, system.revision)
    assert misfit(system, gpu="1") == ""
    system.core.apply_object("Runner", "", "a100-2", None, system.revision)
    assert misfit(system, gpu="1") == said


@pytest.mark.parametrize(
    ("runner", "more", "is_said"),
    [
        pytest.param(a_runner("t4-1", gpus=1, memory="1Gi"), {}, True, id="other labels"),
        pytest.param(a_runner("t4-1", gpus=0, memory="1Gi"), {}, False, id="no devices at all"),
        pytest.param(a_runner("a100-1", gpus=1, memory="1Gi"), {}, False, id="its labels"),
        pytest.param(
            a_runner("t4-1", gpus=1, memory="1Gi"), {"machines": "Off"}, False, id="machines Off"
        ),
    ],
)
def test_labels_that_keep_devices_from_a_job_are_named(
    runner: Runner, more: dict[str, Any], is_said: bool
) -> None:
    system = a_system()
    resources = [{"name": name, "nominalQuota": "8"} for name in ("memory", GPU)]
    flavors = [{"name": "a100", "resources": resources}]
    group = {"coveredResources": ["memory", GPU], "flavors": flavors}
    system.queue("cq", resourceGroups=[group], **more)
    system.core.apply_object("Runner", "", runner.metadata.name, runner, system.revision)
    said = (
        "no runner has the label gpu=a100 of flavor a100: any runner starts it, and no "
        "nvidia.com/gpu is assigned"
    )
    assert misfit(system, gpu="1") == (said if is_said else "")
    assert misfit(system, memory="1") == ""


@pytest.mark.parametrize(("others", "is_said"), [(8, True), (9, False)])
def test_of_too_many_combinations_of_flavors_nothing_is_said(others: int, is_said: bool) -> None:
    system = SteppedScheduler()
    names = {"memory": [f"m{n}" for n in range(8)], GPU: [f"g{n}" for n in range(others)]}
    groups = []
    for resource, flavors in names.items():
        resources = [{"name": resource, "nominalQuota": "100Ti"}]
        offered = [{"name": name, "resources": resources} for name in flavors]
        groups.append({"coveredResources": [resource], "flavors": offered})
        for name in flavors:
            system.flavor(name)
    covered = {"controllerName": MACHINES_CONTROLLER, "onFlavors": names[GPU]}
    system.put("AdmissionCheck", MACHINES_CHECK, covered)
    system.queue("cq", resourceGroups=groups)
    said = misfit(with_machines(system), gpu="9", memory="1Gi")
    assert bool(said) is is_said
    assert not is_said or said.startswith(f"{TOO_LARGE} (flavor g0 and m0): 9 GPUs on one ")


@pytest.mark.parametrize(
    ("groups", "left", "common"),
    [
        ([], 9, True),
        ([["a"]], 9, True),
        ([["a"], ["x"]], 9, False),
        ([["a"], ["x", "y"]], 9, True),
        ([["a", "b"], ["x"]], 9, True),
        ([["a"], ["x"]], 2, True),
        ([["a"], ["x"]], 3, False),
    ],
)
def test_flavors_have_common_labels_or_are_too_many_to_say(
    groups: list[list[str]], left: int, common: bool
) -> None:
    """``a`` and ``x`` have different values of a label."""
    rivals = {"a": {"x": "zone"}, "x": {"a": "zone"}}
    options = [[Option(n, True, {}, (), (), (), {}, rivals.get(n, {})) for n in g] for g in groups]
    assert _have_common_labels(options, (), [left]) is common


def test_a_machine_that_is_too_small_is_said_before_a_label_that_no_machine_has() -> None:
    system = a_system("a100", "h100")
    runner = a_runner("h100-1", gpus=4, memory="256Gi")
    system.core.apply_object("Runner", "", "h100-1", runner, system.revision)
    assert misfit(system, gpu="9") == (
        f"{TOO_LARGE} (flavor h100): 9 GPUs on one machine: the largest, h100-1, has 4 GPUs; it "
        "waits for another machine"
    )


def test_an_only_flavor_is_not_named() -> None:
    system = with_machines(a_system("a100"))
    resources = [{"name": GPU, "nominalQuota": "99"}]
    group = {"coveredResources": [GPU], "flavors": [{"name": "a100", "resources": resources}]}
    system.queue("cq", resourceGroups=[group])
    assert misfit(system, gpu="9") == (
        f"{TOO_LARGE}: 9 GPUs on one machine: the largest, a100-1, has 8 GPUs; it waits for "
        "another machine"
    )


def test_flavors_with_different_values_of_a_label_are_not_combined_in_one_pod_set() -> None:
    """Flavor ``a`` lies in another zone than ``x``."""
    rivals = {"a": {"x": "zone"}, "x": {"a": "zone"}}
    a, b, x = (Option(n, True, {}, (), (), (), {}, rivals.get(n, {})) for n in "abx")
    choices = [
        Choice("main", ("cpu",), (a, b)),
        Choice("main", ("gpu", "memory"), (x,)),
        Choice("more", ("cpu",), (a,)),
    ]
    (admission,) = _admissions("cq", {"main": 2, "more": 1}, choices)
    assert [
        (place.name, place.count, place.flavors) for place in admission.pod_set_assignments
    ] == [
        ("main", 2, {"cpu": "b", "gpu": "x", "memory": "x"}),
        ("more", 1, {"cpu": "a"}),
    ]
