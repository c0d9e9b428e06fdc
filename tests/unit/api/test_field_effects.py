"""Every field of a manifest works, works in part, warns that it has no effect, or is refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import pytest
from tools import fields_page

from admittance.api.configuration import Configuration
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
from admittance.api.manifests import STRUCTS
from admittance.api.reading.manifest import read
from admittance.api.struct_types import struct_type


def structs_inside(roots: Iterable[type[msgspec.Struct]]) -> set[type[msgspec.Struct]]:
    """The Structs, and all Structs of their fields at any depth."""
    found: set[type[msgspec.Struct]] = set()
    ahead = list(roots)
    while ahead:
        struct = ahead.pop()
        if struct not in found:
            found.add(struct)
            inner = [inner_struct(field.type)[0] for field in struct_type(struct).fields]
            ahead += [one for one in inner if one is not None]
    return found


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
    """What is declared `Any` is not validated, so no code of ours can rely on it."""
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
        (refused("x"), "value", True),
    ],
)
def test_a_value_that_asks_for_nothing_causes_no_warning(
    effect: FieldEffect, value: Any, concerned: bool
) -> None:
    assert effect.concerns(value) is concerned


def warnings_about(kind: str, version: str = "v1beta2", **spec: Any) -> tuple[str, ...]:
    group = "batch/v1" if kind == "Job" else f"kueue.x-k8s.io/{version}"
    labels = {"kueue.x-k8s.io/queue-name": "main"}
    manifest = {
        "apiVersion": group,
        "kind": kind,
        "metadata": {"name": "x", "labels": labels},
        "spec": spec,
    }
    [document] = read(msgspec.json.encode(manifest), "x.yaml")
    return document.warnings


def template(**spec: Any) -> Mapping[str, Any]:
    return {"spec": {"containers": [{"name": "a", "command": ["true"]}], **spec}}


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


def test_the_page_of_manifests_has_the_effects_of_the_code() -> None:
    current = fields_page.PAGE.read_text(encoding="utf-8")
    assert current == fields_page.page(), "run: python -m tools.fields_page"
