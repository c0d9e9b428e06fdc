"""`Cell`: quota and usage of one flavor and resource at one node of a cohort tree, and the
arithmetic of amounts.

Amounts are whole accounting units (cpu in thousandths), limited to 64 bits; `UNLIMITED` means
"without limit", and a sum with it is `UNLIMITED`. A cell refers to the cell for the same flavor and
resource at its node's parent, so that charging usage to all ancestors needs no look-up. Source:
`docs/spec/scheduling.md#2, #8.1` point 1."""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol, TypeAlias

UNLIMITED: Final = 2**63 - 1
"""The largest signed 64-bit number, 2**63 - 1. A quota of 2**63 - 1 or more has no limit."""

LOWEST: Final = -(2**63)


def clamp(amount: int) -> int:
    """Returns the amount, limited to the range of signed 64-bit numbers."""
    if amount > UNLIMITED:
        return UNLIMITED
    if amount < LOWEST:
        return LOWEST
    return amount


def plus(a: int, b: int) -> int:
    """Returns ``a + b``, limited to 64 bits; `UNLIMITED` if one of them is unlimited."""
    if a >= UNLIMITED or b >= UNLIMITED:
        return UNLIMITED
    return clamp(a + b)


def minus(a: int, b: int) -> int:
    """Returns ``a - b``, limited to 64 bits. Unlimited minus unlimited is 0; another amount minus
    unlimited is the lowest 64-bit number."""
    if a >= UNLIMITED:
        return 0 if b >= UNLIMITED else UNLIMITED
    if b >= UNLIMITED:
        return LOWEST
    return clamp(a - b)


def times(amount: int, count: int) -> int:
    """Returns the amount that ``count`` pods of ``amount`` each need, limited to 64 bits."""
    return clamp(amount * count)


FlavorResource: TypeAlias = tuple[str, str]
"""The names of a flavor and of a resource. Each pair of a flavor and a resource has its own
quota."""


class Quota(NamedTuple):
    """The quota of one flavor and resource in the manifest of a ClusterQueue or Cohort. ``borrow``,
    ``lend``: the borrowingLimit and lendingLimit; None: no limit."""

    nominal: int = 0
    borrow: int | None = None
    lend: int | None = None


NOTHING = Quota()

_FAR: Final = UNLIMITED // 4


class CellNode(Protocol):
    """The fields of a node of a cohort tree that cells read. ``height``: the number of levels of
    cohorts and active queues below the node."""

    name: str
    is_cohort: bool
    height: int

    @property
    def cells(self) -> dict[FlavorResource, Cell]: ...


class Cell:
    """The quota and usage of one node for one flavor and resource.

    ``named``: the node's manifest names the flavor and resource; ``listed_below``: how many
    children of the node have the flavor and resource in their own manifest or in one below.
    ``discount``: the part of a queue's usage that does not count in shares of fair sharing;
    ``discounted_children``: the cells of the children with usage, at or below the child, that does
    not count in shares.

    Invariant: ``raw`` is the node's nominal quota plus the quota that each child lends, not limited
    to 64 bits; ``usage`` of a cohort is the sum of the usage of its children beyond their
    guaranteed quota. With this invariant, removing usage from a cell exactly undoes adding it, in
    any order."""

    __slots__ = (
        "borrow",
        "children",
        "discount",
        "discounted_children",
        "fr",
        "guaranteed",
        "lend",
        "listed_below",
        "named",
        "node",
        "nominal",
        "parent",
        "raw",
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
        self.discount = 0
        self.discounted_children: dict[Cell, None] | None = None

    @property
    def is_listed(self) -> bool:
        """Whether a manifest at or below the cell's node names the cell's flavor and resource. A
        cell that no manifest names exists only because of usage."""
        return self.named or self.listed_below > 0

    def lent(self) -> int:
        """Returns the quota that the cell's node lends to its parent: all of its subtree's quota
        that is not guaranteed."""
        return minus(self.subtree, self.guaranteed)

    def spill(self) -> int:
        """Returns the usage that counts at the parent too: the usage beyond guaranteed quota."""
        over = self.usage - self.guaranteed
        return over if over > 0 else 0

    def local_free(self) -> int:
        """Returns how much of the cell's guaranteed quota is not used."""
        free = self.guaranteed - self.usage
        return free if free > 0 else 0

    def charge(self, amount: int) -> None:
        """Adds the amount to the usage of the cell, and to each ancestor the part beyond the
        guaranteed quota of the cell below it. A charge of the negative amount undoes a charge
        exactly."""
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
    def has_discount(self) -> bool:
        """Whether some usage at or below the cell's node does not count in shares of fair
        sharing."""
        return self.discount != 0 or bool(self.discounted_children)

    def add_discount(self, amount: int) -> None:
        """Adds to the part of a queue's usage that does not count in shares of fair sharing."""
        self.discount += amount
        self.update_ancestors()

    def update_ancestors(self) -> None:
        """Updates ``discounted_children`` of the cells above this cell."""
        cell = self
        while cell.parent is not None:
            above = cell.parent
            was = above.has_discount
            if cell.has_discount:
                if above.discounted_children is None:
                    above.discounted_children = {}
                above.discounted_children[cell] = None
            elif above.discounted_children is not None:
                above.discounted_children.pop(cell, None)
            if above.has_discount is was:
                return
            cell = above

    def root(self) -> Cell:
        """Returns the cell for the same flavor and resource at the root of the cohort tree."""
        cell = self
        while cell.parent is not None:
            cell = cell.parent
        return cell


def available(cell: Cell) -> int:
    """Returns how much more of the cell's flavor and resource may be used at its node now. The
    result is negative if the present usage exceeds the quota."""
    subtree, usage, parent = cell.subtree, cell.usage, cell.parent
    if parent is None:
        return minus(subtree, usage) if subtree >= UNLIMITED else subtree - usage
    if parent.parent is None and parent.subtree < UNLIMITED:
        above = parent.subtree - parent.usage  # Most trees have two levels: saves a call.
    else:
        above = available(parent)
    guaranteed = cell.guaranteed
    borrow = cell.borrow
    if borrow is not None:
        over = usage - guaranteed
        if over < 0:
            over = 0
        cap = subtree - guaranteed - over + borrow
        # Numbers far from the 64-bit limits need no `plus` and `minus`. The check for such numbers
        # saves time: the scheduler calls no other function as often as this one.
        if not (subtree < _FAR and over < _FAR and borrow < _FAR):
            cap = plus(minus(minus(subtree, guaranteed), over), borrow)
        if cap < above:
            above = cap
    free = guaranteed - usage
    return plus(free, above) if free > 0 else above


def potential(cell: Cell) -> int:
    """Returns how much of the cell's flavor and resource could be used at its node if the whole
    tree had no usage."""
    if cell.parent is None:
        return cell.subtree
    most = plus(cell.guaranteed, potential(cell.parent))
    if cell.borrow is None:
        return most
    return min(most, plus(cell.subtree, cell.borrow))


def is_over(cell: Cell, amount: int = 0) -> bool:
    """Returns whether the node would borrow from its parent if it used ``amount`` more."""
    return cell.subtree < cell.usage + amount and cell.subtree < UNLIMITED


def borrow_level(cell: Cell, amount: int) -> tuple[int, bool]:
    """Returns the height of the lowest subtree with the cell's node in which the amount fits into
    the subtree's quota, and whether that subtree is only a part of the tree, so that the amount may
    be reclaimed from the rest of the tree. Height 0: the amount fits into the node's own quota."""
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
