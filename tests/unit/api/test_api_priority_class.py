"""A submission gets the priority of its class before it is validated, in Kueue's order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from admittance.api.checks import Foreign, PriorityClass
from admittance.api.fields.problems import ManifestError
from admittance.api.reading.from_job import workload_of
from admittance.api.reading.manifest import accept, decode_object, encode
from admittance.api.reading.priority import resolve_priority
from admittance.api.workload import Job, Workload

CLASS = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "urgent"}
OF_PODS = {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "nodes"}


class Classes(NamedTuple):
    """The priority classes that exist."""

    workloads: Mapping[str, int]
    pods: Mapping[str, int]
    default: tuple[str, int] | None = None

    def workload_class(self, name: str) -> int | None:
        return self.workloads.get(name)

    def pod_class(self, name: str) -> int | None:
        return self.pods.get(name)

    def global_default(self) -> tuple[str, int] | None:
        return self.default


URGENT = Classes({"urgent": 1000}, {"nodes": 5})
DEFAULTS = Classes({"urgent": 1000, "default": 50}, {"nodes": 5}, ("all", 3))
GLOBAL = Classes({"urgent": 1000}, {"nodes": 5}, ("all", 3))


def pods_of(pod_class: str = "") -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": [{"name": "main", "command": ["true"]}]}
    return {"spec": {**spec, "priorityClassName": pod_class}}


def a_workload(*, label: str = "", pod_class: str = "", **spec: Any) -> dict[str, Any]:
    labels = {"kueue.x-k8s.io/priority-class": label} if label else {}
    pod_sets = [
        {"name": "main", "count": 1, "template": pods_of()},
        {"name": "more", "count": 1, "template": pods_of(pod_class)},
    ]
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "w", "namespace": "default", "labels": labels},
        "spec": {"queueName": "q", "podSets": pod_sets, **spec},
    }


def resolved(classes: Classes, *, defaulting: bool = True, **of: Any) -> tuple[str, int | None]:
    manifest = accept(a_workload(**of), classes=classes, default_class=defaulting).manifest
    assert isinstance(manifest, Workload)
    ref = manifest.spec.priority_class_ref
    return (f"{ref.kind} {ref.name}" if ref is not None else ""), manifest.spec.priority


@pytest.mark.parametrize(
    ("classes", "of", "want"),
    [
        pytest.param(
            URGENT,
            {"priorityClassRef": CLASS},
            ("WorkloadPriorityClass urgent", 1000),
            id="a named class gives the value",
        ),
        pytest.param(
            URGENT,
            {"priorityClassRef": OF_PODS},
            ("PriorityClass nodes", 5),
            id="so does a named class of pods",
        ),
        pytest.param(
            URGENT,
            {"priorityClassRef": CLASS, "priority": 7},
            ("WorkloadPriorityClass urgent", 7),
            id="a stated value stays",
        ),
        pytest.param(
            DEFAULTS,
            {"label": "urgent", "pod_class": "nodes"},
            ("WorkloadPriorityClass urgent", 1000),
            id="the label goes before the class of the pods",
        ),
        pytest.param(
            GLOBAL,
            {"pod_class": "nodes"},
            ("PriorityClass nodes", 5),
            id="the class of the pods goes before the global default",
        ),
        pytest.param(
            DEFAULTS,
            {"pod_class": "nodes"},
            ("WorkloadPriorityClass default", 50),
            id="the class default goes before the class of the pods",
        ),
        pytest.param(
            DEFAULTS,
            {"priorityClassRef": OF_PODS},
            ("PriorityClass nodes", 5),
            id="a reference goes before the class default",
        ),
        pytest.param(
            DEFAULTS,
            {"priority": 7, "pod_class": "missing"},
            ("", 7),
            id="a stated value needs no class",
        ),
        pytest.param(GLOBAL, {}, ("PriorityClass all", 3), id="the global default counts last"),
        pytest.param(URGENT, {}, ("", None), id="without any class"),
    ],
)
def test_a_workload_gets_the_priority_of_its_class(
    classes: Classes, of: dict[str, Any], want: tuple[str, int | None]
) -> None:
    assert resolved(classes, **of) == want


def test_the_class_default_counts_only_while_its_gate_is_on() -> None:
    assert resolved(DEFAULTS, defaulting=False) == ("PriorityClass all", 3)


@pytest.mark.parametrize(
    ("of", "said"),
    [
        ({"label": "none"}, "WorkloadPriorityClass none doesn't exist"),
        ({"pod_class": "none"}, "PriorityClass none doesn't exist"),
        ({"priorityClassRef": {**OF_PODS, "name": "none"}}, "PriorityClass none doesn't exist"),
        ({"priorityClassRef": {**CLASS, "name": "none"}}, "WorkloadPriorityClass none doesn't"),
    ],
)
def test_a_class_that_does_not_exist_is_an_error(of: dict[str, Any], said: str) -> None:
    with pytest.raises(ManifestError, match=said):
        accept(a_workload(**of), classes=GLOBAL)


def test_a_class_without_its_value_is_an_error() -> None:
    with pytest.raises(ManifestError, match=r"spec\.priority"):
        accept(a_workload(priorityClassRef=CLASS))


@pytest.mark.parametrize(
    ("label", "pod_class", "priority", "want"),
    [
        ("urgent", "nodes", None, 1000),
        ("", "nodes", None, 5),
        ("", "nodes", 9, 5),
        ("", "", 9, 9),
    ],
    ids=["its label", "its pods' class", "the class of a stated priority", "a stated priority"],
)
def test_the_priority_of_a_job_comes_from(
    label: str, pod_class: str, priority: int | None, want: int
) -> None:
    pods = pods_of(pod_class)
    pods["spec"] |= {"priority": priority, "restartPolicy": "Never"}
    labels = {"kueue.x-k8s.io/queue-name": "q"}
    if label:
        labels["kueue.x-k8s.io/priority-class"] = label
    metadata = {"name": "j", "namespace": "default", "labels": labels}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {}}
    manifest = decode_object({**job, "spec": {"template": pods}}).manifest
    assert isinstance(manifest, Job)
    assert resolve_priority(workload_of(manifest), URGENT).spec.priority == want


def test_a_priority_class_of_pods_is_a_kind_of_admittance() -> None:
    head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    accepted = accept({**head, "metadata": {"name": "n"}, "value": 5, "globalDefault": True})
    assert isinstance(accepted.manifest, PriorityClass)
    assert accept(encode(accepted.manifest)).manifest == accepted.manifest
    with pytest.raises(ManifestError, match="value: must be set"):
        accept({**head, "metadata": {"name": "n"}})
    with pytest.raises(ManifestError, match=r"known: scheduling\.k8s\.io/v1$"):
        accept({**head, "apiVersion": "scheduling.k8s.io/v1beta1", "metadata": {"name": "n"}})
    other = accept({**head, "apiVersion": "example.com/v1", "metadata": {"name": "n"}})
    assert isinstance(other.manifest, Foreign)
