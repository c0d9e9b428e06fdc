"""Configuration: domains, revisions, activity, required checks. docs/spec/lifecycle.md#7.2."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from admittance.api.checks import AdmissionCheck, AdmissionCheckSpec, ObjectStatus
from admittance.api.meta import Condition, ObjectMeta
from admittance.api.queues import ResourceFlavor
from admittance.api.reading.manifest import decode_object
from admittance.events.shapes import Admission, PodSetAssignment
from admittance.quota.catalog import Catalog
from admittance.quota.references import reference_warnings
from admittance.quota.required_checks import ConflictingChecks


class Configured:
    """A catalog, and the revision of what was applied last."""

    def __init__(self) -> None:
        self.catalog = Catalog()
        self.revision = 0

    def put(self, kind: str, name: str, spec: Any = None, **meta: Any) -> set[str]:
        value: dict[str, Any] = {
            "apiVersion": "v1" if kind == "Namespace" else "kueue.x-k8s.io/v1beta2",
            "kind": kind,
            "metadata": {"name": name, **meta},
        }
        if spec is not None:
            value["spec"] = spec
        self.revision += 1
        manifest = decode_object(value).manifest
        return self.catalog.apply(kind, meta.get("namespace", ""), name, manifest, self.revision)

    def delete(self, kind: str, name: str, namespace: str = "") -> set[str]:
        self.revision += 1
        return self.catalog.apply(kind, namespace, name, None, self.revision)


def flavors(**checks: list[str]) -> list[dict[str, Any]]:
    offered = [
        {
            "name": name,
            "resources": [{"name": "cpu", "nominalQuota": "1"}],
            **({"admissionChecks": names} if names else {}),
        }
        for name, names in checks.items()
    ]
    return [{"coveredResources": ["cpu"], "flavors": offered}]


def test_a_domain_is_the_root_of_the_tree_or_the_queue_alone() -> None:
    here = Configured()
    assert here.catalog.domain_of("q") is None
    assert here.put("ClusterQueue", "q", {}) == {"queue-q"}
    assert here.put("ClusterQueue", "q", {"cohortName": "co"}) == {"queue-q", "cohort-co"}
    assert here.put("Cohort", "co", {"parentName": "root"}) == {"cohort-co", "cohort-root"}
    assert here.catalog.domain_of("q") == "cohort-root"
    assert here.delete("Cohort", "co") == {"cohort-root", "cohort-co"}
    assert here.delete("ClusterQueue", "q") == {"cohort-co"}


def test_newest_is_the_revision_of_what_a_decision_rests_on() -> None:
    here = Configured()
    here.put("ClusterQueue", "q", {"resourceGroups": flavors(f=["c"])})
    here.put("ClusterQueue", "other", {"resourceGroups": flavors(g=[])})

    def after(*args: Any, **more: Any) -> bool:
        here.put(*args, **more)
        return here.catalog.newest("queue-q") == here.revision

    assert after("ResourceFlavor", "f", {})
    assert after("AdmissionCheck", "c", {"controllerName": "x"})
    assert after("LocalQueue", "lq", {"clusterQueue": "q"}, namespace="ns")
    assert after("Namespace", "ns", labels={"a": "b"})
    assert not after("ResourceFlavor", "g", {})
    assert not after("Namespace", "elsewhere")
    assert not after("WorkloadPriorityClass", "p")
    assert here.catalog.newest("queue-unknown") == 0


def test_an_unchanged_object_still_touches_its_domains() -> None:
    here = Configured()
    here.put("ClusterQueue", "q", {})
    assert here.put("ClusterQueue", "q", {}) == {"queue-q"}
    assert here.catalog.newest("queue-q") == here.revision


def test_a_queue_lists_every_reason_and_the_first_counts() -> None:
    here = Configured()
    strategy = {"admissionChecks": [{"name": "gone"}, {"name": "idle"}]}
    here.put(
        "ClusterQueue",
        "q",
        {
            "stopPolicy": "Hold",
            "resourceGroups": flavors(f=[]),
            "admissionChecksStrategy": strategy,
        },
    )
    here.put("AdmissionCheck", "idle", {"controllerName": "x"})
    check = here.catalog.checks["idle"]
    inactive = ObjectStatus(conditions=(Condition(type="Active", status="False"),))
    here.catalog.apply("AdmissionCheck", "", "idle", replace(check, status=inactive), 9)
    activity = here.catalog.activity("q")
    assert activity.reason == "Stopped"
    for clause in (
        "is stopped",
        "references missing ResourceFlavor(s): f",
        "references missing AdmissionCheck(s): gone",
        "references inactive AdmissionCheck(s): idle",
    ):
        assert clause in activity.message


def test_a_queue_with_a_flavor_of_a_missing_topology_is_inactive_until_it_exists() -> None:
    here = Configured()
    here.put("ClusterQueue", "q", {"resourceGroups": flavors(f=[], g=[])})
    here.put("ResourceFlavor", "f", {})
    here.put("ResourceFlavor", "g", {"nodeLabels": {"a": "b"}, "topologyName": "racks"})
    activity = here.catalog.activity("q")
    assert activity.reason == "TopologyNotFound"
    assert activity.message.endswith(": there is no Topology racks for flavor g.")
    levels = {"levels": [{"nodeLabel": "rack"}]}
    assert here.put("Topology", "other", levels) == set()
    assert here.put("Topology", "racks", levels) == {"queue-q"}
    assert here.catalog.affected == {"q"}
    assert here.catalog.activity("q").active
    assert here.delete("Topology", "racks") == {"queue-q"}
    assert not here.catalog.activity("q").active


def test_b8_two_checks_of_one_controller_make_the_queue_inactive() -> None:
    here = Configured()
    here.put("ResourceFlavor", "f", {})
    here.put("ClusterQueue", "q", {"resourceGroups": flavors(f=["a", "b"])})
    here.put("AdmissionCheck", "a", {"controllerName": "x"})
    here.put("AdmissionCheck", "b", {"controllerName": "y"})
    assert here.catalog.activity("q").active
    here.put("AdmissionCheck", "b", {"controllerName": "x"})
    assert here.catalog.activity("q").reason == "ConflictingAdmissionChecks"


@pytest.mark.parametrize(
    ("queue", "reason"),
    [
        pytest.param(None, "NotFound", id="there is none"),
        pytest.param({"clusterQueue": "gone"}, "ClusterQueueDoesNotExist", id="it leads nowhere"),
        pytest.param({"clusterQueue": "held"}, "ClusterQueueIsInactive", id="it leads to a stop"),
        pytest.param({"clusterQueue": "q", "stopPolicy": "Hold"}, "Stopped", id="it is stopped"),
        pytest.param({"clusterQueue": "q"}, "Ready", id="it leads to an active queue"),
    ],
)
def test_a_local_queue_is_as_active_as_what_it_leads_to(queue: Any, reason: str) -> None:
    here = Configured()
    here.put("ClusterQueue", "q", {})
    here.put("ClusterQueue", "held", {"stopPolicy": "Hold"})
    if queue is not None:
        here.put("LocalQueue", "lq", queue, namespace="ns")
    assert here.catalog.local_queue_activity("ns", "lq").reason == reason


BUDGETS = "admittance.dev/budget"


def got(*used: str) -> Admission:
    return Admission(
        cluster_queue="q",
        pod_set_assignments=tuple(
            PodSetAssignment(name=f"set-{n}", flavors={"cpu": flavor})
            for n, flavor in enumerate(used)
        ),
    )


def a_queue(wide: list[str], per_flavor: dict[str, list[str]], **controllers: str) -> Catalog:
    here = Configured()
    for name, controller in controllers.items():
        here.put("AdmissionCheck", name, {"controllerName": controller})
    here.put(
        "ClusterQueue", "q", {"admissionChecks": wide, "resourceGroups": flavors(**per_flavor)}
    )
    return here.catalog


class Queue(NamedTuple):
    """The checks of a ClusterQueue and of its flavors, and the controllers of checks."""

    wide: list[str]
    per_flavor: dict[str, list[str]]
    controllers: dict[str, str]

    def catalog(self) -> Catalog:
        return a_queue(self.wide, self.per_flavor, **self.controllers)


@pytest.mark.parametrize(
    ("queue", "admission", "want"),
    [
        pytest.param(
            Queue([], {"f": ["x"], "g": ["y"]}, {"x": "1", "y": "2"}), got("f"), {"x"},
            id="B1 only the check of the flavor that was assigned",
        ),
        pytest.param(
            Queue(["y"], {"f": ["x"]}, {"x": "1", "y": "2"}), got("f"), {"x", "y"},
            id="B2 the flavor's and the queue's, of different controllers",
        ),
        pytest.param(
            Queue(["y"], {"f": ["x"]}, {"x": "1", "y": "1"}), got("f"), {"x"},
            id="B3 of one controller the flavor's wins",
        ),
        pytest.param(
            Queue([], {"f": [], "g": ["x"]}, {"x": "1"}), got("f"), set(),
            id="B4 none on the flavor without checks",
        ),
        pytest.param(
            Queue([], {"f": ["x"], "g": ["x", "y"]}, {"x": "1", "y": "2"}),
            got("f", "g"), {"x", "y"},
            id="B0 one row for a check that two used flavors name",
        ),
        pytest.param(
            Queue(["w"], {"f": ["x"], "g": ["x", "y"]}, {"w": "0", "x": "1", "y": "2"}),
            None, {"w", "x"},
            id="B7 before admission the queue-wide ones and those of all flavors",
        ),
        pytest.param(
            Queue(["w"], {"f": ["x"]}, {"x": "1"}), got("f"), {"w", "x"},
            id="B0 a check that does not exist keeps its row",
        ),
        pytest.param(
            Queue(["w", "v"], {"f": []}, {}), got("f"), {"w", "v"},
            id="B0 checks that do not exist have no controller to share",
        ),
        pytest.param(
            Queue(["w", "v"], {"f": ["x", "y"], "g": ["z"]}, dict.fromkeys("wvxyz", BUDGETS)),
            got("f", "g"), {"w", "v", "x", "y", "z"},
            id="each budget of the queue and its flavors is a check",
        ),
    ],
)  # fmt: skip
def test_required_checks(queue: Queue, admission: Admission | None, want: set[str]) -> None:
    assert set(queue.catalog().required_checks("q", admission)) == want


MACHINES = "admittance.dev/machines"


def cover(catalog: Catalog, *on: str, controller: str = MACHINES, active: str = "True") -> set[str]:
    """Applies the check `machines` for these flavors; returns the touched domains."""
    check = AdmissionCheck(
        metadata=ObjectMeta(name="machines"),
        spec=AdmissionCheckSpec(controller_name=controller, on_flavors=on),
        status=ObjectStatus(
            conditions=(Condition(type="Active", status=active, reason="ControllerLost"),)
        ),
    )
    return catalog.apply("AdmissionCheck", "", "machines", check, 99)


@pytest.mark.parametrize(
    ("queue", "admission", "want"),
    [
        pytest.param(
            Queue([], {"f": [], "g": []}, {}), got("f"), {"machines"},
            id="a covered flavor",
        ),
        pytest.param(Queue([], {"f": [], "g": []}, {}), got("g"), set(), id="another flavor"),
        pytest.param(
            Queue([], {"f": [], "g": []}, {}), got("g", "f"), {"machines"},
            id="one of two",
        ),
        pytest.param(Queue([], {"f": []}, {}), None, set(), id="every flavor is, before quota"),
        pytest.param(
            Queue(["w"], {"f": ["x"]}, {"w": "0", "x": "1"}), got("f"), {"w", "x", "machines"},
            id="beside other checks",
        ),
        pytest.param(
            Queue(["w"], {"f": []}, {"w": MACHINES}), got("f"), {"w"},
            id="a check of the queue with the controller replaces it",
        ),
        pytest.param(
            Queue([], {"f": ["x"], "g": []}, {"x": MACHINES}), got("f"), {"x"},
            id="a check of the flavor with the controller replaces it",
        ),
        pytest.param(
            Queue(["machines"], {"f": [], "g": []}, {}),
            got("g"), {"machines"}, id="the queue names it"
        ),
    ],
)  # fmt: skip
def test_a_covered_flavor_has_the_check_machines(
    queue: Queue, admission: Admission | None, want: set[str]
) -> None:
    later = queue.catalog()
    cover(later, "f")
    assert set(later.required_checks("q", admission)) == want
    cover(later)
    assert set(later.required_checks("q", admission)) == want - ({"machines"} - set(queue.wide))
    off = queue.catalog()
    off.use_machines(False)
    cover(off, "f")
    assert set(off.required_checks("q", admission)) == want - ({"machines"} - set(queue.wide))
    off.use_machines(True)
    assert set(off.required_checks("q", admission)) == want


def test_a_queue_with_machines_off_has_no_covered_flavor() -> None:
    here = Configured()
    here.put("ResourceFlavor", "f", {})
    cover(here.catalog, "f")
    here.put("ClusterQueue", "q", {"machines": "Off", "resourceGroups": flavors(f=[])})
    assert not here.catalog.required_checks("q", got("f"))
    assert here.catalog.users_of_check("machines") == []
    here.put("ClusterQueue", "q", {"resourceGroups": flavors(f=[])})
    assert set(here.catalog.required_checks("q", got("f"))) == {"machines"}
    assert here.catalog.users_of_check("machines") == ["q"]


def test_coverage_touches_the_domains_of_flavors_that_come_and_go() -> None:
    here = Configured()
    for name, flavor in (("q", "f"), ("r", "g"), ("s", "h")):
        here.put("ClusterQueue", name, {"resourceGroups": flavors(**{flavor: []})})
    assert cover(here.catalog, "f") == {"queue-q"}
    assert here.catalog.affected == {"q"}
    assert cover(here.catalog, "g") == {"queue-q", "queue-r"}
    assert here.catalog.newest("queue-q") == here.catalog.newest("queue-r") == 99
    assert here.catalog.newest("queue-s") == 3
    assert cover(here.catalog, "g", controller="x") == {"queue-r"}
    assert here.catalog.users_of_check("machines") == []


def test_a_covered_queue_is_inactive_while_placement_is_silent() -> None:
    catalog = a_queue([], {"f": []})
    catalog.apply("ResourceFlavor", "", "f", ResourceFlavor(), 9)
    cover(catalog, "f", active="False")
    assert catalog.activity("q").reason == "AdmissionCheckInactive"
    message = "(machines is answered by the service placement: ControllerLost)"
    assert message in catalog.activity("q").message
    cover(catalog, "f")
    assert catalog.activity("q").active


def test_b6_two_flavors_with_checks_of_one_controller_conflict() -> None:
    catalog = a_queue([], {"f": ["x"], "g": ["y"]}, x="1", y="1")
    with pytest.raises(ConflictingChecks):
        catalog.required_checks("q", got("f", "g"))


def test_b9_the_strategy_says_the_same_as_the_lists() -> None:
    lists = a_queue(["w"], {"f": ["x"], "g": []}, w="0", x="1")
    here = Configured()
    for name, controller in (("w", "0"), ("x", "1")):
        here.put("AdmissionCheck", name, {"controllerName": controller})
    rules = [{"name": "w"}, {"name": "x", "onFlavors": ["f"]}]
    here.put(
        "ClusterQueue",
        "q",
        {
            "admissionChecksStrategy": {"admissionChecks": rules},
            "resourceGroups": flavors(f=[], g=[]),
        },
    )
    for admission in (None, got("f"), got("g"), got("f", "g")):
        assert set(here.catalog.required_checks("q", admission)) == set(
            lists.required_checks("q", admission)
        )


def test_a_namespace_without_labels_is_known_by_its_name() -> None:
    here = Configured()
    selector = {"matchLabels": {"kubernetes.io/metadata.name": "ns"}}
    here.put("ClusterQueue", "q", {"namespaceSelector": selector})
    here.put("ClusterQueue", "none", {})
    assert here.catalog.selects_namespace("q", "ns")
    assert not here.catalog.selects_namespace("q", "other")
    assert not here.catalog.selects_namespace("none", "ns")


@pytest.mark.parametrize(
    ("names", "sentence"),
    [(["f"], "ResourceFlavor f doesn't exist"), (["f", "g"], "ResourceFlavor f, g don't exist")],
)
def test_missing_flavors_are_named_in_one_sentence(names: list[str], sentence: str) -> None:
    catalog = a_queue([], {name: [] for name in names})
    [warning] = [
        warning
        for warning in reference_warnings(catalog.cluster_queues["q"], catalog)
        if sentence in warning
    ]
    assert warning.startswith(sentence)
