"""Plays of a cohort tree: starts of waiting workloads with given run times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

import pytest

from admittance.forecast.play import play
from admittance.forecast.played import QueueRules
from admittance.forecast.rows import Holding, Need, Source, Waiting
from admittance.quota.cell import Quota
from admittance.quota.tree import Tree
from admittance.scheduling.state.held.person_limits import Limit, Person

CPU = ("f", "cpu")
SPOT = ("spot", "cpu")
A = Source(queue="a")


def need(amount: int, flavor: tuple[str, str] = CPU) -> Need:
    return ((flavor, amount),)


def job(name: str, amount: int, at: float = 0.0, **fields: Any) -> Waiting:
    fields = {"queue": "a", "choices": ((need(amount),),), "source": A, **fields}
    return Waiting(key=("ns", name), queued_at=at, **fields)


def held(name: str, amount: int, queue: str = "a", flavor: tuple[str, str] = CPU) -> Holding:
    return Holding(("ns", name), queue, need(amount, flavor), 0.0, A)


def queues(quotas: Mapping[str, int], cohort: str = "", **rules: Any) -> dict[str, QueueRules]:
    tree = Tree()
    return {
        name: QueueRules(
            tree.set_queue(name, cohort, {CPU: Quota(quota), SPOT: Quota(quota, borrow=0)}), **rules
        )
        for name, quota in quotas.items()
    }


def starts(
    known: Mapping[str, QueueRules],
    waiting: Sequence[Waiting],
    ends: Sequence[tuple[float, Holding]] = (),
    run: float = 10.0,
    **more: Any,
) -> dict[str, float]:
    for _, each in ends:
        for fr, amount in each.need:
            known[each.queue].node.cell(fr).charge(amount)
    before = usage(known)
    found = play(known, waiting, ends, lambda _: run, 100.0, **more)
    assert usage(known) == before
    return {name: at for (_, name), at in found.items()}


def usage(known: Mapping[str, QueueRules]) -> list[int]:
    return [cell.usage for each in known.values() for cell in each.node.cells.values()]


@pytest.mark.parametrize(
    ("waiting", "ends", "found"),
    [
        ([job("x", 4)], [], {"x": 100}),
        ([job("x", 5)], [], {}),
        ([job("x", 3), job("y", 3, 1)], [], {"x": 100, "y": 110}),
        ([job("x", 1)], [(130, held("h", 4))], {"x": 130}),
        # The end of a run that is overdue counts as now.
        ([job("x", 1)], [(90, held("h", 4))], {"x": 100}),
        ([job("x", 4)], [(120, held("h", 2)), (140, held("i", 2))], {"x": 140}),
        # A smaller workload behind passes a larger one.
        ([job("x", 4), job("y", 2, 1)], [(120, held("h", 2))], {"y": 100, "x": 120}),
        # A higher priority goes first.
        ([job("x", 4), job("y", 4, 1, priority=1)], [], {"y": 100, "x": 110}),
        # Of equal times the first by name goes first.
        ([job("y", 4), job("x", 4)], [], {"x": 100, "y": 110}),
        ([job("x", 0)], [(120, held("h", 4))], {"x": 100}),
    ],
)
def test_a_workload_starts_when_its_amounts_are_free(
    waiting: list[Waiting], ends: list[tuple[float, Holding]], found: dict[str, float]
) -> None:
    assert starts(queues({"a": 4}), waiting, ends) == found


def test_in_a_strict_queue_no_workload_passes_its_head() -> None:
    waiting = [job("x", 4), job("y", 2, 1)]
    ends = [(120.0, held("h", 2))]
    assert starts(queues({"a": 4}, strict=True), waiting, ends) == {"x": 120, "y": 130}
    urgent = [*waiting, job("z", 2, 2, priority=1)]
    assert starts(queues({"a": 4}, strict=True), urgent, ends) == {"z": 100, "x": 120, "y": 130}


def test_a_queue_within_its_quota_goes_before_one_that_borrows() -> None:
    known = queues({"a": 2, "b": 2}, "cohort")
    waiting = [job("borrows", 4), job("b", 2, 5, queue="b")]
    assert starts(known, waiting) == {"b": 100, "borrows": 110}
    assert starts(queues({"a": 2, "b": 2}, "cohort"), waiting[:1]) == {"borrows": 100}


@pytest.mark.parametrize(
    ("tries_next", "choices", "found"),
    [
        (False, ((need(3), need(3, SPOT)),), 100),
        (False, ((need(5), need(5, SPOT)),), inf),
        (False, ((need(1), need(1, SPOT)), (need(2),)), 120),
    ],
)
def test_the_next_flavor_is_used_where_the_first_is_full(
    tries_next: bool, choices: tuple[tuple[Need, ...], ...], found: float
) -> None:
    known = queues({"a": 4}, tries_next=tries_next)
    ends = [(120.0, held("h", 3))]
    assert starts(known, [job("x", 0, choices=choices)], ends).get("x", inf) == found


@pytest.mark.parametrize(("tries_next", "second"), [(False, 100), (True, 110)])
def test_try_next_flavor_takes_a_later_flavor_before_it_borrows(
    tries_next: bool, second: float
) -> None:
    """The workload y shows which flavor x took: y fits only into spot, which cannot be borrowed."""
    known = queues({"a": 2, "b": 2}, "cohort", tries_next=tries_next)
    x = job("x", 0, choices=((need(2), need(2, SPOT)),))
    y = job("y", 0, 1, choices=((need(2, SPOT),),))
    assert starts(known, [x, y], [(1000.0, held("h", 2))]) == {"x": 100, "y": second}


def test_arrivals_take_quota_and_only_as_many_are_read_as_arrive() -> None:
    read: list[str] = []

    def arrivals() -> Any:
        for at in (105.0, 106.0, 500.0):
            read.append(str(at))
            yield job(f"later-{at}", 4, at, priority=1)

    waiting = [job("x", 4, 3), job("y", 4, 4)]
    assert starts(queues({"a": 4}), waiting, arrivals=arrivals()) == {"x": 100, "y": 130}
    assert read == ["105.0", "106.0", "500.0"]


@pytest.mark.parametrize(("until", "found"), [(119.0, {}), (120.0, {"x": 120})])
def test_a_play_ends_at_its_limit(until: float, found: dict[str, float]) -> None:
    assert starts(queues({"a": 4}), [job("x", 4)], [(120, held("h", 1))], until=until) == found


def test_what_never_ends_frees_nothing() -> None:
    waiting = [job("x", 4), job("y", 4, 1)]
    assert starts(queues({"a": 4}), waiting, run=inf) == {"x": 100}


@pytest.mark.parametrize(
    ("free", "amount", "ends", "found"),
    [
        pytest.param(0, 4, [("h", 2), ("i", 2)], ["h", "i"], id="all that free its quota"),
        pytest.param(0, 2, [("h", 2), ("i", 2)], ["h"], id="no end after the start"),
        pytest.param(2, 4, [("h", 1), ("i", 1)], ["h", "i"], id="some was free before"),
        pytest.param(0, 4, [("h", 2), ("spot", 2), ("i", 2)], ["h", "i"], id="its flavor only"),
        pytest.param(0, 7, [(name, 1) for name in "hijklmn"], list("jklmn"), id="the last five"),
        pytest.param(4, 4, [("h", 2)], [], id="a start at once"),
    ],
)
def test_a_start_follows_the_ends_that_free_its_quota(
    free: int, amount: int, ends: list[tuple[str, int]], found: list[str]
) -> None:
    known = queues({"a": free + sum(held for name, held in ends if name != "spot")})
    flavors = {"spot": SPOT}
    holding = [
        (110.0 + place, held(name, much, flavor=flavors.get(name, CPU)))
        for place, (name, much) in enumerate(ends)
    ]
    causes: dict[Any, Any] = {}
    starts(known, [job("x", amount)], holding, causes=causes)
    assert [name for _, name in causes.get(("ns", "x"), ())] == found


def test_an_end_that_others_use_up_first_is_not_named() -> None:
    """The workload y takes what h frees, so x starts after i and y."""
    causes: dict[Any, Any] = {}
    waiting = [job("y", 2, priority=1), job("x", 4)]
    ends = [(120.0, held("h", 2)), (125.0, held("i", 2))]
    assert starts(queues({"a": 4}), waiting, ends, causes=causes) == {"y": 120, "x": 130}
    assert causes == {("ns", "y"): (("ns", "h"),), ("ns", "x"): (("ns", "i"), ("ns", "y"))}


ADA, BOB = (
    Person(Limit("ClusterQueue a", "", (("cpu", 2),)), name, is_any=False)
    for name in ("ada", "bob")
)


@pytest.mark.parametrize("strict", [False, True])
def test_a_person_at_its_limit_waits_for_its_own_workloads_and_blocks_no_other(
    strict: bool,
) -> None:
    waiting = [
        job("x", 2, persons=(ADA,)),
        job("y", 2, 1, persons=(ADA,)),
        job("z", 2, 2, persons=(BOB,)),
        job("wide", 3, 3, persons=(BOB,)),
    ]
    known = queues({"a": 8}, strict=strict)
    assert starts(known, waiting) == {"x": 100, "z": 100, "y": 110}
    assert ADA.held == BOB.held == {"cpu": 0}, "a play changes no person"


def test_a_person_gets_room_when_what_holds_its_quota_ends() -> None:
    ada = Person(ADA.limit, "ada", is_any=False)
    ada.held["cpu"] = 2
    ends = [(130.0, held("h", 2)._replace(persons=(ada,)))]
    later = job("later", 2, 105, persons=(BOB,))
    waiting = [job("x", 1, persons=(ada,)), job("y", 1, 1, persons=(ada,))]
    found = starts(queues({"a": 8}), waiting, ends, arrivals=iter([later]))
    assert found == {"x": 130, "y": 130}
