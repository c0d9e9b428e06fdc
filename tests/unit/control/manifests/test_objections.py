"""Objections to a manifest because of the stored objects."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from admittance.api.configuration import AdmissionFairSharing, Configuration, FairSharingSettings
from admittance.api.reading.manifest import encode
from admittance.control.controller import Controller
from admittance.control.manifests.objects import Objects, users_of
from admittance.control.manifests.planned_writes import planned_writes
from admittance.control.manifests.proposals import (
    changed_since,
    proposal,
    refusal_reasons,
    warnings_about,
)
from admittance.quota.references import BOTH, sharing_of
from admittance.workload.limits import Limits
from support.builders import NOON

VERSION = "kueue.x-k8s.io/v1beta2"


def a_check(name: str, controller: str = "ctl") -> dict[str, Any]:
    return {
        "apiVersion": VERSION,
        "kind": "AdmissionCheck",
        "metadata": {"name": name},
        "spec": {"controllerName": controller},
    }


def a_queue(*checks: str, flavor: tuple[str, ...] = (), **spec: Any) -> dict[str, Any]:
    quota = {"name": "f", "resources": [{"name": "cpu", "nominalQuota": 1}]}
    group = {"coveredResources": ["cpu"], "flavors": [{**quota, "admissionChecks": flavor}]}
    return {
        "apiVersion": VERSION,
        "kind": "ClusterQueue",
        "metadata": {"name": "cq"},
        "spec": {
            "admissionChecks": checks,
            "resourceGroups": [group],
            "namespaceSelector": {},
            **spec,
        },
    }


class House:
    """Manifests, applied one after the other."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.controller = Controller(b"secret")
        self.limits = limits or Limits()
        self.sharing = BOTH
        self.warnings: list[str] = []
        self._revision = 0

    def apply(self, *manifests: dict[str, Any]) -> list[str]:
        """The objections to the manifests; without any, stores them."""
        raws = [msgspec.Raw(msgspec.json.encode(manifest)) for manifest in manifests]
        proposed = proposal(enumerate(raws, 1), "")
        assert not proposed.problems, proposed.problems
        planned = list(planned_writes(self.objects, proposed.manifests, now=NOON))
        reasons = refusal_reasons(self.objects, planned, self.limits)
        if not reasons:
            for write in planned:
                if write.value is not None:
                    self._revision += 1
                    self.controller.keep_object(
                        write.key, write.object, encode(write.object), self._revision
                    )
        self.controller.queues.limits = self.limits
        self.warnings = [
            line
            for write in planned
            for line in warnings_about(write, self.controller, self.sharing)
        ]
        return reasons

    @property
    def objects(self) -> Objects:
        return self.controller.objects


@pytest.fixture
def house() -> House:
    return House()


CONFLICT = "ClusterQueue cq: spec.admissionChecks: 'a' and 'b' have the same controller 'ctl'"


@pytest.mark.scenario("B8")
def test_two_known_checks_of_one_controller_in_one_list_are_refused(
    house: House,
) -> None:
    assert house.apply(a_check("a"), a_check("b")) == []
    assert house.apply(a_queue("a", "b")) == [CONFLICT]
    (reason,) = house.apply(a_queue(flavor=("a", "b")))
    assert "spec.resourceGroups[0].flavors[0].admissionChecks" in reason


def test_a_queue_and_its_flavors_may_have_several_budgets(house: House) -> None:
    budgets = [a_check(name, "admittance.dev/budget") for name in "abc"]
    for budget in budgets:
        name = budget["metadata"]["name"]
        parameters = {"apiGroup": "admittance.dev", "kind": "Budget", "name": name}
        budget["spec"]["parameters"] = parameters
    assert house.apply(*budgets, a_queue("a", "b", flavor=("a", "c"))) == []


@pytest.mark.scenario("B8")
def test_checks_applied_together_with_the_queue_are_validated_too(house: House) -> None:
    assert house.apply(a_queue("a", "b"), a_check("b"), a_check("a")) == [CONFLICT]


@pytest.mark.scenario("B8")
def test_a_check_applied_later_does_not_block_edits_of_the_queue(house: House) -> None:
    assert house.apply(a_check("a"), a_queue("a", "b")) == []
    assert house.apply(a_check("b")) == []
    assert house.apply(a_queue("a", "b", stopPolicy="Hold")) == []
    house.apply(a_check("c", "other"), a_check("d", "other"))
    (reason,) = house.apply(a_queue("a", "b", "c", "d"))
    assert "'c' and 'd'" in reason
    assert house.apply(a_queue("b")) == []


def test_a_flavors_check_may_go_by_the_controller_of_a_queue_wide_one(house: House) -> None:
    house.apply(a_check("a"), a_check("b"))
    assert house.apply(a_queue("a", flavor=("b",))) == []


def test_the_controller_of_a_check_never_changes(house: House) -> None:
    house.apply(a_check("a"))
    (reason,) = house.apply(a_check("a", "other"))
    assert reason.startswith("AdmissionCheck a: spec.controllerName")


def a_queue_of(flavors: int, *, families: bool = True) -> dict[str, Any]:
    offered = [
        {"name": f"f{number}", "resources": [{"name": "cpu", "nominalQuota": 1}]}
        for number in range(flavors)
    ]
    policy: dict[str, Any] = {
        "concurrentAdmission": {"migrationConstraints": {"mode": "UpgradeOnly"}}
    }
    queue = a_queue(**(policy if families else {}))
    queue["spec"]["resourceGroups"] = [{"coveredResources": ["cpu"], "flavors": offered}]
    return queue


@pytest.mark.parametrize(
    ("most", "flavors", "taken"),
    [
        pytest.param(16, 16, True, id="sixteen flavors are sixteen variants"),
        pytest.param(16, 17, False, id="seventeen are too many"),
        pytest.param(32, 32, True, id="a deployment may allow thirty-two"),
        pytest.param(32, 33, False, id="and then not one more"),
        pytest.param(4, 5, False, id="or fewer"),
    ],
)
def test_how_many_flavors_may_each_be_a_variant_is_a_setting(
    most: int, flavors: int, taken: bool
) -> None:
    reasons = House(Limits(flavors_max=most)).apply(a_queue_of(flavors))
    refusal = (
        f"ClusterQueue cq: spec.resourceGroups[0].flavors: has {flavors} flavors, at most {most} "
        "are allowed for concurrentAdmission without explicitVariants"
    )
    assert reasons == ([] if taken else [refusal])


def test_a_queue_over_the_flavor_limit_may_stay_or_shrink_but_not_grow() -> None:
    house = House(Limits(flavors_max=32))
    assert house.apply(a_queue_of(20)) == []
    house.limits = Limits()
    assert house.apply({**a_queue_of(20), "metadata": {"name": "cq", "labels": {"a": "b"}}}) == []
    assert "has 21 flavors, at most 20" in house.apply(a_queue_of(21))[0]
    assert house.apply(a_queue_of(18)) == []
    assert "at most 18" in house.apply(a_queue_of(20))[0]


def test_a_queue_without_families_has_the_usual_limit_of_flavors() -> None:
    assert House().apply(a_queue_of(64, families=False)) == []


def test_while_the_gate_is_off_the_policy_is_kept_with_a_warning() -> None:
    house = House(Limits(families=False))
    assert house.apply(a_queue_of(2)) == []
    [warning] = [warning for warning in house.warnings if "concurrentAdmission" in warning]
    assert warning.startswith("spec.concurrentAdmission is kept and has no effect")
    assert "ConcurrentAdmission is off" in warning
    assert house.apply(a_queue_of(2, families=False)) == []
    assert not any("concurrentAdmission" in warning for warning in house.warnings)
    house.limits = Limits()
    assert house.apply(a_queue_of(2)) == []
    assert not any("concurrentAdmission" in warning for warning in house.warnings)


def test_parameters_that_are_missing_are_warned_about(house: House) -> None:
    named = {"apiGroup": "example.com", "kind": "Budget", "name": "main"}
    check = {
        "apiVersion": VERSION,
        "kind": "AdmissionCheck",
        "metadata": {"name": "c"},
        "spec": {"controllerName": "ctl", "parameters": named},
    }
    house.apply(check)
    assert house.warnings == [
        "spec.parameters: Budget.example.com main doesn't exist: until then the check is inactive, "
        "and its queues reserve nothing"
    ]
    budget = {"apiVersion": "example.com/v1", "kind": "Budget", "metadata": {"name": "main"}}
    house.apply(check, {**budget, "spec": {}})
    assert house.warnings == []


def a_flavor(name: str, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name}
    return {"apiVersion": VERSION, "kind": "ResourceFlavor", "metadata": metadata, "spec": spec}


def a_local_queue(namespace: str = "ns", cluster_queue: str = "cq", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": VERSION,
        "kind": "LocalQueue",
        "metadata": {"name": "lq", "namespace": namespace},
        "spec": {"clusterQueue": cluster_queue, **spec},
    }


def a_cohort(name: str, parent: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": VERSION,
        "kind": "Cohort",
        "metadata": {"name": name},
        "spec": {"parentName": parent, **spec},
    }


@pytest.mark.parametrize(
    ("manifests", "said"),
    [
        pytest.param(
            [a_flavor("f"), a_queue(namespaceSelector=None)],
            ["spec.namespaceSelector is missing: the queue selects no namespace"],
            id="a queue without a selector",
        ),
        pytest.param([a_queue()], ["ResourceFlavor f doesn't exist"], id="a missing flavor"),
        pytest.param(
            [a_flavor("f"), a_queue("a", flavor=("b",))],
            ["AdmissionCheck a, b don't exist"],
            id="missing checks",
        ),
        pytest.param(
            [a_flavor("f", topologyName="t", nodeLabels={"x": "y"}), a_queue()],
            ["Topology t of ResourceFlavor f doesn't exist"] * 2,
            id="a missing topology, of the flavor and of its queue",
        ),
        pytest.param(
            [a_local_queue()], ["ClusterQueue cq doesn't exist"], id="a missing ClusterQueue"
        ),
        pytest.param(
            [a_flavor("f"), a_queue(namespaceSelector=None), a_local_queue()],
            ["spec.namespaceSelector is missing", "ClusterQueue cq has no namespaceSelector"],
            id="a ClusterQueue that selects nothing",
        ),
        pytest.param(
            [
                a_flavor("f"),
                a_queue(namespaceSelector={"matchLabels": {"team": "a"}}),
                a_local_queue(),
            ],
            ["the namespaceSelector of ClusterQueue cq does not select the namespace ns"],
            id="a namespace that is not selected",
        ),
        pytest.param(
            [a_cohort("a", "b"), a_cohort("b", "a")],
            ["spec.parentName: the cohorts form a cycle"] * 2,
            id="cohorts in a cycle",
        ),
        pytest.param(
            [a_flavor("f"), a_queue(), a_local_queue(), a_cohort("a", "b")],
            [],
            id="nothing is missing",
        ),
    ],
)
def test_an_object_that_does_nothing_yet_is_warned_about(
    house: House, manifests: list[dict[str, Any]], said: list[str]
) -> None:
    assert house.apply(*manifests) == []
    assert len(house.warnings) == len(said), house.warnings
    for warning, begins in zip(house.warnings, said, strict=True):
        assert warning.startswith(begins)


def test_quota_that_is_rounded_up_is_warned_about(house: House) -> None:
    def quotas(cpu: Any, gpu: Any) -> list[dict[str, Any]]:
        resources = [
            {"name": "cpu", "nominalQuota": cpu},
            {"name": "nvidia.com/gpu", "nominalQuota": gpu},
        ]
        flavors = [{"name": "f", "resources": resources}]
        return [{"coveredResources": ["cpu", "nvidia.com/gpu"], "flavors": flavors}]

    house.apply(a_flavor("f"), a_queue(resourceGroups=quotas("0.0005", "1.5")))
    path = "spec.resourceGroups[0].flavors[0].resources"
    assert house.warnings == [
        f"{path}[0].nominalQuota: 0.0005 counts as 1m",
        f"{path}[1].nominalQuota: 1.5 counts as 2",
    ]
    house.apply(a_queue(resourceGroups=quotas("1.5", 2)))
    assert house.warnings == []


def test_shares_without_their_section_of_the_configuration_are_warned_about() -> None:
    weight: dict[str, Any] = {"fairSharing": {"weight": 2}}
    scope: dict[str, Any] = {"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}}
    house = House()
    manifests = [
        a_flavor("f"),
        a_queue(**weight, **scope),
        a_local_queue(**weight),
        a_cohort("c", "", **weight),
    ]
    assert house.apply(*manifests) == []
    assert house.warnings == []
    house.sharing = sharing_of(Configuration())
    assert house.apply(*manifests) == []
    assert [warning.split(" has no effect")[0] for warning in house.warnings] == [
        "spec.fairSharing",
        "spec.admissionScope",
        "spec.fairSharing",
        "spec.fairSharing",
    ]
    both = Configuration(
        fair_sharing=FairSharingSettings(), admission_fair_sharing=AdmissionFairSharing()
    )
    assert sharing_of(both) == BOTH


def test_an_object_that_is_twice_in_one_request_is_named() -> None:
    raws = [msgspec.Raw(msgspec.json.encode(manifest)) for manifest in (a_check("a"), a_queue("a"))]
    proposed = proposal(enumerate([*raws, raws[0]], 1), "")
    (problem,) = proposed.problems
    assert problem == "object 3 (AdmissionCheck a): metadata.name: the same object is in object 1"


def test_a_status_in_a_manifest_is_not_stored(house: House) -> None:
    made_up = {"pendingWorkloads": 3}
    grace = {"name": "cq", "deletionGracePeriodSeconds": 5, "selfLink": "/x", "managedFields": [{}]}
    queue = {**a_queue(), "status": made_up, "metadata": grace}
    assert house.apply(queue) == []
    [(_, kept)] = house.objects
    assert kept.object.status is None
    assert b"pendingWorkloads" not in kept.value
    assert b"selfLink" not in kept.value
    house.apply(a_queue())
    assert [stored.revision for _, stored in house.objects] == [kept.revision]


def test_a_topology_is_in_use_while_a_flavor_names_it(house: House) -> None:
    head = {"apiVersion": VERSION, "metadata": {"name": "racks"}}
    topology = {**head, "kind": "Topology", "spec": {"levels": [{"nodeLabel": "rack"}]}}
    flavor = {
        "apiVersion": VERSION,
        "kind": "ResourceFlavor",
        "metadata": {"name": "f"},
        "spec": {"nodeLabels": {"a": "b"}, "topologyName": "racks"},
    }
    assert house.apply(topology, flavor) == []
    assert users_of(house.objects, house.controller.catalog, "topology", "racks") == [
        "ResourceFlavor f"
    ]
    assert users_of(house.objects, house.controller.catalog, "topology", "other") == []


def a_pod_class(name: str, value: int, *, default: bool = False) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        "globalDefault": default,
    }


def test_only_one_priority_class_is_the_global_default(house: House) -> None:
    assert house.apply(a_pod_class("low", 1, default=True), a_pod_class("high", 9)) == []
    assert house.objects.global_default() == ("low", 1)
    assert house.objects.pod_class("high") == 9
    assert house.apply(a_pod_class("high", 9, default=True)) == [
        "PriorityClass high: globalDefault: PriorityClass low is the global default already"
    ]
    assert house.apply(a_pod_class("low", 2, default=True)) == []
    assert house.objects.global_default() == ("low", 2)
    assert house.apply(a_pod_class("low", 2)) == []
    assert house.objects.global_default() is None
    assert house.apply(a_pod_class("high", 9, default=True)) == []
    house.objects.gone("priorityclass_scheduling_k8s_io.high", 99)
    assert house.objects.global_default() is None


def test_two_global_defaults_of_one_apply_are_refused(house: House) -> None:
    both = [a_pod_class("low", 1, default=True), a_pod_class("high", 9, default=True)]
    [line] = house.apply(*both)
    assert line.startswith("PriorityClass high: globalDefault: ")


@pytest.mark.parametrize(
    ("stored", "expected", "lines"),
    [
        pytest.param(True, 1, [], id="as expected"),
        pytest.param(True, None, [], id="any revision"),
        pytest.param(False, 0, [], id="it must not exist"),
        pytest.param(True, 7, ["AdmissionCheck c has changed since"], id="changed"),
        pytest.param(True, 0, ["AdmissionCheck c exists now"], id="created"),
        pytest.param(False, 7, ["AdmissionCheck c does not exist any more"], id="deleted"),
    ],
)
def test_an_object_must_have_the_expected_revision(
    stored: bool, expected: int | None, lines: list[str]
) -> None:
    house = House()
    if stored:
        assert house.apply(a_check("c")) == []
    raw = msgspec.Raw(msgspec.json.encode(a_check("c", "other")))
    [manifest] = proposal([(1, raw)], "").manifests
    planned = planned_writes(house.objects, [manifest], now=NOON)
    assert changed_since(house.objects, planned, [expected]) == lines
