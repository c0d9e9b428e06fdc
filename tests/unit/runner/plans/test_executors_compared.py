"""Each field of a pod template has the same effect on a local process and on a container, or
docs/manifests.md states the difference."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from admittance.api.effects.field_effect import Effect
from admittance.api.effects.pods import PODS
from admittance.api.fields.struct_types import struct_type
from admittance.api.pods import Container, PodSpec, Volume
from admittance.events.facts import Admitted
from admittance.events.shapes import PodSetToRun
from admittance.job_rules.rules import CannotRun
from admittance.runner.plans.docker_plan import plan_docker
from admittance.runner.plans.inputs.host_inputs import NoInputs
from admittance.runner.plans.local_plan import plan_local

PAGE: Final = Path(__file__).parents[4] / "docs" / "manifests.md"
MAIN: Final[dict[str, Any]] = {"name": "c", "image": "i", "command": ["/bin/true"]}
MOUNT: Final = {"name": "v", "mountPath": "/v"}


class Files(NoInputs):
    """Every ConfigMap and Secret has one key; every folder may be mounted."""

    def host_path(self, path: str, kind: str) -> str:
        return f"{path}{kind}"

    def keys(self, kind: str, name: str) -> Mapping[str, str] | None:
        return {"k": f"/{kind}/{name}"}

    def value(self, path: str) -> str:
        return path


def plans(spec: dict[str, Any]) -> tuple[object, object]:
    """The plans of a local process and of a container, each as plain values, or why there is
    none."""
    template = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [MAIN], **spec}}
    raw = msgspec.Raw(msgspec.json.encode(template))
    pods = PodSetToRun(name="main", count=1, template=raw)
    fact = Admitted(namespace="ns", name="w", uid="u", revision=1, pod_sets=(pods,))
    plans: list[object] = []
    for plan in (
        lambda: plan_local(fact, given={}, inputs=Files()),
        lambda: plan_docker(fact, given={}, docker="docker", mark="m", inputs=Files()),
    ):
        try:
            plans.append(msgspec.to_builtins(plan()))
        except CannotRun as error:
            plans.append(str(error))
    return plans[0], plans[1]


def volume(source: dict[str, Any], **mount: Any) -> dict[str, Any]:
    container = {**MAIN, "volumeMounts": [{**MOUNT, **mount}]}
    return {"containers": [container], "volumes": [{"name": "v", **source}]}


def container(**more: Any) -> dict[str, Any]:
    return {"containers": [{**MAIN, **more}]}


def source(**of: Any) -> dict[str, Any]:
    return container(env=[{"name": "A", "valueFrom": of}])


ITEM: Final = {"key": "k", "path": "p"}
EMPTY: Final = volume({"emptyDir": {}})
CONFIG: Final = volume({"configMap": {"name": "n"}})
HOST: Final = volume({"hostPath": {"path": "/srv"}})
SAME: Final[list[tuple[dict[str, Any], dict[str, Any]]]] = [
    ({}, container(command=["/bin/false"])),
    ({}, container(args=["x"])),
    ({}, container(env=[{"name": "A", "value": "a"}])),
    ({}, container(envFrom=[{"configMapRef": {"name": "n"}}])),
    ({}, container(envFrom=[{"secretRef": {"name": "n"}}])),
    ({}, container(workingDir="/w")),
    ({}, source(fieldRef={"fieldPath": "metadata.labels['app']"})),
    ({}, source(configMapKeyRef={"name": "n", "key": "k"})),
    ({}, source(secretKeyRef={"name": "n", "key": "k"})),
    ({}, {"initContainers": [MAIN]}),
    ({}, {"initContainers": [{**MAIN, "restartPolicy": "Always"}]}),
    ({}, {"restartPolicy": "OnFailure"}),
    ({}, {"terminationGracePeriodSeconds": 7}),
    ({}, {"activeDeadlineSeconds": 7}),
    ({}, EMPTY),
    ({}, CONFIG),
    ({}, HOST),
    (EMPTY, volume({"emptyDir": {"sizeLimit": "1Gi"}})),
    (CONFIG, volume({"configMap": {"name": "n", "items": [ITEM]}})),
    (CONFIG, volume({"configMap": {"name": "n", "defaultMode": 0o400}})),
    (CONFIG, volume({"configMap": {"name": "n"}}, subPath="k")),
    (HOST, volume({"hostPath": {"path": "/srv", "type": "Directory"}})),
]
"""Pairs of a pod without and with a field that changes both plans."""


@pytest.mark.parametrize(
    ("without", "given"), SAME, ids=[str(number) for number in range(len(SAME))]
)
def test_a_field_that_works_changes_processes_and_containers(
    without: dict[str, Any], given: dict[str, Any]
) -> None:
    (local, docker), (local_with, docker_with) = plans(without), plans(given)
    assert local != local_with
    assert docker != docker_with
    if isinstance(local_with, str):
        assert local_with == docker_with, "the same sentence"


def _fields(struct: type[msgspec.Struct]) -> list[str]:
    table = PODS[struct]
    return [
        field.encode_name
        for field in struct_type(struct).fields
        if table[field.encode_name].effect is Effect.NONE
    ]


@pytest.mark.parametrize("field", _fields(PodSpec))
def test_a_field_of_a_pod_without_effect_changes_neither(field: str) -> None:
    assert plans({field: {"a": "b"}}) == plans({})


@pytest.mark.parametrize("field", _fields(Container))
def test_a_field_of_a_container_without_effect_changes_neither(field: str) -> None:
    assert plans(container(**{field: {"a": "b"}})) == plans({})


@pytest.mark.parametrize("field", _fields(Volume))
def test_a_volume_of_a_cluster_is_refused_by_both_with_one_sentence(field: str) -> None:
    local, docker = plans(volume({field: {"a": "b"}}))
    assert local == docker
    assert f"a {field} exists only in a cluster" in str(local)


DIFFERENT: Final = {
    "`image`": (container(), container(image="other"), "container"),
    "`volumeMounts[].readOnly`": (HOST, volume({"hostPath": {"path": "/srv"}}, readOnly=True),
                                  "container"),
    "`volumeMounts[].mountPath`": (EMPTY, volume({"emptyDir": {}}, mountPath="/w"), "container"),
}  # fmt: skip
"""Fields that change one of the plans only, with the one that they change."""


@pytest.mark.parametrize("name", DIFFERENT)
def test_a_field_that_changes_one_of_them_is_on_the_page(name: str) -> None:
    without, given, which = DIFFERENT[name]
    (local, docker), (local_with, docker_with) = plans(without), plans(given)
    changed = {"process": local != local_with, "container": docker != docker_with}
    assert [field for field, is_changed in changed.items() if is_changed] == [which]
    page = PAGE.read_text()
    section = page[page.index("<!-- differences:") : page.index("## What differs from the prop")]
    assert f"\n| {name} | " in section


@pytest.mark.parametrize(
    ("spec", "local", "docker"),
    [
        pytest.param(container(command=[]), "no command to run as a local process", "", id="image"),
        pytest.param(container(image=""), "", "names no image", id="no image"),
        pytest.param(volume({"emptyDir": {}}, subPath="a"), "", "mounts a subPath only of a",
                     id="subPath"),
    ],
)  # fmt: skip
def test_what_only_one_of_them_refuses(spec: dict[str, Any], local: str, docker: str) -> None:
    for plan, says in zip(plans(spec), (local, docker), strict=True):
        assert isinstance(plan, str) == bool(says)
        assert says in str(plan)
