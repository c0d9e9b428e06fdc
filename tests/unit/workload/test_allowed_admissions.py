"""Whether a variant may still use the flavors of its admission: by direct calls."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from admittance.api.meta import ObjectMeta
from admittance.events.shapes import Admission, PodSetAssignment
from admittance.workload.families.migration import _may_use
from admittance.workload.stored import StoredWorkload


@pytest.mark.parametrize(
    ("allowed", "flavors", "may"),
    [
        pytest.param(None, ({"cpu": "a"},), True, id="all flavors are allowed"),
        pytest.param([], ({"cpu": "a"},), False, id="no flavor is allowed"),
        pytest.param(["a", "b"], ({"cpu": "a"}, {"cpu": "b"}), True, id="each one"),
        pytest.param(["a"], ({"cpu": "a"}, {"cpu": "b"}), False, id="the first pod set's"),
        pytest.param(["b"], ({"cpu": "a"}, {"cpu": "b"}), False, id="the last pod set's"),
        pytest.param(["a"], ({"cpu": "a", "gpu": "b"},), False, id="one of a pod set"),
    ],
)
def test_an_admission_is_kept_only_with_allowed_flavors(
    allowed: list[str] | None, flavors: tuple[dict[str, str], ...], may: bool
) -> None:
    spec: dict[str, Any] = {"queueName": "cq", "podSets": []}
    if allowed is not None:
        spec["admissionConstraints"] = {"allowedResourceFlavors": allowed}
    variant = StoredWorkload(
        api_version="",
        kind="Workload",
        metadata=ObjectMeta(name="w", namespace="ns"),
        spec=msgspec.Raw(json.dumps(spec).encode()),
    )
    places = tuple(
        PodSetAssignment(name=f"set-{number}", flavors=of, count=1)
        for number, of in enumerate(flavors)
    )
    assert _may_use(variant, Admission(cluster_queue="cq", pod_set_assignments=places)) is may
