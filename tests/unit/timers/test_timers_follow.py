"""Schedules follow the workloads."""

from __future__ import annotations

from datetime import timedelta

import pytest

from admittance.api.workload import RequeueState
from admittance.timers.core import SETTLE
from admittance.timers.schedules import (
    PATIENCE,
    SPARE,
    ActualSchedule,
    Cancel,
    OverdueSlots,
    SetTimer,
    TimerSlot,
)
from admittance.workload.stored import StoredWorkload, encode
from support.builders import NOON
from support.cores.stepped_timers import (
    SteppedTimers,
    a_workload,
    admitted,
    checked,
    condition,
    delayed,
    evicted,
    idle,
    kinds,
    seconds,
)

WAITING = TimerSlot("requeue", "ns", "w")


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        pytest.param(idle(), {}, id="a workload that waits for quota has no timer"),
        pytest.param(
            delayed(60),
            {"requeue": 60},
            id="a delayed workload has a timer",
        ),
        pytest.param(evicted(10), {"drain": 310}, id="a job may stop for five minutes"),
        pytest.param(admitted(0), {"pods-ready": 300}, id="pods may take five minutes to be ready"),
        pytest.param(
            admitted(5, 60), {"pods-ready": 305, "execution": 65}, id="a job has its maximal time"
        ),
        pytest.param(checked(0, "slow"), {"checks": 90}, id="a check has its timeout"),
        pytest.param(checked(0, "slow", "quick"), {"checks": 20}, id="the first timeout counts"),
        pytest.param(
            a_workload(next_change_at=seconds(7200)),
            {"family": 7200},
            id="a family is evaluated when time alone changes its active variants",
        ),
        pytest.param(checked(0, "unknown"), {}, id="a check without a timeout has no timer"),
        pytest.param(
            a_workload(spec='{"leaseDurationSeconds": 30}', renewed_at=seconds(10)),
            {"lease": 40},
            id="a program renews its lease",
        ),
    ],
)
def test_every_wait_of_a_workload_has_its_timer_on_the_stream(
    workload: StoredWorkload, expected: dict[str, int]
) -> None:
    table = SteppedTimers().with_check("slow", 90).with_check("quick", 20).has(workload).settled()
    assert table.standing == {kind: seconds(at) for kind, at in expected.items()}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param(delayed(60), delayed(90), {"requeue": 90}, id="a longer wait replaces it"),
        pytest.param(delayed(60), delayed(30), {"requeue": 30}, id="a shorter wait, too"),
        pytest.param(delayed(60), idle(), {}, id="a wait that ended early leaves no timer"),
        pytest.param(delayed(60), None, {}, id="deleted during the wait: no timer is left"),
        pytest.param(
            delayed(60),
            admitted(2, 9),
            {"pods-ready": 302, "execution": 11},
            id="an admitted workload has other timers",
        ),
    ],
)
def test_a_changed_workload_changes_its_timers(
    before: StoredWorkload, after: StoredWorkload | None, expected: dict[str, int]
) -> None:
    table = SteppedTimers().has(before).settled().has(after).settled()
    assert table.standing == {kind: seconds(at) for kind, at in expected.items()}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(encode(idle()), False, id="a workload that waits for quota only"),
        pytest.param(encode(delayed(60)), True, id="a delayed workload"),
        pytest.param(rb'{"type": "Reque\u0075ed"}', True, id="another program may write escapes"),
    ],
)
def test_only_workloads_that_may_wait_are_decoded(value: bytes, expected: bool) -> None:
    assert SteppedTimers().timers.may_wait(value) is expected


def test_a_namesake_that_waits_as_long_gets_its_own_timer() -> None:
    table = (
        SteppedTimers()
        .has(delayed(60, "one"))
        .settled()
        .has(None)
        .has(delayed(60, "two"))
        .settled()
    )
    assert table.bus.standing == {WAITING: ActualSchedule(seconds(60), "two")}


def test_a_write_that_moves_no_time_orders_nothing() -> None:
    table = SteppedTimers().has(delayed(60)).settled().has(delayed(60))
    assert table.later(5).orders() == []


def test_timers_due_soon_are_set_at_once_and_the_rest_is_batched() -> None:
    table = SteppedTimers().has(delayed(5), "soon").has(delayed(6), "w")
    assert table.follow() == table_order(5, "soon", 1)
    assert table.timers.pending == 1
    assert table.timers.next_order_at() == NOON + SETTLE
    assert table.later(1).orders() == table_order(6, "w", 2)


def table_order(at: float, name: str, revision: int) -> list[SetTimer]:
    orders = SteppedTimers().has(delayed(at), name).later(1).orders()
    assert isinstance(orders[0], SetTimer)
    return [SetTimer(orders[0].slot, orders[0].want._replace(revision=revision))]


def test_a_wait_that_is_over_at_once_never_reaches_the_bus() -> None:
    table = SteppedTimers().has(evicted(0)).has(idle())
    assert table.later(10).orders() == []


def test_a_timer_in_the_past_is_ordered_at_once() -> None:
    table = SteppedTimers().later(100).has(delayed(60))
    assert [type(order) for order in table.follow()] == [SetTimer]


def test_a_timer_that_is_due_is_not_cancelled() -> None:
    table = SteppedTimers().has(delayed(5))
    table.follow()
    table.later(5).has(idle())
    assert table.later(10).orders() == []
    assert table.timers.pending == 0


def test_a_timer_that_is_not_needed_is_cancelled_before_its_time() -> None:
    table = SteppedTimers().has(delayed(60)).settled().has(idle())
    assert table.later(1).orders() == [Cancel(WAITING)]


def test_a_longer_check_timeout_moves_the_timers_of_its_workloads() -> None:
    table = SteppedTimers().with_check("c", 60).with_check("other", 60)
    table.has(checked(0, "c"), "a").has(checked(0, "other"), "b").settled()
    table.with_check("c", 90)
    orders = table.later(1).orders()
    assert [
        (order.slot.name, order.want.at) for order in orders if isinstance(order, SetTimer)
    ] == [("a", seconds(90))]


def test_a_deleted_check_sets_no_timeouts() -> None:
    table = SteppedTimers().with_check("c", 60).has(checked(0, "c")).settled()
    table.timers.apply_check("c", None, table.now)
    assert table.settled().standing == {}
    table.with_check("c", 30).settled()
    assert table.standing == {"checks": seconds(30)}


def test_an_unchanged_check_timeout_moves_no_timer() -> None:
    table = SteppedTimers().with_check("c", 60).has(checked(0, "c")).settled().with_check("c", 60)
    assert table.later(5).orders() == []


@pytest.mark.parametrize(
    "workload",
    [
        pytest.param(admitted(0, 10**14), id="it may run beyond the end of all calendars"),
        pytest.param(
            a_workload(
                condition("Requeued", False, reason="AdmissionCheck"),
                requeue_state=RequeueState(requeue_at=seconds(9).replace(tzinfo=None)),
            ),
            id="its time has no zone",
        ),
    ],
)
def test_an_unusable_time_does_not_affect_other_timers(
    workload: StoredWorkload,
) -> None:
    table = SteppedTimers().has(workload, "odd").has(delayed(60)).settled()
    assert table.bus.standing[WAITING] == ActualSchedule(seconds(60), "u")
    assert table.has(idle(), "odd").settled().timers.wanted.unreadable == {}


# Orders. --------------------------------------------------------------------------------


def test_a_slot_has_one_order_under_way() -> None:
    table = SteppedTimers().has(delayed(5))
    first = table.orders()
    table.has(delayed(4))
    assert table.orders() == []
    for order in first:
        table.bus.perform(order)
        table.timers.done(order, table.now)
    table.follow()
    assert table.standing == {"requeue": seconds(4)}


@pytest.mark.parametrize("took_effect", [True, False])
def test_an_order_with_an_unknown_outcome_is_repeated(took_effect: bool) -> None:
    table = SteppedTimers().has(delayed(5))
    (order,) = table.orders()
    if took_effect:
        table.bus.perform(order)
    table.timers.failed(order, table.now)
    table.settled()
    assert table.standing == {"requeue": seconds(5)}


def test_a_wait_that_ends_while_its_order_is_unknown_is_cancelled() -> None:
    table = SteppedTimers().has(delayed(60)).later(1)
    (order,) = table.orders()
    table.bus.perform(order)
    table.timers.failed(order, table.now)
    table.has(idle()).settled()
    assert table.standing == {}


def test_many_orders_are_returned_in_parts() -> None:
    table = SteppedTimers()
    for number in range(25):
        table.has(delayed(3), f"w{number}")
    assert [len(table.timers.orders(table.now, 10)) for _ in range(4)] == [10, 10, 5, 0]


def test_a_clock_set_back_does_not_delay_orders() -> None:
    table = SteppedTimers().has(delayed(7200))
    table.now -= timedelta(hours=1)
    assert len(table.orders()) == 1


# Comparison. ----------------------------------------------------------------------------


def test_no_timer_is_ordered_before_the_stream_was_read() -> None:
    table = SteppedTimers(begun=False).has(delayed(3)).later(9)
    assert table.orders() == []
    assert table.timers.next_order_at() is None
    table.compare()
    assert len(table.orders()) == 1


def test_a_new_leader_orders_only_differences() -> None:
    table = SteppedTimers(begun=False)
    for name, at in (("same", 60), ("lost", 60), ("moved", 60)):
        table.has(delayed(at), name)
    table.bus.standing = {
        TimerSlot("requeue", "ns", "same"): ActualSchedule(seconds(60), "u"),
        TimerSlot("requeue", "ns", "moved"): ActualSchedule(seconds(61), "u"),
        TimerSlot("drain", "ns", "gone"): ActualSchedule(seconds(62), "u"),
    }
    mended = table.compare()
    assert [slot.name for slot in mended.missing] == ["lost"]
    assert [slot.name for slot in mended.wrong] == ["moved"]
    assert [slot.name for slot in mended.orphaned] == ["gone"]
    assert sorted(order.slot.name for order in table.later(1).follow()) == [
        "gone",
        "lost",
        "moved",
    ]
    assert set(table.bus.standing.values()) == {ActualSchedule(seconds(60), "u")}


@pytest.mark.parametrize(
    ("real", "what"),
    [
        pytest.param(None, "missing", id="it was purged"),
        pytest.param(ActualSchedule(seconds(90), "u"), "wrong", id="it has another time"),
        pytest.param(ActualSchedule(seconds(60), "other"), "wrong", id="it is a namesake's"),
        pytest.param(ActualSchedule(None, "u"), "wrong", id="it says no time"),
    ],
)
def test_a_changed_or_deleted_schedule_is_repaired(real: ActualSchedule | None, what: str) -> None:
    table = SteppedTimers().has(delayed(60)).settled()
    if real is None:
        del table.bus.standing[WAITING]
    else:
        table.bus.standing[WAITING] = real
    mended = table.compare()
    assert getattr(mended, what) == (WAITING,)
    assert sum(map(len, mended)) == 1
    assert table.settled().standing == {"requeue": seconds(60)}
    assert not table.compare()


def test_an_orphaned_schedule_is_cancelled() -> None:
    table = SteppedTimers()
    table.bus.standing[WAITING] = ActualSchedule(seconds(60), "u")
    assert table.compare().orphaned == (WAITING,)
    assert table.settled().standing == {}


def test_a_fired_timer_is_not_missing() -> None:
    table = SteppedTimers().has(delayed(5))
    table.follow()
    table.later(6)
    assert not table.compare()
    assert table.orders() == []


def test_a_timer_fired_by_the_servers_clock_is_not_missing() -> None:
    table = SteppedTimers().has(delayed(5))
    table.follow()
    table.later(4)
    table.bus.standing.clear()
    assert not table.compare()


def test_timers_changed_during_the_comparison_are_not_compared() -> None:
    table = (
        SteppedTimers().has(delayed(60), "a").has(delayed(60), "b").has(delayed(4), "c").settled()
    )
    table.has(delayed(9), "flying").later(1)
    flying = table.orders()
    table.timers.begin_comparison()
    seen = dict(table.bus.standing)
    table.has(delayed(30), "a").has(None, "b").has(delayed(30), "new").later(1)
    for order in [*flying, *table.orders()]:
        table.bus.perform(order)
        table.timers.done(order, table.now)
    assert not table.timers.compare(seen, table.now)
    table.settled()
    assert {slot.name: stands.at for slot, stands in table.bus.standing.items()} == {
        "a": seconds(30),
        "new": seconds(30),
        "flying": seconds(9),
    }


# Overdue. -------------------------------------------------------------------------------


def test_a_timer_without_effect_is_set_again_with_growing_delays() -> None:
    table = SteppedTimers().has(delayed(5))
    table.follow()
    looks = []
    for _ in range(4):
        look = table.timers.next_overdue_at()
        assert look is not None
        table.later((look - table.now).total_seconds() - 0.001)
        assert table.timers.take_overdue(table.now) == []
        table.later(0.001)
        assert table.timers.take_overdue(table.now) == [WAITING]
        table.follow()
        looks.append((look - seconds(0)).total_seconds())
    assert looks == [10, 20, 40, 80]
    assert len(table.later(0).bus.fired) == 5


def test_a_time_that_had_its_effect_is_not_looked_at_again() -> None:
    table = SteppedTimers().has(delayed(5))
    table.follow()
    table.later(5).has(idle())
    assert table.timers.next_overdue_at() is None
    assert table.later(60).timers.take_overdue(table.now) == []


def test_a_longer_wait_is_awaited_to_its_own_end() -> None:
    table = SteppedTimers().has(delayed(3))
    table.follow()
    table.has(delayed(600)).settled()
    assert table.timers.next_overdue_at() == seconds(605)


def test_cancelled_timers_do_not_use_memory() -> None:
    table = SteppedTimers()
    for number in range(5000):
        table.has(delayed(3600 + number)).later(1).follow()
        table.has(idle())
    assert len(table.timers._overdue._heap) < 2000


def test_the_kinds_of_one_workload_are_apart() -> None:
    table = SteppedTimers().has(admitted(0, 60)).settled()
    del table.bus.standing[TimerSlot("execution", "ns", "w")]
    assert kinds(table.compare().missing) == ["execution"]


def test_outdated_entries_are_dropped_when_they_are_more_than_half() -> None:
    overdue = OverdueSlots()
    most = 2 + SPARE
    for number in range(most):
        overdue.expect(WAITING, seconds(number), seconds(0))
    assert len(overdue._heap) == most
    overdue.expect(WAITING, seconds(most), seconds(0))
    assert overdue._heap == [(seconds(most) + PATIENCE, WAITING)]
    assert overdue.next() == seconds(most) + PATIENCE


def test_a_schedule_that_is_expected_again_is_noted_once() -> None:
    overdue = OverdueSlots()
    for _ in range(2):
        overdue.expect(WAITING, seconds(5), seconds(0))
    assert len(overdue._heap) == 1
    assert list(overdue.take(seconds(5) + PATIENCE - timedelta(microseconds=1))) == []
    assert list(overdue.take(seconds(5) + PATIENCE)) == [WAITING]
    assert list(overdue.take(seconds(60))) == [], "it is looked at after it is expected again"
    overdue.expect(WAITING, seconds(5), seconds(60))
    assert overdue.next() == seconds(60) + 2 * PATIENCE
    overdue.forget(WAITING)
    assert overdue.next() is None
