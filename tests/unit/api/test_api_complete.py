"""Manifests that contain the documented defaults."""

from __future__ import annotations

from typing import Any

import pytest

from admittance.api.manifests import complete
from admittance.api.reading.manifest import decode_object

QUEUE: dict[str, Any] = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "ClusterQueue",
    "metadata": {"name": "cq"},
    "spec": {"namespaceSelector": {}},
}


def spec_of(manifest: dict[str, Any]) -> Any:
    return complete(decode_object(manifest).manifest.spec)  # type: ignore[union-attr]


def test_defaults_are_written_out() -> None:
    spec = spec_of(QUEUE)
    assert spec["queueingStrategy"] == "BestEffortFIFO"
    assert spec["preemption"]["withinClusterQueue"] == "Never"


def test_an_empty_selector_differs_from_a_missing_one() -> None:
    assert spec_of(QUEUE)["namespaceSelector"] == {}
    assert "namespaceSelector" not in spec_of(QUEUE | {"spec": {}})


def test_empty_values_are_left_out() -> None:
    assert "cohortName" not in spec_of(QUEUE)
    assert "resourceGroups" not in spec_of(QUEUE)


def test_a_completed_manifest_reads_back_equal() -> None:
    manifest = decode_object(QUEUE).manifest
    again = decode_object(QUEUE | {"spec": spec_of(QUEUE)}).manifest
    assert again == manifest


def test_the_fields_of_a_class_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading them takes a hundred times as long as the rest, so lists of 10,000 objects took
    seconds."""
    spec_of(QUEUE)
    monkeypatch.delattr("msgspec.structs.fields")
    assert spec_of(QUEUE)["queueingStrategy"] == "BestEffortFIFO"
