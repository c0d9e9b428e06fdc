"""One flavor and resource at one node of the cohort tree: its numbers and their arithmetic.

Amounts are whole accounting units (cpu in thousandths), saturating at 64 bits; `UNLIMITED` means
"without limit" and stays so in sums. A cell points at the cell of the same flavor and resource at
its node's parent, so that charging follows a few pointers and looks nothing up. Source:
`docs/spec/scheduling.md#2, #8.1` point 1.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol, TypeAlias

UNLIMITED: Final = 2**63 - 1
"""The largest 64-bit number. A quota of 2**63 - 1 or more has no limit."""

LOWEST: Final = -(2**63)


def clamp(amount: int) -> int:
    """Returns the amount, limited to the range of 64-bit numbers."""
    if amount > UNLIMITED:
        return UNLIMITED
    if amount < LOWEST:
        return LOWEST
    return amount


def plus(a: int, b: int) -> int:
    """Returns a + b. Unlimited plus anything is unlimited."""
    if a >= UNLIMITED or b >= UNLIMITED:
        return UNLIMITED
    return clamp(a + b)


def minus(a: int, b: int) -> int:
    """Returns a - b. Unlimited minus unlimited is 0; anything else minus unlimited is the lowest
    64-bit number."""
    if a >= UNLIMITED:
        return 0 if b >= UNLIMITED else UNLIMITED
    if b >= UNLIMITED:
        return LOWEST
    return clamp(a - b)


def times(amount: int, count: int) -> int:
    """Returns the amount for ``count`` pods, ``amount`` each, saturating."""
    return clamp(amount * count)


FlavorResource: TypeAlias = tuple[str, str]
"""Flavor and resource: the unit in which quota is counted."""


class Quota(NamedTuple):
    """The quota of one flavor and resource in a manifest. A limit of None: the node may borrow or
    lend without limit."""

    nominal: int = 0
    borrow: int | None = None
    lend: int | None = None


NOTHING = Quota()

_FAR: Final = UNLIMITED // 4


class CellNode(Protocol):
    """The fields of a node that cells read. ``height``: the number of levels of cohorts and queues
    below the node."""

    name: str
    is_cohort: bool
    height: int

    @property
    def cells(self) -> dict[FlavorResource, Cell]: ...


class Cell:
    """The quota and usage of one node for one flavor and resource.

    ``named``: the node's manifest names the flavor and resource; ``listed_below``: the number of
    children for which a manifest at or below the child names them. ``discount``: usage of a queue
    that does not count in shares; ``discounted_children``: the children where such usage exists at
    or below the child.

    Invariant: ``raw`` is the node's nominal quota plus what each child lends, not clamped, and
    ``usage`` of a cohort is the sum of what its children use beyond their guaranteed quota. Adding
    and removing usage are therefore exact inverses in any order.
    """

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
        """Whether a manifest at or below the node names the flavor and resource. A cell that no
        manifest names exists only because of usage."""
        return self.named or self.listed_below > 0

    def lent(self) -> int:
        """Returns the capacity of this node that its parent sees."""
        return minus(self.subtree, self.guaranteed)

    def spill(self) -> int:
        """Returns the usage of this node that its parent sees."""
        over = self.usage - self.guaranteed
        return over if over > 0 else 0

    def local_free(self) -> int:
        """Returns the guaranteed quota that is not used."""
        free = self.guaranteed - self.usage
        return free if free > 0 else 0

    def charge(self, amount: int) -> None:
        """Adds the amount to the usage of the cell, and to each ancestor the part that exceeds
        guaranteed quota. A negative amount undoes a charge exactly."""
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
        """Whether some usage at or below the node does not count in shares."""
        return self.discount != 0 or bool(self.discounted_children)

    def add_discount(self, amount: int) -> None:
        """Increases the usage of a queue's cell that does not count in shares."""
        self.discount += amount
        self.update_ancestors()

    def update_ancestors(self) -> None:
        """Records at the cells above whether some usage at or below this cell does not count in
        shares."""
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
        """Returns the cell of the same flavor and resource at the root of the tree."""
        cell = self
        while cell.parent is not None:
            cell = cell.parent
        return cell


def available(cell: Cell) -> int:
    """Returns how much quota may still be used at the cell now. The result is negative if more is
    used than quota allows."""
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
        # Numbers far from both 64-bit limits need no saturation. The shortcut exists because this
        # function is called most often of all.
        if not (subtree < _FAR and over < _FAR and borrow < _FAR):
            cap = plus(minus(minus(subtree, guaranteed), over), borrow)
        if cap < above:
            above = cap
    free = guaranteed - usage
    return plus(free, above) if free > 0 else above


def potential(cell: Cell) -> int:
    """Returns how much quota could be used at the cell if the whole tree were empty."""
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
    """Returns the height of the lowest node that has the amount free, and whether it may be
    reclaimed because a proper subtree is entitled to it. Height 0: the amount fits within the
    node's own nominal quota."""
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
