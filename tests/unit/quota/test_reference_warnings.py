"""What a manifest is warned about: missing objects, settings without effect, rounded amounts."""

from __future__ import annotations

from typing import Any

import pytest

from admittance.api.configuration import (
    AdmissionFairSharing,
    Configuration,
    FairSharingSettings,
)
from admittance.api.reading.manifest import decode_object
from admittance.quota.catalog import Catalog
from admittance.quota.references import BOTH, Sharing, reference_warnings, sharing_of
from support.builders import an_object, resource_groups

NEITHER = Sharing(fair=False, usage=False)
EMPTY: dict[str, Any] = {"namespaceSelector": {}}
UNTIL = "until then the queue admits nothing"
NO_EFFECT = "has no effect: the configuration of this deployment has no"


def catalog_of(*manifests: dict[str, Any]) -> tuple[Catalog, Any]:
    """A catalog of the manifests, and the last of them."""
    catalog = Catalog()
    decoded: Any = None
    for revision, manifest in enumerate(manifests, 1):
        decoded = decode_object(manifest).manifest
        meta = decoded.metadata
        catalog.apply(decoded.kind, meta.namespace, meta.name, decoded, revision)
    return catalog, decoded


def warned(*manifests: dict[str, Any], sharing: Sharing = BOTH) -> list[str]:
    """The warnings about the last of the manifests."""
    catalog, last = catalog_of(*manifests)
    return list(reference_warnings(last, catalog, sharing))


def queue(name: str = "cq", **spec: Any) -> dict[str, Any]:
    return an_object("ClusterQueue", name, {**EMPTY, **spec})


def local(cluster_queue: str = "cq", **spec: Any) -> dict[str, Any]:
    return an_object("LocalQueue", "lq", {"clusterQueue": cluster_queue, **spec}, "ns")


def on(*flavors: str) -> list[dict[str, Any]]:
    return resource_groups(dict.fromkeys(flavors, "1"))


FLAVOR = an_object("ResourceFlavor", "f")


@pytest.mark.parametrize(
    ("manifests", "warnings"),
    [
        pytest.param((queue(),), [], id="nothing is missing"),
        pytest.param(
            (queue(resourceGroups=on("f")), local(perUser={"cpu": 1, "gpu": 2})),
            ["spec.perUser has no effect for gpu: ClusterQueue cq has no quota of it"],
            id="a limit on a resource without quota",
        ),
        pytest.param(
            (an_object("ClusterQueue", "cq", {}),),
            ["spec.namespaceSelector is missing: the queue selects no namespace and admits "
             "nothing; {} selects every namespace"],
            id="no selector",
        ),
        pytest.param((FLAVOR, queue(resourceGroups=on("f"))), [], id="its flavor exists"),
        pytest.param(
            (FLAVOR, queue(resourceGroups=on("f", "g"))),
            [f"ResourceFlavor g doesn't exist: {UNTIL}"], id="one flavor is missing",
        ),
        pytest.param(
            (queue(resourceGroups=on("f", "g")),),
            [f"ResourceFlavor f, g don't exist: {UNTIL}"], id="two flavors are missing",
        ),
        pytest.param(
            (queue(resourceGroups=on(*"abcdefgh")),),
            [f"ResourceFlavor a, b, c, d, e, f, g, h don't exist: {UNTIL}"],
            id="so many are named",
        ),
        pytest.param(
            (queue(resourceGroups=on(*"abcdefghij")),),
            [f"ResourceFlavor a, b, c, d, e, f, g, h and 2 more don't exist: {UNTIL}"],
            id="more are counted",
        ),
        pytest.param(
            (queue(admissionChecks=["c"]),),
            [f"AdmissionCheck c doesn't exist: {UNTIL}"], id="a check is missing",
        ),
        pytest.param(
            (an_object("AdmissionCheck", "c", {"controllerName": "x.com/y"}),
             queue(admissionChecks=["c"])), [], id="its check exists",
        ),
        pytest.param(
            (an_object("ResourceFlavor", "f", {"nodeLabels": {"a": "b"}, "topologyName": "t"}),
             queue(resourceGroups=on("f"))),
            ["Topology t of ResourceFlavor f doesn't exist: until then its queues admit nothing"],
            id="the topology of its flavor is missing",
        ),
        pytest.param(
            (an_object("ResourceFlavor", "f", {"nodeLabels": {"a": "b"}, "topologyName": "t"}),),
            ["Topology t of ResourceFlavor f doesn't exist: until then its queues admit nothing"],
            id="the topology of a flavor is missing",
        ),
        pytest.param(
            (an_object("Topology", "t", {"levels": [{"nodeLabel": "a"}]}),
             an_object("ResourceFlavor", "f", {"nodeLabels": {"a": "b"}, "topologyName": "t"})),
            [], id="the topology of a flavor exists",
        ),
        pytest.param(
            (local(),), [f"ClusterQueue cq doesn't exist: {UNTIL}"], id="no ClusterQueue"
        ),
        pytest.param((queue(), local()), [], id="its ClusterQueue exists"),
        pytest.param(
            (an_object("ClusterQueue", "cq", {}), local()),
            ["ClusterQueue cq has no namespaceSelector: the queue admits nothing"],
            id="its ClusterQueue selects nothing",
        ),
        pytest.param(
            (queue(namespaceSelector={"matchLabels": {"a": "b"}}), local()),
            ["the namespaceSelector of ClusterQueue cq does not select the namespace ns: the queue "
             "admits nothing"],
            id="its ClusterQueue selects another namespace",
        ),
        pytest.param((an_object("Cohort", "co", {"parentName": "up"}),), [], id="a parent to come"),
        pytest.param(
            (an_object("Cohort", "up", {"parentName": "co"}),
             an_object("Cohort", "co", {"parentName": "up"})),
            ["spec.parentName: the cohorts form a cycle, and their queues admit nothing"],
            id="a cycle of cohorts",
        ),
        pytest.param(
            (an_object("Cohort", "top", {}), an_object("Cohort", "up", {"parentName": "top"}),
             an_object("Cohort", "co", {"parentName": "up"})), [], id="a chain of cohorts",
        ),
    ],
)  # fmt: skip
def test_what_does_not_exist_is_named(
    manifests: tuple[dict[str, Any], ...], warnings: list[str]
) -> None:
    assert warned(*manifests) == warnings


SHARED: dict[str, Any] = {"fairSharing": {"weight": 2}}
SCOPE: dict[str, Any] = {"admissionScope": {"admissionMode": "NoAdmissionFairSharing"}}


@pytest.mark.parametrize(
    ("manifests", "sharing", "warnings"),
    [
        ((queue(**SHARED),), Sharing(fair=False), [f"spec.fairSharing {NO_EFFECT} fairSharing"]),
        ((queue(**SHARED),), Sharing(usage=False), []),
        ((queue(),), NEITHER, []),
        ((queue(**SCOPE),), Sharing(fair=False), []),
        ((queue(**SCOPE),), Sharing(usage=False),
         [f"spec.admissionScope {NO_EFFECT} admissionFairSharing"]),
        ((queue(), local(**SHARED)), Sharing(usage=False),
         [f"spec.fairSharing {NO_EFFECT} admissionFairSharing"]),
        ((queue(), local(**SHARED)), Sharing(fair=False), []),
        ((queue(), local()), NEITHER, []),
        ((an_object("Cohort", "co", SHARED),), Sharing(fair=False),
         [f"spec.fairSharing {NO_EFFECT} fairSharing"]),
        ((an_object("Cohort", "co", SHARED),), Sharing(usage=False), []),
        ((an_object("Cohort", "co", {}),), NEITHER, []),
    ],
)  # fmt: skip
def test_a_setting_of_sharing_without_effect_is_named(
    manifests: tuple[dict[str, Any], ...], sharing: Sharing, warnings: list[str]
) -> None:
    assert warned(*manifests, sharing=sharing) == warnings


@pytest.mark.parametrize(
    ("resource", "quota", "warnings"),
    [
        ("cpu", {"nominalQuota": "1500m"}, []),
        ("cpu", {"nominalQuota": "0.0005"}, ["nominalQuota: 0.0005 counts as 1m"]),
        ("memory", {"nominalQuota": "1500m"}, ["nominalQuota: 1500m counts as 2"]),
        ("memory", {"nominalQuota": "3"}, []),
        ("cpu", {"nominalQuota": "1", "borrowingLimit": "0.0015", "lendingLimit": "0.0025"},
         ["borrowingLimit: 0.0015 counts as 2m", "lendingLimit: 0.0025 counts as 3m"]),
    ],
)  # fmt: skip
def test_a_rounded_amount_is_named_with_its_field(
    resource: str, quota: dict[str, Any], warnings: list[str]
) -> None:
    groups = [
        {
            "coveredResources": [resource],
            "flavors": [{"name": "f", "resources": [{"name": resource, **quota}]}],
        }
    ]
    expected = [f"spec.resourceGroups[0].flavors[0].resources[0].{text}" for text in warnings]
    assert warned(FLAVOR, queue(cohortName="co", resourceGroups=groups)) == expected
    assert warned(an_object("Cohort", "co", {"parentName": "up", "resourceGroups": groups})) == (
        expected
    )


@pytest.mark.parametrize(
    ("configuration", "fair", "usage"),
    [
        (Configuration(), False, False),
        (Configuration(fair_sharing=FairSharingSettings(enable=True)), True, False),
        (Configuration(fair_sharing=FairSharingSettings(enable=False)), False, False),
        (Configuration(admission_fair_sharing=AdmissionFairSharing()), False, True),
        (
            Configuration(
                admission_fair_sharing=AdmissionFairSharing(),
                feature_gates={"AdmissionFairSharing": False},
            ),
            False,
            False,
        ),
        (Configuration(feature_gates={"AdmissionFairSharing": True}), False, False),
    ],
)
def test_which_sharing_a_configuration_has(
    configuration: Configuration, fair: bool, usage: bool
) -> None:
    assert sharing_of(configuration) == Sharing(fair=fair, usage=usage)
