"""Manifests that contain the documented defaults."""

from __future__ import annotations

from typing import Any

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
