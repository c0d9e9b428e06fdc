"""The page of queues: the cohort tree, with the quota of each flavor as a bar.

The nominal quota stands at 56 % of the width in every row, so that what is right of it is always
borrowed. A bar ends at 164 % of the nominal quota.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec
from msgspec.structs import replace

from admittance.events.requests.queues import LastDay, NodeStatus, QueueStatus
from admittance.web.paths import queue_path, queues_path
from admittance.web.views.sparks import CHARTS_MAX, Day, Now, day
from admittance.web.views.words import GPU, Link, number, unit

NOMINAL: Final = 56.0
END: Final = 92.0
"""Where a bar ends, in percent."""
ROWS_MAX: Final = 500


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """The quota of one flavor in one row; widths in percent. ``resv``: reserved, not admitted, at
    the end of ``own``; ``lent``: quota that others use, at the end of the nominal quota;
    ``overflow``: the use goes beyond the end."""

    flavor: str
    own: float
    borrowed: float
    resv: float
    lent: float
    overflow: bool
    used: str
    nominal: str
    more: str
    label: str


class TreeRow(msgspec.Struct, frozen=True, kw_only=True):
    """A cohort or a queue. ``fold``: hides or shows the rows below a cohort; ``folded``: they are
    hidden. ``cells``: None for a flavor that it does not have. ``used`` and ``nominal``: of all
    flavors together, in accounting units. ``share``: its weighted share under fair sharing."""

    id: str
    depth: int
    is_cohort: bool
    name: str
    link: Link | None
    fold: Link | None = None
    folded: bool = False
    cells: tuple[Cell | None, ...]
    waiting: int
    running: int
    used: int
    nominal: int
    share: str
    trouble: str


class QueuesView(msgspec.Struct, frozen=True, kw_only=True):
    """``resources``: those to choose from, with the chosen one. ``more``: how many rows are left
    out. ``day``: the last 24 hours of the rows; None: of a past moment."""

    title: str
    say: str
    unit: str
    resource: str
    resources: tuple[Link, ...]
    flavors: tuple[str, ...]
    rows: tuple[TreeRow, ...]
    more: int
    day: Day | None = None


class _Sum:
    """Quota and use of one flavor, of a queue or of all queues below a cohort."""

    def __init__(self) -> None:
        self.nominal = self.used = self.admitted = self.borrowed = self.lent = 0

    def add(self, other: _Sum) -> None:
        self.nominal += other.nominal
        self.used += other.used


def build(
    queues: Sequence[QueueStatus],
    trees: Iterable[Sequence[NodeStatus]],
    resource: str | None = None,
    folded: frozenset[str] = frozenset(),
) -> QueuesView:
    """The view of ClusterQueues. ``trees``: the cohort trees that the user may see, each with the
    root first. ``resource``: the one of the shown quota; None: the scarcest kind of which there
    is quota. ``folded``: the
    cohorts without the rows below them."""
    resources = list(dict.fromkeys(row.resource for queue in queues for row in queue.usage))
    in_use = {
        row.resource for queue in queues for row in queue.usage if row.nominal or row.reserved
    }
    with_quota = [name for name in resources if name in in_use]
    shown = resource if resource in resources else _first(with_quota or resources)
    of_queue = {queue.name: _sums(queue, shown) for queue in queues}
    rows: list[TreeRow] = []
    flavors = tuple(
        dict.fromkeys(
            row.flavor for queue in queues for row in queue.usage if row.resource == shown
        )
    )
    by_name = {queue.name: queue for queue in queues}
    seen: set[str] = set()
    for tree in trees:
        rows += _rows_of_tree(tree, by_name, of_queue, flavors, shown, folded)
        seen |= {node.name for node in tree if node.kind != "Cohort"}
    for queue in queues:
        if queue.name not in seen:
            rows.append(_row_of_queue(queue, 0, of_queue[queue.name], flavors, shown))
    waiting = sum(queue.pending for queue in queues)
    running = sum(queue.admitted for queue in queues)
    return QueuesView(
        title=f"{waiting:,} wait, {running:,} admitted",
        say=_say(of_queue.values(), flavors, shown, waiting, running),
        unit=unit(shown),
        resource=shown,
        resources=tuple(Link(name, queues_path(name, folded)) for name in resources),
        flavors=flavors,
        rows=tuple(rows[:ROWS_MAX]),
        more=max(0, len(rows) - ROWS_MAX),
    )


def cells_of(queue: QueueStatus) -> tuple[tuple[str, ...], dict[str, tuple[Cell | None, ...]]]:
    """The flavors of a queue, and its cells in their order, by resource."""
    flavors = tuple(dict.fromkeys(row.flavor for row in queue.usage))
    resources = dict.fromkeys(row.resource for row in queue.usage)
    return flavors, {
        name: _cells(f"{queue.name}, {name}", _sums(queue, name), flavors, name)
        for name in resources
    }


def rows_with_charts(view: QueuesView) -> list[Now]:
    """The first rows of the page, which get charts of the last 24 hours."""
    return [
        Now(
            id=row.id,
            name=row.name,
            is_cohort=row.is_cohort,
            waiting=row.waiting,
            used=row.used,
            nominal=row.nominal,
        )
        for row in view.rows[:CHARTS_MAX]
    ]


def with_day(view: QueuesView, rows: Sequence[Now], last: LastDay, now: datetime) -> QueuesView:
    """The view with charts of the last 24 hours. ``rows``: of `rows_with_charts`."""
    more = len(view.rows) > len(rows)
    return replace(view, day=day(rows, last, view.resource, now, more=more))


def _first(resources: Sequence[str]) -> str:
    for name in (GPU, *(name for name in resources if "/" in name), "cpu"):
        if name in resources:
            return name
    return resources[0] if resources else ""


def _sums(queue: QueueStatus, resource: str) -> dict[str, _Sum]:
    sums: dict[str, _Sum] = {}
    for row in queue.usage:
        if row.resource == resource:
            made = sums.setdefault(row.flavor, _Sum())
            made.nominal, made.used = row.nominal, row.reserved
            made.admitted, made.borrowed = row.admitted, row.borrowed
    return sums


def _rows_of_tree(
    tree: Sequence[NodeStatus],
    queues: Mapping[str, QueueStatus],
    of_queue: Mapping[str, Mapping[str, _Sum]],
    flavors: Sequence[str],
    resource: str,
    folded: frozenset[str],
) -> Iterator[TreeRow]:
    """The rows of a tree without those below a folded cohort."""
    hidden_below: int | None = None  # the depth of the folded cohort above
    for node in tree:
        if hidden_below is not None and node.depth > hidden_below:
            continue
        hidden_below = None
        if node.kind != "Cohort":
            queue = queues.get(node.name)
            if queue is None:
                continue
            own = of_queue[node.name]
            for usage in node.usage:
                if usage.resource == resource and usage.flavor in own:
                    own[usage.flavor].lent = usage.lent
            yield _row_of_queue(queue, node.depth, own, flavors, resource, node)
            continue
        sums = _sums_of_cohort(node, resource)
        is_folded = node.name in folded
        if is_folded:
            hidden_below = node.depth
        yield TreeRow(
            id=f"cohort-{node.name}",
            depth=node.depth,
            is_cohort=True,
            name=node.name,
            link=None,
            fold=Link(
                f"{'Unfold' if is_folded else 'Fold'} {node.name}",
                queues_path(resource, folded ^ {node.name}),
            ),
            folded=is_folded,
            cells=_cells(node.name, sums, flavors, resource),
            waiting=node.pending,
            running=node.running,
            used=sum(made.used for made in sums.values()),
            nominal=sum(made.nominal for made in sums.values()),
            share=_share(node),
            trouble="Its parents form a cycle." if node.in_cycle else "",
        )


def _sums_of_cohort(node: NodeStatus, resource: str) -> dict[str, _Sum]:
    sums: dict[str, _Sum] = {}
    for usage in node.usage:
        if usage.resource == resource:
            made = sums[usage.flavor] = _Sum()
            made.nominal, made.used = usage.total, usage.used
            made.admitted, made.lent = usage.admitted, usage.lent
            made.borrowed = max(0, made.used - made.nominal)
    return sums


def _row_of_queue(
    queue: QueueStatus,
    depth: int,
    sums: Mapping[str, _Sum],
    flavors: Sequence[str],
    resource: str,
    node: NodeStatus | None = None,
) -> TreeRow:
    return TreeRow(
        id=f"queue-{queue.name}",
        depth=depth,
        is_cohort=False,
        name=queue.name,
        link=Link(queue.name, queue_path(queue.name)),
        cells=_cells(queue.name, sums, flavors, resource),
        waiting=queue.pending,
        running=queue.admitted,
        used=sum(made.used for made in sums.values()),
        nominal=sum(made.nominal for made in sums.values()),
        share=_share(node) if node is not None else "",
        trouble="" if queue.active else queue.message or queue.reason or "It is not active.",
    )


def _share(node: NodeStatus) -> str:
    return f"{node.share / 1000:.3g}" if node.share else ""


def _cells(
    name: str, sums: Mapping[str, _Sum], flavors: Sequence[str], resource: str
) -> tuple[Cell | None, ...]:
    return tuple(
        _cell(name, flavor, sums[flavor], resource) if flavor in sums else None
        for flavor in flavors
    )


def _cell(name: str, flavor: str, made: _Sum, resource: str) -> Cell:
    def text(much: int) -> str:
        return number(resource, much)

    scale = NOMINAL / made.nominal if made.nominal else END / max(1, made.used)
    own_amount = min(made.used, made.nominal)
    borrowed_amount = made.used - own_amount
    reserved = max(0, made.used - made.admitted)
    borrowed = min(borrowed_amount * scale, END - own_amount * scale)
    said = f"{name}, {flavor}: {text(made.used)} of {text(made.nominal)} nominal used"
    extras = []
    if borrowed_amount:
        said += f", {text(borrowed_amount)} borrowed"
        extras.append(f"+{text(borrowed_amount)}")
    if reserved:
        said += f", {text(reserved)} reserved, not admitted"
        extras.append(f"{text(reserved)} resv.")
    if made.lent:
        said += f", {text(made.lent)} lent"
        extras.append(f"{text(made.lent)} lent")
    return Cell(
        flavor=flavor,
        own=round(own_amount * scale, 2),
        borrowed=round(borrowed, 2),
        resv=round(min(reserved, own_amount) * scale, 2),
        lent=round(made.lent * scale, 2),
        overflow=bool(made.nominal) and made.used * scale > END,
        used=text(made.used),
        nominal=text(made.nominal),
        more=" · ".join(extras),
        label=said,
    )


def _say(
    sums: Iterable[Mapping[str, _Sum]],
    flavors: Sequence[str],
    resource: str,
    waiting: int,
    running: int,
) -> str:
    """The sentence above the tree: which flavors are full, and what is idle."""
    if not flavors:
        return "There is no quota yet: apply a ClusterQueue."
    total = {flavor: _Sum() for flavor in flavors}
    for of in sums:
        for flavor, made in of.items():
            total[flavor].add(made)
    full = [flavor for flavor in flavors if total[flavor].used >= total[flavor].nominal > 0]
    idle = sum(max(0, made.nominal - made.used) for made in total.values())
    named = ", ".join(full[:3]) + (f" and {len(full) - 3} more" if len(full) > 3 else "")
    begin = f"{named} {'are' if len(full) > 1 else 'is'} full. " if full else ""
    waits = f"{waiting:,} workload{'s' if waiting != 1 else ''} wait{'s' if waiting == 1 else ''}"
    idle_text = f"Idle: {number(resource, idle)} {unit(resource)}."
    return f"{begin}{idle_text} {waits}, {running:,} {'is' if running == 1 else 'are'} admitted."
