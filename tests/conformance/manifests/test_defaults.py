"""Defaults of the manifests are those of Kueue's schemas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tools.manifests_schema import manifests_schema

from admittance.api.reading.manifest import decode_object
from conformance.differences import DEFAULTS

DATA = (
    Path(__file__).resolve().parents[4]
    / "shared" / "conformance" / "defaults" / "api-field-defaults.json"
)  # fmt: skip

# The least that makes each parent of a field exist.
_SPECS: dict[str, dict[str, Any]] = {
    "ClusterQueue": {"fairSharing": {}, "preemption": {"borrowWithinCohort": {}}},
    "Cohort": {"fairSharing": {}},
    "LocalQueue": {"fairSharing": {}},
    "ProvisioningRequestConfig": {},
    "Workload": {"podSets": [{}]},
}


def _cases() -> list[Any]:
    if not DATA.is_file():
        reason = "the conformance data is not beside this tree"
        return [pytest.param({}, id="no data", marks=pytest.mark.skip(reason))]
    return [pytest.param(case, id=case["name"]) for case in json.loads(DATA.read_text())["cases"]]


def _follow(value: Any, path: str) -> Any:
    for step in path.split("."):
        name = "".join("_" + char.lower() if char.isupper() else char for char in step)
        value = getattr(value, name.removesuffix("[]"))
        if step.endswith("[]"):
            value = value[0]
    return value


def _covers(default: Any, value: Any) -> bool:
    """An object's default is the fields that it names."""
    if isinstance(default, dict):
        return all(_covers(part, _follow(value, name)) for name, part in default.items())
    return bool(default == value)


@pytest.mark.parametrize("case", _cases())
def test_default(case: dict[str, Any]) -> None:
    if case["name"] in DEFAULTS:
        pytest.skip(DEFAULTS[case["name"]])
    kind, field = case["given"]["kind"], case["given"]["field"]
    version = "kueue.x-k8s.io/v1beta2"
    manifest = decode_object(
        {"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, "spec": _SPECS[kind]}
    ).manifest
    assert _covers(case["want"]["default"], _follow(manifest, field))


def _enumeration(kind: str, field: str) -> list[str]:
    schemas = manifests_schema()["$defs"]
    shape = schemas[kind]
    for step in field.split("."):
        shape = shape["properties"][step.removesuffix("[]")]
        if step.endswith("[]"):
            shape = shape["items"]
        for branch in [shape, *shape.get("anyOf", [])]:
            if "$ref" in branch:
                shape = schemas[branch["$ref"].rpartition("/")[2]]
    # A null counts as absent, so that the words stand beside it.
    return next(
        list(branch["enum"]) for branch in [shape, *shape.get("anyOf", [])] if "enum" in branch
    )


@pytest.mark.parametrize("case", [param for param in _cases() if "allowed" in str(param.values)])
def test_allowed_values_are_in_the_schema(case: dict[str, Any]) -> None:
    allowed = case["want"]["allowed"]
    assert _enumeration(case["given"]["kind"], case["given"]["field"]) == allowed


def test_null_is_absent() -> None:
    raw = msgspec.json.encode(
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "ClusterQueue",
            "metadata": {"name": "x", "labels": None, "creationTimestamp": None},
            "spec": {"queueingStrategy": None, "namespaceSelector": None},
        }
    )
    plain = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue"}
    same = decode_object({**plain, "metadata": {"name": "x"}, "spec": {}})
    assert decode_object(raw) == same
