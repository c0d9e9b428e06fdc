"""Machines of a pool: booked all or nothing, shared by pods, never twice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admittance.provider_pool.bookings import Booking, Bookings, NoRoom, Pods
from admittance.provider_pool.manifests import BadPool, pool_of

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
GPU = "nvidia.com/gpu"


def a_pool(*machines: dict[str, Any], booking: float = 0) -> Bookings:
    spec = {
        "provisioningClassName": "class",
        "bookingSeconds": booking,
        "machines": list(machines),
    }
    return Bookings(pool_of("rack", spec))


def gpus(count: int, each: int = 8, boot: float = 0, **more: Any) -> dict[str, Any]:
    return {"name": "a100", "count": count, "bootSeconds": boot, "resources": {GPU: each}, **more}


def pods(count: int, each: int = 1, **labels: str) -> list[Pods]:
    return [Pods(count, {GPU: each}, labels)]


def test_pods_share_machines_and_what_is_left_is_for_others() -> None:
    pool = a_pool(gpus(2))

    first = pool.book("a", pods(10), NOON)
    second = pool.book("b", pods(7), NOON)

    assert isinstance(first, Booking)
    assert [(one.number, one.amounts[GPU]) for one in first.held] == [(0, 8), (1, 2)]
    assert isinstance(second, NoRoom)
    assert second == NoRoom("pool rack has no room for 1 of 7 pods", True)
    assert isinstance(pool.book("c", pods(6), NOON), Booking)


def test_nothing_is_booked_unless_all_of_it_is() -> None:
    pool = a_pool(gpus(1))

    pool.book("a", [Pods(1, {GPU: 8}), Pods(1, {GPU: 1})], NOON)

    assert isinstance(pool.book("b", pods(8), NOON), Booking)


def test_what_is_booked_stays_booked_however_often_it_is_asked_for() -> None:
    pool = a_pool(gpus(1))

    assert pool.book("a", pods(8), NOON) is pool.book("a", pods(8), NOON)


def test_a_pod_that_no_machine_holds_never_will_be_held() -> None:
    pool = a_pool(gpus(4))

    assert pool.book("a", pods(1, 9), NOON) == NoRoom(
        "no machine of pool rack can hold such a pod", False
    )
    found = pool.book("b", pods(33), NOON)
    assert isinstance(found, NoRoom)
    assert not found.ever


def test_pods_go_where_their_labels_are() -> None:
    pool = a_pool(gpus(1), {**gpus(1, labels={"zone": "b"}), "name": "far"})

    booking = pool.book("a", pods(1, zone="b"), NOON)

    assert isinstance(booking, Booking)
    assert [one.kind for one in booking.held] == ["far"]


def test_only_machines_that_nobody_has_must_boot() -> None:
    pool = a_pool(gpus(2, boot=90))
    later = NOON + timedelta(seconds=100)

    first = pool.book("a", pods(1), NOON)
    second = pool.book("b", pods(1), later)

    assert isinstance(first, Booking)
    assert isinstance(second, Booking)
    assert first.ready_at == NOON + timedelta(seconds=90)
    assert second.ready_at == later


@pytest.mark.parametrize("restarted", [False, True])
def test_a_machine_that_boots_for_somebody_boots_for_whoever_joins(restarted: bool) -> None:
    pool = a_pool(gpus(1, boot=90))
    pool.book("a", pods(1), NOON)
    if restarted:
        before, pool = pool, Bookings(pool.pool)
        pool.restore(before.known.values())
    pool.book("b", pods(1), NOON + timedelta(seconds=30))
    pool.free("a")

    third = pool.book("c", pods(1), NOON + timedelta(seconds=60))

    assert pool.known["b"].ready_at == NOON + timedelta(seconds=90)
    assert isinstance(third, Booking)
    assert third.ready_at == NOON + timedelta(seconds=90)


def test_pods_that_need_nothing_are_freed_one_booking_after_the_other() -> None:
    pool = a_pool(gpus(1))
    pool.book("a", [Pods(1, {})], NOON)
    pool.book("b", [Pods(1, {})], NOON)

    assert pool.free("a") is not None
    assert pool.free("b") is not None


def test_a_booking_ends_when_its_machines_have_been_there_for_its_time() -> None:
    booking = a_pool(gpus(1, boot=90), booking=600).book("a", pods(1), NOON)

    assert isinstance(booking, Booking)
    assert booking.expires_at == NOON + timedelta(seconds=690)


def test_a_pool_that_shrinks_takes_its_last_machines_away() -> None:
    pool = a_pool(gpus(2))
    pool.book("a", pods(8), NOON)
    pool.book("b", pods(8), NOON)

    lost = pool.change(a_pool(gpus(1)).pool)

    assert [one.id for one in lost] == ["b"]
    assert list(pool.known) == ["a"]


def test_of_a_machine_that_has_less_the_first_keeps_its_place() -> None:
    pool = a_pool(gpus(1))
    pool.book("a", pods(4), NOON)
    pool.book("b", pods(4), NOON)

    assert [one.id for one in pool.change(a_pool(gpus(1, each=6)).pool)] == ["b"]


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"machines": []}, "provisioningClassName"),
        ({"provisioningClassName": "c", "machines": [gpus(-1)]}, "count must be 0"),
        ({"provisioningClassName": "c", "machines": [gpus(1), gpus(1)]}, "duplicate name"),
        ({"provisioningClassName": "c", "machines": [{**gpus(1), "cores": 4}]}, "cores"),
        ({"provisioningClassName": "c", "machines": [gpus(1, each=-1)]}, "negative"),
        ({"provisioningClassName": "c", "bookingSeconds": -1}, "bookingSeconds"),
        (None, "spec"),
    ],
)
def test_a_wrong_manifest_names_what_is_wrong(spec: Any, told: str) -> None:
    with pytest.raises(BadPool, match=told):
        pool_of("rack", spec)


ASKS = st.lists(
    st.one_of(
        st.tuples(st.just("book"), st.integers(0, 9), st.integers(1, 20), st.integers(1, 8)),
        st.tuples(st.just("free"), st.integers(0, 9), st.just(0), st.just(0)),
        st.tuples(st.just("count"), st.integers(0, 4), st.just(0), st.just(0)),
    ),
    max_size=40,
)


@given(ASKS)
def test_no_machine_ever_holds_more_than_it_has(story: list[tuple[str, int, int, int]]) -> None:
    pool = a_pool(gpus(3))
    for what, which, count, each in story:
        if what == "book":
            pool.book(str(which), pods(count, each), NOON)
        elif what == "free":
            pool.free(str(which))
        else:
            pool.change(a_pool(gpus(which)).pool)
        held: dict[int, int] = {}
        for booking in pool.known.values():
            for one in booking.held:
                held[one.number] = held.get(one.number, 0) + one.amounts[GPU]
        assert all(much <= 8 for much in held.values())
        assert all(number < pool.pool.machines[0].count for number in held)
        again = Bookings(pool.pool)
        again.restore(pool.known.values())
        assert again.known == pool.known
