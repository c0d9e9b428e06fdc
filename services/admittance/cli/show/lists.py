"""Lists of objects of one kind: as a table with live counters, as JSON or YAML, as names."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from admittance.cli.show import tables
from admittance.cli.show.objects import shown_object, shown_queue, shown_workload
from admittance.cli.support import output
from admittance.cli.support.options import Call, Output
from admittance.cli.support.output import Table
from admittance.client import kinds
from admittance.client.errors import BadInput, RequestFailed
from admittance.client.kinds import ObjectKind
from admittance.client.requests import objects
from admittance.client.requests.link import Link
from admittance.client.requests.objects import BucketObject
from admittance.events.requests.queues import PendingQuery, PendingReply, Queues, QueuesReply
from admittance.runtime import clock
from admittance.runtime.bus.bucket import Entry
from admittance.workload.phase import Phase, phase
from admittance.workload.stored import PARENT, head

QUEUES: Final = (kinds.CLUSTER_QUEUE, kinds.LOCAL_QUEUE)
TABLES: Final = (Output.TABLE, Output.WIDE)


async def with_live(bus: Link, kind: ObjectKind, stored: list[BucketObject]) -> list[BucketObject]:
    """Adds to each MachinePool the bookings of its machines, to each Runner what runs there, and to
    each Budget what is used; returns other objects unchanged."""
    if kind is kinds.RUNNER:
        from admittance.client.requests import machines

        known = await machines.with_states(bus, kind, stored)
        if known.why:
            output.warn(f"what runs on machines is unknown: {known.why}")
        return known.runners
    if kind is kinds.BUDGET:
        from admittance.client.requests import budgets

        summed = await budgets.with_states(bus, kind, stored)
        if summed.why:
            output.warn(f"what budgets have used is unknown: {summed.why}")
        return summed.budgets
    if kind is not kinds.MACHINE_POOL:
        return stored
    from admittance.cli.show.capacity import pools

    return await pools.with_bookings(bus, kind, stored, clock.now())


async def variants_of(bus: Link, stored: BucketObject) -> list[BucketObject]:
    """The variants of a parent, which a table shows below the parent."""
    if head(stored.workload()).role != PARENT:
        return []
    from admittance.client.requests.workloads.families import family_of

    return [variant.found for variant in (await family_of(bus, stored)).variants]


async def find_all(bus: Link, kind: ObjectKind, namespace: str | None) -> list[BucketObject]:
    """All readable objects of a kind, sorted by name; namespace None: of all namespaces.

    Prints a warning about objects that cannot be read."""
    readable, aside = await objects.find_all(bus, kind, namespace)
    _warn_of_unreadable(kind, aside)
    return readable


def readable(kind: ObjectKind, stored: Sequence[BucketObject]) -> list[BucketObject]:
    """The objects that can be decoded; prints a warning for each object that cannot be decoded."""
    aside = sorted(each.key for each in stored if not each.is_readable())
    _warn_of_unreadable(kind, aside)
    return [each for each in stored if each.key not in aside]


def _warn_of_unreadable(kind: ObjectKind, aside: Sequence[str]) -> None:
    if aside:
        many = f"{len(aside)} {kind.plural}, such as {aside[0]}," if len(aside) > 1 else aside[0]
        output.warn(f"{many} cannot be read: see `admit doctor`")


async def live_counters(
    bus: Link, kind: ObjectKind, stored: Sequence[BucketObject]
) -> tables.Counters:
    """The scheduler's counters (such as pending workloads) of the found queues. If the scheduler
    does not answer, prints a warning and returns no counters.
    """
    if kind not in QUEUES or not stored:
        return {}
    narrow = stored[0].name if len(stored) == 1 and kind is kinds.CLUSTER_QUEUE else ""
    namespaces = {each.namespace for each in stored} if kind is kinds.LOCAL_QUEUE else set()
    within = namespaces.pop() if len(namespaces) == 1 else None
    try:
        query = Queues(cluster_queue=narrow)
        reply = await bus.ask("queues", query, QueuesReply, namespace=within)
    except RequestFailed as error:
        output.warn(f"no live counters: {error}")
        return {}
    if reply.error:
        output.warn(f"no live counters: {reply.error}")
    rows = reply.cluster_queues if kind is kinds.CLUSTER_QUEUE else reply.local_queues
    return {(row.namespace, row.name): row for row in rows}


async def waiting_reasons(
    call: Call, bus: Link, kind: ObjectKind, stored: Sequence[BucketObject], within: str | None
) -> tables.Reasons:
    """Why workloads wait, from the scheduler. The reasons in stored workloads are older than the
    scheduler's, and do not mention an inactive queue.

    Covers the first page of pending workloads. Empty if no table is printed, no workload is
    pending, or the scheduler does not answer.
    """
    if kind is not kinds.WORKLOAD or call.output not in TABLES:
        return {}
    now = clock.now()
    if all(phase(each.workload(), now) is not Phase.PENDING for each in stored):
        return {}
    try:
        reply = await bus.ask("pending", PendingQuery(), PendingReply, namespace=within)
    except RequestFailed:
        return {}
    return {(row.namespace, row.name): (row.reason, row.message) for row in reply.rows}


def shown(kind: ObjectKind, stored: BucketObject, counters: tables.Counters) -> dict[str, Any]:
    """The object as JSON and YAML output shows it."""
    if kind is kinds.WORKLOAD:
        return shown_workload(stored)
    if kind in QUEUES:
        namespace = stored.namespace if kind.namespaced else ""
        return shown_queue(stored, counters.get((namespace, stored.name)))
    if kind is kinds.MACHINE_POOL:
        from admittance.cli.show.capacity import pools

        return pools.shown(stored)
    return shown_object(stored)


def show(
    call: Call,
    kind: ObjectKind,
    stored: Sequence[BucketObject],
    counters: tables.Counters,
    *,
    single: bool,
    all_namespaces: bool,
    reasons: tables.Reasons = tables.NO_REASONS,
    filtered: bool = False,
    now: datetime | None = None,
) -> None:
    """Prints objects in the output format of the call. ``filtered``: the
    call has a filter, so that no objects means no matching ones. ``now``: the moment at which they
    are shown; None: the present.
    """
    match call.output:
        case Output.NAME:
            for each in stored:
                output.say(f"{kind.qualified}/{each.name}")
        case Output.JSON | Output.YAML:
            values = [shown(kind, each, counters) for each in stored]
            whole = values[0] if single else as_list(values)
            (output.show_json if call.output is Output.JSON else output.show_yaml)(whole)
        case Output.TABLE | Output.WIDE:
            if not stored:
                here = f" in namespace {call.namespace}" if kind.namespaced else ""
                matching = "matching " if filtered else ""
                output.note(f"no {matching}{kind.plural}" + ("" if all_namespaces else here))
                return
            moment = now or clock.now()
            table = tables.table(
                kind, stored, moment, counters, all_namespaces=all_namespaces, waits=reasons
            )
            output.show_table(table, wide=call.output is Output.WIDE)


def as_list(values: Sequence[Any]) -> dict[str, Any]:
    """The objects as a Kubernetes list object."""
    return {"apiVersion": "v1", "kind": "List", "items": list(values)}


def show_deletions(kind: kinds.ObjectKind, batch: list[Entry], *, shown: bool) -> None:
    """Prints one line for each deletion in a batch of changes; nothing if no object has been
    printed yet (``shown``).
    """
    for entry in batch:
        if entry.value is None and shown:
            output.note(f"{kind.qualified}/{objects.object_of(entry).name} deleted")


def show_changes(
    call: Call,
    kind: kinds.ObjectKind,
    stored: list[BucketObject],
    counters: tables.Counters,
    widths: list[int],
    *,
    all_namespaces: bool,
) -> None:
    match call.output:
        case Output.JSON:
            for each in stored:
                output.show_json_line(shown(kind, each, counters))
        case Output.YAML:
            raise BadInput("-w goes with a table, -o wide, -o name or -o json")
        case Output.NAME:
            for each in stored:
                output.say(f"{kind.qualified}/{each.name}")
        case Output.TABLE | Output.WIDE:
            table = tables.table(kind, stored, clock.now(), counters, all_namespaces=all_namespaces)
            narrowed = table.narrowed(call.output is Output.WIDE)
            first = not widths
            output.widen(widths, narrowed)
            lines = output.aligned(Table(narrowed.columns, narrowed.rows), widths)
            for number, line in enumerate(lines):
                if number or first:
                    output.say(output.clean(line))
