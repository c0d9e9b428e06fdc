"""The page of the manifests has the numbers of the schema."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tools.manifests_schema import manifests_schema

PAGE = Path(__file__).resolve().parents[4] / "docs" / "manifests.md"
ROW = re.compile(r"\| ([A-Za-z, ]+) \| `spec\.([A-Za-z.\[\]]+)` \| (\d+) \|")


def rows() -> list[Any]:
    text = PAGE.read_text(encoding="utf-8")
    table = text[text.index("<!-- limits:") : text.index("Further limits: 256")]
    return [
        pytest.param(kind, field, int(most), id=f"{kind} {field}")
        for kinds, field, most in ROW.findall(table)
        for kind in kinds.split(", ")
    ]


def shapes(shape: dict[str, Any], known: dict[str, Any]) -> list[dict[str, Any]]:
    """The schema, and its alternatives except null."""
    options = [
        shape,
        *(inner for option in shape.get("anyOf", []) for inner in shapes(option, known)),
    ]
    return [
        known[inner_shape["$ref"].rpartition("/")[2]] if "$ref" in inner_shape else inner_shape
        for inner_shape in options
    ]


def inside(options: list[dict[str, Any]], key: str) -> dict[str, Any]:
    return next(option[key] for option in options if key in option)


@pytest.mark.parametrize(("kind", "field", "most"), rows())
def test_the_page_has_the_limits_of_the_schema(kind: str, field: str, most: int) -> None:
    known = manifests_schema()["$defs"]
    at = shapes(inside(shapes(known[kind], known), "properties")["spec"], known)
    for step in field.split("."):
        at = shapes(inside(at, "properties")[step.removesuffix("[]")], known)
        if step.endswith("[]"):
            at = shapes(inside(at, "items"), known)
    assert inside(at, "maxItems") == most


def test_every_row_of_the_page_is_read() -> None:
    assert len(rows()) == 16
