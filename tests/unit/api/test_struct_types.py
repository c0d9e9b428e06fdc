"""The types of Structs, as msgspec describes them."""

from __future__ import annotations

import pytest
from msgspec import inspect

from admittance.api.fields import struct_types
from admittance.api.fields.struct_types import struct_type
from admittance.api.manifests import STRUCTS


@pytest.mark.parametrize("kind", STRUCTS)
def test_a_struct_within_a_struct_has_the_fields_that_it_has_alone(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(struct_types, "_KNOWN", {})
    struct_type(STRUCTS[kind])
    for struct, known in struct_types._KNOWN.items():
        assert known == inspect.type_info(struct)


def test_structs_within_a_struct_are_not_inspected_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(struct_types, "_KNOWN", {})
    outer = struct_type(STRUCTS["Workload"])
    monkeypatch.setattr(inspect, "type_info", None)
    inner = {field.name: field.type for field in outer.fields}["spec"]
    assert isinstance(inner, inspect.StructType)
    assert struct_type(inner.cls) is inner
