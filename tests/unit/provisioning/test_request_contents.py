"""The content of a request: its pod sets, merged, with the additions of their flavors."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from admittance.api.checks import ProvisioningRequestConfigSpec
from admittance.api.meta import ObjectMeta, Toleration
from admittance.api.pods import PodTemplate
from admittance.api.queues import ResourceFlavor, ResourceFlavorSpec
from admittance.api.workload import PodSet
from admittance.events.shapes import Admission, PodSetAssignment
from admittance.provisioning.new_request import (
    IncompleteReservation,
    parameters_of,
    pod_sets_to_provision,
)
from admittance.provisioning.next_step import is_needed
from admittance.workload.stored import StoredWorkload
from support.builders import API

GPU = "nvidia.com/gpu"
WITH_GPU = {"containers": [{"name": "c", "resources": {"requests": {GPU: "1"}}}]}


def a_pod_set(name: str = "main", count: int = 2, **spec: Any) -> PodSet:
    spec.setdefault("containers", [{"name": "c", "resources": {"requests": {"cpu": "1"}}}])
    template = msgspec.convert({"spec": spec}, PodTemplate)
    return PodSet(name=name, count=count, template=template)


def admitted(*places: tuple[str, int], flavor: str = "spot") -> Admission:
    return Admission(
        cluster_queue="cq",
        pod_set_assignments=tuple(
            PodSetAssignment(name=name, count=count, flavors={"cpu": flavor})
            for name, count in places
        ),
    )


def config(**fields: Any) -> ProvisioningRequestConfigSpec:
    return ProvisioningRequestConfigSpec(provisioning_class_name="class", **fields)


def no_flavor(_: str) -> ResourceFlavor | None:
    return None


def test_annotations_of_the_workload_override_parameters_of_the_config() -> None:
    """E11."""
    parameters = parameters_of(
        config(parameters={"zone": "a", "size": "4"}),
        {"provreq.kueue.x-k8s.io/zone": "b", "other/zone": "c"},
    )

    assert parameters == {"zone": "b", "size": "4"}


def test_all_pod_sets_are_requested_without_managed_resources() -> None:
    pod_sets = pod_sets_to_provision([a_pod_set()], admitted(("main", 2)), config(), no_flavor)

    assert [(pod_set.name, pod_set.count, pod_set.names) for pod_set in pod_sets] == [
        ("main", 2, ("main",))
    ]


@pytest.mark.parametrize("where", ["requests", "limits"])
def test_pod_sets_are_requested_for_managed_resources_in_any_container(where: str) -> None:
    gpu = a_pod_set("gpu", containers=[{"name": "c", "resources": {where: {GPU: "1"}}}])
    given = admitted(("main", 2), ("gpu", 1))

    pod_sets = pod_sets_to_provision(
        [a_pod_set(), gpu], given, config(managed_resources=(GPU,)), no_flavor
    )

    assert [(pod_set.name, pod_set.count) for pod_set in pod_sets] == [("gpu", 1)]


def test_a_pod_set_is_requested_for_a_resource_of_an_init_container() -> None:
    init = [{"name": "i", "resources": {"requests": {GPU: "1"}}}]

    pod_sets = pod_sets_to_provision(
        [a_pod_set(initContainers=init)],
        admitted(("main", 2)),
        config(managed_resources=(GPU,)),
        no_flavor,
    )

    assert len(pod_sets) == 1


def test_no_capacity_is_requested_when_no_pod_is_admitted() -> None:
    """E1: all admitted counts are 0, or no managed resource is used."""
    assert pod_sets_to_provision([a_pod_set()], admitted(("main", 0)), config(), no_flavor) == ()
    assert pod_sets_to_provision([a_pod_set(count=0)], admitted(), config(), no_flavor) == ()
    managed = config(managed_resources=(GPU,))
    assert pod_sets_to_provision([a_pod_set()], admitted(("main", 2)), managed, no_flavor) == ()


@pytest.mark.parametrize(
    ("pod_set", "resources", "needed"),
    [
        pytest.param({}, (), True, id="every resource is managed"),
        pytest.param(WITH_GPU, (GPU,), True, id="pods with the managed resource"),
        pytest.param({**WITH_GPU, "count": 0}, (GPU,), False, id="no pod"),
        pytest.param({}, (GPU,), False, id="pods without the managed resource"),
    ],
)
def test_capacity_is_needed_for_pods_with_a_managed_resource(
    pod_set: dict[str, Any], resources: tuple[str, ...], needed: bool
) -> None:
    work = StoredWorkload(
        api_version=API,
        kind="Workload",
        metadata=ObjectMeta(name="w", namespace="ns"),
        spec=msgspec.Raw(msgspec.json.encode({"podSets": [a_pod_set(**pod_set)]})),
    )
    assert is_needed(work, config(managed_resources=resources)) is needed


def test_a_pod_set_without_an_assignment_raises() -> None:
    with pytest.raises(IncompleteReservation, match="main"):
        pod_sets_to_provision([a_pod_set()], admitted(), config(), no_flavor)


def test_a_template_has_the_labels_and_tolerations_of_its_flavor() -> None:
    toleration = Toleration(key="spot", operator="Exists")
    flavor = ResourceFlavor(
        metadata=ObjectMeta(name="spot"),
        spec=ResourceFlavorSpec(node_labels={"pool": "spot"}, tolerations=(toleration,)),
    )

    (pod_set,) = pod_sets_to_provision(
        [a_pod_set(nodeSelector={"disk": "ssd"})], admitted(("main", 2)), config(), lambda _: flavor
    )

    spec = msgspec.json.decode(pod_set.template, type=PodTemplate).spec
    assert spec.node_selector == {"disk": "ssd", "pool": "spot"}
    assert spec.tolerations == (toleration,)


def test_missing_requests_are_filled_from_the_limits() -> None:
    containers = [{"name": "c", "resources": {"requests": {"cpu": "1"}, "limits": {GPU: "2"}}}]

    (pod_set,) = pod_sets_to_provision(
        [a_pod_set(containers=containers)], admitted(("main", 2)), config(), no_flavor
    )

    spec = msgspec.json.decode(pod_set.template, type=PodTemplate).spec
    assert spec.containers[0].resources.requests == {"cpu": "1", GPU: "2"}


IDENTICAL, ALIKE = "IdenticalPodTemplates", "IdenticalWorkloadSchedulingRequirements"


@pytest.mark.parametrize(
    ("policy", "second", "wanted"),
    [
        pytest.param(None, {}, [("a", 2), ("b", 3)], id="without a policy nothing is merged"),
        pytest.param(IDENTICAL, {}, [("a", 5)], id="equal templates are merged"),
        pytest.param(
            IDENTICAL,
            {"priorityClassName": "high"},
            [("a", 2), ("b", 3)],
            id="templates that differ anywhere are not",
        ),
        pytest.param(
            ALIKE,
            {"priorityClassName": "high"},
            [("a", 5)],
            id="what schedules alike is merged, whatever else differs",
        ),
        pytest.param(
            ALIKE,
            {"nodeSelector": {"disk": "ssd"}},
            [("a", 2), ("b", 3)],
            id="what needs other nodes is not",
        ),
    ],
)
def test_pod_sets_are_merged_as_the_policy_says(
    policy: Any, second: dict[str, Any], wanted: list[tuple[str, int]]
) -> None:
    """E12."""
    pod_sets = pod_sets_to_provision(
        [a_pod_set("a"), a_pod_set("b", count=3, **second)],
        admitted(("a", 2), ("b", 3)),
        config(pod_set_merge_policy=policy),
        no_flavor,
    )

    assert [(pod_set.name, pod_set.count) for pod_set in pod_sets] == wanted
    assert [name for pod_set in pod_sets for name in pod_set.names] == ["a", "b"]
