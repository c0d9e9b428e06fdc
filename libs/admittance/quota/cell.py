"""One flavor and resource at one node of the cohort tree: the numbers and their arithmetic.

A cell points at the cell of the same flavor and resource at its node's parent, so that charging
and asking walk a few pointers and look nothing up.
Source: `docs/spec/scheduling.md#2, #8.1` point 1.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol, TypeAlias

from admittance.quota.amounts import UNLIMITED, minus, plus

FlavorResource: TypeAlias = tuple[str, str]
"""Flavor and resource: what quota is counted in. No flavor substitutes for another."""


class Quota(NamedTuple):
    """What a manifest says of one flavor and resource. None: borrow, or lend, without limit."""

    nominal: int = 0
    borrow: int | None = None
    lend: int | None = None


NOTHING = Quota()

_FAR: Final = UNLIMITED // 4


class CellNode(Protocol):
    """The node of the cohort tree that a cell belongs to, as far as cells need to know it.
    ``height``: levels of cohorts and queues below."""

    name: str
    is_cohort: bool
    height: int

    @property
    def cells(self) -> dict[FlavorResource, Cell]: ...


class Cell:
    """The numbers of one node for one flavor and resource.

    Invariant: ``raw`` is the node's nominal quota plus what each child lends, unclamped, and
    ``usage`` of a cohort is the sum of what spills out of its children; so adding and removing
    are exact inverses in any order. ``named``: the node's manifest names it;
    ``listed_below``: of how many children a manifest at or below them does.
    """

    __slots__ = (
        "borrow",
        "children",
        "fr",
        "guaranteed",
        "lend",
        "lighter",
        "listed_below",
        "named",
        "node",
        "nominal",
        "parent",
        "raw",
        "spare",
        "subtree",
        "usage",
    )

    def __init__(self, node: CellNode, fr: FlavorResource) -> None:
        self.node = node
        self.fr = fr
        self.parent: Cell | None = None
        self.children = 0
        self.nominal = 0
        self.borrow: int | None = None
        self.lend: int | None = None
        self.raw = 0
        self.subtree = 0
        self.guaranteed = 0
        self.usage = 0
        self.named = False
        self.listed_below = 0
        self.spare = 0
        self.lighter: dict[Cell, None] | None = None

    @property
    def is_listed(self) -> bool:
        """A manifest at or below the node names it; else only usage is left of it."""
        return self.named or self.listed_below > 0

    def lent(self) -> int:
        """What the parent sees of this node's capacity."""
        return minus(self.subtree, self.guaranteed)

    def spill(self) -> int:
        """What the parent sees of this node's usage."""
        over = self.usage - self.guaranteed
        return over if over > 0 else 0

    def local_free(self) -> int:
        """Private capacity that is not used."""
        free = self.guaranteed - self.usage
        return free if free > 0 else 0

    def charge(self, amount: int) -> None:
        """Count amount as used here, and what is not absorbed further up. A negative amount takes
        it away again, exactly."""
        cell = self
        while amount:
            guaranteed = cell.guaranteed
            before = cell.usage - guaranteed
            cell.usage += amount
            after = before + amount
            amount = (after if after > 0 else 0) - (before if before > 0 else 0)
            parent = cell.parent
            if parent is None:
                return
            cell = parent

    @property
    def is_lighter(self) -> bool:
        """Something that is used at or below the node does not count in shares."""
        return self.spare != 0 or bool(self.lighter)

    def lighten(self, amount: int) -> None:
        """Of what is used here, so much more does not count in shares. Of a queue's cell only."""
        self.spare += amount
        self.tell_lighter()

    def tell_lighter(self) -> None:
        """Lets the cells above know whether something here does not count in shares."""
        cell = self
        while cell.parent is not None:
            above = cell.parent
            was = above.is_lighter
            if cell.is_lighter:
                if above.lighter is None:
                    above.lighter = {}
                above.lighter[cell] = None
            elif above.lighter is not None:
                above.lighter.pop(cell, None)
            if above.is_lighter is was:
                return
            cell = above

    def root(self) -> Cell:
        """The cell of the tree's root."""
        cell = self
        while cell.parent is not None:
            cell = cell.parent
        return cell


def available(cell: Cell) -> int:
    """What may still be used here now. Negative when the tree is in debt."""
    subtree, usage, parent = cell.subtree, cell.usage, cell.parent
    if parent is None:
        return minus(subtree, usage) if subtree >= UNLIMITED else subtree - usage
    above = available(parent)
    guaranteed = cell.guaranteed
    borrow = cell.borrow
    if borrow is not None:
        over = usage - guaranteed
        if over < 0:
            over = 0
        cap = subtree - guaranteed - over + borrow
        # Numbers far from both ends need no saturating; this is asked more than anything else.
        if not (subtree < _FAR and over < _FAR and borrow < _FAR):
            cap = plus(minus(minus(subtree, guaranteed), over), borrow)
        if cap < above:
            above = cap
    free = guaranteed - usage
    return plus(free, above) if free > 0 else above


def potential(cell: Cell) -> int:
    """What could be used here if the whole tree were empty."""
    if cell.parent is None:
        return cell.subtree
    most = plus(cell.guaranteed, potential(cell.parent))
    if cell.borrow is None:
        return most
    return min(most, plus(cell.subtree, cell.borrow))


def is_over(cell: Cell, amount: int = 0) -> bool:
    """With amount more, the node would take from its parent."""
    return cell.subtree < cell.usage + amount and cell.subtree < UNLIMITED


def borrow_level(cell: Cell, amount: int) -> tuple[int, bool]:
    """How high in the tree one must go to find amount, and whether a proper subtree is entitled
    to it, so that it may be reclaimed from outside. Level 0: within own nominal quota."""
    parent = cell.parent
    if parent is None or not is_over(cell, amount):
        return 0, parent is not None
    rest = amount - cell.local_free()
    while True:
        if not is_over(parent, rest):
            return parent.node.height, parent.parent is not None
        rest -= parent.local_free()
        if parent.parent is None:
            return parent.node.height, False
        parent = parent.parent
