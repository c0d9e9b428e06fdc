"""A resubmission with changes: which part of the spec each of them replaces."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from admittance.api.pods import Container, ResourceRequirements
from admittance.api.reading.from_job import GPU, from_command
from admittance.api.reading.priority import class_ref
from admittance.api.workload import WorkloadSpec
from admittance.client.errors import BadInput
from admittance.client.requests.submissions.resubmission import Changes, changed


def spec_of(requests: dict[str, str], limits: dict[str, str], more: int = 0) -> WorkloadSpec:
    spec = from_command(["true"], name="a", namespace="lab", queue="main", priority=3).spec
    [pods] = spec.pod_sets
    [container] = pods.template.spec.containers
    resources = ResourceRequirements(requests={**requests}, limits={**limits})
    containers = (replace(container, resources=resources), *more * (Container(name="b"),))
    pod = replace(pods.template.spec, containers=containers)
    pods = replace(pods, template=replace(pods.template, spec=pod))
    return replace(spec, pod_sets=(pods,))


@pytest.mark.parametrize(
    ("had", "limits", "changes", "has", "has_limits"),
    [
        ({"cpu": "1"}, {}, {"cpu": "2"}, {"cpu": "2"}, {}),
        ({"cpu": "1"}, {}, {GPU: "1"}, {"cpu": "1", GPU: "1"}, {}),
        ({"cpu": "1", GPU: "1"}, {GPU: "1"}, {GPU: "2"}, {"cpu": "1", GPU: "2"}, {GPU: "2"}),
        ({"cpu": "1", GPU: "1"}, {GPU: "1"}, {GPU: "0"}, {"cpu": "1"}, {}),
        ({"cpu": "1"}, {}, {"memory": "0Gi"}, {"cpu": "1"}, {}),
    ],
)
def test_changed_requests_replace_requests_and_limits(
    had: dict[str, str],
    limits: dict[str, str],
    changes: dict[str, str],
    has: dict[str, str],
    has_limits: dict[str, str],
) -> None:
    old = spec_of(had, limits)
    new = changed(old, Changes(requests=changes))
    assert new == spec_of(has, has_limits)
    assert old == spec_of(had, limits)


def test_each_other_change_replaces_its_field() -> None:
    spec = spec_of({"cpu": "1"}, {})
    classed = replace(spec, priority_class_ref=class_ref("low"))
    assert changed(spec, Changes()) == spec
    assert changed(spec, Changes(queue="b")) == replace(spec, queue_name="b")
    in_time = replace(spec, maximum_execution_time_seconds=60)
    assert changed(spec, Changes(max_seconds=60)) == in_time
    assert changed(classed, Changes(priority=0)) == replace(spec, priority=0)
    high = replace(spec, priority=None, priority_class_ref=class_ref("high"))
    assert changed(classed, Changes(priority_class="high")) == high


@pytest.mark.parametrize(
    ("more", "changes", "said"),
    [
        (1, Changes(requests={"cpu": "2"}), "the requests of 2 containers"),
        (0, Changes(priority=1, priority_class="a"), "exclude each other"),
    ],
)
def test_changes_that_a_workload_cannot_have_are_refused(
    more: int, changes: Changes, said: str
) -> None:
    with pytest.raises(BadInput, match=said):
        changed(spec_of({"cpu": "1"}, {}, more), changes)
