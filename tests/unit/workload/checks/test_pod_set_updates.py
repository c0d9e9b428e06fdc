"""Additions of checks to pods, and their conflicts. docs/spec/lifecycle.md#2.6."""

from __future__ import annotations

from typing import Any

import pytest

from admittance.api.meta import Toleration
from admittance.events import facts
from admittance.events.shapes import PodSetUpdate
from admittance.workload.checks.pod_set_updates import merged_additions
from admittance.workload.phase import Phase
from admittance.workload.transition_context import FlavorParts
from support.builders import Around
from support.cores.tracked_workload import ME, TrackedWorkload

GPU = {"key": "gpu", "operator": "Exists"}
SPOT = Toleration(key="spot", operator="Exists")


def an_update(**parts: Any) -> tuple[PodSetUpdate, ...]:
    return (PodSetUpdate(name="main", **parts),)


def a_tracked_workload(*checks: str) -> TrackedWorkload:
    """A workload with a reservation on a flavor that has a label and a toleration of its own."""
    around = Around(checks)
    around.flavors = {"default": FlavorParts({"pool": "spot"}, (SPOT,))}
    return TrackedWorkload(around, labels={"tier": "batch"}).assigned()


@pytest.mark.scenario("A21")
@pytest.mark.parametrize("kind", ["labels", "annotations", "node_selector"])
def test_two_values_of_a_key_reject_by_the_last_check(kind: str) -> None:
    tracked = a_tracked_workload("c1", "c2", "c3")
    tracked.verdict("c3", "Ready")
    tracked.verdict("c2", "Ready", pod_set_updates=an_update(**{kind: {"zone": "east"}}))
    assert tracked.phase is Phase.QUOTA_RESERVED
    tracked.verdict("c1", "Ready", pod_set_updates=an_update(**{kind: {"zone": "west"}}))
    assert tracked.phase is Phase.REJECTED
    said = tracked.message("Evicted")
    assert said.startswith('Deactivated due to AdmissionCheck in Rejected state: "c2"')
    for part in ("'zone'", "'west' by check 'c1'", "'east' by check 'c2'"):
        assert part in said
    assert "ConflictingChecks" in tracked.noted()


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
    tracked = a_tracked_workload("c1", "c2").verdict(
        "c1", "Ready", pod_set_updates=an_update(**parts)
    )
    assert tracked.phase is Phase.QUOTA_RESERVED
    tracked.verdict("c2", "Ready")
    assert tracked.phase is Phase.REJECTED
    assert 'state: "c1"' in tracked.message("Evicted")
    assert f"by {source}" in tracked.message("Evicted")


def test_a_conflict_is_found_when_a_check_is_removed() -> None:
    tracked = a_tracked_workload("c1", "c2", "c3")
    for name, zone in (("c1", "a"), ("c2", "b")):
        tracked.verdict(name, "Ready", pod_set_updates=an_update(labels={"zone": zone}))
    assert tracked.phase is Phase.QUOTA_RESERVED
    assert tracked.lists("c1", "c2").phase is Phase.REJECTED


def test_new_labels_of_a_flavor_are_compared_before_admission() -> None:
    tracked = a_tracked_workload("c1").verdict(
        "c1", "Ready", pod_set_updates=an_update(labels={"a": "b"})
    )
    tracked.around.flavors = {"default": FlavorParts({"pool": "other"})}
    assert tracked.confirmed().phase is Phase.ADMITTED
    tracked = a_tracked_workload("c1")
    tracked.verdict("c1", "Ready", pod_set_updates=an_update(node_selector={"pool": "spot"}))
    tracked.around.flavors = {"default": FlavorParts({"pool": "other"})}
    assert tracked.confirmed().phase is Phase.REJECTED


def test_additions_without_conflicts_are_merged() -> None:
    tracked = a_tracked_workload("c1", "c2")
    same = {"labels": {"zone": "a", "tier": "batch"}, "tolerations": (GPU,)}
    tracked.verdict("c1", "Ready", pod_set_updates=an_update(**same, annotations={"x": "1"}))
    tracked.verdict(
        "c2", "Ready", pod_set_updates=an_update(**same, node_selector={"pool": "spot"})
    )
    added, conflicts = merged_additions(tracked.stored, tracked.around.flavor)
    assert conflicts == ()
    assert added["main"].labels == {"zone": "a"}
    assert added["main"].annotations == {"x": "1"}
    assert added["main"].node_selector == {"pool": "spot"}
    assert added["main"].tolerations == ({"key": "spot", "operator": "Exists"}, GPU)
    assert tracked.confirmed().phase is Phase.ADMITTED


def test_additions_are_dropped_with_ready_and_with_the_quota() -> None:
    tracked = a_tracked_workload("c1", "c2").verdict(
        "c1", "Ready", pod_set_updates=an_update(labels={"a": "b"})
    )
    assert tracked.status.admission_checks[0].pod_set_updates
    tracked.verdict("c1", "Pending")
    assert tracked.status.admission_checks[0].pod_set_updates == ()
    tracked.verdict("c1", "Ready", pod_set_updates=an_update(labels={"a": "b"}))
    tracked.verdict("c2", "Retry", 60)
    assert tracked.states == {"c1": "Ready", "c2": "Retry"}
    assert tracked.status.admission_checks[0].pod_set_updates == ()


@pytest.mark.scenario("A21")
def test_a_conflict_that_only_the_runner_sees_fails_the_workload() -> None:
    tracked = a_tracked_workload("c1").verdict("c1", "Ready").confirmed()
    at = tracked.status.admitted_revision
    why: dict[str, Any] = {
        "succeeded": False,
        "reason": "FailedToStart",
        "message": "the label is taken",
    }
    tracked.happens(facts.Finished(**ME, revision=at, **why))
    assert tracked.phase is Phase.FINISHED
    assert tracked.conditions["Finished"] == ("True", "FailedToStart")
    assert tracked.conditions.get("Requeued") is None
