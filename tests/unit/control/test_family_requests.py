"""The status of a parent about its variants, and requests about a member.
docs/spec/lifecycle.md#4.2, #4.9."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from admittance.events import facts
from admittance.events.base import Fact
from admittance.events.shapes import PendingPreemption, PlannedVictim, Refusal
from admittance.family import PREEMPTION_TIMEOUT
from admittance.workload.family_info import gate_of
from admittance.workload.stored import head
from support.builders import a_manifest
from support.cores.families.family_controller import FamilyController
from support.cores.families.family_cores import cores_with_families

J: dict[str, Any] = {"namespace": "ns", "name": "j"}
A, B, C = (f"j-variant-{tag}" for tag in "abc")
VICTIM = PlannedVictim(namespace="ns", name="v", uid="v", reason="InClusterQueue")


@pytest.mark.scenario("D32")
def test_a_parent_without_any_flavor_left_reports_that() -> None:
    allowed: dict[str, Any] = {"admissionConstraints": {"allowedResourceFlavors": ["z"]}}
    house = FamilyController().submit(**allowed)
    assert house.condition("QuotaReserved") == "False: NoMatchingFlavor"
    house.offer(("a", "z"))
    house.happens(*house.variant_facts(), facts.Aggregated(**J))
    assert house.active() == "z"
    assert house.condition("QuotaReserved") == "False: PendingEvaluation"
    assert [row.variant for row in house.get().status.variants] == ["z"]


def test_a_parent_lists_its_variants_and_why_it_waits() -> None:
    house = FamilyController(checks={"a": ("slow",)}).family().happens(facts.Aggregated(**J))
    rows = house.get().status.variants
    assert [(row.name, row.variant, row.active, row.why) for row in rows] == [
        (A, "a", True, "race"),
        (B, "b", True, "race"),
        (C, "c", True, "race"),
    ]
    house.assign("a")
    refusal = Refusal(reason="WaitingForQuota", message="4 cpu short in b")
    house.happens(facts.Refused(**house.decided(B), refusal=refusal), facts.Aggregated(**J))
    assert house.condition("QuotaReserved") == "False: WaitingForQuota"
    reason = next(c.message for c in house.get().status.conditions if c.type == "QuotaReserved")
    assert reason == "a: reserved, waits for slow; b: 4 cpu short in b; c: PendingEvaluation"
    house.assign("c")
    assert [row.why for row in house.get().status.variants] == ["upgrade", "upgrade", "admitted"]


def test_a_finished_parent_keeps_the_rows_of_variants_that_are_deleted_with_it() -> None:
    controller = FamilyController(flavors=("a",)).family().assign("a")
    controller.happens(facts.Deleted(namespace="ns", name=A))
    commit = controller.fold_once([controller.logged_fact(facts.Finished(**J))])
    written = {put.key: put.workload for put in commit.puts}
    parent = written["workload.ns.j"]
    assert parent is not None and written[f"workload.ns.{A}"] is None
    assert [row.name for row in parent.status.variants] == [A]


def test_a_priority_is_that_of_the_whole_family() -> None:
    house = FamilyController().family().happens(facts.Reprioritized(**J, priority=7))
    assert [head(variant).priority for variant in house.variants()] == [7, 7, 7]


def of_a_family(**spec: Any) -> dict[str, Any]:
    manifest = a_manifest(B, **({"role": "variant", "variant": "b"} | spec))
    manifest["metadata"]["ownerReferences"] = [{"kind": "Workload", "name": "j", "uid": "?"}]
    return manifest


@pytest.mark.parametrize(
    ("name", "change", "taken"),
    [
        pytest.param(B, {}, True, id="with its own spec: it gets its parent's"),
        pytest.param("other", {}, False, id="under another name"),
        pytest.param(B, {"variant": "z"}, False, id="of a variant that the queue does not have"),
        pytest.param(B, {"uid": "else"}, False, id="of a parent that is not there"),
    ],
)
def test_a_variant_submitted_by_hand(name: str, change: dict[str, Any], *, taken: bool) -> None:
    house = FamilyController().submit(requests={"cpu": "3"})
    uid = change.get("uid", house.get().metadata.uid)
    spec = {field: value for field, value in change.items() if field != "uid"}
    manifest = of_a_family(requests={"cpu": "900"}, **spec)
    manifest["metadata"] |= {"name": name, "annotations": {"a": "b"}}
    manifest["metadata"]["ownerReferences"][0]["uid"] = uid
    workload = msgspec.Raw(msgspec.json.encode(manifest))
    house.happens(facts.Submitted(namespace="ns", name=name, workload=workload))
    assert house.is_there(name) == taken
    if taken:
        assert b'"cpu":"3"' in bytes(house.get(B).spec)
        assert house.get(B).metadata.annotations == {}
    else:
        assert (house.outcome, ("rejected", name) in house.published) == ("refused", True)


@pytest.mark.parametrize(
    ("change", "deleted", "outcome"),
    [
        pytest.param({}, False, "ignored", id="the same variant"),
        pytest.param({"variant": "c"}, False, "refused", id="another variant of that name"),
        pytest.param({}, True, "refused", id="the same variant, which is being deleted"),
    ],
)
def test_a_variant_that_exists_is_submitted_again(
    change: dict[str, Any], deleted: bool, outcome: str
) -> None:
    house = FamilyController().family().assign("b")
    if deleted:
        house.happens(facts.Deleted(namespace="ns", name=B))
        assert house.get(B).metadata.deletion_timestamp is not None
    manifest = of_a_family(**change)
    manifest["metadata"]["ownerReferences"][0]["uid"] = house.get().metadata.uid
    workload = msgspec.Raw(msgspec.json.encode(manifest))
    house.happens(facts.Submitted(namespace="ns", name=B, workload=workload))
    assert house.outcome == outcome


def test_a_parent_created_and_deleted_in_one_batch_leaves_nothing() -> None:
    house = FamilyController().submit()
    house.happens(*house.variant_facts(), facts.Deleted(**J))
    assert house.workloads() == []


def test_a_repeated_aggregation_does_not_write_the_parent() -> None:
    house = FamilyController().family().happens(facts.Aggregated(**J))
    before = house.revision_of("j")
    house.happens(facts.Aggregated(**J))
    assert (house.outcome, house.revision_of("j")) == ("ignored", before)
    house.assign("b").preempt("b").happens(facts.Aggregated(**J))
    rows = {row.variant: row for row in house.get().status.variants}
    assert [
        condition.status for condition in rows["b"].conditions if condition.type == "Evicted"
    ] == ["True"]


def test_a_second_submission_under_a_parents_name_is_answered() -> None:
    cores = cores_with_families({"a": 4, "b": 4})
    cores.job()
    for uid, outcome in (("other", "Rejected"), ("", "Noted")):
        manifest = a_manifest("j", "ns", requests={"gpu": "1"}, count=4, queue="cq")
        raw = msgspec.Raw(msgspec.json.encode(manifest))
        cores.publish(facts.Submitted, "j", uid=uid, workload=raw)
        assert (type(cores.published[-1]).__name__, cores.published[-1].uid) == (outcome, uid)


@pytest.mark.parametrize(
    ("victims", "opened"),
    [
        pytest.param((VICTIM,), A, id="others were evicted for its reservation"),
        pytest.param((), B, id="its reservation has no victims"),
    ],
)
def test_the_next_gate_opens_unless_victims_left_for_the_holder(
    victims: tuple[PlannedVictim, ...], opened: str
) -> None:
    house = FamilyController(checks={"a": ("slow",)}).family()
    house.happens(facts.Ungated(namespace="ns", name=A))
    pending = PendingPreemption(victims=victims, issued=True) if victims else None
    house.assign("a", pending_preemption=pending).later(PREEMPTION_TIMEOUT.total_seconds())
    house.happens(facts.Ungated(namespace="ns", name=B))
    assert [name for name in (A, B) if gate_of(house.get(name)).position == "Open"] == [opened]


@pytest.mark.parametrize(
    "fact",
    [
        pytest.param(facts.Held(namespace="ns", name=B), id="hold"),
        pytest.param(facts.Finished(namespace="ns", name=B), id="finish"),
        pytest.param(facts.Reprioritized(namespace="ns", name=B, priority=9), id="priority"),
    ],
)
def test_requests_to_a_variant_that_concern_its_parent(fact: Fact) -> None:
    house = FamilyController().family()
    before = house.get(B)
    house.happens(fact)
    assert (house.outcome, house.get(B)) == ("refused", before)


def test_an_admitted_family_keeps_what_runs_when_policy_goes() -> None:
    house = FamilyController().family().assign("b")
    house.offer(("a", "b", "c"), None, None)
    assert head(house.get()).role == "parent"
    assert house.condition("Admitted") == "True: Admitted"
    house.preempt("b").stop()
    assert head(house.get()).role == "regular"
    assert house.variants() == []


def test_a_held_family_without_a_policy_stays_held() -> None:
    house = FamilyController().family().happens(facts.Held(**J))
    house.offer(("a", "b", "c"), None, None)
    assert head(house.get()).role == "regular"
    assert house.condition("QuotaReserved") == "False: OnHold"
