"""Parts of `admit describe` and `admit explain`: pod sets, conditions, usage, admission checks and
the next attempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

import msgspec

from admittance.api.fields.units import parse, render
from admittance.api.workload import CheckState
from admittance.cli.show import tables
from admittance.cli.show.objects import check_conditions
from admittance.cli.support.output import NOTHING, Table, columns_of, pairs
from admittance.cli.support.times import age
from admittance.client.arguments.times import span, stamp
from admittance.client.errors import RequestFailed
from admittance.client.requests.link import Link
from admittance.client.requests.objects import conditions_of, field
from admittance.client.wording.phrases import amount_text, retries_text
from admittance.events.requests.queues import (
    LocalUsage,
    NodeStatus,
    NodeUsage,
    Queues,
    QueuesReply,
    QueueStatus,
)
from admittance.events.shapes import PodRetries
from admittance.quota.cell import UNLIMITED
from admittance.runtime.telemetry.findings import size_of
from admittance.workload.conditions import Type, is_false
from admittance.workload.phase import Phase, phase
from admittance.workload.stored import PARENT, StoredWorkload, head


def pod_sets(plain: Mapping[str, Any]) -> Table:
    """The table of pod sets: their requests, flavors and commands."""
    assigned = {
        assignment.get("name"): assignment
        for assignment in field(plain, "status", "admission", "podSetAssignments", default=[])
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


def outputs(workload: StoredWorkload) -> Table:
    """The table of the files that a job left."""
    rows = [
        (file.name, NOTHING if file.problem else size_of(file.size), file.problem or "kept")
        for file in workload.status.outputs
    ]
    return Table(columns_of("OUTPUT", "#SIZE", "STATE"), rows)


def _requests(containers: Sequence[Mapping[str, Any]]) -> str:
    """The sums of the containers' requests, as text."""
    each = [
        pairs(field(container, "resources", "requests", default={})) for container in containers
    ]
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
            str(condition.get("type", "")),
            str(condition.get("status", "")),
            str(condition.get("reason", "")) or NOTHING,
            _since(condition.get("lastTransitionTime"), now),
            str(condition.get("message", "")),
        )
        for condition in conditions_of(plain)
    ]
    columns = columns_of("CONDITION", "STATUS", "REASON", "SINCE", "MESSAGE")
    return Table(columns, rows)


def _since(text: Any, now: datetime) -> str:
    try:
        return age(msgspec.convert(text, datetime, strict=False), now) if text else NOTHING
    except msgspec.ValidationError:
        return NOTHING


def usage_of(used: LocalUsage) -> str:
    """Text about the usage of a LocalQueue: the quota that its workloads use, and the value by
    which usage-based fair sharing orders the queue.
    """
    compared = tables.value_of(used)
    order = "goes last" if used.value is None else f"compared by {compared}"
    return f"{order} (consumed {_consumed(used)}; weight {used.weight:g})"


def users(counted: QueueStatus) -> Table:
    """The table of the usage of each user, the least first, which goes first."""
    rows = [
        (row.user or "(no user)", tables.value_of(row.used), _consumed(row.used))
        for row in counted.users
    ]
    return Table(columns_of("USER", "#USAGE", "CONSUMED"), rows)


def _consumed(used: LocalUsage) -> str:
    amounts = ", ".join(
        f"{resource} {float(parse(much)):.4g}"
        for resource, much in used.consumed.consumed_resources.items()
    )
    return amounts or "nothing"


def persons(counted: QueueStatus) -> Table:
    """The table of what each user, or each value of a label, holds of a queue with such limits."""
    rows = [
        (
            f"{row.label}={row.person}" if row.label else row.person or "(no user)",
            row.resource,
            render(row.resource, row.held),
            render(row.resource, row.most),
        )
        for row in counted.persons
    ]
    return Table(columns_of("PERSON", "RESOURCE", "#HELD", "#AT MOST"), rows)


def usage(counted: QueueStatus, *, quota: bool) -> Table:
    """Usage of each flavor of a queue. ``quota``: adds the columns for nominal quota and borrowed
    quota, which a LocalQueue does not have.
    """
    columns = ["FLAVOR", "RESOURCE", "#RESERVED", "#ADMITTED"]
    if quota:
        columns = ["FLAVOR", "RESOURCE", "#NOMINAL", "#RESERVED", "#ADMITTED", "#BORROWED"]
    rows = []
    for usage_row in counted.usage:
        amounts = [usage_row.reserved, usage_row.admitted]
        if quota:
            amounts = [usage_row.nominal, *amounts, usage_row.borrowed]
        rows.append(
            (
                usage_row.flavor,
                usage_row.resource,
                *(render(usage_row.resource, it) for it in amounts),
            )
        )
    return Table(columns_of(*columns), rows)


async def tree_of(bus: Link, cohort: str) -> tuple[NodeStatus, ...]:
    """The scheduler's tree that contains the cohort; empty if the scheduler does not know the
    cohort, or does not answer."""
    try:
        reply = await bus.ask("queues", Queues(cohort=cohort), QueuesReply)
    except RequestFailed:
        return ()
    return () if reply.error else reply.tree


def facts_of(tree: Sequence[NodeStatus], cohort: str) -> list[tuple[str, str]]:
    """The ``Title: value`` lines about the cohort itself, without its tree."""
    here = next((node for node in tree if node.kind == "Cohort" and node.name == cohort), None)
    if here is None:
        return []
    below = [node for node in _below(tree, here) if node.kind != "Cohort"]
    facts = [
        ("Root", tree[0].name),
        ("Parent", here.parent),
        ("Weight", f"{here.weight:g}"),
        ("Weighted share", share(here.share)),
        ("ClusterQueues below", ", ".join(node.name for node in below)),
        ("Pending below", str(sum(node.pending for node in below))),
        ("Reserving below", str(sum(node.reserving for node in below))),
    ]
    if here.in_cycle:
        facts.append(("Cycle", "the cohorts above are in a cycle: nothing is admitted here"))
    return facts


def _below(tree: Sequence[NodeStatus], here: NodeStatus) -> list[NodeStatus]:
    at = next(index for index, node in enumerate(tree) if node is here)
    nodes: list[NodeStatus] = []
    for node in tree[at + 1 :]:
        if node.depth <= here.depth:
            break
        nodes.append(node)
    return nodes


def share(thousandths: float) -> str:
    """A weighted share as text; a borrower with weight 0 has the highest share."""
    return "without weight" if thousandths >= UNLIMITED else f"{thousandths:.0f}"


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
        for at, usage_row in enumerate(node.usage):
            rows.append(
                (
                    title if not at else "",
                    usage_row.flavor,
                    usage_row.resource,
                    *_numbers(usage_row),
                )
            )
    return Table(columns, rows)


def _numbers(usage_row: NodeUsage) -> tuple[str, ...]:
    limits = [
        f"{title} {amount_text(usage_row.resource, limit)}"
        for title, limit in (
            ("borrow", usage_row.borrowing_limit),
            ("lend", usage_row.lending_limit),
        )
        if limit is not None
    ]
    return (
        *(
            amount_text(usage_row.resource, much)
            for much in (
                usage_row.nominal,
                usage_row.subtree,
                usage_row.usage,
                usage_row.borrowed,
                usage_row.lendable,
                usage_row.available,
            )
        ),
        ", ".join(limits) or NOTHING,
    )


DECIDES = "decides"


def end_of(row: CheckState) -> datetime | None:
    """When the delay requested by the check ends; None if the check requested no delay."""
    from admittance.workload.moves import backoff

    return backoff.end_of(row)


def deciding(workload: StoredWorkload) -> tuple[str, ...]:
    """Names of the checks with the longest delay; after that delay all checks are requested
    again."""
    state = workload.status.requeue_state
    until = state.requeue_at if state is not None else None
    if until is None:
        return ()
    return tuple(row.name for row in workload.status.admission_checks if end_of(row) == until)


NO_INACTIVE: Final[Mapping[str, str]] = MappingProxyType({})


def check_table(
    workload: StoredWorkload, now: datetime, inactive: Mapping[str, str] = NO_INACTIVE
) -> Table:
    """One row per check: state, since when, number of retries, remaining delay. ``inactive``: why
    the controllers of checks give no verdict now, by check."""
    last = deciding(workload)
    rows = []
    for row in workload.status.admission_checks:
        end = end_of(row)
        left = NOTHING
        if end is not None:
            left = span((end - now).total_seconds()) if end > now else "over"
            left += f" ({DECIDES})" if row.name in last else ""
        rows.append(
            (
                row.name,
                row.state,
                row.reason or NOTHING,
                age(row.last_transition_time, now),
                str(row.retry_count),
                left,
                "; ".join(filter(None, (row.message, inactive.get(row.name)))) or NOTHING,
            )
        )
    columns = columns_of("CHECK", "STATE", "REASON", "SINCE", "#RETRIES", "STILL WAITS", "MESSAGE")
    return Table(columns, rows)


def next_attempt(
    workload: StoredWorkload, now: datetime, variants: Iterable[StoredWorkload] = ()
) -> str:
    """When the workload competes for quota again, and what sets that time; "" if no time is set.
    ``variants``: the variants if the workload is a parent.
    """
    state = workload.status.requeue_state
    until = state.requeue_at if state is not None else None
    if until is None or state is None or phase(workload, now) is Phase.FINISHED:
        return ""
    last = deciding(workload)
    cause = (
        ", ".join(f'"{name}"' for name in last) if last else "the backoff after PodsReadyTimeout"
    )
    if head(workload).role == PARENT and not is_false(workload, Type.REQUEUED):
        first = [
            head(variant).variant
            for variant in variants
            if variant.status.requeue_state is not None
            and variant.status.requeue_state.requeue_at == until
        ]
        cause = f"variant {', '.join(first)}" if first else "the first of its variants"
    left = f"in {span((until - now).total_seconds())}" if until > now else "by now"
    return f"{stamp(until)} ({left}, set by {cause})"


def pods_ready_evictions(workload: StoredWorkload) -> str:
    """How often the workload was evicted because its pods were not ready in time; "" if never."""
    state = workload.status.requeue_state
    return str(state.count) if state is not None and state.count else ""


def check_values(rows: list[dict[str, Any]], workload: StoredWorkload) -> list[dict[str, Any]]:
    """The workload's checks as conditions with their delays, for JSON and YAML."""
    last = deciding(workload)
    values = []
    for condition, row in zip(
        check_conditions(rows), workload.status.admission_checks, strict=True
    ):
        value = {**condition, "retryCount": row.retry_count}
        end = end_of(row)
        if end is not None:
            value["requeueAfterSeconds"] = row.requeue_after_seconds
            value["notBefore"] = stamp(end)
            value[DECIDES] = row.name in last
        values.append(value)
    return values


def retry_lines(retries: PodRetries | None, now: datetime) -> tuple[str, ...]:
    """The failed pods of a job, one line for the job and one for each pod that waits."""
    if retries is None:
        return ()
    lines = [f"pods failed {retries_text(retries)}"]
    for pod in retries.pods:
        seconds = max(0.0, (pod.at - now).total_seconds())
        left = "" if pod.left is None else f"; {pod.left:,} retries left after it"
        lines.append(f"{pod.pod} runs again at {stamp(pod.at)} (in {span(seconds)}){left}")
    if (more := retries.waiting - len(retries.pods)) > 0:
        lines.append(f"{more:,} more pods wait longer")
    return tuple(lines)
