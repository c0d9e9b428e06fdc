"""A cohort tree as a table: quota, usage, borrowed and lendable amounts by level."""

from __future__ import annotations

from collections.abc import Sequence

from admittance.api.units import render
from admittance.cli.show import tables
from admittance.cli.support.errors import AnswerIsNo
from admittance.cli.support.link import Link
from admittance.cli.support.output import Column, Table
from admittance.events.requests import NodeStatus, NodeUsage, Queues, QueuesReply
from admittance.quota.amounts import UNLIMITED


async def tree_of(bus: Link, cohort: str) -> tuple[NodeStatus, ...]:
    """The scheduler's tree that contains the cohort; empty if it does not know the cohort.

    Raises AnswerIsNo if the scheduler does not answer.
    """
    reply = await bus.ask("queues", Queues(cohort=cohort), QueuesReply)
    return () if reply.error else reply.tree


async def known_tree(bus: Link, cohort: str) -> tuple[NodeStatus, ...]:
    """`tree_of`; empty if the scheduler does not answer."""
    try:
        return await tree_of(bus, cohort)
    except AnswerIsNo:
        return ()


def facts_of(tree: Sequence[NodeStatus], cohort: str) -> list[tuple[str, str]]:
    """Title and text about the cohort itself."""
    here = next((one for one in tree if one.kind == "Cohort" and one.name == cohort), None)
    if here is None:
        return []
    below = _below(tree, here)
    found = [
        ("Root", tree[0].name),
        ("Parent", here.parent),
        ("Weight", f"{here.weight:g}"),
        ("Weighted share", share(here.share)),
        ("ClusterQueues below", ", ".join(one.name for one in below if one.kind != "Cohort")),
        ("Pending below", str(sum(one.pending for one in below))),
        ("Reserving below", str(sum(one.reserving for one in below))),
    ]
    if here.in_cycle:
        found.append(("Cycle", "the cohorts above are in a cycle: nothing is admitted here"))
    return found


def _below(tree: Sequence[NodeStatus], here: NodeStatus) -> list[NodeStatus]:
    at = next(index for index, one in enumerate(tree) if one is here)
    found: list[NodeStatus] = []
    for one in tree[at + 1 :]:
        if one.depth <= here.depth:
            break
        found.append(one)
    return found


def share(thousandths: int) -> str:
    """A weighted share as text; a borrower with weight 0 has the highest share."""
    return "without weight" if thousandths >= UNLIMITED else str(thousandths)


def tree_table(tree: Sequence[NodeStatus], cohort: str) -> Table:
    """The whole tree; the given cohort is marked with a star."""
    columns = (
        Column("TREE"),
        Column("FLAVOR"),
        Column("RESOURCE"),
        Column("NOMINAL", right=True),
        Column("WITH BELOW", right=True),
        Column("USED", right=True),
        Column("BORROWED", right=True),
        Column("MAY LEND", right=True),
        Column("FREE", right=True),
        Column("LIMITS"),
    )
    rows: list[tuple[str, ...]] = []
    for node in tree:
        mark = " *" if node.kind == "Cohort" and node.name == cohort else ""
        title = (
            f"{'  ' * node.depth}{'cohort' if node.kind == 'Cohort' else 'cq'} {node.name}{mark}"
        )
        if not node.usage:
            rows.append((title, *(tables.NOTHING,) * 9))
        for at, one in enumerate(node.usage):
            rows.append((title if not at else "", one.flavor, one.resource, *_numbers(one)))
    return Table(columns, rows)


def _numbers(one: NodeUsage) -> tuple[str, ...]:
    limits = [
        f"{title} {_amount(one.resource, limit)}"
        for title, limit in (("borrow", one.borrowing_limit), ("lend", one.lending_limit))
        if limit is not None
    ]
    return (
        *(
            _amount(one.resource, much)
            for much in (
                one.nominal,
                one.subtree,
                one.usage,
                one.borrowed,
                one.lendable,
                one.available,
            )
        ),
        ", ".join(limits) or tables.NOTHING,
    )


def _amount(resource: str, amount: int) -> str:
    return "unlimited" if amount >= UNLIMITED else render(resource, amount)
