"""Tables of `admit describe`: pod sets, conditions, usage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from admittance.api.units import parse, render
from admittance.cli.show import tables
from admittance.cli.show.objects import conditions_of, field
from admittance.cli.support.errors import AnswerIsNo
from admittance.cli.support.link import Link
from admittance.cli.support.output import NOTHING, Table, columns_of, pairs
from admittance.cli.support.times import age
from admittance.events.requests import (
    LocalUsage,
    NodeStatus,
    NodeUsage,
    Queues,
    QueuesReply,
    QueueStatus,
)
from admittance.quota.cell import UNLIMITED


def pod_sets(plain: Mapping[str, Any]) -> Table:
    """The table of pod sets: their requests, flavors and commands."""
    assigned = {
        one.get("name"): one
        for one in field(plain, "status", "admission", "podSetAssignments", default=[])
    }
    rows = []
    for pod_set in field(plain, "spec", "podSets", default=[]):
        name = pod_set.get("name", "main")
        containers = field(pod_set, "template", "spec", "containers", default=[])
        got = assigned.get(name) or {}
        rows.append(
            (
                name,
                str(pod_set.get("count", 1)),
                _requests(containers) or NOTHING,
                ",".join(dict.fromkeys((got.get("flavors") or {}).values())) or NOTHING,
                pairs(got.get("resourceUsage") or {}) or NOTHING,
                _command(containers),
            )
        )
    columns = columns_of("NAME", "#PODS", "REQUESTS PER POD", "FLAVORS", "USES IN ALL", "COMMAND")
    return Table(columns, rows)


def _requests(containers: Sequence[Mapping[str, Any]]) -> str:
    """The sums of the containers' requests, as text."""
    each = [pairs(field(one, "resources", "requests", default={})) for one in containers]
    return " + ".join(asked for asked in each if asked)


def _command(containers: Sequence[Mapping[str, Any]]) -> str:
    if not containers:
        return NOTHING
    words = [*(containers[0].get("command") or []), *(containers[0].get("args") or [])]
    text = " ".join(words) or str(containers[0].get("image", ""))
    return text if len(text) <= 60 else f"{text[:59]}…"


def conditions(plain: Mapping[str, Any], now: datetime) -> Table:
    """The table of an object's conditions."""
    rows = [
        (
            str(one.get("type", "")),
            str(one.get("status", "")),
            str(one.get("reason", "")) or NOTHING,
            _since(one.get("lastTransitionTime"), now),
            str(one.get("message", "")),
        )
        for one in conditions_of(plain)
    ]
    columns = columns_of("CONDITION", "STATUS", "REASON", "SINCE", "MESSAGE")
    return Table(columns, rows)


def _since(text: Any, now: datetime) -> str:
    try:
        return age(msgspec.convert(text, datetime, strict=False), now) if text else NOTHING
    except msgspec.ValidationError:
        return NOTHING


def usage_of(used: LocalUsage) -> str:
    """Text about the usage of a LocalQueue: what it uses, and the value that orders it."""
    amounts = ", ".join(
        f"{resource} {float(parse(much)):.4g}"
        for resource, much in used.consumed.consumed_resources.items()
    )
    compared = tables.value_of(used)
    order = "goes last" if used.value is None else f"compared by {compared}"
    return f"{order} (consumed {amounts or 'nothing'}; weight {used.weight:g})"


def usage(counted: QueueStatus, *, quota: bool) -> Table:
    """Usage of each flavor of a queue. ``quota``: with quota and borrowing, which a LocalQueue does
    not have.
    """
    columns = ["FLAVOR", "RESOURCE", "#RESERVED", "#ADMITTED"]
    if quota:
        columns = ["FLAVOR", "RESOURCE", "#NOMINAL", "#RESERVED", "#ADMITTED", "#BORROWED"]
    rows = []
    for one in counted.usage:
        amounts = [one.reserved, one.admitted]
        if quota:
            amounts = [one.nominal, *amounts, one.borrowed]
        rows.append((one.flavor, one.resource, *(render(one.resource, it) for it in amounts)))
    return Table(columns_of(*columns), rows)


async def tree_of(bus: Link, cohort: str) -> tuple[NodeStatus, ...]:
    """The scheduler's tree that contains the cohort; empty if it does not know the cohort.

    Raises AnswerIsNo if the scheduler does not answer.
    """
    reply = await bus.ask("queues", Queues(cohort=cohort), QueuesReply)
    return () if reply.error else reply.tree


async def known_tree(bus: Link, cohort: str) -> tuple[NodeStatus, ...]:
    """The cohort tree that `tree_of` returns; empty if the scheduler does not answer."""
    try:
        return await tree_of(bus, cohort)
    except AnswerIsNo:
        return ()


def facts_of(tree: Sequence[NodeStatus], cohort: str) -> list[tuple[str, str]]:
    """The ``Title: value`` lines about the cohort itself, without its tree."""
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
    """The table of a whole cohort tree; the given cohort is marked with a star."""
    columns = columns_of(
        "TREE",
        "FLAVOR",
        "RESOURCE",
        "#NOMINAL",
        "#WITH BELOW",
        "#USED",
        "#BORROWED",
        "#MAY LEND",
        "#FREE",
        "LIMITS",
    )
    rows: list[tuple[str, ...]] = []
    for node in tree:
        mark = " *" if node.kind == "Cohort" and node.name == cohort else ""
        title = (
            f"{'  ' * node.depth}{'cohort' if node.kind == 'Cohort' else 'cq'} {node.name}{mark}"
        )
        if not node.usage:
            rows.append((title, *(NOTHING,) * 9))
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
        ", ".join(limits) or NOTHING,
    )


def _amount(resource: str, amount: int) -> str:
    return "unlimited" if amount >= UNLIMITED else render(resource, amount)
