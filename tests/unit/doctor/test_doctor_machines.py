"""What `admit doctor` says about machines and the quota that is promised of them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from admittance.api.checks import AdmissionCheck
from admittance.api.meta import Condition, ObjectMeta
from admittance.api.queues import ClusterQueue, Cohort, ResourceFlavor
from admittance.api.reading.objects import decode_object
from admittance.api.runners import Runner, RunnerDevice, RunnerStatus
from admittance.doctor.machines import Promises, findings_of
from admittance.events.requests.reading import AnnouncedRunner

KUEUE = "kueue.x-k8s.io/v1beta2"


def made(kind: str, name: str, spec: dict[str, Any]) -> Any:
    value = {"apiVersion": KUEUE, "kind": kind, "metadata": {"name": name}, "spec": spec}
    return decode_object(value).manifest


def quota(kind: str, name: str, gpus: int) -> Any:
    resources = [{"name": "nvidia.com/gpu", "nominalQuota": gpus}]
    group = {
        "coveredResources": ["nvidia.com/gpu"],
        "flavors": [{"name": "a100", "resources": resources}],
    }
    return made(kind, name, {"resourceGroups": [group]})


def runner(name: str, gpus: int, **status: Any) -> Runner:
    return Runner(
        metadata=ObjectMeta(name=name, labels={"gpu": "a100"}),
        status=RunnerStatus(id=name, capacity={"nvidia.com/gpu": str(gpus)}, **status),
    )


FLAVOR: ResourceFlavor = made("ResourceFlavor", "a100", {"nodeLabels": {"gpu": "a100"}})
CHECK: AdmissionCheck = made(
    "AdmissionCheck",
    "machines",
    {
        "controllerName": "admittance.dev/machines",
        "preemptionPolicy": "AfterCheckPassedOrOnDemand",
        "onFlavors": ["a100"],
    },
)
QUEUE: ClusterQueue = quota("ClusterQueue", "cq", 12)
COHORT: Cohort = quota("Cohort", "co", 4)
GPUS = [RunnerDevice(resource="nvidia.com/gpu", index=n, id=f"GPU-{n}", slices=4) for n in range(2)]
OTHER = Runner(metadata=ObjectMeta(name="cpu-1"), status=RunnerStatus(id="c"))


@pytest.mark.parametrize(
    ("runners", "checks", "found"),
    [
        pytest.param(
            [runner("a", 8)],
            [CHECK],
            "ClusterQueues promise 16 nvidia.com/gpu of it, 1 runner offers 8",
            id="more quota than devices",
        ),
        pytest.param(
            [OTHER],
            [CHECK],
            "ClusterQueues promise 16 nvidia.com/gpu of it, 0 runners offer 0; none has the label "
            "gpu=a100",
            id="no machine of the flavor",
        ),
        pytest.param([runner("a", 8), runner("b", 8)], [CHECK], "", id="as much as promised"),
        pytest.param([runner("a", 8)], [], "", id="a flavor that is not covered"),
        pytest.param(
            [runner("a", 99, devices=tuple(GPUS[:2]))],
            [CHECK],
            "ClusterQueues promise 16 nvidia.com/gpu of it, 1 runner offers 8",
            id="units of devices count",
        ),
    ],
)
def test_quota_of_a_covered_flavor_above_its_machines_is_noted(
    runners: list[Runner], checks: list[AdmissionCheck], found: str
) -> None:
    findings = findings_of(Promises(runners, [FLAVOR], [QUEUE, COHORT], checks))
    assert [(line.state, line.what, line.found) for line in findings] == (
        [("note", "flavor a100", found)] if found else []
    )


def cpu_runner_with(*devices: RunnerDevice) -> Runner:
    return Runner(
        metadata=ObjectMeta(name="t4-1", labels={"gpu": "t4"}),
        status=RunnerStatus(id="t", devices=devices),
    )


@pytest.mark.parametrize(
    ("given", "found"),
    [
        pytest.param(
            Promises([cpu_runner_with(GPUS[0])], [FLAVOR], [QUEUE]),
            "no runner has the label gpu=a100, so its workloads are not placed on machines: any "
            "runner starts them, and no nvidia.com/gpu is assigned",
            id="labels that no runner has",
        ),
        pytest.param(Promises([cpu_runner_with()], [FLAVOR], [QUEUE]), "", id="no devices at all"),
        pytest.param(
            Promises([cpu_runner_with(GPUS[0])], [FLAVOR]), "", id="a flavor without quota"
        ),
        pytest.param(
            Promises([cpu_runner_with(GPUS[0])], [FLAVOR], [quota("ClusterQueue", "cq", 0)]),
            "",
            id="no quota of devices",
        ),
    ],
)
def test_a_flavor_that_no_labels_cover_is_noted(given: Promises, found: str) -> None:
    findings = [line for line in findings_of(given) if line.what == "flavor a100"]
    assert [line.found for line in findings] == ([found] if found else [])


@pytest.mark.parametrize(
    ("more", "covered", "is_noted"),
    [
        pytest.param({}, ["a100", "h100"], True, id="two covered flavors"),
        pytest.param({}, ["a100"], False, id="one covered flavor"),
        pytest.param({"machines": "Off"}, ["a100", "h100"], False, id="machines Off"),
        pytest.param(
            {"concurrentAdmission": {"migrationConstraints": {"mode": "NoMigration"}}},
            ["a100", "h100"],
            False,
            id="all at once",
        ),
    ],
)
def test_a_queue_that_does_not_try_its_next_flavor_is_noted(
    more: dict[str, Any], covered: list[str], is_noted: bool
) -> None:
    resources = [{"name": "nvidia.com/gpu", "nominalQuota": 1}]
    flavors = [{"name": name, "resources": resources} for name in ("a100", "h100")]
    group = {"coveredResources": ["nvidia.com/gpu"], "flavors": flavors}
    queue = made("ClusterQueue", "cq", {"resourceGroups": [group], **more})
    check = replace(CHECK, spec=replace(CHECK.spec, on_flavors=tuple(covered)))
    findings = findings_of(Promises([], [], [queue], [check]))
    said = (
        "workloads that lack room on machines of one of its 2 covered flavors (a100, h100) do not "
        "try the next one: it has no concurrentAdmission"
    )
    assert [(line.what, line.found) for line in findings] == (
        [("clusterqueue cq", said)] if is_noted else []
    )


def test_a_runner_of_an_earlier_version_beside_machines_is_noted() -> None:
    announced = [
        AnnouncedRunner(runner="a", consumer="ann"),
        AnnouncedRunner(runner="id-3", consumer="old", older=True),
        AnnouncedRunner(runner="id-4", older=True),
    ]
    given = Promises([runner("a", 0)], announced=announced)
    assert [(line.state, line.what) for line in findings_of(given)] == [
        ("note", "runner old"),
        ("note", "runner id-4"),
    ]


def test_a_machine_that_a_failed_hook_has_drained_is_wrong() -> None:
    failed = Condition(type="HooksFailed", status="True", message="prolog failed: exit code 3")
    over = Condition(type="HooksFailed", status="False")
    bad, mended = runner("bad", 0, conditions=(failed,)), runner("mended", 0, conditions=(over,))
    [finding] = findings_of(Promises([bad, mended]))
    assert (finding.state, finding.what) == ("wrong", "runner bad")
    assert finding.found == "it is drained: prolog failed: exit code 3"
    assert "`admit undrain runner bad`" in finding.todo


def test_two_runners_with_one_name_are_wrong() -> None:
    conflict = Condition(type="NameConflict", status="True", message="a second runner has it")
    over = Condition(type="NameConflict", status="False")
    given = [runner("a", 1, conditions=(conflict,)), runner("b", 1, conditions=(over,))]
    [finding] = findings_of(Promises(given))
    assert (finding.state, finding.what, finding.found) == (
        "wrong",
        "runner a",
        "a second runner has it",
    )


def test_what_machines_cannot_do_is_one_line_for_all_of_them() -> None:
    memory, devices = "cannot limit memory of jobs", "cannot keep jobs from devices"
    gpu = RunnerDevice(resource="nvidia.com/gpu", index=0, id="GPU-0")
    given = [runner(name, 0, messages=(memory, devices)) for name in "abcd"]
    given.append(runner("e", 1, messages=(devices,), devices=(gpu,)))
    counted = "--capacity (ADMIT_CAPACITY) nvidia.com/gpu=4 assigns no device: a job sees none"
    given.append(runner("f", 1, messages=(counted,)))
    assert [(line.what, line.found) for line in findings_of(Promises(given))] == [
        ("runner a, b, c and 1 more", memory),
        ("runner e", devices),
        ("runner f", counted),
    ]
