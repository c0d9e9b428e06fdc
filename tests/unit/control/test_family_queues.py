"""What a family becomes when its queue changes, and what people get wrong.
docs/spec/lifecycle.md#4.2, #4.9."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from admittance.events import facts
from admittance.events.base import Fact
from admittance.events.shapes import Refusal
from admittance.workload.family_info import allowed_flavors
from admittance.workload.limits import Limits
from admittance.workload.stored import head
from support.builders import a_manifest, an_admission
from support.cores.family_controller import UPGRADE, FamilyController
from support.cores.family_cores import cores_with_families

J: dict[str, Any] = {"namespace": "ns", "name": "j"}
A, B, C = (f"j-variant-{tag}" for tag in "abc")
FLAVORS = ("a", "b", "c")


def explicit(*variants: dict[str, Any]) -> dict[str, Any]:
    return {
        "migrationConstraints": {"mode": "UpgradeOnly"},
        "explicitVariants": [
            {"name": name, "allowedResourceFlavors": list(flavors), **more}
            for one in variants
            for name, flavors, more in [(one.pop("name"), one.pop("flavors"), one)]
        ],
    }


# Policy comes and goes. -----------------------------------------------------------------


def test_a_waiting_workload_becomes_a_parent_when_a_policy_is_added() -> None:
    house = FamilyController(policy=None, checks={"a": ("slow",)}).submit()
    house.offer(FLAVORS, {}, UPGRADE, admissionChecks=["slow"])
    assert head(house.get()).role == "parent"
    assert house.get().status.admission_checks == ()
    assert house.get().metadata.annotations["kueue.x-k8s.io/parent-variant"] == "true"


def test_an_admitted_workload_stays_regular_until_it_is_requeued() -> None:
    house = FamilyController(policy=None).submit()
    house.happens(facts.Assigned(**house.decided("j"), admission=an_admission(flavor="a")))
    house.offer(FLAVORS)
    assert head(house.get()).role == "regular"
    house.happens(facts.Preempted(**house.decided("j"), reason="InClusterQueue"))
    house.stop()
    assert head(house.get()).role == "parent"
    house.happens(*house.variant_facts())
    assert house.active() == "abc"


def test_a_parent_without_admission_becomes_regular_without_a_policy() -> None:
    house = FamilyController(checks={"a": ("slow",)}).family().assign("a")
    house.offer(FLAVORS, {}, None, admissionChecks=["slow"])
    assert head(house.get()).role == "regular"
    assert house.variants() == []
    assert [row.name for row in house.get().status.admission_checks] == ["slow"]
    assert house.condition("QuotaReserved") == "False: PendingEvaluation"
    assert ("withdrawn", A) in house.published
    assert "kueue.x-k8s.io/parent-variant" not in house.get().metadata.annotations


def test_an_admitted_family_keeps_what_runs_when_policy_goes() -> None:
    house = FamilyController().family().assign("b")
    house.offer(FLAVORS, None, None)
    assert head(house.get()).role == "parent"
    assert house.condition("Admitted") == "True: Admitted"
    house.preempt("b").stop()
    assert head(house.get()).role == "regular"
    assert house.variants() == []


def test_with_the_gate_off_everything_is_regular() -> None:
    house = FamilyController(limits=Limits(families=False)).submit()
    assert head(house.get()).role == "regular"


def test_a_workload_with_partial_admission_is_regular_with_a_note() -> None:
    manifest = a_manifest("j", count=4)
    manifest["spec"]["podSets"][0]["minCount"] = 2
    workload = msgspec.Raw(msgspec.json.encode(manifest))
    house = FamilyController().happens(facts.Submitted(**J, workload=workload))
    assert head(house.get()).role == "regular"
    assert ("noted", "j") in house.published
    house.offer(FLAVORS, None, UPGRADE)
    assert head(house.get()).role == "regular"


# Flavors come, go and change places. ------------------------------------------------------


def test_a_new_flavor_order_changes_places_without_evictions() -> None:
    house = FamilyController().family().assign("b")
    house.offer(("c", "b", "a"))
    places = {head(one).variant: head(one).sibling_index for one in house.variants()}
    assert places == {"c": 0, "b": 1, "a": 2}
    assert house.condition("Admitted") == "True: Admitted"
    assert house.active() == "cb"


@pytest.mark.parametrize(
    ("flavors", "admitted", "evicted"),
    [
        pytest.param(["a", "b"], True, False, id="admitted, and may have its flavor still"),
        pytest.param(["b"], True, True, id="admitted on a flavor that it may no longer have"),
        pytest.param(["b"], False, True, id="reserved on such a one"),
    ],
)
def test_flavors_of_an_explicit_variant(
    flavors: list[str], *, admitted: bool, evicted: bool
) -> None:
    checks = {} if admitted else {"a": ("slow",)}
    first = explicit({"name": "x", "flavors": ["a", "c"]}, {"name": "y", "flavors": ["b"]})
    house = FamilyController(FLAVORS, checks, first).family()
    house.happens(
        facts.Assigned(**house.decided("j-variant-x"), admission=an_admission(flavor="a"))
    )
    now = explicit({"name": "x", "flavors": flavors}, {"name": "y", "flavors": ["b"]})
    house.offer(FLAVORS, checks, now)
    assert allowed_flavors(house.get("j-variant-x")) == set(flavors)
    if not admitted:
        assert house.get("j-variant-x").status.admission is None
    elif evicted:
        assert house.condition("Evicted") == "True: VariantEvicted"
        house.stop()
        assert house.condition("Requeued", "j-variant-x").startswith("True")
    else:
        assert house.condition("Evicted") == ""


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


# What a parent tells. ---------------------------------------------------------------------


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
    told = next(c.message for c in house.get().status.conditions if c.type == "QuotaReserved")
    assert told == "a: reserved, waits for slow; b: 4 cpu short in b; c: PendingEvaluation"
    house.assign("c")
    assert [row.why for row in house.get().status.variants] == ["upgrade", "upgrade", "admitted"]


def test_a_family_with_quota_everywhere_waits_for_its_checks() -> None:
    slow = ("slow",)
    house = FamilyController(checks={"a": slow, "b": slow, "c": slow}).family()
    for tag in "abc":
        house.assign(tag)
    house.happens(facts.Aggregated(**J))
    assert house.condition("QuotaReserved") == "False: UnsatisfiedAdmissionChecks"


def test_an_aggregation_without_changes_writes_nothing() -> None:
    house = FamilyController().family().happens(facts.Aggregated(**J))
    before = house.revision
    house.happens(facts.Aggregated(**J))
    assert (house.revision, house.outcome, house.reason) == (before, "ignored", "Unchanged")


# Time. --------------------------------------------------------------------------------------


def test_a_variant_with_a_delay_waits_until_it_is_over() -> None:
    policy = explicit(
        {"name": "x", "flavors": ["a"]},
        {"name": "y", "flavors": ["b"], "createDelaySeconds": 7200},
    )
    house = FamilyController(("a", "b"), policy=policy).family().happens(facts.Aggregated(**J))
    assert house.active() == "x"
    assert house.get().status.next_change_at is not None
    house.due("family")
    assert house.active() == "xy"
    assert house.get().status.next_change_at is None
    house.happens(
        facts.Assigned(**house.decided("j-variant-y"), admission=an_admission(flavor="b"))
    )
    house.later(100)
    house.happens(facts.Preempted(**house.decided("j-variant-y"), reason="InClusterQueue")).stop()
    assert house.active() == "x"
    started = house.get().status.family_start
    assert started == house.now
    again = house.get().status.next_change_at
    assert again is not None and (again - started).total_seconds() == 7200


def test_a_better_variant_has_its_time_to_take_over() -> None:
    policy = explicit(
        {"name": "x", "flavors": ["a"], "deleteDelaySeconds": 600},
        {"name": "y", "flavors": ["b"]},
    )
    house = FamilyController(("a", "b"), {"a": ("slow",)}, policy).family()
    house.happens(
        facts.Assigned(**house.decided("j-variant-y"), admission=an_admission(flavor="b"))
    )
    house.happens(
        facts.Assigned(**house.decided("j-variant-x"), admission=an_admission(flavor="a"))
    )
    assert house.get("j-variant-x").status.admission is not None
    house.due("family")
    assert house.active() == "y"
    assert house.get("j-variant-x").status.admission is None
    assert house.condition("Admitted") == "True: Admitted"


# Gates. -------------------------------------------------------------------------------------


def test_one_gate_is_opened_and_its_eviction_closes_it() -> None:
    house = FamilyController(checks={"a": ("slow",)}).family()
    house.later(3).happens(facts.Ungated(namespace="ns", name=A))
    gate = house.get().status.preemption_gate
    assert gate is not None and (gate.holder, gate.since) == (A, house.now)
    assert [one.position for one in house.get(A).status.preemption_gates] == ["Open"]
    house.assign("a").preempt("a")
    assert [one.position for one in house.get(A).status.preemption_gates] == ["Closed"]


# What people do. ----------------------------------------------------------------------------


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


def test_a_priority_is_that_of_the_whole_family() -> None:
    house = FamilyController().family().happens(facts.Reprioritized(**J, priority=7))
    assert [head(one).priority for one in house.variants()] == [7, 7, 7]


def of_a_family(**spec: Any) -> dict[str, Any]:
    manifest = a_manifest(B, **({"role": "variant", "variant": "b"} | spec))
    manifest["metadata"]["ownerReferences"] = [{"kind": "Workload", "name": "j", "uid": "?"}]
    return manifest


@pytest.mark.parametrize(
    ("name", "change", "taken"),
    [
        pytest.param(B, {}, True, id="with a spec of its own: it gets its parent's"),
        pytest.param("other", {}, False, id="under another name"),
        pytest.param(B, {"variant": "z"}, False, id="of a variant that the queue does not have"),
        pytest.param(B, {"uid": "else"}, False, id="of a parent that is not there"),
    ],
)
def test_a_variant_submitted_by_hand(name: str, change: dict[str, Any], *, taken: bool) -> None:
    house = FamilyController().submit(requests={"cpu": "3"})
    uid = change.pop("uid", house.get().metadata.uid)
    manifest = of_a_family(requests={"cpu": "900"}, **change)
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


def test_a_variant_name_in_use_stays_with_its_workload() -> None:
    house = FamilyController(policy=None).submit(B)
    house.offer(FLAVORS)
    house.family()
    assert head(house.get(B)).role == "parent"
    assert [head(one).variant for one in house.variants()] == ["a", "c"]


def test_a_parent_created_and_deleted_in_one_batch_leaves_nothing() -> None:
    house = FamilyController().submit()
    house.happens(*house.variant_facts(), facts.Deleted(**J))
    assert house.workloads() == []
    house.happens(*[])
    assert not house.is_there(A)


def test_a_gated_family_is_not_tried_until_it_is_released() -> None:
    manifest = a_manifest("j")
    manifest["metadata"]["annotations"] = {"kueue.x-k8s.io/admission-gated-by": "example.com/me"}
    workload = msgspec.Raw(msgspec.json.encode(manifest))
    house = FamilyController().happens(facts.Submitted(**J, workload=workload))
    house.happens(*house.variant_facts())
    assert (len(house.variants()), house.active()) == (3, "")
    house.happens(facts.Released(**J))
    assert house.active() == "abc"
    house.assign("b")
    assert house.starts == [("j", "b")]


def test_a_repeated_aggregation_does_not_write_the_parent() -> None:
    house = FamilyController().family().happens(facts.Aggregated(**J))
    before = house.revision_of("j")
    house.happens(facts.Aggregated(**J))
    assert (house.outcome, house.revision_of("j")) == ("ignored", before)
    house.assign("b").preempt("b").happens(facts.Aggregated(**J))
    rows = {row.variant: row for row in house.get().status.variants}
    assert [one.status for one in rows["b"].conditions if one.type == "Evicted"] == ["True"]


def test_a_second_submission_under_a_parents_name_is_answered() -> None:
    cores = cores_with_families({"a": 4, "b": 4})
    cores.job()
    for uid, told in (("other", "Rejected"), ("", "Noted")):
        manifest = a_manifest("j", "ns", requests={"gpu": "1"}, count=4, queue="cq")
        raw = msgspec.Raw(msgspec.json.encode(manifest))
        cores.publish(facts.Submitted, "j", uid=uid, workload=raw)
        assert (type(cores.published[-1]).__name__, cores.published[-1].uid) == (told, uid)
