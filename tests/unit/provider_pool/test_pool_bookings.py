"""The machines of a pool are booked completely or not at all, and never twice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from admittance.events.reader import Unreadable
from admittance.provisioning.machine_pool import (
    POOL,
    BadPool,
    key_of,
    pattern_of,
    pool_of,
    pool_of_key,
    pool_of_manifest,
)
from admittance.provisioning.pool_bookings import (
    Booking,
    Bookings,
    NoRoom,
    Pods,
    machine_counts,
    read_booking,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
GPU = "nvidia.com/gpu"
POOL_KEY = f"{POOL}."


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


def test_pods_of_several_bookings_share_machines() -> None:
    pool = a_pool(gpus(2))

    first = pool.book("a", pods(10), NOON)
    second = pool.book("b", pods(7), NOON)

    assert isinstance(first, Booking)
    assert [(part.number, part.amounts[GPU]) for part in first.held] == [(0, 8), (1, 2)]
    assert isinstance(second, NoRoom)
    assert second == NoRoom("pool rack has no room for 1 of 7 pods", True)
    assert isinstance(pool.book("c", pods(6), NOON), Booking)


def test_a_booking_covers_all_pods_or_no_pod() -> None:
    pool = a_pool(gpus(1))

    pool.book("a", [Pods(1, {GPU: 8}), Pods(1, {GPU: 1})], NOON)

    assert isinstance(pool.book("b", pods(8), NOON), Booking)


def test_a_repeated_request_keeps_its_booking() -> None:
    pool = a_pool(gpus(1))

    assert pool.book("a", pods(8), NOON) is pool.book("a", pods(8), NOON)


def test_a_pod_that_is_larger_than_any_machine_fails_permanently() -> None:
    pool = a_pool(gpus(4))

    assert pool.book("a", pods(1, 9), NOON) == NoRoom(
        "no machine of pool rack can hold such a pod", False
    )
    pool.book("b", pods(1, 6), NOON)
    for count, each, ever in ((32, 1, True), (33, 1, False), (8, 3, True), (9, 3, False)):
        booking = pool.book("c", pods(count, each), NOON)
        assert isinstance(booking, NoRoom)
        assert booking.ever is ever, "four machines of 8 GPUs, of which six GPUs are booked"


def test_pods_are_placed_on_machines_with_their_labels() -> None:
    pool = a_pool(gpus(1), {**gpus(1, labels={"zone": "b"}), "name": "far"})

    booking = pool.book("a", pods(1, zone="b"), NOON)

    assert isinstance(booking, Booking)
    assert [part.kind for part in booking.held] == ["far"]


def test_only_unused_machines_have_to_boot() -> None:
    pool = a_pool(gpus(2, boot=90))
    later = NOON + timedelta(seconds=100)

    first = pool.book("a", pods(1), NOON)
    second = pool.book("b", pods(1), later)

    assert isinstance(first, Booking)
    assert isinstance(second, Booking)
    assert first.ready_at == NOON + timedelta(seconds=90)
    assert second.ready_at == later


@pytest.mark.parametrize("restarted", [False, True])
def test_a_second_booking_waits_for_the_same_boot(restarted: bool) -> None:
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


def test_bookings_without_resources_are_freed_one_by_one() -> None:
    pool = a_pool(gpus(1))
    pool.book("a", [Pods(1, {})], NOON)
    pool.book("b", [Pods(1, {})], NOON)

    assert pool.free("a") is not None
    assert pool.free("b") is not None


def test_the_time_of_a_booking_begins_when_its_machines_are_ready() -> None:
    booking = a_pool(gpus(1, boot=90), booking=600).book("a", pods(1), NOON)

    assert isinstance(booking, Booking)
    assert booking.expires_at == NOON + timedelta(seconds=690)


def test_a_pool_that_shrinks_loses_its_last_machines() -> None:
    pool = a_pool(gpus(2))
    pool.book("a", pods(8), NOON)
    pool.book("b", pods(8), NOON)

    lost = pool.change(a_pool(gpus(1)).pool)

    assert [booking.id for booking in lost] == ["b"]
    assert list(pool.known) == ["a"]


def test_machines_of_one_booking_are_ready_one_after_the_other() -> None:
    pool = a_pool(gpus(3, boot=60))
    pool.book("a", pods(4), NOON)
    pool.book("b", pods(8), NOON + timedelta(seconds=30))
    pool.free("a")
    counts = {
        seconds: machine_counts(pool.pool, pool.known.values(), NOON + timedelta(seconds=seconds))
        for seconds in (59, 60, 90)
    }
    assert counts == {59: (3, 2, 2), 60: (3, 2, 1), 90: (3, 2, 0)}
    assert counts[90].free == 1


def test_a_booking_that_ends_gives_its_room_on_a_shared_machine_back() -> None:
    pool = a_pool(gpus(1))
    for name in "ab":
        pool.book(name, pods(4), NOON)
    assert isinstance(pool.book("c", pods(1), NOON), NoRoom)
    pool.free("a")
    assert isinstance(pool.book("c", pods(4), NOON), Booking)
    assert isinstance(pool.book("d", pods(1), NOON), NoRoom)


def test_a_booking_of_an_earlier_version_has_one_time_for_all_its_machines() -> None:
    pool = a_pool(gpus(1, boot=60))
    booking = pool.book("a", pods(4), NOON)
    assert isinstance(booking, Booking)
    (held,) = booking.held
    restarted = Bookings(pool.pool)
    restarted.restore([replace(booking, held=(replace(held, ready_at=None),))])
    second = restarted.book("b", pods(4), NOON + timedelta(seconds=30))
    assert isinstance(second, Booking)
    assert second.ready_at == NOON + timedelta(seconds=60)


@pytest.mark.parametrize("bookings", ["a", "ab"], ids=["one booking", "two bookings"])
def test_a_machine_boots_again_after_its_last_booking(bookings: str) -> None:
    pool = a_pool(gpus(1, boot=90))
    for name in bookings:
        pool.book(name, pods(1), NOON)
    for name in bookings:
        pool.free(name)
    later = NOON + timedelta(seconds=200)
    again = pool.book("c", pods(1), later)
    assert isinstance(again, Booking)
    assert again.ready_at == later + timedelta(seconds=90)


def test_the_oldest_booking_keeps_a_machine_that_shrinks() -> None:
    pool = a_pool(gpus(1))
    pool.book("a", pods(4), NOON)
    pool.book("b", pods(4), NOON)

    assert [booking_lost.id for booking_lost in pool.change(a_pool(gpus(1, each=6)).pool)] == ["b"]


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"machines": []}, "provisioningClassName"),
        ({"provisioningClassName": "c", "machines": [gpus(-1)]}, "count must be 0"),
        ({"provisioningClassName": "c", "machines": [gpus(1), gpus(1)]}, "duplicate name"),
        ({"provisioningClassName": "c", "machines": [{**gpus(1), "cores": 4}]}, "cores"),
        ({"provisioningClassName": "c", "machines": [gpus(1, each=-1)]}, "negative"),
        ({"provisioningClassName": "c", "bookingSeconds": -1}, "bookingSeconds"),
        ({"provisioningClassName": "c", "bookingSeconds": inf}, "bookingSeconds"),
        (None, "spec"),
    ],
)
def test_an_invalid_manifest_names_the_field(spec: Any, problem: str) -> None:
    with pytest.raises(BadPool, match=problem):
        pool_of("rack", spec)


def test_a_machine_without_a_resource_holds_no_pod_that_needs_it() -> None:
    pool = a_pool(gpus(1, each=0))
    booking = pool.book("a", pods(1), NOON)
    assert booking == NoRoom("no machine of pool rack can hold such a pod", False)


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
            for part in booking.held:
                held[part.number] = held.get(part.number, 0) + part.amounts[GPU]
        assert all(much <= 8 for much in held.values())
        assert all(number < pool.pool.machines[0].count for number in held)
        again = Bookings(pool.pool)
        again.restore(pool.known.values())
        assert again.known == pool.known


@pytest.mark.parametrize(
    ("key", "pool"),
    [
        pytest.param(POOL_KEY + "rack", "rack", id="a pool"),
        pytest.param(POOL_KEY + "ns.rack", None, id="with a namespace"),
        pytest.param("flavor.rack", None, id="another kind"),
        pytest.param(POOL_KEY + "%", None, id="an invalid name"),
    ],
)
def test_a_manifest_of_a_pool_is_known_by_its_key(key: str, pool: str | None) -> None:
    assert pool_of_manifest(key) == pool


def test_a_pool_has_one_machine_of_each_kind_that_needs_no_time_by_default() -> None:
    machines = [{"name": "m", "resources": {}}]
    pool = pool_of("rack", {"provisioningClassName": "c", "machines": machines})
    (machine,) = pool.machines
    assert (pool.booking_seconds, machine.boot_seconds, machine.count) == (0, 0, 1)


@pytest.mark.parametrize(
    ("amount", "key", "reason"),
    [
        pytest.param(1, "a", "", id="of its key"),
        pytest.param(0, "a", "", id="of a machine without the resource"),
        pytest.param(-1, "a", "negative amount", id="of a negative amount"),
        pytest.param(1, "b", "not the key of a booking", id="of another request"),
    ],
)
def test_a_stored_booking_is_read(amount: int, key: str, reason: str) -> None:
    booking = a_pool(gpus(1)).book("a", pods(1), NOON)
    assert isinstance(booking, Booking)
    (held,) = booking.held
    changed = replace(booking, held=(replace(held, amounts={GPU: amount}),))
    value = msgspec.json.encode(changed)
    if not reason:
        assert read_booking(key_of("rack", key), value) == ("rack", changed)
        return
    with pytest.raises(Unreadable, match=reason):
        read_booking(key_of("rack", key), value)


def test_keys_of_bookings_stay_as_they_are_stored() -> None:
    assert key_of("rack", "u/capacity/1/1") == "_pool.rack.1c5130aacdafc12ca80ff647113551fe"


def test_bookings_of_a_pool_are_found_by_their_keys() -> None:
    key = key_of("a.pool", "request")
    assert pool_of_key(key) == "a.pool"
    assert pool_of_key("booked.a.pool") is None
    start, _, end = pattern_of("a.pool").partition("*")
    assert key.startswith(start)
    assert end == ""
    assert not key.startswith(pattern_of("another").removesuffix("*"))
    assert key.startswith(pattern_of().removesuffix(">"))
