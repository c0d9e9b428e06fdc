"""Reads a file of plain values, such as parameters, with the limits of manifests: aliases that grow
without limit, and values nested without limit, would take the memory or the stack of a reader."""

from __future__ import annotations

from typing import Any

from admittance.api.fields.problems import ManifestError, Problem
from admittance.api.reading.conform import resolve
from admittance.api.reading.manifest import parsed


def read_values(text: str | bytes, source: str) -> Any:
    """The value of a text with one YAML or JSON document; None for an empty text. Raises
    ManifestError."""
    values = [document.value for document in parsed(text, source)]
    if len(values) > 1:
        raise ManifestError([Problem("", f"the file has {len(values)} documents")], source=source)
    return resolve(values[0]) if values else None
