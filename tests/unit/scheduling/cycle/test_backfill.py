"""The promise of a start, what makes it impossible, and which workloads may start beside it: by
direct calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import pytest

from admittance.quota.cell import Cell, FlavorResource, Quota
from admittance.quota.tree import Tree
from admittance.scheduling.cycle.backfill import (
    Candidate,
    Head,
    blockers,
    ended_by,
    expected_start,
    may_start,
    promise_of,
)
from admittance.scheduling.state.held.shared_quota import Holder
from admittance.scheduling.state.promise import NoPromise, Promise
from support.builders import NOON

CPU = ("default", "cpu")
GPU = ("default", "gpu")
SPOT = ("spot", "cpu")
CELLS = (CPU, GPU, SPOT)


def at(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


class Machine:
    """ClusterQueue ``a`` with 4 of each, alone or in a cohort with ``b``, and the workloads that
    hold quota."""

    def __init__(self, *, lend: int | None = None, borrow: int | None = None, b: int = -1) -> None:
        tree = Tree()
        cohort = "co" if b >= 0 else ""
        if cohort:
            tree.set_cohort("co", "", {})
            tree.set_queue("b", "co", dict.fromkeys(CELLS, Quota(b)))
        tree.set_queue("a", cohort, dict.fromkeys(CELLS, Quota(4, borrow, lend)))
        self.nodes = tree.queues
        self.holders: list[Holder] = []

    def cell(self, fr: FlavorResource = CPU, queue: str = "a") -> Cell:
        return self.nodes[queue].cell(fr)

    def holds(
        self, name: str, amount: int, minutes: float | None, fr: FlavorResource = CPU,
        queue: str = "a",
    ) -> None:  # fmt: skip
        cell = self.cell(fr, queue)
        cell.charge(amount)
        end = None if minutes is None else at(minutes)
        self.holders.append(Holder(("ns", name), [(cell, amount)], end))

    def need(self, amounts: Mapping[FlavorResource, int], queue: str = "a") -> dict[Cell, int]:
        return {self.cell(fr, queue): amount for fr, amount in amounts.items()}

    def usage(self) -> list[int]:
        return [cell.usage for node in self.nodes.values() for cell in node.cells.values()]


def busy(*held: tuple[int, float | None]) -> Machine:
    """Queue ``a`` alone; its holders h0, h1, ... have these amounts of cpu and minutes left."""
    machine = Machine()
    for number, (amount, minutes) in enumerate(held):
        machine.holds(f"h{number}", amount, minutes)
    return machine


@pytest.mark.parametrize(
    ("held", "amount", "minutes"),
    [
        ([], 4, 0),
        ([(2, 9)], 2, 0),  # fits now
        ([(2, 9)], 3, 9),
        ([(2, 9), (2, 5)], 2, 5),  # the first end is enough, whichever holder began first
        ([(2, 9), (2, 5)], 3, 9),
        ([(1, 5), (1, 5), (2, 9)], 2, 5),  # two ends at one time
        ([(4, -3)], 1, 0),  # its limit is over: it ends now
        ([(2, None), (2, 5)], 2, 5),  # the one without a limit is not in the way
        ([(2, None), (2, 5)], 3, None),
        ([(4, 5)], 5, None),  # never
    ],
)
def test_a_head_is_expected_when_enough_holders_have_ended(
    held: list[tuple[int, float | None]], amount: int, minutes: float | None
) -> None:
    machine = busy(*held)
    before = machine.usage()
    start = expected_start(machine.need({CPU: amount}), machine.holders, NOON)
    assert start == (None if minutes is None else at(minutes))
    assert machine.usage() == before


@pytest.mark.parametrize(
    ("held", "amount", "names"),
    [
        ([(4, 5)], 4, ()),
        ([(2, None), (2, 5)], 2, ()),  # fits without its end
        ([(2, None), (2, 5)], 3, ("h0",)),
        ([(2, None), (2, None)], 4, ("h0", "h1")),
        ([(1, None), (3, None)], 3, ("h1",)),  # the smaller one may stay
        ([(1, None), (3, None)], 5, ()),  # never
    ],
)
def test_holders_without_a_limit_are_named_only_if_they_must_end(
    held: list[tuple[int, float | None]], amount: int, names: tuple[str, ...]
) -> None:
    machine = busy(*held)
    before = machine.usage()
    found = blockers(machine.need({CPU: amount}), machine.holders)
    assert found == tuple(("ns", name) for name in names)
    assert machine.usage() == before


def a_head(
    machine: Machine, *amounts: Mapping[FlavorResource, int], name: str = "head", age: float = 0
) -> Head:
    return Head(("ns", name), at(-age), [machine.need(need) for need in amounts])


def promised(machine: Machine, *heads: Head) -> tuple[str, float | None, Sequence[str]] | None:
    """The head of the promise, its minute, and the holders that make it impossible."""
    promise = promise_of(heads, machine.holders, NOON)
    if promise is None:
        return None
    if isinstance(promise, NoPromise):
        return promise.head[1], None, [name for _, name in promise.unbounded]
    return promise.head[1], (promise.at - NOON).total_seconds() / 60, []


def test_the_oldest_head_has_the_promise() -> None:
    machine = busy((4, 5))
    young, old = a_head(machine, {CPU: 1}, name="a"), a_head(machine, {CPU: 2}, name="z", age=1)
    assert promised(machine, young, old) == ("z", 5, [])
    twin = a_head(machine, {CPU: 1}, name="b")
    assert promised(machine, twin, young) == ("a", 5, [])
    assert promised(machine) is None


def test_the_promise_is_for_the_flavor_with_the_earliest_start() -> None:
    machine = busy((4, 9))
    machine.holds("spot", 4, 5, SPOT)
    assert promised(machine, a_head(machine, {CPU: 3}, {SPOT: 3})) == ("head", 5, [])
    machine.holds("more", 1, 9, SPOT)
    promise = promise_of([a_head(machine, {CPU: 4}, {SPOT: 4})], machine.holders, NOON)
    assert isinstance(promise, Promise)
    assert promise.at == at(9)
    assert promise.need == machine.need({CPU: 4})  # the preferred one of two equal starts


def test_a_flavor_with_a_known_end_has_a_promise_beside_one_without() -> None:
    machine = busy((4, None))
    machine.holds("spot", 4, 5, SPOT)
    assert promised(machine, a_head(machine, {CPU: 3}, {SPOT: 3})) == ("head", 5, [])


def test_no_promise_names_the_fewest_holders_without_a_limit() -> None:
    machine = busy((2, None), (2, None))
    machine.holds("spot", 4, None, SPOT)
    assert promised(machine, a_head(machine, {CPU: 4}, {SPOT: 3})) == ("head", None, ["spot"])
    assert promised(machine, a_head(machine, {CPU: 2}, {SPOT: 3})) == ("head", None, ["h1"])
    assert promised(machine, a_head(machine, {CPU: 5}, {SPOT: 3})) == ("head", None, ["spot"])


def test_a_head_that_never_fits_is_passed_over() -> None:
    machine = busy((4, 5))
    huge = a_head(machine, {CPU: 5}, name="huge", age=1)
    assert promised(machine, huge, a_head(machine, {CPU: 1})) == ("head", 5, [])
    assert promised(machine, huge) is None


def test_a_head_without_a_known_end_leaves_no_promise_to_younger_heads() -> None:
    machine = busy((2, None), (2, 5))
    old = a_head(machine, {CPU: 4}, name="old", age=1)
    assert promised(machine, old, a_head(machine, {CPU: 1})) == ("old", None, ["h0"])


def test_holders_in_the_way_need_not_be_named() -> None:
    machine = Machine(b=2)
    machine.holds("h", 4, None)
    huge = a_head(machine, {CPU: 7}, name="huge", age=2)
    old = a_head(machine, {CPU: 6}, {SPOT: 7}, name="old", age=1)
    heads = [a_head(machine, {CPU: 1}), old, huge]
    assert promise_of(heads, machine.holders, NOON, names=False) == NoPromise(old.key, ())


@pytest.mark.parametrize(
    ("lend", "borrow", "b", "certain"),
    [
        (None, None, -1, True),  # no cohort
        (0, 0, 4, True),
        (0, None, 4, False),  # what it borrows may be taken
        (None, 0, 4, False),
        (1, 0, 4, False),
        (0, 1, 4, False),
    ],
)
def test_a_start_is_promised_only_where_no_quota_is_shared(
    lend: int | None, borrow: int | None, b: int, certain: bool
) -> None:
    machine = Machine(lend=lend, borrow=borrow, b=b)
    machine.holds("h", 4, 5)
    machine.holds("other", max(b, 0), 9, queue="b" if b >= 0 else "a")
    promise = promise_of([a_head(machine, {CPU: 4})], machine.holders, NOON)
    assert isinstance(promise, Promise)
    assert (promise.at, promise.is_certain) == (at(5), certain)


def test_a_start_is_promised_only_if_each_needed_resource_is_unshared() -> None:
    tree = Tree()
    tree.set_queue("a", "co", {CPU: Quota(4, 0, 0), GPU: Quota(4)})
    cpu, gpu = (tree.queues["a"].cell(fr) for fr in (CPU, GPU))
    cpu.charge(4)
    holders = [Holder(("ns", "h"), [(cpu, 4)], at(5))]
    for amount, certain in ((1, False), (0, True)):
        head = Head(("ns", "head"), NOON, [{cpu: 1, gpu: amount}])
        assert promise_of([head], holders, NOON) == Promise(head.key, head.needs[0], at(5), certain)


def test_usage_of_other_queues_counts_where_it_borrows() -> None:
    machine = Machine(b=2)
    machine.holds("mine", 1, None)
    machine.holds("own", 2, None, queue="b")
    machine.holds("loan", 3, 7, queue="b")
    assert promised(machine, a_head(machine, {CPU: 3})) == ("head", 7, [])
    assert promised(machine, a_head(machine, {CPU: 5})) == ("head", None, ["own"])


@pytest.mark.parametrize(
    ("amounts", "minutes", "allowed"),
    [
        ({CPU: 2}, 5, True),  # ends at the promised time
        ({CPU: 2}, 5.1, False),
        ({CPU: 2}, None, False),
        ({CPU: 1}, None, True),  # leaves room
        ({GPU: 4}, None, True),  # takes nothing that the head needs
        ({SPOT: 4}, None, True),
        ({CPU: 0, GPU: 4}, None, True),
        ({CPU: 2, GPU: 1}, None, False),
    ],
)
def test_a_later_workload_may_start_if_the_head_still_starts_on_time(
    amounts: dict[FlavorResource, int], minutes: float | None, allowed: bool
) -> None:
    machine = busy((2, 5), (0, 9))
    machine.holds("long", 0, 3)
    head = a_head(machine, {CPU: 3})
    promise = promise_of([head], machine.holders, NOON)
    assert isinstance(promise, Promise)
    before = machine.usage()
    end = None if minutes is None else at(minutes)
    candidate = Candidate(machine.need(amounts), end, is_later=True, borrows=False)
    assert may_start(promise, candidate, ended_by(promise, machine.holders)) is allowed
    assert machine.usage() == before


def test_a_holder_that_ends_after_the_promised_time_leaves_no_room() -> None:
    machine = busy((1, 9), (2, 5))
    promise = promise_of([a_head(machine, {CPU: 2})], machine.holders, NOON)
    assert isinstance(promise, Promise)
    assert promise.at == at(5)
    one, end = machine.need({CPU: 1}), at(6)
    later = Candidate(one, end, is_later=True, borrows=False)
    assert may_start(promise, later, ended_by(promise, machine.holders))
    machine.holds("later", 1, 6)
    assert not may_start(promise, later, ended_by(promise, machine.holders))


def test_a_head_that_borrows_at_the_promised_time_leaves_what_is_lent_to_it() -> None:
    machine = Machine(b=2)
    machine.holds("h", 4, 5)
    machine.holds("late", 0, 9)
    assert promised(machine, a_head(machine, {CPU: 2})) == ("head", 0, [])
    promise = promise_of([a_head(machine, {CPU: 5})], machine.holders, NOON)
    assert isinstance(promise, Promise)
    assert promise.at == at(5)
    for amount, allowed in ((1, True), (2, False)):
        candidate = Candidate(machine.need({CPU: amount}), None, is_later=True, borrows=True)
        assert may_start(promise, candidate, ended_by(promise, machine.holders)) is allowed


def test_a_broken_promise_holds_up_only_workloads_that_take_what_the_head_needs() -> None:
    machine = busy((3, 5))
    promise = promise_of([a_head(machine, {CPU: 4, SPOT: 0})], machine.holders, NOON)
    assert isinstance(promise, Promise)
    machine.holds("first", 1, None)  # came before the head, so no promise bound it
    for amounts, allowed in (({CPU: 0, GPU: 1}, True), ({SPOT: 1}, True), ({CPU: 1}, False)):
        candidate = Candidate(machine.need(amounts), None, is_later=True, borrows=False)
        assert may_start(promise, candidate, ended_by(promise, machine.holders)) is allowed


@pytest.mark.parametrize(
    ("is_later", "borrows", "allowed"),
    [(False, False, True), (True, False, False), (False, True, False), (True, True, False)],
)
def test_a_promise_binds_later_workloads_and_those_that_borrow(
    is_later: bool, borrows: bool, allowed: bool
) -> None:
    machine = busy((3, 5))
    promise = promise_of([a_head(machine, {CPU: 4})], machine.holders, NOON)
    assert isinstance(promise, Promise)
    candidate = Candidate(machine.need({CPU: 1}), None, is_later, borrows)
    assert may_start(promise, candidate, ended_by(promise, machine.holders)) is allowed
