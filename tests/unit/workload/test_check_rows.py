"""Rows of checks follow the lists of the queue. docs/spec/lifecycle.md#2.3."""

from __future__ import annotations

import pytest

from admittance.workload.phase import Phase
from admittance.workload.stored import encode
from support.builders import Around

from lives import Life


def row(life: Life, name: str) -> bytes:
    return next(encode(one) for one in life.status.admission_checks if one.name == name)  # type: ignore[arg-type]


@pytest.mark.scenario("A17")
def test_an_edit_during_the_wait_changes_no_other_row() -> None:
    life = Life(Around(["c1", "c2"])).assigned().verdict("c1", "Ready")
    life.verdict("c2", "Retry", 60, message="full").later(10)
    before = row(life, "c2")
    life.lists("c2", "c3")
    assert life.states == {"c2": "Retry", "c3": "Pending"}
    assert (row(life, "c2"), life.phase, life.wait) == (before, Phase.BACKOFF, 50)
    life.lists("c3")
    assert (life.phase, life.states) == (Phase.PENDING, {"c3": "Pending"})
    assert life.said == ["requeued"]


@pytest.mark.scenario("A17")
def test_an_edit_while_the_job_stops_takes_effect_after_the_stop() -> None:
    life = Life(Around(["c1", "c2"])).admitted().verdict("c2", "Retry", 60)
    assert life.lists("c1").phase is Phase.EVICTING
    life.stopped()
    assert (life.phase, life.states, life.wait) == (Phase.PENDING, {"c1": "Pending"}, None)


def test_a_reserved_workload_withdraws_removed_and_requests_new_checks() -> None:
    life = Life(Around(["c1", "c2"])).assigned().verdict("c1", "Ready")
    before = row(life, "c1")
    life.lists("c1", "c3")
    assert life.states == {"c1": "Ready", "c3": "Pending"}
    assert row(life, "c1") == before
    assert [(say.what, say.detail) for say in life.says] == [
        ("check_withdrawn", "c2"),
        ("check_requested", "c3"),
    ]


def test_a_reservation_without_its_last_check_can_be_admitted() -> None:
    life = Life(Around(["c1"])).assigned().lists()
    assert life.states == {}
    assert life.confirmed().phase is Phase.ADMITTED


@pytest.mark.scenario("A18")
def test_a_running_job_survives_added_and_removed_checks() -> None:
    life = Life(Around(["c1"])).admitted().lists("c1", "c2")
    assert (life.phase, life.states) == (Phase.ADMITTED, {"c1": "Ready", "c2": "Pending"})
    assert [(say.what, say.detail) for say in life.says] == [("check_requested", "c2")]
    assert life.lists().phase is Phase.ADMITTED
    assert life.said == ["check_withdrawn", "check_withdrawn"]


def test_an_edit_that_changes_nothing_writes_nothing() -> None:
    life = Life(Around(["c1"])).assigned().verdict("c1", "Retry", 60)
    before = life.workload
    assert life.queue_changed().workload is before


@pytest.mark.scenario("B5", "B7")
@pytest.mark.parametrize("left", ["Pending", "Ready"])
def test_rows_of_an_unassigned_flavor_are_removed(left: str) -> None:
    around = Around()
    around.per_flavor = {"spot": ("s",), "other": ("t",), "plain": ()}
    life = Life(around)
    assert life.states == {}
    life.assigned("spot").verdict("s", left)
    life.preempted()
    assert life.states == {}
    assert life.assigned("other").states == {"t": "Pending"}
    life.preempted()
    assert life.assigned("plain").phase is Phase.ADMITTED


@pytest.mark.scenario("B5")
def test_a_flavors_retry_count_survives_its_row() -> None:
    around = Around()
    around.per_flavor = {"spot": ("s",), "plain": ("t",)}
    life = Life(around).assigned("spot").verdict("s", "Retry").assigned("plain")
    assert life.status.check_retry_counts == {"s": 1}
    assert life.preempted().assigned("spot").counts == {"s": 1}
    assert life.verdict("s", "Ready").counts == {"s": 0}


def test_a_check_that_no_list_names_loses_its_count() -> None:
    around = Around()
    around.per_flavor = {"spot": ("s",), "plain": ()}
    life = Life(around).assigned("spot").verdict("s", "Retry").lists(per_flavor={"spot": ()})
    assert life.status.check_retry_counts == {}


@pytest.mark.scenario("L21")
def test_a_wait_counts_checks_in_retry_and_resets_ready_ones() -> None:
    life = Life(Around(["c1", "c2", "c3"])).assigned()
    life.verdict("c1", "Retry", 300).verdict("c2", "Retry", 60)
    assert life.wait == 300
    life.later(300).due()
    assert life.counts == {"c1": 1, "c2": 1, "c3": 0}
    life.assigned().verdict("c1", "Ready").verdict("c2", "Ready").verdict("c3", "Retry", 600)
    assert life.wait == 600
    life.later(600).due()
    assert life.counts == {"c1": 0, "c2": 0, "c3": 1}
