"""Facts about several of one family in one batch: what is written together, and what waits."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from admittance.control import fold as folding
from admittance.control.batch import fold
from admittance.events import facts
from admittance.events.shapes import Refusal
from support.cores.families.family_controller import FamilyController, key_of_workload

J: dict[str, Any] = {"namespace": "ns", "name": "j"}
A, B, C = (f"j-variant-{tag}" for tag in "abc")


def test_changes_of_one_family_member_are_written_alone() -> None:
    house = FamilyController().family()
    refused = [
        facts.Refused(**house.decided(name), refusal=Refusal(reason="r", message="m"))
        for name in (A, B)
    ]
    commit = fold(house.controller, [house.logged_fact(refusal) for refusal in refused], house.now)
    assert [(put.key, put.group) for put in commit.puts] == [
        (key_of_workload(A), 0),
        (key_of_workload(B), 0),
    ]


def test_facts_of_one_family_in_one_batch_are_written_as_one_group() -> None:
    house = FamilyController().family()
    batch = [
        house.logged_fact(facts.Reprioritized(**J, priority=3)),
        house.logged_fact(facts.Deactivated(namespace="ns", name=B)),
        house.logged_fact(facts.Ungated(namespace="ns", name=A)),
    ]
    commit = fold(house.controller, batch, house.now)
    assert commit.rest == []
    assert len({put.group for put in commit.puts}) == 1
    assert commit.puts[0].group
    assert commit.puts[-1].key == key_of_workload("j")


def test_a_parent_that_changed_before_is_written_after_its_variant() -> None:
    house = FamilyController().family()
    batch = [facts.Aggregated(**J), facts.Ungated(namespace="ns", name=A)]
    commit = fold(house.controller, [house.logged_fact(fact) for fact in batch], house.now)
    assert [put.key for put in commit.puts] == [key_of_workload(A), key_of_workload("j")]
    assert commit.puts[0].group == commit.puts[1].group > 0, "they are written together"


def test_a_workload_with_an_unpublished_start_is_not_moved_in_that_batch() -> None:
    house = FamilyController().family()
    started = house.logged_fact(house.assigned("c"))
    gone = house.logged_fact(facts.Deleted(namespace="ns", name=C))
    commit = fold(house.controller, [started, gone], house.now)
    assert commit.rest == [gone]


def test_an_atomic_batch_never_exceeds_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding, "GROUPED_MAX", 3)
    house = FamilyController().family()
    several = [facts.Reprioritized(**J, priority=1), facts.Reprioritized(**J, priority=2)]
    batch = [house.logged_fact(fact) for fact in several]
    assert fold(house.controller, batch, house.now).rest == batch[1:]
    house.take(batch)
    house.happens(facts.Aggregated(**J))


def test_variants_may_come_in_any_order_and_more_than_once() -> None:
    house = FamilyController().submit()
    several = house.variant_facts() * 2
    Random(7).shuffle(several)
    house.happens(*several)
    assert [variant.metadata.name for variant in house.variants()] == [A, B, C]


def test_a_finished_family_leaves_memory() -> None:
    house = FamilyController().family().assign("b")
    workloads = house.controller.workloads
    assert sorted(workloads.family_names("ns", B)) == ["j", A, B, C]
    house.happens(facts.Finished(**J))
    assert house.workloads() == []
    assert workloads.must_load(key_of_workload(B))
    assert workloads.family_names("ns", B) == []
    house.happens(*[facts.Ungated(namespace="ns", name=B), facts.Aggregated(**J)])
    assert house.workloads() == []
