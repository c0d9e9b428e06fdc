"""Rows of checks follow the lists of the queue. docs/spec/lifecycle.md#2.3."""

from __future__ import annotations

import pytest

from admittance.workload.phase import Phase
from admittance.workload.stored import encode
from support.builders import Around
from support.cores.tracked_workload import TrackedWorkload


def row(tracked: TrackedWorkload, name: str) -> bytes:
    return next(encode(check) for check in tracked.status.admission_checks if check.name == name)


@pytest.mark.scenario("A17")
def test_an_edit_during_the_wait_keeps_the_other_rows() -> None:
    tracked = TrackedWorkload(Around(["c1", "c2"])).assigned().verdict("c1", "Ready")
    tracked.verdict("c2", "Retry", 60, message="full").later(10)
    before = row(tracked, "c2")
    tracked.lists("c2", "c3")
    assert tracked.states == {"c2": "Retry", "c3": "Pending"}
    assert (row(tracked, "c2"), tracked.phase, tracked.wait) == (before, Phase.BACKOFF, 50)
    tracked.lists("c3")
    assert (tracked.phase, tracked.states) == (Phase.PENDING, {"c3": "Pending"})
    assert tracked.outbox_kinds == ["requeued"]


@pytest.mark.scenario("A17")
def test_an_edit_while_the_job_stops_takes_effect_after_the_stop() -> None:
    tracked = TrackedWorkload(Around(["c1", "c2"])).admitted().verdict("c2", "Retry", 60)
    assert tracked.lists("c1").phase is Phase.EVICTING
    tracked.stopped()
    assert (tracked.phase, tracked.states, tracked.wait) == (Phase.PENDING, {"c1": "Pending"}, None)


def test_a_preempted_job_loses_the_row_of_a_check_that_moved_to_a_flavor() -> None:
    tracked = TrackedWorkload(Around(["c1", "c2"])).admitted().preempted()
    assert tracked.states == {"c1": "Pending", "c2": "Pending"}
    tracked.lists("c1", per_flavor={"spot": ("c2",)}).stopped()
    assert (tracked.phase, tracked.states) == (Phase.PENDING, {"c1": "Pending"})


def test_an_evicted_workload_has_no_retries_of_a_check_that_is_new() -> None:
    """The eviction is read before the message about the changed queue."""
    tracked = TrackedWorkload(Around(["c1"])).admitted()
    tracked.around.checks = ("c1", "c2")
    assert tracked.preempted().counts == {"c1": 0, "c2": 0}


def test_a_reserved_workload_withdraws_removed_and_requests_new_checks() -> None:
    tracked = TrackedWorkload(Around(["c1", "c2"])).assigned().verdict("c1", "Ready")
    before = row(tracked, "c1")
    tracked.lists("c1", "c3")
    assert tracked.states == {"c1": "Ready", "c3": "Pending"}
    assert row(tracked, "c1") == before
    assert [(say.what, say.detail) for say in tracked.outbox] == [
        ("check_withdrawn", "c2"),
        ("check_requested", "c3"),
    ]


def test_a_reservation_without_its_last_check_can_be_admitted() -> None:
    tracked = TrackedWorkload(Around(["c1"])).assigned().lists()
    assert tracked.states == {}
    assert tracked.confirmed().phase is Phase.ADMITTED


@pytest.mark.scenario("A18")
def test_a_running_job_survives_added_and_removed_checks() -> None:
    tracked = TrackedWorkload(Around(["c1"])).admitted().lists("c1", "c2")
    assert (tracked.phase, tracked.states) == (Phase.ADMITTED, {"c1": "Ready", "c2": "Pending"})
    assert [(say.what, say.detail) for say in tracked.outbox] == [("check_requested", "c2")]
    assert tracked.lists().phase is Phase.ADMITTED
    assert tracked.outbox_kinds == ["check_withdrawn", "check_withdrawn"]


def test_an_edit_that_changes_nothing_writes_nothing() -> None:
    tracked = TrackedWorkload(Around(["c1"])).assigned().verdict("c1", "Retry", 60)
    before = tracked.workload
    assert tracked.queue_changed().workload is before


@pytest.mark.scenario("B5", "B7")
@pytest.mark.parametrize("left", ["Pending", "Ready"])
def test_rows_of_an_unassigned_flavor_are_removed(left: str) -> None:
    around = Around()
    around.per_flavor = {"spot": ("s",), "other": ("t",), "plain": ()}
    tracked = TrackedWorkload(around)
    assert tracked.states == {}
    tracked.assigned("spot").verdict("s", left)
    tracked.preempted()
    assert tracked.states == {}
    assert tracked.assigned("other").states == {"t": "Pending"}
    tracked.preempted()
    assert tracked.assigned("plain").phase is Phase.ADMITTED


@pytest.mark.scenario("B5")
def test_a_flavors_retry_count_survives_its_row() -> None:
    around = Around()
    around.per_flavor = {"spot": ("s",), "plain": ("t",)}
    tracked = TrackedWorkload(around).assigned("spot").verdict("s", "Retry").assigned("plain")
    assert tracked.status.check_retry_counts == {"s": 1}
    assert tracked.preempted().assigned("spot").counts == {"s": 1}
    assert tracked.verdict("s", "Ready").counts == {"s": 0}


def test_a_check_that_no_list_names_loses_its_count() -> None:
    around = Around()
    around.per_flavor = {"spot": ("s",), "plain": ()}
    tracked = (
        TrackedWorkload(around)
        .assigned("spot")
        .verdict("s", "Retry")
        .lists(per_flavor={"spot": ()})
    )
    assert tracked.status.check_retry_counts == {}


@pytest.mark.scenario("L21")
def test_a_wait_counts_checks_in_retry_and_resets_ready_ones() -> None:
    tracked = TrackedWorkload(Around(["c1", "c2", "c3"])).assigned()
    tracked.verdict("c1", "Retry", 300).verdict("c2", "Retry", 60)
    assert tracked.wait == 300
    tracked.later(300).due()
    assert tracked.counts == {"c1": 1, "c2": 1, "c3": 0}
    tracked.assigned().verdict("c1", "Ready").verdict("c2", "Ready").verdict("c3", "Retry", 600)
    assert tracked.wait == 600
    tracked.later(600).due()
    assert tracked.counts == {"c1": 0, "c2": 0, "c3": 1}
