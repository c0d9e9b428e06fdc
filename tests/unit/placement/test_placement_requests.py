"""What a workload asks of machines, and under which resources a machine is listed: by direct
calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from admittance.api.meta import ObjectMeta, OwnerReference, Toleration
from admittance.api.workload import COMPLETIONS, JOB_POLICY
from admittance.events.shapes import Admission, PodSetAssignment
from admittance.placement.machines.machine import PODS
from admittance.placement.search.request import family_of, request_of
from admittance.workload.stored import StoredWorkload, WorkloadStatus
from admittance.workload.transition_context import FlavorParts
from support.machines import GPU, Machines, a_machine

WORK_QUEUE = '{"workQueue":true}'
SUCCESS = '{"successPolicy":{"rules":[{"succeededCount":1}]}}'


def a_workload(
    count: int = 2,
    admitted: int | None = None,
    pod: dict[str, Any] | None = None,
    notes: Mapping[str, str] = {},
) -> StoredWorkload:
    """A reserved workload; its pod template has these annotations."""
    template = {
        "metadata": {"annotations": notes},
        "spec": {
            "containers": [{"resources": {"requests": {"cpu": "1", GPU: "0"}}}],
            **(pod or {}),
        },
    }
    pod_sets = [{"name": "main", "count": count, "template": template}]
    place = PodSetAssignment(
        name="main", flavors={"cpu": "f"}, count=count if admitted is None else admitted
    )
    return StoredWorkload(
        api_version="v1",
        kind="Workload",
        metadata=ObjectMeta(name="w", namespace="ns", uid="u"),
        spec=msgspec.Raw(msgspec.json.encode({"queueName": "q", "podSets": pod_sets})),
        status=WorkloadStatus(
            admission=Admission(cluster_queue="cq", pod_set_assignments=(place,))
        ),
    )


@pytest.mark.parametrize(
    ("notes", "together"),
    [
        pytest.param({}, False, id="no notes"),
        pytest.param({COMPLETIONS: "3"}, True, id="more completions than pods"),
        pytest.param({COMPLETIONS: "2"}, False, id="as many completions as pods"),
        pytest.param({COMPLETIONS: "1"}, False, id="fewer completions than pods"),
        pytest.param({COMPLETIONS: "x"}, False, id="no number of completions"),
        pytest.param({JOB_POLICY: WORK_QUEUE}, True, id="a work queue"),
        pytest.param({JOB_POLICY: SUCCESS}, True, id="a success policy"),
        pytest.param({JOB_POLICY: '{"backoffLimit":3}'}, False, id="a policy of failures only"),
        pytest.param({JOB_POLICY: "x"}, False, id="no policy"),
        pytest.param({JOB_POLICY: "x", COMPLETIONS: "3"}, True, id="completions, no policy"),
        pytest.param({JOB_POLICY: WORK_QUEUE, COMPLETIONS: "2"}, True, id="both"),
    ],
)
def test_one_runner_starts_all_pods_of_which_it_draws_more(
    notes: dict[str, str], together: bool
) -> None:
    request = request_of(a_workload(notes=notes), lambda _: FlavorParts())
    assert [group.together for group in request.pod_sets] == [together]


def test_pods_are_counted_as_they_are_admitted() -> None:
    request = request_of(
        a_workload(3, admitted=1, notes={COMPLETIONS: "2"}), lambda _: FlavorParts()
    )
    (group,) = request.pod_sets
    assert (request.key, request.family, request.pods) == ("ns/w", "ns/w", 1)
    assert group.requests == (("cpu", 1000), (PODS, 1)), "no gpu is asked for"
    assert group.together


def test_the_flavor_adds_to_the_pods() -> None:
    own = Toleration(key="a", operator="Exists")
    more = Toleration(key="b", operator="Exists")
    parts = FlavorParts(node_labels={"zone": "1", "pool": "f"}, tolerations=(own, more))
    pod = {"nodeSelector": {"zone": "2"}, "tolerations": [{"key": "a", "operator": "Exists"}]}
    (group,) = request_of(a_workload(pod=pod), lambda _: parts).pod_sets
    assert group.node_selector == (("pool", "f"), ("zone", "2")), "the pod comes first"
    assert [toleration.key for toleration in group.tolerations] == ["a", "b"]


# The index. -------------------------------------------------------------------------------


def test_a_variant_is_of_the_family_of_its_parent() -> None:
    alone = a_workload()
    owner = OwnerReference(kind="Workload", name="p", uid="p")
    owned = replace(alone, metadata=replace(alone.metadata, owner_references=(owner,)))
    variant = replace(owned, spec=msgspec.Raw(b'{"role":"variant"}'))
    orphan = replace(variant, metadata=alone.metadata)
    families = [family_of(each) for each in (alone, owned, variant, orphan)]
    assert families == ["ns/w", "ns/w", "ns/p", "ns/w"]


def test_a_machine_is_listed_by_its_plain_resources_only() -> None:
    machines = Machines(a_machine("a", gpus=2, capacity={PODS: 10}), a_machine("b", gpus=2))
    machines.index.refresh()
    (taken,) = machines.index.classes.values()
    assert taken.key.scarce == (GPU,)
    (lists,) = taken.buckets.values()
    assert sorted(lists, key=str) == ["", "cpu", "memory"]
    assert [entry[1] for entry in lists["cpu"]] == ["a", "b"]
    assert taken.order == [(2,)]
