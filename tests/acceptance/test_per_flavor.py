"""Checks per flavor: the flavor's own, and the queue-wide ones that it does not replace.
docs/spec/lifecycle.md#2.2 to #2.4, #7.2.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from admittance.api.checks import AdmissionCheck, AdmissionCheckSpec
from admittance.api.meta import ObjectMeta
from admittance.api.queues import ClusterQueue
from admittance.api.reading.manifest import ManifestError, read
from admittance.events import facts
from admittance.events.shapes import Admission, PodSetAssignment
from admittance.quota.required_checks import CheckLists, ConflictingChecks, required_checks
from support.cores.timed_cores import TimedCores

scenario = pytest.mark.scenario
VERSION = "kueue.x-k8s.io/v1beta2"


def offered(
    flavors: Mapping[str, Sequence[str]], quota: str = "10", resource: str = "cpu"
) -> dict[str, Any]:
    """A resource group: flavors, each with its checks."""
    return {
        "coveredResources": [resource],
        "flavors": [
            {
                "name": name,
                "resources": [{"name": resource, "nominalQuota": quota}],
                **({"admissionChecks": list(checks)} if checks else {}),
            }
            for name, checks in flavors.items()
        ],
    }


def a_manifest(spec: dict[str, Any]) -> dict[str, Any]:
    """A ClusterQueue as a user writes it."""
    meta = {"name": "cq"}
    return {"apiVersion": VERSION, "kind": "ClusterQueue", "metadata": meta, "spec": spec}


def configured_cores(
    *groups: dict[str, Any], checks: Mapping[str, str] | Sequence[str] = (), **spec: Any
) -> TimedCores:
    """A queue with these resource groups. ``checks``: all AdmissionChecks, each with its
    controller."""
    cores = TimedCores()
    controllers = checks if isinstance(checks, Mapping) else dict.fromkeys(checks, "")
    for name, controller in controllers.items():
        cores.check(name, controller)
    for group in groups:
        for flavor in group["flavors"]:
            cores.put("ResourceFlavor", flavor["name"])
    cores.queue("cq", resourceGroups=list(groups), **spec)
    return cores


def submit(cores: TimedCores, name: str, *pods: Mapping[str, str]) -> None:
    """Submits a workload with a pod set for each of these requests."""
    sets = [
        {
            "name": f"p{number}",
            "count": 1,
            "template": {
                "spec": {
                    "containers": [
                        {"name": "c", "command": ["true"], "resources": {"requests": dict(pod)}}
                    ]
                }
            },
        }
        for number, pod in enumerate(pods)
    ]
    manifest = {
        "apiVersion": VERSION,
        "kind": "Workload",
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"queueName": "cq", "podSets": sets},
    }
    cores.publish(facts.Submitted, name, workload=msgspec.Raw(json.dumps(manifest).encode()))


# Which checks a workload has. ---------------------------------------------------------------

CONTROLLERS = {"x": "k1", "x2": "k1", "y": "k2", "z": "k3"}

ASSIGNED = [
    pytest.param([], {}, ["f"], set(), id="none anywhere"),
    pytest.param(["y"], {}, ["f"], {"y"}, id="only queue-wide"),
    pytest.param([], {"f": ["x"]}, ["f"], {"x"}, id="only of the flavor"),
    pytest.param([], {"g": ["x"]}, ["f"], set(), id="only of another flavor"),
    pytest.param(["y"], {"f": ["x"]}, ["f"], {"x", "y"}, id="both, of two controllers"),
    pytest.param(["x2"], {"f": ["x"]}, ["f"], {"x"}, id="both, of one controller"),
    pytest.param(["x2"], {"g": ["x"]}, ["f"], {"x2"}, id="another flavor replaces nothing"),
    pytest.param(["x"], {"f": ["x"]}, ["f"], {"x"}, id="the same one twice is one row"),
    pytest.param([], {"f": ["x"], "g": ["x"]}, ["f", "g"], {"x"}, id="of two flavors, one row"),
    pytest.param([], {"f": ["x"], "g": ["y"]}, ["f", "g"], {"x", "y"}, id="of every used flavor"),
    pytest.param(["z", "x2"], {"f": ["x"], "g": ["y"]}, ["f", "g"], {"x", "y", "z"}, id="all"),
    pytest.param([], {"f": ["x"], "g": ["x2"]}, ["f", "g"], None, id="two of one controller"),
    pytest.param(["y"], {"f": ["x"], "g": ["x"]}, [], {"x", "y"}, id="on arrival: everywhere"),
    pytest.param(["y"], {"f": ["x"]}, [], {"y"}, id="on arrival: not those of some flavors"),
    pytest.param(["x2"], {"f": ["x"], "g": ["x"]}, [], {"x"}, id="on arrival: flavor wins, too"),
]


@scenario("B0")
@pytest.mark.parametrize("pods", ["each its pod set", "one pod set for all"])
@pytest.mark.parametrize(("wide", "of_flavors", "used", "expected"), ASSIGNED)
def test_an_assignment_lists_the_checks_of_its_flavors(
    wide: list[str],
    of_flavors: dict[str, list[str]],
    used: list[str],
    expected: set[str] | None,
    pods: str,
) -> None:
    group = offered({"f": of_flavors.get("f", []), "g": of_flavors.get("g", [])})
    spec = {"resourceGroups": [group], "admissionChecks": wide}
    queue = msgspec.convert(a_manifest(spec), ClusterQueue)
    known = {
        name: AdmissionCheck(
            metadata=ObjectMeta(name=name), spec=AdmissionCheckSpec(controller_name=controller)
        )
        for name, controller in CONTROLLERS.items()
    }
    if pods == "each its pod set":
        places = tuple(PodSetAssignment(name=f"p{f}", flavors={"cpu": f}, count=1) for f in used)
    else:
        at = dict(zip(("cpu", "gpu"), used, strict=False))
        places = (PodSetAssignment(name="main", flavors=at, count=1),)
    admission = Admission(cluster_queue="cq", pod_set_assignments=places) if used else None
    lists = CheckLists(queue)
    if expected is None:
        with pytest.raises(ConflictingChecks, match=r"x and x2"):
            required_checks(lists, admission, known.get)
    else:
        assert set(required_checks(lists, admission, known.get)) == expected


@scenario("B1")
def test_each_flavor_has_its_own_check() -> None:
    cores = configured_cores(offered({"f": ["x"], "g": ["y"]}), checks=["x", "y"])
    cores.submit("first", "cq", "8", age=2)
    cores.submit("second", "cq", "8", age=1)
    cores.go()
    assert (cores.flavor("first"), cores.states("first")) == ("f", {"x": "Pending"})
    assert (cores.flavor("second"), cores.states("second")) == ("g", {"y": "Pending"})
    assert [request.name for request in cores.requests("x")] == ["first"]
    assert [request.name for request in cores.requests("y")] == ["second"]
    cores.report("first", "x", "Ready")
    assert cores.phases("first", "second") == ["Admitted", "QuotaReserved"]


@scenario("B2")
def test_a_flavor_check_is_listed_beside_a_queue_check_of_another_controller() -> None:
    cores = configured_cores(offered({"f": ["x"]}), checks=["x", "y"], admissionChecks=["y"])
    cores.submit("w", "cq", "8")
    assert cores.states("w") == {"x": "Pending", "y": "Pending"}
    cores.go()
    assert cores.states("w") == {"x": "Pending", "y": "Pending"}
    cores.report("w", "x", "Ready")
    assert cores.phase("w") == "QuotaReserved"
    cores.report("w", "y", "Ready")
    assert cores.phase("w") == "Admitted"


@scenario("B3")
def test_the_flavors_check_replaces_a_queue_wide_one_of_its_controller() -> None:
    cores = configured_cores(
        offered({"f": ["x"], "g": []}), checks={"x": "k", "y": "k"}, admissionChecks=["y"]
    )
    cores.submit("w", "cq", "8", age=1)
    cores.submit("other", "cq", "8")
    cores.go()
    assert (cores.flavor("w"), cores.states("w")) == ("f", {"x": "Pending"})
    assert (cores.flavor("other"), cores.states("other")) == ("g", {"y": "Pending"})
    assert not cores.requests("y", "w"), "what is replaced is not evaluated"
    cores.report("w", "x", "Ready", controller="k")
    assert cores.phase("w") == "Admitted"


@scenario("B4")
def test_only_workloads_on_spot_request_provisioning() -> None:
    cores = configured_cores(
        offered({"reservation": [], "spot": ["provisioning"]}), checks=["provisioning"]
    )
    cores.submit("kept", "cq", "8")
    cores.go()
    assert (cores.phase("kept"), cores.flavor("kept")) == ("Admitted", "reservation")
    assert not cores.requests("provisioning")
    cores.submit("late", "cq", "8")
    cores.go()
    assert (cores.phase("late"), cores.flavor("late")) == ("QuotaReserved", "spot")
    (asked,) = cores.requests("provisioning")
    assert asked.name == "late"
    assert asked.admission is not None
    assert asked.admission.pod_set_assignments[0].flavors == {"cpu": "spot"}
    cores.report("late", "provisioning", "Ready")
    assert cores.phase("late") == "Admitted"


def evicted_from_spot(verdict: str, *, reservation: Sequence[str] = ()) -> TimedCores:
    """``w`` went to spot, with check ``x``; then there is room on the reservation."""
    cores = configured_cores(
        offered({"reservation": reservation, "spot": ["x"]}),
        checks=["x", "y"],
        preemption={"withinClusterQueue": "LowerPriority"},
    )
    cores.submit("big", "cq", "8")
    cores.go()
    for check in reservation:
        cores.report("big", check, "Ready")
    cores.submit("w", "cq", "8")
    cores.go()
    assert (cores.flavor("w"), cores.states("w")) == ("spot", {"x": "Pending"})
    if verdict != "Pending":
        cores.report("w", "x", verdict)
    cores.finish("big")
    if verdict == "Ready":
        assert cores.phase("w") == "Admitted"
    cores.answer("w", "x", "Retry")
    cores.go()
    return cores


@scenario("B5")
@pytest.mark.parametrize("verdict", ["Pending", "Ready"], ids=["left Pending", "left Ready"])
def test_check_states_of_another_flavor_do_not_block_admission(verdict: str) -> None:
    cores = evicted_from_spot(verdict)
    assert (cores.phase("w"), cores.flavor("w")) == ("Admitted", "reservation")
    assert cores.states("w") == {}


@scenario("B5")
@pytest.mark.parametrize("verdict", ["Pending", "Ready"], ids=["left Pending", "left Ready"])
def test_check_states_of_another_flavor_do_not_admit_a_workload(verdict: str) -> None:
    cores = evicted_from_spot(verdict, reservation=["y"])
    assert (cores.phase("w"), cores.flavor("w")) == ("QuotaReserved", "reservation")
    assert cores.states("w") == {"y": "Pending"}
    late = cores.answer("w", "x", "Ready")
    assert late is not None
    assert cores.phase("w") == "QuotaReserved"
    cores.report("w", "y", "Ready")
    assert cores.phase("w") == "Admitted"


@scenario("B5")
def test_a_flavors_check_continues_its_count_with_the_same_flavor() -> None:
    cores = evicted_from_spot("Pending", reservation=["y"])
    assert cores.stored("w").status.check_retry_counts == {"x": 1}
    cores.submit("high", "cq", "8", priority=10)
    cores.submit("higher", "cq", "8", priority=11)
    cores.go()
    assert cores.phase("w") == "Pending"
    cores.finish("higher")
    cores.finish("high")
    reservation = offered({"spot": ["x"]})
    cores.queue("cq", resourceGroups=[reservation])
    cores.go()
    assert cores.flavor("w") == "spot"
    assert cores.requests("x", "w")[-1].retry_count == 1


SHARED = {"x": "one", "y": "one"}
PODS = [
    pytest.param([{"cpu": "1"}, {"gpu": "1"}], id="two pod sets"),
    pytest.param([{"cpu": "1", "gpu": "1"}], id="one pod set with two resources"),
]


@scenario("B6")
@pytest.mark.parametrize("pods", PODS)
@pytest.mark.parametrize("free", ["cpu", "gpu"])
def test_flavors_with_checks_of_one_controller_are_not_used_together(
    free: str, pods: list[dict[str, str]]
) -> None:
    cpus: dict[str, list[str]] = {"c1": ["x"]}
    gpus: dict[str, list[str]] = {"g1": ["y"]}
    (cpus if free == "cpu" else gpus)["other"] = []
    cores = configured_cores(offered(cpus), offered(gpus, resource="gpu"), checks=SHARED)
    submit(cores, "w", *pods)
    cores.go()
    assert cores.phase("w") == "QuotaReserved"
    admission = cores.stored("w").status.admission
    assert admission is not None
    used = {f for place in admission.pod_set_assignments for f in place.flavors.values()}
    assert used == ({"other", "g1"} if free == "cpu" else {"c1", "other"})
    assert set(cores.states("w")) == ({"y"} if free == "cpu" else {"x"})


@scenario("B6")
@pytest.mark.parametrize("pods", PODS)
def test_where_no_combination_is_left_both_checks_are_named(pods: list[dict[str, str]]) -> None:
    cores = configured_cores(
        offered({"c1": ["x"]}), offered({"g1": ["y"]}, resource="gpu"), checks=SHARED
    )
    submit(cores, "w", *pods)
    cores.go()
    cores.advance(10)
    assert cores.phase("w") == "Pending"
    assert cores.reason("w", "QuotaReserved") == "False: ConflictingAdmissionChecks"
    for name in ("x", "y"):
        assert name in cores.message("w", "QuotaReserved")
    # Each of them alone is fine.
    submit(cores, "alone", {"cpu": "1"})
    cores.go()
    assert (cores.phase("alone"), cores.states("alone")) == ("QuotaReserved", {"x": "Pending"})


@scenario("B7")
def test_only_checks_of_all_flavors_are_listed_before_an_assignment() -> None:
    cores = configured_cores(
        offered({"f": ["x", "z"], "g": ["y", "z"]}),
        checks=["x", "y", "z", "wide"],
        admissionChecks=["wide"],
    )
    cores.submit("w", "cq", "8")
    assert cores.states("w") == {"wide": "Pending", "z": "Pending"}
    assert not cores.check_facts
    cores.go()
    assert cores.states("w") == {"wide": "Pending", "x": "Pending", "z": "Pending"}


# What is refused. ---------------------------------------------------------------------------


def refusal(spec: dict[str, Any]) -> str:
    """The error with which validation refuses the ClusterQueue; "" if it is valid."""
    try:
        read(json.dumps(a_manifest(spec)), "queue.json")
    except ManifestError as error:
        return str(error)
    return ""


ONE = offered({"f": []})


@scenario("B8")
@pytest.mark.parametrize(
    ("spec", "word"),
    [
        pytest.param(
            {"resourceGroups": [ONE], "admissionChecks": ["x", "x"]}, "x", id="queue-wide twice"
        ),
        pytest.param(
            {"resourceGroups": [offered({"f": ["x", "x"]})]}, "x", id="twice for one flavor"
        ),
        pytest.param(
            {
                "resourceGroups": [ONE],
                "admissionChecksStrategy": {
                    "admissionChecks": [{"name": "x", "onFlavors": ["nope"]}]
                },
            },
            "nope",
            id="a rule for an unknown flavor",
        ),
    ],
)
def test_an_invalid_list_of_checks_is_refused(spec: dict[str, Any], word: str) -> None:
    assert word in refusal(spec)


@scenario("B8")
@pytest.mark.parametrize("of_flavor", [False, True], ids=["queue-wide", "of one flavor"])
def test_a_second_check_of_a_controller_that_comes_later_stops_the_queue(of_flavor: bool) -> None:
    lists = ["x", "y"]
    group = offered({"f": lists if of_flavor else []})
    cores = configured_cores(group, checks={"x": "one"}, admissionChecks=[] if of_flavor else lists)
    cores.submit("w", "cq", "8")
    cores.go()
    assert cores.activity("cq") == "AdmissionCheckNotFound"
    cores.check("y", "one")
    cores.go()
    assert (cores.activity("cq"), cores.phase("w")) == ("ConflictingAdmissionChecks", "Pending")
    cores.delete("AdmissionCheck", "y")
    cores.check("y", "two")
    cores.go()
    assert (cores.activity("cq"), cores.phase("w")) == ("", "QuotaReserved")


FORMS = [
    pytest.param({"f": {"admissionChecks": ["x"]}}, {"admissionChecks": ["y"]}, id="as lists"),
    pytest.param({"f": {"admissionchecks": ["x"]}}, {"admissionChecks": ["y"]}, id="with the tag"),
    pytest.param(
        {},
        {
            "admissionChecksStrategy": {
                "admissionChecks": [{"name": "x", "onFlavors": ["f"]}, {"name": "y"}]
            }
        },
        id="as a strategy",
    ),
]


@scenario("B9")
@pytest.mark.parametrize(("of_flavors", "wide"), FORMS)
def test_the_same_rules_in_any_form_make_the_same_rows(
    of_flavors: dict[str, dict[str, Any]], wide: dict[str, Any]
) -> None:
    group = offered({"f": [], "g": []})
    for flavor in group["flavors"]:
        flavor.update(of_flavors.get(flavor["name"], {}))
    spec = {"namespaceSelector": {}, "resourceGroups": [group], **wide}
    (document,) = read(json.dumps(a_manifest(spec)), "queue.json")
    cores = configured_cores(offered({"f": [], "g": []}), checks=["x", "y"])
    cores.put("ClusterQueue", "cq", json.loads(document.raw)["spec"])
    cores.submit("w", "cq", "8")
    assert cores.states("w") == {"y": "Pending"}
    cores.go()
    cores.submit("other", "cq", "8")
    cores.go()
    assert (cores.flavor("w"), cores.states("w")) == ("f", {"x": "Pending", "y": "Pending"})
    assert (cores.flavor("other"), cores.states("other")) == ("g", {"y": "Pending"})


@scenario("B9")
@pytest.mark.parametrize("list_of", ["the queue", "a flavor"])
def test_two_forms_in_one_queue_are_refused(list_of: str) -> None:
    spec: dict[str, Any] = {
        "resourceGroups": [offered({"f": ["x"] if list_of == "a flavor" else []})],
        "admissionChecksStrategy": {"admissionChecks": [{"name": "y"}]},
    }
    if list_of == "the queue":
        spec["admissionChecks"] = ["x"]
    assert "admissionChecksStrategy" in refusal(spec)


@scenario("B10")
def test_a_check_of_spot_gets_no_request_for_other_flavors() -> None:
    cores = configured_cores(offered({"reservation": [], "spot": ["x"]}, quota="100"), checks=["x"])
    for number in range(100):
        cores.submit(f"w-{number}", "cq", "1")
    cores.go()
    for number in range(100):
        name = f"w-{number}"
        assert (cores.phase(name), cores.flavor(name)) == ("Admitted", "reservation")
        cores.finish(name)
    cores.go()
    assert not cores.check_facts
