"""The trees of cohorts and ClusterQueues, updated by every change of the configuration.

An edit of a node's quota changes only the numbers of the node and its ancestors. A ClusterQueue
that moves to another cohort keeps its usage. Source: `docs/spec/scheduling.md#1.4, #2, #8.1`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from admittance.quota.cell import NOTHING, UNLIMITED, Cell, FlavorResource, Quota


class Node:
    """A ClusterQueue or a cohort in a cohort tree.

    ``members``: the ClusterQueues directly below a cohort; ``active_members``: how many of its
    ``members`` are active. ``cohorts``: the cohorts directly below a cohort. ``height``: the number
    of levels of cohorts and active queues below the node. ``wanted_parent``: the parent that the
    cohort's manifest names, even if the cohort has another parent because its parents form a cycle.
    ``weight``: the node's weight in fair sharing. ``edition``: at the root of a tree, a number that
    rises with every change of the quotas in the tree. ``lendable``: the cached amounts of each
    resource that a cohort could lend, with the root and its edition for which the amounts were
    computed."""

    __slots__ = (
        "active_members",
        "cells",
        "cohorts",
        "edition",
        "explicit",
        "height",
        "is_active",
        "is_cohort",
        "lendable",
        "members",
        "name",
        "parent",
        "wanted_parent",
        "weight",
    )

    def __init__(self, name: str, *, is_cohort: bool) -> None:
        self.name = name
        self.is_cohort = is_cohort
        self.parent: Node | None = None
        self.wanted_parent = ""
        self.explicit = False
        self.members: dict[str, Node] = {}
        self.cohorts: dict[str, Node] = {}
        self.active_members = 0
        self.cells: dict[FlavorResource, Cell] = {}
        self.height = 0
        self.is_active = True
        self.weight = 1.0
        self.edition = 0
        self.lendable: tuple[Node, int, dict[str, int]] | None = None

    def cell(self, fr: FlavorResource) -> Cell:
        """Returns the node's cell for the flavor and resource; creates an empty cell if the node
        has none."""
        known = self.cells.get(fr)
        if known is None:
            known = self.cells[fr] = Cell(self, fr)
            if self.parent is not None:
                _link(known, self.parent)
        return known

    def root(self) -> Node:
        """Returns the root of the node's cohort tree."""
        node = self
        while node.parent is not None:
            node = node.parent
        return node

    def queues(self) -> Iterator[Node]:
        """Yields the ClusterQueues below the node, or the node itself if it is a ClusterQueue."""
        if not self.is_cohort:
            yield self
        yield from self.members.values()
        for cohort in self.cohorts.values():
            yield from cohort.queues()


class Tree:
    """All cohort trees, with the nodes of all cohorts and ClusterQueues by name."""

    def __init__(self) -> None:
        self.cohorts: dict[str, Node] = {}
        self.queues: dict[str, Node] = {}
        self._broken: set[str] = set()

    # Edges. ---------------------------------------------------------------------------------

    def set_queue(self, name: str, cohort: str, quotas: Mapping[FlavorResource, Quota]) -> Node:
        """Sets the quotas of a ClusterQueue and the cohort above it ("": no cohort). Returns the
        ClusterQueue's node."""
        node = self.queues.get(name)
        if node is None:
            node = self.queues[name] = Node(name, is_cohort=False)
        if (node.parent.name if node.parent else "") != cohort:
            self._leave(node)
            if cohort:
                self._join(node, self._cohort(cohort))
        _set_quotas(node, quotas)
        return node

    def drop_queue(self, name: str) -> Node | None:
        """Removes the ClusterQueue and its usage from its tree. Returns the removed node; None: the
        ClusterQueue does not exist."""
        node = self.queues.pop(name, None)
        if node is not None:
            self._leave(node)
        return node

    def set_cohort(self, name: str, parent: str, quotas: Mapping[FlavorResource, Quota]) -> Node:
        """Sets the quotas and the parent of a cohort that has a Cohort object ("": the cohort is a
        root). Returns the cohort's node."""
        node = self._cohort(name)
        node.explicit = True
        self._set_parent(node, parent)
        _set_quotas(node, quotas)
        return node

    def drop_cohort(self, name: str) -> None:
        """Removes the quotas and the parent of a cohort, because its Cohort object was deleted. A
        cohort with ClusterQueues or cohorts below it stays in the tree, as a root."""
        node = self.cohorts.get(name)
        if node is None:
            return
        node.explicit = False
        node.weight = 1.0
        self._set_parent(node, "")
        _set_quotas(node, {})
        self._prune(node)

    def set_active(self, name: str, *, active: bool) -> None:
        """Sets whether a ClusterQueue is active. The heights of cohorts ignore inactive
        ClusterQueues; quota and usage of an inactive ClusterQueue still count."""
        node = self.queues.get(name)
        if node is not None and node.is_active != active:
            node.is_active = active
            if node.parent is not None:
                node.parent.active_members += 1 if active else -1
                _heights(node.parent)

    def in_cycle(self, node: Node) -> bool:
        """Returns whether the cohorts above the node name each other as parents in a cycle."""
        return bool(self._broken) and node.root().name in self._broken and node.root().is_cohort

    def _cohort(self, name: str) -> Node:
        node = self.cohorts.get(name)
        if node is None:
            node = self.cohorts[name] = Node(name, is_cohort=True)
        return node

    def _set_parent(self, node: Node, parent: str) -> None:
        if node.wanted_parent == parent:
            return
        self._leave(node)
        self._broken.discard(node.name)
        node.wanted_parent = parent
        if parent:
            cycle = self._cycle_of(node)
            if not cycle:
                self._join(node, self._cohort(parent))
            else:
                # One cohort of the cycle of parents becomes a root, so that sums over the tree end.
                # The cohort that is first by name becomes the root: the root gives the domain its
                # name, which must not depend on the order of edits.
                first = min(cycle)
                if first != node.name:
                    self._leave(self.cohorts[first])
                    self._join(node, self._cohort(parent))
                self._broken.add(first)
        for name in sorted(self._broken):
            other = self.cohorts[name]
            if not self._cycle_of(other):
                self._broken.discard(name)
                self._join(other, self._cohort(other.wanted_parent))

    def _cycle_of(self, node: Node) -> list[str]:
        """Returns the names of the cohorts in the cycle of parents in which the node is, as
        manifests name the parents; empty: the node is in no cycle."""
        seen = [node.name]
        name = node.wanted_parent
        while name and name != node.name:
            if name in seen:
                return []
            seen.append(name)
            cohort = self.cohorts.get(name)
            name = cohort.wanted_parent if cohort is not None else ""
        return seen if name else []

    def _join(self, node: Node, parent: Node) -> None:
        node.parent = parent
        if node.is_cohort:
            parent.cohorts[node.name] = node
        else:
            parent.members[node.name] = node
            parent.active_members += node.is_active
        for cell in node.cells.values():
            _link(cell, parent)
        _renew(parent)
        _heights(parent)

    def _leave(self, node: Node) -> None:
        parent = node.parent
        if parent is None:
            return
        for cell in node.cells.values():
            _unlink(cell)
        node.parent = None
        if node.is_cohort:
            del parent.cohorts[node.name]
        else:
            del parent.members[node.name]
            parent.active_members -= node.is_active
        _renew(parent)
        _heights(parent)
        self._prune(parent)

    def _prune(self, node: Node) -> None:
        """Removes a cohort that has no Cohort object and nothing below it."""
        if node.is_cohort and not (node.explicit or node.members or node.cohorts):
            self._leave(node)
            self.cohorts.pop(node.name, None)


# Numbers. -----------------------------------------------------------------------------------


def _set_quotas(node: Node, quotas: Mapping[FlavorResource, Quota]) -> None:
    for fr in [*quotas, *(fr for fr in node.cells if fr not in quotas)]:
        quota = quotas.get(fr, NOTHING)
        cell = node.cell(fr)
        if (cell.nominal, cell.borrow, cell.lend) != quota:
            d_nominal = quota.nominal - cell.nominal
            lent, spill = cell.lent(), cell.spill()
            cell.nominal, cell.borrow, cell.lend = quota
            cell.raw += d_nominal
            _derive(cell)
            if cell.parent is not None:
                _move(cell.parent, cell.lent() - lent, cell.spill() - spill)
        _name(cell, named=fr in quotas)
        _drop_if_empty(cell, keep=fr in quotas)
    _renew(node)


def _renew(node: Node) -> None:
    """Raises the edition of the node's tree, so that results computed from its quotas are not used
    again."""
    node.root().edition += 1


def _name(cell: Cell, *, named: bool) -> None:
    """Sets whether the manifest of the cell's node names the cell's flavor and resource, and
    updates ``listed_below`` of the ancestors."""
    before = cell.is_listed
    cell.named = named
    if cell.is_listed != before and cell.parent is not None:
        _list_below(cell.parent, -1 if before else 1)


def _list_below(cell: Cell, change: int) -> None:
    before = cell.is_listed
    cell.listed_below += change
    if cell.is_listed != before and cell.parent is not None:
        _list_below(cell.parent, change)


def _derive(cell: Cell) -> None:
    cell.subtree = min(cell.raw, UNLIMITED)
    if cell.lend is None:
        cell.guaranteed = 0
    elif cell.subtree >= UNLIMITED:
        cell.guaranteed = UNLIMITED if cell.lend < UNLIMITED else 0
    else:
        cell.guaranteed = max(0, cell.subtree - cell.lend)


def _move(cell: Cell, d_raw: int, d_usage: int) -> None:
    """Adds the changes of a child to a cell and its ancestors. ``d_raw``: by how much the quota
    that the child lends has changed; ``d_usage``: by how much the child's usage beyond its
    guaranteed quota has changed."""
    while d_raw or d_usage:
        lent, spill = cell.lent(), cell.spill()
        cell.raw += d_raw
        cell.usage += d_usage
        if d_raw:
            _derive(cell)
        if cell.parent is None:
            return
        d_raw = cell.lent() - lent
        d_usage = cell.spill() - spill
        cell = cell.parent


def _link(cell: Cell, parent: Node) -> None:
    above = parent.cell(cell.fr)
    cell.parent = above
    above.children += 1
    if cell.is_listed:
        _list_below(above, 1)
    _move(above, cell.lent(), cell.spill())
    if cell.has_discount:
        cell.update_ancestors()


def _unlink(cell: Cell) -> None:
    above = cell.parent
    if above is None:
        return
    _move(above, -cell.lent(), -cell.spill())
    if cell.is_listed:
        _list_below(above, -1)
    if above.discounted_children is not None and cell in above.discounted_children:
        del above.discounted_children[cell]
        if not above.has_discount:
            above.update_ancestors()
    cell.parent = None
    above.children -= 1
    _drop_if_empty(above, keep=False)


def _drop_if_empty(cell: Cell, *, keep: bool) -> None:
    """Removes the cell of a cohort if it has no quota, usage or children: otherwise cells of former
    flavors would accumulate."""
    if keep or cell.children or cell.usage or cell.raw or cell.borrow is not None:
        return
    if cell.lend is not None or cell.node.cells.get(cell.fr) is not cell:
        return
    if not cell.node.is_cohort:
        return
    del cell.node.cells[cell.fr]
    _unlink(cell)


def _heights(node: Node) -> None:
    """Updates the heights of a cohort and its ancestors, up to the first ancestor with an unchanged
    height."""
    here: Node | None = node
    while here is not None:
        height = max((below.height + 1 for below in here.cohorts.values()), default=0)
        if not height and here.active_members:
            height = 1
        if height == here.height:
            return
        here.height = height
        here = here.parent
