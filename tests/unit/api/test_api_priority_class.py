"""A submission that names a priority class gets its value before it is validated."""

from __future__ import annotations

from typing import Any

import pytest

from admittance.api.problems import ManifestError
from admittance.api.reading.manifest import accept
from admittance.api.workload import Workload

CLASS = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "urgent"}


def a_workload(**spec: Any) -> dict[str, Any]:
    pods = {"name": "main", "count": 1, "template": {"spec": {"containers": [{"name": "main"}]}}}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "w", "namespace": "default"},
        "spec": {"queueName": "q", "podSets": [pods], **spec},
    }


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param({"priorityClassRef": CLASS}, 1000, id="the class gives the value"),
        pytest.param({"priorityClassRef": CLASS, "priority": 7}, 7, id="a stated value stays"),
        pytest.param({}, None, id="without a class"),
    ],
)
def test_a_workload_gets_the_priority_of_its_class(spec: dict[str, Any], want: int | None) -> None:
    manifest = accept(a_workload(**spec), priority_of={"urgent": 1000}.get).manifest
    assert isinstance(manifest, Workload)
    assert manifest.spec.priority == want


def test_a_class_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(ManifestError, match=r"spec\.priority"):
        accept(a_workload(priorityClassRef=CLASS))
