"""Rules for manifests with concurrent admission; all other rules are in `test_rules`."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from admittance.api.fields.problems import Problem
from admittance.api.reading.configuration_file import read_configuration
from admittance.api.reading.manifest import ManifestError, accept, decode_object, read
from admittance.api.workload import Workload
from admittance.workload.limits import Limits, changed_limits, limits_from, limits_of

V2 = "kueue.x-k8s.io/v1beta2"
POLICY = "spec.concurrentAdmission"
ALLOWED = "spec.admissionConstraints.allowedResourceFlavors"


def complaints(kind: str, spec: Any, version: str = V2, **metadata: Any) -> list[Problem]:
    value = {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": "x", **metadata},
        "spec": spec,
    }
    try:
        accept(value)
    except ManifestError as error:
        return list(error.problems)
    return []


def a_queue(*flavors: str, **more: Any) -> dict[str, Any]:
    offered = [
        {"name": name, "resources": [{"name": "cpu", "nominalQuota": 1}]} for name in flavors
    ]
    group = {"coveredResources": ["cpu"], "flavors": offered}
    return {"resourceGroups": [group], **more}


def families(*variants: Any, mode: str = "UpgradeOnly", **constraints: Any) -> dict[str, Any]:
    policy: dict[str, Any] = {"migrationConstraints": {"mode": mode, **constraints}}
    return {"concurrentAdmission": policy | ({"explicitVariants": variants} if variants else {})}


def a_variant(name: str, *flavors: str) -> dict[str, Any]:
    return {"name": name, "allowedResourceFlavors": flavors}


def explicit(name: str, flavor: str = "a", **delays: int) -> dict[str, Any]:
    return {"name": name, "allowedResourceFlavors": [flavor], **delays}


def constrained(**constraints: Any) -> dict[str, Any]:
    """Kueue's ``concurrentAdmissionPolicy`` with these constraints."""
    return {"migration": {"mode": "TryPreferredFlavors", "constraints": constraints}}


@pytest.mark.parametrize(
    ("before", "after", "field"),
    [
        pytest.param(
            a_queue("spot", "reserved", **families(minFlavor="reserved")),
            a_queue("spot", **families(minFlavor="reserved")),
            f"{POLICY}.migrationConstraints.minFlavor",
            id="the flavor that minFlavor names does not go",
        ),
        pytest.param(
            a_queue("spot", "reserved", **families(a_variant("both", "spot", "reserved"))),
            a_queue("reserved", **families(a_variant("both", "spot", "reserved"))),
            f"{POLICY}.explicitVariants[0].allowedResourceFlavors[0]",
            id="a flavor that an explicit variant names does not go",
        ),
        pytest.param(
            a_queue("spot", **families(a_variant("v", "spot"), minVariant="v")),
            a_queue("spot", **families(a_variant("w", "spot"), minVariant="v")),
            f"{POLICY}.migrationConstraints.minVariant",
            id="the variant that minVariant names does not go",
        ),
    ],
)
def test_an_update_may_not_remove_a_named_flavor_or_variant(
    before: Any, after: Any, field: str
) -> None:
    assert complaints("ClusterQueue", before) == []
    [problem] = complaints("ClusterQueue", after)
    assert problem.field == field
    named = ("reserved", "spot", "'v'")
    assert any(word in problem.message for word in named), problem.message


@pytest.mark.parametrize(
    ("policy", "field"),
    [
        pytest.param(
            {"migration": {"mode": "Always"}}, "migration.mode", id="a mode that Kueue has not"
        ),
        pytest.param({}, "migration", id="no migration"),
        pytest.param(
            {"migration": {"mode": "TryPreferredFlavors",
                           "constraints": {"lastAcceptableFlavorName": "z"}}},
            "migration.constraints.lastAcceptableFlavorName",
            id="a last flavor that is not on offer",
        ),
        pytest.param(
            {"migration": {"mode": "RetainFirstAdmission",
                           "constraints": {"lastAcceptableFlavorName": "a"}}},
            "migration.constraints.lastAcceptableFlavorName",
            id="minFlavor without migration",
        ),
        pytest.param(
            {"migration": {"mode": "RetainFirstAdmission"}, "explicitVariants": []},
            "explicitVariants",
            id="explicit variants stand below constraints",
        ),
        pytest.param(
            constrained(minTargetExplicitVariant="z", explicitVariants=[explicit("y")]),
            "migration.constraints.minTargetExplicitVariant",
            id="a worst target that is not an explicit variant",
        ),
        pytest.param(
            constrained(explicitVariants=[explicit("y", "gold")]),
            "migration.constraints.explicitVariants[0].allowedResourceFlavors[0]",
            id="a variant with a flavor that is not on offer",
        ),
        pytest.param(
            constrained(explicitVariants=[explicit("y", maxDeleteDelaySeconds=-1)]),
            "migration.constraints.explicitVariants[0].maxDeleteDelaySeconds",
            id="a negative delay",
        ),
        pytest.param(
            constrained(
                explicitVariants=[
                    explicit("y", maxDeleteDelaySeconds=1, deleteDelaySeconds=1)
                ]
            ),
            "migration.constraints.explicitVariants[0].maxDeleteDelaySeconds",
            id="both names of a delay",
        ),
        pytest.param(constrained(maxFlavor="a"), "migration.constraints.maxFlavor", id="unknown"),
        pytest.param(
            {"migration": {"constraints": []}}, "migration.constraints", id="constraints as a list"
        ),
    ],
)  # fmt: skip
def test_a_problem_in_kueues_spelling_is_named_in_that_spelling(policy: Any, field: str) -> None:
    problems = complaints("ClusterQueue", a_queue("a", concurrentAdmissionPolicy=policy))
    assert [problem.field for problem in problems] == [f"{POLICY}Policy.{field}"]


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        pytest.param(
            constrained(
                minTargetExplicitVariant="x",
                explicitVariants=[
                    explicit("x", maxDeleteDelaySeconds=7),
                    explicit("y", createDelaySeconds=3),
                ],
            ),
            {
                "migrationConstraints": {"mode": "UpgradeOnly", "minVariant": "x"},
                "explicitVariants": [
                    explicit("x", deleteDelaySeconds=7),
                    explicit("y", createDelaySeconds=3),
                ],
            },
            id="explicit variants of Beta",
        ),
        pytest.param(
            {"migration": {"mode": "RetainFirstAdmission", "constraints": None}},
            {"migrationConstraints": {"mode": "NoMigration"}},
            id="no constraints",
        ),
    ],
)
def test_the_beta_spelling_of_a_policy_is_read_as_the_proposals(theirs: Any, ours: Any) -> None:
    read_queues = [
        accept(
            {
                "apiVersion": V2,
                "kind": "ClusterQueue",
                "metadata": {"name": "x"},
                "spec": a_queue("a", **policy),
            }
        ).manifest
        for policy in ({"concurrentAdmissionPolicy": theirs}, {"concurrentAdmission": ours})
    ]
    assert read_queues[0] == read_queues[1]


OWNER = {"apiVersion": V2, "kind": "Workload", "name": "p", "uid": "u-1"}


@pytest.mark.parametrize(
    ("spec", "metadata", "field"),
    [
        pytest.param({"variant": "spot"}, {}, "spec.variant",
                     id="a regular workload is not a variant"),
        pytest.param({"siblingIndex": 0}, {}, "spec.siblingIndex",
                     id="a regular workload has no place among siblings"),
        pytest.param({"role": "parent", "variant": "spot"}, {}, "spec.variant",
                     id="a parent is not a variant"),
        pytest.param({"role": "variant"}, {"ownerReferences": [OWNER]}, "spec.variant",
                     id="a variant says which one it is"),
        pytest.param({"role": "variant", "variant": "spot"}, {}, "metadata.ownerReferences",
                     id="a variant names its parent"),
        pytest.param({"role": "variant", "variant": "spot"},
                     {"ownerReferences": [{**OWNER, "uid": ""}]}, "metadata.ownerReferences",
                     id="a variant names its parent by its uid"),
        pytest.param({"role": "variant", "variant": "spot"},
                     {"ownerReferences": [{**OWNER, "kind": "Job"}]}, "metadata.ownerReferences",
                     id="a variant belongs to a workload"),
        pytest.param({"role": "variant", "variant": "spot", "siblingIndex": -1},
                     {"ownerReferences": [OWNER]}, "spec.siblingIndex",
                     id="no place is before the best"),
        pytest.param({"admissionConstraints": {"allowedResourceFlavors": ["a", "a"]}}, {},
                     f"{ALLOWED}[1]", id="a flavor is allowed once"),
        pytest.param({"admissionConstraints": {"allowedResourceFlavors": ["A!"]}}, {},
                     f"{ALLOWED}[0]", id="what is allowed is the name of a flavor"),
        pytest.param({"admissionConstraints": {
            "allowedResourceFlavors": [f"f{i}" for i in range(257)]}}, {},
            ALLOWED, id="no queue has so many flavors"),
    ],
)  # fmt: skip
def test_family_fields_of_a_workload(
    spec: dict[str, Any], metadata: dict[str, Any], field: str
) -> None:
    [problem] = complaints("Workload", {"podSets": [{}], **spec}, **metadata)
    assert problem.field == field


@pytest.mark.parametrize(
    ("spec", "metadata"),
    [
        pytest.param({}, {}, id="regular"),
        pytest.param({"role": "parent"}, {}, id="parent, which is for the door to decide"),
        pytest.param({"role": "variant", "variant": "spot", "siblingIndex": 2},
                     {"ownerReferences": [OWNER]}, id="a variant as it is made"),
        pytest.param({"admissionConstraints": {"allowedResourceFlavors": ["a", "b"]}}, {},
                     id="D32: any workload may say which flavors"),
        pytest.param({"admissionConstraints": {"allowedResourceFlavors": []}}, {},
                     id="D32: even none"),
    ],
)  # fmt: skip
def test_accepted_concurrent_admission(spec: dict[str, Any], metadata: dict[str, Any]) -> None:
    assert complaints("Workload", {"podSets": [{}], **spec}, **metadata) == []


def test_the_annotation_may_name_a_flavor_twice_as_in_kueue() -> None:
    value = {
        "apiVersion": V2,
        "kind": "Workload",
        "metadata": {
            "name": "x",
            "annotations": {"kueue.x-k8s.io/workload-allowed-resource-flavors": "a, b,a"},
        },
        "spec": {"podSets": [{}]},
    }
    manifest = accept(value).manifest
    assert isinstance(manifest, Workload)
    assert manifest.spec.admission_constraints is not None
    assert manifest.spec.admission_constraints.allowed_resource_flavors == ("a", "b")


def test_without_settings_the_most_configurable_flavors_are_accepted() -> None:
    queue = {"apiVersion": V2, "kind": "ClusterQueue", "metadata": {"name": "x"},
             "spec": a_queue(*(f"f{i}" for i in range(40)), **families())}  # fmt: skip
    text = json.dumps(queue)
    with pytest.raises(ManifestError, match="at most 32"):
        read(text, "file")
    assert len(read(text, "file", flavors_max=64)) == 1
    assert decode_object(queue).manifest.metadata.name == "x"


@pytest.mark.parametrize(
    ("written", "set_"),
    [
        pytest.param("", {}, id="32 flavors, and families, by default"),
        pytest.param("concurrentAdmission: {maxFlavors: 16}", {"flavors_max": 16}, id="16"),
        pytest.param(
            "featureGates: {ConcurrentAdmission: false}", {"families": False}, id="the gate off"
        ),
        pytest.param(
            "admissionCheckRetries: {backoffMaxSeconds: 0}",
            {"pacing_max": timedelta(0)},
            id="retries without a delay are never paced",
        ),
    ],
)
def test_a_deployment_sets_the_most_flavors(written: str, set_: dict[str, Any]) -> None:
    limits = Limits(**{"pacing_max": timedelta(seconds=60), "flavors_max": 32, **set_})
    text = f"apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n{written}\n"
    configured = limits_of(read_configuration(text, "file").configuration)
    assert configured == limits
    assert limits_from(changed_limits(configured)) == limits


@pytest.mark.parametrize("number", [0, 65])
def test_a_group_has_at_most_64_flavors(number: int) -> None:
    text = (
        "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
        f"concurrentAdmission: {{maxFlavors: {number}}}\n"
    )
    with pytest.raises(ManifestError, match=r"concurrentAdmission\.maxFlavors"):
        read_configuration(text, "file")
