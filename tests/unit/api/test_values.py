"""Files of plain values have the limits of manifests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from admittance.api.fields.problems import ManifestError
from admittance.api.reading.values import read_values
from admittance.bench import generator
from admittance.cli.system.conformance import parameters_of
from admittance.client.errors import BadInput
from admittance.runtime.errors import SetupError

MERGES = "m0: &m0 {k: v}\n" + "".join(
    f"m{n}: &m{n}\n  <<: [*m{n - 1}, *m{n - 1}, *m{n - 1}, *m{n - 1}]\n" for n in range(1, 30)
)
"""Values that double with each line."""
DEEP = "a: " + "[" * 20_000 + "]" * 20_000
HOSTILE = pytest.mark.parametrize("text", [MERGES, DEEP], ids=["aliases", "nesting"])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("a: 1\nb: [x, true, null, 1.5]", {"a": 1, "b": ["x", True, None, 1.5]}),
        (b'{"a": "1"}', {"a": "1"}),
    ],
)
def test_values_are_those_of_yaml_and_json(text: str | bytes, value: Any) -> None:
    assert read_values(text, "f") == value


def test_a_file_of_values_has_one_document() -> None:
    with pytest.raises(ManifestError, match="f: the file has 2 documents"):
        read_values("a: 1\n---\nb: 2", "f")


@HOSTILE
def test_parameters_that_grow_without_limit_are_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "parameters.yaml"
    file.write_text(text)
    with pytest.raises(BadInput, match="more than"):
        parameters_of(file)


@HOSTILE
def test_a_generator_file_that_grows_without_limit_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "generator.yaml"
    file.write_text(text)
    with pytest.raises(SetupError, match=r"not a generator file.*more than"):
        generator.read(file)
