"""Whether a preemptor fits, what it lacks, and which victims it needs: by direct calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from admittance.quota.cell import Cell, Quota
from admittance.quota.tree import Tree
from admittance.scheduling.preemption.room import (
    above_nominal,
    affects_no_other,
    can_free,
    fill_back,
    fits,
    remove_victim,
    restore_victim,
    shortfalls,
)
from admittance.scheduling.state.equivalence import RefusalQueue
from admittance.scheduling.state.workload_info import Charge, Queue, Victim, WorkloadInfo
from support.builders import an_admission

CPU = ("default", "cpu")
GPU = ("default", "gpu")


def cells(
    *, nominal: int = 4, used: int = 0, lend: int | None = None, borrow: int | None = None,
    other: int = 0, other_used: int = 0, cohort: int = 0,
) -> tuple[Cell, Cell]:  # fmt: skip
    """The cells of ClusterQueues a and b of one cohort. ``other``: the nominal quota of b;
    ``cohort``: of the cohort."""
    tree = Tree()
    tree.set_cohort("co", "", {CPU: Quota(cohort)})
    tree.set_queue("a", "co", {CPU: Quota(nominal, borrow, lend)})
    tree.set_queue("b", "co", {CPU: Quota(other)})
    a, b = tree.queues["a"].cell(CPU), tree.queues["b"].cell(CPU)
    a.charge(used)
    b.charge(other_used)
    return a, b


@pytest.mark.parametrize(
    ("given", "amount", "borrowing", "expected"),
    [
        pytest.param({}, 4, True, True, id="all of its quota"),
        pytest.param({}, 5, True, False, id="more than there is"),
        pytest.param({"used": 3}, 1, False, True, id="exactly nominal"),
        pytest.param({"used": 3, "other": 1}, 2, False, False, id="one above nominal"),
        pytest.param({"used": 3, "other": 1}, 2, True, True, id="one borrowed"),
        pytest.param({"other": 9, "borrow": 0}, 5, True, False, id="no borrowing limit left"),
        pytest.param({"used": 6}, 0, True, True, id="nothing fits always"),
        pytest.param({"used": 6}, 1, True, False, id="in debt"),
        pytest.param({"used": 6}, 0, False, False, id="nothing, above nominal"),
        pytest.param({"nominal": 0}, 1, True, False, id="no quota at all"),
    ],
)
def test_amounts_fit_into_what_is_free(
    given: dict[str, Any], amount: int, borrowing: bool, expected: bool
) -> None:
    cell, _ = cells(**given)
    assert fits({cell: amount}, borrowing=borrowing) is expected


def test_all_amounts_must_fit() -> None:
    mine, other = cells(other=2, lend=0)
    assert fits({mine: 4, other: 2}, borrowing=True)
    assert not fits({mine: 4, other: 3}, borrowing=True)
    assert not fits({mine: 7, other: 2}, borrowing=True)


@pytest.mark.parametrize(
    ("used", "amount", "lack"),
    [(0, 4, {}), (0, 5, {CPU: 1}), (3, 1, {}), (3, 2, {CPU: 1}), (6, 2, {CPU: 2}), (6, 0, {})],
)
def test_what_is_missing_is_counted_from_nothing_when_in_debt(
    used: int, amount: int, lack: dict[Any, int]
) -> None:
    cell, _ = cells(used=used)
    assert shortfalls({cell: amount}) == lack


@pytest.mark.parametrize(
    ("used", "amount", "above"), [(2, 2, {}), (2, 3, {CPU: 1}), (6, 0, {CPU: 2}), (0, 4, {})]
)
def test_what_exceeds_the_nominal_quota(used: int, amount: int, above: dict[Any, int]) -> None:
    cell, _ = cells(used=used, other=9)
    assert above_nominal({cell: amount}) == above


@pytest.mark.parametrize(
    ("given", "amount", "expected"),
    [
        pytest.param({}, 4, True, id="exactly its own quota"),
        pytest.param({"other": 1}, 5, False, id="it would borrow"),
        pytest.param({"other": 1, "other_used": 2}, 4, False, id="it is not there now"),
        pytest.param({"other": 1, "other_used": 2}, 3, True, id="it is there, and of its own"),
        pytest.param({"used": 4}, 1, False, id="nothing is free"),
        pytest.param({"nominal": 2, "cohort": 2}, 3, False, id="of the cohort"),
        pytest.param({"lend": 2}, 3, True, id="part of it is never lent"),
        pytest.param({"lend": 0}, 4, True, id="nothing of it is lent"),
    ],
)
def test_an_amount_affects_no_other_while_no_node_borrows_for_it(
    given: dict[str, Any], amount: int, expected: bool
) -> None:
    cell, _ = cells(**given)
    assert affects_no_other(cell, amount) is expected


def test_what_a_node_keeps_for_itself_is_not_asked_of_its_parent() -> None:
    tree = Tree()
    tree.set_cohort("root", "", {CPU: Quota(0)})
    tree.set_cohort("co", "root", {CPU: Quota(0)})
    tree.set_queue("a", "co", {CPU: Quota(4, None, 1)})
    tree.set_queue("b", "co", {CPU: Quota(0)})
    tree.set_queue("c", "root", {CPU: Quota(3)})
    cell = tree.queues["a"].cell(CPU)
    assert affects_no_other(cell, 4), "three of its own, and one that it lends"
    tree.queues["b"].cell(CPU).charge(1)
    assert affects_no_other(cell, 3), "its own three are enough"
    assert not affects_no_other(cell, 4), "the cohort would borrow for it"


# Victims. -----------------------------------------------------------------------------------


def holder(name: str, *amounts: tuple[Cell, int]) -> WorkloadInfo:
    workload = WorkloadInfo(("ns", name))
    queue = Queue("a", RefusalQueue())
    workload.charge = Charge(queue, an_admission("a"), list(amounts))
    return workload


def entries(*workloads: WorkloadInfo) -> list[Any]:
    return [(0, 0.0, workload.uid, workload.key, workload) for workload in workloads]


def test_candidates_can_free_what_they_hold_together() -> None:
    cell, _ = cells()
    gpu = Tree().set_queue("x", "", {GPU: Quota(9)}).cell(GPU)
    three, two = holder("three", (cell, 3), (gpu, 1)), holder("two", (cell, 2))
    without = holder("without")
    without.charge = None
    found = entries(without, three, two)
    assert can_free(found, {CPU: 5, GPU: 1})
    assert not can_free(found, {CPU: 6})
    assert not can_free(found, {CPU: 5, GPU: 2})
    assert not can_free(found, {CPU: 6, GPU: 1})
    assert can_free(found, {CPU: 0})
    assert can_free([], {CPU: 0})
    assert can_free([], {})
    assert not can_free([], {CPU: 1})
    assert not can_free(entries(without), {CPU: 1})


def taken_from(cell: Cell, *amounts: int) -> list[Any]:
    """Victims that held these amounts of the cell, which are subtracted from its usage."""
    taken = []
    for number, amount in enumerate(amounts):
        own = [(cell, amount)]
        removed = Victim(holder(f"v{number}", *own), "InClusterQueue"), own
        remove_victim(removed)
        taken.append(removed)
    return taken


def filled(
    need: int, *amounts: int, borrowing: bool = True, nominal: int = 10, **given: Any
) -> list[str]:
    """The victims that are needed, of those that held these amounts and all of the quota."""
    cell, _ = cells(nominal=nominal, used=sum(amounts), **given)
    victims = fill_back(taken_from(cell, *amounts), {cell: need}, borrowing=borrowing)
    assert cell.usage == sum(amounts), "all usage is restored"
    return [victim.workload.key[1] for victim in victims]


@pytest.mark.parametrize(
    ("need", "amounts", "needed"),
    [
        pytest.param(3, (5, 5), ["v1"], id="the last one is enough"),
        pytest.param(6, (5, 5), ["v0", "v1"], id="both are needed"),
        pytest.param(5, (1, 4, 5), ["v2"], id="exactly enough"),
        pytest.param(6, (1, 4, 5), ["v0", "v2"], id="the larger one is tried and dropped first"),
        pytest.param(9, (4, 1, 5), ["v0", "v2"], id="the small one stays"),
        pytest.param(10, (4, 1, 5), ["v0", "v1", "v2"], id="all are needed"),
        pytest.param(2, (1, 1, 1, 1, 1, 1, 1, 1, 2), ["v8"], id="many are dropped at once"),
        pytest.param(
            5, (1, 1, 1, 1, 1, 1, 1, 1, 2), ["v0", "v1", "v2", "v8"], id="some of many stay"
        ),
        pytest.param(0, (5, 5), ["v1"], id="nothing is needed, and the last one stays"),
    ],
)
def test_only_victims_that_are_needed_stay(
    need: int, amounts: tuple[int, ...], needed: Sequence[str]
) -> None:
    assert sorted(filled(need, *amounts)) == sorted(needed)


def test_without_borrowing_victims_must_bring_it_within_nominal_quota() -> None:
    assert filled(2, 5, 5, nominal=8, other=2, borrowing=False) == ["v1"]
    assert filled(4, 5, 5, nominal=8, other=2, borrowing=False) == ["v0", "v1"]
    assert filled(4, 5, 5, nominal=8, other=2, borrowing=True) == ["v1"]


def test_a_victim_of_a_queue_that_keeps_quota_may_be_restored() -> None:
    mine, theirs = cells(nominal=0, other=0, cohort=4)
    tree = Tree()
    tree.set_cohort("co", "", {CPU: Quota(0)})
    tree.set_queue("a", "co", {CPU: Quota(4)})
    tree.set_queue("b", "co", {CPU: Quota(4, None, 0)})
    mine, theirs = tree.queues["a"].cell(CPU), tree.queues["b"].cell(CPU)
    theirs.charge(4)
    mine.charge(4)
    taken = [*taken_from(theirs, 4), *taken_from(mine, 4)]
    victims = fill_back(taken, {mine: 4}, borrowing=True)
    assert [victim.workload.charge for victim in victims if victim.workload.charge] == [
        taken[-1][0].workload.charge
    ], "what b keeps for itself was no help"
    assert (mine.usage, theirs.usage) == (4, 4)


def test_the_usage_of_a_victim_is_subtracted_and_charged_again() -> None:
    cell, _ = cells(used=3)
    victim = holder("v", (cell, 2))
    removed = Victim(victim, "InClusterQueue"), [(cell, 2)]
    remove_victim(removed)
    assert cell.usage == 1
    restore_victim(removed)
    assert cell.usage == 3
