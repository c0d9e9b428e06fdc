"""The share of a ClusterQueue or cohort: what it borrows, relative to what the cohort above it can
lend.

Source: `docs/spec/scheduling.md#7.1, #7.2`. Fair sharing compares the shares of nodes below the
same cohort."""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from admittance.quota.cell import UNLIMITED, Cell, FlavorResource, is_over, plus, potential
from admittance.quota.tree import Node

Standing = tuple[int, float]
"""The key by which the shares of ClusterQueues and cohorts are compared; the one with the smaller
key comes first."""


class Share(NamedTuple):
    """The share of a node of a cohort tree. ``ratio``: borrowed to lendable quota of the dominant
    resource, in thousandths; 0 if the cohort above can lend nothing of that resource.
    ``borrowing``: whether the node borrows any resource."""

    ratio: float
    weight: float
    borrowing: bool
    resource: str = ""

    @property
    def standing(self) -> Standing:
        """The weighted share. The key by which the share is compared with others. The share of a
        borrowing node with weight 0 is above all others; two such shares are compared by their
        ratio."""
        if self.ratio == 0:
            return 0, 0.0
        return (1, self.ratio) if self.weight == 0 else (0, self.ratio / self.weight)

    @property
    def shown(self) -> int:
        """The share as metrics and replies show it: rounded up; UNLIMITED for a borrowing node with
        weight 0."""
        above, value = self.standing
        return UNLIMITED if above else ceil(value)


def share_of(node: Node) -> Share:
    """Returns the dominant resource share of the node; 0 for a root. The amounts of all flavors of
    a resource are summed."""
    if node.parent is None:
        return Share(0.0, node.weight, False)
    borrowed: dict[str, int] = {}
    for fr, cell in node.cells.items():
        subtree = cell.subtree
        over = cell.usage - subtree
        # The conditions of `is_over` and `is_listed` are inlined for speed: this code runs for
        # every node above every victim.
        if over > 0 and subtree < UNLIMITED and (cell.named or cell.listed_below > 0):
            if cell.discount or cell.discounted_children:
                over = max(0, over - uncounted_usage(cell))
            borrowed[fr[1]] = borrowed.get(fr[1], 0) + over
    if not borrowed:
        return Share(0.0, node.weight, False)
    lendable = lendable_of(node.parent)
    ratio, dominant = 0.0, ""
    for resource in sorted(borrowed) if len(borrowed) > 1 else borrowed:
        could = lendable.get(resource, 0)
        if could > 0:
            # The float operations must always be in this order, so that equal shares are exactly
            # equal: ties decide about victims.
            share = float(borrowed[resource]) * 1000.0 / float(could)
            if share > ratio:
                ratio, dominant = share, resource
    return Share(ratio, node.weight, True, dominant)


def uncounted_usage(cell: Cell) -> int:
    """Returns the usage of the cell that does not count in shares, including such usage that cells
    below pass up to this cell, beyond their guaranteed quota."""
    total = cell.discount
    for child in cell.discounted_children or ():
        spills = child.usage - child.guaranteed
        total += max(0, spills) - max(0, spills - uncounted_usage(child))
    return total


def lendable_of(cohort: Node) -> dict[str, int]:
    """Returns for each resource the amount, over all flavors, that could be used in the cohort if
    the cohort tree had no usage. The result is cached until a quota of the tree changes."""
    root = cohort.root()
    # The edition is read before the sums are computed: metrics call this function in another
    # thread, and a sum from before an edit of a quota must not be cached as one from after that
    # edit.
    edition = root.edition
    known = cohort.lendable
    if known is None or known[0] is not root or known[1] != edition:
        total: dict[str, int] = {}
        for fr in tuple(root.cells):
            total[fr[1]] = plus(total.get(fr[1], 0), _potential_at(cohort, fr))
        known = cohort.lendable = root, edition, total
    return known[2]


def _potential_at(node: Node, fr: FlavorResource) -> int:
    """Returns the amount of a flavor and resource that could be used at the node if the tree had no
    usage. A cohort with a manifest that does not name the flavor has what its parent can give."""
    here: Node | None = node
    while here is not None:
        cell = here.cells.get(fr)
        if cell is not None:
            return potential(cell)
        here = here.parent
    return 0


def is_borrowing_on(node: Node, frs: list[FlavorResource]) -> bool:
    """Whether the node borrows one of these flavors and resources from its parent."""
    return node.parent is not None and any(
        (cell := node.cells.get(fr)) is not None and is_over(cell) for fr in frs
    )
