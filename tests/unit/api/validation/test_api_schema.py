"""The checked-in schemas are those of the Structs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tools import asyncapi
from tools import manifests_schema as schema

from admittance.api.kinds import KINDS
from admittance.events.subjects import CHECK_FACTS, WORKLOAD_FACTS

ROOT = Path(__file__).resolve().parents[4]


@pytest.mark.parametrize("module", [schema, asyncapi], ids=["manifests", "messages"])
def test_a_schema_file_is_current(module: Any) -> None:
    made = (ROOT / module.FILE).read_text(encoding="utf-8")
    assert made == module.text(), f"run: python -m {module.__name__}"


def test_the_schema_of_each_kind_requires_its_kind() -> None:
    definitions = schema.manifests_schema()["$defs"]
    for name, kind in KINDS.items():
        shape = definitions[kind.name]
        assert shape["properties"]["kind"] == {"const": name}
        assert {"apiVersion", "kind"} <= set(shape["required"])


def test_unknown_fields_are_not_allowed_in_manifests() -> None:
    assert schema.manifests_schema()["$defs"]["ClusterQueueSpec"]["additionalProperties"] is False


def test_every_fact_has_a_channel() -> None:
    addresses = {channel["address"] for channel in asyncapi.document()["channels"].values()}
    for key in WORKLOAD_FACTS:
        assert f"admit.workload.{key}.{{namespace}}.{{name}}" in addresses
    for key in CHECK_FACTS:
        assert f"admit.check.{key}.{{controller}}.{{namespace}}.{{name}}" in addresses


def test_every_reference_of_the_document_resolves() -> None:
    document = asyncapi.document()

    def walk(value: object) -> None:
        if isinstance(value, dict):
            reference = value.get("$ref")
            if isinstance(reference, str):
                at: object = document
                for step in reference.removeprefix("#/").split("/"):
                    assert isinstance(at, dict), reference
                    at = at[step]
            for inner in value.values():
                walk(inner)
        elif isinstance(value, list):
            for inner in value:
                walk(inner)

    walk(document)
