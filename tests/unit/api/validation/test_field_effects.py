"""Every field of a manifest works, works in part, warns that it has no effect, or is refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import pytest
from tools.pages import fields as fields_page

from admittance.api.configuration import Configuration
from admittance.api.effects.annotations import KUEUE
from admittance.api.effects.configuration import CONFIGURATION
from admittance.api.effects.field_effect import (
    Effect,
    FieldEffect,
    Table,
    in_part,
    no_effect,
    refused,
)
from admittance.api.effects.walk import MANIFESTS, inner_struct
from admittance.api.fields.problems import ManifestError
from admittance.api.fields.struct_types import struct_type
from admittance.api.manifests import STRUCTS
from admittance.api.reading.manifest import read
from admittance.runner.plans.inputs.environment import FIELDS


def structs_inside(roots: Iterable[type[msgspec.Struct]]) -> set[type[msgspec.Struct]]:
    """The Structs, and all Structs of their fields at any depth."""
    structs: set[type[msgspec.Struct]] = set()
    ahead = list(roots)
    while ahead:
        struct = ahead.pop()
        if struct not in structs:
            structs.add(struct)
            inner = [inner_struct(field.type)[0] for field in struct_type(struct).fields]
            ahead += [struct for struct in inner if struct is not None]
    return structs


@pytest.mark.parametrize(
    ("roots", "table"),
    [(STRUCTS.values(), MANIFESTS), ([Configuration], CONFIGURATION)],
    ids=["manifests", "configuration"],
)
def test_every_field_of_every_struct_has_one_effect(
    roots: Iterable[type[msgspec.Struct]], table: Table
) -> None:
    inside = structs_inside(roots)
    assert set(table) == inside
    for struct in inside:
        fields = {field.encode_name for field in struct_type(struct).fields}
        assert set(table[struct]) == fields, f"the effects of {struct.__name__}"


@pytest.mark.parametrize("table", [MANIFESTS, CONFIGURATION], ids=["manifests", "configuration"])
def test_a_field_without_effect_says_why_and_warns(table: Table) -> None:
    for struct, fields in table.items():
        for name, effect in fields.items():
            if effect.effect is Effect.WORKS:
                continue
            assert effect.about, f"{struct.__name__}.{name}"
            if effect.effect is not Effect.IN_PART:
                assert effect.concerns({"any": "value"}), f"{struct.__name__}.{name}"


def test_a_field_without_a_type_is_never_said_to_work() -> None:
    """A field of type `Any` is not validated, so no code of ours can rely on it."""
    for struct, fields in {**MANIFESTS, **CONFIGURATION}.items():
        for field in struct_type(struct).fields:
            if isinstance(field.type, msgspec.inspect.AnyType):
                effect = fields[field.encode_name].effect
                assert effect is not Effect.WORKS, f"{struct.__name__}.{field.encode_name}"


@pytest.mark.parametrize(
    ("effect", "value", "concerned"),
    [
        (no_effect("x"), None, False),
        (no_effect("x"), "", False),
        (no_effect("x"), {}, False),
        (no_effect("x"), False, False),
        (no_effect("x"), 0, True),
        (no_effect("x"), True, True),
        (no_effect("x", usual=(True,)), False, True),
        (no_effect("x", usual=(0,)), False, True),
        (no_effect("x", usual=("File",)), "File", False),
        (in_part("x"), "value", False),
        (in_part("x", usual=("Never",)), "Always", True),
        (in_part("x", usual=lambda value: value >= 60), 59, True),
        (in_part("x", usual=lambda value: value >= 60), 60, False),
        (refused("x"), "value", True),
    ],
)
def test_a_value_that_asks_for_nothing_causes_no_warning(
    effect: FieldEffect, value: Any, concerned: bool
) -> None:
    assert effect.concerns(value) is concerned


def warnings_about(
    kind: str,
    *,
    labels: Mapping[str, str] = {},
    annotations: Mapping[str, str] = {},
    **spec: Any,
) -> tuple[str, ...]:
    queue = {f"{KUEUE}queue-name": "main"} if kind == "Job" else {}
    metadata = {"name": "x", "labels": {**queue, **labels}, "annotations": annotations}
    manifest = {
        "apiVersion": "batch/v1" if kind == "Job" else "kueue.x-k8s.io/v1beta2",
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
    }
    [document] = read(msgspec.json.encode(manifest), "x.yaml")
    return document.warnings


def template(**spec: Any) -> Mapping[str, Any]:
    containers = [{"name": "a", "command": ["true"]}]
    return {"spec": {"restartPolicy": "Never", "containers": containers, **spec}}


def test_a_pod_field_without_effect_causes_a_warning_that_says_why() -> None:
    pods = {"name": "main", "template": template(hostNetwork=True, dnsPolicy="ClusterFirst")}
    assert warnings_about("Workload", queueName="q", podSets=[pods]) == (
        "spec.podSets[0].template.spec.hostNetwork has no effect: "
        "a job has the network of its machine or container engine",
    )


def test_a_field_in_several_containers_causes_one_warning() -> None:
    containers = [{"name": name, "command": ["true"], "tty": True} for name in "abc"]
    [warning] = warnings_about("Job", template=template(containers=containers))
    assert warning.startswith("spec.template.spec.containers[0].tty has no effect: ")
    assert warning.endswith(" (and in 2 more places)")


def test_a_field_that_works_causes_no_warning() -> None:
    spec = template(nodeSelector={"zone": "a"}, terminationGracePeriodSeconds=5)
    assert warnings_about("Job", parallelism=2, suspend=True, template=spec) == ()


def a_pod_set(**more: Any) -> dict[str, Any]:
    return {"name": "main", "template": template(), **more}


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        ({"required": "rack"}, "required"),
        ({"podSetGroupName": "group"}, "podSetGroupName"),
        ({"podSetSliceRequiredTopology": "rack"}, "podSetSliceRequiredTopology"),
    ],
)
def test_a_required_topology_is_refused(request_: dict[str, Any], field: str) -> None:
    with pytest.raises(ManifestError, match=rf"topologyRequest\.{field}: is not supported: "):
        warnings_about("Workload", queueName="q", podSets=[a_pod_set(topologyRequest=request_)])


@pytest.mark.parametrize("kind", ["Job", "Workload"])
def test_a_pod_template_that_requires_a_topology_is_refused(kind: str) -> None:
    key = f"{KUEUE}podset-required-topology"
    pods = {**template(), "metadata": {"annotations": {key: "rack"}}}
    spec = {"template": pods} if kind == "Job" else {"podSets": [{"template": pods}]}
    with pytest.raises(ManifestError, match=rf"template\.metadata\.annotations\[{key}\]: is not"):
        warnings_about(kind, **spec)


@pytest.mark.parametrize(("seconds", "warns"), [(0, True), (59, True), (60, False)])
def test_a_job_that_is_to_be_removed_before_a_minute_causes_a_warning(
    seconds: int, warns: bool
) -> None:
    warnings = warnings_about("Job", template=template(), ttlSecondsAfterFinished=seconds)
    assert [
        warning.startswith("spec.ttlSecondsAfterFinished works in part: ") for warning in warnings
    ] == ([True] if warns else [])


@pytest.mark.parametrize(
    ("path", "warns"),
    [
        *((path, False) for path in FIELDS),
        ("metadata.annotations['any']", False),
        ("metadata.uid", True),
        ("status.podIP", True),
        ("spec.nodeName", True),
    ],
)
def test_a_variable_from_a_field_that_no_runner_has_causes_a_warning(
    path: str, warns: bool
) -> None:
    variable = {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": path}}}
    container = {"name": "a", "command": ["true"], "env": [variable]}
    warnings = warnings_about("Job", template=template(containers=[container]))
    assert ["fieldPath works in part: " in warning for warning in warnings] == (
        [True] if warns else []
    )


def test_a_job_of_another_group_with_a_queue_says_that_nothing_starts_it() -> None:
    def warnings(labels: Mapping[str, str]) -> tuple[str, ...]:
        manifest = {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": "x", "labels": labels},
        }
        [document] = read(msgspec.json.encode(manifest), "x.yaml")
        return document.warnings

    assert warnings({"app": "x"}) == ()
    assert warnings({f"{KUEUE}queue-name": "main"}) == (
        f"metadata.labels[{KUEUE}queue-name] has no effect: objects of the kind JobSet are not "
        "run; submit a batch/v1 Job, or a Workload with a pod set for each kind of pod",
    )


def test_a_preferred_topology_causes_a_warning() -> None:
    said = "has no effect: pods are not placed by topology"
    asked = {"preferred": "rack", "unconstrained": True, "podIndexLabel": "index"}
    [warning] = warnings_about(
        "Workload", queueName="q", podSets=[a_pod_set(topologyRequest=asked)]
    )
    assert warning == f"spec.podSets[0].topologyRequest.preferred {said}"
    annotations = {f"{KUEUE}podset-preferred-topology": "rack"}
    [warning] = warnings_about(
        "Job", template={**template(), "metadata": {"annotations": annotations}}
    )
    assert warning.endswith(f"[{KUEUE}podset-preferred-topology] {said}")


def test_a_flavor_with_a_topology_and_a_topology_say_what_they_do() -> None:
    [flavor] = warnings_about("ResourceFlavor", topologyName="t", nodeLabels={"a": "b"})
    assert flavor.startswith("spec.topologyName works in part: the Topology must exist")
    [topology] = warnings_about("Topology", levels=[{"nodeLabel": "rack"}])
    assert topology.startswith("spec.levels has no effect: pods are not placed by topology")


@pytest.mark.parametrize(
    ("levels", "said"),
    [
        ([], "levels: must not be empty"),
        (["rack", "rack"], "listed twice"),
        (["kubernetes.io/hostname", "rack"], "must be the label of the last level"),
    ],
)
def test_the_levels_of_a_topology_are_in_order(levels: list[str], said: str) -> None:
    with pytest.raises(ManifestError, match=said):
        warnings_about("Topology", levels=[{"nodeLabel": level} for level in levels])


@pytest.mark.parametrize(
    ("kind", "keys", "said"),
    [
        ("Job", {"labels": {"queue-nam": "q"}}, 'did you mean "kueue.x-k8s.io/queue-name"?'),
        ("Job", {"annotations": {"priority-class": "p"}}, "no effect: it counts as a label"),
        ("Job", {"labels": {"job-min-parallelism": "1"}}, "no effect: it counts as an annotation"),
        ("Job", {"annotations": {"priority-boost": "1"}}, "has no effect: the gate PriorityBoost"),
        ("Workload", {"labels": {"queue-name": "q"}}, "a Workload has spec.queueName"),
        ("Workload", {"annotations": {"job-min-parallelism": "1"}}, "a Workload has minCount"),
    ],
)
def test_a_label_or_annotation_without_effect_causes_a_warning(
    kind: str, keys: dict[str, dict[str, str]], said: str
) -> None:
    spec = {"template": template()} if kind == "Job" else {"podSets": [a_pod_set()]}
    named = {place: {KUEUE + key: value for key, value in of.items()} for place, of in keys.items()}
    [warning] = warnings_about(kind, **named, **spec)
    assert said in warning


def test_labels_and_annotations_that_work_cause_no_warning() -> None:
    assert warnings_about(
        "Job",
        parallelism=3,
        template={**template(), "metadata": {"labels": {"app": "x"}}},
        labels={f"{KUEUE}priority-class": "p", "app.kubernetes.io/name": "x"},
        annotations={f"{KUEUE}job-min-parallelism": "1", "provreq.kueue.x-k8s.io/x": "1"},
    ) == ()  # fmt: skip


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "example.com/license"])
def test_a_part_of_a_device_is_refused(resource: str) -> None:
    def asking(amount: Any, of: str) -> tuple[str, ...]:
        container = {"name": "a", "command": ["true"], "resources": {"limits": {of: amount}}}
        return warnings_about("Job", template=template(containers=[container]))

    with pytest.raises(ManifestError, match=rf"limits\[{resource}\]: must be a whole number"):
        asking("0.5", resource)
    assert asking("2", resource) == asking("2000m", resource) == asking("0.5", "cpu") == ()


def test_the_page_of_manifests_has_the_effects_of_the_code() -> None:
    current = fields_page.PAGE.read_text(encoding="utf-8")
    assert current == fields_page.page(), "run: python -m tools.pages.fields"
