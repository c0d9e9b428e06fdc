"""Workloads on flavors with machines of Admittance's own runners pass the check `machines`, which
no queue names. docs/spec/lifecycle.md#2.2."""

from __future__ import annotations

from typing import Any

import pytest

from admittance.api.checks import AdmissionCheck
from admittance.api.reading.configuration_file import read_configuration
from admittance.api.reading.manifest import decode_object
from admittance.api.validation.validate import check_admission_check
from admittance.control.manifests.affected_workloads import affected_workloads
from admittance.control.manifests.object_messages import message_about_rows
from admittance.control.manifests.planned_writes import users_of_object
from admittance.events.facts import Admitted, CheckRequested, CheckWithdrawn
from admittance.events.placement import PlacementPart
from admittance.events.system import ObjectApplied
from admittance.scheduling.state.config import Config, config_of
from admittance.workload.limits import Limits, limits_of
from support.builders import an_object
from support.cores.families.family_cores import cores_with_families
from support.cores.stepped_scheduler import groups
from support.cores.timed_cores import TimedCores

CONTROLLER = "admittance.dev/machines"


def cover(cores: TimedCores, *flavors: str) -> None:
    cores.check(
        "machines",
        CONTROLLER,
        preemptionPolicy="AfterCheckPassedOrOnDemand",
        onFlavors=list(flavors),
    )


def configured_cores(**queue: Any) -> TimedCores:
    """Nothing is covered; cq has 2 cpu of each of two flavors."""
    cores = TimedCores()
    cores.put("ResourceFlavor", "spot")
    cores.queue("cq", resourceGroups=groups(default="2", spot="2"), **queue)
    return cores


def place(cores: TimedCores, name: str, *devices: str, runner: str = "r", pods: int = 1) -> None:
    """Publishes a Ready that assigns all pods of the workload to a runner."""
    part = PlacementPart(
        runner=runner, id=runner, pod_set="main", first=0, count=pods, devices={"gpu": devices}
    )
    cores.verdict(name, "machines", "Ready", controller=CONTROLLER, placement=(part,))


def asked(cores: TimedCores) -> list[tuple[str, str]]:
    kinds = {CheckRequested: "asked", CheckWithdrawn: "withdrawn"}
    return [(kinds[type(fact)], fact.name) for fact in cores.check_facts]


def test_a_reservation_on_a_covered_flavor_gets_the_row_and_waits_for_it() -> None:
    cores = configured_cores()
    cover(cores, "default")
    cores.submit("w", "cq", "2", age=1)
    cores.submit("v", "cq", "2")
    cores.go()
    assert (cores.phase("w"), cores.states("w")) == ("QuotaReserved", {"machines": "Pending"})
    assert (cores.phase("v"), cores.flavor("v"), cores.states("v")) == ("Admitted", "spot", {})
    place(cores, "w", "gpu-a")
    cores.go()
    assert cores.phase("w") == "Admitted"
    assert asked(cores) == [("asked", "w")]
    [admitted] = [
        fact for fact in cores.published if isinstance(fact, Admitted) and fact.name == "w"
    ]
    assert admitted.pod_sets[0].parts == cores.stored("w").status.placement
    assert admitted.pod_sets[0].parts[0].devices == {"gpu": ("gpu-a",)}


def test_coverage_adds_and_removes_rows_and_takes_no_admission_back() -> None:
    cores = configured_cores(admissionChecks=["a"])
    cores.check("a")
    for name in ("runs", "waits"):
        cores.submit(name, "cq", "1")
    cores.go()
    cores.verdict("runs", "a", "Ready")
    cores.go()
    cores.check_facts.clear()
    cover(cores, "default")
    cores.go()
    assert (cores.phase("runs"), cores.phase("waits")) == ("Admitted", "QuotaReserved")
    assert cores.states("runs") == {"a": "Ready", "machines": "Pending"}
    assert asked(cores) == [("asked", "runs"), ("asked", "waits")]
    cores.verdict("waits", "a", "Ready")
    cores.go()
    assert cores.phase("waits") == "QuotaReserved"
    cover(cores, "spot")
    cores.go()
    assert (cores.phase("waits"), cores.states("runs")) == ("Admitted", {"a": "Ready"})
    assert asked(cores)[2:] == [("withdrawn", "runs"), ("withdrawn", "waits")]


def test_the_row_comes_with_quota_and_goes_when_the_queue_turns_machines_off() -> None:
    cores = configured_cores()
    cover(cores, "default", "spot")
    cores.submit("big", "cq", "3")
    cores.submit("w", "cq", "2")
    cores.go()
    assert (cores.phase("big"), cores.states("big")) == ("Pending", {})
    assert (cores.phase("w"), cores.states("w")) == ("QuotaReserved", {"machines": "Pending"})
    cores.queue("cq", resourceGroups=groups(default="2", spot="2"), machines="Off")
    cores.go()
    assert (cores.phase("w"), cores.states("w")) == ("Admitted", {})


@pytest.mark.parametrize("named", [True, False], ids=["named", "covered"])
def test_a_change_of_the_check_concerns_waiting_workloads_only_where_it_is_named(
    named: bool,
) -> None:
    cores = configured_cores(**({"admissionChecks": ["machines"]} if named else {}))
    cover(cores, "default")
    cores.submit("big", "cq", "3")
    cores.submit("w", "cq", "2")
    cores.go()
    about = ObjectApplied(kind="AdmissionCheck", name="machines", revision=1)
    keys = ["workload.ns.big", "workload.ns.w"] if named else ["workload.ns.w"]
    assert affected_workloads(cores.controller, about, frozenset()) == keys
    cover(cores)
    assert affected_workloads(cores.controller, about, frozenset()) == (keys if named else [])


def test_the_check_is_in_use_while_a_queue_offers_a_covered_flavor() -> None:
    cores = configured_cores()
    cover(cores, "default")
    used = users_of_object(cores.controller, "admissioncheck", "machines")
    assert used == ["ClusterQueue cq"]
    cover(cores)
    assert users_of_object(cores.controller, "admissioncheck", "machines") == []


def test_a_family_keeps_its_runners_until_the_old_job_has_stopped() -> None:
    cores = cores_with_families({"a": "4", "b": "4"})
    cover(cores, "a", "b")
    cores.job("j")
    for flavor in ("b", "a"):
        variant = f"j-variant-{flavor}"
        assert cores.states(variant) == {"machines": "Pending"}
        cores.slow_jobs.add("j")
        place(cores, variant, runner=f"on-{flavor}", pods=4)
        cores.go()
        placed = {
            name: [part.runner for part in cores.stored(name).status.placement]
            for name in ("j", "j-variant-a", "j-variant-b")
        }
        assert placed == {"j": ["on-b"], "j-variant-a": [], "j-variant-b": ["on-b"]}
    assert cores.phase("j") == "Evicting"
    cores.stop("j")
    cores.go()
    assert (cores.phase("j"), cores.on()) == ("Admitted", "a")
    for name, runners in (("j", ["on-a"]), ("j-variant-a", ["on-a"]), ("j-variant-b", [])):
        assert [part.runner for part in cores.stored(name).status.placement] == runners


@pytest.mark.parametrize("machines", [True, False], ids=["on", "off"])
def test_the_configuration_ends_coverage_for_all_cores(machines: bool) -> None:
    cores = TimedCores(limits=Limits(machines=machines))
    cores.scheduler.catalog.use_machines(machines)
    cores.queue("cq", resourceGroups=groups(default="2"))
    cover(cores, "default")
    cores.submit("w", "cq", "1")
    cores.go()
    assert cores.phase("w") == ("QuotaReserved" if machines else "Admitted")


def test_rows_follow_a_configuration_that_is_turned_on_and_off_by_a_restart() -> None:
    cores = TimedCores(limits=Limits(machines=False), config=Config(machines=False))
    cores.check("a")
    cores.queue("cq", resourceGroups=groups(default="2"), admissionChecks=["a"])
    cover(cores, "default")
    cores.submit("w", "cq", "1")
    cores.go()
    for on, rows in ((True, ["a", "machines"]), (False, ["a"])):
        cores.limits, cores.config = Limits(machines=on), Config(machines=on)
        assert message_about_rows(cores.controller, cores.revision) is None
        cores.restart()
        said = message_about_rows(cores.controller, cores.revision)
        assert said is not None
        cores.apply_message(said.subject, said.data)
        assert list(cores.states("w")) == rows


def test_no_victim_stops_before_a_machine_is_found() -> None:
    cores = configured_cores(preemption={"withinClusterQueue": "LowerPriority"})
    cores.submit("low", "cq", "2", priority=0)
    cores.submit("low2", "cq", "2", priority=0)
    cores.go()
    cover(cores, "default", "spot")
    cores.submit("high", "cq", "2", priority=9)
    cores.go()
    assert cores.phase("high") == "QuotaReserved"
    assert [cores.phase(name) for name in ("low", "low2")] == ["Admitted", "Admitted"]
    place(cores, "high")
    cores.go()
    assert cores.phase("high") == "Admitted"
    assert sorted(cores.phase(name) for name in ("low", "low2")) == ["Admitted", "Pending"]


def test_the_configuration_file_turns_machines_off_for_scheduler_and_controller() -> None:
    head = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
    for text, on in (("", True), ("machines: On\n", True), ("machines: Off\n", False)):
        configuration = read_configuration(head + text, "file").configuration
        assert (limits_of(configuration).machines, config_of(configuration).machines) == (on, on)


FIELD = "spec.onFlavors"


@pytest.mark.parametrize(
    ("name", "spec", "problems"),
    [
        pytest.param("c", {"controllerName": "x"}, [], id="another controller"),
        pytest.param("c", {"controllerName": "x", "onFlavors": ["f"]}, [FIELD], id="its flavors"),
        pytest.param(
            "m", {"controllerName": CONTROLLER, "onFlavors": ["f"]}, [FIELD], id="another name"
        ),
        pytest.param(
            "machines", {"controllerName": CONTROLLER, "onFlavors": ["f", "f"]},
            ["spec.onFlavors[1]"], id="a flavor twice",
        ),
        pytest.param(
            "machines", {"controllerName": CONTROLLER, "preemptionPolicy": "Anytime"},
            ["spec.preemptionPolicy"], id="victims before a machine",
        ),
    ],
)  # fmt: skip
def test_the_rules_of_the_check(name: str, spec: dict[str, Any], problems: list[str]) -> None:
    spec = {"preemptionPolicy": "AfterCheckPassedOrOnDemand", **spec}
    check = decode_object(an_object("AdmissionCheck", name, spec)).manifest
    assert isinstance(check, AdmissionCheck)
    fields = [problem.field for problem in check_admission_check(check)]
    assert fields == problems
