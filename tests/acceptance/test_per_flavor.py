"""Checks per flavor: the flavor's own, and the queue-wide ones that it does not replace.
LIFECYCLE 2.2 to 2.4, 7.2.
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

from long_living import LongLife

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


def a_life(
    *groups: dict[str, Any], checks: Mapping[str, str] | Sequence[str] = (), **spec: Any
) -> LongLife:
    """A queue with these resource groups. ``checks``: all AdmissionChecks, each with its
    controller."""
    life = LongLife()
    controllers = checks if isinstance(checks, Mapping) else dict.fromkeys(checks, "")
    for name, controller in controllers.items():
        life.check(name, controller)
    for group in groups:
        for flavor in group["flavors"]:
            life.put("ResourceFlavor", flavor["name"])
    life.queue("cq", resourceGroups=list(groups), **spec)
    return life


def submit(life: LongLife, name: str, *pods: Mapping[str, str]) -> None:
    """A workload with a pod set for each of these requests."""
    sets = [
        {
            "name": f"p{number}",
            "count": 1,
            "template": {
                "spec": {
                    "containers": [
                        {"name": "c", "command": ["true"], "resources": {"requests": dict(one)}}
                    ]
                }
            },
        }
        for number, one in enumerate(pods)
    ]
    manifest = {
        "apiVersion": VERSION,
        "kind": "Workload",
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"queueName": "cq", "podSets": sets},
    }
    life.say(facts.Submitted, name, workload=msgspec.Raw(json.dumps(manifest).encode()))


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
    life = a_life(offered({"f": ["x"], "g": ["y"]}), checks=["x", "y"])
    life.submit("first", "cq", "8", age=2)
    life.submit("second", "cq", "8", age=1)
    life.go()
    assert (life.flavor("first"), life.states("first")) == ("f", {"x": "Pending"})
    assert (life.flavor("second"), life.states("second")) == ("g", {"y": "Pending"})
    assert [one.name for one in life.requests("x")] == ["first"]
    assert [one.name for one in life.requests("y")] == ["second"]
    life.judge("first", "x", "Ready")
    assert life.phases("first", "second") == ["Admitted", "QuotaReserved"]


@scenario("B2")
def test_a_flavor_check_is_listed_beside_a_queue_check_of_another_controller() -> None:
    life = a_life(offered({"f": ["x"]}), checks=["x", "y"], admissionChecks=["y"])
    life.submit("w", "cq", "8")
    assert life.states("w") == {"x": "Pending", "y": "Pending"}
    life.go()
    assert life.states("w") == {"x": "Pending", "y": "Pending"}
    life.judge("w", "x", "Ready")
    assert life.phase("w") == "QuotaReserved"
    life.judge("w", "y", "Ready")
    assert life.phase("w") == "Admitted"


@scenario("B3")
def test_the_flavors_check_replaces_a_queue_wide_one_of_its_controller() -> None:
    life = a_life(
        offered({"f": ["x"], "g": []}), checks={"x": "k", "y": "k"}, admissionChecks=["y"]
    )
    life.submit("w", "cq", "8", age=1)
    life.submit("other", "cq", "8")
    life.go()
    assert (life.flavor("w"), life.states("w")) == ("f", {"x": "Pending"})
    assert (life.flavor("other"), life.states("other")) == ("g", {"y": "Pending"})
    assert not life.requests("y", "w"), "what is replaced is not evaluated"
    life.judge("w", "x", "Ready", controller="k")
    assert life.phase("w") == "Admitted"


@scenario("B4")
def test_only_workloads_on_spot_request_provisioning() -> None:
    life = a_life(offered({"reservation": [], "spot": ["provisioning"]}), checks=["provisioning"])
    life.submit("kept", "cq", "8")
    life.go()
    assert (life.phase("kept"), life.flavor("kept")) == ("Admitted", "reservation")
    assert not life.requests("provisioning")
    life.submit("late", "cq", "8")
    life.go()
    assert (life.phase("late"), life.flavor("late")) == ("QuotaReserved", "spot")
    (asked,) = life.requests("provisioning")
    assert asked.name == "late"
    assert asked.admission is not None
    assert asked.admission.pod_set_assignments[0].flavors == {"cpu": "spot"}
    life.judge("late", "provisioning", "Ready")
    assert life.phase("late") == "Admitted"


def evicted_from_spot(verdict: str, *, reservation: Sequence[str] = ()) -> LongLife:
    """``w`` went to spot, where ``x`` judged; then there is room on the reservation."""
    life = a_life(
        offered({"reservation": reservation, "spot": ["x"]}),
        checks=["x", "y"],
        preemption={"withinClusterQueue": "LowerPriority"},
    )
    life.submit("big", "cq", "8")
    life.go()
    for check in reservation:
        life.judge("big", check, "Ready")
    life.submit("w", "cq", "8")
    life.go()
    assert (life.flavor("w"), life.states("w")) == ("spot", {"x": "Pending"})
    if verdict != "Pending":
        life.judge("w", "x", verdict)
    life.finish("big")
    if verdict == "Ready":
        assert life.phase("w") == "Admitted"
    life.answer("w", "x", "Retry")
    life.go()
    return life


@scenario("B5")
@pytest.mark.parametrize("verdict", ["Pending", "Ready"], ids=["left Pending", "left Ready"])
def test_check_states_of_another_flavor_do_not_block_admission(verdict: str) -> None:
    life = evicted_from_spot(verdict)
    assert (life.phase("w"), life.flavor("w")) == ("Admitted", "reservation")
    assert life.states("w") == {}


@scenario("B5")
@pytest.mark.parametrize("verdict", ["Pending", "Ready"], ids=["left Pending", "left Ready"])
def test_check_states_of_another_flavor_do_not_admit_a_workload(verdict: str) -> None:
    life = evicted_from_spot(verdict, reservation=["y"])
    assert (life.phase("w"), life.flavor("w")) == ("QuotaReserved", "reservation")
    assert life.states("w") == {"y": "Pending"}
    late = life.answer("w", "x", "Ready")
    assert late is not None
    assert life.phase("w") == "QuotaReserved"
    life.judge("w", "y", "Ready")
    assert life.phase("w") == "Admitted"


@scenario("B5")
def test_a_flavors_check_goes_on_counting_when_the_flavor_comes_back() -> None:
    life = evicted_from_spot("Pending", reservation=["y"])
    assert life.stored("w").status.check_retry_counts == {"x": 1}
    life.submit("high", "cq", "8", priority=10)
    life.submit("higher", "cq", "8", priority=11)
    life.go()
    assert life.phase("w") == "Pending"
    life.finish("higher")
    life.finish("high")
    reservation = offered({"spot": ["x"]})
    life.queue("cq", resourceGroups=[reservation])
    life.go()
    assert life.flavor("w") == "spot"
    assert life.requests("x", "w")[-1].retry_count == 1


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
    life = a_life(offered(cpus), offered(gpus, resource="gpu"), checks=SHARED)
    submit(life, "w", *pods)
    life.go()
    assert life.phase("w") == "QuotaReserved"
    admission = life.stored("w").status.admission
    assert admission is not None
    used = {f for place in admission.pod_set_assignments for f in place.flavors.values()}
    assert used == ({"other", "g1"} if free == "cpu" else {"c1", "other"})
    assert set(life.states("w")) == ({"y"} if free == "cpu" else {"x"})


@scenario("B6")
@pytest.mark.parametrize("pods", PODS)
def test_where_no_combination_is_left_both_checks_are_named(pods: list[dict[str, str]]) -> None:
    life = a_life(offered({"c1": ["x"]}), offered({"g1": ["y"]}, resource="gpu"), checks=SHARED)
    submit(life, "w", *pods)
    life.go()
    life.advance(10)
    assert life.phase("w") == "Pending"
    assert life.reason("w", "QuotaReserved") == "False: ConflictingAdmissionChecks"
    for name in ("x", "y"):
        assert name in life.message("w", "QuotaReserved")
    # Each of them alone is fine.
    submit(life, "alone", {"cpu": "1"})
    life.go()
    assert (life.phase("alone"), life.states("alone")) == ("QuotaReserved", {"x": "Pending"})


@scenario("B7")
def test_only_checks_of_all_flavors_are_listed_before_an_assignment() -> None:
    life = a_life(
        offered({"f": ["x", "z"], "g": ["y", "z"]}),
        checks=["x", "y", "z", "wide"],
        admissionChecks=["wide"],
    )
    life.submit("w", "cq", "8")
    assert life.states("w") == {"wide": "Pending", "z": "Pending"}
    assert not life.asked
    life.go()
    assert life.states("w") == {"wide": "Pending", "x": "Pending", "z": "Pending"}


# What is refused. ---------------------------------------------------------------------------


def refusal(spec: dict[str, Any]) -> str:
    """Why the ClusterQueue is refused at the door; "" when it is not."""
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
    life = a_life(group, checks={"x": "one"}, admissionChecks=[] if of_flavor else lists)
    life.submit("w", "cq", "8")
    life.go()
    assert life.activity("cq") == "AdmissionCheckNotFound"
    life.check("y", "one")
    life.go()
    assert (life.activity("cq"), life.phase("w")) == ("ConflictingAdmissionChecks", "Pending")
    life.delete("AdmissionCheck", "y")
    life.check("y", "two")
    life.go()
    assert (life.activity("cq"), life.phase("w")) == ("", "QuotaReserved")


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
    life = a_life(offered({"f": [], "g": []}), checks=["x", "y"])
    life.put("ClusterQueue", "cq", json.loads(document.raw)["spec"])
    life.submit("w", "cq", "8")
    assert life.states("w") == {"y": "Pending"}
    life.go()
    life.submit("other", "cq", "8")
    life.go()
    assert (life.flavor("w"), life.states("w")) == ("f", {"x": "Pending", "y": "Pending"})
    assert (life.flavor("other"), life.states("other")) == ("g", {"y": "Pending"})


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
    life = a_life(offered({"reservation": [], "spot": ["x"]}, quota="100"), checks=["x"])
    for number in range(100):
        life.submit(f"w-{number}", "cq", "1")
    life.go()
    for number in range(100):
        name = f"w-{number}"
        assert (life.phase(name), life.flavor(name)) == ("Admitted", "reservation")
        life.finish(name)
    life.go()
    assert not life.asked
