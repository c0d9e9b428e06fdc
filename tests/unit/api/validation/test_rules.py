"""Every rule refuses what breaks it, and names the field."""

from __future__ import annotations

from typing import Any

import pytest

from admittance.api.pods import Container, PodSpec, Volume
from admittance.api.reading.manifest import ManifestError, accept, decode_object
from admittance.api.validation.containers import check_containers
from admittance.api.validation.validate import validate, validate_update

V2 = "kueue.x-k8s.io/v1beta2"


def problems(kind: str, spec: Any, **more: Any) -> dict[str, str]:
    """Field to code of everything that is wrong."""
    value = {"apiVersion": V2, "kind": kind, "metadata": {"name": "x"}, "spec": spec, **more}
    try:
        accept(value)
    except ManifestError as error:
        return {problem.field: problem.code for problem in error.problems}
    return {}


def quota(name: str = "cpu", **more: Any) -> dict[str, Any]:
    return {"name": name, "nominalQuota": 10, **more}


def group(*flavors: str, **more: Any) -> dict[str, Any]:
    offered = [{"name": name, "resources": [quota(**more)]} for name in flavors or ("a",)]
    return {"coveredResources": ["cpu"], "flavors": offered}


def many(count: int, *, of: str = "f") -> list[str]:
    return [f"{of}{i}" for i in range(count)]


RESOURCES = "spec.resourceGroups[0].flavors[0].resources[0]"


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        pytest.param({"resourceGroups": [{**group(f"f{i}"), "coveredResources": [f"r{i}"]}
                                         for i in range(17)]},
                     "spec.resourceGroups", id="17 groups"),
        pytest.param({"resourceGroups": [group(*many(65))]}, "spec.resourceGroups[0].flavors",
                     id="65 flavors in a group"),
        pytest.param({"resourceGroups": [{"coveredResources": many(65), "flavors": []}]},
                     "spec.resourceGroups[0].coveredResources", id="65 resources in a group"),
        pytest.param({"resourceGroups": [
            {"coveredResources": many(9, of="r"),
             "flavors": [{"name": f, "resources": [quota(r) for r in many(9, of="r")]}
                         for f in many(60)]}]}, "spec.resourceGroups[0]", id="540 quotas"),
        pytest.param({"resourceGroups": [{"coveredResources": ["cpu"], "flavors": []}]},
                     "spec.resourceGroups[0].flavors", id="a group without flavors"),
        pytest.param({"resourceGroups": [group("a", "a")]},
                     "spec.resourceGroups[0].flavors[1].name", id="a flavor twice in a group"),
        pytest.param({"resourceGroups": [{"coveredResources": ["cpu", "memory"],
                                          "flavors": [{"name": "a", "resources": [quota()]}]}]},
                     "spec.resourceGroups[0].flavors[0].resources", id="one quota for two"),
        pytest.param({"resourceGroups": [group("A_b")]}, "spec.resourceGroups[0].flavors[0].name",
                     id="no name of a flavor"),
        pytest.param({"resourceGroups": [group(borrowingLimit=1)]}, f"{RESOURCES}.borrowingLimit",
                     id="a borrowing limit without cohort"),
        pytest.param({"cohortName": "c", "resourceGroups": [group(lendingLimit=11)]},
                     f"{RESOURCES}.lendingLimit", id="lending more than it has"),
        pytest.param({"cohortName": "C!"}, "spec.cohortName", id="no name of a cohort"),
        pytest.param({"queueingStrategy": "LIFO"}, "spec.queueingStrategy", id="a strategy"),
        pytest.param({"stopPolicy": "hold"}, "spec.stopPolicy", id="a stop policy"),
        pytest.param({"onQuotaCut": "kill"}, "spec.onQuotaCut", id="what a quota cut does"),
        pytest.param({"namespaceSelector": {"matchExpressions": [
            {"key": "a", "operator": "Exists", "values": ["b"]}]}},
            "spec.namespaceSelector.matchExpressions[0].values", id="Exists with a value"),
        pytest.param({"namespaceSelector": {"matchExpressions": [
            {"key": "a", "operator": "Like"}]}},
            "spec.namespaceSelector.matchExpressions[0].operator", id="an operator"),
        pytest.param({"preemption": {"borrowWithinCohort": {"policy": "LowerPriority"}}},
                     "spec.preemption", id="borrowing preemption without reclaim"),
        pytest.param({"preemption": {"reclaimWithinCohort": "All"}},
                     "spec.preemption.reclaimWithinCohort", id="a reclaim policy"),
        pytest.param({"preemption": {"withinClusterQueue": "Any"}},
                     "spec.preemption.withinClusterQueue", id="a policy of the other field"),
        pytest.param({"preemption": {"reclaimWithinCohort": "Any", "borrowWithinCohort": {
            "policy": "LowerPriority", "maxPriorityThreshold": 2**31}}},
            "spec.preemption.borrowWithinCohort.maxPriorityThreshold", id="beyond int32"),
        pytest.param({"preemption": {"minRunSeconds": -1}}, "spec.preemption.minRunSeconds",
                     id="a time below zero"),
        pytest.param({"preemption": {"minRunSeconds": 2**31}}, "spec.preemption.minRunSeconds",
                     id="a time beyond int32"),
        pytest.param({"preemption": {"minRunSeconds": 1, "minRunPolicy": "Never"}},
                     "spec.preemption.minRunPolicy", id="a policy of another field"),
        pytest.param({"preemption": {"minRunPolicy": "Preferred"}},
                     "spec.preemption.minRunPolicy", id="a policy without a time"),
        pytest.param({"fairSharing": {"weight": "-1"}}, "spec.fairSharing.weight",
                     id="a negative weight"),
        pytest.param({"fairSharing": {"weight": "1n"}}, "spec.fairSharing.weight",
                     id="a weight of a billionth"),
        pytest.param({"admissionScope": {"admissionMode": "x"}},
                     "spec.admissionScope.admissionMode", id="an admission mode"),
        # B8
        pytest.param({"admissionChecks": ["a", "b", "a"]}, "spec.admissionChecks[2]",
                     id="B8: a check twice in the queue-wide list"),
        pytest.param({"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
            {"name": "a", "resources": [quota()], "admissionChecks": ["c", "c"]}]}]},
            "spec.resourceGroups[0].flavors[0].admissionChecks[1]",
            id="B8: a check twice in a flavor's list"),
        pytest.param({"admissionChecksStrategy": {"admissionChecks": [{"name": "a"}] * 2}},
                     "spec.admissionChecksStrategy.admissionChecks[1].name",
                     id="B8: a check twice in a strategy"),
        pytest.param({"resourceGroups": [group()], "admissionChecksStrategy": {"admissionChecks": [
            {"name": "a", "onFlavors": ["b"]}]}},
            "spec.admissionChecksStrategy.admissionChecks[0].onFlavors[0]",
            id="B8: onFlavors names an unknown flavor"),
        pytest.param({"admissionChecksStrategy": {"admissionChecks": []}},
                     "spec.admissionChecksStrategy.admissionChecks", id="an empty strategy"),
        pytest.param({"admissionChecks": many(65)}, "spec.admissionChecks", id="65 checks"),
        pytest.param({"admissionChecks": many(9)}, "spec.admissionChecks",
                     id="9 checks that every workload would have"),
        pytest.param({"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
            {"name": "a", "resources": [quota()], "admissionChecks": many(9)}]}]},
            "spec.resourceGroups[0].flavors[0].admissionChecks",
            id="9 checks that a workload of one flavor would have"),
        pytest.param({"admissionChecksStrategy": {
            "admissionChecks": [{"name": check} for check in many(9)]}},
            "spec.admissionChecksStrategy", id="9 rules for every flavor"),
    ],
)  # fmt: skip
def test_rules_of_a_cluster_queue(spec: Any, field: str) -> None:
    assert field in problems("ClusterQueue", spec)


def test_256_flavors_in_all_groups_is_the_limit() -> None:
    def groups(last: int) -> list[Any]:
        sizes = [64, 64, 64, last, 1]
        return [
            {"coveredResources": [f"r{i}"],
             "flavors": [{"name": f"f{i}-{j}", "resources": [quota(f"r{i}")]} for j in range(size)]}
            for i, size in enumerate(sizes)
        ]  # fmt: skip

    assert problems("ClusterQueue", {"resourceGroups": groups(63)}) == {}
    assert problems("ClusterQueue", {"resourceGroups": groups(64)}) == {
        "spec.resourceGroups": "TooMany"
    }


CONCURRENT = "spec.concurrentAdmission"
MIGRATION = f"{CONCURRENT}.migrationConstraints"
VARIANTS = f"{CONCURRENT}.explicitVariants"


def concurrent(*, groups: Any = None, strategy: str = "BestEffortFIFO", **given: Any) -> Any:
    mode = given.pop("mode", "UpgradeOnly")
    constraints = {
        k: given.pop(k) for k in ("minFlavor", "minVariant") if k in given
    } | ({} if mode is None else {"mode": mode})  # fmt: skip
    return {
        "resourceGroups": [group("a", "b")] if groups is None else groups,
        "queueingStrategy": strategy,
        "concurrentAdmission": {"migrationConstraints": constraints, **given},
    }


def variant(name: str = "v", *flavors: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "allowedResourceFlavors": list(flavors) or ["a"], **more}


@pytest.mark.parametrize(
    ("backfill", "strategy", "code"),
    [
        ("Easy", "BestEffortFIFO", ""),
        ("", "StrictFIFO", ""),
        ("Easy", "StrictFIFO", "Invalid"),
        ("Conservative", "BestEffortFIFO", "NotSupported"),
    ],
)
def test_only_a_queue_that_starts_workloads_past_its_head_has_backfill(
    backfill: str, strategy: str, code: str
) -> None:
    spec = {"backfill": backfill, "queueingStrategy": strategy, "resourceGroups": [group("a")]}
    assert problems("ClusterQueue", spec).get("spec.backfill", "") == code


@pytest.mark.parametrize(
    ("scope", "errors"),
    [
        ({"admissionMode": "UsageBasedAdmissionFairSharing", "usageOf": "User"}, {}),
        ({"admissionMode": "NoAdmissionFairSharing", "usageOf": "LocalQueue"}, {}),
        ({"admissionMode": "NoAdmissionFairSharing", "usageOf": "User"},
         {"spec.admissionScope.usageOf": "Invalid"}),
        ({"admissionMode": "UsageBasedAdmissionFairSharing", "usageOf": "Team"},
         {"spec.admissionScope.usageOf": "NotSupported"}),
    ],
)  # fmt: skip
def test_the_usage_of_users_needs_an_order_by_usage(
    scope: dict[str, str], errors: dict[str, str]
) -> None:
    spec = {"resourceGroups": [group("a")], "namespaceSelector": {}, "admissionScope": scope}
    assert problems("ClusterQueue", spec) == errors


@pytest.mark.parametrize(
    ("limits", "errors"),
    [
        ({"perUser": {"cpu": 16}, "perLabel": {"example.com/team": {"cpu": "500m"}}}, {}),
        ({"perUser": {"cpu": 0}, "perLabel": {}}, {}),
        ({"perUser": {"gpu": 1}}, {"spec.perUser[gpu]": "NotSupported"}),
        ({"perUser": {"cpu": "-1"}}, {"spec.perUser[cpu]": "Invalid"}),
        ({"perUser": {"cpu": "many"}}, {"spec.perUser[cpu]": "Invalid"}),
        ({"perUser": {"cpu": None}}, {"spec.perUser[cpu]": "TypeInvalid"}),
        ({"perUser": {"": 1}}, {"spec.perUser[]": "NotSupported"}),
        ({"perUser": 16}, {"spec.perUser": "TypeInvalid"}),
        ({"perLabel": {"team": {}}}, {"spec.perLabel[team]": "Invalid"}),
        ({"perLabel": {"a b": {"cpu": 1}}}, {"spec.perLabel[a b]": "Invalid"}),
        ({"perLabel": {"team": {"cpu": "x"}}}, {"spec.perLabel[team][cpu]": "Invalid"}),
        ({"perLabel": {"team": {"gpu": 1}}}, {"spec.perLabel[team][gpu]": "NotSupported"}),
    ],
)
def test_a_limit_of_a_person_is_an_amount_of_a_resource_of_the_queue(
    limits: dict[str, Any], errors: dict[str, str]
) -> None:
    spec = {"resourceGroups": [group("a")], "namespaceSelector": {}, **limits}
    assert problems("ClusterQueue", spec) == errors


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        pytest.param(concurrent(strategy="StrictFIFO"), "spec.queueingStrategy",
                     id="D20: StrictFIFO"),
        pytest.param(concurrent(explicitVariants=[variant(f"v{i}") for i in range(17)]),
                     VARIANTS, id="D30: 17 variants"),
        pytest.param(concurrent(explicitVariants=[variant("v"), variant("v")]),
                     f"{VARIANTS}[1].name", id="D30: one name twice"),
        pytest.param(concurrent(mode=None), f"{MIGRATION}.mode", id="D30: no mode"),
        pytest.param(concurrent(mode="Upgrade"), f"{MIGRATION}.mode", id="an unknown mode"),
        pytest.param(concurrent(mode="NoMigration", minFlavor="a"), f"{MIGRATION}.minFlavor",
                     id="D30: minFlavor with NoMigration"),
        pytest.param(concurrent(minFlavor="a", explicitVariants=[variant()]),
                     f"{MIGRATION}.minFlavor", id="D30: minFlavor with explicitVariants"),
        pytest.param(concurrent(minFlavor="z"), f"{MIGRATION}.minFlavor",
                     id="D30: minFlavor not on offer"),
        pytest.param(concurrent(minVariant="v"), f"{MIGRATION}.minVariant",
                     id="D30: minVariant without explicitVariants"),
        pytest.param(concurrent(minVariant="z", explicitVariants=[variant()]),
                     f"{MIGRATION}.minVariant", id="D30: minVariant unknown"),
        pytest.param(concurrent(mode="NoMigration", minVariant="v", explicitVariants=[variant()]),
                     f"{MIGRATION}.minVariant", id="minVariant with NoMigration"),
        pytest.param(concurrent(explicitVariants=[{"name": "v", "allowedResourceFlavors": []}]),
                     f"{VARIANTS}[0].allowedResourceFlavors", id="D30: no flavor"),
        pytest.param(concurrent(explicitVariants=[variant("v", "z")]),
                     f"{VARIANTS}[0].allowedResourceFlavors[0]", id="a flavor not on offer"),
        pytest.param(concurrent(explicitVariants=[variant(createDelaySeconds=-1)]),
                     f"{VARIANTS}[0].createDelaySeconds", id="D30: delay -1"),
        pytest.param(concurrent(explicitVariants=[variant(deleteDelaySeconds=2**31)]),
                     f"{VARIANTS}[0].deleteDelaySeconds", id="a delay beyond int32"),
        pytest.param(concurrent(explicitVariants=[variant("Fast")]), f"{VARIANTS}[0].name",
                     id="D30: capitals in a name"),
        pytest.param(concurrent(explicitVariants=[variant("a.b")]), f"{VARIANTS}[0].name",
                     id="a name that is not a DNS label"),
        pytest.param(concurrent(groups=[group(*many(33))]), "spec.resourceGroups[0].flavors",
                     id="33 flavors without explicitVariants"),
        pytest.param(concurrent(groups=[group("a"), {**group("b"), "coveredResources": ["gpu"]}]),
                     "spec.resourceGroups", id="two groups without explicitVariants"),
    ],
)  # fmt: skip
def test_rules_of_concurrent_admission(spec: Any, field: str) -> None:
    assert field in problems("ClusterQueue", spec)


@pytest.mark.parametrize(
    "spec",
    [
        concurrent(minFlavor="b"),
        concurrent(mode="NoMigration"),
        concurrent(minVariant="v", explicitVariants=[variant("v", "a", "b", createDelaySeconds=0)]),
        concurrent(
            groups=[
                group("a"),
                {
                    "coveredResources": ["gpu"],
                    "flavors": [{"name": "b", "resources": [quota("gpu")]}],
                },
            ],
            explicitVariants=[variant("v", "a", "b")],
        ),
    ],
)
def test_valid_concurrent_admission_is_accepted(spec: Any) -> None:
    assert problems("ClusterQueue", spec) == {}


@pytest.mark.parametrize(
    ("kind", "spec", "field"),
    [
        ("Cohort", {"resourceGroups": [group(borrowingLimit=1)]}, f"{RESOURCES}.borrowingLimit"),
        ("Cohort", {"parentName": "P"}, "spec.parentName"),
        ("LocalQueue", {}, "spec.clusterQueue"),
        ("LocalQueue", {"clusterQueue": "q", "stopPolicy": "x"}, "spec.stopPolicy"),
        ("ResourceFlavor", {"nodeLabels": {f"l{i}": "" for i in range(9)}}, "spec.nodeLabels"),
        ("ResourceFlavor", {"nodeTaints": [{"key": "k", "effect": "Never"}]},
         "spec.nodeTaints[0].effect"),
        ("ResourceFlavor", {"nodeTaints": [{"key": "k", "effect": "NoSchedule"}] * 2},
         "spec.nodeTaints[1]"),
        ("ResourceFlavor", {"tolerations": [{"operator": "Equal"}]},
         "spec.tolerations[0].operator"),
        ("ResourceFlavor", {"tolerations": [{"key": "k", "tolerationSeconds": 1}]},
         "spec.tolerations[0].effect"),
        ("ResourceFlavor", {"tolerations": [{"key": "k", "operator": "Exists", "value": "v"}]},
         "spec.tolerations[0].value"),
        ("ResourceFlavor", {"tolerations": [{"key": "k", "operator": "In"}]},
         "spec.tolerations[0].operator"),
        ("ResourceFlavor", {"topologyName": "t"}, "spec.nodeLabels"),
        ("AdmissionCheck", {}, "spec.controllerName"),
        ("AdmissionCheck", {"controllerName": "c" * 254}, "spec.controllerName"),
        ("AdmissionCheck", {"controllerName": "example.com/" + "ä" * 50}, "spec.controllerName"),
        ("AdmissionCheck", {"controllerName": "c", "parameters": {"apiGroup": "g", "kind": "K"}},
         "spec.parameters.name"),
        ("AdmissionCheck", {"controllerName": "c", "preemptionPolicy": "x"},
         "spec.preemptionPolicy"),
        ("AdmissionCheck", {"controllerName": "c", "checkTimeoutSeconds": 0},
         "spec.checkTimeoutSeconds"),
        ("AdmissionCheck", {"controllerName": "c", "retry": {}}, "spec.retry.baseDelay"),
        ("AdmissionCheck", {"controllerName": "c", "retry": {"baseDelay": "0s"}},
         "spec.retry.baseDelay"),
        ("AdmissionCheck", {"controllerName": "c", "retry": {"baseDelay": "1 hour"}},
         "spec.retry.baseDelay"),
        ("AdmissionCheck", {"controllerName": "c", "retry": {"baseDelay": "1s", "factor": 0.5}},
         "spec.retry.factor"),
        ("AdmissionCheck", {"controllerName": "c", "retry": {"baseDelay": "1s", "jitter": 1.5}},
         "spec.retry.jitter"),
        ("AdmissionCheck", {"controllerName": "c", "retry": {"baseDelay": "1s", "maxRetries": -1}},
         "spec.retry.maxRetries"),
        ("AdmissionCheck", {"controllerName": "c", "retry": {"strategy": "random"}},
         "spec.retry.strategy"),
        ("ProvisioningRequestConfig", {}, "spec.provisioningClassName"),
        ("ProvisioningRequestConfig", {"provisioningClassName": "c", "parameters": {
            "p": "x" * 256}}, "spec.parameters[p]"),
        ("ProvisioningRequestConfig", {"provisioningClassName": "c", "parameters": {"": "x"}},
         "spec.parameters"),
        ("ProvisioningRequestConfig", {"provisioningClassName": "c", "parameters": {
            "k" * 256: "x"}}, f"spec.parameters[{'k' * 60}]"),
        ("ProvisioningRequestConfig", {"provisioningClassName": "c", "parameters": {
            f"p{i}": "" for i in range(101)}}, "spec.parameters"),
        ("ProvisioningRequestConfig", {"provisioningClassName": "c", "managedResources": ["a"] * 2},
         "spec.managedResources[1]"),
        ("ProvisioningRequestConfig", {"provisioningClassName": "c", "managedResources": [""]},
         "spec.managedResources[0]"),
        ("ProvisioningRequestConfig", {"provisioningClassName": "c", "managedResources": [
            "nvidia.com/gpu", "not a resource!"]}, "spec.managedResources[1]"),
        ("ProvisioningRequestConfig", {"provisioningClassName": "c", "managedResources": [
            "a/b/c"]}, "spec.managedResources[0]"),
        ("ProvisioningRequestConfig", {"provisioningClassName": "c", "podSetMergePolicy": "x"},
         "spec.podSetMergePolicy"),
        ("Workload", {}, "spec.podSets"),
        ("Workload", {"podSets": [{"name": f"p{i}"} for i in range(19)]}, "spec.podSets"),
        ("Workload", {"podSets": [{}, {}]}, "spec.podSets[1].name"),
        ("Workload", {"podSets": [{"name": "a.b"}]}, "spec.podSets[0].name"),
        ("Workload", {"podSets": [{"count": -1}]}, "spec.podSets[0].count"),
        ("Workload", {"podSets": [{"count": 2**31}]}, "spec.podSets[0].count"),
        ("Workload", {"podSets": [{"count": 2, "minCount": 3}]}, "spec.podSets[0].minCount"),
        ("Workload", {"podSets": [{"count": 2, "minCount": -1}]}, "spec.podSets[0].minCount"),
        ("Workload", {"podSets": [{}], "priority": 2**31}, "spec.priority"),
        ("Workload", {"podSets": [{}], "priorityClassRef": {
            "group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "p"}},
         "spec.priority"),
        ("Workload", {"podSets": [{}], "priority": 1, "priorityClassRef": {
            "group": "kueue.x-k8s.io", "kind": "PriorityClass", "name": "p"}},
         "spec.priorityClassRef.kind"),
        ("Workload", {"podSets": [{}], "priority": 1, "priorityClassRef": {
            "group": "x", "kind": "PriorityClass", "name": "p"}}, "spec.priorityClassRef.group"),
        ("Workload", {"podSets": [{}], "maximumExecutionTimeSeconds": 0},
         "spec.maximumExecutionTimeSeconds"),
        ("Workload", {"podSets": [{}], "preemptionGates": [{"name": n} for n in many(9)]},
         "spec.preemptionGates"),
        ("Workload", {"podSets": [{}], "queueName": "Q"}, "spec.queueName"),
        ("Workload", {"podSets": [{}], "role": "leader"}, "spec.role"),
        ("Workload", {"podSets": [{"template": {"spec": {"nodeSelector": {"a b": "c"}}}}]},
         "spec.podSets[0].template.spec.nodeSelector"),
        ("Workload", {"podSets": [{"template": {"spec": {"overhead": {"cpu": "1.2.3"}}}}]},
         "spec.podSets[0].template.spec.overhead[cpu]"),
        ("Workload", {"podSets": [{"template": {"spec": {"affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}}}}]},
         "spec.podSets[0].template.spec.affinity.nodeAffinity."
         "requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"),
        *[
            ("Workload", {"podSets": [{"template": {"spec": {"affinity": {"nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [term]}}}}}]},
             "spec.podSets[0].template.spec.affinity.nodeAffinity."
             f"preferredDuringSchedulingIgnoredDuringExecution[0].{field}")
            for term, field in (
                ({"preference": {}}, "weight"),
                ({"weight": 0, "preference": {}}, "weight"),
                ({"weight": 101, "preference": {}}, "weight"),
                ({"weight": 100}, "preference"),
                ({"weight": 1, "preference": {"matchExpressions": [
                    {"key": "a", "operator": "In"}]}},
                 "preference.matchExpressions[0].values"),
            )
        ],
    ],
)  # fmt: skip
def test_rules_of_other_kinds(kind: str, spec: Any, field: str) -> None:
    assert field in problems(kind, spec)


def test_a_managed_resource_is_named_as_in_kubernetes() -> None:
    names = ["cpu", "ephemeral-storage", "hugepages-2Mi", "nvidia.com/gpu", "example.com/Rack_1.a"]
    spec = {"provisioningClassName": "c", "managedResources": names}
    assert problems("ProvisioningRequestConfig", spec) == {}


def test_parameters_have_the_limits_of_a_request() -> None:
    parameters = {f"{i:03}".ljust(255, "k"): "x" * 255 for i in range(100)}
    spec = {"provisioningClassName": "c", "parameters": parameters}
    assert problems("ProvisioningRequestConfig", spec) == {}


def test_a_cohort_may_lend_more_than_its_own_quota() -> None:
    spec = {"parentName": "root", "resourceGroups": [group(lendingLimit=11)]}
    assert problems("Cohort", spec) == {}


def test_rules_of_a_priority_class() -> None:
    def wrong(**fields: Any) -> dict[str, str]:
        value = {
            "apiVersion": V2, "kind": "WorkloadPriorityClass", "metadata": {"name": "x"}, **fields
        }  # fmt: skip
        return {problem.field: problem.code for problem in validate(decode_object(value).manifest)}

    assert wrong(value=1) == {}
    assert "value" in wrong(value=2**31)
    assert "description" in wrong(value=1, description="x" * 2049)
    assert wrong(value=1, minRunSeconds=0, minRunPolicy="Preferred") == {}
    assert "minRunSeconds" in wrong(value=1, minRunSeconds=-1)
    assert "minRunPolicy" in wrong(value=1, minRunPolicy="Preferred")


def test_a_namespace_is_a_dns_label() -> None:
    value = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a.b"}}
    with pytest.raises(ManifestError, match=r"metadata\.name"):
        accept(value)


@pytest.mark.parametrize(
    ("kind", "before", "after", "field"),
    [
        ("LocalQueue", {"clusterQueue": "a"}, {"clusterQueue": "b"}, "spec.clusterQueue"),
        ("AdmissionCheck", {"controllerName": "a"}, {"controllerName": "b"}, "spec.controllerName"),
        ("ResourceFlavor", {"topologyName": "a"}, {}, "spec.topologyName"),
    ],
)  # fmt: skip
def test_immutable_fields_are_refused(kind: str, before: Any, after: Any, field: str) -> None:
    old, new = (
        decode_object(
            {"apiVersion": V2, "kind": kind, "metadata": {"name": "x"}, "spec": spec}
        ).manifest
        for spec in (before, after)
    )
    assert field in [problem.field for problem in validate_update(old, new)]
    assert validate_update(old, old) == []


class Counted(str):
    """A name that counts how often it is looked at."""

    __slots__ = ()
    count = 0  # type: ignore[assignment]  # not the method of str

    def __hash__(self) -> int:
        Counted.count += 1
        return super().__hash__()


def test_the_volumes_of_a_pod_are_not_looked_at_for_each_container() -> None:
    """With thousands of both, one manifest would keep the workload-controller busy for seconds."""
    pod = PodSpec(
        volumes=tuple(Volume(name=Counted(f"v{number}")) for number in range(50)),
        containers=tuple(Container(name=f"c{number}") for number in range(50)),
    )
    Counted.count = 0
    assert check_containers(pod, "spec") == []
    assert Counted.count < 50 * 10
