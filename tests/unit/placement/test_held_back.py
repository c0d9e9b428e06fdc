"""For which workload room is held back, since when, and until when."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from admittance.api.workload import CheckState
from admittance.placement.held_back import HeldBack, hold_key
from admittance.placement.reservation import Judged, Reservation
from admittance.placement.verdicts import PlacementTimes
from support.builders import NOON
from support.machines import Machines, a_group, a_machine, a_request

AFTER = timedelta(minutes=5)
FORGET = timedelta(minutes=10)
SECOND = timedelta(seconds=1)


def lacking(
    name: str, *, gpus: int = 1, count: int = 1, priority: int = 0, flavor: str = "f", at: int = 0
) -> Reservation:
    """A reservation that lacks room since the second ``at``."""
    since = NOON + at * SECOND
    row = CheckState(name="machines")
    return Reservation(
        judged=Judged(f"n/{name}", "n", name, "u", 1, row, False),
        request=a_request(f"n/{name}", a_group(count, gpus=gpus)),
        priority=priority,
        since=since,
        reserved_at=since,
        idle_since=since,
        deferring_ready=True,
        others_ready=True,
        victims=frozenset(),
        flavors=frozenset({flavor}),
    )


class HeldRoom:
    """Two machines of two GPUs, and what is held back on them."""

    def __init__(self, times: PlacementTimes | None = None) -> None:
        self.machines = Machines(a_machine("a", gpus=2), a_machine("b", gpus=2))
        self.held = HeldBack(self.machines.ledger, times or PlacementTimes())

    def wait(self, *reservations: Reservation, after: timedelta = AFTER, ends: bool = True) -> None:
        for each in reservations:
            self.held.wait(each, each.since, NOON + after, ends=ends)

    @property
    def keys(self) -> set[str]:
        held = self.held.keys()
        return {key.removeprefix(hold_key("n/")) for key in held}


def test_room_is_held_back_after_the_time_and_not_before() -> None:
    room = HeldRoom()
    room.wait(lacking("w"), after=AFTER - SECOND)
    assert (room.keys, room.held.due.first) == (set(), NOON + AFTER)
    room.wait(lacking("w", at=30))
    assert room.keys == {"w"}, "a later reservation keeps the time of the first"


@pytest.mark.parametrize(
    ("times", "ends"),
    [
        pytest.param(PlacementTimes(hold_after=None), True, id="never"),
        pytest.param(PlacementTimes(), False, id="no job that ends makes room"),
    ],
)
def test_no_room_is_held_back(times: PlacementTimes, ends: bool) -> None:
    room = HeldRoom(times)
    room.wait(lacking("w"), after=10 * AFTER, ends=ends)
    assert (room.keys, room.held.due.first) == (set(), None)


def test_room_is_let_go_when_no_job_that_ends_would_help() -> None:
    room = HeldRoom()
    room.wait(lacking("w"))
    room.wait(lacking("w"), ends=False)
    assert room.keys == set()


@pytest.mark.parametrize(
    ("second", "holder"),
    [
        pytest.param(lacking("v", at=1), "w", id="a later one waits"),
        pytest.param(lacking("v", at=-1), "v", id="an earlier one takes the place"),
        pytest.param(lacking("v", at=1, priority=1), "v", id="a higher priority takes the place"),
        pytest.param(lacking("v", at=-1, priority=-1), "w", id="a lower priority does not"),
        pytest.param(lacking("v"), "v", id="of equal ones the first by name"),
        pytest.param(lacking("x"), "w", id="the second by name waits"),
    ],
)
def test_one_workload_of_a_set_of_flavors_has_room_held_back(
    second: Reservation, holder: str
) -> None:
    room = HeldRoom()
    room.wait(lacking("w"), second, after=AFTER + SECOND)
    assert room.keys == {holder}


def test_workloads_of_other_flavors_have_room_of_their_own() -> None:
    room = HeldRoom()
    room.wait(lacking("w"), lacking("v", flavor="other", priority=3))
    assert room.keys == {"w", "v"}
    assert room.held.below(3) == {hold_key("n/w")}
    assert room.held.below(4) == {hold_key("n/w"), hold_key("n/v")}


def test_a_workload_without_a_reservation_is_forgotten_after_a_time() -> None:
    room = HeldRoom()
    room.wait(lacking("w"))
    left = NOON + AFTER
    room.held.forget_gone(left)
    assert room.keys == {"w"}
    for after in (timedelta(0), SECOND, FORGET - SECOND):
        room.held.leave("n/w")
        room.held.forget_gone(left + after)
        assert (room.keys, room.held.due.first) == ({"w"}, left + FORGET)
    room.held.forget_gone(left + FORGET)
    assert room.keys == set()


def test_a_new_reservation_ends_the_time_without_one() -> None:
    room = HeldRoom()
    room.wait(lacking("w"))
    for _ in range(2):
        room.held.leave("n/w")
        room.held.forget_gone(NOON + AFTER)
        room.wait(lacking("w"))
    room.held.forget_gone(NOON + 2 * FORGET)
    assert room.keys == {"w"}


def test_a_target_moves_when_one_of_its_machines_takes_no_pods() -> None:
    room = HeldRoom()
    ledger = room.machines.ledger
    gang = lacking("gang", gpus=2, count=2)
    room.wait(gang)
    assert set(ledger.shares(hold_key("n/gang"))) == {"id-a", "id-b"}
    ledger.set_machine(a_machine("c", gpus=4))
    room.wait(gang)
    assert set(ledger.shares(hold_key("n/gang"))) == {"id-a", "id-b"}, "it is valid"
    ledger.set_machine(replace(a_machine("a", gpus=2), unschedulable=True))
    room.wait(gang)
    assert set(ledger.shares(hold_key("n/gang"))) == {"id-c"}
    ledger.forget_machine("id-c")
    room.wait(gang)
    assert ledger.shares(hold_key("n/gang")) == {}, "no machines are large enough"
