"""Which role a submission gets, and what it takes over from its queue: by direct calls."""

from __future__ import annotations

from typing import Any

import pytest

from admittance.api.reading.manifest import accept
from admittance.api.workload import PARENT_VARIANT, Workload
from admittance.control.user_requests.submissions import in_role
from admittance.family import FamilyRules
from support.builders import Around, a_manifest

REMARK = "No variants are made of a workload with minCount: it is a regular one"
NOTED = {PARENT_VARIANT: "true"}


def pod_set(name: str, **more: Any) -> dict[str, Any]:
    containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]
    return {"name": name, "count": 3, "template": {"spec": {"containers": containers}}, **more}


PLAIN = {"podSets": [pod_set("a"), pod_set("b")]}
PARTIAL = {"podSets": [pod_set("a"), pod_set("b", minCount=1)]}
ALL_PARTIAL = {"podSets": [pod_set("a", minCount=1)]}


@pytest.mark.parametrize(
    ("families", "spec", "notes", "role", "noted", "remark"),
    [
        pytest.param(False, PLAIN, {}, "regular", {}, "", id="no families"),
        pytest.param(False, PARTIAL, {}, "regular", {}, "", id="no families, minCount"),
        pytest.param(True, PLAIN, {}, "parent", NOTED, "", id="a parent"),
        pytest.param(True, PLAIN, NOTED, "parent", NOTED, "", id="noted before"),
        pytest.param(True, PARTIAL, {}, "regular", {}, REMARK, id="one pod set has minCount"),
        pytest.param(True, ALL_PARTIAL, {}, "regular", {}, REMARK, id="all have minCount"),
        pytest.param(True, PARTIAL, NOTED, "regular", {}, REMARK, id="not a parent any more"),
        pytest.param(False, PLAIN, {**NOTED, "a": "b"}, "regular", {"a": "b"}, "", id="moved"),
    ],
)
def test_a_submission_has_the_role_that_its_queue_gives(
    families: bool,
    spec: dict[str, Any],
    notes: dict[str, str],
    role: str,
    noted: dict[str, str],
    remark: str,
) -> None:
    queues = Around()
    queues.families = FamilyRules("NoMigration", "", ()) if families else None
    written = a_manifest(**spec)
    written["metadata"]["annotations"] = notes
    manifest = accept(written, namespace="ns").manifest
    assert isinstance(manifest, Workload)
    placed, said = in_role(manifest, "ns", queues)
    assert (placed.spec.role, placed.metadata.annotations, said) == (role, noted, remark)
    assert in_role(placed, "ns", queues)[0] is placed, "the role is given once"
