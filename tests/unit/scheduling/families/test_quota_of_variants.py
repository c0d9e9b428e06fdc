"""Quota that variants of one family share counts once, at the largest amount of a variant."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from admittance.events.shapes import PendingPreemption
from admittance.quota.cell import Cell, Quota
from admittance.quota.tree import Tree
from admittance.scheduling.state.held.shared_quota import FamilyQuota

GPU = ("default", "gpu")


@dataclass(eq=False)
class Held:
    """The charge of a variant."""

    cells: list[tuple[Cell, int]]


@dataclass(eq=False)
class Variant:
    """A variant with these GPUs."""

    charge: Held
    loses_quota: bool = False
    shared_quotas: tuple[object, ...] = ()
    pending_preemption: PendingPreemption | None = None


def a_family(*gpus: int) -> tuple[Cell, FamilyQuota[Variant], list[Variant]]:
    tree = Tree()
    cell = tree.set_queue("cq", "co", {GPU: Quota(4)}).cell(GPU)
    quota = FamilyQuota[Variant]()
    variants = []
    for amount in gpus:
        variant = Variant(Held([(cell, amount)]))
        cell.charge(amount)
        quota.join(variant, variant.charge.cells)
        variants.append(variant)
    return cell, quota, variants


@pytest.mark.parametrize("gpus", [(8,), (8, 8), (3, 8), (8, 3), (1, 8, 5)])
def test_the_largest_amount_of_a_variant_counts_for_the_family(gpus: tuple[int, ...]) -> None:
    cell, quota, variants = a_family(*gpus)
    assert cell.usage == quota.largest(cell) == quota.reliable(cell) == 8
    assert quota.amounts() == [(cell, 8)]
    for variant in variants:
        cell.charge(-variant.charge.cells[0][1])
        quota.leave(variant, variant.charge.cells)
    assert (cell.usage, quota.largest(cell), quota.amounts()) == (0, 0, [])


def test_an_excluded_variant_frees_what_only_that_variant_holds() -> None:
    cell, quota, (small, large) = a_family(3, 8)
    used = []
    for variants in ([small], [large], [small, large], [large, small]):
        for variant in variants:
            cell.charge(-variant.charge.cells[0][1])
            quota.exclude(variant)
        used.append((cell.usage, quota.largest(cell), quota.reliable(cell)))
        for variant in variants:
            cell.charge(variant.charge.cells[0][1])
            quota.include(variant)
        assert cell.usage == 8
    assert used == [(8, 8, 8), (3, 3, 3), (0, 0, 0), (0, 0, 0)]


def test_a_variant_that_leaves_while_it_is_excluded_counts_again_when_it_joins() -> None:
    cell, quota, (small, large) = a_family(3, 8)
    cell.charge(-8)
    quota.exclude(large)
    quota.leave(large, large.charge.cells)
    assert cell.usage == quota.largest(cell) == 3
    cell.charge(8)
    quota.join(large, large.charge.cells)
    assert cell.usage == quota.largest(cell) == 8
    assert small in quota.members


@pytest.mark.parametrize(("losing", "reliable"), [((), 8), ((0,), 8), ((1,), 3), ((0, 1), 0)])
def test_quota_that_a_variant_is_about_to_lose_is_not_reliable(
    losing: tuple[int, ...], reliable: int
) -> None:
    cell, quota, variants = a_family(3, 8)
    for number in losing:
        variants[number].loses_quota = True
    assert (quota.largest(cell), quota.reliable(cell)) == (8, reliable)


@pytest.mark.parametrize(
    ("gpus", "asked", "missing"),
    [
        pytest.param((3, 8), 10, 2, id="more than the family holds"),
        pytest.param((3, 8), 8, None, id="as much as the family holds"),
        pytest.param((3, 8), 5, None, id="less than the family holds"),
        pytest.param((), 5, 5, id="the family holds nothing"),
        pytest.param((), 0, 0, id="nothing is asked for, and nothing held"),
    ],
)
def test_a_further_variant_needs_what_exceeds_the_family_s_quota(
    gpus: tuple[int, ...], asked: int, missing: int | None
) -> None:
    cell, quota, _ = a_family(*gpus)
    assert quota.missing_for({cell: asked}) == ({} if missing is None else {cell: missing})


def test_the_end_of_a_variant_frees_what_no_sibling_holds() -> None:
    cell, quota, (small, large) = a_family(3, 8)
    assert quota.freed_without(small) == []
    assert quota.freed_without(large) == [(cell, 5)]
    cell.charge(-3)
    quota.exclude(small)
    assert quota.freed_without(large) == [(cell, 8)]


def test_usage_of_variants_that_do_not_count_is_left_out_of_shares() -> None:
    cell, quota, (small, large) = a_family(3, 8)
    quota.shares = True
    discounts = []
    for counts in (small, large, small, None):
        quota.count(counts)
        discounts.append(cell.discount)
    assert discounts == [5, 0, 5, 0]
    quota.count(small)
    quota.assume({cell: 2})
    assert (cell.usage, cell.discount) == (10, 0), "the further variant counts"
    quota.end_assumption()
    assert (cell.usage, cell.discount) == (8, 5)
