"""Additions of checks to pods, and their conflicts. docs/spec/lifecycle.md#2.6."""

from __future__ import annotations

from typing import Any

import pytest

from admittance.api.meta import Toleration
from admittance.events import facts
from admittance.events.shapes import PodSetUpdate
from admittance.workload.phase import Phase
from admittance.workload.pod_set_updates import merged
from admittance.workload.transition_context import FlavorParts
from support.builders import Around

from lives import ME, Life

GPU = {"key": "gpu", "operator": "Exists"}
SPOT = Toleration(key="spot", operator="Exists")


def an_update(**parts: Any) -> tuple[PodSetUpdate, ...]:
    return (PodSetUpdate(name="main", **parts),)


def a_life(*checks: str) -> Life:
    """Reserved on a flavor that has a label and a toleration of its own."""
    around = Around(checks)
    around.flavors = {"default": FlavorParts({"pool": "spot"}, (SPOT,))}
    return Life(around, labels={"tier": "batch"}).assigned()


@pytest.mark.scenario("A21")
@pytest.mark.parametrize("kind", ["labels", "annotations", "node_selector"])
def test_two_values_of_a_key_reject_by_the_last_check(kind: str) -> None:
    life = a_life("c1", "c2", "c3")
    life.verdict("c3", "Ready")
    life.verdict("c2", "Ready", pod_set_updates=an_update(**{kind: {"zone": "east"}}))
    assert life.phase is Phase.QUOTA_RESERVED
    life.verdict("c1", "Ready", pod_set_updates=an_update(**{kind: {"zone": "west"}}))
    assert life.phase is Phase.REJECTED
    said = life.message("Evicted")
    assert said.startswith('Deactivated due to AdmissionCheck in Rejected state: "c2"')
    for part in ("'zone'", "'west' by check 'c1'", "'east' by check 'c2'"):
        assert part in said
    assert "ConflictingChecks" in life.noted()


@pytest.mark.scenario("A21")
@pytest.mark.parametrize(
    ("parts", "source"),
    [
        pytest.param({"labels": {"tier": "web"}}, "the pod template", id="the pod template"),
        pytest.param({"node_selector": {"pool": "big"}}, "flavor 'default'", id="the flavor"),
    ],
)
def test_a_key_of_the_template_or_the_flavor_is_not_changed(
    parts: dict[str, Any], source: str
) -> None:
    life = a_life("c1", "c2").verdict("c1", "Ready", pod_set_updates=an_update(**parts))
    assert life.phase is Phase.QUOTA_RESERVED
    life.verdict("c2", "Ready")
    assert life.phase is Phase.REJECTED
    assert 'state: "c1"' in life.message("Evicted")
    assert f"by {source}" in life.message("Evicted")


def test_a_conflict_is_found_when_a_check_is_removed() -> None:
    life = a_life("c1", "c2", "c3")
    for name, zone in (("c1", "a"), ("c2", "b")):
        life.verdict(name, "Ready", pod_set_updates=an_update(labels={"zone": zone}))
    assert life.phase is Phase.QUOTA_RESERVED
    assert life.lists("c1", "c2").phase is Phase.REJECTED


def test_new_labels_of_a_flavor_are_compared_before_admission() -> None:
    life = a_life("c1").verdict("c1", "Ready", pod_set_updates=an_update(labels={"a": "b"}))
    life.around.flavors = {"default": FlavorParts({"pool": "other"})}
    assert life.confirmed().phase is Phase.ADMITTED
    life = a_life("c1")
    life.verdict("c1", "Ready", pod_set_updates=an_update(node_selector={"pool": "spot"}))
    life.around.flavors = {"default": FlavorParts({"pool": "other"})}
    assert life.confirmed().phase is Phase.REJECTED


def test_additions_without_conflicts_are_merged() -> None:
    life = a_life("c1", "c2")
    same = {"labels": {"zone": "a", "tier": "batch"}, "tolerations": (GPU,)}
    life.verdict("c1", "Ready", pod_set_updates=an_update(**same, annotations={"x": "1"}))
    life.verdict("c2", "Ready", pod_set_updates=an_update(**same, node_selector={"pool": "spot"}))
    added, conflicts = merged(life.stored, life.around.flavor)
    assert conflicts == ()
    assert added["main"].labels == {"zone": "a"}
    assert added["main"].annotations == {"x": "1"}
    assert added["main"].node_selector == {"pool": "spot"}
    assert added["main"].tolerations == ({"key": "spot", "operator": "Exists"}, GPU)
    assert life.confirmed().phase is Phase.ADMITTED


def test_additions_are_dropped_with_ready_and_with_the_quota() -> None:
    life = a_life("c1", "c2").verdict("c1", "Ready", pod_set_updates=an_update(labels={"a": "b"}))
    assert life.status.admission_checks[0].pod_set_updates
    life.verdict("c1", "Pending")
    assert life.status.admission_checks[0].pod_set_updates == ()
    life.verdict("c1", "Ready", pod_set_updates=an_update(labels={"a": "b"}))
    life.verdict("c2", "Retry", 60)
    assert life.states == {"c1": "Ready", "c2": "Retry"}
    assert life.status.admission_checks[0].pod_set_updates == ()


@pytest.mark.scenario("A21")
def test_a_conflict_that_only_the_runner_sees_fails_the_workload() -> None:
    life = a_life("c1").verdict("c1", "Ready").confirmed()
    at = life.status.admitted_revision
    why = {"succeeded": False, "reason": "FailedToStart", "message": "the label is taken"}
    life.happens(facts.Finished(**ME, revision=at, **why))
    assert life.phase is Phase.FINISHED
    assert life.conditions["Finished"] == ("True", "FailedToStart")
    assert life.conditions.get("Requeued") is None
