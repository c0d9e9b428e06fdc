"""Bookings of workloads, families and open runs, and the room that they leave."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from admittance.events.placement import PlacementPart
from admittance.placement.search.ledger import Ledger, Share, shares_of
from admittance.placement.search.shortage import Shortage
from support.machines import GPU, Machines, Run, a_group, a_machine, a_request, placed


def test_a_release_gives_back_exactly_what_was_booked() -> None:
    machines = Machines(a_machine("a", gpus=4, cpu=8))
    before = machines.free("a")
    machines.book(a_request("n/w", a_group(2, gpus=1, cpu=3)))
    assert machines.free("a") == {**before, GPU: 2, "cpu": 2000}

    machines.ledger.release("n/w")

    assert machines.free("a") == before


def test_a_new_booking_replaces_the_old_one() -> None:
    machines = Machines(a_machine("a", gpus=4), a_machine("b", gpus=4))
    first = machines.book(a_request("n/w", a_group(gpus=4)))

    machines.book_parts(a_request("n/w", a_group(gpus=1)), _on("b", "b-0"))

    assert first[0].runner == "a"
    assert (machines.free("a")[GPU], machines.free("b")[GPU]) == (4, 3)


def _on(machine: str, *gpus: str) -> tuple[PlacementPart, ...]:
    part = PlacementPart(
        runner=machine, id=f"id-{machine}", pod_set="main", first=0, count=1, devices={GPU: gpus}
    )
    return (part,)


def test_a_family_needs_the_larger_booking_and_all_of_its_devices() -> None:
    machines = Machines(a_machine("a", gpus=4, cpu=10))
    preferred = a_request("n/p-one", a_group(gpus=2, cpu=6), family="n/p")
    two = a_request("n/p-two", a_group(gpus=1, cpu=8), family="n/p")

    machines.book(preferred)
    # The bookings of its family do not count for the second variant.
    parts = machines.book(two)

    assert parts[0].devices == {GPU: ("a-0",)}
    assert machines.free("a")[GPU] == 2
    assert machines.free("a")["cpu"] == 2000
    machines.ledger.release("n/p-one")
    assert machines.free("a")[GPU] == 3


def test_a_migration_may_use_the_room_of_the_running_variant() -> None:
    machines = Machines(a_machine("a", gpus=4))
    worse = a_request("n/p-worse", a_group(gpus=4), family="n/p")
    machines.book(worse, revision=7)
    machines.ledger.set_runs(
        "id-a", [Run("n", "p-worse", 7, {}, {GPU: ("a-0", "a-1", "a-2", "a-3")})]
    )

    assert placed(machines.place(a_request("n/p-better", a_group(gpus=4), family="n/p"))) == [
        ("a", 1)
    ]
    assert isinstance(machines.place(a_request("n/other", a_group(gpus=4))), Shortage)


def test_an_open_run_of_the_admission_does_not_count_twice() -> None:
    machines = Machines(a_machine("a", gpus=4, cpu=8))
    machines.book(a_request("n/w", a_group(gpus=2, cpu=4)), revision=5)

    machines.ledger.set_runs("id-a", [Run("n", "w", 5, {"cpu": 4000}, {GPU: ("a-0", "a-1")})])

    assert machines.free("a")[GPU] == 2
    assert machines.free("a")["cpu"] == 4000


def test_an_open_run_keeps_its_room_when_its_quota_is_free() -> None:
    machines = Machines(a_machine("a", gpus=4, cpu=8))
    machines.book(a_request("n/w", a_group(gpus=2, cpu=4)), revision=5)
    run = Run("n", "w", 5, {"cpu": 4000, GPU: 2}, {GPU: ("a-0", "a-1")})
    machines.ledger.set_runs("id-a", [run])

    machines.ledger.release("n/w")
    assert machines.free("a") == {**machines.free("a"), GPU: 2, "cpu": 4000}

    # The next admission of the same workload needs room beside its old run.
    parts = machines.book(a_request("n/w", a_group(gpus=2, cpu=4)))
    assert parts[0].devices == {GPU: ("a-2", "a-3")}
    assert machines.free("a")["cpu"] == 0

    machines.ledger.set_runs("id-a", [])
    assert machines.free("a") == {**machines.free("a"), GPU: 2, "cpu": 4000}


def test_runs_join_the_booking_whichever_is_known_first() -> None:
    machines = Machines(a_machine("a", gpus=4))
    machines.ledger.set_runs("id-a", [Run("n", "w", 5, {}, {GPU: ("a-0",)})])
    request = a_request("n/w", a_group(gpus=2))

    machines.book_parts(request, _on("a", "a-0", "a-1"), revision=5)

    assert machines.free("a")[GPU] == 2
    assert machines.ledger.holders("id-a") == ["n/w"]
    assert machines.ledger.overlap("n/w", {"id-a": Share({}, {GPU: ("a-1", "a-2")})}) == ""


def test_bookings_before_the_machine_count_when_it_is_known() -> None:
    machines = Machines()
    machines.book_parts(a_request("n/w", a_group(gpus=1)), _on("a", "a-1"))
    machines.ledger.set_machine(a_machine("a", gpus=2))

    assert machines.place(a_request("n/v", a_group(gpus=1)))[0].devices == {GPU: ("a-0",)}  # type: ignore[union-attr]


def test_a_device_that_vanishes_gives_no_room() -> None:
    machines = Machines(a_machine("a", gpus=4))
    machines.book_parts(a_request("n/w", a_group(gpus=1)), _on("a", "a-3"))
    machines.ledger.set_machine(a_machine("a", gpus=2))
    assert machines.free("a")[GPU] == 2

    machines.ledger.release("n/w")
    assert machines.free("a")[GPU] == 2

    machines.ledger.forget_machine("id-a")
    assert machines.ledger.room("id-a") is None
    assert isinstance(machines.place(a_request("n/v")), Shortage)


def test_room_of_planned_victims_counts_as_room_to_come() -> None:
    machines = Machines(a_machine("a", gpus=4), a_machine("b", gpus=4))
    machines.book(a_request("n/low", a_group(gpus=3)), revision=3)
    machines.book(a_request("n/other", a_group(gpus=4)))
    wanted = a_request("n/high", a_group(gpus=4))

    assert isinstance(machines.place(wanted), Shortage)
    assert placed(machines.place(wanted, freed=["n/low"])) == [("a", 1)]
    # A victim's run counts as the victim, whichever admission it is of.
    machines.ledger.release("n/low")
    machines.ledger.set_runs("id-a", [Run("n", "low", 3, {}, {GPU: ("a-0", "a-1")})])
    assert isinstance(machines.place(wanted), Shortage)
    assert placed(machines.place(wanted, freed=["n/low"])) == [("a", 1)]


@pytest.mark.parametrize(
    ("family", "share", "why"),
    [
        pytest.param("n/v", Share({"cpu": 4000}, {GPU: ("a-2",)}), "", id="fits"),
        pytest.param("n/w", Share({"cpu": 8000}, {GPU: ("a-0",)}), "", id="own_family"),
        pytest.param(
            "n/v", Share({}, {GPU: ("a-0",)}), "runner a: nvidia.com/gpu a-0 is held by n/w",
            id="device",
        ),
        pytest.param(
            "n/v", Share({}, {GPU: ("a-9",)}),
            "runner a: it does not have all of nvidia.com/gpu a-9", id="unknown_device",
        ),
        pytest.param(
            "n/v", Share({"cpu": 5500}), "runner a: 5 of cpu is free, 5500m is assigned", id="room"
        ),
    ],
)  # fmt: skip
def test_an_overlap_is_refused_with_the_machine_and_its_holder(
    family: str, share: Share, why: str
) -> None:
    machines = Machines(a_machine("a", gpus=4, cpu=8))
    machines.book(a_request("n/w", a_group(gpus=2, cpu=3)))

    assert machines.ledger.overlap(family, {"id-a": share}) == why


def test_devices_of_an_unknown_machine_are_not_doubled() -> None:
    ledger = Ledger()
    requests = {"main": (("cpu", 1000),)}
    ledger.book("n/w", "n/w", shares_of(_on("a", "x"), requests))

    assert ledger.overlap("n/v", shares_of(_on("a", "x"), requests)) == (
        f"runner id-a: {GPU} x is held by n/w"
    )
    assert ledger.overlap("n/v", shares_of(_on("a", "y"), requests)) == ""
    ledger.release("n/w")
    assert ledger.overlap("n/v", shares_of(_on("a", "x"), requests)) == ""


def test_devices_that_a_family_or_others_do_not_hold_are_free() -> None:
    machines = Machines(a_machine("a", gpus=4, cpu=8))
    other = a_request("n/other", a_group(gpus=1))
    machines.book_parts(other, _on("a", "a-3"))
    for name, unit in (("one", "a-1"), ("two", "a-2")):
        machines.book_parts(a_request(f"n/p-{name}", a_group(gpus=1), family="n/p"), _on("a", unit))

    assert machines.book(a_request("n/w", a_group(gpus=1)))[0].devices == {GPU: ("a-0",)}
    assert machines.free("a") == {**machines.free("a"), GPU: 0, "cpu": 5000}
    # Without its own family a variant finds its devices, and those that others hold stay taken.
    third = machines.place(a_request("n/p-three", a_group(gpus=2), family="n/p"))
    assert placed(third) == [("a", 1)]
    assert third[0].devices == {GPU: ("a-1", "a-2")}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "order",
    [
        "job, old, new",
        "old, job, new",
        "new, job",
        "job, new",
        "old, new, job",
        "job, old, gone, new",
        "job, old, new, newest",
        "job, old, new, old",
    ],
)
def test_devices_of_an_earlier_id_are_held_on_the_machine_with_the_name(order: str) -> None:
    old = a_machine("a", gpus=2, cpu=8)
    machines, ledger = Machines(), Ledger()
    machines.ledger = ledger
    known = {"old": old, "new": replace(old, id="new"), "newest": replace(old, id="newest")}
    for step in order.split(", "):
        if step == "job":
            machines.book_parts(a_request("n/w", a_group(gpus=1)), _on("a", "a-0"), revision=3)
        elif step == "gone":
            ledger.forget_machine(old.id)
        else:
            last = known[step]
            ledger.set_machine(last)

    share = Share({"cpu": 1000}, {GPU: ("a-0",)})
    room = ledger.room(last.id)
    assert room is not None
    assert (room.free[GPU], room.free["cpu"]) == (1, 7000)
    assert ledger.overlap("n/v", {last.id: share}) == f"runner a: {GPU} a-0 is held by n/w"
    assert ledger.overlap("n/v", {last.id: share}, freed=["n/w"]) == ""
    assert (ledger.holders(last.id), ledger.machines_of("n/w")) == (["n/w"], {last.id})
    assert [machine.id for machine in ledger.machines()] == [last.id]
    ledger.release("n/w")
    assert room.free[GPU] == 2
    assert ledger.overlap("n/v", {last.id: share}) == ""


def test_runs_of_an_earlier_id_count_as_long_as_their_workloads_hold_it() -> None:
    old = a_machine("a", gpus=3)
    machines = Machines(old)
    machines.book_parts(a_request("n/w", a_group(gpus=1)), _on("a", "a-0"), revision=3)
    runs = [Run("n", name, 3, {}, {GPU: (unit,)}) for name, unit in (("w", "a-0"), ("x", "a-1"))]
    machines.ledger.set_runs(old.id, runs)
    assert machines.free("a")[GPU] == 1
    machines.ledger.set_machine(replace(old, id="new"))

    # No runner will say that a run of the earlier id has ended.
    room = machines.ledger.room("new")
    assert room is not None
    assert room.free[GPU] == 2
    machines.ledger.release("n/w")
    assert room.free[GPU] == 3


def test_a_data_folder_with_another_name_keeps_what_is_held_of_it() -> None:
    old = a_machine("a", gpus=2)
    machines = Machines(old)
    machines.book_parts(a_request("n/w", a_group(gpus=1)), _on("a", "a-0"))
    machines.ledger.set_machine(replace(old, name="b"))
    machines.ledger.set_machine(replace(old, id="new"))

    assert machines.free("a")[GPU] == 1
    room = machines.ledger.room("new")
    assert room is not None
    assert room.free[GPU] == 2
