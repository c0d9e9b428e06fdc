"""A quota handover applies to every workload that it names, or to none of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from admittance.control.commit import Put
from admittance.events import facts
from admittance.events.shapes import HandedOn
from admittance.workload.conditions import Type, find, is_true
from admittance.workload.stored import StoredWorkload
from admittance.workload_controller.commit_writer import pack_groups, split_groups
from support.builders import a_manifest, an_admission
from unit.control.test_fold import CHECK, CHECKED, QUEUE, Bench, kinds

GIVER, OTHER, TAKER = "workload.ns.giver", "workload.ns.other", "workload.ns.taker"


class Stage(Bench):
    """Two workloads with only a reservation, because their check has not answered, and a third
    workload."""

    def __init__(self) -> None:
        super().__init__()
        self.apply(CHECK)
        self.apply(QUEUE | {"spec": QUEUE["spec"] | CHECKED})
        for name in ("giver", "other", "taker"):
            manifest = msgspec.Raw(msgspec.json.encode(a_manifest(name)))
            self.perform(self.logged(facts.Submitted(namespace="ns", name=name, workload=manifest)))
        for name in ("giver", "other"):
            self.perform(self.logged(self.decided(name)))

    def decided(self, name: str, *givers: str, **fields: Any) -> facts.Assigned:
        known = self.controller.workloads.get(f"workload.ns.{name}")
        assert known.workload is not None
        made: dict[str, Any] = {
            "namespace": "ns",
            "name": name,
            "uid": known.workload.metadata.uid,
            "revision": known.revision,
            "seen": self.revision,
            "domain": "queue-cq",
            "admission": an_admission(),
            "preempts": tuple(self.giver(giver) for giver in givers),
        }
        return facts.Assigned(**(made | fields))

    def giver(self, name: str) -> HandedOn:
        known = self.controller.workloads.get(f"workload.ns.{name}")
        uid = known.workload.metadata.uid if known.workload is not None else ""
        return HandedOn(
            namespace="ns",
            name=name,
            uid=uid,
            revision=known.revision,
            reason="InClusterQueue",
            message="for taker",
        )

    def stored(self, key: str) -> StoredWorkload:
        workload = self.controller.workloads.get(key).workload
        assert workload is not None
        return workload

    def say(self, fact: Any) -> None:
        self.perform(self.logged(fact))


def test_a_handover_is_one_group_with_the_givers_first() -> None:
    stage = Stage()
    commit = stage.fold(stage.logged(stage.decided("taker", "giver", "other")))
    assert [put.key for put in commit.puts] == [GIVER, OTHER, TAKER]
    assert len({put.group for put in commit.puts}) == 1
    assert commit.puts[0].group
    revisions = [stage.controller.workloads.get(put.key).revision for put in commit.puts]
    assert [put.expected for put in commit.puts] == revisions


def test_givers_are_evicted_and_requeued_and_the_receiver_is_reserved() -> None:
    stage = Stage()
    said = stage.perform(stage.logged(stage.decided("taker", "giver")))
    published = [
        (kind, message.subject.rsplit(".", 1)[1])
        for kind, message in zip(kinds(said), said, strict=True)
    ]
    assert ("evicted", "giver") in published and ("requeued", "giver") in published
    assert ("withdrawn", "giver") in published
    assert published.index(("evicted", "giver")) < published.index(("quota_reserved", "taker"))
    giver, taker = stage.stored(GIVER), stage.stored(TAKER)
    assert giver.status.admission is None
    preempted = find(giver, Type.PREEMPTED)
    assert preempted is not None and preempted.reason == "InClusterQueue"
    assert giver.status.preempted_by is not None
    assert giver.status.preempted_by.by == "ns/taker"
    assert is_true(taker, Type.QUOTA_RESERVED)


def _moved(stage: Stage) -> None:
    stage.say(facts.Reprioritized(namespace="ns", name="giver", priority=5))


def _deleted(stage: Stage) -> None:
    stage.say(facts.Deleted(namespace="ns", name="giver"))


def _admitted(stage: Stage) -> None:
    cycle = stage.stored(GIVER).status.admission_cycle
    stage.say(
        facts.CheckReported(
            namespace="ns", name="giver", controller="ctl", check="c", cycle=cycle, state="Ready"
        )
    )
    stage.say(stage.confirmed(GIVER))


@pytest.mark.parametrize(
    "happened",
    [
        pytest.param(_moved, id="one that gives has moved"),
        pytest.param(_deleted, id="one that gives is gone"),
        pytest.param(_admitted, id="one that gives was admitted"),
    ],
)
def test_a_void_handover_changes_only_the_receiver(happened: Callable[[Stage], None]) -> None:
    stage = Stage()
    decided = stage.decided("taker", "giver", "other")
    happened(stage)
    before = {key: stage.controller.workloads.get(key) for key in (OTHER, TAKER)}
    logged = stage.logged(decided)
    commit = stage.fold(logged)
    assert [(put.key, put.group) for put in commit.puts] == [(TAKER, 0)]
    assert commit.outcomes[logged.sequence].reason == "StaleGiver"
    stage.perform(logged)
    assert stage.controller.workloads.get(OTHER) == before[OTHER]
    assert stage.controller.workloads.get(TAKER).revision > before[TAKER].revision
    assert not is_true(stage.stored(TAKER), Type.QUOTA_RESERVED)


def test_an_admitted_workload_does_not_hand_over_quota() -> None:
    stage = Stage()
    _admitted(stage)
    stage.perform(stage.logged(stage.decided("taker", "giver")))
    assert stage.stored(GIVER).status.admission is not None
    assert not is_true(stage.stored(GIVER), Type.EVICTED)
    assert not is_true(stage.stored(TAKER), Type.QUOTA_RESERVED)


def test_a_giver_of_another_cohort_tree_voids_the_handover() -> None:
    stage = Stage()
    manifest = msgspec.Raw(msgspec.json.encode(a_manifest("away")))
    stage.perform(stage.logged(facts.Submitted(namespace="ns", name="away", workload=manifest)))
    stage.perform(stage.logged(stage.decided("away", admission=an_admission("elsewhere"))))
    logged = stage.logged(stage.decided("taker", "away"))
    assert stage.fold(logged).outcomes[logged.sequence].reason == "StaleGiver"


def test_a_giver_changed_earlier_in_the_batch_voids_the_handover() -> None:
    stage = Stage()
    quiet = stage.logged(facts.Reprioritized(namespace="ns", name="giver", priority=5))
    decided = stage.logged(stage.decided("taker", "giver"))
    commit = stage.fold(quiet, decided)
    assert commit.outcomes[decided.sequence].reason == "StaleGiver"
    assert {put.key for put in commit.puts} == {GIVER, TAKER}
    assert not any(put.group for put in commit.puts)


def test_unpublished_messages_of_a_giver_delay_the_handover() -> None:
    stage = Stage()
    loud = stage.logged(facts.Deactivated(namespace="ns", name="giver"))
    decided = stage.logged(stage.decided("taker", "giver"))
    commit = stage.fold(loud, decided)
    assert commit.rest == [decided]


def test_read_again_after_a_crash_it_changes_nothing() -> None:
    stage = Stage()
    logged = stage.logged(stage.decided("taker", "giver"))
    stage.perform(logged)
    assert stage.fold(logged).puts == []


def _put(key: str, group: int = 0) -> Put:
    return Put(key, 0, b"", 1, group=group)


def test_groups_share_a_batch_up_to_its_limit_and_are_never_torn() -> None:
    puts = [_put("a"), _put("b", 7), _put("c", 8), _put("d", 7), _put("e", 8), _put("f", 9)]
    alone, groups = split_groups(puts)
    assert [put.key for put in alone] == ["a"]
    assert [[put.key for put in group] for group in groups] == [["b", "d"], ["c", "e"], ["f"]]
    batches = [[put.key for group in batch for put in group] for batch in pack_groups(groups, 3)]
    assert batches == [["b", "d"], ["c", "e", "f"]]
